//! The micro-kernel and packing in plain Rust: 4 × 16 register tiles.

use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Micro, RegisterTile, Work, pack_words};
use crate::simd::{LANES, Portable};

impl Kernel for Portable {
    const MR: usize = 4;
    const V: usize = 1;
    const KC: usize = 512;

    unsafe fn call<A: Arithmetic<Self>, W: Work<Self, A>>(work: W) -> W::Result {
        // SAFETY: the caller's promise.
        unsafe { work.run(Portable::new()) }
    }

    unsafe fn micro<A: Arithmetic<Self>>(micro: &Micro, rows: usize, _vectors: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => Portable::call::<A, _>(RegisterTile::<1, 1>(micro)),
                2 => Portable::call::<A, _>(RegisterTile::<2, 1>(micro)),
                3 => Portable::call::<A, _>(RegisterTile::<3, 1>(micro)),
                _ => Portable::call::<A, _>(RegisterTile::<4, 1>(micro)),
            }
        }
    }

    unsafe fn pack_steps(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_words(src, stride, outs, k, dst, width) }
    }

    #[inline(always)]
    fn transpose(self, x: [Self::F; LANES]) -> [Self::F; LANES] {
        let mut t = x;
        for (j, t) in t.iter_mut().enumerate() {
            for (t, x) in t.iter_mut().zip(&x) {
                *t = x[j];
            }
        }
        t
    }

    #[inline(always)]
    unsafe fn load_fours(self, src: *const u8, apart: usize) -> Self::U {
        let mut words = [0; LANES];
        for (i, word) in words.iter_mut().enumerate() {
            let from = src.wrapping_add(i / 4 * apart + i % 4 * 4);
            // SAFETY: the caller's promise.
            *word = unsafe { from.cast::<u32>().read_unaligned() };
        }
        words
    }

    #[inline(always)]
    fn pin(x: Self::F) -> Self::F {
        x
    }

    #[inline(always)]
    fn prefetch<T>(_p: *const T) {}
}
