//! The same numbers in another kind.

use crate::element::{Bf16, Element, Floats, FloatsMut};
use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};

/// `to[i] = from[i]`: f32 becomes bf16 by rounding to nearest even, bf16 becomes f32 exactly.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn cast<'a>(isa: Isa, from: impl Into<Floats<'a>>, to: impl Into<FloatsMut<'a>>) {
    cast_of(isa, from.into(), to.into());
}

fn cast_of(isa: Isa, from: Floats<'_>, to: FloatsMut<'_>) {
    assert!(
        from.len() == to.len(),
        "bug in unisono: a cast of {} elements to {}",
        from.len(),
        to.len()
    );
    match (from, to) {
        (Floats::F32(from), FloatsMut::F32(to)) => to.copy_from_slice(from),
        (Floats::Bf16(from), FloatsMut::Bf16(to)) => to.copy_from_slice(from),
        (Floats::F32(from), FloatsMut::Bf16(to)) => dispatch!(isa, round(from: &[f32], to: &mut [Bf16])),
        (Floats::Bf16(from), FloatsMut::F32(to)) => dispatch!(isa, widen(from: &[Bf16], to: &mut [f32])),
    }
}

#[inline(always)]
fn round<S: Simd>(s: S, from: &[f32], to: &mut [Bf16]) {
    lanes(s, from, to);
}

#[inline(always)]
fn widen<S: Simd>(s: S, from: &[Bf16], to: &mut [f32]) {
    lanes(s, from, to);
}

#[inline(always)]
fn lanes<S: Simd, A: Element, B: Element>(s: S, from: &[A], to: &mut [B]) {
    for (from, to) in from.chunks(LANES).zip(to.chunks_mut(LANES)) {
        B::write(s, to, A::read(s, from));
    }
}
