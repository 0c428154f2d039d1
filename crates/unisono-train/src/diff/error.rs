//! What can go wrong when runs are compared.

use crate::checkpoint::CheckpointError;
use crate::config::ConfigErrors;
use std::path::Path;
use unisono_data::DataError;

/// Errors of a comparison. The messages are complete sentences for the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DiffError {
    /// A file could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint could not be read.
    #[error(transparent)]
    Checkpoint(CheckpointError),
    /// A checkpoint whose contents are not those that were written.
    #[error("{file} is damaged: {problem}; {}", offer(.checkpoint, .older))]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
        /// The directory of the checkpoint.
        checkpoint: String,
        /// The newest older checkpoint of the run that is good.
        older: Option<String>,
    },
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
    #[error("there is nothing to compare: A has {a}, and B has {b}{}; train one of them until they share a step", keys(.result_keys))]
    NothingInCommon {
        /// What the first has.
        a: String,
        /// What the second has.
        b: String,
        /// The keys on which their configurations differ and that change the result.
        result_keys: Vec<&'static str>,
    },
}

impl From<CheckpointError> for DiffError {
    /// Resuming is no answer to somebody who compares.
    fn from(error: CheckpointError) -> DiffError {
        match error {
            CheckpointError::Damaged { file, problem, instead } => DiffError::Damaged {
                checkpoint: Path::new(&file)
                    .parent()
                    .map_or_else(String::new, |checkpoint| checkpoint.display().to_string()),
                file,
                problem,
                older: instead,
            },
            error => DiffError::Checkpoint(error),
        }
    }
}

fn offer(checkpoint: &str, older: &Option<String>) -> String {
    let rest = match older {
        Some(older) => format!("the checkpoint before it, {older}, is good"),
        None => "no older checkpoint of the run is good".to_string(),
    };
    format!("{rest}: move the directory {checkpoint} out of the run to compare what is left")
}

fn keys(keys: &[&str]) -> String {
    match keys {
        [] => String::new(),
        keys => format!(" (and their configurations differ in {})", keys.join(", ")),
    }
}
