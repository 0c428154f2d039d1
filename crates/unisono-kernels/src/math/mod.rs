//! Own mathematical functions: the same bits on every machine, as nothing here calls the platform's libm.
//!
//! [`lanes`] has them over 16 lanes, generic over the instruction set; the functions of this module are the same code on
//! one number, for the host. Measured errors stand with each function in [`lanes`]; `tests/math.rs` holds them.

use crate::simd::{Portable, Simd};

pub mod lanes;
mod power;
mod trigonometry;

/// eˣ; see [`lanes::exp`].
pub fn exp(x: f32) -> f32 {
    one(x, lanes::exp)
}

/// Natural logarithm; see [`lanes::ln`].
pub fn ln(x: f32) -> f32 {
    one(x, lanes::ln)
}

/// Hyperbolic tangent; see [`lanes::tanh`].
pub fn tanh(x: f32) -> f32 {
    one(x, lanes::tanh)
}

/// The error function; see [`lanes::erf`].
pub fn erf(x: f32) -> f32 {
    one(x, lanes::erf)
}

/// Sine of an angle in radians; see [`lanes::sin`].
pub fn sin(x: f32) -> f32 {
    one(x, lanes::sin)
}

/// Cosine of an angle in radians; see [`lanes::cos`].
pub fn cos(x: f32) -> f32 {
    one(x, lanes::cos)
}

/// 1 / √x; see [`lanes::rsqrt`].
pub fn rsqrt(x: f32) -> f32 {
    one(x, lanes::rsqrt)
}

pub use power::{powf, powi};

/// A lane function on one number, in portable code.
fn one(x: f32, f: impl Fn(Portable, [f32; 16]) -> [f32; 16]) -> f32 {
    let s = Portable::new();
    f(s, s.splat(x))[0]
}
