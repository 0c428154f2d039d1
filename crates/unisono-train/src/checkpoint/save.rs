//! Writing a checkpoint: all of it or nothing.

use super::error::CheckpointError;
use super::manifest::{FORMAT, FileEntry, Holds, MANIFEST, Manifest, State, TensorRow};
use super::store::{Checkpoints, Found, REPLACED, directory_name};
use super::{Result, for_each_real_run, verify_replicas};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_data::files::sync_directory;
use unisono_data::{DataError, TensorSpec, write_safetensors};
use unisono_nn::{Optimizer, Parameter};
use unisono_tensor::Tensor;
use unisono_tensor::create::ParameterSpec;

/// What is to be saved.
pub struct Snapshot<'a> {
    /// How far the run has come.
    pub state: &'a State,
    /// The model's table.
    pub parameters: &'a [Parameter],
    /// The optimizer.
    pub optimizer: &'a dyn Optimizer,
    /// See [`config_digest`](super::config_digest).
    pub config_digest: &'a str,
    /// Names the data.
    pub data_digest: &'a str,
}

/// What stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// How many of the newest checkpoints stay, at least 1.
    pub last: usize,
    /// Whether this one is the best so far; the best stays until a better one comes.
    pub best: bool,
}

/// A checkpoint that was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its directory.
    pub path: PathBuf,
    /// Older checkpoints that were deleted.
    pub deleted: Vec<PathBuf>,
    /// What the user should know although nothing is lost.
    pub notes: Vec<String>,
}

/// One tensor on its way into a file.
struct Source<'a> {
    name: String,
    /// For messages.
    what: String,
    kind: Holds,
    spec: &'a ParameterSpec,
    tensor: &'a Tensor,
}

impl Checkpoints {
    /// Saves a checkpoint under its step and deletes those that rotation no longer keeps. A checkpoint of the same step is
    /// replaced.
    ///
    /// # Errors
    /// Replicas that differ, values that are not finite, and whatever the disk says. The older checkpoints are then as they
    /// were, and nothing else is left behind.
    pub fn save(&self, snapshot: &Snapshot<'_>, keep: Keep) -> Result<Saved> {
        let step = snapshot.state.step;
        verify_replicas(snapshot.parameters, snapshot.optimizer, step)?;
        if !self.directory.is_dir() {
            let failed = |error: std::io::Error| DataError::write(&self.directory, &error);
            std::fs::create_dir_all(&self.directory).map_err(failed)?;
            sync_directory(self.directory.parent().unwrap_or(Path::new(""))).map_err(failed)?;
        }
        let temporary = Temporary(self.temporary("new"));
        std::fs::create_dir(&temporary.0).map_err(|error| DataError::write(&temporary.0, &error))?;
        self.write(&temporary.0, snapshot, keep.best)?;
        let path = self.directory.join(directory_name(step));
        self.install(&temporary.0, &path)?;
        let found = Found { step, path };
        if keep.best {
            self.point("best", Some(&found))?;
        }
        self.point("latest", self.find()?.complete.first())?;
        let (deleted, notes) = self.rotate(keep.last, &found.path)?;
        Ok(Saved {
            path: found.path,
            deleted,
            notes,
        })
    }

    /// Writes all files of a checkpoint into a directory, the manifest last.
    fn write(&self, directory: &Path, snapshot: &Snapshot<'_>, best: bool) -> Result<()> {
        let sources = sources(snapshot);
        let mut files = Vec::new();
        for (kind, stem) in [(Holds::Parameter, "model"), (Holds::Optimizer, "optimizer")] {
            let of_kind: Vec<&Source<'_>> = sources.iter().filter(|source| source.kind == kind).collect();
            let shards = shards(&of_kind, self.shard_bytes);
            for (index, shard) in shards.iter().enumerate() {
                let name = match shards.len() {
                    1 => format!("{stem}.safetensors"),
                    n => format!("{stem}-{:05}-of-{n:05}.safetensors", index + 1),
                };
                let digest = write_shard(&directory.join(&name), shard, snapshot.state.step)?;
                files.push(FileEntry {
                    name,
                    holds: kind,
                    bytes: digest.bytes,
                    blake3: digest.blake3,
                });
            }
        }
        let device = snapshot.parameters.first().map(|p| p.tensor.device());
        let manifest = Manifest {
            format: FORMAT,
            unisono: env!("CARGO_PKG_VERSION").to_string(),
            state: snapshot.state.clone(),
            best,
            config_digest: snapshot.config_digest.to_string(),
            data_digest: snapshot.data_digest.to_string(),
            mesh: device.map_or_else(String::new, |device| device.mesh().describe()),
            isa: device.map_or_else(String::new, |device| device.runtime().isa().name().to_string()),
            files,
            tensors: sources.iter().map(row).collect(),
        };
        manifest.write(&directory.join(MANIFEST))
    }

    /// Gives a complete directory its name.
    fn install(&self, complete: &Path, path: &Path) -> Result<()> {
        let failed = |error: std::io::Error| DataError::write(path, &error);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let replaced = self.directory.join(format!("{REPLACED}{name}"));
        let replaces = path.exists();
        if replaces {
            if replaced.exists() {
                std::fs::remove_dir_all(&replaced).map_err(failed)?;
            }
            std::fs::rename(path, &replaced).map_err(failed)?;
        }
        if let Err(error) = std::fs::rename(complete, path) {
            if replaces {
                // If this fails too, `clean` does it; the first error is the one to tell.
                let _ = std::fs::rename(&replaced, path);
            }
            return Err(failed(error).into());
        }
        sync_directory(&self.directory).map_err(failed)?;
        if replaces {
            // What is left of it, `clean` removes.
            let _ = std::fs::remove_dir_all(&replaced);
        }
        Ok(())
    }
}

/// The model's tensors in the table's order, then the optimizer's in its own.
fn sources<'a>(snapshot: &'a Snapshot<'_>) -> Vec<Source<'a>> {
    let parameters = snapshot.parameters.iter().map(|p| Source {
        name: p.name.clone(),
        what: format!("the parameter `{}`", p.name),
        kind: Holds::Parameter,
        spec: &p.spec,
        tensor: &p.tensor,
    });
    let state = snapshot.optimizer.state().into_iter().map(|s| {
        let p = &snapshot.parameters[s.parameter];
        Source {
            name: format!("{}.{}", s.name, p.name),
            what: format!("the optimizer's {} of `{}`", s.name, p.name),
            kind: Holds::Optimizer,
            spec: &p.spec,
            tensor: s.tensor,
        }
    });
    parameters.chain(state).collect()
}

fn row(source: &Source<'_>) -> TensorRow {
    TensorRow {
        name: source.name.clone(),
        kind: source.kind,
        shape: source.spec.shape(),
        dtype: "f32".to_string(),
    }
}

/// Cuts a list of tensors into files of at most `most` bytes, where no single tensor is larger.
fn shards<'s, 'a>(sources: &[&'s Source<'a>], most: u64) -> Vec<Vec<&'s Source<'a>>> {
    let mut shards: Vec<Vec<&Source<'_>>> = Vec::new();
    let mut bytes = 0;
    for source in sources {
        let size = 4 * source.spec.shape().iter().product::<usize>() as u64;
        match shards.last_mut() {
            Some(shard) if bytes + size <= most => {
                shard.push(source);
                bytes += size;
            }
            _ => {
                shards.push(vec![source]);
                bytes = size;
            }
        }
    }
    shards
}

/// Writes one file, with one tensor at a time on the host.
fn write_shard(path: &Path, shard: &[&Source<'_>], step: u64) -> Result<unisono_data::FileDigest> {
    let specs: Vec<TensorSpec> = shard
        .iter()
        .map(|source| TensorSpec {
            name: source.name.clone(),
            shape: source.spec.shape(),
        })
        .collect();
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    write_safetensors(path, &specs, &metadata, |index| {
        let source = shard[index];
        let values = real_values(source.tensor, source.spec)?;
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(CheckpointError::NotFinite {
                step,
                tensor: source.what.clone(),
                index,
                value: values[index],
            });
        }
        Ok(Cow::Owned(values))
    })
}

/// A whole tensor, put together from its shards, without its padding.
pub(crate) fn real_values(
    tensor: &Tensor,
    spec: &ParameterSpec,
) -> std::result::Result<Vec<f32>, unisono_tensor::TensorError> {
    let whole = tensor.to_vec()?;
    let (real, padded) = (spec.shape(), tensor.shape());
    if real == padded {
        return Ok(whole);
    }
    let mut values = Vec::with_capacity(real.iter().product());
    for_each_real_run(&real, &padded, &mut |_, at, len| {
        values.extend_from_slice(&whole[at..at + len])
    });
    Ok(values)
}

/// A directory that goes away unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.0.exists() {
            // What cannot be removed now, `clean` removes later.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
