//! Sine and cosine: reduction to ±π/4 and two short polynomials.

use super::lanes::{ROUND, horner, sign};
use crate::simd::{LANES, Simd};

/// π/2 in three parts, each cut off (not rounded) to 24 bits so that all are positive.
const HALF_PI: [f32; 3] = [
    f32::from_bits(0x3FC9_0FDA),
    f32::from_bits(0x33A2_2168),
    f32::from_bits(0x27C2_34C4),
];

/// From here on an angle is reduced by integers, a lane at a time.
const LARGE: f32 = 131_072.0;

/// 32 zero bits, then 224 bits of 2/π.
const TWO_OVER_PI: [u32; 8] = [
    0,
    0xA2F9_836E,
    0x4E44_1529,
    0xFC27_57D1,
    0xF534_DDC0,
    0xDB62_9599,
    0x3C43_9041,
    0xFE51_63AB,
];

/// Sine, at most 1.5 ulp off for every finite x (any size); NaN for ±∞.
#[inline(always)]
pub fn sin<S: Simd>(s: S, x: S::F) -> S::F {
    sin_cos(s, x).0
}

/// Cosine, at most 1.5 ulp off for every finite x (any size); NaN for ±∞.
#[inline(always)]
pub fn cos<S: Simd>(s: S, x: S::F) -> S::F {
    sin_cos(s, x).1
}

/// Sine and cosine of the same angles for little more than the price of one.
#[inline(always)]
pub fn sin_cos<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let (quadrant, r) = reduce(s, s.abs(x));
    let z = s.mul(r, r);
    // sin r = r + r³ p(r²), relative error 4e-9; cos r = 1 + z (z q(z) − ½), 1.2e-10.
    let p = horner(s, z, [-1.951_828_6e-4, 8.332_189e-3, -1.666_665_5e-1]);
    let sine = s.fma(s.mul(z, r), p, r);
    let q = horner(s, z, [2.443_256_4e-5, -1.388_731_1e-3, 4.166_664_6e-2, -0.5]);
    let cosine = s.fma(z, q, s.splat(1.0));
    let odd = s.eq_u(s.and_u(quadrant, s.splat_u(1)), s.splat_u(1));
    // The sign bits: sine turns in quadrants 2 and 3 and with x, cosine in 1 and 2.
    let turned = s.shl_u(quadrant, 30);
    let next = s.shl_u(s.add_u(quadrant, s.splat_u(1)), 30);
    let top = s.splat_u(0x8000_0000);
    let sine_sign = s.xor_u(s.and_u(turned, top), sign(s, x));
    let cosine_sign = s.and_u(next, top);
    let flip = |v: S::F, sign: S::U| s.from_bits(s.xor_u(s.bits(v), sign));
    (
        flip(s.select(odd, cosine, sine), sine_sign),
        flip(s.select(odd, sine, cosine), cosine_sign),
    )
}

/// `(n, r)` with a = n · π/2 + r, |r| ≤ π/4, for a ≥ 0; only the low two bits of `n` mean anything.
#[inline(always)]
fn reduce<S: Simd>(s: S, a: S::F) -> (S::U, S::F) {
    let t = s.fma(a, s.splat(std::f32::consts::FRAC_2_PI), s.splat(ROUND));
    let n = s.sub(t, s.splat(ROUND));
    // The first product is exact and so is its difference from a (n < 2¹⁷): Cody and Waite with fused multiply-adds.
    let r = s.fnma(n, s.splat(HALF_PI[0]), a);
    let r = s.fnma(n, s.splat(HALF_PI[1]), r);
    let r = s.fnma(n, s.splat(HALF_PI[2]), r);
    let quadrant = s.bits(t);
    if s.any(s.le(s.splat(LARGE), a)) {
        return reduce_large(s, a, quadrant, r);
    }
    (quadrant, r)
}

/// Replaces the reduction of the lanes that are too large for [`reduce`].
#[inline(always)]
fn reduce_large<S: Simd>(s: S, a: S::F, quadrant: S::U, r: S::F) -> (S::U, S::F) {
    let a = s.to_array(a);
    let mut r = s.to_array(r);
    let mut quadrants = [0u32; LANES];
    // SAFETY: the array holds 16 words.
    unsafe { s.store_u(quadrants.as_mut_ptr(), quadrant) };
    for lane in 0..LANES {
        if a[lane] >= LARGE {
            (quadrants[lane], r[lane]) = reduce_by_integers(a[lane]);
        }
    }
    (s.from_array_u(quadrants), s.from_array(r))
}

/// Payne and Hanek's reduction: the 24 bits of `a` times those 96 bits of 2/π that decide the quadrant and the rest.
#[cold]
fn reduce_by_integers(a: f32) -> (u32, f32) {
    if a.is_infinite() {
        return (0, f32::NAN);
    }
    let bits = a.to_bits();
    // a = mantissa · 2^exponent with −6 ≤ exponent ≤ 104.
    let mantissa = u128::from(bits & 0x007F_FFFF | 0x0080_0000);
    let exponent = (bits >> 23) as i32 - 150;
    // Bits of 2/π above this place give multiples of four quadrants.
    let place = (30 + exponent) as usize;
    let word = place / 32;
    let four = TWO_OVER_PI[word..word + 4]
        .iter()
        .fold(0u128, |acc, w| acc << 32 | u128::from(*w));
    let window = four << (place % 32) >> 32;
    // In units of 2⁻⁹⁴ quadrants.
    let product = mantissa * window;
    let nearest = (product + (1 << 93)) >> 94;
    let rest = product as i128 - (nearest << 94) as i128;
    // The conversions are exact roundings, so this is the same everywhere.
    let quadrants = rest as f64 / (1u128 << 94) as f64;
    (nearest as u32, (quadrants * std::f64::consts::FRAC_PI_2) as f32)
}
