//! Layer norm and RMS norm over the last dimension.
//!
//! The argument, the result and their gradients are of one kind, f32 or bf16; everything else is f32.

use super::{SumShare, bytes, column_tiles, row_tiles, tile_columns, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::norm;
use unisono_kernels::order::Units;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `y = (x − mean) · rstd · gamma + beta` by rows; without `mean` it is RMS norm, `y = x · rstd · gamma`.
#[derive(Clone, Debug)]
pub struct Norm {
    /// Rows of `cols` elements.
    pub x: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// Gains, one a column.
    pub gamma: Option<BufferRef>,
    /// Offsets, one a column (layer norm only).
    pub beta: Option<BufferRef>,
    /// Added to the variance.
    pub eps: f32,
    /// Result.
    pub y: BufferRef,
    /// Where the rows' means go; `None` for RMS norm.
    pub mean: Option<BufferRef>,
    /// Where the rows' reciprocal standard deviations go.
    pub rstd: BufferRef,
}

impl Op for Norm {
    fn name(&self) -> &'static str {
        if self.mean.is_some() { "layer_norm" } else { "rms_norm" }
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        self.gamma.map(&mut *see);
        self.beta.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.y);
        see(self.rstd);
        self.mean.map(see);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 8 * self.x.len as u64,
            bytes: bytes(&[self.x, self.y]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.rstd.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.rstd.len, self.cols);
        let (from, len) = (rows.start * self.cols, rows.len() * self.cols);
        let x = place.floats(self.x).range(from..from + len);
        let y = place.write_floats(self.y, from, len);
        let rstd = place.write(self.rstd, rows.start, rows.len());
        let gamma = self.gamma.map(|gamma| place.f32(gamma));
        let (isa, units) = (scratch.isa(), Units::whole(self.cols));
        match self.mean {
            Some(mean) => {
                let mean = place.write(mean, rows.start, rows.len());
                let beta = self.beta.map(|beta| place.f32(beta));
                norm::layer_norm(isa, x, gamma, beta, self.eps, units, y, mean, rstd);
            }
            None => norm::rms_norm(isa, x, gamma, self.eps, units, y, rstd),
        }
    }
}

/// The gradient of [`Norm`] with respect to `x`.
#[derive(Clone, Debug)]
pub struct NormGrad {
    /// The norm's argument.
    pub x: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// Gradient of the norm's result.
    pub dy: BufferRef,
    /// Gains.
    pub gamma: Option<BufferRef>,
    /// Means; `None` for RMS norm.
    pub mean: Option<BufferRef>,
    /// Reciprocal standard deviations.
    pub rstd: BufferRef,
    /// Gradient of the argument.
    pub dx: BufferRef,
}

impl Op for NormGrad {
    fn name(&self) -> &'static str {
        "norm_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        see(self.dy);
        see(self.rstd);
        self.gamma.map(&mut *see);
        self.mean.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.dx);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 12 * self.x.len as u64,
            bytes: bytes(&[self.x, self.dy, self.dx]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.rstd.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let rows = tile_rows(tile, self.rstd.len, self.cols);
        let (from, len) = (rows.start * self.cols, rows.len() * self.cols);
        let x = place.floats(self.x).range(from..from + len);
        let dy = place.floats(self.dy).range(from..from + len);
        let dx = place.write_floats(self.dx, from, len);
        let rstd = &place.f32(self.rstd)[rows.clone()];
        let gamma = self.gamma.map(|gamma| place.f32(gamma));
        let (isa, units) = (scratch.isa(), Units::whole(self.cols));
        match self.mean {
            Some(mean) => norm::layer_norm_grad(isa, x, dy, gamma, &place.f32(mean)[rows], rstd, units, dx),
            None => norm::rms_norm_grad(isa, x, dy, gamma, rstd, units, dx),
        }
    }
}

/// The gradients of [`Norm`] with respect to gains and offsets: sums over the rows (tokens).
#[derive(Clone, Debug)]
pub struct NormParamGrad {
    /// The norm's argument.
    pub x: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// Gradient of the norm's result.
    pub dy: BufferRef,
    /// Means; `None` for RMS norm.
    pub mean: Option<BufferRef>,
    /// Reciprocal standard deviations.
    pub rstd: BufferRef,
    /// Which rows of the step's batch these are.
    pub sum: SumShare,
    /// Slots of the gains' gradient.
    pub dgamma: Option<BufferRef>,
    /// Slots of the offsets' gradient.
    pub dbeta: Option<BufferRef>,
    /// Elements from one slot to the next.
    pub slot: usize,
}

impl Op for NormParamGrad {
    fn name(&self) -> &'static str {
        "norm_param_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        see(self.dy);
        see(self.rstd);
        self.mean.map(&mut *see);
        if self.sum.skip > 0 {
            self.dgamma.map(&mut *see);
            self.dbeta.map(see);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        self.dgamma.map(&mut *see);
        self.dbeta.map(see);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 5 * self.x.len as u64,
            bytes: bytes(&[self.x, self.dy]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        column_tiles(self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let columns = tile_columns(tile, self.cols);
        norm::norm_param_grad(
            scratch.isa(),
            &self.sum.at(place),
            place.floats(self.x),
            place.floats(self.dy),
            self.mean.map(|mean| place.f32(mean)),
            place.f32(self.rstd),
            self.cols,
            columns.start,
            columns.end,
            self.dgamma.map(|to| place.out(to)),
            self.dbeta.map(|to| place.out(to)),
            self.slot,
            scratch,
        );
    }
}
