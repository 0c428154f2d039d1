//! The micro-kernel and packing on AVX2 with FMA: 6 × 16 register tiles, 8 × 8 transposes.

use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Micro, RegisterTile, Work, pack_words};
use crate::simd::{Avx2, LANES, Simd};
use std::arch::x86_64::*;

impl Kernel for Avx2 {
    const MR: usize = 6;
    const V: usize = 1;
    const KC: usize = 512;

    unsafe fn call<A: Arithmetic<Self>, W: Work<Self, A>>(work: W) -> W::Result {
        // SAFETY: the caller's promise.
        unsafe { featured::<A, W>(work) }
    }

    unsafe fn micro<A: Arithmetic<Self>>(micro: &Micro, rows: usize, _vectors: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => Avx2::call::<A, _>(RegisterTile::<1, 1>(micro)),
                2 => Avx2::call::<A, _>(RegisterTile::<2, 1>(micro)),
                3 => Avx2::call::<A, _>(RegisterTile::<3, 1>(micro)),
                4 => Avx2::call::<A, _>(RegisterTile::<4, 1>(micro)),
                5 => Avx2::call::<A, _>(RegisterTile::<5, 1>(micro)),
                _ => Avx2::call::<A, _>(RegisterTile::<6, 1>(micro)),
            }
        }
    }

    unsafe fn pack_steps(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_steps(src, stride, outs, k, dst, width) }
    }

    #[inline(always)]
    fn transpose(self, x: [Self::F; LANES]) -> [Self::F; LANES] {
        let mut t = x;
        // The square in quarters of 8 × 8.
        for half in 0..2 {
            let (mut low, mut high) = ([x[0].0; 8], [x[0].0; 8]);
            for i in 0..8 {
                (low[i], high[i]) = (x[8 * half + i].0, x[8 * half + i].1);
            }
            // SAFETY: the token's type proves the instruction set.
            let (low, high) = unsafe { (transpose(low), transpose(high)) };
            for i in 0..8 {
                if half == 0 {
                    (t[i].0, t[8 + i].0) = (low[i], high[i]);
                } else {
                    (t[i].1, t[8 + i].1) = (low[i], high[i]);
                }
            }
        }
        t
    }

    #[inline(always)]
    unsafe fn load_fours(self, src: *const u8, apart: usize) -> Self::U {
        let mut x = self.splat_u(0);
        // SAFETY: the caller's promise, and the token's type proves the instruction set.
        unsafe {
            x.0 = load_two(src, apart);
            x.1 = load_two(src.wrapping_add(2 * apart), apart);
        }
        x
    }

    #[inline(always)]
    fn pin(x: Self::F) -> Self::F {
        // SAFETY: the token's type proves the instruction set.
        unsafe { pin(x) }
    }

    #[inline(always)]
    fn prefetch<T>(p: *const T) {
        // SAFETY: a prefetch touches nothing that the program could see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load_two(src: *const u8, apart: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_castsi128_si256(_mm_loadu_si128(src.cast()));
        _mm256_inserti128_si256::<1>(low, _mm_loadu_si128(src.wrapping_add(apart).cast()))
    }
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn pin(mut x: <Avx2 as Simd>::F) -> <Avx2 as Simd>::F {
    // SAFETY: no instruction at all, only the claim that there is one that needs and changes both halves.
    unsafe {
        std::arch::asm!("/* {} {} */", inout(ymm_reg) x.0, inout(ymm_reg) x.1, options(nostack, preserves_flags));
    }
    x
}

#[target_feature(enable = "avx2,fma")]
unsafe fn featured<A: Arithmetic<Avx2>, W: Work<Avx2, A>>(work: W) -> W::Result {
    // SAFETY: this function runs only where the token's features are; the rest is the caller's promise.
    unsafe { work.run(Avx2::new()) }
}

#[target_feature(enable = "avx2")]
unsafe fn pack_steps(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
    let whole = k / 8 * 8;
    let mut o = 0;
    while o < width {
        let rows = outs.saturating_sub(o).min(8);
        for p in (0..whole).step_by(8) {
            let mut x = [_mm256_setzero_ps(); 8];
            // SAFETY: rows that are not there are not read; stores reach at most 8 floats past the panel. A group of 8
            // outputs that ends inside the panel ends at its right edge, so spills go to later steps only.
            unsafe {
                for (i, row) in x.iter_mut().enumerate().take(rows) {
                    *row = _mm256_loadu_ps(src.add((o + i) * stride + 4 * p).cast());
                }
                for (i, column) in transpose(x).iter().enumerate() {
                    _mm256_storeu_ps(dst.add((p + i) * width + o), *column);
                }
            }
        }
        o += 8;
    }
    // SAFETY: the steps that are left, by the caller's promise.
    unsafe {
        pack_words(
            src.add(4 * whole),
            stride,
            outs,
            k - whole,
            dst.add(whole * width),
            width,
        )
    };
}

/// Lane i of result j is lane j of row i.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(x: [__m256; 8]) -> [__m256; 8] {
    let mut y = x;
    for i in 0..2 {
        let [a, b, c, d] = [x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]];
        let (ab0, ab1) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
        let (cd0, cd1) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
        y[4 * i] = _mm256_shuffle_ps::<0x44>(ab0, cd0);
        y[4 * i + 1] = _mm256_shuffle_ps::<0xee>(ab0, cd0);
        y[4 * i + 2] = _mm256_shuffle_ps::<0x44>(ab1, cd1);
        y[4 * i + 3] = _mm256_shuffle_ps::<0xee>(ab1, cd1);
    }
    let mut z = x;
    for j in 0..4 {
        z[j] = _mm256_permute2f128_ps::<0x20>(y[j], y[4 + j]);
        z[4 + j] = _mm256_permute2f128_ps::<0x31>(y[j], y[4 + j]);
    }
    z
}
