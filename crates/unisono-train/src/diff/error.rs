//! What can go wrong when runs are compared.

use crate::checkpoint::CheckpointError;
use crate::config::ConfigErrors;
use unisono_data::DataError;

/// Errors of a comparison. The messages are complete sentences for the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DiffError {
    /// A file could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint could not be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A run's configuration could not be read.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A directory that holds no run.
    #[error("{path} holds no run: {problem}; name the directory that `unisono train --out` made")]
    NotARun {
        /// The directory.
        path: String,
        /// What is missing.
        problem: String,
    },
    /// Runs without a common step.
    #[error("there is nothing to compare: A has {a}, and B has {b}; train one of them until they share a step")]
    NothingInCommon {
        /// What the first has.
        a: String,
        /// What the second has.
        b: String,
    },
}
