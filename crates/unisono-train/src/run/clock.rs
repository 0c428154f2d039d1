//! Where the time of a step goes.

use crate::metrics::Seconds;
use std::time::Instant;
use unisono_tensor::{MeshDevice, Phase};

/// Phases of a step, as the summary lists them.
pub(super) const PHASES: [Phase; 8] = [
    Phase::Data,
    Phase::Forward,
    Phase::Backward,
    Phase::Communication,
    Phase::Optimizer,
    Phase::Evaluation,
    Phase::Checkpoint,
    Phase::Other,
];

/// Time between steps, on the clock and of the workers.
pub(super) struct Clock {
    last: Instant,
    busy: [f64; 5],
}

impl Clock {
    /// A clock that begins now.
    pub(super) fn start() -> Clock {
        Clock {
            last: Instant::now(),
            busy: [0.0; 5],
        }
    }

    /// Ends a step, which the devices did at `now`, and begins the next. (The host reads a step's numbers while the next one
    /// runs, and may come late.)
    pub(super) fn tick(&mut self, device: &MeshDevice, now: Instant) -> Seconds {
        let report = device.runtime().report();
        let workers = device.runtime().workers().max(1) as f64;
        let mut passed = [0.0; 5];
        for (i, phase) in PHASES.iter().take(5).enumerate() {
            let busy = report.phase(*phase).busy.as_secs_f64();
            passed[i] = (busy - self.busy[i]) / workers;
            self.busy[i] = busy;
        }
        // Two ticks never fall into one nanosecond; the bound keeps rates finite all the same.
        let total = now.saturating_duration_since(self.last).as_secs_f64().max(1e-9);
        self.last = now;
        let [data, forward, backward, communication, optimizer] = passed;
        Seconds {
            total,
            data,
            forward,
            backward,
            communication,
            optimizer,
        }
    }

    /// Begins the next step now: what has passed since the last tick belongs to none.
    pub(super) fn skip(&mut self) {
        self.last = Instant::now();
    }
}
