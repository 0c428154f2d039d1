//! Powers: x^y by f64 arithmetic of our own, and integer powers by squaring.

use crate::simd::{LANES, Simd};

/// `base` to the power `n` by squaring, from the lowest bit of `n` up: the bias corrections of Adam.
pub fn powi(base: f64, n: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, n);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

/// x^y lane by lane: [`powf`].
#[inline(always)]
pub fn powf_lanes<S: Simd>(s: S, x: S::F, y: S::F) -> S::F {
    let (x, y) = (s.to_array(x), s.to_array(y));
    let mut z = [0.0; LANES];
    for lane in 0..LANES {
        z[lane] = powf(x[lane], y[lane]);
    }
    s.from_array(z)
}

/// x^y, at most 0.51 ulp off for all x and y, with the special cases of IEEE 754: x⁰ = 1 and 1^y = 1 even for NaN; a negative
/// x needs an integer y.
///
/// Works through 2^(y · log₂ x) in f64 without fused operations, to about 45 bits, and rounds once.
pub fn powf(x: f32, y: f32) -> f32 {
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    if x.is_nan() || y.is_nan() {
        return f32::NAN;
    }
    let a = x.abs();
    let odd = is_odd(y);
    let sign = if odd && x.is_sign_negative() { -1.0 } else { 1.0 };
    if a == 0.0 || a.is_infinite() {
        let to_zero = (a == 0.0) == (y > 0.0);
        return sign * if to_zero { 0.0 } else { f32::INFINITY };
    }
    if y.is_infinite() {
        let to_infinity = (a > 1.0) == (y > 0.0);
        return match a {
            1.0 => 1.0,
            _ if to_infinity => f32::INFINITY,
            _ => 0.0,
        };
    }
    if x < 0.0 && !is_integer(y) {
        return f32::NAN;
    }
    let exponent = f64::from(y) * log2(f64::from(a));
    sign * exp2(exponent.clamp(-200.0, 200.0)) as f32
}

/// Whether `y` is an integer.
fn is_integer(y: f32) -> bool {
    y.abs() >= 8_388_608.0 || y as i32 as f32 == y
}

/// Whether `y` is an odd integer; from 2²⁴ on all are even.
fn is_odd(y: f32) -> bool {
    y.abs() < 16_777_216.0 && y as i32 as f32 == y && y as i32 & 1 == 1
}

/// Binary logarithm of a positive normal number.
fn log2(x: f64) -> f64 {
    // x = m · 2ⁿ with m in √½..√2; log₂ m = 2/ln 2 · artanh((m − 1)/(m + 1)) by its series, to 2⁻⁵⁵.
    let bits = x.to_bits();
    let n = (bits as i64 - 0x3FE6_A09E_667F_3BCD) >> 52;
    let m = f64::from_bits((bits as i64 - (n << 52)) as u64);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut sum = 0.0;
    for k in (0..11).rev() {
        sum = sum * z + 2.0 / f64::from(2 * k + 1);
    }
    n as f64 + s * sum * std::f64::consts::LOG2_E
}

/// 2ˣ for |x| ≤ 200.
fn exp2(x: f64) -> f64 {
    // The usual trick: adding 1.5 · 2⁵² rounds to an integer and leaves it in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let t = x + ROUND;
    let n = t.to_bits() as i64 - ROUND.to_bits() as i64;
    let r = (x - (t - ROUND)) * std::f64::consts::LN_2;
    // eʳ by its series for |r| ≤ ln 2 / 2, to 2⁻⁴⁷.
    let mut sum = 1.0;
    for k in (1..13).rev() {
        sum = 1.0 + r * sum / f64::from(k);
    }
    sum * f64::from_bits(((n + 1023) << 52) as u64)
}
