//! What can go wrong in a run.

use std::path::PathBuf;
use unisono_data::DataError;
use unisono_tensor::TensorError;

/// Errors of a run. The messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// From the data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// From the tensors and devices.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// From a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] crate::checkpoint::CheckpointError),
    /// From a model's directory.
    #[error(transparent)]
    Hub(#[from] crate::hub::HubError),
    /// A loss or gradient that is no number.
    #[error(
        "step {step}: the {what} is {value}; no update was made in this step or after it. {kept}. A lower learning rate \
         (now {lr:e}) or training_config.use_clip_grad_norm: true are what helps most often"
    )]
    NotFinite {
        /// Optimizer step, counted from 1.
        step: u64,
        /// Loss or gradient norm.
        what: &'static str,
        /// Its value.
        value: f32,
        /// Learning rate of the step.
        lr: f64,
        /// Which checkpoint remains.
        kept: String,
    },
    /// A file or folder of the run.
    #[error("{}: {what}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, and what would work.
        what: String,
    },
    /// Something asked of a run that it cannot do.
    #[error("{0}")]
    Refused(String),
}

/// Result of everything in this crate that runs.
pub type Result<T> = std::result::Result<T, TrainError>;
