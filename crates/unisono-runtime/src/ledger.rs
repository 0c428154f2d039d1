//! The host's books on memory: which buffers live, what they count as, and which earlier commands a command must wait for.
//!
//! Everything here happens in program order on the host, so it is the same on every backend and machine.

use crate::buffer::{BufferRef, Dtype, Kind, SLOT_BITS};
use crate::error::RuntimeError;
use crate::pool::{Block, Marks, Pool};
use crate::report::{MemoryReport, Phase};

/// Live buffers and free space.
pub(crate) struct Ledger {
    pool: Pool,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    next: u64,
    limit: Option<u64>,
    memory: MemoryReport,
}

/// What is known of a live buffer.
struct Slot {
    /// All of it; its id is 0 where the slot is vacant.
    whole: BufferRef,
    block: Block,
    kind: Kind,
    /// Entries of each queue that must have ended before the whole buffer may be read.
    written: Marks,
    /// Entries of each queue that must have ended before the whole buffer may be written.
    used: Marks,
    /// Uses by the transfer queue of parts of the buffer: so that a reduction of one bucket of gradients does not hold up
    /// the commands that write the next.
    parts: Vec<PartUse>,
}

struct PartUse {
    from: usize,
    to: usize,
    mark: u64,
    write: bool,
}

/// A buffer's uses by parts beyond this number are remembered as one use of the whole.
const MAX_PARTS: usize = 64;

/// The index of the queue that [`PartUse`] is about.
const TRANSFER: usize = 1;

impl Ledger {
    /// Books on an arena of `capacity` elements, of which at most `limit` bytes may be in use.
    pub(crate) fn new(capacity: usize, limit: Option<u64>) -> Ledger {
        Ledger {
            pool: Pool::new(capacity),
            slots: Vec::new(),
            vacant: Vec::new(),
            next: 0,
            limit,
            memory: MemoryReport::default(),
        }
    }

    /// A block for `len` elements.
    pub(crate) fn alloc(
        &mut self,
        dtype: Dtype,
        len: usize,
        kind: Kind,
        phase: Phase,
    ) -> Result<BufferRef, RuntimeError> {
        let words = dtype.words(len);
        let asked = (Pool::counted(words) as u64).saturating_mul(4);
        let needed = self.memory.current.saturating_add(asked);
        let refused = |limit: u64, used: u64| RuntimeError::OutOfMemory {
            needed,
            limit,
            asked,
            used,
            what: kind.name(),
        };
        if let Some(limit) = self.limit.filter(|limit| needed > *limit) {
            return Err(refused(limit, self.memory.current));
        }
        let Some(block) = self.pool.take(words) else {
            return Err(refused(self.limit.unwrap_or(u64::MAX), self.memory.current));
        };
        self.account(kind, asked, phase);
        let slot = match self.vacant.pop() {
            Some(slot) => slot as usize,
            None => {
                assert!(
                    self.slots.len() < 1 << SLOT_BITS,
                    "bug in unisono: {} buffers at once",
                    self.slots.len()
                );
                self.slots.push(Slot::empty());
                self.slots.len() - 1
            }
        };
        self.next += 1;
        let id = self.next << SLOT_BITS | slot as u64;
        let entry = &mut self.slots[slot];
        let whole = BufferRef {
            id,
            offset: block.offset * (4 / dtype.bytes()),
            len,
            dtype,
        };
        entry.whole = whole;
        entry.block = block;
        entry.kind = kind;
        entry.written = block.marks;
        entry.used = block.marks;
        entry.parts.clear();
        Ok(whole)
    }

    /// Gives a buffer's block back.
    pub(crate) fn free(&mut self, buffer: BufferRef) {
        let index = self.index(buffer, "free");
        let slot = &mut self.slots[index];
        slot.fold_parts();
        slot.whole.id = 0;
        let block = Block {
            marks: slot.used,
            ..slot.block
        };
        let (kind, bytes) = (
            slot.kind,
            4 * Pool::counted(slot.whole.dtype.words(slot.whole.len)) as u64,
        );
        self.pool.give(block);
        // Slots are numbered below 2^SLOT_BITS, which fits.
        self.vacant.push(index as u32);
        self.memory.current -= bytes;
        self.memory.current_by_kind[kind as usize] -= bytes;
    }

    /// Notes that entry number `entry` of queue `queue` reads a part of a buffer. Returns how many entries of the other queue must
    /// have ended before.
    pub(crate) fn read(&mut self, buffer: BufferRef, queue: usize, entry: u64, name: &str) -> u64 {
        let index = self.index(buffer, name);
        let slot = &mut self.slots[index];
        let wait = slot.written.0[1 - queue].max(slot.part_mark(buffer, queue, false));
        slot.note(buffer, queue, entry + 1, false);
        wait
    }

    /// Notes that entry number `entry` of queue `queue` writes a part of a buffer. Returns how many entries of the other queue must
    /// have ended before.
    pub(crate) fn write(&mut self, buffer: BufferRef, queue: usize, entry: u64, name: &str) -> u64 {
        let index = self.index(buffer, name);
        let slot = &mut self.slots[index];
        let wait = slot.used.0[1 - queue].max(slot.part_mark(buffer, queue, true));
        slot.note(buffer, queue, entry + 1, true);
        wait
    }

    /// Memory as accounted so far.
    pub(crate) fn memory(&self) -> MemoryReport {
        MemoryReport {
            extent: 4 * self.pool.extent() as u64,
            ..self.memory
        }
    }

    /// Starts the peaks anew from what is in use now.
    pub(crate) fn reset_peaks(&mut self, phase: Phase) {
        let memory = &mut self.memory;
        memory.peak = memory.current;
        memory.peak_by_kind = memory.current_by_kind;
        memory.highest_by_kind = memory.current_by_kind;
        memory.peak_by_phase = Default::default();
        self.enter(phase);
    }

    /// A phase begins with what is in use now.
    pub(crate) fn enter(&mut self, phase: Phase) {
        let peak = &mut self.memory.peak_by_phase[phase as usize];
        *peak = (*peak).max(self.memory.current);
    }

    fn account(&mut self, kind: Kind, bytes: u64, phase: Phase) {
        let memory = &mut self.memory;
        let kind = kind as usize;
        memory.current += bytes;
        memory.current_by_kind[kind] += bytes;
        memory.highest_by_kind[kind] = memory.highest_by_kind[kind].max(memory.current_by_kind[kind]);
        if memory.current > memory.peak {
            memory.peak = memory.current;
            memory.peak_by_kind = memory.current_by_kind;
        }
        self.enter(phase);
    }

    fn index(&self, buffer: BufferRef, name: &str) -> usize {
        let index = (buffer.id & ((1 << SLOT_BITS) - 1)) as usize;
        let slot = self.slots.get(index).filter(|slot| slot.whole.id == buffer.id);
        let Some(slot) = slot else {
            panic!("bug in unisono: {name} uses {buffer:?}, which has been freed");
        };
        let whole = slot.whole;
        let end = whole.offset + whole.len;
        assert!(
            buffer.dtype == whole.dtype
                && buffer.offset >= whole.offset
                && buffer.offset.checked_add(buffer.len).is_some_and(|last| last <= end),
            "bug in unisono: {name} uses {buffer:?}, which is no part of {whole:?}"
        );
        index
    }
}

impl Slot {
    fn empty() -> Slot {
        Slot {
            whole: BufferRef {
                id: 0,
                offset: 0,
                len: 0,
                dtype: Dtype::F32,
            },
            block: Block {
                offset: 0,
                size: 0,
                marks: Marks::default(),
            },
            kind: Kind::Activation,
            written: Marks::default(),
            used: Marks::default(),
            parts: Vec::new(),
        }
    }

    /// What a compute command on `buffer` must wait for on account of the transfer queue's uses of parts.
    fn part_mark(&self, buffer: BufferRef, queue: usize, write: bool) -> u64 {
        if queue == TRANSFER {
            return 0;
        }
        let overlaps = |part: &&PartUse| {
            (write || part.write) && part.from < buffer.offset + buffer.len && buffer.offset < part.to
        };
        self.parts
            .iter()
            .filter(overlaps)
            .map(|part| part.mark)
            .max()
            .unwrap_or(0)
    }

    fn note(&mut self, buffer: BufferRef, queue: usize, mark: u64, write: bool) {
        let whole = buffer.len == self.whole.len;
        if queue == TRANSFER && !whole {
            if self.parts.len() == MAX_PARTS {
                self.fold_parts();
            }
            self.parts.push(PartUse {
                from: buffer.offset,
                to: buffer.offset + buffer.len,
                mark,
                write,
            });
            return;
        }
        self.used.0[queue] = mark;
        if write {
            self.written.0[queue] = mark;
        }
    }

    fn fold_parts(&mut self) {
        for part in self.parts.drain(..) {
            let used = &mut self.used.0[TRANSFER];
            *used = (*used).max(part.mark);
            if part.write {
                let written = &mut self.written.0[TRANSFER];
                *written = (*written).max(part.mark);
            }
        }
    }
}
