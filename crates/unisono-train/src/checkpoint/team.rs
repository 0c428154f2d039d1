//! The processes that write a checkpoint together: each its own files, the first the manifest that makes them a checkpoint.
//!
//! All write into one directory, which their hosts must share. A process that is done leaves a note there with the sizes and hashes
//! of its files; the first waits for the notes, takes them away and writes the manifest. Nothing is a checkpoint before.

use super::Result;
use super::error::CheckpointError;
use super::manifest::FileEntry;
use super::save::{Contents, Live};
use super::store::{Checkpoints, TEMPORARY, directory_name};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unisono_data::{DataError, atomic_write};
use unisono_runtime::RuntimeError;
use unisono_runtime::transport::Link;
use unisono_tensor::TensorError;

/// See the module.
pub(super) struct Team {
    rank: usize,
    size: usize,
    /// How the others are heard of, where there are any.
    link: Option<Link>,
}

/// How often the first process looks for notes.
const LOOK: Duration = Duration::from_millis(5);

impl Team {
    /// The processes that carry what is saved.
    pub(super) fn of(live: &Live<'_>) -> Team {
        let runtime = live
            .parameters
            .first()
            .map(|parameter| parameter.tensor.device().runtime());
        Team {
            rank: runtime.map_or(0, |runtime| runtime.processes().rank()),
            size: runtime.map_or(1, |runtime| runtime.processes().size()),
            link: runtime.and_then(|runtime| runtime.link().cloned()),
        }
    }

    /// The number of this process.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Processes that write.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Where the files are written before they are a checkpoint: a name that all processes know.
    pub(super) fn directory(&self, checkpoints: &Checkpoints, step: u64) -> PathBuf {
        match self.size {
            1 => checkpoints.temporary("new"),
            _ => checkpoints
                .directory()
                .join(format!("{TEMPORARY}all-{}", directory_name(step))),
        }
    }

    /// Writes this process's files, and the note that they are there.
    ///
    /// # Errors
    /// What `write` and the disk say; its own files are then removed with the directory, by the first process or the next run.
    pub(super) fn contribute(
        &self,
        checkpoints: &Checkpoints,
        step: u64,
        write: impl FnOnce(&Path) -> Result<Vec<FileEntry>>,
    ) -> Result<()> {
        let directory = self.directory(checkpoints, step);
        std::fs::create_dir_all(&directory).map_err(|error| DataError::write(&directory, &error))?;
        let files = write(&directory)?;
        // Names, numbers and hashes always have a JSON form.
        let note = serde_json::to_vec(&files).unwrap_or_default();
        atomic_write(&directory.join(note_of(self.rank)), |file| file.write_all(&note))?;
        Ok(())
    }

    /// Waits for the notes of the others; returns all files in the order of the plan.
    ///
    /// # Errors
    /// A process that fails or is lost, or whose note does not come.
    pub(super) fn collect(
        &self,
        directory: &Path,
        contents: &Contents,
        mut files: Vec<FileEntry>,
    ) -> Result<Vec<FileEntry>> {
        let start = Instant::now();
        for rank in 1..self.size {
            let path = directory.join(note_of(rank));
            let note = loop {
                if let Ok(note) = std::fs::read(&path) {
                    break note;
                }
                let Some(link) = &self.link else { break Vec::new() };
                link.check()
                    .map_err(|error| TensorError::from(RuntimeError::from(error)))?;
                if start.elapsed() > link.timeout() {
                    return Err(CheckpointError::Apart {
                        directory: directory.display().to_string(),
                        who: link.describe(rank),
                        seconds: link.timeout().as_secs(),
                    });
                }
                std::thread::sleep(LOOK);
            };
            let written: Vec<FileEntry> =
                serde_json::from_slice(&note).map_err(|error| DataError::read(&path, &error.into()))?;
            files.extend(written);
            std::fs::remove_file(&path).map_err(|error| DataError::write(&path, &error))?;
        }
        let place = |entry: &FileEntry| contents.files.iter().position(|file| file.name == entry.name);
        files.sort_by_key(place);
        Ok(files)
    }
}

fn note_of(rank: usize) -> String {
    format!("written-by-rank-{rank}.json")
}
