//! Layer norm and RMS norm along rows, with their gradients.
//!
//! With n the columns of a row, sums along the row in the order of [`row_sum`](crate::order::row_sum) with the given units:
//!
//! * layer norm: mean = Σ x / n, rstd = 1 / √(Σ (x − mean)² / n + eps) (fused multiply-add), x̂ = (x − mean) · rstd;
//! * RMS norm: rstd = 1 / √(Σ x² / n + eps) (fused multiply-add), x̂ = x · rstd;
//! * y = fma(x̂, gamma, beta), or x̂ · gamma, x̂ + beta, x̂ where one or both are not given.
//!
//! Sources: Ba, Kiros, Hinton, *Layer normalization* (2016); Zhang, Sennrich, *Root mean square layer normalization* (2019).

use crate::elementwise::zip;
use crate::isa::Isa;
use crate::order::Units;
use crate::simd::{LANES, Simd, dispatch};

mod gradient;
mod parameters;
pub(crate) mod rows;

pub use gradient::{layer_norm_grad, rms_norm_grad};
pub use parameters::norm_param_grad;

use rows::RowOrder;

/// Layer norm of the rows of `x`; `mean` and `rstd` have one element a row, `y` is like `x`, `gamma` and `beta` like a row.
///
/// # Panics
/// If the lengths do not fit, or a row is longer than `units`: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm(
    isa: Isa,
    x: &[f32],
    gamma: Option<&[f32]>,
    beta: Option<&[f32]>,
    eps: f32,
    units: Units,
    y: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let affine = Affine { gamma, beta };
    let forward = Forward::new(x, None, affine, eps, units, y, Some(mean), rstd);
    dispatch!(isa, forward_rows(forward: Forward));
}

/// RMS norm of the rows of `x`; `rstd` has one element a row, `y` is like `x`, `gamma` like a row.
///
/// # Panics
/// As [`layer_norm`].
pub fn rms_norm(isa: Isa, x: &[f32], gamma: Option<&[f32]>, eps: f32, units: Units, y: &mut [f32], rstd: &mut [f32]) {
    let affine = Affine { gamma, beta: None };
    let forward = Forward::new(x, None, affine, eps, units, y, None, rstd);
    dispatch!(isa, forward_rows(forward: Forward));
}

/// `sum_out = x + residual`, then layer norm of that, while it is in the cache.
///
/// # Panics
/// As [`layer_norm`].
#[allow(clippy::too_many_arguments)]
pub fn add_layer_norm(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    sum_out: &mut [f32],
    gamma: Option<&[f32]>,
    beta: Option<&[f32]>,
    eps: f32,
    units: Units,
    y: &mut [f32],
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let affine = Affine { gamma, beta };
    let forward = Forward::new(x, Some((residual, sum_out)), affine, eps, units, y, Some(mean), rstd);
    dispatch!(isa, forward_rows(forward: Forward));
}

/// `sum_out = x + residual`, then RMS norm of that, while it is in the cache.
///
/// # Panics
/// As [`layer_norm`].
#[allow(clippy::too_many_arguments)]
pub fn add_rms_norm(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    sum_out: &mut [f32],
    gamma: Option<&[f32]>,
    eps: f32,
    units: Units,
    y: &mut [f32],
    rstd: &mut [f32],
) {
    let affine = Affine { gamma, beta: None };
    let forward = Forward::new(x, Some((residual, sum_out)), affine, eps, units, y, None, rstd);
    dispatch!(isa, forward_rows(forward: Forward));
}

/// Gains and offsets, one a column.
#[derive(Clone, Copy)]
struct Affine<'a> {
    gamma: Option<&'a [f32]>,
    beta: Option<&'a [f32]>,
}

/// The arguments of a forward call.
struct Forward<'a> {
    x: &'a [f32],
    /// What is added to `x`, and where the sum goes.
    residual: Option<(&'a [f32], &'a mut [f32])>,
    affine: Affine<'a>,
    eps: f32,
    cols: usize,
    order: RowOrder,
    y: &'a mut [f32],
    /// Given for layer norm, not for RMS norm.
    mean: Option<&'a mut [f32]>,
    rstd: &'a mut [f32],
}

impl<'a> Forward<'a> {
    #[allow(clippy::too_many_arguments)]
    fn new(
        x: &'a [f32],
        residual: Option<(&'a [f32], &'a mut [f32])>,
        affine: Affine<'a>,
        eps: f32,
        units: Units,
        y: &'a mut [f32],
        mean: Option<&'a mut [f32]>,
        rstd: &'a mut [f32],
    ) -> Forward<'a> {
        let cols = columns(x.len(), rstd.len(), units);
        let whole = |len: Option<usize>| len.is_none_or(|len| len == x.len());
        assert!(
            y.len() == x.len()
                && mean.as_ref().is_none_or(|mean| mean.len() == rstd.len())
                && whole(residual.as_ref().map(|(r, _)| r.len()))
                && whole(residual.as_ref().map(|(_, out)| out.len()))
                && [affine.gamma, affine.beta]
                    .iter()
                    .flatten()
                    .all(|p| p.len() == cols || rstd.is_empty()),
            "bug in unisono: the arguments of a norm of {} rows of {cols} do not fit",
            rstd.len()
        );
        Forward {
            x,
            residual,
            affine,
            eps,
            cols,
            order: RowOrder::whole(units),
            y,
            mean,
            rstd,
        }
    }
}

/// Elements of a row when `len` elements are `rows` rows.
fn columns(len: usize, rows: usize, units: Units) -> usize {
    let cols = len / rows.max(1);
    assert!(
        cols * rows == len && cols <= units.padded(),
        "bug in unisono: a norm of {len} elements in {rows} rows with {units:?}"
    );
    cols
}

#[inline(always)]
fn forward_rows<S: Simd>(s: S, mut this: Forward) {
    let cols = this.cols;
    let n = cols as f32;
    for row in 0..this.rstd.len() {
        let range = row * cols..(row + 1) * cols;
        let x = match &mut this.residual {
            Some((residual, out)) => {
                let out = &mut out[range.clone()];
                zip(s, &this.x[range.clone()], &residual[range.clone()], out, S::add);
                &*out
            }
            None => &this.x[range.clone()],
        };
        let mean = match &mut this.mean {
            Some(mean) => {
                mean[row] = sum(s, &this.order, x) / n;
                mean[row]
            }
            None => 0.0,
        };
        let squares = match this.mean {
            Some(_) => squares_around(s, &this.order, x, mean),
            None => squares(s, &this.order, x),
        };
        let rstd = 1.0 / (squares / n + this.eps).sqrt();
        this.rstd[row] = rstd;
        write_row(s, x, mean, rstd, this.affine, &mut this.y[range]);
    }
}

/// Σ x.
#[inline(always)]
fn sum<S: Simd>(s: S, order: &RowOrder, x: &[f32]) -> f32 {
    let [sum] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [acc]| [s.add(acc, s.read(&x[i..i + n]))],
        )
        .whole();
    sum
}

/// Σ x².
#[inline(always)]
fn squares<S: Simd>(s: S, order: &RowOrder, x: &[f32]) -> f32 {
    let [sum] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [acc]| {
                let v = s.read(&x[i..i + n]);
                [s.fma(v, v, acc)]
            },
        )
        .whole();
    sum
}

/// Σ (x − mean)².
#[inline(always)]
fn squares_around<S: Simd>(s: S, order: &RowOrder, x: &[f32], mean: f32) -> f32 {
    let mean = s.splat(mean);
    let [sum] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [acc]| {
                let d = s.sub(s.read(&x[i..i + n]), mean);
                let d = if n < LANES {
                    s.select(s.first(n), d, s.zero())
                } else {
                    d
                };
                [s.fma(d, d, acc)]
            },
        )
        .whole();
    sum
}

/// x̂ with gains and offsets; RMS norm is the case of a zero mean, as x − 0 is x to the bit.
#[inline(always)]
fn write_row<S: Simd>(s: S, x: &[f32], mean: f32, rstd: f32, affine: Affine, y: &mut [f32]) {
    let (mean, rstd) = (s.splat(mean), s.splat(rstd));
    let normal = Normal { mean, rstd };
    for i in (0..x.len()).step_by(LANES) {
        let n = LANES.min(x.len() - i);
        let part = i..i + n;
        let v = normal.of(s, s.read(&x[part.clone()]));
        let v = match (affine.gamma, affine.beta) {
            (Some(gamma), Some(beta)) => s.fma(v, s.read(&gamma[part.clone()]), s.read(&beta[part.clone()])),
            (Some(gamma), None) => s.mul(v, s.read(&gamma[part.clone()])),
            (None, Some(beta)) => s.add(v, s.read(&beta[part.clone()])),
            (None, None) => v,
        };
        s.write(&mut y[part], v);
    }
}

/// A row's mean and reciprocal standard deviation in each lane.
#[derive(Clone, Copy)]
struct Normal<F> {
    mean: F,
    rstd: F,
}

impl<F: Copy> Normal<F> {
    /// x̂ = (x − mean) · rstd.
    #[inline(always)]
    fn of<S: Simd<F = F>>(self, s: S, x: F) -> F {
        s.mul(s.sub(x, self.mean), self.rstd)
    }
}
