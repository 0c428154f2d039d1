//! Batches prepared ahead of time by a thread of their own.

use crate::{Batch, DataError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that wait at most: enough to hide one slow read, and no memory wasted.
pub const DEPTH: usize = 2;

/// Prepares the batches of the steps `0, 1, 2, …` on a thread, up to [`DEPTH`] ahead. They are exactly the batches that the
/// same function gives when called in turn.
///
/// Dropped, it ends its thread, waiting for the batch in the making.
#[derive(Debug)]
pub struct Prefetcher {
    /// `None` only while dropping.
    batches: Option<Receiver<Result<Batch, DataError>>>,
    used: Sender<Batch>,
    thread: Option<JoinHandle<()>>,
    next: u64,
    /// What ended the thread, once it has.
    failed: Option<DataError>,
}

impl Prefetcher {
    /// Starts a thread that calls `fill(step, batch)` for each step from 0 on. The batch may hold an older one.
    ///
    /// # Errors
    /// [`DataError::Prefetch`] when no thread can be started.
    pub fn new<F>(fill: F) -> Result<Self, DataError>
    where
        F: FnMut(u64, &mut Batch) -> Result<(), DataError> + Send + 'static,
    {
        let (ready, batches) = sync_channel(DEPTH);
        let (used, spare) = channel();
        let thread = thread::Builder::new()
            .name("unisono-data".to_string())
            .spawn(move || prepare(fill, &ready, &spare))
            .map_err(|error| DataError::Prefetch {
                batch: 0,
                reason: format!("no thread can be started: {error}"),
            })?;
        Ok(Self {
            batches: Some(batches),
            used,
            thread: Some(thread),
            next: 0,
            failed: None,
        })
    }

    /// The batch of the next step; waits until it is ready.
    ///
    /// # Errors
    /// The error of the function, or [`DataError::Prefetch`] with the message of its panic; the same again ever after.
    pub fn next_batch(&mut self) -> Result<Batch, DataError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let received = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        let result = received.unwrap_or_else(|| {
            Err(DataError::Prefetch {
                batch: self.next,
                reason: "its thread ended without a word".to_string(),
            })
        });
        match result {
            Ok(batch) => {
                self.next += 1;
                Ok(batch)
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Gives a batch back, so that its memory is used again.
    pub fn recycle(&self, batch: Batch) {
        // An error only says that the thread has ended, and needs no memory any more.
        let _ = self.used.send(batch);
    }
}

impl Drop for Prefetcher {
    fn drop(&mut self) {
        // Without a receiver the thread's next send fails, which ends it.
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Panics of the function are caught in the thread, so there is nothing to learn here.
            let _ = thread.join();
        }
    }
}

fn prepare<F>(mut fill: F, ready: &SyncSender<Result<Batch, DataError>>, spare: &Receiver<Batch>)
where
    F: FnMut(u64, &mut Batch) -> Result<(), DataError>,
{
    for step in 0.. {
        let mut batch = spare.try_recv().unwrap_or_default();
        // After a panic neither the function nor the batch is used again.
        let result = catch_unwind(AssertUnwindSafe(|| fill(step, &mut batch))).unwrap_or_else(|panic| {
            let message = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_string())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_string());
            Err(DataError::Prefetch {
                batch: step,
                reason: format!("it panicked: {message}"),
            })
        });
        let ended = result.is_err();
        if ready.send(result.map(|()| batch)).is_err() || ended {
            return;
        }
    }
}
