//! All-reduce: shares of a sum, or maxima, become one value on every device of a group.

use super::{bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use unisono_kernels::cast::cast;
use unisono_kernels::combine::{Part, combine};
use unisono_kernels::order::Tree;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::{AxisHandle, Mesh};

/// How the values of a group become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The tree over `units` is finished; position `i` of the axis holds the spans of its `units / size` consecutive units.
    Sum {
        /// Units of the whole sum.
        units: usize,
    },
    /// The largest value.
    Max,
}

/// `to = reduction over the axis of from`, in place where both are the same buffer.
#[derive(Clone, Debug)]
pub struct AllReduce {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// What is made of their values.
    pub reduction: Reduction,
    /// Slots of `len` elements, f32.
    pub from: BufferRef,
    /// Elements from one slot to the next.
    pub slot: usize,
    /// Elements of the result.
    pub len: usize,
    /// Result; may be the first `len` elements of `from`, or a bf16 buffer, for which the complete result is rounded once.
    pub to: BufferRef,
}

/// The devices of a collective's group, from its first.
pub(crate) fn members(axis: AxisHandle, first: usize) -> impl Iterator<Item = usize> + Clone {
    (0..axis.size).map(move |i| first + i * axis.stride)
}

impl AllReduce {
    fn reduce(&self, place: &Place<'_>, from: usize, result: &mut [f32], scratch: &mut Scratch) {
        let len = result.len();
        let device = |i: usize| place.device + i * self.axis.stride;
        match self.reduction {
            Reduction::Sum { units } => {
                let tree = Tree::over_units(units);
                let each = units / self.axis.size;
                let part = |i: usize| Part {
                    open: i * each,
                    end: (i + 1) * each,
                    data: place.f32_on(device(i), self.from),
                    slot: self.slot,
                };
                combine(scratch.isa(), &tree, self.axis.size, &part, from, len, result, scratch);
            }
            Reduction::Max => {
                let part = |i: usize| &place.f32_on(device(i), self.from)[from..from + len];
                result.copy_from_slice(part(0));
                for i in 1..self.axis.size {
                    for (best, value) in result.iter_mut().zip(part(i)) {
                        *best = if *value > *best { *value } else { *best };
                    }
                }
            }
        }
    }
}

impl Op for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let n = self.axis.size as u64;
        let slots = (self.from.len / self.slot.max(1)) as u64;
        Cost {
            flops: self.len as u64 * (n - 1) / n,
            bytes: bytes(&[self.from]) + (self.to.dtype.bytes() * self.len) as u64,
            // Each device sends its slots of the parts that others finish, and the part that it finishes itself.
            link_bytes: self.len as u64 * (4 * slots + self.to.dtype.bytes() as u64) * (n - 1) / n,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.len);
        let mut result = scratch.take_result(range.len());
        self.reduce(place, range.start, result.floats(), scratch);
        for device in members(self.axis, place.device) {
            let to = place.write_floats_on(device, self.to, range.start, range.len());
            cast(scratch.isa(), &*result.floats(), to);
        }
        scratch.put_result(result);
    }
}

/// `to = f(to of all)`, for tests that need a reduction in another order: a ring from the first device on. Not canonical.
#[derive(Clone, Debug)]
pub struct RingSum {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// One share a device, added in the order of the ring.
    pub buffer: BufferRef,
}

impl Op for RingSum {
    fn name(&self) -> &'static str {
        "ring_sum"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.buffer);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.buffer);
    }

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, scratch: &mut Scratch) {
        let len = self.buffer.len;
        let mut result = scratch.take_result(len);
        result.floats().fill(0.0);
        for device in members(self.axis, place.device) {
            for (sum, value) in result.floats().iter_mut().zip(place.f32_on(device, self.buffer)) {
                *sum += value;
            }
        }
        for device in members(self.axis, place.device) {
            place
                .write_on(device, self.buffer, 0, len)
                .copy_from_slice(result.floats());
        }
        scratch.put_result(result);
    }
}
