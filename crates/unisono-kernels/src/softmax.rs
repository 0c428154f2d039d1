//! Softmax and its logarithm along rows, with their gradients.
//!
//! With m the largest element of a row (NaN passed over; it comes back in by the sum), sums along the row in the order of
//! [`row_sum`](crate::order::row_sum):
//!
//! * softmax: e = exp(x − m), y = e · (1 / Σ e);
//! * its gradient: dx = y · (dy − Σ y dy), the sum by fused multiply-add;
//! * log-softmax: y = (x − m) − ln Σ exp(x − m);
//! * its gradient: dx = fma(−exp(y), Σ dy, dy).
//!
//! A row of which each element is −∞ gives NaN.

use crate::elementwise::{map, map_in_place, zip};
use crate::isa::Isa;
use crate::math::lanes;
use crate::norm::rows::RowOrder;
use crate::order::Units;
use crate::simd::{LANES, Simd, dispatch};

/// `y = softmax(x)` for each row of `cols` elements.
///
/// # Panics
/// If the lengths do not fit, or a row is longer than `units`: a bug in unisono.
pub fn softmax(isa: Isa, x: &[f32], cols: usize, units: Units, y: &mut [f32]) {
    let order = order(cols, units, &[x.len(), y.len()]);
    dispatch!(isa, softmax_rows(order: RowOrder, x: &[f32], cols: usize, y: &mut [f32]));
}

/// `dx` from softmax's result `y` and its gradient `dy`.
///
/// # Panics
/// As [`softmax`].
pub fn softmax_grad(isa: Isa, y: &[f32], dy: &[f32], cols: usize, units: Units, dx: &mut [f32]) {
    let order = order(cols, units, &[y.len(), dy.len(), dx.len()]);
    dispatch!(isa, softmax_grad_rows(order: RowOrder, y: &[f32], dy: &[f32], cols: usize, dx: &mut [f32]));
}

/// `y = ln softmax(x)` for each row of `cols` elements.
///
/// # Panics
/// As [`softmax`].
pub fn log_softmax(isa: Isa, x: &[f32], cols: usize, units: Units, y: &mut [f32]) {
    let order = order(cols, units, &[x.len(), y.len()]);
    dispatch!(isa, log_softmax_rows(order: RowOrder, x: &[f32], cols: usize, y: &mut [f32]));
}

/// `dx` from log-softmax's result `y` and its gradient `dy`.
///
/// # Panics
/// As [`softmax`].
pub fn log_softmax_grad(isa: Isa, y: &[f32], dy: &[f32], cols: usize, units: Units, dx: &mut [f32]) {
    let order = order(cols, units, &[y.len(), dy.len(), dx.len()]);
    dispatch!(isa, log_softmax_grad_rows(order: RowOrder, y: &[f32], dy: &[f32], cols: usize, dx: &mut [f32]));
}

fn order(cols: usize, units: Units, lengths: &[usize]) -> RowOrder {
    assert!(
        lengths.iter().all(|len| *len == lengths[0])
            && lengths[0].is_multiple_of(cols.max(1))
            && cols <= units.padded(),
        "bug in unisono: a softmax of {lengths:?} elements in rows of {cols} with {units:?}"
    );
    RowOrder::whole(units)
}

#[inline(always)]
fn softmax_rows<S: Simd>(s: S, order: RowOrder, x: &[f32], cols: usize, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(cols.max(1)).zip(y.chunks_exact_mut(cols.max(1))) {
        let m = s.splat(largest(s, x));
        let [sum] = order
            .sum(
                s,
                cols,
                #[inline(always)]
                |i, n, [acc]| {
                    let e = lanes::exp(s, s.sub(s.read(&x[i..i + n]), m));
                    s.write(&mut y[i..i + n], e);
                    [s.add(acc, present(s, n, e))]
                },
            )
            .whole();
        let factor = s.splat(1.0 / sum);
        map_in_place(
            s,
            y,
            #[inline(always)]
            |s, e| s.mul(e, factor),
        );
    }
}

#[inline(always)]
fn softmax_grad_rows<S: Simd>(s: S, order: RowOrder, y: &[f32], dy: &[f32], cols: usize, dx: &mut [f32]) {
    let rows = y.chunks_exact(cols.max(1)).zip(dy.chunks_exact(cols.max(1)));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(cols.max(1))) {
        let [sum] = order
            .sum(
                s,
                cols,
                #[inline(always)]
                |i, n, [acc]| [s.fma(s.read(&y[i..i + n]), s.read(&dy[i..i + n]), acc)],
            )
            .whole();
        let sum = s.splat(sum);
        zip(
            s,
            y,
            dy,
            dx,
            #[inline(always)]
            |s, y, d| s.mul(y, s.sub(d, sum)),
        );
    }
}

#[inline(always)]
fn log_softmax_rows<S: Simd>(s: S, order: RowOrder, x: &[f32], cols: usize, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(cols.max(1)).zip(y.chunks_exact_mut(cols.max(1))) {
        let m = largest(s, x);
        let [sum] = sum_exp(s, &order, x, m).whole();
        let m = s.splat(m);
        let log = lanes::ln(s, s.splat(sum));
        map(
            s,
            x,
            y,
            #[inline(always)]
            |s, x| s.sub(s.sub(x, m), log),
        );
    }
}

#[inline(always)]
fn log_softmax_grad_rows<S: Simd>(s: S, order: RowOrder, y: &[f32], dy: &[f32], cols: usize, dx: &mut [f32]) {
    let rows = y.chunks_exact(cols.max(1)).zip(dy.chunks_exact(cols.max(1)));
    for ((y, dy), dx) in rows.zip(dx.chunks_exact_mut(cols.max(1))) {
        let [sum] = order
            .sum(
                s,
                cols,
                #[inline(always)]
                |i, n, [acc]| [s.add(acc, s.read(&dy[i..i + n]))],
            )
            .whole();
        let sum = s.splat(sum);
        zip(
            s,
            y,
            dy,
            dx,
            #[inline(always)]
            |s, y, d| s.fnma(lanes::exp(s, y), sum, d),
        );
    }
}

/// The spans of Σ exp(x − m) along a row.
#[inline(always)]
pub(crate) fn sum_exp<S: Simd>(s: S, order: &RowOrder, x: &[f32], m: f32) -> crate::norm::rows::Spans<1> {
    let m = s.splat(m);
    order.sum(
        s,
        x.len(),
        #[inline(always)]
        |i, n, [acc]| {
            let e = lanes::exp(s, s.sub(s.read(&x[i..i + n]), m));
            [s.add(acc, present(s, n, e))]
        },
    )
}

/// The first `n` lanes, +0 in the others.
#[inline(always)]
fn present<S: Simd>(s: S, n: usize, v: S::F) -> S::F {
    if n < LANES {
        s.select(s.first(n), v, s.zero())
    } else {
        v
    }
}

/// The largest element of a row, NaN passed over, never −0; −∞ if there is none.
#[inline(always)]
pub(crate) fn largest<S: Simd>(s: S, x: &[f32]) -> f32 {
    // Four chains; `max(v, acc)` keeps acc where v is NaN. Which of two zeros is kept is undone by the last addition.
    let mut acc = [s.splat(f32::NEG_INFINITY); 4];
    let (blocks, rest) = x.as_chunks::<{ 4 * LANES }>();
    for block in blocks {
        for (k, acc) in acc.iter_mut().enumerate() {
            *acc = s.max(s.read(&block[k * LANES..]), *acc);
        }
    }
    for part in rest.chunks(LANES) {
        let v = s.select(s.first(part.len()), s.read(part), s.splat(f32::NEG_INFINITY));
        acc[0] = s.max(v, acc[0]);
    }
    let both = s.max(s.max(acc[0], acc[1]), s.max(acc[2], acc[3]));
    let lanes = s.to_array(both);
    lanes
        .iter()
        .fold(f32::NEG_INFINITY, |most, v| if *v > most { *v } else { most })
        + 0.0
}
