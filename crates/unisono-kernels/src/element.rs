//! What arrays hold: f32, or bf16 that is f32 wherever it is computed with.
//!
//! A kernel that takes either is one source over [`Element`]: elements become lanes of f32 as they are read, and are rounded
//! once, to nearest even, as they are written. Its public entry takes [`Floats`], plain slices of one kind or the other, or
//! what turns into them; then the work is done by a function that takes [`Floats`], so that it is compiled only once.

use crate::out::Out;
use crate::simd::{LANES, Simd};
use std::ops::Range;

/// A number of 16 bits: the upper half of an f32 (8 bits of exponent, 7 of fraction).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(u16);

impl Bf16 {
    /// The number with these bits.
    #[inline(always)]
    pub const fn from_bits(bits: u16) -> Bf16 {
        Bf16(bits)
    }

    /// Its bits.
    #[inline(always)]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The nearest number, of two the one with an even last bit. Denormals are kept; a NaN stays one.
    #[inline(always)]
    pub fn from_f32(x: f32) -> Bf16 {
        let bits = x.to_bits();
        if x.is_nan() {
            return Bf16((bits >> 16) as u16 | QUIET);
        }
        Bf16((bits.wrapping_add(HALF + (bits >> 16 & 1)) >> 16) as u16)
    }

    /// The same number; exact.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// The bit that keeps a NaN a NaN when its lower half is dropped.
const QUIET: u16 = 0x40;
/// Just under half a unit in the last place of bf16, as bits of f32.
const HALF: u32 = 0x7fff;

/// What an array of numbers can hold.
pub trait Element: Copy + Default + Send + Sync + 'static {
    /// Reads 16 elements, at any alignment.
    ///
    /// # Safety
    /// `p` must be valid for reading 16 elements.
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::F;
    /// Reads `n ≤ 16` elements into the first lanes; the others are +0.
    ///
    /// # Safety
    /// `p` must be valid for reading `n` elements.
    unsafe fn load_partial<S: Simd>(s: S, p: *const Self, n: usize) -> S::F;
    /// Writes 16 elements, at any alignment, each rounded once.
    ///
    /// # Safety
    /// `p` must be valid for writing 16 elements.
    unsafe fn store<S: Simd>(s: S, p: *mut Self, v: S::F);
    /// Writes the first `n ≤ 16` lanes; other memory is not touched.
    ///
    /// # Safety
    /// `p` must be valid for writing `n` elements.
    unsafe fn store_partial<S: Simd>(s: S, p: *mut Self, v: S::F, n: usize);

    /// Lanes as they would be read after they were written.
    fn rounded<S: Simd>(s: S, v: S::F) -> S::F;

    /// The number as f32; exact.
    fn to_f32(self) -> f32;
    /// The number, rounded to nearest even.
    fn from_f32(x: f32) -> Self;

    /// The first 16 elements of `x`, or all of them and then +0.
    #[inline(always)]
    fn read<S: Simd>(s: S, x: &[Self]) -> S::F {
        if x.len() >= LANES {
            // SAFETY: at least 16 elements.
            unsafe { Self::load(s, x.as_ptr()) }
        } else {
            // SAFETY: `x.len()` elements.
            unsafe { Self::load_partial(s, x.as_ptr(), x.len()) }
        }
    }
    /// Writes the first 16 elements of `y`, or all of them if there are fewer.
    #[inline(always)]
    fn write<S: Simd>(s: S, y: &mut [Self], v: S::F) {
        if y.len() >= LANES {
            // SAFETY: at least 16 elements.
            unsafe { Self::store(s, y.as_mut_ptr(), v) }
        } else {
            // SAFETY: `y.len()` elements.
            unsafe { Self::store_partial(s, y.as_mut_ptr(), v, y.len()) }
        }
    }
}

impl Element for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load(p) }
    }
    #[inline(always)]
    unsafe fn load_partial<S: Simd>(s: S, p: *const f32, n: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load_partial(p, n) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut f32, v: S::F) {
        // SAFETY: the caller's promise.
        unsafe { s.store(p, v) }
    }
    #[inline(always)]
    unsafe fn store_partial<S: Simd>(s: S, p: *mut f32, v: S::F, n: usize) {
        // SAFETY: the caller's promise.
        unsafe { s.store_partial(p, v, n) }
    }
    #[inline(always)]
    fn rounded<S: Simd>(_: S, v: S::F) -> S::F {
        v
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> f32 {
        x
    }
}

impl Element for Bf16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Bf16) -> S::F {
        // SAFETY: the caller's promise; a Bf16 is a half-word.
        s.from_bits(s.shl_u(unsafe { s.load_u16(p.cast()) }, 16))
    }
    #[inline(always)]
    unsafe fn load_partial<S: Simd>(s: S, p: *const Bf16, n: usize) -> S::F {
        // SAFETY: as for `load`.
        s.from_bits(s.shl_u(unsafe { s.load_u16_partial(p.cast(), n) }, 16))
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(s: S, p: *mut Bf16, v: S::F) {
        // SAFETY: as for `load`.
        unsafe { s.store_u16(p.cast(), upper_half(s, v)) }
    }
    #[inline(always)]
    unsafe fn store_partial<S: Simd>(s: S, p: *mut Bf16, v: S::F, n: usize) {
        // SAFETY: as for `load`.
        unsafe { s.store_u16_partial(p.cast(), upper_half(s, v), n) }
    }
    #[inline(always)]
    fn rounded<S: Simd>(s: S, v: S::F) -> S::F {
        s.from_bits(s.shl_u(upper_half(s, v), 16))
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        Bf16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Bf16 {
        Bf16::from_f32(x)
    }
}

/// The bits of [`Bf16::from_f32`] in the low half of each lane.
#[inline(always)]
pub(crate) fn upper_half<S: Simd>(s: S, v: S::F) -> S::U {
    let bits = s.bits(v);
    let odd = s.and_u(s.shr_u(bits, 16), s.splat_u(1));
    let rounded = s.add_u(bits, s.add_u(odd, s.splat_u(HALF)));
    let nan = s.or_u(bits, s.splat_u(u32::from(QUIET) << 16));
    s.shr_u(s.select_u(s.eq(v, v), rounded, nan), 16)
}

/// An array of either kind.
#[derive(Clone, Copy, Debug)]
pub enum Floats<'a> {
    /// Four bytes an element.
    F32(&'a [f32]),
    /// Two bytes an element.
    Bf16(&'a [Bf16]),
}

impl<'a> Floats<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Floats::F32(x) => x.len(),
            Floats::Bf16(x) => x.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the first element is.
    pub(crate) fn address(&self) -> *const u8 {
        match self {
            Floats::F32(x) => x.as_ptr().cast(),
            Floats::Bf16(x) => x.as_ptr().cast(),
        }
    }

    /// The elements of a range.
    ///
    /// # Panics
    /// If it is not inside: a bug in unisono.
    pub fn range(&self, range: Range<usize>) -> Floats<'a> {
        match self {
            Floats::F32(x) => Floats::F32(&x[range]),
            Floats::Bf16(x) => Floats::Bf16(&x[range]),
        }
    }

    /// Element `index`, as f32.
    ///
    /// # Panics
    /// If there is none: a bug in unisono.
    pub fn at(&self, index: usize) -> f32 {
        match self {
            Floats::F32(x) => x[index],
            Floats::Bf16(x) => x[index].to_f32(),
        }
    }
}

impl<'a> From<&'a [f32]> for Floats<'a> {
    fn from(x: &'a [f32]) -> Floats<'a> {
        Floats::F32(x)
    }
}

impl<'a> From<&'a Vec<f32>> for Floats<'a> {
    fn from(x: &'a Vec<f32>) -> Floats<'a> {
        Floats::F32(x)
    }
}

impl<'a, const N: usize> From<&'a [f32; N]> for Floats<'a> {
    fn from(x: &'a [f32; N]) -> Floats<'a> {
        Floats::F32(x)
    }
}

impl<'a> From<&'a [Bf16]> for Floats<'a> {
    fn from(x: &'a [Bf16]) -> Floats<'a> {
        Floats::Bf16(x)
    }
}

impl<'a> From<&'a Vec<Bf16>> for Floats<'a> {
    fn from(x: &'a Vec<Bf16>) -> Floats<'a> {
        Floats::Bf16(x)
    }
}

/// An array of either kind that a kernel writes.
#[derive(Debug)]
pub enum FloatsMut<'a> {
    /// Four bytes an element.
    F32(&'a mut [f32]),
    /// Two bytes an element.
    Bf16(&'a mut [Bf16]),
}

impl FloatsMut<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            FloatsMut::F32(x) => x.len(),
            FloatsMut::Bf16(x) => x.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements of a range.
    ///
    /// # Panics
    /// If it is not inside: a bug in unisono.
    pub fn range(&mut self, range: Range<usize>) -> FloatsMut<'_> {
        match self {
            FloatsMut::F32(x) => FloatsMut::F32(&mut x[range]),
            FloatsMut::Bf16(x) => FloatsMut::Bf16(&mut x[range]),
        }
    }

    /// Takes over the elements of `from`, which are of the same kind, bit by bit.
    ///
    /// # Panics
    /// If kinds or lengths differ: a bug in unisono.
    pub fn copy_from(&mut self, from: Floats<'_>) {
        match (self, from) {
            (FloatsMut::F32(to), Floats::F32(from)) => to.copy_from_slice(from),
            (FloatsMut::Bf16(to), Floats::Bf16(from)) => to.copy_from_slice(from),
            _ => mixed("a move"),
        }
    }

    /// Sets each element to `value`, rounded to what they are.
    pub fn fill(&mut self, value: f32) {
        match self {
            FloatsMut::F32(x) => x.fill(value),
            FloatsMut::Bf16(x) => x.fill(Bf16::from_f32(value)),
        }
    }
}

impl<'a> From<&'a mut [f32]> for FloatsMut<'a> {
    fn from(x: &'a mut [f32]) -> FloatsMut<'a> {
        FloatsMut::F32(x)
    }
}

impl<'a> From<&'a mut Vec<f32>> for FloatsMut<'a> {
    fn from(x: &'a mut Vec<f32>) -> FloatsMut<'a> {
        FloatsMut::F32(x)
    }
}

impl<'a, const N: usize> From<&'a mut [f32; N]> for FloatsMut<'a> {
    fn from(x: &'a mut [f32; N]) -> FloatsMut<'a> {
        FloatsMut::F32(x)
    }
}

impl<'a> From<&'a mut [Bf16]> for FloatsMut<'a> {
    fn from(x: &'a mut [Bf16]) -> FloatsMut<'a> {
        FloatsMut::Bf16(x)
    }
}

impl<'a> From<&'a mut Vec<Bf16>> for FloatsMut<'a> {
    fn from(x: &'a mut Vec<Bf16>) -> FloatsMut<'a> {
        FloatsMut::Bf16(x)
    }
}

/// An output of either kind that several workers write at once, each its own tiles.
#[derive(Clone, Copy, Debug)]
pub enum OutFloats<'a> {
    /// Four bytes an element.
    F32(Out<'a, f32>),
    /// Two bytes an element.
    Bf16(Out<'a, Bf16>),
}

impl OutFloats<'_> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            OutFloats::F32(x) => x.len(),
            OutFloats::Bf16(x) => x.len(),
        }
    }

    /// Where the first element is.
    pub(crate) fn address(&self) -> *mut u8 {
        match self {
            OutFloats::F32(x) => x.as_ptr().cast(),
            OutFloats::Bf16(x) => x.as_ptr().cast(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<Out<'a, f32>> for OutFloats<'a> {
    fn from(x: Out<'a, f32>) -> OutFloats<'a> {
        OutFloats::F32(x)
    }
}

impl<'a> From<Out<'a, Bf16>> for OutFloats<'a> {
    fn from(x: Out<'a, Bf16>) -> OutFloats<'a> {
        OutFloats::Bf16(x)
    }
}

/// The message where a kernel was given arrays of two kinds that it does not take together.
pub(crate) fn mixed(kernel: &str) -> ! {
    panic!("bug in unisono: {kernel} was given f32 and bf16 arrays that do not go together")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::dispatch;

    #[inline(always)]
    fn convert<S: Simd>(s: S, x: &[f32], half: &mut [Bf16], back: &mut [f32]) {
        for ((x, half), back) in x.chunks(LANES).zip(half.chunks_mut(LANES)).zip(back.chunks_mut(LANES)) {
            Bf16::write(s, half, s.read(x));
            let v = Bf16::read(s, half);
            s.write(back, v);
        }
    }

    fn check(x: &[f32]) {
        for isa in Isa::available() {
            let mut half = vec![Bf16::default(); x.len()];
            let mut back = vec![0.0; x.len()];
            let (h, b) = (&mut half[..], &mut back[..]);
            dispatch!(isa, convert(x: &[f32], h: &mut [Bf16], b: &mut [f32]));
            for ((x, half), back) in x.iter().zip(&half).zip(&back) {
                let expected = Bf16::from_f32(*x);
                assert_eq!(*half, expected, "{x:e} on {}", isa.name());
                assert_eq!(back.to_bits(), expected.to_f32().to_bits());
            }
        }
    }

    /// The definition: the neighbour that is nearer, of two the even one.
    #[test]
    fn rounding_is_to_nearest_even() {
        for upper in 0..=u16::MAX {
            let low = Bf16::from_bits(upper).to_f32();
            if low.is_nan() {
                assert!(Bf16::from_f32(low).to_f32().is_nan());
                continue;
            }
            assert_eq!(Bf16::from_f32(low).to_bits(), upper);
            if !low.is_finite() {
                continue;
            }
            let bits = u32::from(upper) << 16;
            for (extra, up) in [
                (0x7fff, false),
                (0x8000, upper % 2 == 1),
                (0x8001, true),
                (0xffff, true),
            ] {
                let expected = if up { upper + 1 } else { upper };
                assert_eq!(Bf16::from_f32(f32::from_bits(bits | extra)).to_bits(), expected);
            }
        }
    }

    #[test]
    fn lanes_round_as_single_numbers_do() {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-40,
            -1e-45,
            3.0e38,
            f32::from_bits(0x7f80_0001),
            f32::from_bits(0xff80_0001),
            65_504.0,
            0.1,
        ];
        let many: Vec<f32> = (0..40_000u32)
            .map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b9)))
            .chain(special)
            .collect();
        check(&many);
        for len in 0..40 {
            check(&many[..len]);
        }
    }
}
