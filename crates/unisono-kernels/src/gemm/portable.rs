//! The micro-kernel and packing in plain Rust: 4 × 16 register tiles.

use super::kernel::{Kernel, Micro, body, pack_any};
use crate::simd::Portable;

impl Kernel for Portable {
    const MR: usize = 4;
    const V: usize = 1;
    const KC: usize = 512;

    unsafe fn micro(micro: &Micro, rows: usize, _vectors: usize) {
        let s = Portable::new();
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => body::<Portable, 1, 1>(s, micro),
                2 => body::<Portable, 2, 1>(s, micro),
                3 => body::<Portable, 3, 1>(s, micro),
                _ => body::<Portable, 4, 1>(s, micro),
            }
        }
    }

    unsafe fn pack_outputs(src: *const f32, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_any(src, (1, stride), outs, k, dst, width) }
    }

    unsafe fn pack_steps(src: *const f32, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_any(src, (stride, 1), outs, k, dst, width) }
    }

    #[inline(always)]
    fn pin(x: Self::F) -> Self::F {
        x
    }

    #[inline(always)]
    fn prefetch(_p: *const f32) {}
}
