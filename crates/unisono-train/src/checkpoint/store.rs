//! The directory of a run's checkpoints: names, listing, cleaning, rotation.

use super::load::{Part, load_part};
use super::manifest::{MANIFEST, Manifest};
use super::{Checkpoint, Result, error::CheckpointError};
use std::io;
use std::path::{Path, PathBuf};
use unisono_data::files::{remove_temporaries, sync_directory};
use unisono_data::{DataError, atomic_write};

/// Begins the name of everything that is not complete yet or not wanted any more.
pub(super) const TEMPORARY: &str = ".unisono-tmp-";
/// A checkpoint that makes room for another of the same step.
pub(super) const REPLACED: &str = ".unisono-tmp-replaced-";
/// Most bytes of one file of tensors.
const SHARD_BYTES: u64 = 1 << 30;

/// The checkpoints of one run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    pub(super) directory: PathBuf,
    pub(super) shard_bytes: u64,
}

/// A checkpoint by its step and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Optimizer steps done.
    pub step: u64,
    /// Its directory.
    pub path: PathBuf,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The complete checkpoints, newest first. Their contents are verified when they are loaded.
    pub complete: Vec<Found>,
    /// Half-written directories that were passed over, each in a sentence.
    pub ignored: Vec<String>,
}

/// What [`Checkpoints::clean`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Names of what was removed.
    pub removed: Vec<String>,
    /// Checkpoints that got their name back.
    pub recovered: Vec<String>,
}

impl Checkpoints {
    /// The checkpoints in `directory` (`RUN/checkpoints` unless the configuration says otherwise), which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Checkpoints {
        Checkpoints {
            directory: directory.into(),
            shard_bytes: SHARD_BYTES,
        }
    }

    /// With another bound on the size of one file; a tensor is never split.
    pub fn with_shard_bytes(self, shard_bytes: u64) -> Checkpoints {
        Checkpoints { shard_bytes, ..self }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The checkpoints that are complete, newest first, and what was passed over. A directory that does not exist holds
    /// none.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn find(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        for name in self.names()? {
            let path = self.directory.join(&name);
            if name.starts_with(TEMPORARY) {
                listing
                    .ignored
                    .push(format!("{} is half-written and was passed over", path.display()));
                continue;
            }
            let Some(step) = step_of(&name) else { continue };
            if path.join(MANIFEST).is_file() {
                listing.complete.push(Found { step, path });
            } else {
                listing
                    .ignored
                    .push(format!("{} has no {MANIFEST} and was passed over", path.display()));
            }
        }
        listing.complete.sort_by_key(|found| std::cmp::Reverse(found.step));
        Ok(listing)
    }

    /// Loads the newest complete checkpoint, all of it verified.
    ///
    /// # Errors
    /// None there, or damage in it: then the message names the file and offers the newest older one that is good.
    pub fn newest(&self) -> Result<Checkpoint> {
        self.newest_part(Part::All)
    }

    /// As [`Checkpoints::newest`], of the model's tensors alone; see [`load_parameters`](super::load_parameters).
    ///
    /// # Errors
    /// As [`Checkpoints::newest`].
    pub fn newest_parameters(&self) -> Result<Checkpoint> {
        self.newest_part(Part::Parameters)
    }

    pub(super) fn newest_part(&self, part: Part) -> Result<Checkpoint> {
        let listing = self.find()?;
        match listing.complete.first() {
            Some(found) => load_part(&found.path, part),
            None => Err(CheckpointError::None {
                directory: self.directory.display().to_string(),
                ignored: listing.ignored,
            }),
        }
    }

    /// The complete checkpoint that was the best when it was saved, the newest of several.
    ///
    /// # Errors
    /// A directory that cannot be read.
    pub fn best(&self) -> Result<Option<Found>> {
        let is_best = |found: &Found| Manifest::read(&found.path.join(MANIFEST)).is_ok_and(|manifest| manifest.best);
        Ok(self.find()?.complete.into_iter().find(is_best))
    }

    /// Removes what killed processes left, and gives a checkpoint its name back whose replacement never arrived. To be
    /// called before a run writes, and only while no other process does.
    ///
    /// # Errors
    /// A directory that cannot be read; what cannot be removed is left alone.
    pub fn clean(&self) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        for name in self.names()?.into_iter().filter(|name| name.starts_with(TEMPORARY)) {
            let path = self.directory.join(&name);
            if !path.is_dir() {
                continue;
            }
            let replaced = name.strip_prefix(REPLACED).filter(|name| step_of(name).is_some());
            if let Some(name) = replaced {
                let target = self.directory.join(name);
                if !target.exists() && path.join(MANIFEST).is_file() {
                    std::fs::rename(&path, &target).map_err(|error| DataError::write(&target, &error))?;
                    cleaned.recovered.push(name.to_string());
                    continue;
                }
            }
            if std::fs::remove_dir_all(&path).is_ok() {
                cleaned.removed.push(name);
            }
        }
        if self.directory.is_dir() {
            let files = remove_temporaries(&self.directory)?;
            cleaned
                .removed
                .extend((0..files).map(|_| "a temporary file".to_string()));
        }
        Ok(cleaned)
    }

    /// Removes the checkpoints of later steps: a run that goes on from `step` will write them anew. Answers with their
    /// directories.
    ///
    /// # Errors
    /// A directory that cannot be read or changed.
    pub fn rewind(&self, step: u64) -> Result<Vec<PathBuf>> {
        let mut removed = Vec::new();
        for found in self.find()?.complete {
            if found.step > step {
                self.remove(&found.path)
                    .map_err(|error| DataError::write(&found.path, &error))?;
                removed.push(found.path);
            }
        }
        if !removed.is_empty() {
            self.point("latest", self.find()?.complete.first())?;
            self.point("best", self.best()?.as_ref())?;
        }
        Ok(removed)
    }

    /// Deletes all but the newest `last`, the best, and the one just saved. What could not be deleted is told.
    pub(super) fn rotate(&self, last: usize, saved: &Path) -> Result<(Vec<PathBuf>, Vec<String>)> {
        let complete = self.find()?.complete;
        let best = self.best()?;
        let (mut deleted, mut notes) = (Vec::new(), Vec::new());
        for found in complete.into_iter().skip(last.max(1)) {
            if found.path == saved || best.as_ref() == Some(&found) {
                continue;
            }
            match self.remove(&found.path) {
                Ok(()) => deleted.push(found.path),
                Err(error) => notes.push(format!(
                    "the old checkpoint {} could not be deleted: {error}",
                    found.path.display()
                )),
            }
        }
        Ok((deleted, notes))
    }

    /// Writes a pointer file, or removes it where there is nothing to point at.
    pub(super) fn point(&self, pointer: &str, found: Option<&Found>) -> Result<()> {
        let path = self.directory.join(pointer);
        match found {
            Some(found) => {
                let text = directory_name(found.step) + "\n";
                atomic_write(&path, |file| io::Write::write_all(file, text.as_bytes()))?;
            }
            None if path.exists() => std::fs::remove_file(&path).map_err(|error| DataError::write(&path, &error))?,
            None => {}
        }
        Ok(())
    }

    /// Takes a checkpoint's name away before its files, so that no half of it is ever taken for all.
    fn remove(&self, path: &Path) -> io::Result<()> {
        let temporary = self.temporary("deleted");
        std::fs::rename(path, &temporary)?;
        sync_directory(&self.directory)?;
        std::fs::remove_dir_all(&temporary)
    }

    /// A name in the directory that nothing has.
    pub(super) fn temporary(&self, what: &str) -> PathBuf {
        let process = std::process::id();
        (0u64..)
            .map(|i| self.directory.join(format!("{TEMPORARY}{what}-{process}-{i}")))
            .find(|path| !path.exists())
            .expect("the numbers do not end before the names that are taken do")
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(DataError::read(&self.directory, &error).into()),
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }
}

/// `step-00000100`.
pub(super) fn directory_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// The step of a checkpoint's directory by its name.
fn step_of(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (directory_name(step) == name).then_some(step)
}
