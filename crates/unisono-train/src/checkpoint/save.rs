//! Writing a checkpoint: all of it or nothing.

use super::error::CheckpointError;
use super::manifest::{FORMAT, FileEntry, Holds, MANIFEST, Manifest, State, TensorRow};
use super::snapshot::Snapshot;
use super::store::{Checkpoints, Found, REPLACED, directory_name};
use super::team::Team;
use super::{Result, verify_replicas};
use crate::shards::Asked;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_data::files::sync_directory;
use unisono_data::{DataError, TensorSpec, write_safetensors};
use unisono_nn::{Optimizer, Parameter};
use unisono_tensor::Tensor;

/// What is to be saved, where it lives: on the devices.
pub struct Live<'a> {
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
    /// Optimizer steps done.
    pub step: u64,
    /// Its directory.
    pub path: PathBuf,
    /// Older checkpoints that were deleted.
    pub deleted: Vec<PathBuf>,
    /// What the user should know although nothing is lost.
    pub notes: Vec<String>,
}

/// All of a checkpoint but the values.
pub(super) struct Contents {
    state: State,
    config_digest: String,
    data_digest: String,
    mesh: String,
    isa: String,
    /// The model's tensors in the table's order, then the optimizer's in its own.
    pub(super) tensors: Vec<Described>,
    /// The files, and which tensors go into which.
    pub(super) files: Vec<Planned>,
}

/// One tensor of a checkpoint.
pub(super) struct Described {
    pub(super) row: TensorRow,
    /// The process that writes it.
    pub(super) writer: usize,
    /// For messages.
    what: String,
}

/// One file of a checkpoint.
pub(super) struct Planned {
    pub(super) name: String,
    holds: Holds,
    /// Places of its tensors.
    tensors: Vec<usize>,
    /// The process that writes it.
    pub(super) writer: usize,
}

/// Gives the values of a tensor of [`Contents::tensors`] by its place.
type Values<'v, 'a> = &'a mut dyn FnMut(usize) -> Result<Cow<'v, [f32]>>;

impl<'a> Live<'a> {
    /// What a checkpoint of it holds, in files of at most `most_bytes`, and where the values are, in the same order.
    pub(super) fn contents(&self, most_bytes: u64) -> (Contents, Vec<&'a Tensor>) {
        let described = |name: String, what: String, kind: Holds, parameter: &Parameter| Described {
            row: TensorRow {
                name,
                kind,
                shape: parameter.spec.shape(),
                dtype: "f32".to_string(),
            },
            writer: 0,
            what,
        };
        let parameters = self.parameters.iter().map(|p| {
            let what = format!("the parameter `{}`", p.name);
            (described(p.name.clone(), what, Holds::Parameter, p), &p.tensor)
        });
        let state = self.optimizer.state().into_iter().map(|s| {
            let p = &self.parameters[s.parameter];
            let (name, what) = (
                format!("{}.{}", s.name, p.name),
                format!("the optimizer's {} of `{}`", s.name, p.name),
            );
            (described(name, what, Holds::Optimizer, p), s.tensor)
        });
        let (mut tensors, values): (Vec<Described>, _) = parameters.chain(state).unzip();
        let device = self.parameters.first().map(|p| p.tensor.device());
        let processes = device.map_or(1, |device| device.runtime().processes().size());
        let files = files(&mut tensors, most_bytes, processes);
        let contents = Contents {
            files,
            state: self.state.clone(),
            config_digest: self.config_digest.to_string(),
            data_digest: self.data_digest.to_string(),
            mesh: device.map_or_else(String::new, |device| device.mesh().describe()),
            isa: device.map_or_else(String::new, |device| device.runtime().isa().name().to_string()),
            tensors,
        };
        (contents, values)
    }
}

impl Checkpoints {
    /// Saves a checkpoint under its step and deletes those that rotation no longer keeps. A checkpoint of the same step is
    /// replaced. The devices are waited for, tensor by tensor, and the host holds one tensor at a time; a
    /// [`Writer`](super::Writer) writes beside them.
    ///
    /// # Errors
    /// Replicas that differ, values that are not finite, and whatever the disk says. The older checkpoints are then as they
    /// were, and nothing else is left behind.
    pub fn save(&self, live: &Live<'_>, keep: Keep) -> Result<Saved> {
        let team = Team::of(live);
        if team.size() > 1 {
            return Snapshot::take(live, self.shard_bytes, Vec::new())?.write(self, keep);
        }
        verify_replicas(live.parameters, live.optimizer, live.state.step)?;
        let (contents, tensors) = live.contents(self.shard_bytes);
        self.write(&contents, &team, keep, &mut |index| {
            let shards = Asked::of(tensors[index], 0, &mut std::iter::empty(), None)?.wait()?;
            Ok(Cow::Owned(shards.into_whole(&contents.tensors[index].row.shape)))
        })
    }

    /// The same for values that come from anywhere; the replicas are known to be equal.
    pub(super) fn write(&self, contents: &Contents, team: &Team, keep: Keep, values: Values<'_, '_>) -> Result<Saved> {
        let step = contents.state.step;
        let path = self.directory.join(directory_name(step));
        if team.rank() > 0 {
            team.contribute(self, step, |directory| {
                self.write_files(directory, contents, team.rank(), values)
            })?;
            return Ok(Saved {
                step,
                path,
                deleted: Vec::new(),
                notes: Vec::new(),
            });
        }
        self.make_directory()?;
        let temporary = Temporary(team.directory(self, step));
        std::fs::create_dir(&temporary.0).or_else(|error| match team.size() > 1 && temporary.0.is_dir() {
            // Another process was here first.
            true => Ok(()),
            false => Err(DataError::write(&temporary.0, &error)),
        })?;
        let own = self.write_files(&temporary.0, contents, 0, values)?;
        let files = team.collect(&temporary.0, contents, own)?;
        self.manifest(contents, files, keep.best)
            .write(&temporary.0.join(MANIFEST))?;
        self.install(&temporary.0, &path)?;
        let found = Found { step, path };
        if keep.best {
            self.point("best", Some(&found))?;
        }
        self.point("latest", self.find()?.complete.first())?;
        let (deleted, notes) = self.rotate(keep.last, &found.path)?;
        Ok(Saved {
            step,
            path: found.path,
            deleted,
            notes,
        })
    }

    /// Makes the directory of the checkpoints, where it is not there.
    pub(super) fn make_directory(&self) -> Result<()> {
        if !self.directory.is_dir() {
            let failed = |error: std::io::Error| DataError::write(&self.directory, &error);
            std::fs::create_dir_all(&self.directory).map_err(failed)?;
            sync_directory(self.directory.parent().unwrap_or(Path::new(""))).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes the files that a process writes into a directory.
    fn write_files(
        &self,
        directory: &Path,
        contents: &Contents,
        process: usize,
        values: Values<'_, '_>,
    ) -> Result<Vec<FileEntry>> {
        let mut files = Vec::new();
        for file in contents.files.iter().filter(|file| file.writer == process) {
            let digest = write_shard(&directory.join(&file.name), contents, &file.tensors, values)?;
            files.push(FileEntry {
                name: file.name.clone(),
                holds: file.holds,
                bytes: digest.bytes,
                blake3: digest.blake3,
            });
        }
        Ok(files)
    }

    fn manifest(&self, contents: &Contents, files: Vec<FileEntry>, best: bool) -> Manifest {
        Manifest {
            format: FORMAT,
            unisono: env!("CARGO_PKG_VERSION").to_string(),
            state: contents.state.clone(),
            best,
            config_digest: contents.config_digest.clone(),
            data_digest: contents.data_digest.clone(),
            mesh: contents.mesh.clone(),
            isa: contents.isa.clone(),
            files,
            tensors: contents.tensors.iter().map(|tensor| tensor.row.clone()).collect(),
        }
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

/// Plans the files of `tensors`, of at most `most` bytes where no single tensor is larger, dealt out to `processes` processes; there are
/// as many of each kind as processes, where there are tensors enough.
fn files(tensors: &mut [Described], most: u64, processes: usize) -> Vec<Planned> {
    let mut files: Vec<Planned> = Vec::new();
    for (holds, stem) in [(Holds::Parameter, "model"), (Holds::Optimizer, "optimizer")] {
        let of_kind = tensors.iter().filter(|tensor| tensor.row.kind == holds);
        let total: u64 = of_kind.map(|tensor| bytes_of(&tensor.row)).sum();
        let share = total.div_ceil(processes as u64);
        let shards = shards(tensors, holds, most.min(share.max(1)));
        let count = shards.len();
        for (index, shard) in shards.into_iter().enumerate() {
            let writer = files.len() % processes;
            shard.iter().for_each(|tensor| tensors[*tensor].writer = writer);
            files.push(Planned {
                name: match count {
                    1 => format!("{stem}.safetensors"),
                    n => format!("{stem}-{:05}-of-{n:05}.safetensors", index + 1),
                },
                holds,
                tensors: shard,
                writer,
            });
        }
    }
    files
}

fn bytes_of(row: &TensorRow) -> u64 {
    4 * row.shape.iter().product::<usize>() as u64
}

/// Cuts the tensors of a kind into files of at most `most` bytes, where no single tensor is larger: their places.
fn shards(tensors: &[Described], kind: Holds, most: u64) -> Vec<Vec<usize>> {
    let mut shards: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.row.kind == kind) {
        let size = bytes_of(&tensor.row);
        match shards.last_mut() {
            Some(shard) if bytes + size <= most => {
                shard.push(index);
                bytes += size;
            }
            _ => {
                shards.push(vec![index]);
                bytes = size;
            }
        }
    }
    shards
}

/// Writes one file, with one tensor at a time put together.
fn write_shard(
    path: &Path,
    contents: &Contents,
    shard: &[usize],
    values: Values<'_, '_>,
) -> Result<unisono_data::FileDigest> {
    let specs: Vec<TensorSpec> = shard
        .iter()
        .map(|index| &contents.tensors[*index].row)
        .map(|row| TensorSpec {
            name: row.name.clone(),
            shape: row.shape.clone(),
        })
        .collect();
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    write_safetensors(path, &specs, &metadata, |index| {
        let values = values(shard[index])?;
        if let Some(element) = values.iter().position(|value| !value.is_finite()) {
            return Err(CheckpointError::NotFinite {
                step: contents.state.step,
                tensor: contents.tensors[shard[index]].what.clone(),
                index: element,
                value: values[element],
            });
        }
        Ok(values)
    })
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
