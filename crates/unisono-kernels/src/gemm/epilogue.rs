//! What happens to a finished sum on its way to memory: bias, the value before the activation, activation.

use super::Activation;
use crate::elementwise;
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

/// An activation as a type: a function passed to the loop would not surely be inlined where the lanes' features are.
trait Act {
    fn value<S: Simd>(s: S, x: S::F) -> S::F;
}

struct Same;
struct Relu;
struct Gelu;
struct GeluTanh;
struct Silu;

impl Act for Same {
    #[inline(always)]
    fn value<S: Simd>(_: S, x: S::F) -> S::F {
        x
    }
}

impl Act for Relu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::relu(s, x)
    }
}

impl Act for Gelu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::gelu_erf(s, x)
    }
}

impl Act for GeluTanh {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::gelu_tanh(s, x)
    }
}

impl Act for Silu {
    #[inline(always)]
    fn value<S: Simd>(s: S, x: S::F) -> S::F {
        elementwise::silu(s, x)
    }
}

#[inline(always)]
fn finish_lanes<S: Simd>(s: S, f: Finish) {
    match f.activation {
        Activation::None => rows::<S, Same>(s, f),
        Activation::Relu => rows::<S, Relu>(s, f),
        Activation::Gelu => rows::<S, Gelu>(s, f),
        Activation::GeluTanh => rows::<S, GeluTanh>(s, f),
        Activation::Silu => rows::<S, Silu>(s, f),
    }
}

#[inline(always)]
fn rows<S: Simd, A: Act>(s: S, f: Finish) {
    let mut j = 0;
    while j < f.cols {
        let n = (f.cols - j).min(LANES);
        // SAFETY: `n` elements of each row from column `j` on, by `finish`'s promise.
        unsafe {
            let bias = if f.bias.is_null() {
                None
            } else {
                Some(s.load_partial(f.bias.add(j), n))
            };
            for i in 0..f.rows {
                let mut x = s.load_partial(f.from.add(i * f.from_stride + j), n);
                if let Some(bias) = bias {
                    x = s.add(x, bias);
                }
                let at = i * f.to_stride + j;
                if !f.pre.is_null() {
                    s.store_partial(f.pre.add(at), x, n);
                }
                s.store_partial(f.to.add(at), A::value(s, x), n);
            }
        }
        j += LANES;
    }
}
