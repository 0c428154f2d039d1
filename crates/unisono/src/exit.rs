//! How a command ends: the exit codes and the one failure type of the command line.

use unisono_data::DataError;
use unisono_runtime::transport::TransportError;
use unisono_train::TrainError;
use unisono_train::checkpoint::CheckpointError;
use unisono_train::diff::DiffError;
use unisono_train::generate::GenerateError;
use unisono_train::hub::HubError;

/// All is well.
pub const OK: u8 = 0;
/// Something failed while it ran.
pub const FAILED: u8 = 1;
/// The input is wrong: options, configuration, data, a checkpoint.
pub const INPUT: u8 = 2;
/// `diff` found a difference.
pub const DIFFERS: u8 = 3;
/// Ended by a signal: this plus the signal's number, as shells count.
pub const SIGNAL: u8 = 128;

/// The lines of `--help` on exit codes.
pub const HELP: &str = "\
Exit codes:
  0        done
  1        failed while running: a loss that is no number, a full disk, too little memory
  2        wrong input: options, configuration, data or checkpoint; nothing was run
  3        diff found a difference
  129 130 143  ended by a closed terminal, Ctrl-C, SIGTERM; `train` finishes its step and writes a checkpoint first
  `run` ends with the code of the rank that ended it

Environment: UNISONO_LOG=error|warn|info|debug|trace (or TT_METAL_LOGGER_LEVEL), NO_COLOR,
UNISONO_ISA=portable|avx2|avx512. More: docs/cli.md";

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// Sentences, one a line, each a problem.
    pub message: String,
}

impl Failure {
    /// Wrong input.
    pub fn input(message: impl ToString) -> Failure {
        Failure {
            code: INPUT,
            message: message.to_string(),
        }
    }

    /// A failure while running.
    pub fn running(message: impl ToString) -> Failure {
        Failure {
            code: FAILED,
            message: message.to_string(),
        }
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Failure {
        Failure {
            code: code_of(&error),
            message: error.to_string(),
        }
    }
}

impl From<TransportError> for Failure {
    /// Where another process has failed, its exit code counts.
    fn from(error: TransportError) -> Failure {
        let code = match &error {
            TransportError::Failed { code, .. } => u8::try_from(*code).unwrap_or(FAILED),
            _ => FAILED,
        };
        Failure {
            code,
            message: error.to_string(),
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Failure {
        TrainError::from(error).into()
    }
}

impl From<unisono_tensor::TensorError> for Failure {
    fn from(error: unisono_tensor::TensorError) -> Failure {
        TrainError::from(error).into()
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Failure {
        TrainError::from(error).into()
    }
}

impl From<GenerateError> for Failure {
    fn from(error: GenerateError) -> Failure {
        let code = match &error {
            GenerateError::Tensor(_) | GenerateError::NotFinite { .. } => FAILED,
            _ => INPUT,
        };
        Failure {
            code,
            message: error.to_string(),
        }
    }
}

impl From<DiffError> for Failure {
    fn from(error: DiffError) -> Failure {
        Failure::input(error)
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Failure {
        match error {
            HubError::Data(error) => error.into(),
            HubError::Tensor(error) => error.into(),
            other => Failure::input(other),
        }
    }
}

fn code_of(error: &TrainError) -> u8 {
    match error {
        TrainError::Data(error) | TrainError::Checkpoint(CheckpointError::Data(error)) => match error {
            DataError::Write { .. } | DataError::Prefetch { .. } => FAILED,
            _ => INPUT,
        },
        TrainError::Checkpoint(
            CheckpointError::Tensor(_) | CheckpointError::ReplicasDiffer { .. } | CheckpointError::NotFinite { .. },
        ) => FAILED,
        TrainError::Checkpoint(_) | TrainError::Refused(_) => INPUT,
        _ => FAILED,
    }
}
