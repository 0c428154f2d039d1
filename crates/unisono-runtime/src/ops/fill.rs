//! Every element set to one value.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::ops::{CHUNK, chunk};
use crate::place::Place;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to[..] = value`.
#[derive(Clone, Debug)]
pub struct Fill {
    /// What is filled.
    pub to: BufferRef,
    /// With what, rounded where it holds bf16.
    pub value: f32,
}

impl Op for Fill {
    fn name(&self) -> &'static str {
        "fill"
    }

    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: self.to.bytes(),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.to.len.div_ceil(CHUNK)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        place.write_floats(self.to, range.start, range.len()).fill(self.value);
    }
}
