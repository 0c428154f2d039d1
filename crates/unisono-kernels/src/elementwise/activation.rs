//! The activations over lanes, for this module and for the epilogues of products.

use crate::math::lanes;
use crate::simd::Simd;

/// √½.
pub(super) const ROOT_HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
/// √(2/π).
pub(super) const ROOT_2_OVER_PI: f32 = 0.797_884_6;
/// The cubic term of the approximation by tanh.
pub(super) const CUBIC: f32 = 0.044_715;

/// x where x > 0, else 0 (−0 stays −0, NaN stays NaN).
#[inline(always)]
pub fn relu<S: Simd>(s: S, x: S::F) -> S::F {
    s.max(s.zero(), x)
}

/// σ(x) = 1 / (1 + e⁻ˣ), by z = e^−|x|: 1 / (1 + z) or z / (1 + z), so that small results keep their accuracy.
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let one = s.splat(1.0);
    let z = lanes::exp(s, s.neg(s.abs(x)));
    s.div(s.select(s.lt(x, s.zero()), z, one), s.add(one, z))
}

/// x · σ(x).
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(x, sigmoid(s, x))
}

/// Φ(x) = (1 + erf(x · √½)) · ½, the standard normal distribution function.
#[inline(always)]
pub(super) fn normal_cdf<S: Simd>(s: S, x: S::F) -> S::F {
    let e = lanes::erf(s, s.mul(x, s.splat(ROOT_HALF)));
    // Exact but for the sum's rounding: halving does not round (the sum is no denormal).
    s.mul(s.add(s.splat(1.0), e), s.splat(0.5))
}

/// GELU, exact form: x · Φ(x) (Hendrycks and Gimpel, *Gaussian error linear units*).
#[inline(always)]
pub fn gelu_erf<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(x, normal_cdf(s, x))
}

/// u = √(2/π) · (x + 0.044715 x³), the inner sum as x · fma(0.044715, x², 1).
#[inline(always)]
fn inner<S: Simd>(s: S, x: S::F) -> S::F {
    let sum = s.mul(x, s.fma(s.splat(CUBIC), s.mul(x, x), s.splat(1.0)));
    s.mul(s.splat(ROOT_2_OVER_PI), sum)
}

/// tanh(u) with that u.
#[inline(always)]
pub(super) fn inner_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    lanes::tanh(s, inner(s, x))
}

/// GELU by a hyperbolic tangent, as GPT-2 has it: ½ x (1 + tanh(u)) with u = √(2/π) (x + 0.044715 x³), which is
/// x / (1 + e⁻²ᵘ): so it takes one exponential, and loses nothing below 0, where the sum would cancel.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let e = lanes::exp_or_infinity(s, s.mul(s.splat(-2.0), inner(s, x)));
    s.div(x, s.add(s.splat(1.0), e))
}
