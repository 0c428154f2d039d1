//! What is known of each step, and who is told.

use crate::error::{Result, TrainError};
use crate::evaluate::Evaluation;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// One optimizer step, a line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Optimizer step, counted from 1.
    pub step: u64,
    /// Loss of the step's batch, over its unmasked targets; `None` (`null`) where it has none. A line that lacks it is no record.
    #[serde(deserialize_with = "Option::deserialize")]
    pub loss: Option<f32>,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f32,
    /// Sequences seen since the start of the run.
    pub sequences: u64,
    /// Unmasked targets seen since the start of the run.
    pub tokens: u64,
    /// Sequences a second.
    pub samples_per_s: f64,
    /// Targets a second.
    pub tokens_per_s: f64,
    /// Where the time went.
    pub seconds: Seconds,
    /// Bytes of one device now and at the peak so far.
    pub memory: Memory,
}

/// Seconds of a step: on the clock, and of the workers by phase (summed over workers, divided by their number).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// On the clock.
    pub total: f64,
    /// Bringing batches to the devices.
    pub data: f64,
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// Collectives.
    pub communication: f64,
    /// Clipping and update.
    pub optimizer: f64,
}

/// Bytes of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// In use when the line was written.
    pub current: u64,
    /// Most in use at once so far.
    pub peak: u64,
}

/// Something that happened in a run.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// An optimizer step is done.
    Step(&'a Record),
    /// A validation is done after `step` steps.
    Evaluated {
        /// Optimizer steps done.
        step: u64,
        /// Its result.
        evaluation: Evaluation,
    },
    /// A checkpoint was written.
    Saved {
        /// Optimizer steps done.
        step: u64,
        /// Where.
        path: &'a Path,
    },
    /// Something that the user should know, though the run goes on.
    Warning(&'a str),
}

/// Whoever wants to hear of a run: a file of metrics, a progress bar, a tracker of one's own.
///
/// What a tracker returns as an error is told once and does not end the run.
pub trait Tracker {
    /// Hears of an event.
    ///
    /// # Errors
    /// Anything; in words.
    fn event(&mut self, event: &Event<'_>) -> std::result::Result<(), String>;
}

/// `metrics.jsonl`: a line a step, written as it happens.
pub struct MetricsFile {
    path: PathBuf,
    /// `None` in a process that leaves the file to another.
    file: Option<File>,
}

impl MetricsFile {
    /// The file of a run that another process writes.
    pub fn of_another(path: &Path) -> MetricsFile {
        MetricsFile {
            path: path.to_owned(),
            file: None,
        }
    }

    /// Opens the file of a run for steps after `step`: lines of later steps, from before a crash, are cut off. A sentence is
    /// returned where lines of earlier steps are missing.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn open(path: &Path, step: u64) -> Result<(MetricsFile, Option<String>)> {
        let fail = |what: &str, error: std::io::Error| TrainError::Path {
            path: path.to_owned(),
            what: format!("cannot {what}: {error}"),
        };
        let kept = match path.exists() {
            true => lines_up_to(path, step).map_err(|error| fail("read the metrics of an earlier run", error))?,
            false => Kept::default(),
        };
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| fail("open for writing", error))?;
        file.set_len(kept.bytes)
            .map_err(|error| fail("cut off later steps", error))?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).map_err(|error| fail("append", error))?;
        let note = (kept.last < step).then(|| {
            let why = match kept.garbage {
                Some(line) => format!("line {line} is no record of a step"),
                None => "the file ends there".into(),
            };
            format!(
                "{} has the steps up to {} of {step} only ({why}): the missing ones cannot be restored",
                path.display(),
                kept.last
            )
        });
        Ok((
            MetricsFile {
                path: path.to_owned(),
                file: Some(file),
            },
            note,
        ))
    }
}

impl Tracker for MetricsFile {
    fn event(&mut self, event: &Event<'_>) -> std::result::Result<(), String> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = match event {
            Event::Step(record) => serde_json::to_string(record),
            _ => return Ok(()),
        };
        let line = line.map_err(|error| error.to_string())? + "\n";
        if !self.path.exists() {
            return Err(format!(
                "{} was deleted, so that no curves will be drawn either",
                self.path.display()
            ));
        }
        file.write_all(line.as_bytes())
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

/// What a metrics file holds of a run that goes on.
#[derive(Default)]
struct Kept {
    /// Bytes of the complete lines to keep.
    bytes: u64,
    /// The last step among them.
    last: u64,
    /// The line that is no record, where one ended the reading.
    garbage: Option<usize>,
}

/// The complete lines for steps up to `step`.
fn lines_up_to(path: &Path, step: u64) -> std::io::Result<Kept> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut kept = Kept::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        let complete = line.last() == Some(&b'\n');
        match serde_json::from_slice::<Record>(&line) {
            Ok(record) if complete && record.step <= step => {
                kept.bytes += read as u64;
                kept.last = record.step;
            }
            Err(_) if complete => {
                kept.garbage = Some(number);
                break;
            }
            _ => break,
        }
    }
    Ok(kept)
}

/// The records of a run's metrics, in order.
///
/// # Errors
/// A file that cannot be read, or a line that is no record; the last line may be cut short by a crash.
pub fn read_metrics(path: &Path) -> Result<Vec<Record>> {
    let fail = |what: String| TrainError::Path {
        path: path.to_owned(),
        what,
    };
    let text = std::fs::read_to_string(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
    let lines: Vec<&str> = text.lines().collect();
    let mut records = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_str(line) {
            Ok(record) => records.push(record),
            Err(_) if index + 1 == lines.len() && !text.ends_with('\n') => {}
            Err(error) => return Err(fail(format!("line {} is no record of a step: {error}", index + 1))),
        }
    }
    Ok(records)
}
