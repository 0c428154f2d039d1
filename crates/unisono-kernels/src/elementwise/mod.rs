//! One number in, one number out: activations, arithmetic, scaling.
//!
//! All arrays of a call have the same length, any length and alignment, and are of one kind; element i of the result depends on elements i only.

use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};

mod activation;
mod function;
mod swiglu;

pub use activation::{gelu_erf, gelu_tanh, relu, sigmoid, silu};
pub use swiglu::{swiglu, swiglu_grad};

use function::Function;

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
/// If lengths or kinds differ: a bug in unisono.
pub fn unary<'a>(isa: Isa, op: Unary, x: impl Into<Floats<'a>>, y: impl Into<FloatsMut<'a>>) {
    unary_of(isa, op, x.into(), y.into());
}

fn unary_of(isa: Isa, op: Unary, x: Floats<'_>, y: FloatsMut<'_>) {
    match (x, y) {
        (Floats::F32(x), FloatsMut::F32(y)) => {
            dispatch!(isa, unary_lanes::<_, f32>(op: Unary, x: &[f32], y: &mut [f32]));
        }
        (Floats::Bf16(x), FloatsMut::Bf16(y)) => {
            dispatch!(isa, unary_lanes::<_, Bf16>(op: Unary, x: &[Bf16], y: &mut [Bf16]));
        }
        _ => mixed("a function of one number"),
    }
}

/// `dx[i] = dy[i] · op′(x[i])`, x being the input of the forward call.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn unary_grad<'a>(
    isa: Isa,
    op: Unary,
    x: impl Into<Floats<'a>>,
    dy: impl Into<Floats<'a>>,
    dx: impl Into<FloatsMut<'a>>,
) {
    unary_grad_of(isa, op, x.into(), dy.into(), dx.into());
}

fn unary_grad_of(isa: Isa, op: Unary, x: Floats<'_>, dy: Floats<'_>, dx: FloatsMut<'_>) {
    match (x, dy, dx) {
        (Floats::F32(x), Floats::F32(dy), FloatsMut::F32(dx)) => {
            dispatch!(isa, unary_grad_lanes::<_, f32>(op: Unary, x: &[f32], dy: &[f32], dx: &mut [f32]));
        }
        (Floats::Bf16(x), Floats::Bf16(dy), FloatsMut::Bf16(dx)) => {
            dispatch!(isa, unary_grad_lanes::<_, Bf16>(op: Unary, x: &[Bf16], dy: &[Bf16], dx: &mut [Bf16]));
        }
        _ => mixed("the gradient of a function of one number"),
    }
}

/// `y[i] = op(a[i], b[i])`.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn binary<'a>(
    isa: Isa,
    op: Binary,
    a: impl Into<Floats<'a>>,
    b: impl Into<Floats<'a>>,
    y: impl Into<FloatsMut<'a>>,
) {
    binary_of(isa, op, a.into(), b.into(), y.into());
}

fn binary_of(isa: Isa, op: Binary, a: Floats<'_>, b: Floats<'_>, y: FloatsMut<'_>) {
    match (a, b, y) {
        (Floats::F32(a), Floats::F32(b), FloatsMut::F32(y)) => {
            dispatch!(isa, binary_lanes::<_, f32>(op: Binary, a: &[f32], b: &[f32], y: &mut [f32]));
        }
        (Floats::Bf16(a), Floats::Bf16(b), FloatsMut::Bf16(y)) => {
            dispatch!(isa, binary_lanes::<_, Bf16>(op: Binary, a: &[Bf16], b: &[Bf16], y: &mut [Bf16]));
        }
        _ => mixed("a function of two numbers"),
    }
}

/// `y[i] = op(a[i], b)`; `b` is not rounded to what the arrays hold.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn binary_scalar<'a>(isa: Isa, op: Binary, a: impl Into<Floats<'a>>, b: f32, y: impl Into<FloatsMut<'a>>) {
    binary_scalar_of(isa, op, a.into(), b, y.into());
}

fn binary_scalar_of(isa: Isa, op: Binary, a: Floats<'_>, b: f32, y: FloatsMut<'_>) {
    match (a, y) {
        (Floats::F32(a), FloatsMut::F32(y)) => {
            dispatch!(isa, binary_scalar_lanes::<_, f32>(op: Binary, a: &[f32], b: f32, y: &mut [f32]));
        }
        (Floats::Bf16(a), FloatsMut::Bf16(y)) => {
            dispatch!(isa, binary_scalar_lanes::<_, Bf16>(op: Binary, a: &[Bf16], b: f32, y: &mut [Bf16]));
        }
        _ => mixed("a function of two numbers"),
    }
}

/// `y[i] = op(a, b[i])`; `a` is not rounded to what the arrays hold.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn scalar_binary<'a>(isa: Isa, op: Binary, a: f32, b: impl Into<Floats<'a>>, y: impl Into<FloatsMut<'a>>) {
    scalar_binary_of(isa, op, a, b.into(), y.into());
}

fn scalar_binary_of(isa: Isa, op: Binary, a: f32, b: Floats<'_>, y: FloatsMut<'_>) {
    match (b, y) {
        (Floats::F32(b), FloatsMut::F32(y)) => {
            dispatch!(isa, scalar_binary_lanes::<_, f32>(op: Binary, a: f32, b: &[f32], y: &mut [f32]));
        }
        (Floats::Bf16(b), FloatsMut::Bf16(y)) => {
            dispatch!(isa, scalar_binary_lanes::<_, Bf16>(op: Binary, a: f32, b: &[Bf16], y: &mut [Bf16]));
        }
        _ => mixed("a function of two numbers"),
    }
}

/// `y[i] = x[i] · factor`.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn scale<'a>(isa: Isa, x: impl Into<Floats<'a>>, factor: f32, y: impl Into<FloatsMut<'a>>) {
    binary_scalar(isa, Binary::Mul, x, factor, y);
}

/// `y[i] = value`.
pub fn fill(y: &mut [f32], value: f32) {
    y.fill(value);
}

/// `y[i] = f(s, x[i])`; a tail is padded with +0 on the way in.
///
/// `f` is a closure marked `#[inline(always)]`, or the name of an operation of a few instructions: a larger function passed by
/// name is not always inlined (see [`function`]).
#[inline(always)]
pub(crate) fn map<S: Simd, E: Element>(s: S, x: &[E], y: &mut [E], f: impl Fn(S, S::F) -> S::F) {
    same_length(x.len(), y.len());
    let (x, x_tail) = x.as_chunks::<LANES>();
    let (y, y_tail) = y.as_chunks_mut::<LANES>();
    for (x, y) in x.iter().zip(y) {
        E::write(s, y, f(s, E::read(s, x)));
    }
    if !x_tail.is_empty() {
        E::write(s, y_tail, f(s, E::read(s, x_tail)));
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
pub(crate) fn zip<S: Simd, E: Element>(s: S, a: &[E], b: &[E], y: &mut [E], f: impl Fn(S, S::F, S::F) -> S::F) {
    same_length(a.len(), y.len());
    same_length(b.len(), y.len());
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    let (y, y_tail) = y.as_chunks_mut::<LANES>();
    for ((a, b), y) in a.iter().zip(b).zip(y) {
        E::write(s, y, f(s, E::read(s, a), E::read(s, b)));
    }
    if !a_tail.is_empty() {
        E::write(s, y_tail, f(s, E::read(s, a_tail), E::read(s, b_tail)));
    }
}

fn same_length(a: usize, b: usize) {
    assert_eq!(
        a, b,
        "bug in unisono: an elementwise kernel was given {a} and {b} elements"
    );
}

#[inline(always)]
fn unary_lanes<S: Simd, E: Element>(s: S, op: Unary, x: &[E], y: &mut [E]) {
    match op {
        Unary::Neg => values::<S, E, function::Neg>(s, x, y),
        Unary::Relu => values::<S, E, function::Relu>(s, x, y),
        Unary::Gelu => values::<S, E, function::Gelu>(s, x, y),
        Unary::GeluTanh => values::<S, E, function::GeluTanh>(s, x, y),
        Unary::Silu => values::<S, E, function::Silu>(s, x, y),
        Unary::Exp => values::<S, E, function::Exp>(s, x, y),
        Unary::Ln => values::<S, E, function::Ln>(s, x, y),
        Unary::Tanh => values::<S, E, function::Tanh>(s, x, y),
        Unary::Sigmoid => values::<S, E, function::Sigmoid>(s, x, y),
        Unary::Sqrt => values::<S, E, function::Sqrt>(s, x, y),
        Unary::Rsqrt => values::<S, E, function::Rsqrt>(s, x, y),
        Unary::Square => values::<S, E, function::Square>(s, x, y),
        Unary::Abs => values::<S, E, function::Abs>(s, x, y),
    }
}

#[inline(always)]
fn unary_grad_lanes<S: Simd, E: Element>(s: S, op: Unary, x: &[E], dy: &[E], dx: &mut [E]) {
    match op {
        Unary::Neg => grads::<S, E, function::Neg>(s, x, dy, dx),
        Unary::Relu => grads::<S, E, function::Relu>(s, x, dy, dx),
        Unary::Gelu => grads::<S, E, function::Gelu>(s, x, dy, dx),
        Unary::GeluTanh => grads::<S, E, function::GeluTanh>(s, x, dy, dx),
        Unary::Silu => grads::<S, E, function::Silu>(s, x, dy, dx),
        Unary::Exp => grads::<S, E, function::Exp>(s, x, dy, dx),
        Unary::Ln => grads::<S, E, function::Ln>(s, x, dy, dx),
        Unary::Tanh => grads::<S, E, function::Tanh>(s, x, dy, dx),
        Unary::Sigmoid => grads::<S, E, function::Sigmoid>(s, x, dy, dx),
        Unary::Sqrt => grads::<S, E, function::Sqrt>(s, x, dy, dx),
        Unary::Rsqrt => grads::<S, E, function::Rsqrt>(s, x, dy, dx),
        Unary::Square => grads::<S, E, function::Square>(s, x, dy, dx),
        Unary::Abs => grads::<S, E, function::Abs>(s, x, dy, dx),
    }
}

#[inline(always)]
fn values<S: Simd, E: Element, F: Function>(s: S, x: &[E], y: &mut [E]) {
    map(
        s,
        x,
        y,
        #[inline(always)]
        |s, x| F::value(s, x),
    );
}

#[inline(always)]
fn grads<S: Simd, E: Element, F: Function>(s: S, x: &[E], dy: &[E], dx: &mut [E]) {
    zip(
        s,
        x,
        dy,
        dx,
        #[inline(always)]
        |s, x, d| F::grad(s, x, d),
    );
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
fn binary_lanes<S: Simd, E: Element>(s: S, op: Binary, a: &[E], b: &[E], y: &mut [E]) {
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
fn binary_scalar_lanes<S: Simd, E: Element>(s: S, op: Binary, a: &[E], b: f32, y: &mut [E]) {
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
fn scalar_binary_lanes<S: Simd, E: Element>(s: S, op: Binary, a: f32, b: &[E], y: &mut [E]) {
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
fn map_second<S: Simd, E: Element>(s: S, a: &[E], b: f32, y: &mut [E], f: impl Fn(S, S::F, S::F) -> S::F) {
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
fn map_first<S: Simd, E: Element>(s: S, a: f32, b: &[E], y: &mut [E], f: impl Fn(S, S::F, S::F) -> S::F) {
    let a = s.splat(a);
    map(
        s,
        b,
        y,
        #[inline(always)]
        |s, b| f(s, a, b),
    );
}
