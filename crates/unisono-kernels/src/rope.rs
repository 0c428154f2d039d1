//! Rotary position embedding, in the half layout of Hugging Face's Llama.
//!
//! Of each head of `d` elements, `i` and `i + d/2` are a pair `(a, b)`, rotated by the angle φ = position · frequencies\[i\] (an f32
//! product): `(a cos φ − b sin φ, b cos φ + a sin φ)`, by a product and a fused multiply-add each. Backwards φ is taken negative.
//!
//! Source: Su et al., *RoFormer: Enhanced transformer with rotary position embedding* (2021).

use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
use crate::math::lanes::sin_cos;
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, dispatch};

/// Which way pairs are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Turn {
    /// By the angle: the forward pass.
    Forward,
    /// By minus the angle: the backward pass.
    Back,
}

/// Rotates the heads of tokens: `x` and `y` hold `tokens` rows of `width` elements, whole heads of `2 · frequencies.len()`
/// elements; row `t` has position `position(t)`. Sines and cosines are computed once a token, for all its heads.
///
/// # Panics
/// If lengths or kinds do not fit: a bug in unisono.
pub fn rope<'a>(
    x: impl Into<Floats<'a>>,
    tokens: usize,
    frequencies: &[f32],
    position: impl Fn(usize) -> u32,
    turn: Turn,
    y: impl Into<FloatsMut<'a>>,
    scratch: &mut Scratch,
) {
    let (x, mut y) = (x.into(), y.into());
    let (width, half) = (x.len() / tokens.max(1), frequencies.len());
    assert!(
        x.len() == y.len() && x.len() == tokens * width && half > 0 && width.is_multiple_of(2 * half),
        "bug in unisono: rotary embedding of {} elements in {tokens} rows to {} with {half} frequencies",
        x.len(),
        y.len()
    );
    let isa = scratch.isa();
    let (cos, sin) = scratch.floats(2 * half).split_at_mut(half);
    for token in 0..tokens {
        let at = position(token);
        {
            let (cos, sin) = (&mut *cos, &mut *sin);
            dispatch!(isa, angles(at: u32, turn: Turn, frequencies: &[f32], cos: &mut [f32], sin: &mut [f32]));
        }
        let table = Table { cos, sin };
        let range = token * width..(token + 1) * width;
        match (x.range(range.clone()), y.range(range)) {
            (Floats::F32(x), FloatsMut::F32(y)) => {
                dispatch!(isa, rotate::<_, f32>(table: Table, x: &[f32], y: &mut [f32]));
            }
            (Floats::Bf16(x), FloatsMut::Bf16(y)) => {
                dispatch!(isa, rotate::<_, Bf16>(table: Table, x: &[Bf16], y: &mut [Bf16]));
            }
            _ => mixed("rotary embedding"),
        }
    }
}

/// Cosine and sine of each pair's angle, at one position.
#[derive(Clone, Copy)]
struct Table<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
}

#[inline(always)]
fn angles<S: Simd>(s: S, position: u32, turn: Turn, frequencies: &[f32], cos: &mut [f32], sin: &mut [f32]) {
    let position = s.splat(position as f32);
    for i in (0..frequencies.len()).step_by(LANES) {
        let n = LANES.min(frequencies.len() - i);
        let (sine, cosine) = sin_cos(s, s.mul(position, s.read(&frequencies[i..i + n])));
        let sine = if turn == Turn::Back { s.neg(sine) } else { sine };
        s.write(&mut cos[i..i + n], cosine);
        s.write(&mut sin[i..i + n], sine);
    }
}

/// The heads of one token.
#[inline(always)]
fn rotate<S: Simd, E: Element>(s: S, table: Table, x: &[E], y: &mut [E]) {
    let half = table.cos.len();
    for (x, y) in x.chunks_exact(2 * half).zip(y.chunks_exact_mut(2 * half)) {
        let ((xa, xb), (ya, yb)) = (x.split_at(half), y.split_at_mut(half));
        for i in (0..half).step_by(LANES) {
            let part = i..(i + LANES).min(half);
            let (a, b) = (E::read(s, &xa[part.clone()]), E::read(s, &xb[part.clone()]));
            let (cos, sin) = (s.read(&table.cos[part.clone()]), s.read(&table.sin[part.clone()]));
            E::write(s, &mut ya[part.clone()], s.fnma(b, sin, s.mul(a, cos)));
            E::write(s, &mut yb[part], s.fma(a, sin, s.mul(b, cos)));
        }
    }
}
