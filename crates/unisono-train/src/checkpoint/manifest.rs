//! The manifest: what a checkpoint holds, and how far its run had come.

use super::Result;
use super::error::CheckpointError;
use serde::{Deserialize, Serialize};
use std::path::Path;
use unisono_data::files::hash_bytes;
use unisono_data::{DataError, atomic_write};

/// Version of the format. It changes when an older unisono could not read a newer checkpoint or the other way round.
pub const FORMAT: u64 = 1;
/// The manifest's file name.
pub(super) const MANIFEST: &str = "manifest.json";
/// No manifest is longer: a row a tensor, and a few lines.
const MAX_BYTES: u64 = 256 << 20;
/// The file begins with its own hash: these bytes, 64 hexadecimal digits, and [`AFTER`]; the hash is of all that follows.
const BEFORE: &str = "{\n  \"blake3\": \"";
const AFTER: &str = "\",\n";
const DIGITS: usize = 64;

/// How far a run has come: with the configuration, all that the rest of it depends on beside the tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Optimizer steps done.
    pub step: u64,
    /// Sequences (samples) consumed: the position in the data, whatever batch and accumulation they came in.
    pub samples: u64,
    /// Tokens consumed.
    pub tokens: u64,
    /// The seed of shuffling, dropout and initialisation.
    pub seed: u64,
    /// The lowest validation loss so far.
    pub best_loss: Option<f64>,
    /// The last validation loss.
    pub validation_loss: Option<f64>,
}

/// What kind of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Holds {
    /// Parameters of the model.
    Parameter,
    /// State of the optimizer, one name a kind of state and parameter: `exp_avg.wte.weight`.
    Optimizer,
}

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in the checkpoint's directory.
    pub name: String,
    /// What it holds.
    pub holds: Holds,
    /// Its size.
    pub bytes: u64,
    /// Its hash.
    pub blake3: String,
}

/// One tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Holds,
    /// Its shape without padding.
    pub shape: Vec<usize>,
    /// `f32`.
    pub dtype: String,
}

/// Everything about a checkpoint but the values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u64,
    /// The unisono that wrote it.
    pub unisono: String,
    /// How far the run had come.
    pub state: State,
    /// Whether it was the best so far, by validation loss.
    pub best: bool,
    /// See [`config_digest`](super::config_digest).
    pub config_digest: String,
    /// Names the data; what it is made of is up to the caller.
    pub data_digest: String,
    /// The mesh that wrote it, in words.
    pub mesh: String,
    /// The instruction set that it was computed with.
    pub isa: String,
    /// The files, in the order of the tensors.
    pub files: Vec<FileEntry>,
    /// The tensors, in the order of the model's table.
    pub tensors: Vec<TensorRow>,
}

/// What an unknown format is asked for.
#[derive(Deserialize)]
struct Head {
    format: u64,
    unisono: Option<String>,
}

impl Manifest {
    /// Writes it, with its own hash in front. Equal manifests give equal files.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        // Numbers, texts and lists always have a JSON form.
        let json = serde_json::to_string_pretty(self).expect("bug in unisono: a manifest has no JSON form");
        let rest = json.strip_prefix("{\n").unwrap_or(&json).to_string() + "\n";
        let hash = hash_bytes(rest.as_bytes());
        atomic_write(path, |file| {
            std::io::Write::write_all(file, format!("{BEFORE}{hash}{AFTER}{rest}").as_bytes())
        })?;
        Ok(())
    }

    /// The manifest of a checkpoint by its directory, checked against its own hash; the files are not read.
    ///
    /// # Errors
    /// No manifest there, damage, or another format.
    pub fn read_from(checkpoint: &Path) -> Result<Manifest> {
        Manifest::read(&checkpoint.join(MANIFEST))
    }

    /// Reads and checks it; damage is told without an offer of another checkpoint.
    pub(super) fn read(path: &Path) -> Result<Manifest> {
        let failed = |error: std::io::Error| CheckpointError::Data(DataError::read(path, &error));
        let damaged = |problem: String| CheckpointError::Damaged {
            file: path.display().to_string(),
            problem,
            instead: None,
        };
        let size = std::fs::metadata(path).map_err(failed)?.len();
        if size > MAX_BYTES {
            return Err(damaged(format!(
                "it has {size} bytes, and no manifest has more than {MAX_BYTES}"
            )));
        }
        let bytes = std::fs::read(path).map_err(failed)?;
        if !matches_own_hash(&bytes) {
            // A later format may keep its hash elsewhere; what says that it is one is told so.
            return match serde_json::from_slice::<Head>(&bytes) {
                Ok(head) if head.format != FORMAT => Err(format_error(path, head)),
                _ => Err(damaged(
                    "its contents do not match the hash in its second line (a changed byte, or edited by hand)"
                        .to_string(),
                )),
            };
        }
        match serde_json::from_slice::<Head>(&bytes) {
            Ok(head) if head.format != FORMAT => Err(format_error(path, head)),
            Ok(_) => serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }
}

fn matches_own_hash(bytes: &[u8]) -> bool {
    let digits_and_rest = bytes.strip_prefix(BEFORE.as_bytes());
    let Some((digits, rest)) = digits_and_rest.and_then(|bytes| bytes.split_at_checked(DIGITS)) else {
        return false;
    };
    rest.strip_prefix(AFTER.as_bytes())
        .is_some_and(|rest| hash_bytes(rest).as_bytes() == digits)
}

fn format_error(path: &Path, head: Head) -> CheckpointError {
    CheckpointError::Format {
        path: path.parent().unwrap_or(path).display().to_string(),
        found: head.format,
        written_by: head
            .unisono
            .unwrap_or_else(|| "of a version that it does not name".to_string()),
    }
}
