//! A run's directory, as a comparison sees it.

use super::metrics::{self, Line, spans};
use super::{DiffError, Result, Side, effective_batch};
use crate::checkpoint::{Checkpoints, Found, Manifest, load};
use crate::config::{Environment, RunConfig, load_saved};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a run left behind.
pub(super) struct RunDirectory {
    path: PathBuf,
    pub config: RunConfig,
    /// By step.
    pub metrics: BTreeMap<u64, Line>,
    /// Oldest first.
    pub checkpoints: Vec<Found>,
    /// The newest checkpoint's.
    manifest: Option<Manifest>,
    pub notes: Vec<String>,
}

impl RunDirectory {
    pub fn open(path: &Path) -> Result<RunDirectory> {
        let not_a_run = |problem: &str| DiffError::NotARun {
            path: path.display().to_string(),
            problem: problem.to_string(),
        };
        if !path.is_dir() {
            return Err(not_a_run(match path.exists() {
                true => "it is a file, and a run is a directory with config.yaml, metrics.jsonl and checkpoints",
                false => "there is no such directory",
            }));
        }
        let file = path.join("config.yaml");
        if !file.is_file() {
            return Err(not_a_run("it has no config.yaml"));
        }
        let config = load_saved(&file, &[], &Environment::of_process())?.config;
        let (metrics, mut notes) = metrics::read(&path.join("metrics.jsonl"))?;
        let listing = Checkpoints::new(path.join(&config.training.checkpoint_dir)).find()?;
        notes.extend(listing.ignored);
        let manifest = match listing.complete.first() {
            // Loading it knows which older checkpoint is good.
            Some(found) => match Manifest::read_from(&found.path) {
                Ok(manifest) => Some(manifest),
                Err(error) => return Err(load(&found.path).err().unwrap_or(error).into()),
            },
            None => None,
        };
        let mut checkpoints = listing.complete;
        checkpoints.reverse();
        Ok(RunDirectory {
            path: path.to_path_buf(),
            config,
            metrics,
            checkpoints,
            manifest,
            notes,
        })
    }

    /// The last step in the metrics, 0 without any.
    pub fn last_step(&self) -> u64 {
        self.metrics.last_key_value().map_or(0, |(step, _)| *step)
    }

    pub fn data_digest(&self) -> Option<&str> {
        self.manifest.as_ref().map(|manifest| manifest.data_digest.as_str())
    }

    pub fn side(&self) -> Side {
        Side {
            path: self.path.display().to_string(),
            steps: self.last_step(),
            effective_batch: effective_batch(&self.config),
            mesh: match &self.manifest {
                Some(manifest) => manifest.mesh.clone(),
                None => format!("mesh {:?}", self.config.device.mesh_shape),
            },
            isa: self.manifest.as_ref().map(|manifest| manifest.isa.clone()),
            checkpoints: self.checkpoints.iter().map(|found| found.step).collect(),
        }
    }

    /// `metrics of steps 1 to 30`.
    pub fn describe_metrics(&self) -> String {
        match (self.metrics.first_key_value(), self.metrics.last_key_value()) {
            (Some((first, _)), Some((last, _))) => format!("metrics of {}", spans(&[(*first, *last)])),
            _ => "no metrics".to_string(),
        }
    }

    /// `metrics of steps 1 to 30 and checkpoints of steps 10, 20`.
    pub fn describe(&self) -> String {
        let metrics = self.describe_metrics();
        match self.checkpoints.as_slice() {
            [] => format!("{metrics} and no checkpoints"),
            [only] => format!("{metrics} and a checkpoint of step {}", only.step),
            several => format!("{metrics} and checkpoints of steps {}", steps(several)),
        }
    }
}

/// `10, 20, 30`.
pub(super) fn steps(checkpoints: &[Found]) -> String {
    let steps: Vec<String> = checkpoints.iter().map(|found| found.step.to_string()).collect();
    steps.join(", ")
}
