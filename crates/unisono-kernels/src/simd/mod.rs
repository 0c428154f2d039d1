//! Sixteen lanes of f32 on every instruction set: one source a kernel, equal bits on each.
//!
//! A kernel is an `#[inline(always)]` function generic over [`Simd`]; its public entry point calls it through
//! [`dispatch!`](crate::simd::dispatch), which puts the same source into one function per instruction set, compiled with
//! that set's features. Sixteen lanes are one register on AVX-512, two on AVX2 and an array elsewhere.
//!
//! Lane code must be inlined into that function, as nothing else has its features: what is not is ten to fifty times slower.
//! So closures that hold lane code are marked, in argument position, as `#[inline(always)] |v| …`, and lane code does not go
//! through `array::map`, `from_fn` and their like, nor through a larger function passed by name (a shim that may stay a call).
//!
//! # What is equal and what is not
//!
//! Each operation is either exact (bits, compares) or correctly rounded to nearest even (add, sub, mul, div, sqrt, fma), so
//! its result is the same on each instruction set; denormals are kept. `max` and `min` are not the symmetric ones of IEEE:
//! `max(a, b)` is `if a > b { a } else { b }`, so **the second operand** is returned where one of them is NaN, and for zeros
//! of either sign. Only a NaN's sign and payload may differ between instruction sets.

use crate::isa::Isa;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use portable::Portable;

/// Lanes in a vector.
pub const LANES: usize = 16;

/// The operations on 16 lanes. An implementor is a zero-size token whose existence proves that the CPU can run them.
///
/// `F` holds f32, `U` holds u32 (or the bits of i32), `M` one truth value a lane.
#[allow(clippy::wrong_self_convention)] // the receiver is the token
pub trait Simd: Copy + Send + Sync + 'static {
    /// 16 × f32.
    type F: Copy;
    /// 16 × u32.
    type U: Copy;
    /// 16 × bool.
    type M: Copy;
    /// The instruction set of this token.
    const ISA: Isa;

    /// Reads 16 floats, at any alignment.
    ///
    /// # Safety
    /// `p` must be valid for reading 16 floats.
    unsafe fn load(self, p: *const f32) -> Self::F;
    /// Writes 16 floats, at any alignment.
    ///
    /// # Safety
    /// `p` must be valid for writing 16 floats.
    unsafe fn store(self, p: *mut f32, v: Self::F);
    /// Reads `n ≤ 16` floats into the first lanes; the others are +0.
    ///
    /// # Safety
    /// `p` must be valid for reading `n` floats.
    unsafe fn load_partial(self, p: *const f32, n: usize) -> Self::F;
    /// Writes the first `n ≤ 16` lanes; other memory is not touched.
    ///
    /// # Safety
    /// `p` must be valid for writing `n` floats.
    unsafe fn store_partial(self, p: *mut f32, v: Self::F, n: usize);
    /// Reads 16 words.
    ///
    /// # Safety
    /// `p` must be valid for reading 16 words.
    unsafe fn load_u(self, p: *const u32) -> Self::U;
    /// Writes 16 words.
    ///
    /// # Safety
    /// `p` must be valid for writing 16 words.
    unsafe fn store_u(self, p: *mut u32, v: Self::U);

    /// Reads 16 half-words into the low halves of the lanes.
    ///
    /// # Safety
    /// `p` must be valid for reading 16 half-words.
    unsafe fn load_u16(self, p: *const u16) -> Self::U;
    /// Reads `n ≤ 16` half-words into the first lanes; the others are 0.
    ///
    /// # Safety
    /// `p` must be valid for reading `n` half-words.
    unsafe fn load_u16_partial(self, p: *const u16, n: usize) -> Self::U;
    /// Reads 16 half-words into the low halves of the lanes and 16 into the high halves.
    ///
    /// # Safety
    /// `low` and `high` must be valid for reading 16 half-words each.
    #[inline(always)]
    unsafe fn load_u16_pairs(self, low: *const u16, high: *const u16) -> Self::U {
        // SAFETY: the caller's promise.
        unsafe { self.or_u(self.load_u16(low), self.shl_u(self.load_u16(high), 16)) }
    }
    /// Writes the low halves of 16 lanes.
    ///
    /// # Safety
    /// `p` must be valid for writing 16 half-words.
    unsafe fn store_u16(self, p: *mut u16, v: Self::U);
    /// Writes the low halves of the first `n ≤ 16` lanes; other memory is not touched.
    ///
    /// # Safety
    /// `p` must be valid for writing `n` half-words.
    unsafe fn store_u16_partial(self, p: *mut u16, v: Self::U, n: usize);

    /// `x` in each lane.
    fn splat(self, x: f32) -> Self::F;
    /// `x` in each lane.
    fn splat_u(self, x: u32) -> Self::U;

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a − b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// Square root, correctly rounded.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// The sign bit flipped.
    fn neg(self, a: Self::F) -> Self::F;
    /// The sign bit cleared.
    fn abs(self, a: Self::F) -> Self::F;
    /// The largest integer not above `a`.
    fn floor(self, a: Self::F) -> Self::F;

    /// `a < b`; false where one is NaN, as for each ordered comparison.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b` of words.
    fn eq_u(self, a: Self::U, b: Self::U) -> Self::M;
    /// `a >= b` of unsigned words.
    fn ge_u(self, a: Self::U, b: Self::U) -> Self::M;
    /// True in the first `n` lanes.
    fn first(self, n: usize) -> Self::M;
    /// Both.
    fn and_m(self, a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    fn or_m(self, a: Self::M, b: Self::M) -> Self::M;
    /// The opposite.
    fn not_m(self, a: Self::M) -> Self::M;
    /// Whether any lane is true.
    fn any(self, a: Self::M) -> bool;
    /// `if m { a } else { b }`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;

    /// The bits of each lane.
    fn bits(self, a: Self::F) -> Self::U;
    /// The float with these bits.
    fn from_bits(self, a: Self::U) -> Self::F;
    /// `a & b`.
    fn and_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// `a | b`.
    fn or_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// `a ^ b`.
    fn xor_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// `a + b`, wrapping.
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// `a − b`, wrapping.
    fn sub_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// The 64-bit products of the even lanes: the low word in the even lane, the high one in the odd lane after it.
    fn mul_even_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// Each odd lane in the even lane before it, 0 in the odd ones.
    fn odd_to_even_u(self, a: Self::U) -> Self::U;
    /// The even lanes of `a`, and those of `b` in the odd lanes after them.
    fn weave_even_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// `a << n`, `n < 32`.
    fn shl_u(self, a: Self::U, n: u32) -> Self::U;
    /// `a >> n`, zeros coming in, `n < 32`.
    fn shr_u(self, a: Self::U, n: u32) -> Self::U;
    /// `a >> n` of signed words, the sign coming in, `n < 32`.
    fn sar_u(self, a: Self::U, n: u32) -> Self::U;
    /// Signed words as floats, rounded to nearest even.
    fn from_i32(self, a: Self::U) -> Self::F;
    /// Floats as signed words, the fraction dropped; only for |a| < 2³¹.
    fn to_i32(self, a: Self::F) -> Self::U;
    /// Transposes each 4 × 4 block of lanes `4L..4L + 4`: lane `4L + k` of result `j` is lane `4L + j` of `a[k]`.
    fn transpose4_u(self, a: [Self::U; 4]) -> [Self::U; 4];

    /// The sum of the lanes: 8–15 onto 0–7, then 4–7 onto 0–3, 2–3 onto 0–1, 1 onto 0 ([`crate::order::fold_lanes`]).
    fn fold(self, a: Self::F) -> f32;
    /// The lanes as an array.
    fn to_array(self, a: Self::F) -> [f32; LANES];

    /// +0 in each lane.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// `c − a · b`, rounded once.
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        self.fma(self.neg(a), b, c)
    }
    /// `a > b`.
    #[inline(always)]
    fn gt(self, a: Self::F, b: Self::F) -> Self::M {
        self.lt(b, a)
    }
    /// `a >= b`.
    #[inline(always)]
    fn ge(self, a: Self::F, b: Self::F) -> Self::M {
        self.le(b, a)
    }
    /// `if m { a } else { b }` of words.
    #[inline(always)]
    fn select_u(self, m: Self::M, a: Self::U, b: Self::U) -> Self::U {
        self.bits(self.select(m, self.from_bits(a), self.from_bits(b)))
    }
    /// The array's elements as lanes.
    #[inline(always)]
    fn from_array(self, a: [f32; LANES]) -> Self::F {
        // SAFETY: the array holds 16 floats.
        unsafe { self.load(a.as_ptr()) }
    }
    /// The array's elements as lanes.
    #[inline(always)]
    fn from_array_u(self, a: [u32; LANES]) -> Self::U {
        // SAFETY: the array holds 16 words.
        unsafe { self.load_u(a.as_ptr()) }
    }
    /// The first 16 elements of `x`, or all of them and then +0.
    #[inline(always)]
    fn read(self, x: &[f32]) -> Self::F {
        if x.len() >= LANES {
            // SAFETY: at least 16 elements.
            unsafe { self.load(x.as_ptr()) }
        } else {
            // SAFETY: `x.len()` elements.
            unsafe { self.load_partial(x.as_ptr(), x.len()) }
        }
    }
    /// Writes the first 16 elements of `y`, or all of them if there are fewer.
    #[inline(always)]
    fn write(self, y: &mut [f32], v: Self::F) {
        if y.len() >= LANES {
            // SAFETY: at least 16 elements.
            unsafe { self.store(y.as_mut_ptr(), v) }
        } else {
            // SAFETY: `y.len()` elements.
            unsafe { self.store_partial(y.as_mut_ptr(), v, y.len()) }
        }
    }
}

/// `isa`, made sure that this CPU has it: a token is only made behind this check.
///
/// # Panics
/// If it has not: a bug in unisono, as an [`Isa`] comes from [`Isa::detect`] or [`Isa::named`].
#[inline]
pub fn checked(isa: Isa) -> Isa {
    assert!(
        isa <= Isa::detect(),
        "bug in unisono: {} was asked for on a CPU that has it not",
        isa.name()
    );
    isa
}

/// Calls a lane-generic kernel on an instruction set: `dispatch!(isa, kernel(x: &[f32], y: &mut [f32]) -> f32)`.
///
/// `kernel` is an `#[inline(always)] fn kernel<S: Simd>(s: S, x: &[f32], y: &mut [f32]) -> f32`; the arguments are variables
/// of these names and types. Constants go in as `kernel::<_, 4>(…)`.
#[macro_export]
#[doc(hidden)]
macro_rules! __dispatch {
    ($isa:expr, $kernel:ident $(::<$($g:tt),+>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        match $crate::simd::checked($isa) {
            $crate::isa::Isa::Portable => $kernel $(::<$($g),+>)? ($crate::simd::Portable::new(), $($arg),*),
            #[cfg(target_arch = "x86_64")]
            $crate::isa::Isa::Avx2 => {
                #[allow(clippy::too_many_arguments)]
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: this function runs only where these features are.
                    let token = unsafe { $crate::simd::Avx2::new() };
                    $kernel $(::<$($g),+>)? (token, $($arg),*)
                }
                // SAFETY: `checked` made sure of the features.
                unsafe { avx2($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            $crate::isa::Isa::Avx512 => {
                #[allow(clippy::too_many_arguments)]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: this function runs only where these features are.
                    let token = unsafe { $crate::simd::Avx512::new() };
                    $kernel $(::<$($g),+>)? (token, $($arg),*)
                }
                // SAFETY: `checked` made sure of the features.
                unsafe { avx512($($arg),*) }
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!("bug in unisono: an x86 instruction set on another CPU"),
        }
    };
}
#[doc(inline)]
pub use crate::__dispatch as dispatch;
