//! A leaf on lanes: the order of tiles by multiply-adds of f32, or by those of AVX512-BF16.

use super::{B_CHUNK, Engine, Leaf, PAIRS, PIECE};
use crate::gemm::arithmetic::{Arithmetic, Emulated, even, fma_flushed, no_denormals, odd};
use crate::gemm::kernel::Kernel;
use crate::simd::{LANES, Simd};
use std::marker::PhantomData;

/// One multiply-add of bf16 on lanes, with denormals as zeros of their sign and tiny results made such.
pub(in crate::gemm) trait Chain<S: Simd> {
    /// The arithmetic whose features it needs.
    type With: Arithmetic<S>;
    /// Rows that are computed side by side, at most.
    const ROWS: usize;

    /// The first and the second elements of words of pairs, as [`Chain::fma`] takes them.
    fn split(s: S, words: S::F) -> (S::F, S::F);

    /// `a · b + c`, rounded once.
    fn fma(s: S, a: S::F, b: S::F, c: S::F) -> S::F;
}

/// By f32: the definition.
pub(in crate::gemm) struct Widened;

impl<S: Simd> Chain<S> for Widened {
    type With = Emulated;
    const ROWS: usize = 4;

    #[inline(always)]
    fn split(s: S, words: S::F) -> (S::F, S::F) {
        (even(s, words), odd(s, words))
    }

    #[inline(always)]
    fn fma(s: S, a: S::F, b: S::F, c: S::F) -> S::F {
        fma_flushed(s, a, b, c)
    }
}

/// By the instruction for pairs, with +0 for the second element: first `fma(+0, +0, c)`, which is `c` (of −0 it makes +0, which
/// no sum that is stored shows, as +0 is added to those), then the multiply-add that is wanted.
#[cfg(target_arch = "x86_64")]
pub(in crate::gemm) struct Halves;

#[cfg(target_arch = "x86_64")]
impl Chain<crate::simd::Avx512> for Halves {
    type With = crate::gemm::arithmetic::Instruction;
    const ROWS: usize = 8;

    #[inline(always)]
    fn split(
        s: crate::simd::Avx512,
        words: std::arch::x86_64::__m512,
    ) -> (std::arch::x86_64::__m512, std::arch::x86_64::__m512) {
        let words = s.bits(words);
        (
            s.from_bits(s.and_u(words, s.splat_u(0xffff))),
            s.from_bits(s.shr_u(words, 16)),
        )
    }

    #[inline(always)]
    fn fma(
        s: crate::simd::Avx512,
        a: std::arch::x86_64::__m512,
        b: std::arch::x86_64::__m512,
        c: std::arch::x86_64::__m512,
    ) -> std::arch::x86_64::__m512 {
        Self::With::dot(s, a, b, c)
    }
}

/// Leaves on lanes, by `C`'s multiply-adds.
///
/// A row of a chunk of A holds the 16 first elements, then the 16 second ones, split.
pub(in crate::gemm) struct Lanes<C>(pub PhantomData<C>);

impl<K: Kernel, C: Chain<K>> Engine<K> for Lanes<C> {
    type With = C::With;
    const A_ROW: usize = 2 * PAIRS;

    #[inline(always)]
    unsafe fn put(s: K, words: K::F, to: *mut f32) {
        let (even, odd) = C::split(s, words);
        // SAFETY: the caller's promise.
        unsafe {
            s.store(to, even);
            s.store(to.add(PAIRS), odd);
        }
    }

    #[inline(always)]
    unsafe fn leaf(&self, s: K, leaf: &Leaf) {
        let mut row = 0;
        while row < leaf.rows {
            // Groups of rows that do not reach over a panel's end.
            let rows = (leaf.rows - row).min(C::ROWS);
            let a = leaf
                .a
                .wrapping_add(row / leaf.height * leaf.a_panel + row % leaf.height * 2 * PAIRS);
            for v in 0..leaf.vectors {
                let b = leaf.b.wrapping_add(v * leaf.b_panel);
                let sums = leaf.sums.wrapping_add(row * PIECE + v * LANES);
                // SAFETY: the caller's promise.
                unsafe {
                    match rows {
                        8.. => rows_of::<K, C, 8>(s, leaf, a, b, sums),
                        4.. => rows_of::<K, C, 4>(s, leaf, a, b, sums),
                        2.. => rows_of::<K, C, 2>(s, leaf, a, b, sums),
                        _ => rows_of::<K, C, 1>(s, leaf, a, b, sums),
                    }
                }
            }
            row += match rows {
                8.. => 8,
                4.. => 4,
                2.. => 2,
                _ => 1,
            };
        }
    }
}

/// `R` rows of 16 columns: A from the first of the rows on, and B at the columns.
#[inline(always)]
unsafe fn rows_of<K: Kernel, C: Chain<K>, const R: usize>(
    s: K,
    leaf: &Leaf,
    a: *const f32,
    b: *const f32,
    sums: *mut f32,
) {
    let mut acc = [s.zero(); R];
    // SAFETY: the chunks and the sums that there are.
    unsafe {
        if leaf.carry {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(sums.add(r * PIECE));
            }
        }
        for chunk in 0..leaf.chunks {
            let a = a.add(chunk * leaf.height * 2 * PAIRS);
            let b = b.add(chunk * B_CHUNK);
            let (mut evens, mut odds) = ([s.zero(); R], [s.zero(); R]);
            for p in 0..PAIRS {
                let (even, odd) = C::split(s, s.load(b.add(p * LANES)));
                for r in 0..R {
                    let a = a.add(r * 2 * PAIRS + p);
                    evens[r] = C::fma(s, s.splat(*a), even, evens[r]);
                    odds[r] = C::fma(s, s.splat(*a.add(PAIRS)), odd, odds[r]);
                }
            }
            for r in 0..R {
                // A sum of two f32 that is tiny is exact, so flushing it is all.
                let both = no_denormals(s, s.add(evens[r], odds[r]));
                acc[r] = no_denormals(s, s.add(acc[r], both));
            }
        }
        for (r, acc) in acc.iter().enumerate() {
            s.store(sums.add(r * PIECE), *acc);
        }
    }
}
