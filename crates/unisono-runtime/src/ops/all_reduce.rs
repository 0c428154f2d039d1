//! All-reduce: shares of a sum, or maxima, become one value on every device of a group.

use super::{bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use unisono_kernels::cast::cast;
use unisono_kernels::combine::{Part, combine};
use unisono_kernels::order::Tree;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::schedule::{self, Collective};
use unisono_mesh::{AxisHandle, Mesh};

/// How the values of a group become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The tree over `units` is finished; position `i` of the axis holds the spans of its `units / size` consecutive units.
    Sum {
        /// Units of the whole sum.
        units: usize,
    },
    /// The same sum divided by the size of the axis.
    Mean {
        /// Units of the whole sum.
        units: usize,
    },
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
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

/// The members of a group that this process carries, each with its position on the axis: those that a collective writes.
pub(crate) fn here<'a>(place: &'a Place<'_>, axis: AxisHandle) -> impl Iterator<Item = (usize, usize)> + 'a {
    let members = members(axis, place.device).enumerate();
    members.filter(|(_, device)| place.is_here(*device))
}

impl Reduction {
    /// Works out the elements from `from` on, as many as `result` holds, of the values that the members of a group have in
    /// `buffer`, slot after slot of `slot` elements.
    #[allow(
        clippy::too_many_arguments,
        reason = "they are the fields of the operations that reduce"
    )]
    pub(crate) fn of(
        self,
        place: &Place<'_>,
        axis: AxisHandle,
        buffer: BufferRef,
        slot: usize,
        from: usize,
        result: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let len = result.len();
        let values = |i: usize| place.f32_on(place.device + i * axis.stride, buffer);
        let mut best = |better: fn(f32, f32) -> bool| {
            result.copy_from_slice(&values(0)[from..from + len]);
            for i in 1..axis.size {
                for (best, value) in result.iter_mut().zip(&values(i)[from..from + len]) {
                    *best = if better(*value, *best) { *value } else { *best };
                }
            }
        };
        match self {
            Reduction::Sum { units } | Reduction::Mean { units } => {
                let tree = Tree::over_units(units);
                let each = units / axis.size;
                let part = |i: usize| Part {
                    open: i * each,
                    end: (i + 1) * each,
                    data: values(i),
                    slot,
                };
                combine(scratch.isa(), &tree, axis.size, &part, from, len, result, scratch);
                self.divide(axis, result);
            }
            Reduction::Max => best(|value, best| value > best),
            Reduction::Min => best(|value, best| value < best),
        }
    }

    /// Makes means of complete sums, where means are wanted.
    pub(crate) fn divide(self, axis: AxisHandle, sums: &mut [f32]) {
        if matches!(self, Reduction::Mean { .. }) {
            let n = axis.size as f32;
            sums.iter_mut().for_each(|sum| *sum /= n);
        }
    }

    fn kind(self) -> schedule::Reduction {
        match self {
            Reduction::Sum { .. } => schedule::Reduction::Sum,
            Reduction::Mean { .. } => schedule::Reduction::Mean,
            Reduction::Max => schedule::Reduction::Max,
            Reduction::Min => schedule::Reduction::Min,
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

    fn collective(&self) -> Option<(Collective, u64)> {
        Some((Collective::AllReduce(self.reduction.kind()), 4 * self.len as u64))
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
        self.reduction.of(
            place,
            self.axis,
            self.from,
            self.slot,
            range.start,
            result.floats(),
            scratch,
        );
        for (_, device) in here(place, self.axis) {
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
        for (_, device) in here(place, self.axis) {
            place
                .write_on(device, self.buffer, 0, len)
                .copy_from_slice(result.floats());
        }
        scratch.put_result(result);
    }
}
