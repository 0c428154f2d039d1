//! The largest element of a row, where it is, and whether an array is finite.

use crate::isa::Isa;
use crate::simd::{Simd, dispatch};

/// Index of the largest element of each row of `x` (`out.len()` rows of `cols`).
///
/// Ties go to the lowest index (0.0 and −0.0 tie). NaN is never the largest; a row without any number larger than −∞
/// answers 0.
///
/// # Panics
/// If the lengths do not fit or rows are empty: a bug in unisono.
pub fn argmax_rows(x: &[f32], cols: usize, out: &mut [u32]) {
    assert!(
        cols > 0 && x.len() == out.len() * cols,
        "bug in unisono: argmax of {} elements in rows of {cols}",
        x.len()
    );
    for (row, out) in x.chunks_exact(cols).zip(out) {
        let largest = largest(row);
        *out = row.iter().position(|v| *v == largest).unwrap_or(0) as u32;
    }
}

/// The largest element of each row of `x` (`out.len()` rows of `cols`): −∞ for a row that has none, NaN passed over.
///
/// A maximum of ±0 is +0, so that the result doesn't depend on the order.
///
/// # Panics
/// If the lengths do not fit: a bug in unisono.
pub fn row_max(x: &[f32], cols: usize, out: &mut [f32]) {
    assert!(
        x.len() == out.len() * cols,
        "bug in unisono: maxima of {} elements in rows of {cols}",
        x.len()
    );
    for (row, out) in out.iter_mut().enumerate() {
        *out = largest(&x[row * cols..][..cols]) + 0.0;
    }
}

/// The largest element; which of two zeros is not said.
fn largest(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = row.as_chunks::<16>();
    for chunk in chunks {
        for i in 0..16 {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |most, v| if *v > most { *v } else { most })
}

/// Whether `x` holds neither an infinity nor a NaN.
pub fn all_finite(isa: Isa, x: &[f32]) -> bool {
    dispatch!(isa, finite(x: &[f32]) -> bool)
}

#[inline(always)]
fn finite<S: Simd>(_: S, x: &[f32]) -> bool {
    // In pieces: within one without branches, so that it is vectorised; between them it may stop.
    x.chunks(4096).all(|piece| {
        let exponent = f32::INFINITY.to_bits();
        let bad = |v: &f32| u32::from(v.to_bits() & exponent == exponent);
        piece.iter().fold(0, |any, v| any | bad(v)) == 0
    })
}
