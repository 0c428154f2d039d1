//! How one worker sleeps until another wakes it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// A place for one thread to sleep at. A wake-up that comes first is kept.
#[derive(Default)]
pub(super) struct Parker {
    woken: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Parker {
    /// Makes the calling thread the one that sleeps here.
    pub(super) fn adopt(&self) {
        self.thread.get_or_init(std::thread::current);
    }

    /// Sleeps until woken.
    pub(super) fn sleep(&self) {
        while !self.woken.swap(false, Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Sleeps until woken, or for so long; whether it was woken.
    pub(super) fn sleep_for(&self, time: Duration) -> bool {
        if !self.woken.swap(false, Ordering::Acquire) {
            std::thread::park_timeout(time);
            return self.woken.swap(false, Ordering::Acquire);
        }
        true
    }

    /// Wakes the thread, which must have entered itself as a sleeper before.
    pub(super) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
