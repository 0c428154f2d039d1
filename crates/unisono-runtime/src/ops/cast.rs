//! The same numbers in another kind.

use super::{bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::cast::cast;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to = from`: f32 becomes bf16 by rounding to nearest even, bf16 becomes f32 exactly.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The numbers.
    pub from: BufferRef,
    /// As many, of either kind.
    pub to: BufferRef,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        "cast"
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
            bytes: bytes(&[self.from, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        let to = place.write_floats(self.to, range.start, range.len());
        cast(scratch.isa(), place.floats(self.from).range(range), to);
    }
}
