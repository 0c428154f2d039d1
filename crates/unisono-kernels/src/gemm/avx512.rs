//! The micro-kernel and packing on AVX-512: 12 × 32 register tiles, 16 × 16 transposes.

use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Micro, RegisterTile, Work};
use crate::simd::Avx512;
use std::arch::x86_64::*;

impl Kernel for Avx512 {
    const MR: usize = 12;
    const V: usize = 2;
    const KC: usize = 512;

    unsafe fn call<A: Arithmetic<Self>, W: Work<Self, A>>(work: W) -> W::Result {
        // SAFETY: the caller's promise.
        unsafe {
            if A::BF16_INSTRUCTION {
                with_bf16::<A, W>(work)
            } else {
                without_bf16::<A, W>(work)
            }
        }
    }

    unsafe fn micro<A: Arithmetic<Self>>(micro: &Micro, rows: usize, vectors: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match vectors {
                1 => by_rows::<A, 1>(micro, rows),
                _ => by_rows::<A, 2>(micro, rows),
            }
        }
    }

    unsafe fn pack_steps(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_steps(src, stride, outs, k, dst, width) }
    }

    #[inline(always)]
    fn transpose(self, x: [__m512; 16]) -> [__m512; 16] {
        // SAFETY: the token's type proves the instruction set.
        unsafe { transpose(x) }
    }

    #[inline(always)]
    unsafe fn load_fours(self, src: *const u8, apart: usize) -> __m512i {
        // SAFETY: the caller's promise, and the token's type proves the instruction set.
        unsafe { load_fours(src, apart) }
    }

    #[inline(always)]
    fn pin(x: __m512) -> __m512 {
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
#[target_feature(enable = "avx512f")]
fn pin(mut x: __m512) -> __m512 {
    // SAFETY: no instruction at all, only the claim that there is one that needs and changes `x`.
    unsafe { std::arch::asm!("/* {} */", inout(zmm_reg) x, options(nostack, preserves_flags)) };
    x
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn without_bf16<A: Arithmetic<Avx512>, W: Work<Avx512, A>>(work: W) -> W::Result {
    // SAFETY: this function runs only where the token's features are; the rest is the caller's promise.
    unsafe { work.run(Avx512::new()) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn with_bf16<A: Arithmetic<Avx512>, W: Work<Avx512, A>>(work: W) -> W::Result {
    // SAFETY: as above.
    unsafe { work.run(Avx512::new()) }
}

unsafe fn by_rows<A: Arithmetic<Avx512>, const V: usize>(micro: &Micro, rows: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match rows {
            1 => Avx512::call::<A, _>(RegisterTile::<1, V>(micro)),
            2 => Avx512::call::<A, _>(RegisterTile::<2, V>(micro)),
            3 => Avx512::call::<A, _>(RegisterTile::<3, V>(micro)),
            4 => Avx512::call::<A, _>(RegisterTile::<4, V>(micro)),
            5 => Avx512::call::<A, _>(RegisterTile::<5, V>(micro)),
            6 => Avx512::call::<A, _>(RegisterTile::<6, V>(micro)),
            7 => Avx512::call::<A, _>(RegisterTile::<7, V>(micro)),
            8 => Avx512::call::<A, _>(RegisterTile::<8, V>(micro)),
            9 => Avx512::call::<A, _>(RegisterTile::<9, V>(micro)),
            10 => Avx512::call::<A, _>(RegisterTile::<10, V>(micro)),
            11 => Avx512::call::<A, _>(RegisterTile::<11, V>(micro)),
            _ => Avx512::call::<A, _>(RegisterTile::<12, V>(micro)),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_fours(src: *const u8, apart: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let four = |i: usize| _mm_loadu_si128(src.wrapping_add(i * apart).cast());
        let x = _mm512_castsi128_si512(four(0));
        let x = _mm512_inserti32x4::<1>(x, four(1));
        let x = _mm512_inserti32x4::<2>(x, four(2));
        _mm512_inserti32x4::<3>(x, four(3))
    }
}

/// The lanes below `n`.
#[target_feature(enable = "avx512f")]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1u16 << n) - 1 }
}

#[target_feature(enable = "avx512f")]
unsafe fn pack_steps(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
    for o in (0..width).step_by(16) {
        let rows = outs.saturating_sub(o).min(16);
        // SAFETY: as the caller promises for the whole.
        unsafe {
            let (src, dst) = (src.wrapping_add(o * stride), dst.add(o));
            match rows {
                16 => pack_group::<16>(src, stride, 16, k, dst, width),
                12 => pack_group::<12>(src, stride, 12, k, dst, width),
                _ => pack_group::<0>(src, stride, rows, k, dst, width),
            }
        }
    }
}

/// [`pack_steps`] for up to 16 outputs: `N` of them, or `outs` where N is 0; the other lanes are +0.
#[allow(clippy::needless_range_loop)] // the registers of a square, by number
#[target_feature(enable = "avx512f")]
unsafe fn pack_group<const N: usize>(
    src: *const u8,
    stride: usize,
    outs: usize,
    k: usize,
    dst: *mut f32,
    width: usize,
) {
    let outs = if N == 0 { outs } else { N };
    let zero = _mm512_setzero_ps();
    let whole = k / 16 * 16;
    // SAFETY: rows and lanes that are not there are not read. Stores reach at most 16 floats past the panel: a group that
    // ends inside the panel ends at its right edge, so what is spilled lies in later steps, which are stored later.
    unsafe {
        for p in (0..whole).step_by(16) {
            let mut x = [zero; 16];
            for i in 0..16 {
                if i < outs {
                    x[i] = _mm512_loadu_ps(src.add(i * stride + 4 * p).cast());
                }
            }
            let t = transpose(x);
            for i in 0..16 {
                _mm512_storeu_ps(dst.add((p + i) * width), t[i]);
            }
        }
        if whole < k {
            let mut x = [zero; 16];
            for i in 0..16 {
                if i < outs {
                    x[i] = _mm512_maskz_loadu_ps(first(k - whole), src.add(i * stride + 4 * whole).cast());
                }
            }
            let t = transpose(x);
            for (i, column) in t.iter().enumerate().take(k - whole) {
                _mm512_storeu_ps(dst.add((whole + i) * width), *column);
            }
        }
    }
}

/// Lane i of result j is lane j of row i.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose(x: [__m512; 16]) -> [__m512; 16] {
    // Pairs of rows, then quadruples: 4 × 4 blocks are transposed inside the 128-bit lanes.
    let mut y = x;
    for i in 0..4 {
        let [a, b, c, d] = [x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]];
        let (ab0, ab1) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let (cd0, cd1) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
        let pd = _mm512_castps_pd;
        let ps = _mm512_castpd_ps;
        y[4 * i] = ps(_mm512_unpacklo_pd(pd(ab0), pd(cd0)));
        y[4 * i + 1] = ps(_mm512_unpackhi_pd(pd(ab0), pd(cd0)));
        y[4 * i + 2] = ps(_mm512_unpacklo_pd(pd(ab1), pd(cd1)));
        y[4 * i + 3] = ps(_mm512_unpackhi_pd(pd(ab1), pd(cd1)));
    }
    // y[4 i + j] holds, in its 128-bit lane l, step 4 l + j of rows 4 i .. 4 i + 4: transpose the 4 × 4 of lanes.
    let mut z = x;
    for j in 0..4 {
        let [a, b, c, d] = [y[j], y[4 + j], y[8 + j], y[12 + j]];
        let (ab0, ab1) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
        let (cd0, cd1) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
        z[j] = _mm512_shuffle_f32x4::<0x88>(ab0, cd0);
        z[8 + j] = _mm512_shuffle_f32x4::<0xdd>(ab0, cd0);
        z[4 + j] = _mm512_shuffle_f32x4::<0x88>(ab1, cd1);
        z[12 + j] = _mm512_shuffle_f32x4::<0xdd>(ab1, cd1);
    }
    z
}
