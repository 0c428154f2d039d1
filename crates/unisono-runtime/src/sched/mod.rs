//! The scheduler: who runs which command, and when. Read this page and then `state.rs`.
//!
//! **The program is a log.** The host writes each command once into one of two logs, the *compute* and the *transfer* queue
//! ([`log`]). Every device goes through both logs from the front, one entry after the other; how many entries of a queue a
//! device has *ended* is its whole position. A log is a ring of bounded length: when the slowest device is that far
//! behind, the host waits, and works.
//!
//! **An entry belongs to a view**, a mesh over some of the devices; a device outside it passes the entry by. So programs on
//! submeshes run side by side although they stand in one log, as far apart as the log is long.
//!
//! **An entry is ready** on a device when the device has ended everything before it in the same queue and, in the other queue, as
//! many entries as the entry's `wait` says (the host has worked that out from the buffers, see `ledger.rs`). A collective is
//! ready when that holds for every device of its group; then it runs once for the group, and ends for all of it at once.
//! So a peer's buffers can be read in place.
//!
//! **A run is a command on a device** (a collective: on the first device of its group) while it runs: a number of tiles and a
//! counter of those handed out. Any worker may join; each takes tiles until there are none left and then leaves; the last to leave
//! ends the entry. A worker never waits inside a command, and which worker runs which tile cannot change a result, because
//! the order of each sum belongs to the output.
//!
//! **Workers** are threads, one a core; worker 0 is the host's own thread, which works whenever it waits. With nothing running,
//! a worker goes on with the device it was last on; else it takes the ready entry of the device that is furthest behind;
//! else it joins a run. These decisions happen under one lock, once per worker and command; tiles are handed out without it.
//!
//! **With nothing to do** a worker spins for some microseconds, then sleeps. Whoever makes something ready that it does not take
//! itself tells a spinner or wakes a sleeper, and the one woken does the same in turn. The host, which writes without the lock,
//! wakes only when a device had nothing left in that queue (`starved`). Both sides first publish, then look (`SeqCst`), so no
//! wake-up is lost: a worker going to sleep enters itself in the list and then looks once more at the logs.
//!
//! **A kernel that panics** is caught; from then on entries end without being run, so that queues drain and the host gets the error
//! at its next call.
//!
//! **Messages between processes** ([`wire`]) belong to entries of their own. A worker that takes one only begins its messages and goes
//! on; the entry ends when they have come. Whoever has nothing to do looks after them, and workers between tiles now and then.

mod air;
mod log;
mod park;
mod state;
mod watch;
mod wire;
mod worker;

pub use air::AirTime;
pub(crate) use log::{Entry, Scope, Writer};
pub(crate) use state::Goal as HostGoal;
pub(crate) use worker::Worker;

use crate::arena::Arenas;
use crate::error::RuntimeError;
use crate::processes::Processes;
use crate::report::Phase;
use crate::transport::Link;
use air::Air;
use log::Log;
use park::Parker;
use state::State;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::isa::Isa;
use wire::Wire;

/// Keeps what different workers write on different cache lines.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);

/// What all workers share.
pub(crate) struct Scheduler {
    arenas: Arenas,
    /// The devices of this process, at least one.
    here: Box<[usize]>,
    /// The same, by device.
    is_here: Box<[bool]>,
    /// The way to other processes, where there are any.
    wire: Option<Wire>,
    air: Air,
    isa: Isa,
    bf16_order: Bf16Order,
    logs: [Log; 2],
    state: Mutex<State>,
    /// Tiles handed out of the run of each device and queue.
    handed_out: Box<[[Padded<AtomicUsize>; 2]]>,
    /// Changes whenever spinning workers should look again.
    signal: Padded<AtomicU64>,
    /// Whether some device has had nothing left in the queue since the host last wrote to it.
    starved: [AtomicBool; 2],
    spinners: AtomicUsize,
    sleepers: AtomicUsize,
    spin_limit: usize,
    /// Whether a worker that would sleep looks after messages.
    watched: AtomicBool,
    /// When a busy worker last looked after messages, in nanoseconds after `since`.
    looked: Padded<AtomicU64>,
    since: Instant,
    goal_met: AtomicBool,
    failed: AtomicBool,
    stop: AtomicBool,
    parkers: Box<[Parker]>,
    /// Nanoseconds that each worker has spent in commands, by phase.
    busy: Box<[Padded<[AtomicU64; Phase::ALL.len()]>]>,
}

/// The scheduler with its threads; they are joined when it is dropped.
pub(crate) struct Workers {
    scheduler: Arc<Scheduler>,
    threads: Vec<JoinHandle<()>>,
}

/// How the scheduler is to be set up.
pub(crate) struct Setup {
    pub(crate) arenas: Arenas,
    pub(crate) processes: Processes,
    pub(crate) link: Option<Link>,
    pub(crate) isa: Isa,
    pub(crate) bf16_order: Bf16Order,
    pub(crate) workers: usize,
    pub(crate) cores: usize,
    pub(crate) queue_depth: usize,
    pub(crate) pin: bool,
}

impl Workers {
    /// Starts the threads of workers 1 and up; the caller's thread becomes worker 0.
    pub(crate) fn start(setup: Setup) -> Result<(Workers, [Writer; 2]), RuntimeError> {
        let devices = setup.arenas.all().len();
        let here = setup.processes.here(devices);
        let logs = [Log::new(setup.queue_depth), Log::new(setup.queue_depth)];
        let depth = logs[0].depth();
        let scheduler = Arc::new(Scheduler {
            state: Mutex::new(State::new(devices, here.len(), setup.workers, depth)),
            is_here: (0..devices).map(|device| setup.processes.is_here(device)).collect(),
            here: here.into(),
            wire: setup.link.map(Wire::new),
            air: Air::new(),
            handed_out: (0..devices).map(|_| Default::default()).collect(),
            signal: Padded::default(),
            // At first no device has anything to do.
            starved: [AtomicBool::new(true), AtomicBool::new(true)],
            spinners: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            spin_limit: if setup.workers > setup.cores { 1 } else { setup.workers },
            watched: AtomicBool::new(false),
            looked: Padded::default(),
            since: Instant::now(),
            goal_met: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            parkers: (0..setup.workers).map(|_| Parker::default()).collect(),
            busy: (0..setup.workers).map(|_| Padded::default()).collect(),
            arenas: setup.arenas,
            isa: setup.isa,
            bf16_order: setup.bf16_order,
            logs,
        });
        let mut workers = Workers {
            scheduler: Arc::clone(&scheduler),
            threads: Vec::with_capacity(setup.workers),
        };
        let cpus = if setup.pin {
            crate::machine::allowed_cpus()
        } else {
            Vec::new()
        };
        scheduler.parkers[0].adopt();
        if let Some(cpu) = cpus.first() {
            crate::machine::pin(*cpu);
        }
        for index in 1..setup.workers {
            let scheduler = Arc::clone(&scheduler);
            let cpu = cpus.get(index % cpus.len().max(1)).copied();
            let thread = std::thread::Builder::new()
                .name(format!("unisono {index}"))
                .stack_size(4 << 20)
                .spawn(move || {
                    if let Some(cpu) = cpu {
                        crate::machine::pin(cpu);
                    }
                    scheduler.work(index);
                });
            match thread {
                Ok(thread) => workers.threads.push(thread),
                Err(error) => {
                    return Err(RuntimeError::NoThread {
                        index,
                        reason: error.to_string(),
                    });
                }
            }
        }
        let writers = [Writer::new(Arc::clone(&scheduler), 0), Writer::new(scheduler, 1)];
        Ok((workers, writers))
    }
}

impl std::ops::Deref for Workers {
    type Target = Scheduler;

    fn deref(&self) -> &Scheduler {
        &self.scheduler
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.scheduler.stop.store(true, Ordering::SeqCst);
        self.scheduler.signal.0.fetch_add(1, Ordering::SeqCst);
        loop {
            let sleeper = self.scheduler.lock().wake_any(&self.scheduler);
            match sleeper {
                Some(worker) => self.scheduler.parkers[worker].wake(),
                None => break,
            }
        }
        for thread in self.threads.drain(..) {
            // A worker thread ends by returning; had it panicked, the scheduler itself would be at fault and there would be
            // nobody left to tell.
            let _ = thread.join();
        }
        // Nobody looks after messages any more, and the memory that they are in goes.
        if let Some(wire) = &self.scheduler.wire {
            while wire.give_up().is_some() {}
        }
    }
}

impl Scheduler {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of the command that failed first, if one did.
    pub(crate) fn failure(&self) -> Result<(), RuntimeError> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        match &self.lock().failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    /// Whether the host is the only worker.
    pub(crate) fn is_alone(&self) -> bool {
        self.parkers.len() == 1
    }

    /// Whether what the host would wait for has come.
    pub(crate) fn is_met(&self, goal: HostGoal) -> bool {
        self.lock().met(self, goal)
    }

    /// What worker time has gone into each phase.
    pub(crate) fn busy(&self) -> [Duration; Phase::ALL.len()] {
        std::array::from_fn(|phase| {
            let nanos = self
                .busy
                .iter()
                .map(|times| times.0[phase].load(Ordering::Relaxed))
                .sum();
            Duration::from_nanos(nanos)
        })
    }
}
