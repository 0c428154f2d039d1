//! Layer norm and RMS norm along rows, with their gradients.
//!
//! With n the columns of a row, sums along the row in the order of [`row_sum`](crate::order::row_sum) with the given units:
//!
//! * layer norm: mean = Σ x / n, rstd = 1 / √(Σ (x − mean)² / n + eps) (fused multiply-add), x̂ = (x − mean) · rstd;
//! * RMS norm: rstd = 1 / √(Σ x² / n + eps) (fused multiply-add), x̂ = x · rstd;
//! * y = fma(x̂, gamma, beta), or x̂ · gamma, x̂ + beta, x̂ where one or both are not given.
//!
//! Arguments, results and their gradients may be bf16, all of a call alike; gains, offsets, means and deviations are f32.
//!
//! Sources: Ba, Kiros, Hinton, *Layer normalization* (2016); Zhang, Sennrich, *Root mean square layer normalization* (2019).

use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
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
/// If lengths or kinds do not fit, or a row is longer than `units`: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm<'a>(
    isa: Isa,
    x: impl Into<Floats<'a>>,
    gamma: Option<&[f32]>,
    beta: Option<&[f32]>,
    eps: f32,
    units: Units,
    y: impl Into<FloatsMut<'a>>,
    mean: &mut [f32],
    rstd: &mut [f32],
) {
    let affine = Affine { gamma, beta };
    forward(isa, x.into(), affine, eps, units, y.into(), Some(mean), rstd);
}

/// RMS norm of the rows of `x`; `rstd` has one element a row, `y` is like `x`, `gamma` like a row.
///
/// # Panics
/// As [`layer_norm`].
pub fn rms_norm<'a>(
    isa: Isa,
    x: impl Into<Floats<'a>>,
    gamma: Option<&[f32]>,
    eps: f32,
    units: Units,
    y: impl Into<FloatsMut<'a>>,
    rstd: &mut [f32],
) {
    let affine = Affine { gamma, beta: None };
    forward(isa, x.into(), affine, eps, units, y.into(), None, rstd);
}

#[allow(clippy::too_many_arguments)]
fn forward(
    isa: Isa,
    x: Floats<'_>,
    affine: Affine<'_>,
    eps: f32,
    units: Units,
    y: FloatsMut<'_>,
    mean: Option<&mut [f32]>,
    rstd: &mut [f32],
) {
    match (x, y) {
        (Floats::F32(x), FloatsMut::F32(y)) => {
            let forward = Forward::new(x, affine, eps, units, y, mean, rstd);
            dispatch!(isa, forward_rows::<_, f32>(forward: Forward<f32>));
        }
        (Floats::Bf16(x), FloatsMut::Bf16(y)) => {
            let forward = Forward::new(x, affine, eps, units, y, mean, rstd);
            dispatch!(isa, forward_rows::<_, Bf16>(forward: Forward<Bf16>));
        }
        _ => mixed("a norm"),
    }
}

/// Gains and offsets, one a column.
#[derive(Clone, Copy)]
struct Affine<'a> {
    gamma: Option<&'a [f32]>,
    beta: Option<&'a [f32]>,
}

/// The arguments of a forward call.
struct Forward<'a, E> {
    x: &'a [E],
    affine: Affine<'a>,
    eps: f32,
    cols: usize,
    order: RowOrder,
    y: &'a mut [E],
    /// Given for layer norm, not for RMS norm.
    mean: Option<&'a mut [f32]>,
    rstd: &'a mut [f32],
}

impl<'a, E> Forward<'a, E> {
    fn new(
        x: &'a [E],
        affine: Affine<'a>,
        eps: f32,
        units: Units,
        y: &'a mut [E],
        mean: Option<&'a mut [f32]>,
        rstd: &'a mut [f32],
    ) -> Forward<'a, E> {
        let cols = columns(x.len(), rstd.len(), units);
        assert!(
            y.len() == x.len()
                && mean.as_ref().is_none_or(|mean| mean.len() == rstd.len())
                && [affine.gamma, affine.beta]
                    .iter()
                    .flatten()
                    .all(|p| p.len() == cols || rstd.is_empty()),
            "bug in unisono: the arguments of a norm of {} rows of {cols} do not fit",
            rstd.len()
        );
        Forward {
            x,
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
fn forward_rows<S: Simd, E: Element>(s: S, mut this: Forward<E>) {
    let cols = this.cols;
    let n = cols as f32;
    for row in 0..this.rstd.len() {
        let range = row * cols..(row + 1) * cols;
        let x = &this.x[range.clone()];
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
fn sum<S: Simd, E: Element>(s: S, order: &RowOrder, x: &[E]) -> f32 {
    let [sum] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [acc]| [s.add(acc, E::read(s, &x[i..i + n]))],
        )
        .whole();
    sum
}

/// Σ x².
#[inline(always)]
fn squares<S: Simd, E: Element>(s: S, order: &RowOrder, x: &[E]) -> f32 {
    let [sum] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [acc]| {
                let v = E::read(s, &x[i..i + n]);
                [s.fma(v, v, acc)]
            },
        )
        .whole();
    sum
}

/// Σ (x − mean)².
#[inline(always)]
fn squares_around<S: Simd, E: Element>(s: S, order: &RowOrder, x: &[E], mean: f32) -> f32 {
    let mean = s.splat(mean);
    let [sum] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [acc]| {
                let d = s.sub(E::read(s, &x[i..i + n]), mean);
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
fn write_row<S: Simd, E: Element>(s: S, x: &[E], mean: f32, rstd: f32, affine: Affine, y: &mut [E]) {
    let (mean, rstd) = (s.splat(mean), s.splat(rstd));
    let normal = Normal { mean, rstd };
    for i in (0..x.len()).step_by(LANES) {
        let n = LANES.min(x.len() - i);
        let part = i..i + n;
        let v = normal.of(s, E::read(s, &x[part.clone()]));
        let v = match (affine.gamma, affine.beta) {
            (Some(gamma), Some(beta)) => s.fma(v, s.read(&gamma[part.clone()]), s.read(&beta[part.clone()])),
            (Some(gamma), None) => s.mul(v, s.read(&gamma[part.clone()])),
            (None, Some(beta)) => s.add(v, s.read(&beta[part.clone()])),
            (None, None) => v,
        };
        E::write(s, &mut y[part], v);
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
