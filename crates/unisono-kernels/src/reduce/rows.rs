//! Sums along the rows of a matrix, in 16 lanes a leaf.

use crate::isa::Isa;
use crate::order::{Share, Units};
use crate::out::Out;
use crate::reduce::slots::Leaves;
use crate::reduce::vector::push;
use crate::simd::{LANES, Simd, dispatch};

/// `out[row] = Σ x[row]` for the rows of `x` (`out.len()` rows of `cols`), in the order of
/// [`row_sum`](crate::order::row_sum).
///
/// # Panics
/// If the lengths do not fit, or `cols` is more than `units` hold: a bug in unisono.
pub fn row_sums(isa: Isa, x: &[f32], cols: usize, units: Units, out: &mut [f32]) {
    assert!(
        x.len() == out.len() * cols && cols <= units.padded(),
        "bug in unisono: row sums of {} elements in rows of {cols} with {units:?}",
        x.len()
    );
    let rows = out.len();
    let leaves = Leaves::of(&Share::whole(units));
    let rows = Rows::<false> {
        leaves: &leaves,
        x,
        cols,
        out: Out::new(out),
        slot: rows,
        rows: 0..rows,
    };
    dispatch!(isa, sum_rows(rows: Rows<false>));
}

/// `Σ x[row]²` over the columns of this shard, for the rows `rows_from..rows_from + rows`.
///
/// `x` is the shard, rows of `cols`; its columns are the units `share.from..share.to` (absent ones at the end), and
/// `share.open == share.from`. Span `s` of row `r` is `out[s * slot + r]`. Order: as [`row_sums`], a lane adding `x·x` by
/// fused multiply-add.
///
/// # Panics
/// If the lengths do not fit or the share continues a stack: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn row_squares(
    isa: Isa,
    x: &[f32],
    cols: usize,
    share: &Share,
    out: Out<f32>,
    slot: usize,
    rows_from: usize,
    rows: usize,
) {
    assert!(
        (rows_from + rows) * cols <= x.len() && cols <= share.addends() && share.open == share.from,
        "bug in unisono: squares of rows {rows_from}..+{rows} of {cols} of {} elements with {share:?}",
        x.len()
    );
    let leaves = Leaves::of(share);
    let rows = Rows::<true> {
        leaves: &leaves,
        x,
        cols,
        out,
        slot,
        rows: rows_from..rows_from + rows,
    };
    dispatch!(isa, sum_rows(rows: Rows<true>));
}

struct Rows<'a, const SQUARED: bool> {
    leaves: &'a Leaves,
    x: &'a [f32],
    cols: usize,
    out: Out<'a, f32>,
    slot: usize,
    rows: std::ops::Range<usize>,
}

#[inline(always)]
fn sum_rows<S: Simd, const SQUARED: bool>(s: S, this: Rows<SQUARED>) {
    for row in this.rows {
        let x = &this.x[row * this.cols..][..this.cols];
        push(this.leaves, this.out, this.slot, row, |leaf| {
            let from = (leaf * this.leaves.len).min(x.len());
            let to = (from + this.leaves.len).min(x.len());
            leaf_sum::<S, SQUARED>(s, &x[from..to])
        });
    }
}

/// Sum or sum of squares of one leaf: lane `i mod 16`, folded 8-4-2-1.
///
/// The lanes past the end of a ragged leaf add +0, which changes no sum that began at +0.
#[inline(always)]
fn leaf_sum<S: Simd, const SQUARED: bool>(s: S, values: &[f32]) -> f32 {
    let mut lanes = s.zero();
    for chunk in values.chunks(LANES) {
        let v = s.read(chunk);
        lanes = if SQUARED { s.fma(v, v, lanes) } else { s.add(lanes, v) };
    }
    s.fold(lanes)
}
