//! Softmax and log-softmax over the last dimension, and their gradients.

use super::{bytes, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::order::Units;
use unisono_kernels::scratch::Scratch;
use unisono_kernels::softmax;
use unisono_mesh::Mesh;

/// Which of the four functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftmaxKind {
    /// `exp(x − max) / Σ exp(x − max)`.
    Softmax,
    /// `x − max − ln Σ exp(x − max)`.
    LogSoftmax,
}

/// `y = softmax(x)` or `log_softmax(x)` by rows.
#[derive(Clone, Debug)]
pub struct Softmax {
    /// Which function.
    pub kind: SoftmaxKind,
    /// Elements of a row.
    pub cols: usize,
    /// Argument.
    pub x: BufferRef,
    /// Result.
    pub y: BufferRef,
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.y);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 5 * self.x.len as u64,
            bytes: bytes(&[self.x, self.y]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.x.len / self.cols.max(1), self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.x.len / self.cols.max(1), self.cols);
        let (from, len) = (rows.start * self.cols, rows.len() * self.cols);
        let x = &place.f32(self.x)[from..from + len];
        let y = place.write(self.y, from, len);
        let (isa, units) = (scratch.isa(), Units::whole(self.cols));
        match self.kind {
            SoftmaxKind::Softmax => softmax::softmax(isa, x, self.cols, units, y),
            SoftmaxKind::LogSoftmax => softmax::log_softmax(isa, x, self.cols, units, y),
        }
    }
}

/// The gradient of [`Softmax`].
#[derive(Clone, Debug)]
pub struct SoftmaxGrad {
    /// Which function.
    pub kind: SoftmaxKind,
    /// Elements of a row.
    pub cols: usize,
    /// The function's result.
    pub y: BufferRef,
    /// Gradient of the result.
    pub dy: BufferRef,
    /// Gradient of the argument.
    pub dx: BufferRef,
}

impl Op for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.y);
        see(self.dy);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.dx);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 4 * self.y.len as u64,
            bytes: bytes(&[self.y, self.dy, self.dx]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.y.len / self.cols.max(1), self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.y.len / self.cols.max(1), self.cols);
        let (from, len) = (rows.start * self.cols, rows.len() * self.cols);
        let y = &place.f32(self.y)[from..from + len];
        let dy = &place.f32(self.dy)[from..from + len];
        let dx = place.write(self.dx, from, len);
        let (isa, units) = (scratch.isa(), Units::whole(self.cols));
        match self.kind {
            SoftmaxKind::Softmax => softmax::softmax_grad(isa, y, dy, self.cols, units, dx),
            SoftmaxKind::LogSoftmax => softmax::log_softmax_grad(isa, y, dy, self.cols, units, dx),
        }
    }
}
