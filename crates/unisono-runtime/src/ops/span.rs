//! The parts of an all-reduce whose group belongs to several processes: each finishes what its own devices hold, then a range of
//! elements for all, and then hands that round.
//!
//! Between processes go lists of maximal subtrees, so a share that is no whole subtree of the sum costs more bytes and is as exact.

use super::all_reduce::{Reduction, here, members};
use super::bucket::part_of;
use super::{chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use crate::processes::Part;
use std::ops::Range;
use std::sync::Arc;
use unisono_kernels::cast::cast;
use unisono_kernels::combine::{self, combine, combine_spans};
use unisono_kernels::order::Tree;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::{AxisHandle, Mesh};

/// The sum that is finished, and where everything lies.
#[derive(Clone, Debug)]
pub(crate) struct Spanning {
    /// The devices that meet.
    pub(crate) axis: AxisHandle,
    /// A sum or a mean.
    pub(crate) reduction: Reduction,
    /// Slots of `len` elements of each device, f32.
    pub(crate) from: BufferRef,
    /// Elements from one slot to the next.
    pub(crate) slot: usize,
    /// Elements of the result.
    pub(crate) len: usize,
    /// The result.
    pub(crate) to: BufferRef,
    /// Slots of `len` elements of what the devices of a process hold together, on the first of them; unused where that is one device.
    pub(crate) inside: BufferRef,
    /// What other processes hold of the elements that this one finishes, on its first device of the group: part after part, slot after slot.
    pub(crate) others: BufferRef,
}

impl Spanning {
    fn units(&self) -> usize {
        match self.reduction {
            Reduction::Sum { units } | Reduction::Mean { units } => units,
            Reduction::Max | Reduction::Min => unreachable!("bug in unisono: a maximum is no tree"),
        }
    }

    /// The units that a part holds.
    pub(crate) fn units_of(&self, part: &Part) -> Range<usize> {
        let each = self.units() / self.axis.size;
        part.members.start * each..part.members.end * each
    }

    /// Slots that a part takes as a list of subtrees.
    pub(crate) fn slots_of(&self, part: &Part, tree: &Tree) -> usize {
        let units = self.units_of(part);
        tree.num_spans(units.start, units.end)
    }

    fn tiles(&self) -> usize {
        chunks(self.len)
    }

    /// The tree of the sum.
    pub(crate) fn tree(&self) -> Tree {
        Tree::over_units(self.units())
    }

    /// Where a part's list of subtrees lies on its process, and the elements from one slot to the next.
    pub(crate) fn list_of(&self, part: &Part) -> (BufferRef, usize) {
        match part.members.len() {
            1 => (self.from, self.slot),
            _ => (self.inside, self.len),
        }
    }

    /// The elements that part `index` of `parts` finishes: ranges of whole cache lines.
    pub(crate) fn finished_by(&self, index: usize, parts: usize) -> Range<usize> {
        let at = |index: usize| match index == parts {
            true => self.len,
            false => self.len * index / parts / LINE * LINE,
        };
        at(index)..at(index + 1)
    }

    fn part_here(&self, place: &Place<'_>, parts: &[Part]) -> usize {
        let found = parts.iter().position(|part| part.process == place.process());
        found.unwrap_or_else(|| unreachable!("bug in unisono: a group without a device of this process"))
    }
}

/// Elements in 64 bytes.
const LINE: usize = 16;

/// Which part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The devices of this process put together what they hold.
    Inside,
    /// This process finishes its range of elements with what the others sent.
    Finish,
    /// The first device of this process gives the others what came from elsewhere.
    Spread,
}

/// One stage of all sums of a command.
#[derive(Clone, Debug)]
pub(crate) struct SpanStage {
    /// Over the same devices.
    pub(crate) sums: Arc<[Spanning]>,
    pub(crate) stage: Stage,
}

impl Op for SpanStage {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for s in self.sums.iter() {
            see(s.from);
            match self.stage {
                Stage::Inside => {}
                Stage::Finish => [s.inside, s.others].into_iter().for_each(&mut *see),
                Stage::Spread => see(s.to),
            }
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        self.sums.iter().for_each(|s| match self.stage {
            Stage::Inside => see(s.inside),
            Stage::Finish | Stage::Spread => see(s.to),
        });
    }

    fn group(&self) -> Option<Group> {
        self.sums.first().map(|s| Group::Along(s.axis))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        self.sums.iter().map(Spanning::tiles).sum()
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let (sum, tile) = part_of(tile, self.sums.iter().map(Spanning::tiles));
        let s = &self.sums[sum];
        let parts = place.parts(s.axis);
        let own = s.part_here(place, &parts);
        let range = chunk(tile, s.len);
        let finished = s.finished_by(own, parts.len());
        match self.stage {
            Stage::Inside => s.add_inside(place, &parts[own], range, scratch),
            Stage::Finish => {
                let range = range.start.max(finished.start)..range.end.min(finished.end);
                if !range.is_empty() {
                    s.finish(place, &parts, own, range, scratch);
                }
            }
            Stage::Spread => {
                let before = range.start..range.end.min(finished.start);
                let after = range.start.max(finished.end)..range.end;
                for range in [before, after].into_iter().filter(|range| !range.is_empty()) {
                    s.spread(place, range);
                }
            }
        }
    }
}

impl Spanning {
    fn add_inside(&self, place: &Place<'_>, part: &Part, range: Range<usize>, scratch: &mut Scratch) {
        let s = self;
        if part.members.len() == 1 {
            return;
        }
        let each = s.units() / s.axis.size;
        let member = |i: usize| {
            let position = part.members.start + i;
            combine::Part {
                open: position * each,
                end: (position + 1) * each,
                data: place.f32_on(place.device + position * s.axis.stride, s.from),
                slot: s.slot,
            }
        };
        let first = place.device + part.members.start * s.axis.stride;
        let mut put = |slot: usize, from: usize, values: &[f32]| {
            place
                .write_on(first, s.inside, slot * s.len + from, values.len())
                .copy_from_slice(values);
        };
        combine_spans(&s.tree(), part.members.len(), &member, range, &mut put, scratch);
    }

    fn finish(&self, place: &Place<'_>, parts: &[Part], own: usize, range: Range<usize>, scratch: &mut Scratch) {
        let s = self;
        let tree = s.tree();
        let finished = s.finished_by(own, parts.len());
        let first = place.device + parts[own].members.start * s.axis.stride;
        // Others' lists begin at the first element that is finished here.
        let others = place.f32_on(first, s.others);
        let mut at = 0;
        let lists: Vec<combine::Part<'_>> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| {
                let units = s.units_of(part);
                let (data, slot) = match index == own {
                    true => {
                        let (list, slot) = s.list_of(part);
                        (&place.f32_on(first, list)[finished.start..], slot)
                    }
                    false => {
                        let data = &others[at..];
                        at += s.slots_of(part, &tree) * finished.len();
                        (data, finished.len())
                    }
                };
                combine::Part {
                    open: units.start,
                    end: units.end,
                    data,
                    slot,
                }
            })
            .collect();
        let mut result = scratch.take_result(range.len());
        let from = range.start - finished.start;
        let part = |i: usize| lists[i];
        let out = result.floats();
        combine(
            scratch.isa(),
            &tree,
            lists.len(),
            &part,
            from,
            range.len(),
            out,
            scratch,
        );
        s.reduction.divide(s.axis, result.floats());
        for (_, device) in here(place, s.axis) {
            let to = place.write_floats_on(device, s.to, range.start, range.len());
            cast(scratch.isa(), &*result.floats(), to);
        }
        scratch.put_result(result);
    }

    fn spread(&self, place: &Place<'_>, range: Range<usize>) {
        let s = self;
        let size = s.to.dtype.bytes();
        let mut members = members(s.axis, place.device).filter(|device| place.is_here(*device));
        let Some(first) = members.next() else { return };
        let from = &place.u8_on(first, s.to)[size * range.start..size * range.end];
        for device in members {
            place
                .write_u8_on(device, s.to, range.start, range.len())
                .copy_from_slice(from);
        }
    }
}
