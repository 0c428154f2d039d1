//! The host's books on memory: which buffers live, what they count as, and which earlier commands a command must wait for.
//!
//! Everything here happens in program order on the host, so it is the same on every backend and machine.

use crate::buffer::{BufferRef, Dtype, Kind, SLOT_BITS};
use crate::classes::Classes;
use crate::command::Op;
use crate::error::RuntimeError;
use crate::pool::{Block, Marks, Pool};
use crate::report::{MemoryReport, Phase};
use crate::view::View;
use std::collections::HashMap;
use unisono_mesh::MeshView;

mod traces;

use traces::{TraceBlock, TraceMemory};

/// Live buffers and free space.
pub(crate) struct Ledger {
    classes: Classes,
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    next: u64,
    limit: Option<u64>,
    /// Memory of traces, of the one being captured too.
    traces: HashMap<u32, TraceMemory>,
    /// The trace being captured.
    capturing: Option<u32>,
    /// The meshes of submeshes that buffers were made on; the whole mesh, which reaches everywhere, is not among them.
    homes: HashMap<u32, MeshView>,
    /// Whether all devices of a mesh (first) hold the buffers of another (second), as far as that was asked.
    within: HashMap<(u32, u32), bool>,
}

/// What is known of a live buffer.
struct Slot {
    /// All of it; its id is 0 where the slot is vacant.
    whole: BufferRef,
    view: u32,
    block: Block,
    kind: Kind,
    /// Bytes that its block is counted as.
    counted: u64,
    /// The trace whose memory it lies in, and which of its blocks.
    trace: Option<(u32, usize)>,
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
            classes: Classes::new(capacity),
            slots: Vec::new(),
            vacant: Vec::new(),
            next: 0,
            limit,
            traces: HashMap::new(),
            capturing: None,
            homes: HashMap::new(),
            within: HashMap::new(),
        }
    }

    /// A block for `len` elements on the devices of a view.
    pub(crate) fn alloc(
        &mut self,
        view: &View,
        dtype: Dtype,
        len: usize,
        kind: Kind,
        phase: Phase,
    ) -> Result<BufferRef, RuntimeError> {
        self.classes.enter_view(view);
        if view.id != 0 && !self.homes.contains_key(&view.id) {
            self.homes.insert(view.id, view.mesh_view().clone());
        }
        let words = dtype.words(len);
        let (block, trace) = match self.spare_of_trace(view.id, words) {
            Some((block, trace)) => (block, Some(trace)),
            None => self.fresh(view.id, words, kind, phase)?,
        };
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
        let mut counted = counted_bytes(words);
        if let Some((trace, index)) = trace {
            let block = &mut self.traces.entry(trace).or_default().blocks[index];
            block.owner = Some(id);
            counted = counted_bytes(block.words);
        }
        let entry = &mut self.slots[slot];
        let whole = BufferRef {
            id,
            offset: block.offset * (4 / dtype.bytes()),
            len,
            dtype,
        };
        entry.whole = whole;
        entry.view = view.id;
        entry.block = block;
        entry.kind = kind;
        entry.counted = counted;
        entry.trace = trace;
        entry.written = block.marks;
        entry.used = block.marks;
        entry.parts.clear();
        Ok(whole)
    }

    /// A block from the pool; it belongs to the trace that is being captured, if one is.
    fn fresh(
        &mut self,
        view: u32,
        words: usize,
        kind: Kind,
        phase: Phase,
    ) -> Result<(Block, Option<(u32, usize)>), RuntimeError> {
        let used = self.classes.in_use(view);
        let asked = counted_bytes(words);
        let needed = used.saturating_add(asked);
        let refused = |limit: u64| RuntimeError::OutOfMemory {
            needed,
            limit,
            asked,
            used,
            what: kind.name(),
        };
        if let Some(limit) = self.limit.filter(|limit| needed > *limit) {
            return Err(refused(limit));
        }
        let Some(block) = self.classes.take(view, words) else {
            return Err(refused(self.limit.unwrap_or(u64::MAX)));
        };
        self.classes.count(view, kind, asked, phase);
        let trace = self.capturing.map(|trace| {
            let memory = self.traces.entry(trace).or_default();
            memory.blocks.push(TraceBlock {
                view,
                block,
                kind,
                words,
                owner: None,
            });
            (trace, memory.blocks.len() - 1)
        });
        Ok((block, trace))
    }

    /// Gives a buffer's block back; one of a trace stays with the trace.
    pub(crate) fn free(&mut self, buffer: BufferRef) {
        let index = self.index(buffer, "free");
        let slot = &mut self.slots[index];
        slot.fold_parts();
        slot.whole.id = 0;
        let block = Block {
            marks: slot.used,
            ..slot.block
        };
        let (view, kind, bytes) = (slot.view, slot.kind, slot.counted);
        // Slots are numbered below 2^SLOT_BITS, which fits.
        self.vacant.push(index as u32);
        if let Some((trace, index)) = slot.trace
            && let Some(memory) = self.traces.get_mut(&trace)
        {
            let spare = &mut memory.blocks[index];
            spare.owner = None;
            spare.block.marks = spare.block.marks.join(block.marks);
            memory.freed = memory.freed.join(block.marks);
            return;
        }
        self.classes.give(view, block);
        self.classes.uncount(view, kind, bytes);
    }

    /// Number of live buffers and their bytes, by kind, in views that `of` names (all, for `None`).
    pub(crate) fn live(&self, of: Option<u32>) -> [(usize, u64); Kind::ALL.len()] {
        let mut live = [(0, 0); Kind::ALL.len()];
        let slots = self.slots.iter().filter(|slot| slot.whole.id != 0);
        for slot in slots.filter(|slot| of.is_none_or(|view| view == slot.view)) {
            let (count, bytes) = &mut live[slot.kind as usize];
            *count += 1;
            *bytes += slot.whole.bytes();
        }
        live
    }

    /// Whether the buffer has not been freed.
    pub(crate) fn is_live(&self, buffer: BufferRef) -> bool {
        let index = slot_of(buffer.id);
        self.slots.get(index).is_some_and(|slot| slot.whole.id == buffer.id)
    }

    /// All of the live buffer that `buffer` is a part of, and the trace that it lies in.
    pub(crate) fn whole(&self, buffer: BufferRef) -> (BufferRef, Option<u32>) {
        let slot = &self.slots[self.index(buffer, "capture")];
        (slot.whole, slot.trace.map(|(trace, _)| trace))
    }

    /// Fails where a command uses a buffer that not all devices of its mesh hold: on the others, that memory is someone else's.
    pub(crate) fn check_places(&mut self, view: &View, op: &dyn Op) -> Result<(), RuntimeError> {
        // Programs without submeshes pay nothing for this.
        if self.homes.is_empty() {
            return Ok(());
        }
        let mut stray = None;
        let mut see = |buffer: BufferRef| {
            let home = self.slots.get(slot_of(buffer.id)).map_or(0, |slot| slot.view);
            if home == view.id || !self.is_live(buffer) {
                return;
            }
            let Some(mesh) = self.homes.get(&home) else {
                return;
            };
            let within = self.within.entry((view.id, home));
            if !*within.or_insert_with(|| view.mesh_view().is_of(mesh)) {
                stray = Some((buffer, format!("{mesh:?}")));
            }
        };
        op.reads(&mut see);
        op.writes(&mut see);
        match stray {
            None => Ok(()),
            Some((buffer, home)) => Err(RuntimeError::Misplaced(format!(
                "{} on {:?} uses {buffer:?}, which belongs to {home} and not to all of these devices; issue it on that mesh or on one cut out of it",
                op.name(),
                view.mesh_view()
            ))),
        }
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

    /// Memory as accounted so far, of the device that needed most.
    pub(crate) fn memory(&self) -> MemoryReport {
        self.classes.memory()
    }

    /// Starts the peaks anew from what is in use now.
    pub(crate) fn reset_peaks(&mut self, phase: Phase) {
        self.classes.reset_peaks(phase);
    }

    /// A phase begins with what is in use now.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.classes.enter_phase(phase);
    }

    fn index(&self, buffer: BufferRef, name: &str) -> usize {
        let index = slot_of(buffer.id);
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

/// Where the books on a buffer are.
fn slot_of(id: u64) -> usize {
    (id & ((1 << SLOT_BITS) - 1)) as usize
}

/// Bytes that a buffer of `words` elements counts as.
fn counted_bytes(words: usize) -> u64 {
    (Pool::counted(words) as u64).saturating_mul(4)
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
            view: 0,
            counted: 0,
            trace: None,
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
