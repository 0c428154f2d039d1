//! What can go wrong with checkpoints.

use super::manifest::FORMAT;
use unisono_data::DataError;
use unisono_tensor::TensorError;

/// Errors of checkpoints. The messages are complete sentences for the user.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// A file could not be read or written.
    #[error(transparent)]
    Data(#[from] DataError),
    /// From the devices.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Processes that write one checkpoint do not see each other's files.
    #[error(
        "{directory}: the files of {who} did not come within {seconds} s: the folder of a run must be shared by all its hosts"
    )]
    Apart {
        /// Where they should have come.
        directory: String,
        /// Whose.
        who: String,
        /// How long they were waited for.
        seconds: u64,
    },
    /// Nothing to resume from.
    #[error("{directory} holds no complete checkpoint{}; train without --resume to begin at step 0", .ignored.iter().map(|i| format!(" ({i})")).collect::<String>())]
    None {
        /// The directory.
        directory: String,
        /// What was passed over there, in sentences.
        ignored: Vec<String>,
    },
    /// A path that is something else.
    #[error("{path} is no checkpoint: {problem}")]
    NotACheckpoint {
        /// The path.
        path: String,
        /// What is there, and what should be.
        problem: String,
    },
    /// A file whose contents are not those that were written.
    #[error("{file} is damaged: {problem}; {}", offer(.instead))]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
        /// The newest older checkpoint that is good.
        instead: Option<String>,
    },
    /// A checkpoint of another version.
    #[error(
        "{path} has checkpoint format {found}, written by unisono {written_by}; this is unisono {}, which reads format {FORMAT}: use the version that wrote it, or export its weights there and import them here", env!("CARGO_PKG_VERSION")
    )]
    Format {
        /// The checkpoint.
        path: String,
        /// Its format.
        found: u64,
        /// The version in it.
        written_by: String,
    },
    /// Tensors that are not those of the model.
    #[error("{path} does not fit this model, and nothing was changed: {}", three(.problems))]
    Misfit {
        /// The checkpoint.
        path: String,
        /// Each problem as a clause.
        problems: Vec<String>,
    },
    /// Copies of a tensor that are not the same any more.
    #[error(
        "after step {step}, {tensor} is not the same on devices {} and {}: element {index} of their shard is {} ({:08x}) and {} ({:08x}). Copies of one tensor must be equal; this is a fault of the memory, of a custom operation or of unisono, and nothing was saved. Resume from an earlier checkpoint",
        .devices.0, .devices.1, .values.0, .values.0.to_bits(), .values.1, .values.1.to_bits()
    )]
    ReplicasDiffer {
        /// Optimizer steps done.
        step: u64,
        /// The tensor.
        tensor: String,
        /// Two devices that should hold the same.
        devices: (usize, usize),
        /// First element that differs, counted in the shard.
        index: usize,
        /// Its values.
        values: (f32, f32),
    },
    /// Values that must not be saved.
    #[error(
        "after step {step}, {tensor} holds {value} at element {index}, so no checkpoint was written; the older ones are as they were. Resume from one of them with a lower learning rate or with gradient clipping"
    )]
    NotFinite {
        /// Optimizer steps done.
        step: u64,
        /// The tensor.
        tensor: String,
        /// First element that is not finite, row-major.
        index: usize,
        /// Its value.
        value: f32,
    },
}

fn offer(instead: &Option<String>) -> String {
    match instead {
        Some(path) => format!("the checkpoint before it, {path}, is good: resume with --resume {path}"),
        None => "no older checkpoint beside it is good: put the file back from a copy, or begin the run anew (`unisono train … --fresh`)"
            .to_string(),
    }
}

/// The first three of a list, and how many more there are.
pub(crate) fn three(problems: &[String]) -> String {
    let mut text = problems.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
    if problems.len() > 3 {
        text += &format!("; and {} more", problems.len() - 3);
    }
    text
}
