//! What a run gave.

use crate::evaluate::Evaluation;
use crate::plan::EndRule;
use serde::Serialize;
use std::path::PathBuf;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All steps are done.
    Done(EndRule),
    /// It was asked to stop; it can be resumed.
    Stopped,
}

/// What a run gave.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Why it ended.
    pub ending: Ending,
    /// Optimizer steps done, over all sessions.
    pub steps: u64,
    /// The last step's loss; `None` before any step, and where every target of the last one was masked.
    pub loss: Option<f32>,
    /// The last validation.
    pub validation: Option<Evaluation>,
    /// Seconds of this session on the clock, from the first step on.
    pub seconds: f64,
    /// Seconds of these on the clock in which no step ran: validations, copies for checkpoints and waits for their disk,
    /// comparisons of replicas.
    pub aside_seconds: f64,
    /// Seconds of the workers by phase, divided by their number.
    pub phases: Vec<(&'static str, f64)>,
    /// Seconds on the clock in which messages to other processes were on their way, and those of them in which this process had nothing
    /// else to do; `None` where one process runs.
    pub between_processes: Option<[f64; 2]>,
    /// Tokens (targets) a second of this session.
    pub tokens_per_s: f64,
    /// Optimizer steps a second of this session.
    pub steps_per_s: f64,
    /// Floating-point operations a second of training, as the field counts them.
    pub flops_per_s: f64,
    /// Most bytes in use at once on a device.
    pub memory_peak: u64,
    /// The last checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// The model for other programs, where the run is at its end and leaves one.
    pub final_model: Option<PathBuf>,
    /// Pictures of the curves, where the run is at its end.
    pub curves: Vec<PathBuf>,
    /// Sentences on trackers that failed.
    pub notes: Vec<String>,
}
