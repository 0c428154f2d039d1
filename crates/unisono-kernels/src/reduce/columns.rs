//! Sums over the rows of a matrix: gradients of biases, norms and positions.

use crate::element::{Bf16, Element, Floats};
use crate::isa::Isa;
use crate::order::Share;
use crate::out::Out;
use crate::reduce::slots::{Entries, Leaves, add};
use crate::scratch::Scratch;
use crate::simd::{Simd, dispatch};

/// Columns that are summed at once: the accumulators stay in the first cache, the rows are read in long runs.
const CHUNK: usize = 1024;

/// Sums the rows of `x` over a share of the token dimension, for the columns `col_from..col_to`.
///
/// `x` holds the share's rows (`share.addends()` of them), element `(row, col)` at `x[row * row_stride + col]`; span `s` of
/// column `col` is `out[s * slot + col]`. Order: a leaf's rows left to right from +0, leaves and units by the tree; each
/// column for itself, so any partition into columns gives the same bits. Sums from +0 by additions are never −0.
///
/// # Panics
/// If `x` or `out` is too short for the share: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn column_sums(
    isa: Isa,
    share: &Share,
    x: Floats<'_>,
    row_stride: usize,
    col_from: usize,
    col_to: usize,
    out: Out<f32>,
    slot: usize,
    scratch: &mut Scratch,
) {
    let rows = share.addends();
    assert!(
        rows == 0 || (rows - 1) * row_stride + col_to <= x.len(),
        "bug in unisono: column sums of {rows} rows of stride {row_stride} to column {col_to} of {} elements",
        x.len()
    );
    let leaves = Leaves::of(share);
    let above = leaves.above();
    let widest = CHUNK.min(col_to.saturating_sub(col_from));
    let (leaf_sum, above) = scratch.floats((1 + above) * widest).split_at_mut(widest);
    for col in (col_from..col_to).step_by(CHUNK) {
        let width = CHUNK.min(col_to - col);
        // SAFETY: the tile owns its columns of every slot.
        let entries = unsafe { Entries::new(out, slot, leaves.slots(), col, width, above) };
        let columns = Columns {
            leaves: &leaves,
            row_stride,
            col,
            leaf_sum: &mut leaf_sum[..width],
            entries,
        };
        match x {
            Floats::F32(x) => dispatch!(isa, sum_columns::<_, f32>(columns: Columns, x: &[f32])),
            Floats::Bf16(x) => dispatch!(isa, sum_columns::<_, Bf16>(columns: Columns, x: &[Bf16])),
        }
    }
}

struct Columns<'a> {
    leaves: &'a Leaves,
    row_stride: usize,
    col: usize,
    leaf_sum: &'a mut [f32],
    entries: Entries<'a>,
}

/// Additions only, column by column: plain loops, which the compiler vectorises for the token's instruction set.
#[inline(always)]
fn sum_columns<S: Simd, E: Element>(_: S, mut this: Columns, x: &[E]) {
    let width = this.leaf_sum.len();
    let mut depth = this.leaves.before;
    let mut start = this.col;
    for leaf in this.leaves.from..this.leaves.to {
        let row = |r: usize| &x[start + r * this.row_stride..][..width];
        let merges = this.leaves.tree.merges(this.leaves.open, leaf..leaf + 1);
        let sum = match merges {
            0 => this.entries.at(depth),
            _ => &mut *this.leaf_sum,
        };
        sum.fill(0.0);
        let mut r = 0;
        // Four rows a pass, so that the accumulators are loaded and stored once for four additions.
        while r + 4 <= this.leaves.len {
            let rows = row(r).iter().zip(row(r + 1)).zip(row(r + 2)).zip(row(r + 3));
            for (s, (((a, b), c), d)) in sum.iter_mut().zip(rows) {
                *s = (((*s + a.to_f32()) + b.to_f32()) + c.to_f32()) + d.to_f32();
            }
            r += 4;
        }
        for r in r..this.leaves.len {
            add(sum, row(r));
        }
        start += this.leaves.len * this.row_stride;
        if merges == 0 {
            depth += 1;
            continue;
        }
        add(this.entries.at(depth - 1), this.leaf_sum);
        for _ in 1..merges {
            depth -= 1;
            let (below, top) = this.entries.pair(depth - 1, depth);
            add(below, top);
        }
    }
}
