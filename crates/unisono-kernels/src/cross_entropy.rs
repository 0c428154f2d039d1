//! Cross-entropy over a vocabulary that may be sharded: the pieces between which the runtime reduces.
//!
//! A shard holds rows (tokens) of `cols` stored columns, the first `valid` of which are vocabulary; padding is never an
//! addend. With one shard the steps are the same: [`row_max`], [`row_sum_exp`] and [`target_logit`] on the shard, then the
//! runtime takes the maximum, completes the sum and selects the owner's target logit; [`loss`]; [`logits_grad`].

use crate::elementwise::{map_in_place, zip};
use crate::isa::Isa;
use crate::math::lanes;
use crate::norm::rows::RowOrder;
use crate::order::Share;
use crate::out::Out;
use crate::simd::{Simd, dispatch};
use crate::softmax::{largest, sum_exp};

/// The target of a row that has none.
pub const MASKED: u32 = u32::MAX;

/// The largest logit of each row (NaN passed over, never −0); −∞ where the shard holds only padding.
///
/// # Panics
/// If the lengths do not fit: a bug in unisono.
pub fn row_max(isa: Isa, logits: &[f32], cols: usize, valid: usize, out: &mut [f32]) {
    check(logits.len(), cols, valid, out.len());
    dispatch!(isa, max_rows(logits: &[f32], cols: usize, valid: usize, out: &mut [f32]));
}

/// The spans of Σ exp(logit − max) of each row, in the order of [`row_sum`](crate::order::row_sum).
///
/// `share` says which units of the vocabulary the shard's columns are (`open == from`); `max` has one element a row, the
/// maximum over the whole vocabulary. Span `k` of row `r` goes to `out[k * slot + rows_from + r]`.
///
/// # Panics
/// If the lengths do not fit: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn row_sum_exp(
    isa: Isa,
    logits: &[f32],
    cols: usize,
    valid: usize,
    max: &[f32],
    share: &Share,
    out: Out<f32>,
    slot: usize,
    rows_from: usize,
) {
    check(logits.len(), cols, valid, max.len());
    let order = RowOrder::of(share);
    assert!(
        valid <= order.addends() && (rows_from + max.len() <= slot || share.slots_after() <= 1),
        "bug in unisono: {valid} logits of rows {rows_from}..+{} for {share:?}, slots of {slot}",
        max.len()
    );
    let sums = Sums {
        logits,
        cols,
        valid,
        max,
        order,
        out,
        slot,
        rows_from,
    };
    dispatch!(isa, sum_rows(sums: Sums));
}

struct Sums<'a> {
    logits: &'a [f32],
    cols: usize,
    valid: usize,
    max: &'a [f32],
    order: RowOrder,
    out: Out<'a, f32>,
    slot: usize,
    rows_from: usize,
}

/// The logit of each row's target where this shard owns it (vocabulary entries `first_column..first_column + valid`), else 0,
/// which is no addend: the runtime selects the owner's.
///
/// # Panics
/// If the lengths do not fit: a bug in unisono.
pub fn target_logit(logits: &[f32], cols: usize, first_column: u32, valid: usize, targets: &[u32], out: &mut [f32]) {
    check(logits.len(), cols, valid, targets.len());
    check(logits.len(), cols, valid, out.len());
    for (row, (target, out)) in targets.iter().zip(out).enumerate() {
        *out = match column(*target, first_column, valid) {
            Some(column) => logits[row * cols + column],
            None => 0.0,
        };
    }
}

/// `lse = max + ln(sum)` and `loss = lse − target_logit`, 0 where the target is [`MASKED`].
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn loss(
    isa: Isa,
    max: &[f32],
    sum: &[f32],
    target_logit: &[f32],
    targets: &[u32],
    lse: &mut [f32],
    loss: &mut [f32],
) {
    let rows = loss.len();
    assert!(
        [max.len(), sum.len(), target_logit.len(), targets.len(), lse.len()] == [rows; 5],
        "bug in unisono: the losses of {rows} rows from arrays of other lengths"
    );
    dispatch!(isa, log_sums(max: &[f32], sum: &[f32], lse: &mut [f32]));
    for (i, loss) in loss.iter_mut().enumerate() {
        *loss = if targets[i] == MASKED {
            0.0
        } else {
            lse[i] - target_logit[i]
        };
    }
}

/// Turns logits into their gradient in place: `(exp(logit − lse) − [column is target]) · scale`, 0 in the rows whose target is
/// [`MASKED`] and in padding columns.
///
/// # Panics
/// If the lengths do not fit: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn logits_grad(
    isa: Isa,
    logits: &mut [f32],
    cols: usize,
    valid: usize,
    first_column: u32,
    lse: &[f32],
    targets: &[u32],
    scale: f32,
) {
    check(logits.len(), cols, valid, lse.len());
    check(logits.len(), cols, valid, targets.len());
    let rows = Gradient {
        cols,
        valid,
        first_column,
        lse,
        targets,
        scale,
    };
    dispatch!(isa, grad_rows(rows: Gradient, logits: &mut [f32]));
}

struct Gradient<'a> {
    cols: usize,
    valid: usize,
    first_column: u32,
    lse: &'a [f32],
    targets: &'a [u32],
    scale: f32,
}

fn check(logits: usize, cols: usize, valid: usize, rows: usize) {
    assert!(
        logits == rows * cols && valid <= cols,
        "bug in unisono: {logits} logits as {rows} rows of {cols} columns, {valid} of them vocabulary"
    );
}

/// The shard's column of a target, if it has it.
fn column(target: u32, first_column: u32, valid: usize) -> Option<usize> {
    let column = target.checked_sub(first_column)? as usize;
    (target != MASKED && column < valid).then_some(column)
}

#[inline(always)]
fn max_rows<S: Simd>(s: S, logits: &[f32], cols: usize, valid: usize, out: &mut [f32]) {
    for (row, out) in out.iter_mut().enumerate() {
        *out = largest(s, &logits[row * cols..][..valid]);
    }
}

#[inline(always)]
fn sum_rows<S: Simd>(s: S, this: Sums) {
    for (row, max) in this.max.iter().enumerate() {
        let spans = sum_exp(s, &this.order, &this.logits[row * this.cols..][..this.valid], *max);
        for (k, [sum]) in spans.as_slice().iter().enumerate() {
            // SAFETY: the tile owns its rows of every slot.
            let out = unsafe { this.out.slice(k * this.slot + this.rows_from + row, 1) };
            out[0] = sum + 0.0;
        }
    }
}

#[inline(always)]
fn log_sums<S: Simd>(s: S, max: &[f32], sum: &[f32], lse: &mut [f32]) {
    zip(
        s,
        max,
        sum,
        lse,
        #[inline(always)]
        |s, max, sum| s.add(max, lanes::ln(s, sum)),
    );
}

#[inline(always)]
fn grad_rows<S: Simd>(s: S, this: Gradient, logits: &mut [f32]) {
    let scale = s.splat(this.scale);
    for (row, (target, lse)) in this.targets.iter().zip(this.lse).enumerate() {
        let row = &mut logits[row * this.cols..][..this.cols];
        if *target == MASKED {
            row.fill(0.0);
            continue;
        }
        let lse = s.splat(*lse);
        let (row, padding) = row.split_at_mut(this.valid);
        padding.fill(0.0);
        let target = column(*target, this.first_column, this.valid);
        let target = target.map(|column| (column, row[column]));
        map_in_place(
            s,
            row,
            #[inline(always)]
            |s, logit| s.mul(lanes::exp(s, s.sub(logit, lse)), scale),
        );
        if let Some((column, logit)) = target {
            let p = lanes::exp(s, s.sub(s.splat(logit), lse));
            row[column] = s.to_array(s.mul(s.sub(p, s.splat(1.0)), scale))[0];
        }
    }
}
