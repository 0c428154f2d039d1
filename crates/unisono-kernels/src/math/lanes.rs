//! The mathematical functions over 16 lanes.
//!
//! Polynomials are minimax fits (Lawson's iteration, coefficients rounded to f32 one after the other from the lowest
//! degree) on reductions that are exact or nearly so; every multiply-add below is a fused one. The errors given are the
//! largest measured over the range by `tests/math.rs`, in units in the last place of the result.

use crate::simd::Simd;

pub use super::power::powf_lanes as powf;
pub use super::trigonometry::{cos, sin, sin_cos};

/// Adding it rounds to an integer (nearest even) for |x| < 2²², and leaves that integer in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³

/// ln 2 to 16 bits, so that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_145_75;
/// ln 2 − `LN2_HIGH`.
const LN2_LOW: f32 = 1.428_606_8e-6;

/// A polynomial by Horner's rule, coefficients from the highest degree down.
#[inline(always)]
pub(crate) fn horner<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut sum = s.splat(coefficients[0]);
    for c in &coefficients[1..] {
        sum = s.fma(sum, x, s.splat(*c));
    }
    sum
}

/// 2ⁿ for each of the signed words `n` in −126..=127.
#[inline(always)]
fn power_of_two<S: Simd>(s: S, n: S::U) -> S::F {
    s.from_bits(s.shl_u(s.add_u(n, s.splat_u(127)), 23))
}

/// `(p, n)` with eˣ = p · 2ⁿ, p in 0.7..1.42, for −105 ≤ x ≤ 90.
#[inline(always)]
fn exp_parts<S: Simd>(s: S, x: S::F) -> (S::F, S::U) {
    let t = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(t, s.splat(ROUND));
    let r = s.fnma(n, s.splat(LN2_HIGH), x);
    let r = s.fnma(n, s.splat(LN2_LOW), r);
    // eʳ = 1 + (r + r² q(r)) for |r| ≤ ln 2 / 2, relative error 3.1e-9.
    let q = horner(
        s,
        r,
        [
            1.382_099_9e-3,
            8.368_671e-3,
            4.166_826_2e-2,
            1.666_652_1e-1,
            4.999_999_4e-1,
        ],
    );
    let p = s.add(s.splat(1.0), s.fma(s.mul(r, r), q, r));
    (p, s.sub_u(s.bits(t), s.splat_u(ROUND.to_bits())))
}

/// eˣ, at most 0.98 ulp off for every x: denormal results are rounded once, e^−∞ = +0, e^+∞ = +∞, NaN stays NaN.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Beyond these the result is 0 or +∞ anyway; a NaN is the second operand and so comes through.
    let x = s.min(s.splat(90.0), s.max(s.splat(-105.0), x));
    let (p, n) = exp_parts(s, x);
    // 2ⁿ in two factors: n is −151 to 130, and only the second product can round.
    let half = s.sar_u(n, 1);
    s.mul(s.mul(p, power_of_two(s, half)), power_of_two(s, s.sub_u(n, half)))
}

/// eˣ for −87 ≤ x ≤ 88, where the result is a normal number and one factor is enough; +∞ from 88.4 to 89.
#[inline(always)]
fn exp_normal<S: Simd>(s: S, x: S::F) -> S::F {
    let (p, n) = exp_parts(s, x);
    s.mul(p, power_of_two(s, n))
}

/// eˣ for x ≤ 88.3, +∞ from 88.4 on, and no smaller than e⁻⁸⁷.
#[inline(always)]
pub(crate) fn exp_or_infinity<S: Simd>(s: S, x: S::F) -> S::F {
    // From 127.5 ln 2 = 88.38 on the factor is 2¹²⁸, whose bits are those of +∞.
    exp_normal(s, s.min(s.splat(89.0), s.max(s.splat(-87.0), x)))
}

/// Natural logarithm, at most 0.85 ulp off: ln ±0 = −∞, ln +∞ = +∞, NaN for x < 0.
#[inline(always)]
pub fn ln<S: Simd>(s: S, x: S::F) -> S::F {
    let smallest = s.splat(f32::MIN_POSITIVE);
    let denormal = s.lt(x, smallest);
    let scaled = s.select(denormal, s.mul(x, s.splat(8_388_608.0)), x);
    let shift = s.select(denormal, s.splat(-23.0), s.zero());
    // x = m · 2ⁿ with m in √½..√2.
    let root_half = s.splat_u(0x3F35_04F3);
    let n = s.sar_u(s.sub_u(s.bits(scaled), root_half), 23);
    let m = s.from_bits(s.sub_u(s.bits(scaled), s.shl_u(n, 23)));
    let n = s.add(s.from_i32(n), shift);
    let f = s.sub(m, s.splat(1.0));
    // ln(1 + f) = f + f² q(f), relative error 7.8e-10.
    let q = horner(
        s,
        f,
        [
            6.750_85e-2,
            -1.167_380_14e-1,
            1.188_478_25e-1,
            -1.240_580_1e-1,
            1.422_017_7e-1,
            -1.666_800_1e-1,
            2.000_207_8e-1,
            -2.500_001e-1,
            3.333_331_3e-1,
            -0.5,
        ],
    );
    let tail = s.fma(n, s.splat(LN2_LOW), s.mul(s.mul(f, f), q));
    let y = s.fma(n, s.splat(LN2_HIGH), s.add(f, tail));
    // What the bit fields made of x ≤ 0, +∞ and NaN is replaced.
    let positive = s.lt(s.zero(), x);
    let finite = s.lt(x, s.splat(f32::INFINITY));
    let zero = s.eq(x, s.zero());
    let odd = s.select(zero, s.splat(f32::NEG_INFINITY), s.splat(f32::NAN));
    let odd = s.select(positive, x, odd);
    s.select(s.and_m(positive, finite), y, odd)
}

/// The bits of the sign of each lane.
#[inline(always)]
pub(super) fn sign<S: Simd>(s: S, x: S::F) -> S::U {
    s.and_u(s.bits(x), s.splat_u(0x8000_0000))
}

/// `magnitude` with the sign bit of `x`, where the sign bit of `magnitude` is clear.
#[inline(always)]
fn with_sign<S: Simd>(s: S, magnitude: S::F, x: S::F) -> S::F {
    s.from_bits(s.or_u(s.bits(magnitude), sign(s, x)))
}

/// Hyperbolic tangent, at most 1.28 ulp off; odd, ±1 at ±∞.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    // tanh a = a + a³ p(a²) below 0.63, relative error 4.8e-9.
    let z = s.mul(a, a);
    let p = horner(
        s,
        z,
        [
            -5.665_064e-3,
            2.060_429_6e-2,
            -5.372_936_7e-2,
            1.333_132_2e-1,
            -3.333_327_8e-1,
        ],
    );
    let small = s.fma(s.mul(z, a), p, a);
    // 1 − 2 / (e²ᵃ + 1) above; from 10 on that is 1.
    let e = exp_normal(s, s.min(s.splat(20.0), s.add(a, a)));
    let large = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    with_sign(s, s.select(s.lt(a, s.splat(0.63)), small, large), x)
}

/// The error function, at most 0.97 ulp off; odd, ±1 at ±∞.
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let a = s.abs(x);
    // erf a = a + a p(a²) below 0.92, relative error 9e-10.
    let z = s.mul(a, a);
    let p = horner(
        s,
        z,
        [
            7.996_656_5e-5,
            -8.049_77e-4,
            5.192_405e-3,
            -2.685_573_1e-2,
            1.128_362_6e-1,
            -3.761_263e-1,
            1.283_791_7e-1,
        ],
    );
    let small = s.fma(a, p, a);
    // erf a = 1 − exp(−(a + a p(a))) from there to 4, absolute error 1e-9; 1 above. (The form is Juffa's.)
    let b = s.min(s.splat(4.0), a);
    let p = horner(
        s,
        b,
        [
            1.123_189_2e-5,
            -3.228_126_7e-4,
            3.642_506e-3,
            -2.376_218_3e-2,
            1.062_370_4e-1,
            6.351_512e-1,
            1.286_485_2e-1,
        ],
    );
    let large = s.sub(s.splat(1.0), exp_normal(s, s.neg(s.fma(b, p, b))));
    with_sign(s, s.select(s.lt(a, s.splat(0.92)), small, large), x)
}

/// 1 / √x by a square root and a division, at most 1.48 ulp off: +∞ at +0, −∞ at −0, NaN below.
#[inline(always)]
pub fn rsqrt<S: Simd>(s: S, x: S::F) -> S::F {
    s.div(s.splat(1.0), s.sqrt(x))
}
