//! Whoever is told of a run, and who of them can no longer be.

use crate::metrics::{Event, MetricsFile, Tracker};

/// The trackers of a session.
pub(super) struct Told<'a, 't> {
    trackers: &'a mut [&'t mut dyn Tracker],
    failed: Vec<bool>,
    /// Whether the metrics file is no longer written.
    pub(super) metrics_failed: bool,
    /// What was said of failures.
    pub(super) notes: Vec<String>,
}

impl<'a, 't> Told<'a, 't> {
    /// All of them work so far.
    pub(super) fn new(trackers: &'a mut [&'t mut dyn Tracker]) -> Told<'a, 't> {
        Told {
            failed: vec![false; trackers.len()],
            trackers,
            metrics_failed: false,
            notes: Vec::new(),
        }
    }

    /// Tells the metrics file and every tracker; failures are told once each.
    pub(super) fn tell(&mut self, metrics: &mut MetricsFile, event: &Event<'_>) {
        let mut complaints = Vec::new();
        if !self.metrics_failed
            && let Err(what) = metrics.event(event)
        {
            self.metrics_failed = true;
            complaints.push(format!(
                "metrics.jsonl can no longer be written ({what}); the run goes on without it"
            ));
        }
        for (tracker, failed) in self.trackers.iter_mut().zip(&mut self.failed) {
            if !*failed && let Err(what) = tracker.event(event) {
                *failed = true;
                complaints.push(format!("a tracker failed ({what}); the run goes on without it"));
            }
        }
        for complaint in complaints {
            for (tracker, failed) in self.trackers.iter_mut().zip(&mut self.failed) {
                if !*failed && tracker.event(&Event::Warning(&complaint)).is_err() {
                    *failed = true;
                }
            }
            self.notes.push(complaint);
        }
    }
}
