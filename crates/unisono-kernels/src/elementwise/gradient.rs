//! The derivatives of [`Unary`] at the input.

use super::activation::{CUBIC, ROOT_2_OVER_PI, inner_tanh, normal_cdf, sigmoid};
use super::{Unary, zip};
use crate::isa::Isa;
use crate::math::lanes;
use crate::simd::{Simd, dispatch};

/// `dx[i] = dy[i] · op′(x[i])`, x being the input of the forward call.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn unary_grad(isa: Isa, op: Unary, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    dispatch!(isa, unary_grad_lanes(op: Unary, x: &[f32], dy: &[f32], dx: &mut [f32]));
}

#[inline(always)]
fn unary_grad_lanes<S: Simd>(s: S, op: Unary, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    match op {
        Unary::Neg => zip(s, x, dy, dx, neg),
        Unary::Relu => zip(s, x, dy, dx, relu),
        Unary::Gelu => zip(s, x, dy, dx, gelu_erf),
        Unary::GeluTanh => zip(s, x, dy, dx, gelu_tanh),
        Unary::Silu => zip(s, x, dy, dx, silu),
        Unary::Exp => zip(s, x, dy, dx, exp),
        Unary::Ln => zip(s, x, dy, dx, ln),
        Unary::Tanh => zip(s, x, dy, dx, tanh),
        Unary::Sigmoid => zip(s, x, dy, dx, logistic),
        Unary::Sqrt => zip(s, x, dy, dx, sqrt),
        Unary::Rsqrt => zip(s, x, dy, dx, rsqrt),
        Unary::Square => zip(s, x, dy, dx, square),
        Unary::Abs => zip(s, x, dy, dx, abs),
    }
}

#[inline(always)]
fn neg<S: Simd>(s: S, _: S::F, d: S::F) -> S::F {
    s.neg(d)
}

/// 0 at 0; a NaN lets the gradient through, as it has stopped the step anyway.
#[inline(always)]
fn relu<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.select(s.le(x, s.zero()), s.zero(), d)
}

#[inline(always)]
fn gelu_erf<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.mul(d, gelu_erf_slope(s, x))
}

#[inline(always)]
fn gelu_tanh<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.mul(d, gelu_tanh_slope(s, x))
}

#[inline(always)]
fn silu<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.mul(d, silu_slope(s, x))
}

#[inline(always)]
fn exp<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.mul(d, lanes::exp(s, x))
}

#[inline(always)]
fn ln<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.div(d, x)
}

/// 1 − t².
#[inline(always)]
fn tanh<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    let t = lanes::tanh(s, x);
    s.mul(d, s.fnma(t, t, s.splat(1.0)))
}

/// σ (1 − σ).
#[inline(always)]
fn logistic<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    let y = sigmoid(s, x);
    s.mul(d, s.mul(y, s.sub(s.splat(1.0), y)))
}

/// ½ / √x.
#[inline(always)]
fn sqrt<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.div(s.mul(d, s.splat(0.5)), s.sqrt(x))
}

/// −½ r³ with r = 1 / √x.
#[inline(always)]
fn rsqrt<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    let r = lanes::rsqrt(s, x);
    s.mul(s.mul(d, s.splat(-0.5)), s.mul(s.mul(r, r), r))
}

#[inline(always)]
fn square<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    s.mul(d, s.add(x, x))
}

/// The sign of x, 0 at 0.
#[inline(always)]
fn abs<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
    let turned = s.select(s.lt(x, s.zero()), s.neg(d), d);
    s.select(s.eq(x, s.zero()), s.zero(), turned)
}

/// Φ(x) + x φ(x), φ(x) = e^(−x²/2) / √(2π).
#[inline(always)]
fn gelu_erf_slope<S: Simd>(s: S, x: S::F) -> S::F {
    let density = lanes::exp(s, s.mul(s.mul(x, x), s.splat(-0.5)));
    let density = s.mul(
        density,
        s.splat(0.5 * std::f32::consts::FRAC_1_SQRT_2 * std::f32::consts::FRAC_2_SQRT_PI),
    );
    s.fma(x, density, normal_cdf(s, x))
}

/// ½ (1 + t) + ½ x (1 − t²) u′, u′ = √(2/π) (1 + 3 · 0.044715 x²).
#[inline(always)]
fn gelu_tanh_slope<S: Simd>(s: S, x: S::F) -> S::F {
    let (half, one) = (s.splat(0.5), s.splat(1.0));
    let t = inner_tanh(s, x);
    let slope = s.fma(s.splat(3.0 * CUBIC), s.mul(x, x), one);
    let slope = s.mul(s.splat(ROOT_2_OVER_PI), slope);
    let side = s.mul(s.mul(s.mul(half, x), s.fnma(t, t, one)), slope);
    s.fma(half, s.add(one, t), side)
}

/// σ (1 + x (1 − σ)).
#[inline(always)]
fn silu_slope<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let y = sigmoid(s, x);
    s.mul(y, s.fma(x, s.sub(one, y), one))
}
