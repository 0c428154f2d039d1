//! What happens to a finished sum on its way to memory: bias, the value before the activation, activation, residual.

// Plain indices over register tiles unroll surely and read like the formula.
#![allow(clippy::needless_range_loop)]

use super::activations::{Act, Gelu, GeluTanh, Relu, Same, Silu, Table};
use super::arithmetic::Arithmetic;
use super::job::{EIGHT, Job, JobKind, look_up_eight};
use super::kernel::{Kernel, Work};
use super::{Activation, Gemm};
use crate::element::{Bf16, Element, OutFloats};
use crate::simd::{LANES, Simd};

/// Where the sums of a register tile, or of some rows of a strip, go and what happens to them on the way.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    to: To,
    /// Distance between rows in memory.
    stride: usize,
    /// Null for none.
    bias: *const f32,
    activation: Activation,
    rows: usize,
    cols: usize,
}

#[derive(Clone, Copy)]
enum To {
    F32(Places<f32>),
    Bf16(Places<Bf16>),
}

/// C, the value before the activation or null, the residual or null.
#[derive(Clone, Copy)]
struct Places<E> {
    to: *mut E,
    pre: *mut E,
    residual: *const E,
}

impl<E> Places<E> {
    /// From element `c` of C on; all three are of C's kind, as [`Gemm::check`] saw.
    fn of(g: &Gemm, c: usize) -> Places<E> {
        let at = |first: *const u8| first.cast::<E>().wrapping_add(c);
        Places {
            to: at(g.c.address()).cast_mut(),
            pre: g.pre.map_or(std::ptr::null(), |pre| at(pre.address())).cast_mut(),
            residual: g.residual.map_or(std::ptr::null(), |residual| at(residual.address())),
        }
    }
}

impl Finish {
    /// Of `rows × cols` sums, to element `c` of C and on, which is in column `col` of the product.
    pub fn of(g: &Gemm, c: usize, col: usize, (rows, cols): (usize, usize)) -> Finish {
        let to = match g.c {
            OutFloats::F32(_) => To::F32(Places::of(g, c)),
            OutFloats::Bf16(_) => To::Bf16(Places::of(g, c)),
        };
        Finish {
            to,
            stride: g.c_row,
            bias: g.bias.map_or(std::ptr::null(), |bias| bias.as_ptr().wrapping_add(col)),
            activation: g.activation,
            rows,
            cols,
        }
    }

    /// Asks for the lines of C and of the residual.
    #[inline(always)]
    pub fn prefetch<K: Kernel>(&self) {
        match self.to {
            To::F32(Places { to, residual, .. }) => self.prefetch_rows::<K, f32>(&[to, residual]),
            To::Bf16(Places { to, residual, .. }) => self.prefetch_rows::<K, Bf16>(&[to, residual]),
        }
    }

    /// Asks for the lines of the rows of each array that is not null.
    #[inline(always)]
    fn prefetch_rows<K: Kernel, E>(&self, arrays: &[*const E]) {
        const LINE: usize = 64;
        for first in arrays.iter().filter(|first| !first.is_null()) {
            let begins_a_line =
                first.addr().is_multiple_of(LINE) && (self.stride * size_of::<E>()).is_multiple_of(LINE);
            let one_line = begins_a_line && self.cols * size_of::<E>() <= LINE;
            for i in 0..self.rows {
                let row = first.wrapping_add(i * self.stride);
                K::prefetch(row);
                if !one_line {
                    K::prefetch(row.wrapping_add(self.cols - 1));
                }
            }
        }
    }

    /// Whether [`Finish::registers`] and, after it, [`Finish::look_up_job`] do it.
    pub fn in_registers(&self) -> bool {
        match (self.activation, self.to) {
            (Activation::None, To::F32(places)) => places.pre.is_null(),
            (Activation::None, To::Bf16(places)) => places.pre.is_null(),
            (_, To::F32(_)) => false,
            (activation, To::Bf16(_)) => Table::of(activation).is_some(),
        }
    }

    /// All of it but an activation, for sums that are in registers: `R` rows of `V` whole vectors. Gives back whether that
    /// was exact; otherwise it is to be done again from memory.
    ///
    /// # Safety
    /// The rows are in the memory that this is of.
    #[inline(always)]
    pub unsafe fn registers<K: Kernel, A: Arithmetic<K>, const R: usize, const V: usize>(
        &self,
        s: K,
        sums: &[[K::F; V]; R],
    ) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match self.to {
                To::F32(Places { to, residual, .. }) => self.plain::<K, A, f32, R, V>(s, sums, to, residual),
                To::Bf16(places) => self.plain::<K, A, Bf16, R, V>(s, sums, places.arguments(), places.residual),
            }
        }
    }

    /// Bias and residual.
    #[inline(always)]
    unsafe fn plain<K: Kernel, A: Arithmetic<K>, E: Element, const R: usize, const V: usize>(
        &self,
        s: K,
        sums: &[[K::F; V]; R],
        to: *mut E,
        residual: *const E,
    ) -> bool {
        const { assert!(R <= 12) };
        // No sum is −0, so that without a bias +0 changes nothing.
        let mut bias = [s.zero(); V];
        // SAFETY: the caller's promise. (A loop here is not unrolled, and the sums then are no registers.)
        unsafe {
            if !self.bias.is_null() {
                for v in 0..V {
                    bias[v] = s.load(self.bias.add(v * LANES));
                }
            }
            let a = self.three::<K, A, E, R, V, 0>(s, sums, &bias, to, residual);
            let b = self.three::<K, A, E, R, V, 3>(s, sums, &bias, to, residual);
            let c = self.three::<K, A, E, R, V, 6>(s, sums, &bias, to, residual);
            let d = self.three::<K, A, E, R, V, 9>(s, sums, &bias, to, residual);
            // One branch: one for each store would take as long as the rest.
            !s.any(s.or_m(s.or_m(a, b), s.or_m(c, d)))
        }
    }

    /// The rows from `FIRST` on, of those that there are; gives back what was not exact in some row.
    ///
    /// # Safety
    /// As for [`Finish::registers`].
    #[inline(always)]
    unsafe fn three<K: Kernel, A: Arithmetic<K>, E: Element, const R: usize, const V: usize, const FIRST: usize>(
        &self,
        s: K,
        sums: &[[K::F; V]; R],
        bias: &[K::F; V],
        to: *mut E,
        residual: *const E,
    ) -> K::M {
        let mut inexact = s.lt(s.zero(), s.zero());
        for r in FIRST..FIRST + 3 {
            if r < R {
                for v in 0..V {
                    let at = r * self.stride + v * LANES;
                    let mut x = s.add(sums[r][v], bias[v]);
                    // SAFETY: the caller's promise.
                    unsafe {
                        if !residual.is_null() {
                            let (rounded, mask) = A::round::<E>(s, x);
                            inexact = s.or_m(inexact, mask);
                            x = s.add(E::load(s, residual.add(at)), rounded);
                        }
                        inexact = s.or_m(inexact, A::store::<E>(s, to.add(at), x));
                    }
                }
            }
        }
        inexact
    }

    /// [`Finish::look_up`] as a job for the next register tile's side; if this one is too narrow for that, it is done here.
    ///
    /// # Safety
    /// As for that.
    #[inline(always)]
    pub unsafe fn look_up_job<K: Kernel, A: Arithmetic<K>>(&self) -> Job {
        let (To::Bf16(places), Some(table)) = (&self.to, Table::of(self.activation)) else {
            return Job::NONE;
        };
        if self.cols < K::NR {
            // SAFETY: the caller's promise.
            unsafe { self.look_up::<K, A>() };
            return Job::NONE;
        }
        Job {
            kind: JobKind::LookUp,
            count: self.rows * (K::NR / EIGHT),
            src: places.arguments().cast_const().cast(),
            stride: self.stride * size_of::<Bf16>(),
            dst: places.to.cast(),
            table: table.get::<K, A>().as_ptr(),
            ..Job::NONE
        }
    }

    /// `to = activation(arguments)`, element by element, for the activations of bf16 that are looked up.
    ///
    /// # Safety
    /// The arguments were written, by [`Finish::registers`] or from memory.
    pub unsafe fn look_up<K: Kernel, A: Arithmetic<K>>(&self) {
        let (To::Bf16(places), Some(table)) = (&self.to, Table::of(self.activation)) else {
            return;
        };
        let (arguments, to, table) = (places.arguments(), places.to, table.get::<K, A>());
        for i in 0..self.rows {
            let row = i * self.stride;
            let mut j = 0;
            // SAFETY: the elements of these rows, by the caller's promise.
            unsafe {
                while j + EIGHT <= self.cols {
                    look_up_eight(arguments.add(row + j), to.add(row + j), table.as_ptr());
                    j += EIGHT;
                }
                while j < self.cols {
                    *to.add(row + j) = table[usize::from((*arguments.add(row + j)).to_bits())];
                    j += 1;
                }
            }
        }
    }
}

impl Places<Bf16> {
    /// Where the arguments of an activation that is looked up are kept.
    fn arguments(&self) -> *mut Bf16 {
        if self.pre.is_null() { self.to } else { self.pre }
    }
}

/// [`Finish`] for sums in memory, rows `stride` apart.
pub(super) struct FromMemory<'a> {
    pub finish: &'a Finish,
    pub sums: *const f32,
    pub stride: usize,
}

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for FromMemory<'_> {
    type Result = ();

    /// Carries it out; the pointers reach as far as the fields say.
    #[inline(always)]
    unsafe fn run(self, s: K) {
        match self.finish.to {
            To::F32(places) => activated::<K, A, f32>(s, self, places),
            To::Bf16(places) if Table::of(self.finish.activation).is_some() => {
                let arguments = Places {
                    to: places.arguments(),
                    pre: std::ptr::null_mut(),
                    ..places
                };
                rows::<K, A, Same, Bf16>(s, &self, arguments);
                // SAFETY: the rows were just written.
                unsafe { self.finish.look_up::<K, A>() }
            }
            To::Bf16(places) => activated::<K, A, Bf16>(s, self, places),
        }
    }
}

#[inline(always)]
fn activated<S: Kernel, R: Arithmetic<S>, E: Element>(s: S, f: FromMemory, places: Places<E>) {
    match f.finish.activation {
        Activation::None => rows::<S, R, Same, E>(s, &f, places),
        Activation::Relu => rows::<S, R, Relu, E>(s, &f, places),
        Activation::Gelu => rows::<S, R, Gelu, E>(s, &f, places),
        Activation::GeluTanh => rows::<S, R, GeluTanh, E>(s, &f, places),
        Activation::Silu => rows::<S, R, Silu, E>(s, &f, places),
    }
}

#[inline(always)]
fn rows<S: Simd, R: Arithmetic<S>, A: Act, E: Element>(s: S, f: &FromMemory, places: Places<E>) {
    let Places { to, pre, residual } = places;
    let FromMemory { finish, sums, stride } = f;
    let mut j = 0;
    while j < finish.cols {
        let n = (finish.cols - j).min(LANES);
        // SAFETY: `n` elements of each row from column `j` on, by the promise to `run`.
        unsafe {
            let bias = if finish.bias.is_null() {
                None
            } else {
                Some(s.load_partial(finish.bias.add(j), n))
            };
            for i in 0..finish.rows {
                let from = sums.add(i * stride + j);
                let at = i * finish.stride + j;
                let mut x = if n == LANES {
                    s.load(from)
                } else {
                    s.load_partial(from, n)
                };
                if let Some(bias) = bias {
                    x = s.add(x, bias);
                }
                if !pre.is_null() {
                    store::<S, R, E>(s, pre.add(at), x, n);
                }
                x = A::stored::<S, E>(s, x);
                if !residual.is_null() {
                    let residual = E::load_partial(s, residual.add(at), n);
                    x = s.add(residual, E::rounded(s, x));
                }
                store::<S, R, E>(s, to.add(at), x, n);
            }
        }
        j += LANES;
    }
}

/// Stores `n ≤ 16` elements, as the arithmetic does it fastest.
///
/// # Safety
/// There is room for them.
#[inline(always)]
unsafe fn store<S: Simd, R: Arithmetic<S>, E: Element>(s: S, to: *mut E, x: S::F, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if n < LANES {
            E::store_partial(s, to, x, n);
        } else if s.any(R::store::<E>(s, to, x)) {
            E::store(s, to, x);
        }
    }
}
