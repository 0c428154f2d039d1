//! Checkpoints written behind the run: by a thread of their own, from a copy of the tensors.

use super::save::{Keep, Live, Saved};
use super::snapshot::Snapshot;
use super::{Checkpoints, Result};
use std::thread::{self, JoinHandle};
use unisono_data::DataError;

/// Writes checkpoints while the run goes on, one at a time, each with the guarantees of [`Checkpoints::save`].
///
/// The run stops for the copy into the host's memory (as much as parameters and optimizer state take; kept for the next
/// checkpoint), not for the disk. Dropped, it waits for what is being written; its errors are then lost, so [`Writer::wait`]
/// comes first.
pub struct Writer {
    checkpoints: Checkpoints,
    /// Ends when the checkpoint is on the disk, or when that has failed, and gives its memory back.
    writing: Option<JoinHandle<(Result<Saved>, Snapshot)>>,
    /// Memory of the last snapshot.
    room: Vec<Vec<f32>>,
}

impl Writer {
    /// A writer into a directory of checkpoints, in which nobody else may write meanwhile. It is at rest.
    pub fn new(checkpoints: Checkpoints) -> Writer {
        Writer {
            checkpoints,
            writing: None,
            room: Vec::new(),
        }
    }

    /// Compares the replicas, copies what is to be saved and begins to write it. Whatever is issued after this call does not
    /// change it. The checkpoint before must have been waited for.
    ///
    /// # Errors
    /// Replicas that differ, a failed command, or no thread to be had.
    pub fn start(&mut self, live: &Live<'_>, keep: Keep) -> Result<()> {
        assert!(
            self.writing.is_none(),
            "bug in unisono: a checkpoint begins before the last one has ended"
        );
        let snapshot = Snapshot::take(live, self.checkpoints.shard_bytes, std::mem::take(&mut self.room))?;
        let checkpoints = self.checkpoints.clone();
        let thread = thread::Builder::new()
            .name("unisono-checkpoint".to_string())
            .spawn(move || (snapshot.write(&checkpoints, keep), snapshot))
            .map_err(|error| {
                let error = std::io::Error::new(error.kind(), format!("no thread can be started for it: {error}"));
                DataError::write(self.checkpoints.directory(), &error)
            })?;
        self.writing = Some(thread);
        Ok(())
    }

    /// The checkpoint that has come to be on the disk since the last call, if one has. It does not wait, and costs little enough
    /// for every step.
    ///
    /// # Errors
    /// As [`Checkpoints::save`], once for each checkpoint; the writer is then at rest.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        match &self.writing {
            Some(thread) if thread.is_finished() => self.wait(),
            _ => Ok(None),
        }
    }

    /// Waits until what was begun is on the disk; nothing where the writer is at rest.
    ///
    /// # Errors
    /// As [`Writer::poll`].
    pub fn wait(&mut self) -> Result<Option<Saved>> {
        let Some(thread) = self.writing.take() else {
            return Ok(None);
        };
        match thread.join() {
            Ok((saved, snapshot)) => {
                self.room = snapshot.into_room();
                saved.map(Some)
            }
            // A bug of ours, which has said its words; it goes on from where the run can be ended.
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(thread) = self.writing.take() {
            // Only a run that panics has not asked before; what there is to say has been said.
            let _ = thread.join();
        }
    }
}
