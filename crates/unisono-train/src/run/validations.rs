//! `validations.jsonl`: a line a validation, from which the curves are drawn.

use crate::evaluate::Evaluation;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};
use unisono_data::atomic_write;

/// The file's name.
const NAME: &str = "validations.jsonl";

/// One validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Validated {
    /// Optimizer steps done.
    pub(super) step: u64,
    /// Loss per target.
    pub(super) loss: f64,
    /// Targets that it is the mean over.
    pub(super) targets: usize,
}

/// The file of a run.
pub(super) struct Validations {
    path: PathBuf,
    /// Whether this process writes it.
    writes: bool,
}

impl Validations {
    /// The file in a run's folder, for steps after `step`: lines of later steps, from before a crash, are cut off. A sentence is
    /// returned where that fails. Of several processes only one `writes`.
    pub(super) fn open(directory: &Path, step: u64, writes: bool) -> (Validations, Option<String>) {
        let validations = Validations {
            path: directory.join(NAME),
            writes,
        };
        if !writes {
            return (validations, None);
        }
        let path = &validations.path;
        let note = cut(path, step).err().map(|what| format!("{}: {what}", path.display()));
        (validations, note)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// In words.
    pub(super) fn add(&self, step: u64, evaluation: &Evaluation) -> Result<(), String> {
        if !self.writes {
            return Ok(());
        }
        let line = line(&Validated {
            step,
            loss: evaluation.loss,
            targets: evaluation.targets,
        });
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| format!("{} cannot be written: {error}", self.path.display()))
    }

    /// All lines that are whole; none where there is no file.
    pub(super) fn read(&self) -> Vec<Validated> {
        read(&self.path)
    }
}

fn line(validated: &Validated) -> String {
    // Numbers always have a JSON form.
    serde_json::to_string(validated).unwrap_or_default() + "\n"
}

fn read(path: &Path) -> Vec<Validated> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn cut(path: &Path, step: u64) -> Result<(), String> {
    if !path.exists() {
        return Ok(());
    }
    let kept: String = read(path).iter().filter(|v| v.step <= step).map(line).collect();
    let written = atomic_write(path, |file| file.write_all(kept.as_bytes()));
    written.map(drop).map_err(|error| error.to_string())
}
