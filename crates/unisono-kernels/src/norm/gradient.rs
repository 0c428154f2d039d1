//! The gradients of the norms with respect to their argument.

use super::rows::RowOrder;
use super::{Normal, columns};
use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
use crate::isa::Isa;
use crate::order::Units;
use crate::simd::{LANES, Simd, dispatch};

/// The gradient of layer norm: with g = dy · gamma, a = Σ g / n and b = Σ g x̂ / n (fused multiply-add),
/// `dx = fma(−x̂, b, g − a) · rstd`.
///
/// `x`, `dy`, `dx` are alike in length and kind, `mean` and `rstd` as [`layer_norm`](super::layer_norm) stored them.
///
/// # Panics
/// If lengths or kinds do not fit: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm_grad<'a>(
    isa: Isa,
    x: impl Into<Floats<'a>>,
    dy: impl Into<Floats<'a>>,
    gamma: Option<&[f32]>,
    mean: &[f32],
    rstd: &[f32],
    units: Units,
    dx: impl Into<FloatsMut<'a>>,
) {
    backward(isa, x.into(), dy.into(), gamma, Some(mean), rstd, units, dx.into());
}

/// The gradient of RMS norm: as [`layer_norm_grad`] without a mean and without a.
///
/// # Panics
/// As [`layer_norm_grad`].
pub fn rms_norm_grad<'a>(
    isa: Isa,
    x: impl Into<Floats<'a>>,
    dy: impl Into<Floats<'a>>,
    gamma: Option<&[f32]>,
    rstd: &[f32],
    units: Units,
    dx: impl Into<FloatsMut<'a>>,
) {
    backward(isa, x.into(), dy.into(), gamma, None, rstd, units, dx.into());
}

#[allow(clippy::too_many_arguments)]
fn backward(
    isa: Isa,
    x: Floats<'_>,
    dy: Floats<'_>,
    gamma: Option<&[f32]>,
    mean: Option<&[f32]>,
    rstd: &[f32],
    units: Units,
    dx: FloatsMut<'_>,
) {
    match (x, dy, dx) {
        (Floats::F32(x), Floats::F32(dy), FloatsMut::F32(dx)) => {
            let backward = Backward::new(x, dy, gamma, mean, rstd, units, dx);
            dispatch!(isa, backward_rows::<_, f32>(backward: Backward<f32>));
        }
        (Floats::Bf16(x), Floats::Bf16(dy), FloatsMut::Bf16(dx)) => {
            let backward = Backward::new(x, dy, gamma, mean, rstd, units, dx);
            dispatch!(isa, backward_rows::<_, Bf16>(backward: Backward<Bf16>));
        }
        _ => mixed("a norm's gradient"),
    }
}

struct Backward<'a, E> {
    x: &'a [E],
    dy: &'a [E],
    gamma: Option<&'a [f32]>,
    /// Given for layer norm, not for RMS norm.
    mean: Option<&'a [f32]>,
    rstd: &'a [f32],
    cols: usize,
    order: RowOrder,
    dx: &'a mut [E],
}

impl<'a, E> Backward<'a, E> {
    fn new(
        x: &'a [E],
        dy: &'a [E],
        gamma: Option<&'a [f32]>,
        mean: Option<&'a [f32]>,
        rstd: &'a [f32],
        units: Units,
        dx: &'a mut [E],
    ) -> Backward<'a, E> {
        let cols = columns(x.len(), rstd.len(), units);
        assert!(
            dy.len() == x.len()
                && dx.len() == x.len()
                && mean.is_none_or(|mean| mean.len() == rstd.len())
                && gamma.is_none_or(|gamma| gamma.len() == cols || rstd.is_empty()),
            "bug in unisono: the arguments of a norm's gradient of {} rows of {cols} do not fit",
            rstd.len()
        );
        Backward {
            x,
            dy,
            gamma,
            mean,
            rstd,
            cols,
            order: RowOrder::whole(units),
            dx,
        }
    }
}

#[inline(always)]
fn backward_rows<S: Simd, E: Element>(s: S, this: Backward<E>) {
    let cols = this.cols;
    for row in 0..this.rstd.len() {
        let range = row * cols..(row + 1) * cols;
        let normal = Normal {
            mean: s.splat(this.mean.map_or(0.0, |mean| mean[row])),
            rstd: s.splat(this.rstd[row]),
        };
        let (x, dy) = (&this.x[range.clone()], &this.dy[range.clone()]);
        let dx = &mut this.dx[range];
        backward_row(s, &this.order, x, dy, this.gamma, normal, this.mean.is_some(), dx);
    }
}

/// The elements `i..i + n` of dy · gamma.
#[inline(always)]
fn scaled<S: Simd, E: Element>(s: S, dy: &[E], gamma: Option<&[f32]>, i: usize, n: usize) -> S::F {
    let d = E::read(s, &dy[i..i + n]);
    match gamma {
        Some(gamma) => s.mul(d, s.read(&gamma[i..i + n])),
        None => d,
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn backward_row<S: Simd, E: Element>(
    s: S,
    order: &RowOrder,
    x: &[E],
    dy: &[E],
    gamma: Option<&[f32]>,
    normal: Normal<S::F>,
    centred: bool,
    dx: &mut [E],
) {
    let [a, b] = order
        .sum(
            s,
            x.len(),
            #[inline(always)]
            |i, n, [a, b]| {
                let g = scaled(s, dy, gamma, i, n);
                [s.add(a, g), s.fma(g, normal.of(s, E::read(s, &x[i..i + n])), b)]
            },
        )
        .whole();
    let n = x.len() as f32;
    let (a, b) = (s.splat(if centred { a / n } else { 0.0 }), s.splat(b / n));
    for i in (0..x.len()).step_by(LANES) {
        let n = LANES.min(x.len() - i);
        let centred = s.sub(scaled(s, dy, gamma, i, n), a);
        let v = s.fnma(normal.of(s, E::read(s, &x[i..i + n])), b, centred);
        E::write(s, &mut dx[i..i + n], s.mul(v, normal.rstd));
    }
}
