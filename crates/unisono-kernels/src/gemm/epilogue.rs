//! What happens to a finished sum on its way to memory: bias, the value before the activation, activation.

use super::Activation;
use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};

/// A register tile's sums and where they go.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// The sums, rows `from_stride` apart.
    pub from: *const f32,
    pub from_stride: usize,
    /// C, and the value before the activation or null; rows `to_stride` apart.
    pub to: *mut f32,
    pub pre: *mut f32,
    pub to_stride: usize,
    /// Null for none.
    pub bias: *const f32,
    pub activation: Activation,
    pub rows: usize,
    pub cols: usize,
}

/// Carries out a [`Finish`].
///
/// # Safety
/// The CPU has `isa`, and the pointers reach as far as the fields say.
pub(super) unsafe fn finish(isa: Isa, f: Finish) {
    dispatch!(isa, finish_lanes(f: Finish));
}

#[inline(always)]
fn finish_lanes<S: Simd>(s: S, f: Finish) {
    match f.activation {
        _ => rows(
            s,
            f,
            #[inline(always)]
            |x| x,
        ),
    }
}

#[inline(always)]
fn rows<S: Simd>(s: S, f: Finish, activation: impl Fn(S::F) -> S::F) {
    for i in 0..f.rows {
        let mut j = 0;
        while j < f.cols {
            let n = (f.cols - j).min(LANES);
            // SAFETY: `n` elements of row `i` from column `j` on, by `finish`'s promise.
            unsafe {
                let mut x = s.load_partial(f.from.add(i * f.from_stride + j), n);
                if !f.bias.is_null() {
                    x = s.add(x, s.load_partial(f.bias.add(j), n));
                }
                let at = i * f.to_stride + j;
                if !f.pre.is_null() {
                    s.store_partial(f.pre.add(at), x, n);
                }
                s.store_partial(f.to.add(at), activation(x), n);
            }
            j += LANES;
        }
    }
}
