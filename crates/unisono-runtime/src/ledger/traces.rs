//! The memory of traces: blocks that stay where they are for as long as a trace may be replayed.

use super::{Ledger, counted_bytes, slot_of};
use crate::buffer::{BufferRef, Kind};
use crate::pool::{Block, Marks, Pool};

/// All blocks that a trace's own results lie in.
#[derive(Default)]
pub(super) struct TraceMemory {
    pub(super) blocks: Vec<TraceBlock>,
    /// The last uses of results that the program has let go of: a replay must not write them before.
    pub(super) freed: Marks,
}

pub(super) struct TraceBlock {
    pub(super) view: u32,
    pub(super) block: Block,
    pub(super) kind: Kind,
    /// Elements that it was taken for.
    pub(super) words: usize,
    /// The buffer that lies in it now: a result that the program still holds.
    pub(super) owner: Option<u64>,
}

impl Ledger {
    /// From here on, results lie in the memory of this trace.
    pub(crate) fn begin_capture(&mut self, trace: u32) {
        self.capturing = Some(trace);
    }

    /// Results lie in memory of their own again. Returns the results that the program still holds, and what the other queue must
    /// have ended before the trace may touch its memory.
    pub(crate) fn end_capture(&mut self) -> (Vec<BufferRef>, Marks) {
        let memory = self.capturing.take().and_then(|trace| self.traces.get(&trace));
        let Some(memory) = memory else {
            return (Vec::new(), Marks::default());
        };
        let held = memory.blocks.iter().filter_map(|block| block.owner);
        let results = held.map(|id| self.slots[slot_of(id)].whole).collect();
        let marks = memory.blocks.iter().map(|block| block.block.marks);
        (results, marks.fold(Marks::default(), Marks::join))
    }

    /// What must have ended before a replay may write what the program has let go of.
    pub(crate) fn freed_of_trace(&self, trace: u32) -> Marks {
        self.traces.get(&trace).map_or(Marks::default(), |memory| memory.freed)
    }

    /// Gives back the memory of a trace; what the program still holds becomes a buffer like any other. `marks` are the last uses.
    pub(crate) fn release_trace(&mut self, trace: u32, marks: Marks) {
        let Some(memory) = self.traces.remove(&trace) else {
            return;
        };
        for block in memory.blocks {
            match block.owner {
                Some(id) => {
                    let slot = &mut self.slots[slot_of(id)];
                    slot.trace = None;
                    slot.used = slot.used.join(marks);
                    slot.written = slot.written.join(marks);
                }
                None => {
                    let last = Block {
                        marks: block.block.marks.join(marks),
                        ..block.block
                    };
                    self.classes.give(block.view, last);
                    self.classes.uncount(block.view, block.kind, counted_bytes(block.words));
                }
            }
        }
    }

    /// The smallest block of the trace being captured that nothing lies in and that `words` elements fill at least half.
    pub(super) fn spare_of_trace(&mut self, view: u32, words: usize) -> Option<(Block, (u32, usize))> {
        let trace = self.capturing?;
        let wanted = Pool::counted(words);
        let fits = |block: &TraceBlock| {
            block.owner.is_none() && block.view == view && (wanted..=2 * wanted).contains(&Pool::counted(block.words))
        };
        let blocks = self.traces.get(&trace)?.blocks.iter().enumerate();
        let (index, block) = blocks
            .filter(|(_, block)| fits(block))
            .min_by_key(|(_, block)| block.words)?;
        Some((block.block, (trace, index)))
    }
}
