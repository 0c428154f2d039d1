//! How long messages were on their way, and for how much of it this process had nothing else to do.

use super::Scheduler;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time of messages between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AirTime {
    /// On the clock, while some exchange was under way.
    pub total: Duration,
    /// The part of it in which no worker of this process ran a command: what computing did not hide.
    pub exposed: Duration,
}

/// The stopwatch.
pub(super) struct Air {
    /// Workers that run commands.
    running: AtomicUsize,
    state: Mutex<State>,
}

struct State {
    time: AirTime,
    since: Instant,
    in_air: bool,
    idle: bool,
}

impl Air {
    pub(super) fn new() -> Air {
        Air {
            running: AtomicUsize::new(0),
            state: Mutex::new(State {
                time: AirTime::default(),
                since: Instant::now(),
                in_air: false,
                idle: true,
            }),
        }
    }
}

impl Scheduler {
    /// A worker begins (or ends) to run tiles of a command.
    pub(super) fn runs(&self, begins: bool) {
        let Some(wire) = &self.wire else { return };
        match begins {
            true => self.air.running.fetch_add(1, Ordering::SeqCst),
            false => self.air.running.fetch_sub(1, Ordering::SeqCst),
        };
        // Where nothing is on its way nothing is measured.
        if wire.is_busy() {
            self.tick();
        }
    }

    /// Something has changed: messages have set out or come, or a worker has begun or ended something.
    pub(super) fn tick(&self) {
        let in_air = self.expects_messages();
        let mut state = self.air.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let passed = now - state.since;
        if state.in_air {
            state.time.total += passed;
            if state.idle {
                state.time.exposed += passed;
            }
        }
        state.since = now;
        state.in_air = in_air;
        state.idle = self.air.running.load(Ordering::SeqCst) == 0;
    }

    /// The time of messages so far.
    pub(crate) fn air_time(&self) -> AirTime {
        self.tick();
        self.air.state.lock().unwrap_or_else(PoisonError::into_inner).time
    }
}
