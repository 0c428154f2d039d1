//! Reading a checkpoint, trusted in nothing.

use super::error::CheckpointError;
use super::manifest::{Holds, MANIFEST, Manifest, TensorRow};
use super::{Checkpoints, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_data::weights::Dtype;
use unisono_data::{DataError, Weights, hash_file};

/// A checkpoint whose every byte is what was written, or the part of it that was asked for.
#[derive(Debug)]
pub struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) weights: Vec<Weights>,
    pub(super) by_name: Places,
}

/// By kind and name: the tensor's place in the manifest's table, and in the list of files the one that holds it.
type Places = BTreeMap<(bool, String), (usize, usize)>;

/// Loads a checkpoint by its directory, or the newest complete one of a run's directory or of its `checkpoints`, and
/// verifies sizes, hashes, format and tensors.
///
/// # Errors
/// Damage is told with the file's name, and the newest older checkpoint beside it that is good is offered.
pub fn load(path: &Path) -> Result<Checkpoint> {
    load_part(path, Part::All)
}

/// As [`load`], of the model's tensors alone: the optimizer's files may be damaged or gone, and their bytes are not read.
///
/// # Errors
/// As [`load`].
pub fn load_parameters(path: &Path) -> Result<Checkpoint> {
    load_part(path, Part::Parameters)
}

/// How much of a checkpoint is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Everything, to go on with the run.
    All,
    /// The parameters, to use them.
    Parameters,
}

impl Part {
    fn has(self, kind: Holds) -> bool {
        self == Part::All || kind == Holds::Parameter
    }
}

pub(super) fn load_part(path: &Path, part: Part) -> Result<Checkpoint> {
    if path.join(MANIFEST).is_file() {
        return read(path, part).map_err(|error| with_offer(error, path, part));
    }
    let below = path.join("checkpoints");
    let store = Checkpoints::new(if below.is_dir() { below } else { path.to_path_buf() });
    if !path.is_dir() {
        let problem = match path.exists() {
            true => "it is a file; name the run's directory, or one of its checkpoints (RUN/checkpoints/step-…)",
            false => "there is no such directory",
        };
        return Err(not_a_checkpoint(path, problem));
    }
    if is_step(path) {
        return Err(not_a_checkpoint(
            path,
            "it has no manifest.json, so it was not written to its end; choose another checkpoint of the run",
        ));
    }
    store.newest_part(part)
}

fn is_step(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("step-"))
}

fn not_a_checkpoint(path: &Path, problem: &str) -> CheckpointError {
    CheckpointError::NotACheckpoint {
        path: path.display().to_string(),
        problem: problem.to_string(),
    }
}

/// Adds the newest older checkpoint that is good to an error of damage.
fn with_offer(error: CheckpointError, path: &Path, part: Part) -> CheckpointError {
    let CheckpointError::Damaged { file, problem, .. } = error else {
        return error;
    };
    let listing = path.parent().map(|parent| Checkpoints::new(parent).find());
    let older = match listing {
        Some(Ok(listing)) => listing.complete,
        _ => Vec::new(),
    };
    let after = older
        .iter()
        .position(|found| found.path.file_name() == path.file_name());
    let instead = older
        .iter()
        .skip(after.map_or(0, |at| at + 1))
        .find(|found| read(&found.path, part).is_ok())
        .map(|found| found.path.display().to_string());
    CheckpointError::Damaged { file, problem, instead }
}

fn read(path: &Path, part: Part) -> Result<Checkpoint> {
    let manifest_path = path.join(MANIFEST);
    let mut manifest = Manifest::read(&manifest_path)?;
    // What is not wanted is not listed either, so that nothing looks for it.
    manifest.files.retain(|file| part.has(file.holds));
    manifest.tensors.retain(|row| part.has(row.kind));
    let damaged = |file: &Path, problem: String| CheckpointError::Damaged {
        file: file.display().to_string(),
        problem,
        instead: None,
    };
    let mut weights = Vec::with_capacity(manifest.files.len());
    for file in &manifest.files {
        let at = path.join(&file.name);
        if Path::new(&file.name)
            .file_name()
            .is_none_or(|name| name.to_string_lossy() != file.name)
        {
            return Err(damaged(
                &manifest_path,
                format!("it names the file {:?}, which lies elsewhere", file.name),
            ));
        }
        if !at.is_file() {
            return Err(damaged(&at, "it is missing".to_string()));
        }
        let size = std::fs::metadata(&at)
            .map_err(|error| DataError::read(&at, &error))?
            .len();
        if size != file.bytes {
            let problem = format!("it has {size} bytes, {} were written", file.bytes);
            return Err(damaged(&at, problem));
        }
        if hash_file(&at)?.blake3 != file.blake3 {
            let problem =
                format!("its {size} bytes do not have the hash that the manifest says: at least one has changed");
            return Err(damaged(&at, problem));
        }
        weights.push(Weights::open(&at).map_err(|error| damaged(&at, error.to_string()))?);
    }
    let by_name = index(&manifest, &weights).map_err(|problem| damaged(&manifest_path, problem))?;
    Ok(Checkpoint {
        path: path.to_path_buf(),
        manifest,
        weights,
        by_name,
    })
}

/// Finds each row of the manifest's table in its file, and refuses what does not fit together.
fn index(manifest: &Manifest, weights: &[Weights]) -> std::result::Result<Places, String> {
    let mut by_name = BTreeMap::new();
    for (place, row) in manifest.tensors.iter().enumerate() {
        let holds = |kind| {
            manifest
                .files
                .iter()
                .zip(weights)
                .enumerate()
                .filter(move |(_, (f, _))| f.holds == kind)
        };
        let Some((file, (_, found))) = holds(row.kind).find(|(_, (_, w))| w.contains(&row.name)) else {
            return Err(format!("it lists the tensor {:?}, which no file holds", row.name));
        };
        let entry = found.entry(&row.name).map_err(|error| error.to_string())?;
        if entry.shape != row.shape || entry.dtype != Dtype::F32 || row.dtype != "f32" {
            return Err(format!(
                "it lists the tensor {:?} as {} of shape {:?}, and its file as {} of shape {:?}; this format holds f32 only",
                row.name, row.dtype, row.shape, entry.dtype, entry.shape
            ));
        }
        if by_name.insert(key(row.kind, &row.name), (place, file)).is_some() {
            return Err(format!("it lists the tensor {:?} twice", row.name));
        }
    }
    let stored: usize = weights.iter().map(|weights| weights.tensors().len()).sum();
    if stored != manifest.tensors.len() {
        return Err(format!(
            "it lists {} tensors, and its files hold {stored}",
            manifest.tensors.len()
        ));
    }
    Ok(by_name)
}

fn key(kind: Holds, name: &str) -> (bool, String) {
    (kind == Holds::Optimizer, name.to_string())
}

impl Checkpoint {
    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything about it but the values.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The row of a tensor, if it holds it.
    pub fn row(&self, kind: Holds, name: &str) -> Option<&TensorRow> {
        let (place, _) = self.by_name.get(&key(kind, name))?;
        Some(&self.manifest.tensors[*place])
    }

    /// The values of a tensor, row-major, without padding.
    ///
    /// # Errors
    /// A tensor that it does not hold.
    pub fn values(&self, kind: Holds, name: &str) -> Result<Vec<f32>> {
        Ok(self.file(kind, name)?.read_f32(name)?)
    }

    /// The bytes of a tensor's values, little-endian, as they lie in the file.
    ///
    /// # Errors
    /// A tensor that it does not hold.
    pub fn bytes(&self, kind: Holds, name: &str) -> Result<&[u8]> {
        Ok(self.file(kind, name)?.bytes(name)?)
    }

    fn file(&self, kind: Holds, name: &str) -> Result<&Weights> {
        match self.by_name.get(&key(kind, name)) {
            Some((_, file)) => Ok(&self.weights[*file]),
            None => Err(CheckpointError::Misfit {
                path: self.path.display().to_string(),
                problems: vec![format!("it holds no tensor {name:?}")],
            }),
        }
    }
}
