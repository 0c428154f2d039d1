//! What happens to a finished sum on its way to memory: bias, the value before the activation, activation.

use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Work};
use super::{Activation, Gemm};
use crate::element::{Bf16, Element, OutFloats, mixed};
use crate::elementwise;
use crate::out::Out;
use crate::simd::{LANES, Simd};
use std::sync::OnceLock;

/// Sums and where they go: a register tile's, or some rows of a strip.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// The sums, rows `from_stride` apart.
    from: *const f32,
    from_stride: usize,
    to: To,
    to_stride: usize,
    /// Null for none.
    bias: *const f32,
    activation: Activation,
    rows: usize,
    cols: usize,
}

/// C, and the value before the activation or null.
#[derive(Clone, Copy)]
enum To {
    F32(*mut f32, *mut f32),
    Bf16(*mut Bf16, *mut Bf16),
}

impl Finish {
    /// `rows × cols` of the sums `from` (and the distance of their rows), to element `c` of C and on, which is in column `col`
    /// of the product.
    pub fn of(g: &Gemm, from: (*const f32, usize), (c, col): (usize, usize), (rows, cols): (usize, usize)) -> Finish {
        let to = match (g.c, g.pre) {
            (OutFloats::F32(to), None) => To::F32(at(to, c), std::ptr::null_mut()),
            (OutFloats::F32(to), Some(OutFloats::F32(pre))) => To::F32(at(to, c), at(pre, c)),
            (OutFloats::Bf16(to), None) => To::Bf16(at(to, c), std::ptr::null_mut()),
            (OutFloats::Bf16(to), Some(OutFloats::Bf16(pre))) => To::Bf16(at(to, c), at(pre, c)),
            _ => mixed("a product's outputs"),
        };
        Finish {
            from: from.0,
            from_stride: from.1,
            to,
            to_stride: g.c_row,
            bias: g.bias.map_or(std::ptr::null(), |bias| bias.as_ptr().wrapping_add(col)),
            activation: g.activation,
            rows,
            cols,
        }
    }
}

fn at<T>(out: Out<T>, element: usize) -> *mut T {
    out.as_ptr().wrapping_add(element)
}

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Finish {
    type Result = ();

    /// Carries it out; the pointers reach as far as the fields say.
    #[inline(always)]
    unsafe fn run(self, s: K) {
        match self.to {
            To::F32(to, pre) => activated::<K, A, f32>(s, self, to, pre),
            To::Bf16(to, pre) => match self.activation {
                Activation::Gelu => looked_up::<K, A, Gelu>(s, self, to, pre, &GELU),
                Activation::GeluTanh => looked_up::<K, A, GeluTanh>(s, self, to, pre, &GELU_TANH),
                Activation::Silu => looked_up::<K, A, Silu>(s, self, to, pre, &SILU),
                Activation::None | Activation::Relu => activated::<K, A, Bf16>(s, self, to, pre),
            },
        }
    }
}

/// An activation as a type: a function passed to the loop would not surely be inlined where the lanes' features are.
trait Act {
    fn value<S: Simd>(s: S, x: S::F) -> S::F;

    /// What is stored for `x`: the activation takes what memory of this kind would hold, and so can be computed again from it.
    #[inline(always)]
    fn stored<S: Simd, E: Element>(s: S, x: S::F) -> S::F {
        Self::value(s, E::rounded(s, x))
    }
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
    #[inline(always)]
    fn stored<S: Simd, E: Element>(_: S, x: S::F) -> S::F {
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
fn activated<S: Simd, R: Arithmetic<S>, E: Element>(s: S, f: Finish, to: *mut E, pre: *mut E) {
    match f.activation {
        Activation::None => rows::<S, R, Same, E>(s, f, to, pre),
        Activation::Relu => rows::<S, R, Relu, E>(s, f, to, pre),
        Activation::Gelu => rows::<S, R, Gelu, E>(s, f, to, pre),
        Activation::GeluTanh => rows::<S, R, GeluTanh, E>(s, f, to, pre),
        Activation::Silu => rows::<S, R, Silu, E>(s, f, to, pre),
    }
}

/// The bf16 result of an activation for each bf16 argument, by its bits.
type Table = OnceLock<Box<[Bf16; 1 << 16]>>;
static GELU: Table = OnceLock::new();
static GELU_TANH: Table = OnceLock::new();
static SILU: Table = OnceLock::new();

/// [`activated`] where the activation of bf16 costs more than to look it up: of 2¹⁶ arguments the usual ones stay in the
/// first cache. The results are those of the function.
#[inline(always)]
fn looked_up<S: Simd, R: Arithmetic<S>, A: Act>(s: S, f: Finish, to: *mut Bf16, pre: *mut Bf16, table: &'static Table) {
    let table = table.get_or_init(|| {
        let mut results = Box::new([Bf16::default(); 1 << 16]);
        for (first, results) in (0..).step_by(LANES).zip(results.chunks_exact_mut(LANES)) {
            let arguments = std::array::from_fn(|lane| (first + lane as u32) << 16);
            Bf16::write(s, results, A::value(s, s.from_bits(s.from_array_u(arguments))));
        }
        results
    });
    let arguments = if pre.is_null() { to } else { pre };
    rows::<S, R, Same, Bf16>(s, f, arguments, std::ptr::null_mut());
    for i in 0..f.rows {
        let row = i * f.to_stride;
        let mut j = 0;
        // SAFETY: the elements of these rows, by the promise to `run`; they were just written.
        unsafe {
            while j + 4 <= f.cols {
                // One load and one store for four: the stores of single ones would fill the CPU's queue.
                let four = arguments.add(row + j).cast::<u64>().read_unaligned();
                let result = |of: u32| u64::from(table[usize::from((four >> of) as u16)].to_bits()) << of;
                let results = result(0) | result(16) | result(32) | result(48);
                to.add(row + j).cast::<u64>().write_unaligned(results);
                j += 4;
            }
            while j < f.cols {
                *to.add(row + j) = table[usize::from((*arguments.add(row + j)).to_bits())];
                j += 1;
            }
        }
    }
}

#[inline(always)]
fn rows<S: Simd, R: Arithmetic<S>, A: Act, E: Element>(s: S, f: Finish, to: *mut E, pre: *mut E) {
    let mut j = 0;
    while j < f.cols {
        let n = (f.cols - j).min(LANES);
        // SAFETY: `n` elements of each row from column `j` on, by the promise to `run`.
        unsafe {
            let bias = if f.bias.is_null() {
                None
            } else {
                Some(s.load_partial(f.bias.add(j), n))
            };
            for i in 0..f.rows {
                let from = f.from.add(i * f.from_stride + j);
                let at = i * f.to_stride + j;
                if n == LANES {
                    let mut x = s.load(from);
                    if let Some(bias) = bias {
                        x = s.add(x, bias);
                    }
                    if !pre.is_null() {
                        store::<S, R, E>(s, pre.add(at), x);
                    }
                    store::<S, R, E>(s, to.add(at), A::stored::<S, E>(s, x));
                } else {
                    let mut x = s.load_partial(from, n);
                    if let Some(bias) = bias {
                        x = s.add(x, bias);
                    }
                    if !pre.is_null() {
                        E::store_partial(s, pre.add(at), x, n);
                    }
                    E::store_partial(s, to.add(at), A::stored::<S, E>(s, x), n);
                }
            }
        }
        j += LANES;
    }
}

/// Stores 16 elements, those of bf16 rounded as the arithmetic does it fastest.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn store<S: Simd, R: Arithmetic<S>, E: Element>(s: S, to: *mut E, x: S::F) {
    // SAFETY: the caller's promise; an element of two bytes is a bf16.
    unsafe {
        if size_of::<E>() == size_of::<Bf16>() {
            R::store_bf16(s, to.cast(), x);
        } else {
            E::store(s, to, x);
        }
    }
}
