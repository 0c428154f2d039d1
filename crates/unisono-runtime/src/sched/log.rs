//! A queue: a ring of entries that the host writes and every device reads from front to back.

use super::{Padded, Scheduler};
use crate::command::Group;
use crate::report::Phase;
use crate::task::Task;
use crate::view::View;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use unisono_mesh::Mesh;

/// One command in a queue.
pub(crate) struct Entry {
    /// What is to be done.
    pub(crate) task: Task,
    /// The mesh that it is for; for all other devices the entry is nothing.
    pub(crate) view: Arc<View>,
    /// By which of its devices.
    pub(crate) scope: Scope,
    /// Tiles on one device (of one group), above zero.
    pub(crate) tiles: usize,
    /// Entries of the other queue that must have ended on the same device.
    pub(crate) wait: u64,
    /// Where its time is booked.
    pub(crate) phase: Phase,
}

/// Which devices of an entry's view carry it out. Numbers are places of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Each for itself.
    Each,
    /// One device of this process alone, by its number, with the memory of the device at a place of the view; for all others the entry
    /// is nothing.
    Only {
        /// Which device does it.
        lane: usize,
        /// Whose memory is meant: the same device's, or that of one which another process carries.
        place: usize,
    },
    /// All devices of this process together, of the view or not: what meets other processes.
    Process,
    /// Groups of devices together: `size` devices, `stride` apart.
    Groups {
        /// Distance in places between neighbours in the group.
        stride: usize,
        /// Devices in a group.
        size: usize,
    },
}

impl Scope {
    /// The scope of an operation on a mesh.
    pub(crate) fn of(group: Option<Group>, mesh: &Mesh) -> Scope {
        match group {
            None => Scope::Each,
            Some(Group::All) => Scope::Groups {
                stride: 1,
                size: mesh.num_devices(),
            },
            Some(Group::Along(axis)) => {
                assert!(
                    mesh.num_devices().is_multiple_of(axis.stride * axis.size),
                    "bug in unisono: {axis:?} of {}",
                    mesh.describe()
                );
                Scope::Groups {
                    stride: axis.stride,
                    size: axis.size,
                }
            }
        }
    }
}

/// The ring. Entries are numbered from 0 and never renumbered; entry `i` lies in slot `i mod depth`.
///
/// Entries from `tail` (inclusive) to `head` (exclusive) are waiting or running on some device and do not change. Outside that
/// range only the one [`Writer`] touches slots.
pub(super) struct Log {
    slots: Box<[UnsafeCell<Option<Entry>>]>,
    head: Padded<AtomicU64>,
    tail: Padded<AtomicU64>,
}

// SAFETY: slots are written by the only `Writer` while their number is outside `tail..head`, and read by others only inside
// it. Both bounds are atomics that publish what was done before (`Release`/`SeqCst` stores, `Acquire` or stronger loads).
unsafe impl Sync for Log {}

impl Log {
    /// An empty ring of at least `depth` slots.
    pub(super) fn new(depth: usize) -> Log {
        Log {
            slots: (0..depth.next_power_of_two()).map(|_| UnsafeCell::new(None)).collect(),
            head: Padded::default(),
            tail: Padded::default(),
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Number of entries written so far.
    pub(super) fn head(&self) -> u64 {
        self.head.0.load(Ordering::SeqCst)
    }

    /// Number of entries that have ended on all devices.
    pub(super) fn tail(&self) -> u64 {
        self.tail.0.load(Ordering::Acquire)
    }

    /// Says that the entries before `tail` have ended on all devices.
    pub(super) fn set_tail(&self, tail: u64) {
        self.tail.0.store(tail, Ordering::Release);
    }

    /// Entry number `index`.
    ///
    /// # Safety
    /// `index` must be below a `head` that the caller has seen, some device must not have ended the entry, and that must stay
    /// so while the reference lives.
    pub(super) unsafe fn entry(&self, index: u64) -> &Entry {
        // SAFETY: the entry is inside tail..head, where slots are not written.
        match unsafe { &*self.slot(index).get() } {
            Some(entry) => entry,
            None => unreachable!("bug in unisono: entry {index} of a queue is gone"),
        }
    }

    fn slot(&self, index: u64) -> &UnsafeCell<Option<Entry>> {
        // The mask is below the length, which is a usize.
        &self.slots[(index & (self.slots.len() as u64 - 1)) as usize]
    }
}

/// The host's end of a queue; there is one for each.
pub(crate) struct Writer {
    scheduler: Arc<Scheduler>,
    queue: usize,
    head: u64,
    /// Entries before this one have been taken out of the ring.
    cleared: u64,
}

impl Writer {
    pub(super) fn new(scheduler: Arc<Scheduler>, queue: usize) -> Writer {
        Writer {
            scheduler,
            queue,
            head: 0,
            cleared: 0,
        }
    }

    /// How many entries must have ended everywhere before the next can be written with some slots to spare; `None` if
    /// there is room now.
    pub(crate) fn must_end(&self) -> Option<u64> {
        let log = &self.scheduler.logs[self.queue];
        let depth = log.depth() as u64;
        (self.head - log.tail() >= depth).then(|| self.head - depth + (depth / 4).max(1))
    }

    /// Writes an entry. There must be room.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.clear();
        let log = &self.scheduler.logs[self.queue];
        assert!(
            self.head - self.cleared < log.depth() as u64,
            "bug in unisono: a queue overflows"
        );
        let (devices, tiles) = match entry.scope {
            Scope::Each | Scope::Groups { .. } => (entry.view.mesh().num_devices(), entry.tiles),
            Scope::Only { .. } | Scope::Process => (1, entry.tiles),
        };
        // SAFETY: entry `head` is outside tail..head, its slot was cleared, and this is the only writer of the queue.
        unsafe { *log.slot(self.head).get() = Some(entry) };
        self.head += 1;
        log.head.0.store(self.head, Ordering::SeqCst);
        self.scheduler.written(self.queue, devices, tiles);
    }

    /// Drops the entries that have ended everywhere, and the data they hold.
    pub(crate) fn clear(&mut self) {
        let log = &self.scheduler.logs[self.queue];
        let tail = log.tail();
        while self.cleared < tail {
            // SAFETY: the entry is before `tail`: it has ended on all devices, whose workers have let go of it before, and this
            // is the only writer.
            unsafe { *log.slot(self.cleared).get() = None };
            self.cleared += 1;
        }
    }
}
