//! One number in, one number out: activations, arithmetic, scaling.
//!
//! All slices of a call have the same length, any length and alignment; element i of the result depends on elements i only.

use crate::isa::Isa;
use crate::math::lanes;
use crate::simd::{LANES, Simd, dispatch};

mod activation;
mod gradient;

pub use activation::{gelu_erf, gelu_tanh, relu, sigmoid, silu};
pub use gradient::unary_grad;

/// Functions of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// −x.
    Neg,
    /// x where x > 0, else 0; NaN stays.
    Relu,
    /// x · Φ(x), Φ by the error function: [`gelu_erf`].
    Gelu,
    /// The approximation by a hyperbolic tangent: [`gelu_tanh`].
    GeluTanh,
    /// x · σ(x): [`silu`].
    Silu,
    /// eˣ.
    Exp,
    /// Natural logarithm.
    Ln,
    /// Hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e⁻ˣ): [`sigmoid`].
    Sigmoid,
    /// √x.
    Sqrt,
    /// 1 / √x.
    Rsqrt,
    /// x · x.
    Square,
    /// |x|.
    Abs,
}

impl Unary {
    /// All of them.
    pub const ALL: [Unary; 13] = [
        Unary::Neg,
        Unary::Relu,
        Unary::Gelu,
        Unary::GeluTanh,
        Unary::Silu,
        Unary::Exp,
        Unary::Ln,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Square,
        Unary::Abs,
    ];
}

/// Functions of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// a · b.
    Mul,
    /// a / b.
    Div,
    /// The larger; NaN if one is NaN; b of two zeros.
    Max,
    /// The smaller; NaN if one is NaN; b of two zeros.
    Min,
}

impl Binary {
    /// All of them.
    pub const ALL: [Binary; 6] = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Max,
        Binary::Min,
    ];
}

/// `y[i] = op(x[i])`.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn unary(isa: Isa, op: Unary, x: &[f32], y: &mut [f32]) {
    dispatch!(isa, unary_lanes(op: Unary, x: &[f32], y: &mut [f32]));
}

/// `y[i] = op(a[i], b[i])`.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn binary(isa: Isa, op: Binary, a: &[f32], b: &[f32], y: &mut [f32]) {
    dispatch!(isa, binary_lanes(op: Binary, a: &[f32], b: &[f32], y: &mut [f32]));
}

/// `y[i] = op(a[i], b)`.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn binary_scalar(isa: Isa, op: Binary, a: &[f32], b: f32, y: &mut [f32]) {
    dispatch!(isa, binary_scalar_lanes(op: Binary, a: &[f32], b: f32, y: &mut [f32]));
}

/// `y[i] = op(a, b[i])`.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn scalar_binary(isa: Isa, op: Binary, a: f32, b: &[f32], y: &mut [f32]) {
    dispatch!(isa, scalar_binary_lanes(op: Binary, a: f32, b: &[f32], y: &mut [f32]));
}

/// `y[i] = x[i] · factor`.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn scale(isa: Isa, x: &[f32], factor: f32, y: &mut [f32]) {
    binary_scalar(isa, Binary::Mul, x, factor, y);
}

/// `y[i] = value`.
pub fn fill(y: &mut [f32], value: f32) {
    y.fill(value);
}

/// `y[i] = f(s, x[i])`; a tail is padded with +0 on the way in.
///
/// `f` is a lane function by its name, or a closure marked `#[inline(always)]`.
#[inline(always)]
pub(crate) fn map<S: Simd>(s: S, x: &[f32], y: &mut [f32], f: impl Fn(S, S::F) -> S::F) {
    same_length(x.len(), y.len());
    let (x, x_tail) = x.as_chunks::<LANES>();
    let (y, y_tail) = y.as_chunks_mut::<LANES>();
    for (x, y) in x.iter().zip(y) {
        s.write(y, f(s, s.read(x)));
    }
    if !x_tail.is_empty() {
        s.write(y_tail, f(s, s.read(x_tail)));
    }
}

/// `y[i] = f(s, y[i])`; as [`map`].
#[inline(always)]
pub(crate) fn map_in_place<S: Simd>(s: S, y: &mut [f32], f: impl Fn(S, S::F) -> S::F) {
    let (whole, tail) = y.as_chunks_mut::<LANES>();
    for y in whole {
        let v = s.read(y);
        s.write(y, f(s, v));
    }
    if !tail.is_empty() {
        let v = s.read(tail);
        s.write(tail, f(s, v));
    }
}

/// `y[i] = f(s, a[i], b[i])`; as [`map`].
#[inline(always)]
pub(crate) fn zip<S: Simd>(s: S, a: &[f32], b: &[f32], y: &mut [f32], f: impl Fn(S, S::F, S::F) -> S::F) {
    same_length(a.len(), y.len());
    same_length(b.len(), y.len());
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    let (y, y_tail) = y.as_chunks_mut::<LANES>();
    for ((a, b), y) in a.iter().zip(b).zip(y) {
        s.write(y, f(s, s.read(a), s.read(b)));
    }
    if !a_tail.is_empty() {
        s.write(y_tail, f(s, s.read(a_tail), s.read(b_tail)));
    }
}

fn same_length(a: usize, b: usize) {
    assert_eq!(
        a, b,
        "bug in unisono: an elementwise kernel was given {a} and {b} elements"
    );
}

#[inline(always)]
fn unary_lanes<S: Simd>(s: S, op: Unary, x: &[f32], y: &mut [f32]) {
    match op {
        Unary::Neg => map(s, x, y, S::neg),
        Unary::Relu => map(s, x, y, relu),
        Unary::Gelu => map(s, x, y, gelu_erf),
        Unary::GeluTanh => map(s, x, y, gelu_tanh),
        Unary::Silu => map(s, x, y, silu),
        Unary::Exp => map(s, x, y, lanes::exp),
        Unary::Ln => map(s, x, y, lanes::ln),
        Unary::Tanh => map(s, x, y, lanes::tanh),
        Unary::Sigmoid => map(s, x, y, sigmoid),
        Unary::Sqrt => map(s, x, y, S::sqrt),
        Unary::Rsqrt => map(s, x, y, lanes::rsqrt),
        Unary::Square => map(s, x, y, square),
        Unary::Abs => map(s, x, y, S::abs),
    }
}

#[inline(always)]
fn square<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(x, x)
}

/// The larger, or NaN.
#[inline(always)]
fn max_nan<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
    s.select(s.eq(a, a), s.max(a, b), a)
}

/// The smaller, or NaN.
#[inline(always)]
fn min_nan<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
    s.select(s.eq(a, a), s.min(a, b), a)
}

#[inline(always)]
fn binary_lanes<S: Simd>(s: S, op: Binary, a: &[f32], b: &[f32], y: &mut [f32]) {
    match op {
        Binary::Add => zip(s, a, b, y, S::add),
        Binary::Sub => zip(s, a, b, y, S::sub),
        Binary::Mul => zip(s, a, b, y, S::mul),
        Binary::Div => zip(s, a, b, y, S::div),
        Binary::Max => zip(s, a, b, y, max_nan),
        Binary::Min => zip(s, a, b, y, min_nan),
    }
}

#[inline(always)]
fn binary_scalar_lanes<S: Simd>(s: S, op: Binary, a: &[f32], b: f32, y: &mut [f32]) {
    match op {
        Binary::Add => map_second(s, a, b, y, S::add),
        Binary::Sub => map_second(s, a, b, y, S::sub),
        Binary::Mul => map_second(s, a, b, y, S::mul),
        Binary::Div => map_second(s, a, b, y, S::div),
        Binary::Max => map_second(s, a, b, y, max_nan),
        Binary::Min => map_second(s, a, b, y, min_nan),
    }
}

#[inline(always)]
fn scalar_binary_lanes<S: Simd>(s: S, op: Binary, a: f32, b: &[f32], y: &mut [f32]) {
    match op {
        Binary::Add => map_first(s, a, b, y, S::add),
        Binary::Sub => map_first(s, a, b, y, S::sub),
        Binary::Mul => map_first(s, a, b, y, S::mul),
        Binary::Div => map_first(s, a, b, y, S::div),
        Binary::Max => map_first(s, a, b, y, max_nan),
        Binary::Min => map_first(s, a, b, y, min_nan),
    }
}

#[inline(always)]
fn map_second<S: Simd>(s: S, a: &[f32], b: f32, y: &mut [f32], f: impl Fn(S, S::F, S::F) -> S::F) {
    let b = s.splat(b);
    map(
        s,
        a,
        y,
        #[inline(always)]
        |s, a| f(s, a, b),
    );
}

#[inline(always)]
fn map_first<S: Simd>(s: S, a: f32, b: &[f32], y: &mut [f32], f: impl Fn(S, S::F, S::F) -> S::F) {
    let a = s.splat(a);
    map(
        s,
        b,
        y,
        #[inline(always)]
        |s, b| f(s, a, b),
    );
}
