//! Rotary position embedding.

use super::{bytes, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
pub use unisono_kernels::rope::Turn;
use unisono_kernels::rope::rope;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to = x`, the pairs of each head rotated by position · frequency.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Rows of `width` elements, one a token.
    pub x: BufferRef,
    /// Elements of a row: whole heads of twice as many elements as there are frequencies.
    pub width: usize,
    /// Angle from one position to the next, f32, one a pair.
    pub frequencies: BufferRef,
    /// Each row's position; `None` where it is the row's place in its sequence.
    pub positions: Option<BufferRef>,
    /// Rows of a sequence.
    pub tokens: usize,
    /// Which way.
    pub turn: Turn,
    /// Result, of the kind of `x`.
    pub to: BufferRef,
}

impl Op for Rope {
    fn name(&self) -> &'static str {
        match self.turn {
            Turn::Forward => "rope",
            Turn::Back => "rope_grad",
        }
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        see(self.frequencies);
        self.positions.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 3 * self.x.len as u64,
            bytes: bytes(&[self.x, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.x.len / self.width.max(1), self.width)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.x.len / self.width.max(1), self.width);
        let (from, len) = (rows.start * self.width, rows.len() * self.width);
        let x = place.floats(self.x).range(from..from + len);
        let to = place.write_floats(self.to, from, len);
        let frequencies = place.f32(self.frequencies);
        match self.positions {
            Some(positions) => {
                let positions = &place.u32(positions)[rows.clone()];
                rope(x, rows.len(), frequencies, |row| positions[row], self.turn, to, scratch);
            }
            None => {
                let position = |row: usize| ((rows.start + row) % self.tokens) as u32;
                rope(x, rows.len(), frequencies, position, self.turn, to, scratch);
            }
        }
    }
}
