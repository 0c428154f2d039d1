//! Sixteen lanes in one AVX-512 register.

use super::{LANES, Simd};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// The token of AVX-512 (F, BW, DQ, VL).
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// The token.
    ///
    /// # Safety
    /// The CPU must have AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    pub unsafe fn new() -> Avx512 {
        Avx512(())
    }
}

/// Half-words 0, 32 (the second operand's 0), 1, 33, …
const IN_TURN: [u16; 32] = {
    let mut from = [0; 32];
    let mut i = 0;
    while i < 32 {
        from[i] = (i / 2 + i % 2 * 32) as u16;
        i += 1;
    }
    from
};

/// An expression of intrinsics without memory access.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe { $e }
    };
}

impl Simd for Avx512 {
    type F = __m512;
    type U = __m512i;
    type M = __mmask16;
    const ISA: Isa = Isa::Avx512;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: 16 floats are readable (the caller) by instructions that the token proves.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: as for `load`.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: lanes that the mask leaves out are not read.
        unsafe { _mm512_maskz_loadu_ps(self.first(n), p) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: __m512, n: usize) {
        // SAFETY: lanes that the mask leaves out are not written.
        unsafe { _mm512_mask_storeu_ps(p, self.first(n), v) }
    }
    #[inline(always)]
    unsafe fn load_u(self, p: *const u32) -> __m512i {
        // SAFETY: as for `load`.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store_u(self, p: *mut u32, v: __m512i) {
        // SAFETY: as for `load`.
        unsafe { _mm512_storeu_si512(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> __m512i {
        // SAFETY: 16 half-words are readable (the caller) by instructions that the token proves.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u16_partial(self, p: *const u16, n: usize) -> __m512i {
        // SAFETY: half-words that the mask leaves out are not read.
        unsafe { _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(self.first(n), p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u16_pairs(self, low: *const u16, high: *const u16) -> __m512i {
        // SAFETY: as for `load_u16`; half-words 0–15 of both are picked in turn, those above are not.
        unsafe {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.cast()));
            let high = _mm512_castsi256_si512(_mm256_loadu_si256(high.cast()));
            _mm512_permutex2var_epi16(low, _mm512_loadu_si512(IN_TURN.as_ptr().cast()), high)
        }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: __m512i) {
        // SAFETY: as for `load_u16`.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(v)) }
    }
    #[inline(always)]
    unsafe fn store_u16_partial(self, p: *mut u16, v: __m512i, n: usize) {
        // SAFETY: half-words that the mask leaves out are not written.
        unsafe { _mm256_mask_storeu_epi16(p.cast(), self.first(n), _mm512_cvtepi32_epi16(v)) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        op!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn splat_u(self, x: u32) -> __m512i {
        op!(_mm512_set1_epi32(x as i32))
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn sqrt(self, a: __m512) -> __m512 {
        op!(_mm512_sqrt_ps(a))
    }
    #[inline(always)]
    fn neg(self, a: __m512) -> __m512 {
        op!(_mm512_xor_ps(a, _mm512_set1_ps(-0.0)))
    }
    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        op!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn floor(self, a: __m512) -> __m512 {
        op!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn le(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b))
    }
    #[inline(always)]
    fn eq(self, a: __m512, b: __m512) -> __mmask16 {
        op!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b))
    }
    #[inline(always)]
    fn eq_u(self, a: __m512i, b: __m512i) -> __mmask16 {
        op!(_mm512_cmpeq_epi32_mask(a, b))
    }
    #[inline(always)]
    fn ge_u(self, a: __m512i, b: __m512i) -> __mmask16 {
        op!(_mm512_cmpge_epu32_mask(a, b))
    }
    #[inline(always)]
    fn first(self, n: usize) -> __mmask16 {
        debug_assert!(n <= LANES);
        ((1u32 << n) - 1) as __mmask16
    }
    #[inline(always)]
    fn and_m(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn or_m(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn not_m(self, a: __mmask16) -> __mmask16 {
        !a
    }
    #[inline(always)]
    fn any(self, a: __mmask16) -> bool {
        a != 0
    }
    #[inline(always)]
    fn select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mask_blend_ps(m, b, a))
    }

    #[inline(always)]
    fn bits(self, a: __m512) -> __m512i {
        op!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn from_bits(self, a: __m512i) -> __m512 {
        op!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn and_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn add_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn mul_even_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mul_epu32(a, b))
    }
    #[inline(always)]
    fn odd_to_even_u(self, a: __m512i) -> __m512i {
        op!(_mm512_srli_epi64::<32>(a))
    }
    #[inline(always)]
    fn weave_even_u(self, a: __m512i, b: __m512i) -> __m512i {
        op!(_mm512_mask_blend_epi32(0xAAAA, a, _mm512_slli_epi64::<32>(b)))
    }
    #[inline(always)]
    fn shl_u(self, a: __m512i, n: u32) -> __m512i {
        op!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shr_u(self, a: __m512i, n: u32) -> __m512i {
        op!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn sar_u(self, a: __m512i, n: u32) -> __m512i {
        op!(_mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn from_i32(self, a: __m512i) -> __m512 {
        op!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn to_i32(self, a: __m512) -> __m512i {
        op!(_mm512_cvttps_epi32(a))
    }
    #[inline(always)]
    fn transpose4_u(self, [a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
        op!({
            let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab_low, cd_low),
                _mm512_unpackhi_epi64(ab_low, cd_low),
                _mm512_unpacklo_epi64(ab_high, cd_high),
                _mm512_unpackhi_epi64(ab_high, cd_high),
            ]
        })
    }

    #[inline(always)]
    fn fold(self, a: __m512) -> f32 {
        op!({
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            super::avx2::fold8(eight)
        })
    }
    #[inline(always)]
    fn to_array(self, a: __m512) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array holds 16 floats.
        unsafe { self.store(out.as_mut_ptr(), a) };
        out
    }
}
