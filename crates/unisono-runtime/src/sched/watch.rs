//! Who looks after messages between processes, and when.

use super::Scheduler;
use super::state::Job;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pauses of a worker that has nothing to do but to look for messages: ever longer ones.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(500)];
/// How often a busy worker looks.
const GLANCE: Duration = Duration::from_micros(100);

impl Scheduler {
    /// Whether messages are on their way.
    pub(super) fn expects_messages(&self) -> bool {
        self.wire.as_ref().is_some_and(|wire| wire.is_busy())
    }

    /// Looks after the messages on their way, if there are any; returns an entry whose messages are over, which the caller must end.
    pub(super) fn messages(&self) -> Option<Job> {
        let wire = self.wire.as_ref().filter(|wire| wire.is_busy())?;
        if self.failed.load(Ordering::Relaxed) {
            return wire.give_up();
        }
        let landed = wire.look()?;
        self.tick();
        if let Err(error) = landed.outcome {
            self.fail(error);
        }
        Some(landed.job)
    }

    /// A worker looks after messages between two tiles, now and then.
    pub(super) fn between_tiles(&self) {
        if !self.expects_messages() {
            return;
        }
        // Nanoseconds since the scheduler was made, for 584 years.
        let now = self.since.elapsed().as_nanos() as u64;
        let last = self.looked.0.load(Ordering::Relaxed);
        if now.saturating_sub(last) < GLANCE.as_nanos() as u64 {
            return;
        }
        self.looked.0.store(now, Ordering::Relaxed);
        if let Some(job) = self.messages() {
            self.end(job);
        }
    }

    /// Ends an entry whose messages are over, for a worker that has something else to do.
    fn end(&self, job: Job) {
        let mut state = self.lock();
        let mut wake_host = state.leave(self, job);
        wake_host |= state.check_goal(self);
        let mut sleeper = None;
        if state.has_more_than(self, None) {
            match self.spinners.load(Ordering::SeqCst) > 0 {
                true => {
                    self.signal.0.fetch_add(1, Ordering::Release);
                }
                false => sleeper = state.wake_any(self),
            }
        }
        drop(state);
        if let Some(sleeper) = sleeper {
            self.parkers[sleeper].wake();
        }
        if wake_host {
            self.parkers[0].wake();
        }
    }

    /// Sleeps until woken. Where messages are expected, one of the workers that would sleep looks after them instead, ever more
    /// seldom; it returns an entry whose messages are over. The worker has entered itself among the sleepers.
    pub(super) fn rest(&self, worker: usize) -> Option<Job> {
        let parker = &self.parkers[worker];
        if !self.expects_messages() || self.watched.swap(true, Ordering::SeqCst) {
            parker.sleep();
            return None;
        }
        let start = Instant::now();
        let [mut pause, longest] = PAUSES;
        let ended = loop {
            if parker.sleep_for(pause) {
                break None;
            }
            if let Some(job) = self.messages() {
                if !self.lock().remove_sleeper(self, worker) {
                    // Somebody is about to wake it.
                    parker.sleep();
                }
                break Some(job);
            }
            pause = (start.elapsed() / 8).clamp(pause, longest);
        };
        self.watched.store(false, Ordering::SeqCst);
        ended
    }
}
