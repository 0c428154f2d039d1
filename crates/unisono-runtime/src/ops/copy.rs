//! Strided copies: permute, slice, join, broadcast.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::copy::{Strided, copy};
use unisono_kernels::element::{Floats, OutFloats};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to[dst] = from[src]` for every index of the plan; elements of two or four bytes, whatever they mean.
#[derive(Clone, Debug)]
pub struct Copy {
    /// Source.
    pub from: BufferRef,
    /// Destination; elements that the plan does not name keep their value.
    pub to: BufferRef,
    /// Dimensions and strides.
    pub plan: Strided,
}

impl Op for Copy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: (2 * self.to.dtype.bytes() * self.plan.outer() * self.plan.inner()) as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        super::row_tiles(self.plan.outer(), self.plan.inner())
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let rows = super::tile_rows(tile, self.plan.outer(), self.plan.inner());
        match (place.floats(self.from), place.out_floats(self.to)) {
            (Floats::F32(from), OutFloats::F32(to)) => copy(&self.plan, rows.start, rows.end, from, to),
            (Floats::Bf16(from), OutFloats::Bf16(to)) => copy(&self.plan, rows.start, rows.end, from, to),
            _ => panic!(
                "bug in unisono: a copy from {:?} to {:?}, of another width",
                self.from, self.to
            ),
        }
    }
}
