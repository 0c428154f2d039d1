//! Sixteen lanes in two AVX2 registers.

use super::{LANES, Simd};
use crate::isa::Isa;
use std::arch::x86_64::*;

/// The token of AVX2 with FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// The token.
    ///
    /// # Safety
    /// The CPU must have AVX2 and FMA.
    #[inline(always)]
    pub unsafe fn new() -> Avx2 {
        Avx2(())
    }
}

/// Two registers: lanes 0–7 and 8–15.
#[derive(Clone, Copy, Debug)]
pub struct Pair<T>(pub T, pub T);

type F = Pair<__m256>;
type U = Pair<__m256i>;

/// An expression of intrinsics without memory access.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: the token exists only where the CPU has these instructions.
        unsafe { $e }
    };
}

/// The sum of eight lanes, 4–7 onto 0–3, then 2–3 onto 0–1, then 1 onto 0.
///
/// # Safety
/// The CPU must have AVX.
#[inline(always)]
pub(super) unsafe fn fold8(a: __m256) -> f32 {
    // SAFETY: AVX, by the caller's word.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// All ones in the first `n` of eight lanes (any `n`, negative as 0).
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn first8(n: i32) -> __m256i {
    // SAFETY: AVX2, by the caller's word.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

impl Simd for Avx2 {
    type F = F;
    type U = U;
    type M = F;
    const ISA: Isa = Isa::Avx2;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: 16 floats are readable (the caller) by instructions that the token proves.
        unsafe { Pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F) {
        // SAFETY: as for `load`.
        unsafe {
            _mm256_storeu_ps(p, v.0);
            _mm256_storeu_ps(p.add(8), v.1);
        }
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> F {
        debug_assert!(n <= LANES);
        // SAFETY: lanes that the mask leaves out are not read.
        unsafe {
            Pair(
                _mm256_maskload_ps(p, first8(n as i32)),
                _mm256_maskload_ps(p.wrapping_add(8), first8(n as i32 - 8)),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: F, n: usize) {
        debug_assert!(n <= LANES);
        // SAFETY: lanes that the mask leaves out are not written.
        unsafe {
            _mm256_maskstore_ps(p, first8(n as i32), v.0);
            _mm256_maskstore_ps(p.wrapping_add(8), first8(n as i32 - 8), v.1);
        }
    }
    #[inline(always)]
    unsafe fn load_u(self, p: *const u32) -> U {
        // SAFETY: as for `load`.
        unsafe { Pair(_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast())) }
    }
    #[inline(always)]
    unsafe fn store_u(self, p: *mut u32, v: U) {
        // SAFETY: as for `load`.
        unsafe {
            _mm256_storeu_si256(p.cast(), v.0);
            _mm256_storeu_si256(p.add(8).cast(), v.1);
        }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> U {
        // SAFETY: 16 half-words are readable (the caller) by instructions that the token proves.
        unsafe {
            Pair(
                _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(p.add(8).cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn load_u16_partial(self, p: *const u16, n: usize) -> U {
        let mut all = [0; LANES];
        // SAFETY: `n` half-words are readable, by the caller's word; the array holds 16.
        unsafe {
            all[..n].copy_from_slice(std::slice::from_raw_parts(p, n));
            self.load_u16(all.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: U) {
        // SAFETY: as for `load_u16`. The high halves are cleared first, because the packing saturates; it packs within 128
        // bits, which the permutation puts right.
        unsafe {
            let low = _mm256_set1_epi32(0xffff);
            let packed = _mm256_packus_epi32(_mm256_and_si256(v.0, low), _mm256_and_si256(v.1, low));
            _mm256_storeu_si256(p.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }
    #[inline(always)]
    unsafe fn store_u16_partial(self, p: *mut u16, v: U, n: usize) {
        let mut all = [0; LANES];
        // SAFETY: the array holds 16 half-words; `n` are writable at `p`, by the caller's word.
        unsafe {
            self.store_u16(all.as_mut_ptr(), v);
            std::slice::from_raw_parts_mut(p, n).copy_from_slice(&all[..n]);
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        op!(Pair(_mm256_set1_ps(x), _mm256_set1_ps(x)))
    }
    #[inline(always)]
    fn splat_u(self, x: u32) -> U {
        op!(Pair(_mm256_set1_epi32(x as i32), _mm256_set1_epi32(x as i32)))
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        op!(Pair(_mm256_add_ps(a.0, b.0), _mm256_add_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        op!(Pair(_mm256_sub_ps(a.0, b.0), _mm256_sub_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        op!(Pair(_mm256_mul_ps(a.0, b.0), _mm256_mul_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        op!(Pair(_mm256_div_ps(a.0, b.0), _mm256_div_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        op!(Pair(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        op!(Pair(_mm256_max_ps(a.0, b.0), _mm256_max_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        op!(Pair(_mm256_min_ps(a.0, b.0), _mm256_min_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        op!(Pair(_mm256_sqrt_ps(a.0), _mm256_sqrt_ps(a.1)))
    }
    #[inline(always)]
    fn neg(self, a: F) -> F {
        op!({
            let sign = _mm256_set1_ps(-0.0);
            Pair(_mm256_xor_ps(a.0, sign), _mm256_xor_ps(a.1, sign))
        })
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        op!({
            let sign = _mm256_set1_ps(-0.0);
            Pair(_mm256_andnot_ps(sign, a.0), _mm256_andnot_ps(sign, a.1))
        })
    }
    #[inline(always)]
    fn floor(self, a: F) -> F {
        op!(Pair(_mm256_floor_ps(a.0), _mm256_floor_ps(a.1)))
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> F {
        op!(Pair(
            _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0),
            _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1)
        ))
    }
    #[inline(always)]
    fn le(self, a: F, b: F) -> F {
        op!(Pair(
            _mm256_cmp_ps::<_CMP_LE_OQ>(a.0, b.0),
            _mm256_cmp_ps::<_CMP_LE_OQ>(a.1, b.1)
        ))
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> F {
        op!(Pair(
            _mm256_cmp_ps::<_CMP_EQ_OQ>(a.0, b.0),
            _mm256_cmp_ps::<_CMP_EQ_OQ>(a.1, b.1)
        ))
    }
    #[inline(always)]
    fn eq_u(self, a: U, b: U) -> F {
        op!(self.from_bits(Pair(_mm256_cmpeq_epi32(a.0, b.0), _mm256_cmpeq_epi32(a.1, b.1))))
    }
    #[inline(always)]
    fn ge_u(self, a: U, b: U) -> F {
        // AVX2 compares signed words only, but has the unsigned maximum.
        let max = op!(Pair(_mm256_max_epu32(a.0, b.0), _mm256_max_epu32(a.1, b.1)));
        self.eq_u(max, a)
    }
    #[inline(always)]
    fn first(self, n: usize) -> F {
        op!(self.from_bits(Pair(first8(n as i32), first8(n as i32 - 8))))
    }
    #[inline(always)]
    fn and_m(self, a: F, b: F) -> F {
        op!(Pair(_mm256_and_ps(a.0, b.0), _mm256_and_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn or_m(self, a: F, b: F) -> F {
        op!(Pair(_mm256_or_ps(a.0, b.0), _mm256_or_ps(a.1, b.1)))
    }
    #[inline(always)]
    fn not_m(self, a: F) -> F {
        self.from_bits(self.xor_u(self.bits(a), self.splat_u(u32::MAX)))
    }
    #[inline(always)]
    fn any(self, a: F) -> bool {
        op!(_mm256_movemask_ps(_mm256_or_ps(a.0, a.1)) != 0)
    }
    #[inline(always)]
    fn select(self, m: F, a: F, b: F) -> F {
        op!(Pair(_mm256_blendv_ps(b.0, a.0, m.0), _mm256_blendv_ps(b.1, a.1, m.1)))
    }

    #[inline(always)]
    fn bits(self, a: F) -> U {
        op!(Pair(_mm256_castps_si256(a.0), _mm256_castps_si256(a.1)))
    }
    #[inline(always)]
    fn from_bits(self, a: U) -> F {
        op!(Pair(_mm256_castsi256_ps(a.0), _mm256_castsi256_ps(a.1)))
    }
    #[inline(always)]
    fn and_u(self, a: U, b: U) -> U {
        op!(Pair(_mm256_and_si256(a.0, b.0), _mm256_and_si256(a.1, b.1)))
    }
    #[inline(always)]
    fn or_u(self, a: U, b: U) -> U {
        op!(Pair(_mm256_or_si256(a.0, b.0), _mm256_or_si256(a.1, b.1)))
    }
    #[inline(always)]
    fn xor_u(self, a: U, b: U) -> U {
        op!(Pair(_mm256_xor_si256(a.0, b.0), _mm256_xor_si256(a.1, b.1)))
    }
    #[inline(always)]
    fn add_u(self, a: U, b: U) -> U {
        op!(Pair(_mm256_add_epi32(a.0, b.0), _mm256_add_epi32(a.1, b.1)))
    }
    #[inline(always)]
    fn sub_u(self, a: U, b: U) -> U {
        op!(Pair(_mm256_sub_epi32(a.0, b.0), _mm256_sub_epi32(a.1, b.1)))
    }
    #[inline(always)]
    fn mul_even_u(self, a: U, b: U) -> U {
        op!(Pair(_mm256_mul_epu32(a.0, b.0), _mm256_mul_epu32(a.1, b.1)))
    }
    #[inline(always)]
    fn odd_to_even_u(self, a: U) -> U {
        op!(Pair(_mm256_srli_epi64::<32>(a.0), _mm256_srli_epi64::<32>(a.1)))
    }
    #[inline(always)]
    fn weave_even_u(self, a: U, b: U) -> U {
        op!(Pair(
            _mm256_blend_epi32::<0b1010_1010>(a.0, _mm256_slli_epi64::<32>(b.0)),
            _mm256_blend_epi32::<0b1010_1010>(a.1, _mm256_slli_epi64::<32>(b.1))
        ))
    }
    #[inline(always)]
    fn shl_u(self, a: U, n: u32) -> U {
        op!({
            let n = _mm_cvtsi32_si128(n as i32);
            Pair(_mm256_sll_epi32(a.0, n), _mm256_sll_epi32(a.1, n))
        })
    }
    #[inline(always)]
    fn shr_u(self, a: U, n: u32) -> U {
        op!({
            let n = _mm_cvtsi32_si128(n as i32);
            Pair(_mm256_srl_epi32(a.0, n), _mm256_srl_epi32(a.1, n))
        })
    }
    #[inline(always)]
    fn sar_u(self, a: U, n: u32) -> U {
        op!({
            let n = _mm_cvtsi32_si128(n as i32);
            Pair(_mm256_sra_epi32(a.0, n), _mm256_sra_epi32(a.1, n))
        })
    }
    #[inline(always)]
    fn from_i32(self, a: U) -> F {
        op!(Pair(_mm256_cvtepi32_ps(a.0), _mm256_cvtepi32_ps(a.1)))
    }
    #[inline(always)]
    fn to_i32(self, a: F) -> U {
        op!(Pair(_mm256_cvttps_epi32(a.0), _mm256_cvttps_epi32(a.1)))
    }
    #[inline(always)]
    fn transpose4_u(self, [a, b, c, d]: [U; 4]) -> [U; 4] {
        let low = op!(transpose4_8([a.0, b.0, c.0, d.0]));
        let high = op!(transpose4_8([a.1, b.1, c.1, d.1]));
        [
            Pair(low[0], high[0]),
            Pair(low[1], high[1]),
            Pair(low[2], high[2]),
            Pair(low[3], high[3]),
        ]
    }

    #[inline(always)]
    fn fold(self, a: F) -> f32 {
        op!(fold8(_mm256_add_ps(a.0, a.1)))
    }
    #[inline(always)]
    fn to_array(self, a: F) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the array holds 16 floats.
        unsafe { self.store(out.as_mut_ptr(), a) };
        out
    }
}

/// Transposes both 4 × 4 blocks.
///
/// # Safety
/// The CPU must have AVX2.
#[inline(always)]
unsafe fn transpose4_8([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: AVX2, by the caller's word.
    unsafe {
        let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab_low, cd_low),
            _mm256_unpackhi_epi64(ab_low, cd_low),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}
