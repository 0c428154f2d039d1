//! Comparing two runs, bit by bit.
//!
//! [`compare`] reads two run directories: their configurations, their metrics line by line, and their checkpoints of common
//! steps tensor by tensor. The [`Report`] says whether they are identical, else the first step, quantity or tensor that
//! differs, with both values in hex. It is data (`serde`) and, displayed, a text for people.

mod batches;
mod config;
mod error;
mod metrics;
mod run;
mod show;
mod tensors;

pub use batches::{BatchComparison, Point};
pub use config::{KeyDifference, Role};
pub use error::DiffError;
pub use metrics::{MetricDifference, MetricsComparison};
pub use tensors::{CheckpointComparison, TensorDifference};

use crate::config::RunConfig;
use run::RunDirectory;
use serde::Serialize;
use std::path::Path;

/// Result of everything here that can fail.
pub type Result<T> = std::result::Result<T, DiffError>;

/// One of the two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Its directory.
    pub path: String,
    /// Optimizer steps in its metrics.
    pub steps: u64,
    /// Sequences of an optimizer step.
    pub effective_batch: usize,
    /// The mesh of its newest checkpoint, or of its configuration.
    pub mesh: String,
    /// The instruction set of its newest checkpoint.
    pub isa: Option<String>,
    /// Steps of its checkpoints, oldest first.
    pub checkpoints: Vec<u64>,
}

/// What both runs answered to a prompt; filled in by whoever can generate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answers {
    /// The prompt.
    pub prompt: String,
    /// The first run's answer.
    pub a: String,
    /// The second's.
    pub b: String,
}

/// How two runs compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    identical: bool,
    /// The first run.
    pub a: Side,
    /// The second run.
    pub b: Side,
    /// The keys of the configurations that differ.
    pub keys: Vec<KeyDifference>,
    /// The metrics, step by step; for runs of another effective batch there is no step to compare.
    pub metrics: MetricsComparison,
    /// The checkpoints of common steps.
    pub checkpoints: CheckpointComparison,
    /// For runs of another effective batch: the losses by sequences seen, and the learning rate that suits.
    pub batches: Option<BatchComparison>,
    /// What could not be compared although it belongs to the comparison; with anything here the runs are not called identical.
    pub missing: Vec<String>,
    /// What else there is to say, in sentences.
    pub notes: Vec<String>,
    /// Both runs' answers to prompts, where the caller asked for them.
    pub answers: Vec<Answers>,
}

impl Report {
    /// Whether the runs are equal bit by bit: at least one step's metrics were compared and no step within the range of both is
    /// missing, the checkpoints of all common steps were compared, and all is equal. Where keys that change the result differ, tensors
    /// must have been compared too. Runs of another effective batch are not identical.
    pub fn identical(&self) -> bool {
        self.identical
    }
}

/// Compares two runs by their directories.
///
/// # Errors
/// A directory that holds no run, a damaged checkpoint, or nothing in common to compare.
pub fn compare(run_a: &Path, run_b: &Path) -> Result<Report> {
    let (a, b) = (RunDirectory::open(run_a)?, RunDirectory::open(run_b)?);
    let mut notes: Vec<String> = [&a, &b].into_iter().flat_map(|run| run.notes.clone()).collect();
    let keys = config::differences(&a.config, &b.config);
    let same_batch = effective_batch(&a.config) == effective_batch(&b.config);
    let (metrics, checkpoints, batches) = if same_batch {
        if a.last_step() != b.last_step() && !a.metrics.is_empty() && !b.metrics.is_empty() {
            notes.push(format!(
                "A has {} steps and B has {}: the steps that both have are compared",
                a.last_step(),
                b.last_step()
            ));
        }
        let metrics = metrics::compare(&a.metrics, &b.metrics);
        (metrics, tensors::compare(&a, &b, &mut notes)?, None)
    } else {
        notes.push(
            "their optimizer steps hold different numbers of sequences, so no step of one is a step of the other: losses are \
             compared by sequences seen"
                .to_string(),
        );
        let batches = batches::compare(&a, &b);
        (
            MetricsComparison::default(),
            CheckpointComparison::default(),
            Some(batches),
        )
    };
    if let (Some(first), Some(second)) = (a.data_digest(), b.data_digest())
        && first != second
    {
        notes.push("they were trained on different data (the digests in their checkpoints differ)".to_string());
    }
    let compared = metrics.steps > 0 || checkpoints.tensors > 0;
    if !compared && batches.as_ref().is_none_or(|batches| batches.points.is_empty()) {
        return Err(DiffError::NothingInCommon {
            a: a.describe(),
            b: b.describe(),
            result_keys: result_keys(&keys),
        });
    }
    let missing = match batches {
        Some(_) => Vec::new(),
        None => missing(&a, &b, &keys, &metrics, &checkpoints),
    };
    Ok(Report {
        identical: compared && missing.is_empty() && metrics.first.is_none() && checkpoints.first.is_none(),
        a: a.side(),
        b: b.side(),
        keys,
        metrics,
        checkpoints,
        batches,
        missing,
        notes,
        answers: Vec::new(),
    })
}

/// What stands between equal data and identical runs, as clauses.
fn missing(
    a: &RunDirectory,
    b: &RunDirectory,
    keys: &[KeyDifference],
    metrics: &MetricsComparison,
    checkpoints: &CheckpointComparison,
) -> Vec<String> {
    let mut missing = Vec::new();
    if metrics.steps == 0 {
        missing.push(format!(
            "a common step of the metrics (A has {}, B has {})",
            a.describe_metrics(),
            b.describe_metrics()
        ));
    }
    for (gaps, name) in [(&metrics.missing_in_a, "A"), (&metrics.missing_in_b, "B")] {
        if !gaps.is_empty() {
            missing.push(format!("the metrics of {} in {name}", metrics::spans(gaps)));
        }
    }
    let result_keys = result_keys(keys);
    if checkpoints.steps.is_empty() && !result_keys.is_empty() {
        missing.push(format!(
            "checkpoints of one step, to see whether {} made a difference",
            result_keys.join(", ")
        ));
    }
    missing
}

/// The keys that change the result.
fn result_keys(keys: &[KeyDifference]) -> Vec<&'static str> {
    let of_result = keys.iter().filter(|key| key.role == Role::Result);
    of_result.map(|key| key.key).collect()
}

/// Sequences of an optimizer step.
fn effective_batch(config: &RunConfig) -> usize {
    let training = &config.training;
    training.batch_size.saturating_mul(training.gradient_accumulation_steps)
}
