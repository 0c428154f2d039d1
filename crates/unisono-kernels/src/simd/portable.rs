//! Sixteen lanes as an array, for every CPU: also the slow twin of the other two, and what the host's scalars use.

use super::{LANES, Simd};
use crate::isa::Isa;
use std::array::from_fn;

/// The token of plain Rust.
#[derive(Clone, Copy, Debug)]
pub struct Portable(());

impl Portable {
    /// The token.
    #[inline(always)]
    pub fn new() -> Portable {
        Portable(())
    }
}

impl Default for Portable {
    fn default() -> Portable {
        Portable::new()
    }
}

type F = [f32; LANES];
type U = [u32; LANES];

/// All ones for true.
#[inline(always)]
fn mask(truth: bool) -> u32 {
    if truth { u32::MAX } else { 0 }
}

impl Simd for Portable {
    type F = F;
    type U = U;
    type M = U;
    const ISA: Isa = Isa::Portable;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: 16 floats are readable, by the caller's word.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: F) {
        // SAFETY: 16 floats are writable, by the caller's word.
        unsafe { p.cast::<F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, p: *const f32, n: usize) -> F {
        let mut out = [0.0; LANES];
        // SAFETY: `n` floats are readable, by the caller's word.
        out[..n].copy_from_slice(unsafe { std::slice::from_raw_parts(p, n) });
        out
    }
    #[inline(always)]
    unsafe fn store_partial(self, p: *mut f32, v: F, n: usize) {
        // SAFETY: `n` floats are writable, by the caller's word.
        unsafe { std::slice::from_raw_parts_mut(p, n) }.copy_from_slice(&v[..n]);
    }
    #[inline(always)]
    unsafe fn load_u(self, p: *const u32) -> U {
        // SAFETY: 16 words are readable, by the caller's word.
        unsafe { p.cast::<U>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_u(self, p: *mut u32, v: U) {
        // SAFETY: 16 words are writable, by the caller's word.
        unsafe { p.cast::<U>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, p: *const u16) -> U {
        // SAFETY: 16 half-words are readable, by the caller's word.
        let halves = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        from_fn(|i| u32::from(halves[i]))
    }
    #[inline(always)]
    unsafe fn load_u16_partial(self, p: *const u16, n: usize) -> U {
        // SAFETY: `n` half-words are readable, by the caller's word.
        let halves = unsafe { std::slice::from_raw_parts(p, n) };
        from_fn(|i| halves.get(i).map_or(0, |half| u32::from(*half)))
    }
    #[inline(always)]
    unsafe fn store_u16(self, p: *mut u16, v: U) {
        // SAFETY: 16 half-words are writable, by the caller's word.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(v.map(|word| word as u16)) }
    }
    #[inline(always)]
    unsafe fn store_u16_partial(self, p: *mut u16, v: U, n: usize) {
        // SAFETY: `n` half-words are writable, by the caller's word.
        let halves = unsafe { std::slice::from_raw_parts_mut(p, n) };
        for (half, word) in halves.iter_mut().zip(v) {
            *half = word as u16;
        }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    fn splat_u(self, x: u32) -> U {
        [x; LANES]
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sqrt(self, a: F) -> F {
        a.map(f32::sqrt)
    }
    #[inline(always)]
    fn neg(self, a: F) -> F {
        a.map(|x| -x)
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn floor(self, a: F) -> F {
        a.map(|x| {
            // From 2²³ on every float is an integer (and NaN stays as it is).
            if x.abs() < 8_388_608.0 {
                let whole = x as i32 as f32;
                let down = if whole > x { whole - 1.0 } else { whole };
                down.copysign(x)
            } else {
                x
            }
        })
    }

    #[inline(always)]
    fn lt(self, a: F, b: F) -> U {
        from_fn(|i| mask(a[i] < b[i]))
    }
    #[inline(always)]
    fn le(self, a: F, b: F) -> U {
        from_fn(|i| mask(a[i] <= b[i]))
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> U {
        from_fn(|i| mask(a[i] == b[i]))
    }
    #[inline(always)]
    fn eq_u(self, a: U, b: U) -> U {
        from_fn(|i| mask(a[i] == b[i]))
    }
    #[inline(always)]
    fn ge_u(self, a: U, b: U) -> U {
        from_fn(|i| mask(a[i] >= b[i]))
    }
    #[inline(always)]
    fn first(self, n: usize) -> U {
        from_fn(|i| mask(i < n))
    }
    #[inline(always)]
    fn and_m(self, a: U, b: U) -> U {
        self.and_u(a, b)
    }
    #[inline(always)]
    fn or_m(self, a: U, b: U) -> U {
        self.or_u(a, b)
    }
    #[inline(always)]
    fn not_m(self, a: U) -> U {
        a.map(|x| !x)
    }
    #[inline(always)]
    fn any(self, a: U) -> bool {
        a.iter().fold(0, |acc, x| acc | x) != 0
    }
    #[inline(always)]
    fn select(self, m: U, a: F, b: F) -> F {
        from_fn(|i| f32::from_bits(m[i] & a[i].to_bits() | !m[i] & b[i].to_bits()))
    }

    #[inline(always)]
    fn bits(self, a: F) -> U {
        a.map(f32::to_bits)
    }
    #[inline(always)]
    fn from_bits(self, a: U) -> F {
        a.map(f32::from_bits)
    }
    #[inline(always)]
    fn and_u(self, a: U, b: U) -> U {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn or_u(self, a: U, b: U) -> U {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn xor_u(self, a: U, b: U) -> U {
        from_fn(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn add_u(self, a: U, b: U) -> U {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn sub_u(self, a: U, b: U) -> U {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn mul_even_u(self, a: U, b: U) -> U {
        from_fn(|i| {
            let product = u64::from(a[i & !1]) * u64::from(b[i & !1]);
            if i % 2 == 0 {
                product as u32
            } else {
                (product >> 32) as u32
            }
        })
    }
    #[inline(always)]
    fn odd_to_even_u(self, a: U) -> U {
        from_fn(|i| if i % 2 == 0 { a[i + 1] } else { 0 })
    }
    #[inline(always)]
    fn weave_even_u(self, a: U, b: U) -> U {
        from_fn(|i| if i % 2 == 0 { a[i] } else { b[i - 1] })
    }
    #[inline(always)]
    fn shl_u(self, a: U, n: u32) -> U {
        a.map(|x| x << n)
    }
    #[inline(always)]
    fn shr_u(self, a: U, n: u32) -> U {
        a.map(|x| x >> n)
    }
    #[inline(always)]
    fn sar_u(self, a: U, n: u32) -> U {
        a.map(|x| (x as i32 >> n) as u32)
    }
    #[inline(always)]
    fn from_i32(self, a: U) -> F {
        a.map(|x| x as i32 as f32)
    }
    #[inline(always)]
    fn to_i32(self, a: F) -> U {
        a.map(|x| x as i32 as u32)
    }
    #[inline(always)]
    fn transpose4_u(self, a: [U; 4]) -> [U; 4] {
        from_fn(|j| from_fn(|lane| a[lane % 4][lane / 4 * 4 + j]))
    }

    #[inline(always)]
    fn fold(self, a: F) -> f32 {
        crate::order::fold_lanes(a)
    }
    #[inline(always)]
    fn to_array(self, a: F) -> F {
        a
    }
}
