//! The micro-kernel and packing in plain Rust: 4 × 16 register tiles.

use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Micro, RegisterTile, Work, pack_words};
use crate::simd::Portable;

impl Kernel for Portable {
    const MR: usize = 4;
    const V: usize = 1;
    const KC: usize = 512;

    unsafe fn call<A: Arithmetic<Self>, W: Work<Self, A>>(work: W) -> W::Result {
        // SAFETY: the caller's promise.
        unsafe { work.run(Portable::new()) }
    }

    unsafe fn micro<A: Arithmetic<Self>>(micro: &Micro, rows: usize, _vectors: usize) {
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
    fn pin(x: Self::F) -> Self::F {
        x
    }

    #[inline(always)]
    fn prefetch<T>(_p: *const T) {}
}
