//! What one step of a product does: a multiply-add of f32, or two of a pair of bf16.

use crate::element::{Bf16, Element};
use crate::simd::Simd;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// The class of denormals for `vfpclassps`.
#[cfg(target_arch = "x86_64")]
const DENORMAL: i32 = 0x20;

/// The arithmetic of a product, on the lanes of `S`. Packed panels hold one word of 32 bits for each output and step.
pub(crate) trait Arithmetic<S: Simd>: 'static {
    /// What the factors hold.
    type Element: Element;
    /// Addends in a step.
    const ADDENDS: usize;
    /// Whether [`Arithmetic::dot`] is an instruction of AVX512-BF16, which the calling function must then have.
    const BF16_INSTRUCTION: bool = false;

    /// One step: `acc` plus the products of the addends of `a` and `b`.
    fn dot(s: S, a: S::F, b: S::F, acc: S::F) -> S::F;

    /// The words of one step of 16 contiguous outputs, the step's addends `row` bytes apart.
    ///
    /// # Safety
    /// 16 elements of each addend are readable.
    unsafe fn load(s: S, p: *const u8, row: usize) -> S::F;

    /// As [`Arithmetic::load`] for the first `n ≤ 16` outputs, the others being +0; where `addends` is less than a step's,
    /// the missing ones are +0.
    ///
    /// # Safety
    /// `n` elements of each addend that there is are readable.
    unsafe fn load_partial(s: S, p: *const u8, row: usize, n: usize, addends: usize) -> S::F;

    /// Stores 16 numbers as [`Element::store`] does, but for the lanes it returns: those are to be stored again by that.
    ///
    /// # Safety
    /// There is room for them.
    #[inline(always)]
    unsafe fn store<E: Element>(s: S, p: *mut E, x: S::F) -> S::M {
        // SAFETY: the caller's promise.
        unsafe { E::store(s, p, x) };
        s.lt(s.zero(), s.zero())
    }

    /// 16 numbers as [`Element::rounded`] gives them, but for the lanes it returns: those are to be rounded again by that.
    #[inline(always)]
    fn round<E: Element>(s: S, x: S::F) -> (S::F, S::M) {
        (E::rounded(s, x), s.lt(s.zero(), s.zero()))
    }
}

/// f32: a step is one fused multiply-add.
pub(super) struct Single;

impl<S: Simd> Arithmetic<S> for Single {
    type Element = f32;
    const ADDENDS: usize = 1;

    #[inline(always)]
    fn dot(s: S, a: S::F, b: S::F, acc: S::F) -> S::F {
        s.fma(a, b, acc)
    }

    #[inline(always)]
    unsafe fn load(s: S, p: *const u8, _row: usize) -> S::F {
        // SAFETY: the caller's promise; lanes are read at any alignment.
        unsafe { s.load(p.cast()) }
    }

    #[inline(always)]
    unsafe fn load_partial(s: S, p: *const u8, _row: usize, n: usize, _addends: usize) -> S::F {
        // SAFETY: as for `load`.
        unsafe { s.load_partial(p.cast(), n) }
    }
}

/// bf16 by f32 operations: the definition, for CPUs without the instruction.
pub(crate) struct Emulated;

impl<S: Simd> Arithmetic<S> for Emulated {
    type Element = Bf16;
    const ADDENDS: usize = 2;

    #[inline(always)]
    fn dot(s: S, a: S::F, b: S::F, acc: S::F) -> S::F {
        let acc = fma_flushed(s, odd(s, a), odd(s, b), acc);
        fma_flushed(s, even(s, a), even(s, b), acc)
    }

    #[inline(always)]
    unsafe fn load(s: S, p: *const u8, row: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.from_bits(s.load_u16_pairs(p.cast(), p.wrapping_add(row).cast())) }
    }

    #[inline(always)]
    unsafe fn load_partial(s: S, p: *const u8, row: usize, n: usize, addends: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { pair_partial(s, p, row, n, addends) }
    }
}

/// bf16 by AVX512-BF16: `vdpbf16ps` is exactly [`Emulated`].
#[cfg(target_arch = "x86_64")]
pub(crate) struct Instruction;

#[cfg(target_arch = "x86_64")]
impl Arithmetic<crate::simd::Avx512> for Instruction {
    type Element = Bf16;
    const ADDENDS: usize = 2;
    const BF16_INSTRUCTION: bool = true;

    #[inline(always)]
    fn dot(_s: crate::simd::Avx512, a: __m512, b: __m512, acc: __m512) -> __m512 {
        // SAFETY: registers of 512 bits each; whoever chose this arithmetic made sure of the instruction.
        unsafe {
            let pairs = std::mem::transmute::<__m512, __m512bh>;
            _mm512_dpbf16_ps(acc, pairs(a), pairs(b))
        }
    }

    #[inline(always)]
    unsafe fn load(s: crate::simd::Avx512, p: *const u8, row: usize) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { s.from_bits(s.load_u16_pairs(p.cast(), p.wrapping_add(row).cast())) }
    }

    #[inline(always)]
    unsafe fn load_partial(s: crate::simd::Avx512, p: *const u8, row: usize, n: usize, addends: usize) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { pair_partial(s, p, row, n, addends) }
    }

    /// bf16 by the instruction that rounds, which makes denormals zeros.
    #[inline(always)]
    unsafe fn store<E: Element>(s: crate::simd::Avx512, p: *mut E, x: __m512) -> __mmask16 {
        // SAFETY: the caller's promise of room; an element of two bytes is a bf16; whoever chose this arithmetic made sure of
        // the instructions.
        unsafe {
            if size_of::<E>() == size_of::<Bf16>() {
                let rounded = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x));
                _mm256_storeu_si256(p.cast(), rounded);
                _mm512_fpclass_ps_mask::<DENORMAL>(x)
            } else {
                E::store(s, p, x);
                0
            }
        }
    }

    #[inline(always)]
    fn round<E: Element>(s: crate::simd::Avx512, x: __m512) -> (__m512, __mmask16) {
        // SAFETY: as above.
        unsafe {
            if size_of::<E>() == size_of::<Bf16>() {
                (
                    _mm512_cvtpbh_ps(_mm512_cvtneps_pbh(x)),
                    _mm512_fpclass_ps_mask::<DENORMAL>(x),
                )
            } else {
                (E::rounded(s, x), 0)
            }
        }
    }
}

/// Pairs of the first `n` outputs; the second addend may be missing.
#[inline(always)]
unsafe fn pair_partial<S: Simd>(s: S, p: *const u8, row: usize, n: usize, addends: usize) -> S::F {
    // SAFETY: the caller's promise.
    unsafe {
        let even = s.load_u16_partial(p.cast(), n);
        let odd = s.load_u16_partial(p.wrapping_add(row).cast(), if addends < 2 { 0 } else { n });
        s.from_bits(s.or_u(even, s.shl_u(odd, 16)))
    }
}

/// The upper bf16 of each word as f32, denormals as zeros of their sign.
#[inline(always)]
pub(super) fn odd<S: Simd>(s: S, x: S::F) -> S::F {
    no_denormals(s, s.from_bits(s.and_u(s.bits(x), s.splat_u(0xffff_0000))))
}

/// The lower bf16 of each word as f32, denormals as zeros of their sign.
#[inline(always)]
pub(super) fn even<S: Simd>(s: S, x: S::F) -> S::F {
    no_denormals(s, s.from_bits(s.shl_u(s.bits(x), 16)))
}

/// `x`, a denormal as a zero of its sign.
#[inline(always)]
pub(super) fn no_denormals<S: Simd>(s: S, x: S::F) -> S::F {
    let tiny = s.lt(s.abs(x), s.splat(f32::MIN_POSITIVE));
    s.select(tiny, zero_of(s, x), x)
}

/// Zero with the sign of `x`.
#[inline(always)]
fn zero_of<S: Simd>(s: S, x: S::F) -> S::F {
    s.from_bits(s.and_u(s.bits(x), s.splat_u(0x8000_0000)))
}

/// `a · b + c`, rounded once, and to a zero of its sign if it is below the smallest normal number after rounding to 24 bits
/// of any exponent, as IEEE 754 and the hardware say "tiny after rounding". Neither argument is denormal.
#[inline(always)]
pub(super) fn fma_flushed<S: Simd>(s: S, a: S::F, b: S::F, c: S::F) -> S::F {
    let r = s.fma(a, b, c);
    // One comparison finds all that may have to be flushed: the magnitudes from the smallest denormal to the smallest normal.
    let least = f32::MIN_POSITIVE.to_bits();
    let magnitude = s.bits(s.abs(r));
    let small = s.ge_u(s.splat_u(least - 1), s.sub_u(magnitude, s.splat_u(1)));
    if !s.any(small) {
        return r;
    }
    let tiny = s.lt(s.abs(r), s.splat(f32::MIN_POSITIVE));
    // ±2⁻¹²⁶ may have been rounded up from what 24 bits hold: from [2⁻¹²⁶ − 2⁻¹⁵⁰, 2⁻¹²⁶ − 2⁻¹⁵¹). How far the exact sum is
    // from `r` is computed 2⁶⁴ times as large. In this window c − r is exact: a · b is then below 2⁻¹³⁴, because its 16 bits
    // reach below 2⁻¹⁴⁹. Outside of it an inexact c − r is off by a multiple of 2⁻¹⁴⁹, which cannot lead into the window.
    let scale = s.splat(f32::from_bits((127 + 64) << 23));
    let off = s.fma(s.mul(a, scale), b, s.mul(s.sub(c, r), scale));
    let off = s.select(s.lt(r, s.zero()), s.neg(off), off);
    let low = s.splat(-f32::from_bits((127 - 86) << 23));
    let high = s.splat(-f32::from_bits((127 - 87) << 23));
    let below = s.and_m(s.le(low, off), s.lt(off, high));
    let edge = s.and_m(s.eq_u(magnitude, s.splat_u(least)), below);
    s.select(s.or_m(tiny, edge), zero_of(s, r), r)
}
