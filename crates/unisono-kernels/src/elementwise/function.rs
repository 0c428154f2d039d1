//! Each [`Unary`](super::Unary) as a type with its value and its slope.
//!
//! A type and not a function passed to the loops: a call through `Fn` goes by a shim that does not inherit the features of the
//! loop's instruction set, and that the compiler does not always inline.

use super::activation::{self, CUBIC, ROOT_2_OVER_PI, inner_tanh, normal_cdf};
use crate::math::lanes;
use crate::simd::Simd;

/// A function of one number over lanes.
pub(super) trait Function {
    /// f(x).
    fn value<S: Simd>(s: S, x: S::F) -> S::F;
    /// d · f′(x).
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F;
}

pub(super) struct Neg;

impl Function for Neg {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        s.neg(x)
    }
    #[inline(always)]
    fn grad<S: Simd>(s: S, _: S::F, d: S::F) -> S::F {
        s.neg(d)
    }
}

pub(super) struct Relu;

impl Function for Relu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        activation::relu(s, x)
    }
    /// 0 at 0; a NaN lets the gradient through, as it has stopped the step anyway.
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        s.select(s.le(x, s.zero()), s.zero(), d)
    }
}

pub(super) struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        activation::gelu_erf(s, x)
    }
    /// Φ(x) + x φ(x), φ(x) = e^(−x²/2) / √(2π).
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        const HEIGHT: f32 = 0.5 * std::f32::consts::FRAC_1_SQRT_2 * std::f32::consts::FRAC_2_SQRT_PI;
        let bell = lanes::exp(s, s.mul(s.mul(x, x), s.splat(-0.5)));
        let density = s.mul(bell, s.splat(HEIGHT));
        s.mul(d, s.fma(x, density, normal_cdf(s, x)))
    }
}

pub(super) struct GeluTanh;

impl Function for GeluTanh {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        activation::gelu_tanh(s, x)
    }
    /// ½ (1 + t) + ½ x (1 − t²) u′, u′ = √(2/π) (1 + 3 · 0.044715 x²).
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        let (half, one) = (s.splat(0.5), s.splat(1.0));
        let t = inner_tanh(s, x);
        let slope = s.fma(s.splat(3.0 * CUBIC), s.mul(x, x), one);
        let slope = s.mul(s.splat(ROOT_2_OVER_PI), slope);
        let side = s.mul(s.mul(s.mul(half, x), s.fnma(t, t, one)), slope);
        s.mul(d, s.fma(half, s.add(one, t), side))
    }
}

pub(super) struct Silu;

impl Function for Silu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        activation::silu(s, x)
    }
    /// σ (1 + x (1 − σ)).
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        let one = s.splat(1.0);
        let y = activation::sigmoid(s, x);
        s.mul(d, s.mul(y, s.fma(x, s.sub(one, y), one)))
    }
}

pub(super) struct Exp;

impl Function for Exp {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        lanes::exp(s, x)
    }
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        s.mul(d, lanes::exp(s, x))
    }
}

pub(super) struct Ln;

impl Function for Ln {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        lanes::ln(s, x)
    }
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        s.div(d, x)
    }
}

pub(super) struct Tanh;

impl Function for Tanh {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        lanes::tanh(s, x)
    }
    /// 1 − t².
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        let t = lanes::tanh(s, x);
        s.mul(d, s.fnma(t, t, s.splat(1.0)))
    }
}

pub(super) struct Sigmoid;

impl Function for Sigmoid {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        activation::sigmoid(s, x)
    }
    /// σ (1 − σ).
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        let y = activation::sigmoid(s, x);
        s.mul(d, s.mul(y, s.sub(s.splat(1.0), y)))
    }
}

pub(super) struct Sqrt;

impl Function for Sqrt {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        s.sqrt(x)
    }
    /// ½ / √x.
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        s.div(s.mul(d, s.splat(0.5)), s.sqrt(x))
    }
}

pub(super) struct Rsqrt;

impl Function for Rsqrt {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        lanes::rsqrt(s, x)
    }
    /// −½ r³ with r = 1 / √x.
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        let r = lanes::rsqrt(s, x);
        s.mul(s.mul(d, s.splat(-0.5)), s.mul(s.mul(r, r), r))
    }
}

pub(super) struct Square;

impl Function for Square {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        s.mul(x, x)
    }
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        s.mul(d, s.add(x, x))
    }
}

pub(super) struct Abs;

impl Function for Abs {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        s.abs(x)
    }
    /// The sign of x, 0 at 0.
    #[inline(always)]
    fn grad<S: Simd>(s: S, x: S::F, d: S::F) -> S::F {
        let turned = s.select(s.lt(x, s.zero()), s.neg(d), d);
        s.select(s.eq(x, s.zero()), s.zero(), turned)
    }
}
