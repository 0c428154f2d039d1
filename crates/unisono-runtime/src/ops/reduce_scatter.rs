//! Reduce-scatter: every device of a group finishes its own part of a sum.

use super::all_reduce::{Reduction, here};
use super::{bytes, part_tiles, tile_parts};
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use unisono_kernels::cast::cast;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::schedule::Collective;
use unisono_mesh::{AxisHandle, Mesh};

/// `to[o][..] on member i = the reduction of from[o][i][..]`: a dimension shrinks by the number of devices on the axis.
#[derive(Clone, Debug)]
pub struct ReduceScatter {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// What is made of their values.
    pub reduction: Reduction,
    /// Product of the dimensions before the one that is dealt out.
    pub outer: usize,
    /// Elements of one device's part of it and those after it.
    pub inner: usize,
    /// Slots of `outer × axis.size × inner` elements, f32.
    pub from: BufferRef,
    /// `outer × inner` elements; in bf16 the complete result is rounded once.
    pub to: BufferRef,
}

impl ReduceScatter {
    /// Elements of a slot.
    fn slot(&self) -> usize {
        self.outer * self.axis.size * self.inner
    }
}

impl Op for ReduceScatter {
    fn name(&self) -> &'static str {
        "reduce_scatter"
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
        Some((Collective::ReduceScatter, self.from.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let n = self.axis.size as u64;
        Cost {
            flops: self.to.len as u64 * (n - 1),
            bytes: bytes(&[self.from, self.to]),
            link_bytes: self.from.bytes() * (n - 1) / n,
        }
    }

    fn tiles(&self) -> usize {
        part_tiles(self.outer, self.inner, self.axis.size)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let width = self.inner * self.axis.size;
        for (row, part) in tile_parts(tile, self.outer, self.inner, self.axis.size) {
            for (i, device) in here(place, self.axis) {
                let mut result = scratch.take_result(part.len());
                let at = row * width + i * self.inner + part.start;
                self.reduction
                    .of(place, self.axis, self.from, self.slot(), at, result.floats(), scratch);
                let to = place.write_floats_on(device, self.to, row * self.inner + part.start, part.len());
                cast(scratch.isa(), &*result.floats(), to);
                scratch.put_result(result);
            }
        }
    }
}
