//! The mathematical functions over 16 lanes.
//!
//! Polynomials are minimax fits (Lawson's iteration, coefficients rounded to f32 one after the other from the lowest
//! degree) on reductions that are exact or nearly so; every multiply-add below is a fused one.

use crate::simd::Simd;

/// Adding it rounds to an integer (nearest even) for |x| < 2²², and leaves that integer in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³

/// A polynomial by Horner's rule, coefficients from the highest degree down.
#[inline(always)]
pub(super) fn horner<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
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

/// eˣ, at most 1 ulp off, for every x: denormal results are rounded once, e^−∞ = +0, e^+∞ = +∞, NaN stays.
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    // Beyond these the result is 0 or +∞ anyway; a NaN is the second operand and so comes through.
    let x = s.min(s.splat(90.0), s.max(s.splat(-105.0), x));
    let t = s.fma(x, s.splat(std::f32::consts::LOG2_E), s.splat(ROUND));
    let n = s.sub(t, s.splat(ROUND));
    // ln 2 in two parts, the first of 16 bits, so that n · LN2_HIGH is exact.
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
    // 2ⁿ in two factors: n is −151 to 130, and only the second product can round.
    let n = s.sub_u(s.bits(t), s.splat_u(ROUND.to_bits()));
    let half = s.sar_u(n, 1);
    s.mul(s.mul(p, power_of_two(s, half)), power_of_two(s, s.sub_u(n, half)))
}

/// ln 2 to 16 bits.
const LN2_HIGH: f32 = 0.693_145_75;
/// ln 2 − `LN2_HIGH`.
const LN2_LOW: f32 = 1.428_606_8e-6;
