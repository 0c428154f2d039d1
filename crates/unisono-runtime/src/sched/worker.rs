//! What a worker does: find something, run tiles, and with nothing to do spin, then sleep.

use super::state::{Goal, Job, first_of_group};
use super::{Scheduler, Scope};
use crate::error::RuntimeError;
use crate::place::Place;
use crate::task::Task;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use unisono_kernels::scratch::Scratch;

/// How long a worker with nothing to do looks again and again before it sleeps: about the time that a wake-up takes.
const SPIN: Duration = Duration::from_micros(50);

/// The same where a message is awaited: longer than a sleeper oversleeps. Two processes that each sleep while the other is late would
/// make each other late for ever.
const MESSAGE_SPIN: Duration = Duration::from_micros(500);

/// What a worker keeps from one command to the next.
pub(crate) struct Worker {
    index: usize,
    /// The device that it last began a command of.
    home: usize,
    scratch: Scratch,
}

/// What came of waiting a little.
enum Spun {
    /// There may be something to do.
    Changed,
    /// The messages of an entry are over.
    Ended(Job),
    /// Nothing.
    Quiet,
}

/// What a worker is to do next.
enum Next {
    /// This.
    Run(Job),
    /// Stop working: what it was waiting for has come.
    Return,
    /// Nothing for now.
    Idle,
}

impl Next {
    fn job(&self) -> Option<Job> {
        match self {
            Next::Run(job) => Some(*job),
            Next::Return | Next::Idle => None,
        }
    }
}

impl Scheduler {
    /// Worker 0, which the host lends its thread to.
    pub(crate) fn host_worker(&self) -> Worker {
        self.worker(0)
    }

    fn worker(&self, index: usize) -> Worker {
        Worker {
            index,
            home: self.here[index % self.here.len()],
            scratch: Scratch::with_order(self.isa, self.bf16_order),
        }
    }

    /// The life of a worker thread.
    pub(super) fn work(&self, index: usize) {
        self.parkers[index].adopt();
        let mut worker = self.worker(index);
        self.work_until(&mut worker, || self.stop.load(Ordering::Acquire));
    }

    /// The host works until the goal is met.
    pub(crate) fn wait(&self, host: &mut Worker, goal: Goal) {
        if self.lock().set_goal(self, goal) {
            self.work_until(host, || self.goal_met.load(Ordering::Acquire));
        }
    }

    fn work_until(&self, worker: &mut Worker, over: impl Fn() -> bool) {
        let mut done = None;
        while let Some(job) = self.find_work(worker, done, &over) {
            done = self.run(worker, job);
        }
    }

    /// The host has written an entry of `tiles` tiles for each of `devices` to `queue`. Wakes as many sleepers as that may need if a
    /// device was waiting for it; if none was, some worker is awake and will come to it.
    pub(super) fn written(&self, queue: usize, devices: usize, tiles: usize) {
        if !self.starved[queue].swap(false, Ordering::SeqCst) || self.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut wanted = devices.saturating_mul(tiles);
        wanted = wanted.saturating_sub(self.spinners.load(Ordering::SeqCst));
        while wanted > 0 {
            let Some(sleeper) = self.lock().wake_any(self) else {
                return;
            };
            self.parkers[sleeper].wake();
            wanted -= 1;
        }
    }

    /// Ends the worker's part in `done` and finds something new, or `None` once `over` says so. Sleeps meanwhile if it must.
    fn find_work(&self, worker: &Worker, mut done: Option<Job>, over: &impl Fn() -> bool) -> Option<Job> {
        loop {
            let seen = self.glance();
            match self.decide(worker, done.take(), over, false) {
                Next::Run(job) => return Some(job),
                Next::Return => return None,
                Next::Idle => match self.spin(seen, over) {
                    Spun::Changed => continue,
                    Spun::Ended(job) => {
                        done = Some(job);
                        continue;
                    }
                    Spun::Quiet => {}
                },
            }
            match self.decide(worker, None, over, true) {
                Next::Run(job) => return Some(job),
                Next::Return => return None,
                Next::Idle => done = self.rest(worker.index),
            }
        }
    }

    /// One stay under the lock: ends the worker's part in `done`, takes what is ready unless `over`, and tells another worker if
    /// there is more than that.
    ///
    /// A worker that gets [`Next::Idle`] counts as spinning from here on or, on its last look, as asleep: whoever makes something
    /// ready after it has looked will tell it.
    fn decide(&self, worker: &Worker, done: Option<Job>, over: &impl Fn() -> bool, last_look: bool) -> Next {
        let mut state = self.lock();
        let mut wake_host = done.is_some_and(|job| state.leave(self, job));
        if last_look {
            state.enter_sleeper(self, worker.index);
        }
        let next = if over() {
            Next::Return
        } else {
            state.pick(self, worker.home).map_or(Next::Idle, Next::Run)
        };
        // Passing over an entry that does not concern a device ends it too.
        wake_host |= state.check_goal(self);
        let mut sleeper = None;
        if matches!(next, Next::Idle) {
            if !last_look {
                self.spinners.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            if last_look {
                state.remove_sleeper(self, worker.index);
            }
            // A host that returns may have been told of something that it now leaves to others.
            let spinning = self.spinners.load(Ordering::SeqCst) > 0;
            let leaves_messages = matches!(next, Next::Return) && self.expects_messages();
            if (spinning || self.sleepers.load(Ordering::SeqCst) > 0)
                && (leaves_messages || state.has_more_than(self, next.job()))
            {
                if spinning {
                    self.signal.0.fetch_add(1, Ordering::Release);
                } else {
                    sleeper = state.wake_any(self);
                }
            }
        }
        drop(state);
        if let Some(sleeper) = sleeper {
            self.parkers[sleeper].wake();
        }
        if wake_host {
            self.parkers[0].wake();
        }
        next
    }

    /// Runs tiles until there are none left. Returns the run to leave; an exchange goes on without a worker.
    fn run(&self, worker: &mut Worker, job: Job) -> Option<Job> {
        let start = Instant::now();
        // SAFETY: this worker is in the run of the entry, so its device has not ended it and does not before `leave` below.
        let entry = unsafe { self.logs[job.queue].entry(job.index) };
        let op = entry.task.op();
        if let (Task::Exchange(exchange), Some(wire)) = (&entry.task, &self.wire) {
            wire.begin(job, exchange, self.arenas.all());
            self.tick();
            return self.messages();
        }
        let own = || {
            // Only devices of the entry's view begin it.
            let place = entry.view.place(job.device);
            place.unwrap_or_else(|| unreachable!("bug in unisono: {job:?} on a device outside its view"))
        };
        let place = match entry.scope {
            Scope::Only { place, .. } => place,
            Scope::Groups { stride, size } => first_of_group(own(), stride, size),
            Scope::Each | Scope::Process => own(),
        };
        let place = Place::new(&entry.view, place, self.arenas.all(), op);
        self.runs(true);
        let handed_out = &self.handed_out[job.device][job.queue].0;
        let scratch = &mut worker.scratch;
        let result = catch_unwind(AssertUnwindSafe(|| {
            while !self.failed.load(Ordering::Relaxed) {
                let tile = handed_out.fetch_add(1, Ordering::Relaxed);
                if tile >= job.tiles {
                    return;
                }
                op.run(&place, tile, scratch);
                self.between_tiles();
            }
            handed_out.store(job.tiles, Ordering::Relaxed);
        }));
        if let Err(panic) = result {
            handed_out.store(job.tiles, Ordering::Relaxed);
            self.fail(RuntimeError::CommandFailed {
                command: catch_unwind(AssertUnwindSafe(|| format!("{:?}", entry.task)))
                    .unwrap_or_else(|_| op.name().to_string()),
                device: job.device,
                reason: words(panic.as_ref()),
            });
        }
        self.runs(false);
        if job.first && matches!(entry.scope, Scope::Each) {
            worker.home = job.device;
        }
        let spent = &self.busy[worker.index].0[entry.phase as usize];
        // Nobody else adds to this worker's counters. 584 years of nanoseconds fit.
        let nanos = spent.load(Ordering::Relaxed) + start.elapsed().as_nanos() as u64;
        spent.store(nanos, Ordering::Relaxed);
        Some(job)
    }

    pub(super) fn fail(&self, failure: RuntimeError) {
        self.lock().failure.get_or_insert(failure);
        self.failed.store(true, Ordering::Release);
    }

    /// Waits a little for a change since `seen`; there is none at once if enough others wait like that. The worker has been
    /// counted as spinning since it found nothing.
    fn spin(&self, seen: [u64; 3], over: &impl Fn() -> bool) -> Spun {
        let mut changed = false;
        let mut ended = None;
        if self.spinners.load(Ordering::Relaxed) <= self.spin_limit {
            let start = Instant::now();
            let mut spent = Duration::ZERO;
            // One worker at a time is enough for messages.
            let awaits = self.expects_messages() && self.spinners.load(Ordering::Relaxed) == 1;
            let patience = if awaits { MESSAGE_SPIN } else { SPIN };
            while !changed && ended.is_none() && spent < patience {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
                changed = self.glance() != seen || over();
                if !changed {
                    ended = self.messages();
                }
                spent = start.elapsed();
                if spent > SPIN {
                    // Whoever wants the core may have it: perhaps the very process that the message is to come from.
                    std::thread::yield_now();
                }
            }
        }
        self.spinners.fetch_sub(1, Ordering::SeqCst);
        match ended {
            Some(job) => Spun::Ended(job),
            None if changed => Spun::Changed,
            None => Spun::Quiet,
        }
    }

    /// What changes when there may be something new to do.
    fn glance(&self) -> [u64; 3] {
        [
            self.signal.0.load(Ordering::Acquire),
            self.logs[0].head(),
            self.logs[1].head(),
        ]
    }
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_string()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without words".to_string()
    }
}
