//! The gated activation of Llama's MLP: `silu(gate) · up`.
//!
//! Source: Shazeer, *GLU variants improve transformer* (2020).

use super::activation::sigmoid;
use super::{same_length, zip};
use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};

/// `y[i] = silu(gate[i]) · up[i]`, rounded once.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn swiglu<'a>(isa: Isa, gate: impl Into<Floats<'a>>, up: impl Into<Floats<'a>>, y: impl Into<FloatsMut<'a>>) {
    match (gate.into(), up.into(), y.into()) {
        (Floats::F32(gate), Floats::F32(up), FloatsMut::F32(y)) => {
            dispatch!(isa, values::<_, f32>(gate: &[f32], up: &[f32], y: &mut [f32]));
        }
        (Floats::Bf16(gate), Floats::Bf16(up), FloatsMut::Bf16(y)) => {
            dispatch!(isa, values::<_, Bf16>(gate: &[Bf16], up: &[Bf16], y: &mut [Bf16]));
        }
        _ => mixed("swiglu"),
    }
}

/// Gradients of [`swiglu`]: with σ = sigmoid(gate), `d_up = dy · gate σ` and `d_gate = dy · up · σ (1 + gate (1 − σ))`.
///
/// # Panics
/// If lengths or kinds differ: a bug in unisono.
pub fn swiglu_grad<'a>(
    isa: Isa,
    gate: impl Into<Floats<'a>>,
    up: impl Into<Floats<'a>>,
    dy: impl Into<Floats<'a>>,
    d_gate: impl Into<FloatsMut<'a>>,
    d_up: impl Into<FloatsMut<'a>>,
) {
    match (gate.into(), up.into(), dy.into(), d_gate.into(), d_up.into()) {
        (Floats::F32(gate), Floats::F32(up), Floats::F32(dy), FloatsMut::F32(d_gate), FloatsMut::F32(d_up)) => {
            dispatch!(isa, grads::<_, f32>(gate: &[f32], up: &[f32], dy: &[f32], d_gate: &mut [f32], d_up: &mut [f32]));
        }
        (Floats::Bf16(gate), Floats::Bf16(up), Floats::Bf16(dy), FloatsMut::Bf16(d_gate), FloatsMut::Bf16(d_up)) => {
            dispatch!(
                isa,
                grads::<_, Bf16>(gate: &[Bf16], up: &[Bf16], dy: &[Bf16], d_gate: &mut [Bf16], d_up: &mut [Bf16])
            );
        }
        _ => mixed("the gradient of swiglu"),
    }
}

#[inline(always)]
fn values<S: Simd, E: Element>(s: S, gate: &[E], up: &[E], y: &mut [E]) {
    zip(
        s,
        gate,
        up,
        y,
        #[inline(always)]
        |s, gate, up| s.mul(s.mul(gate, sigmoid(s, gate)), up),
    );
}

#[inline(always)]
fn grads<S: Simd, E: Element>(s: S, gate: &[E], up: &[E], dy: &[E], d_gate: &mut [E], d_up: &mut [E]) {
    for len in [up.len(), dy.len(), d_gate.len(), d_up.len()] {
        same_length(gate.len(), len);
    }
    let one = s.splat(1.0);
    for i in (0..gate.len()).step_by(LANES) {
        let part = i..(i + LANES).min(gate.len());
        let x = E::read(s, &gate[part.clone()]);
        let (u, d) = (E::read(s, &up[part.clone()]), E::read(s, &dy[part.clone()]));
        let sigma = sigmoid(s, x);
        let slope = s.mul(sigma, s.fma(x, s.sub(one, sigma), one));
        E::write(s, &mut d_gate[part.clone()], s.mul(s.mul(d, u), slope));
        E::write(s, &mut d_up[part], s.mul(d, s.mul(x, sigma)));
    }
}
