//! Dropout, keyed by the element's place in the whole tensor: no mesh and no tile can change what is dropped.
//!
//! Element e of a stream is kept where its word is at least [`threshold`], and then multiplied by 1 / (1 − p).
//! The gradient is [`dropout`] of the gradient, with the same stream.

use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
use crate::isa::Isa;
use crate::philox::Stream;
use crate::random::each_word;
use crate::simd::{Simd, dispatch};

/// Words below it drop their element: p · 2³², the fraction dropped.
///
/// # Panics
/// If p is not in 0..1: a bug in unisono.
pub fn threshold(p: f32) -> u32 {
    assert!(
        (0.0..1.0).contains(&p),
        "bug in unisono: a dropout probability of {p} is not in 0..1"
    );
    (f64::from(p) * 4_294_967_296.0) as u32
}

/// `y[i] = x[i] · (1 / (1 − p))` where the word of element `first_element + i` is kept, else +0.
///
/// `x` and `y` are of one kind.
///
/// # Panics
/// If lengths or kinds differ or p is not in 0..1: a bug in unisono.
pub fn dropout<'a>(
    isa: Isa,
    stream: &Stream,
    first_element: u64,
    p: f32,
    x: impl Into<Floats<'a>>,
    y: impl Into<FloatsMut<'a>>,
) {
    dropout_of(isa, stream, first_element, p, x.into(), y.into());
}

fn dropout_of(isa: Isa, stream: &Stream, first_element: u64, p: f32, x: Floats<'_>, y: FloatsMut<'_>) {
    assert!(
        x.len() == y.len(),
        "bug in unisono: dropout of {} elements to {}",
        x.len(),
        y.len()
    );
    let rule = Rule::new(stream, first_element, p);
    match (x, y) {
        (Floats::F32(x), FloatsMut::F32(y)) => {
            dispatch!(isa, dropout_lanes::<_, f32>(rule: Rule, x: &[f32], y: &mut [f32]));
        }
        (Floats::Bf16(x), FloatsMut::Bf16(y)) => {
            dispatch!(isa, dropout_lanes::<_, Bf16>(rule: Rule, x: &[Bf16], y: &mut [Bf16]));
        }
        _ => mixed("dropout"),
    }
}

/// `y[i] = residual[i] + dropout(x)[i]`, the product rounded to f32 before it is added. The three are of one kind.
///
/// # Panics
/// As [`dropout`].
pub fn dropout_add<'a>(
    isa: Isa,
    stream: &Stream,
    first_element: u64,
    p: f32,
    x: impl Into<Floats<'a>>,
    residual: impl Into<Floats<'a>>,
    y: impl Into<FloatsMut<'a>>,
) {
    dropout_add_of(isa, stream, first_element, p, x.into(), residual.into(), y.into());
}

fn dropout_add_of(
    isa: Isa,
    stream: &Stream,
    first_element: u64,
    p: f32,
    x: Floats<'_>,
    residual: Floats<'_>,
    y: FloatsMut<'_>,
) {
    assert!(
        x.len() == y.len() && residual.len() == y.len(),
        "bug in unisono: dropout of {} elements with {} to {}",
        x.len(),
        residual.len(),
        y.len()
    );
    let rule = Rule::new(stream, first_element, p);
    match (x, residual, y) {
        (Floats::F32(x), Floats::F32(residual), FloatsMut::F32(y)) => {
            dispatch!(isa, dropout_add_lanes::<_, f32>(rule: Rule, x: &[f32], residual: &[f32], y: &mut [f32]));
        }
        (Floats::Bf16(x), Floats::Bf16(residual), FloatsMut::Bf16(y)) => {
            dispatch!(isa, dropout_add_lanes::<_, Bf16>(rule: Rule, x: &[Bf16], residual: &[Bf16], y: &mut [Bf16]));
        }
        _ => mixed("dropout"),
    }
}

/// What decides about an element.
#[derive(Clone, Copy)]
struct Rule<'a> {
    stream: &'a Stream,
    first_element: u64,
    threshold: u32,
    scale: f32,
}

impl Rule<'_> {
    fn new(stream: &Stream, first_element: u64, p: f32) -> Rule<'_> {
        Rule {
            stream,
            first_element,
            threshold: threshold(p),
            scale: 1.0 / (1.0 - p),
        }
    }

    /// The kept elements scaled, +0 in place of the others.
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, words: S::U, x: S::F) -> S::F {
        let keep = s.ge_u(words, s.splat_u(self.threshold));
        s.select(keep, s.mul(x, s.splat(self.scale)), s.zero())
    }
}

#[inline(always)]
fn dropout_lanes<S: Simd, E: Element>(s: S, rule: Rule, x: &[E], y: &mut [E]) {
    each_word(
        s,
        rule.stream,
        rule.first_element,
        y.len(),
        #[inline(always)]
        |i, count, words| {
            let v = rule.apply(s, words, E::read(s, &x[i..i + count]));
            E::write(s, &mut y[i..i + count], v);
        },
    );
}

#[inline(always)]
fn dropout_add_lanes<S: Simd, E: Element>(s: S, rule: Rule, x: &[E], residual: &[E], y: &mut [E]) {
    each_word(
        s,
        rule.stream,
        rule.first_element,
        y.len(),
        #[inline(always)]
        |i, count, words| {
            let v = rule.apply(s, words, E::read(s, &x[i..i + count]));
            E::write(s, &mut y[i..i + count], s.add(E::read(s, &residual[i..i + count]), v));
        },
    );
}
