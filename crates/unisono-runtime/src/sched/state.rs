//! The decisions: what is ready, who takes it, what ends. All of it happens under the scheduler's one lock.

use super::Scheduler;
use super::log::Scope;
use crate::error::RuntimeError;
use crate::queue::Queue;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What the lock protects.
pub(super) struct State {
    /// By number; those of other processes never move.
    devices: Vec<Device>,
    /// Devices of this process.
    here: usize,
    /// Runs that workers may join, by device and queue.
    runs: Vec<(usize, usize)>,
    /// Per queue and slot: on how many devices of this process the entry in it has not ended.
    left: [Box<[usize]>; 2],
    /// Workers asleep, the last to fall asleep at the end.
    sleepers: Vec<usize>,
    /// What the host waits for, until it is met.
    goal: Option<Goal>,
    /// The first command that failed.
    pub(super) failure: Option<RuntimeError>,
    /// Whether a device has passed an entry without running anything, which may make others ready.
    passed: bool,
}

/// Where a device stands.
#[derive(Clone, Default)]
struct Device {
    /// Entries of each queue that it has ended.
    ended: [u64; 2],
    /// The run of the next entry of each queue. A collective's is with the first device of the group.
    run: [Option<Run>; 2],
}

/// A command that is being run.
#[derive(Clone, Copy)]
struct Run {
    index: u64,
    tiles: usize,
    workers: usize,
}

/// A run that a worker has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// The device; the first of the group for a collective.
    pub(super) device: usize,
    pub(super) queue: usize,
    pub(super) index: u64,
    pub(super) tiles: usize,
    /// Whether this worker began the run.
    pub(super) first: bool,
}

/// What the host may wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goal {
    /// Entries of each queue that must have ended on every device.
    pub(crate) everywhere: [u64; 2],
    /// A device, a queue and the number of entries that must have ended there.
    pub(crate) on: Option<(usize, usize, u64)>,
}

impl State {
    pub(super) fn new(devices: usize, here: usize, workers: usize, depth: usize) -> State {
        State {
            devices: vec![Device::default(); devices],
            here,
            runs: Vec::with_capacity(2 * here),
            left: std::array::from_fn(|_| vec![here; depth].into()),
            sleepers: Vec::with_capacity(workers),
            goal: None,
            failure: None,
            passed: false,
        }
    }

    /// Entries of `queue` that `device` has ended.
    pub(super) fn ended(&self, device: usize, queue: usize) -> u64 {
        self.devices[device].ended[queue]
    }

    /// Finds something to do for a worker that was last on device `home`, and enters it there.
    pub(super) fn pick(&mut self, s: &Scheduler, home: usize) -> Option<Job> {
        loop {
            self.passed = false;
            if let Some((device, queue, index)) = self.ready_on(s, home).or_else(|| self.ready_anywhere(s)) {
                return Some(self.begin(s, device, queue, index));
            }
            if let Some(job) = self.join(s) {
                return Some(job);
            }
            if !self.passed {
                return None;
            }
        }
    }

    /// Whether there is something for another worker, given that the caller has just taken `job`.
    pub(super) fn has_more_than(&mut self, s: &Scheduler, job: Option<Job>) -> bool {
        let is_open =
            |device: usize, queue: usize, tiles: usize| s.handed_out[device][queue].0.load(Ordering::Relaxed) < tiles;
        // The caller has yet to take its own first tile.
        let own = job.map(|job| (job.device, job.queue));
        let joinable = self.runs.iter().any(|(device, queue)| {
            let run = self.devices[*device].run[*queue];
            run.is_some_and(|run| is_open(*device, *queue, run.tiles - usize::from(own == Some((*device, *queue)))))
        });
        joinable || self.ready_anywhere(s).is_some()
    }

    /// A worker leaves a run that has no tiles left. The last one ends the entry. Returns whether to wake the host.
    pub(super) fn leave(&mut self, s: &Scheduler, job: Job) -> bool {
        let run = &mut self.devices[job.device].run[job.queue];
        let Some(open) = run else {
            unreachable!("bug in unisono: {job:?} has ended while a worker was in it")
        };
        open.workers -= 1;
        if open.workers > 0 {
            return false;
        }
        *run = None;
        self.runs.retain(|run| *run != (job.device, job.queue));
        // SAFETY: the device has not ended the entry, and cannot before it passes it below, because this lock is held; the entry
        // is not looked at once the last of its devices has.
        let entry = unsafe { s.logs[job.queue].entry(job.index) };
        match entry.scope {
            Scope::Each | Scope::Only { .. } => self.pass(s, job.device, job.queue),
            Scope::Groups { stride, size } => {
                let view = Arc::clone(&entry.view);
                let first = first_of_group(view.place(job.device).unwrap_or(0), stride, size);
                let members = (0..size).map(|member| view.device(first + member * stride));
                for device in members.filter(|device| s.is_here[*device]) {
                    self.pass(s, device, job.queue);
                }
            }
            Scope::Process => s.here.iter().for_each(|device| self.pass(s, *device, job.queue)),
        }
        self.check_goal(s)
    }

    /// Sets what the host waits for; false if it is met already.
    pub(super) fn set_goal(&mut self, s: &Scheduler, goal: Goal) -> bool {
        let met = self.met(s, goal);
        self.goal = (!met).then_some(goal);
        s.goal_met.store(met, Ordering::Release);
        !met
    }

    /// Enters a worker among the sleepers. It must look for work once more before it sleeps.
    pub(super) fn enter_sleeper(&mut self, s: &Scheduler, worker: usize) {
        self.sleepers.push(worker);
        s.sleepers.store(self.sleepers.len(), Ordering::SeqCst);
    }

    /// Takes a worker off the list; false if it was not on it.
    pub(super) fn remove_sleeper(&mut self, s: &Scheduler, worker: usize) -> bool {
        let before = self.sleepers.len();
        self.sleepers.retain(|sleeper| *sleeper != worker);
        s.sleepers.store(self.sleepers.len(), Ordering::SeqCst);
        self.sleepers.len() < before
    }

    /// Takes the worker that fell asleep last off the list, to be woken.
    pub(super) fn wake_any(&mut self, s: &Scheduler) -> Option<usize> {
        let worker = self.sleepers.pop();
        s.sleepers.store(self.sleepers.len(), Ordering::SeqCst);
        worker
    }

    /// The next entry of the device itself, if it is ready.
    fn ready_on(&mut self, s: &Scheduler, device: usize) -> Option<(usize, usize, u64)> {
        Queue::FIRST_TO_LAST
            .into_iter()
            .find_map(|queue| self.ready(s, device, queue).map(|index| (device, queue, index)))
    }

    /// Of all ready entries one in the transfer queue, else that of the device furthest behind.
    fn ready_anywhere(&mut self, s: &Scheduler) -> Option<(usize, usize, u64)> {
        for queue in Queue::FIRST_TO_LAST {
            // A glance at the log before all devices are looked at; `ready` makes sure of `starved`.
            if s.logs[queue].tail() == s.logs[queue].head() && s.starved[queue].load(Ordering::SeqCst) {
                continue;
            }
            let mut best: Option<(usize, u64)> = None;
            for device in s.here.iter().copied() {
                if best.is_some_and(|(_, index)| index <= self.devices[device].ended[queue]) {
                    continue;
                }
                if let Some(index) = self.ready(s, device, queue) {
                    best = Some((device, index));
                }
            }
            if let Some((device, index)) = best {
                return Some((device, queue, index));
            }
        }
        None
    }

    /// The number of the entry that `device` may begin in `queue`, if there is one. A collective counts as its group's first
    /// device's.
    fn ready(&mut self, s: &Scheduler, device: usize, queue: usize) -> Option<u64> {
        loop {
            let index = self.devices[device].ended[queue];
            if !self.is_written(s, queue, index) || self.devices[device].run[queue].is_some() {
                return None;
            }
            // SAFETY: the entry is written, and this device has not ended it and cannot while the lock is held.
            let entry = unsafe { s.logs[queue].entry(index) };
            let may_begin = |device: &Device| device.ended[queue] == index && device.ended[1 - queue] >= entry.wait;
            let concerned = match entry.scope {
                Scope::Each | Scope::Groups { .. } => entry.view.place(device),
                Scope::Only { lane, place } => (lane == device).then_some(place),
                Scope::Process => Some(0),
            };
            let Some(place) = concerned else {
                self.pass(s, device, queue);
                self.passed = true;
                continue;
            };
            let ready = match entry.scope {
                Scope::Each | Scope::Only { .. } => may_begin(&self.devices[device]),
                Scope::Groups { stride, size } => {
                    let first = first_of_group(place, stride, size);
                    let members = (0..size).map(|member| entry.view.device(first + member * stride));
                    let mut here = members.filter(|device| s.is_here[*device]);
                    here.next() == Some(device)
                        && may_begin(&self.devices[device])
                        && here.all(|member| may_begin(&self.devices[member]))
                }
                Scope::Process => s.here[0] == device && s.here.iter().all(|device| may_begin(&self.devices[*device])),
            };
            return ready.then_some(index);
        }
    }

    /// Whether entry `index` has been written. If not, the host will find `starved` set when it writes it.
    fn is_written(&self, s: &Scheduler, queue: usize, index: u64) -> bool {
        if index < s.logs[queue].head() {
            return true;
        }
        s.starved[queue].store(true, Ordering::SeqCst);
        index < s.logs[queue].head()
    }

    fn begin(&mut self, s: &Scheduler, device: usize, queue: usize, index: u64) -> Job {
        // SAFETY: as in `ready`, which has just returned this index.
        let entry = unsafe { s.logs[queue].entry(index) };
        let tiles = entry.tiles;
        // One worker begins an exchange, and none joins it.
        let taken = if entry.scope == Scope::Process { tiles } else { 0 };
        // Nobody is in the run yet; those who join do so under the lock, which publishes this.
        s.handed_out[device][queue].0.store(taken, Ordering::Relaxed);
        self.devices[device].run[queue] = Some(Run {
            index,
            tiles,
            workers: 1,
        });
        self.runs.push((device, queue));
        Job {
            device,
            queue,
            index,
            tiles,
            first: true,
        }
    }

    fn join(&mut self, s: &Scheduler) -> Option<Job> {
        for (device, queue) in &self.runs {
            let (device, queue) = (*device, *queue);
            if let Some(run) = &mut self.devices[device].run[queue]
                && s.handed_out[device][queue].0.load(Ordering::Relaxed) < run.tiles
            {
                run.workers += 1;
                return Some(Job {
                    device,
                    queue,
                    index: run.index,
                    tiles: run.tiles,
                    first: false,
                });
            }
        }
        None
    }

    /// A device ends its next entry of a queue.
    fn pass(&mut self, s: &Scheduler, device: usize, queue: usize) {
        let index = self.devices[device].ended[queue];
        self.devices[device].ended[queue] = index + 1;
        let slots = &mut self.left[queue];
        // Below the length, which is a usize.
        let slot = (index & (slots.len() as u64 - 1)) as usize;
        slots[slot] -= 1;
        if slots[slot] == 0 {
            slots[slot] = self.here;
            // Devices end entries in order, so whatever is before this one has ended everywhere too.
            s.logs[queue].set_tail(index + 1);
        }
        // For the side effect: at the end of the log the device is starved.
        self.is_written(s, queue, index + 1);
    }

    /// Tells the host if what it waits for has come. Returns whether it must be woken too.
    pub(super) fn check_goal(&mut self, s: &Scheduler) -> bool {
        if !self.goal.is_some_and(|goal| self.met(s, goal)) {
            return false;
        }
        self.goal = None;
        s.goal_met.store(true, Ordering::Release);
        s.signal.0.fetch_add(1, Ordering::Release);
        self.remove_sleeper(s, 0)
    }

    /// Whether a goal is met.
    pub(super) fn met(&self, s: &Scheduler, goal: Goal) -> bool {
        (0..2).all(|queue| s.logs[queue].tail() >= goal.everywhere[queue])
            && goal
                .on
                .is_none_or(|(device, queue, count)| self.ended(device, queue) >= count)
    }
}

/// The first place of the group that a place belongs to.
pub(super) fn first_of_group(place: usize, stride: usize, size: usize) -> usize {
    place - place / stride % size * stride
}
