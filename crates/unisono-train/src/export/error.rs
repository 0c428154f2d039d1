//! What can go wrong between a model and a file of weights.

use crate::checkpoint::three;
use std::path::Path;
use unisono_data::DataError;
use unisono_tensor::TensorError;

/// Errors of export and import. The messages are complete sentences for the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ExportError {
    /// A file could not be read or written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// From the devices.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A file that an export must not replace.
    #[error(
        "{path} was not written by `unisono export` and would be replaced: export into a directory of its own, or move it away"
    )]
    InTheWay {
        /// The file.
        path: String,
    },
    /// Tensors that are not those of the model.
    #[error("{path} does not fit this model, and nothing was changed: {}", three(.problems))]
    Misfit {
        /// The file.
        path: String,
        /// Each problem as a clause.
        problems: Vec<String>,
    },
}

impl ExportError {
    pub(super) fn in_the_way(path: &Path) -> ExportError {
        ExportError::InTheWay {
            path: path.display().to_string(),
        }
    }
}
