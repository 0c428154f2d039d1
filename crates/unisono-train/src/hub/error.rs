//! What can go wrong between a model and other programs' files.

use std::path::Path;
use unisono_data::DataError;
use unisono_tensor::TensorError;

/// Errors of models in files. The messages are complete sentences for the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HubError {
    /// A file could not be read or written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// From the devices.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A name that leads to no model.
    #[error("{0}")]
    Name(String),
    /// A directory or file that holds no model that can be used.
    #[error("{path}: {problem}")]
    Unusable {
        /// The directory or file.
        path: String,
        /// What is wrong, and what would work.
        problem: String,
    },
    /// A configuration that is wrong or of a model that is not built here.
    #[error("{path}: {}", ten(.problems))]
    Config {
        /// The file.
        path: String,
        /// Each problem as a clause that names its key.
        problems: Vec<String>,
    },
    /// A file or directory that must not be replaced.
    #[error(
        "{path} was not written by `unisono export` and would be replaced: export into a directory of its own, or move it away"
    )]
    InTheWay {
        /// The file.
        path: String,
    },
    /// Tensors that are not those of the model.
    #[error("{path} does not fit this model, and nothing was changed: {}", ten(.problems))]
    Misfit {
        /// The file or directory.
        path: String,
        /// Each problem as a clause.
        problems: Vec<String>,
    },
}

impl HubError {
    pub(crate) fn in_the_way(path: &Path) -> HubError {
        HubError::InTheWay {
            path: path.display().to_string(),
        }
    }

    pub(crate) fn unusable(path: &Path, problem: impl Into<String>) -> HubError {
        HubError::Unusable {
            path: path.display().to_string(),
            problem: problem.into(),
        }
    }
}

/// The first ten, and how many more.
fn ten(problems: &[String]) -> String {
    let mut text = problems.iter().take(10).cloned().collect::<Vec<_>>().join("; ");
    if problems.len() > 10 {
        text += &format!("; and {} more", problems.len() - 10);
    }
    text
}
