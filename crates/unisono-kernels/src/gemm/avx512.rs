//! The micro-kernel and packing on AVX-512: 12 × 32 register tiles, 16 × 16 transposes.

use super::kernel::{Kernel, Micro, body};
use crate::simd::Avx512;
use std::arch::x86_64::*;

impl Kernel for Avx512 {
    const MR: usize = 12;
    const V: usize = 2;
    const KC: usize = 512;

    unsafe fn micro(micro: &Micro, rows: usize, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match vectors {
                1 => by_rows::<1>(micro, rows),
                _ => by_rows::<2>(micro, rows),
            }
        }
    }

    unsafe fn pack_outputs(src: *const f32, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_outputs(src, stride, outs, k, dst, width) }
    }

    unsafe fn pack_steps(src: *const f32, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe { pack_steps(src, stride, outs, k, dst, width) }
    }

    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a prefetch touches nothing that the program could see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
}

unsafe fn by_rows<const V: usize>(micro: &Micro, rows: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match rows {
            1 => micro_kernel::<1, V>(micro),
            2 => micro_kernel::<2, V>(micro),
            3 => micro_kernel::<3, V>(micro),
            4 => micro_kernel::<4, V>(micro),
            5 => micro_kernel::<5, V>(micro),
            6 => micro_kernel::<6, V>(micro),
            7 => micro_kernel::<7, V>(micro),
            8 => micro_kernel::<8, V>(micro),
            9 => micro_kernel::<9, V>(micro),
            10 => micro_kernel::<10, V>(micro),
            11 => micro_kernel::<11, V>(micro),
            _ => micro_kernel::<12, V>(micro),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn micro_kernel<const R: usize, const V: usize>(micro: &Micro) {
    // SAFETY: this function runs only where the token's features are; the rest is the caller's promise.
    unsafe { body::<Avx512, R, V>(Avx512::new(), micro) }
}

/// The lanes below `n`.
#[target_feature(enable = "avx512f")]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { 0xffff } else { (1u16 << n) - 1 }
}

#[target_feature(enable = "avx512f")]
unsafe fn pack_outputs(src: *const f32, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
    let (low, high) = (first(outs), first(outs.saturating_sub(16)));
    // SAFETY: masks leave out what is not there; stores reach at most 16 floats past the panel, in ascending order, so
    // that what they spill is overwritten by the next step.
    unsafe {
        if width > 16 {
            for p in 0..k {
                let from = src.add(p * stride);
                _mm512_storeu_ps(dst.add(p * width), _mm512_maskz_loadu_ps(low, from));
                _mm512_storeu_ps(
                    dst.add(p * width + 16),
                    _mm512_maskz_loadu_ps(high, from.wrapping_add(16)),
                );
            }
        } else {
            for p in 0..k {
                let row = _mm512_maskz_loadu_ps(low, src.add(p * stride));
                _mm512_storeu_ps(dst.add(p * width), row);
            }
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn pack_steps(src: *const f32, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
    let mut o = 0;
    while o < width {
        let rows = outs.saturating_sub(o).min(16);
        let mut p = 0;
        while p < k {
            let steps = (k - p).min(16);
            let mask = first(steps);
            let mut x = [_mm512_setzero_ps(); 16];
            // SAFETY: rows and lanes that are not there are not read; stores reach at most 16 floats past the panel.
            // A group of 16 outputs that ends inside the panel ends at its right edge, so spills go to later steps only.
            unsafe {
                if rows == 16 && steps == 16 {
                    for (i, row) in x.iter_mut().enumerate() {
                        *row = _mm512_loadu_ps(src.add((o + i) * stride + p));
                    }
                } else {
                    for (i, row) in x.iter_mut().enumerate().take(rows) {
                        *row = _mm512_maskz_loadu_ps(mask, src.add((o + i) * stride + p));
                    }
                }
                let t = transpose(x);
                for (i, column) in t.iter().enumerate().take(steps) {
                    _mm512_storeu_ps(dst.add((p + i) * width + o), *column);
                }
            }
            p += 16;
        }
        o += 16;
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
