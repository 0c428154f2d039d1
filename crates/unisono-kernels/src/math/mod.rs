//! Own mathematical functions: the same bits on every machine, as nothing here calls the platform's libm.
//!
//! [`lanes`] has them over 16 lanes, generic over the instruction set; the functions of this module are the same code on
//! one number, for the host. Measured errors stand with each function in [`lanes`]; `tests/math.rs` holds them.

use crate::simd::{Portable, Simd};

pub mod lanes;

/// eˣ; see [`lanes::exp`].
pub fn exp(x: f32) -> f32 {
    one(x, lanes::exp)
}

/// A lane function on one number, in portable code.
fn one(x: f32, f: impl Fn(Portable, [f32; 16]) -> [f32; 16]) -> f32 {
    let s = Portable::new();
    f(s, s.splat(x))[0]
}
