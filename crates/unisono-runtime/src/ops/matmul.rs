//! Matrix products.

use super::SumShare;
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::element::{Floats, OutFloats};
use unisono_kernels::gemm::{Activation, Gemm, Mat};
use unisono_kernels::order::Share;
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// A matrix in a buffer: element (i, j) of product `p` is at `p * batch + i * row + j * col`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// The buffer.
    pub buffer: BufferRef,
    /// Stride from one product of the batch to the next.
    pub batch: usize,
    /// Stride from row to row.
    pub row: usize,
    /// Stride from column to column.
    pub col: usize,
}

impl Matrix {
    /// A row-major matrix with `cols` columns, the same for each product.
    pub fn rows(buffer: BufferRef, cols: usize) -> Matrix {
        Matrix {
            buffer,
            batch: 0,
            row: cols,
            col: 1,
        }
    }

    /// The transpose of a row-major matrix with `cols` columns.
    pub fn transposed(buffer: BufferRef, cols: usize) -> Matrix {
        Matrix {
            buffer,
            batch: 0,
            row: 1,
            col: cols,
        }
    }
}

/// `to[p] = a[p] · b[p]` (m × k times k × n), with what follows the complete sum fused.
#[derive(Clone, Debug)]
pub struct MatMul {
    /// Number of independent products.
    pub batch: usize,
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Left factor, m × k, of the same kind of numbers as the right one.
    pub a: Matrix,
    /// Right factor, k × n.
    pub b: Matrix,
    /// Result, rows of `n` contiguous columns; `slots` of them `slot` elements apart where the sum is not complete. Of bf16
    /// factors the complete sum may be bf16.
    pub to: BufferRef,
    /// Elements from one product's result to the next.
    pub to_batch: usize,
    /// Elements from one slot to the next.
    pub slot: usize,
    /// Units of the contracted dimension and the share that this command adds.
    pub sum: SumShare,
    /// Added to each row after the complete sum.
    pub bias: Option<BufferRef>,
    /// Applied after the bias.
    pub activation: Activation,
    /// Where the values before the activation go, of the result's kind.
    pub pre: Option<BufferRef>,
    /// Added to the result, which is rounded again; laid out as it and of its kind, in a buffer of its own. Not after an
    /// activation.
    pub residual: Option<BufferRef>,
}

impl MatMul {
    /// The kernel's arguments without memory: enough to count tiles.
    fn bare<'a>(&self, sum: Share) -> Gemm<'a> {
        let mat = |m: &Matrix| Mat {
            data: Floats::F32(&[]),
            row_stride: m.row,
            col_stride: m.col,
        };
        Gemm {
            batch: self.batch,
            a_batch: self.a.batch,
            b_batch: self.b.batch,
            c_batch: self.to_batch,
            m: self.m,
            n: self.n,
            a: mat(&self.a),
            b: mat(&self.b),
            c: OutFloats::F32(Out::new(&mut [])),
            c_row: self.n,
            slot: self.slot,
            sum,
            bias: None,
            activation: self.activation,
            pre: None,
            residual: None,
        }
    }

    fn gemm<'a>(&self, place: &Place<'a>, sum: Share) -> Gemm<'a> {
        let mat = |m: &Matrix| Mat {
            data: place.floats(m.buffer),
            row_stride: m.row,
            col_stride: m.col,
        };
        Gemm {
            a: mat(&self.a),
            b: mat(&self.b),
            c: place.out_floats(self.to),
            bias: self.bias.map(|bias| place.f32(bias)),
            pre: self.pre.map(|pre| place.out_floats(pre)),
            residual: self.residual.map(|residual| place.floats(residual)),
            ..self.bare(sum)
        }
    }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.a.buffer);
        see(self.b.buffer);
        self.bias.map(&mut *see);
        self.residual.map(&mut *see);
        if self.sum.skip > 0 {
            see(self.to);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
        self.pre.map(see);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let (m, n, k) = (self.m as u64, self.n as u64, self.sum.addends() as u64);
        let bytes = |buffer: BufferRef, elements: u64| buffer.dtype.bytes() as u64 * elements;
        Cost {
            flops: 2 * self.batch as u64 * m * n * k,
            bytes: self.batch as u64
                * (bytes(self.a.buffer, m * k) + bytes(self.b.buffer, k * n) + bytes(self.to, m * n))
                + self
                    .residual
                    .map_or(0, |residual| bytes(residual, self.batch as u64 * m * n)),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.bare(Share {
            units: self.sum.units,
            open: 0,
            from: self.sum.skip,
            to: self.sum.skip + self.sum.count,
        })
        .tiles()
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        self.gemm(place, self.sum.at(place)).run(tile, scratch);
    }
}
