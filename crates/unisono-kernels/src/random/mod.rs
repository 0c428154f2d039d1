//! Arrays of random numbers: element e is a function of the stream and of e alone, whoever fills it.

use crate::isa::Isa;
use crate::math::lanes;
use crate::philox::Stream;
use crate::simd::{Simd, dispatch};

mod words;

pub(crate) use words::each_word;

/// 2⁻²⁴.
const UNIT_24: f32 = 1.0 / 16_777_216.0;

/// Fills `y` with uniform numbers of the elements `first_element..`: `fma(u, high − low, low)` with u in [0, 1) of 24 bits, as
/// [`Stream::uniform`]; `high` itself only comes by rounding.
pub fn fill_uniform(stream: &Stream, first_element: u64, low: f32, high: f32, y: &mut [f32]) {
    fill_uniform_on(Isa::detect(), stream, first_element, low, high, y);
}

/// Fills `y` with normal numbers of the elements `first_element..`: `fma(z, std, mean)`, z the inverse of the normal distribution
/// function at (word + ½) / 2³², within 5e-7 of it relative to its size; |z| is at most 6.34.
///
/// The inverse goes by two polynomials, in w = −ln(4 u (1 − u)) and in √w (minimax fits of our own; the form is from Giles,
/// *Approximating the erfinv function*, GPU Computing Gems, 2011).
pub fn fill_normal(stream: &Stream, first_element: u64, mean: f32, std: f32, y: &mut [f32]) {
    fill_normal_on(Isa::detect(), stream, first_element, mean, std, y);
}

/// [`fill_uniform`] on a chosen instruction set: the same bits.
pub fn fill_uniform_on(isa: Isa, stream: &Stream, first_element: u64, low: f32, high: f32, y: &mut [f32]) {
    dispatch!(isa, uniform_lanes(stream: &Stream, first_element: u64, low: f32, high: f32, y: &mut [f32]));
}

/// [`fill_normal`] on a chosen instruction set: the same bits.
pub fn fill_normal_on(isa: Isa, stream: &Stream, first_element: u64, mean: f32, std: f32, y: &mut [f32]) {
    dispatch!(isa, normal_lanes(stream: &Stream, first_element: u64, mean: f32, std: f32, y: &mut [f32]));
}

#[inline(always)]
fn uniform_lanes<S: Simd>(s: S, stream: &Stream, first: u64, low: f32, high: f32, y: &mut [f32]) {
    let (width, low) = (s.splat(high - low), s.splat(low));
    each_word(
        s,
        stream,
        first,
        y.len(),
        #[inline(always)]
        |i, count, words| {
            let u = s.mul(s.from_i32(s.shr_u(words, 8)), s.splat(UNIT_24));
            s.write(&mut y[i..i + count], s.fma(u, width, low));
        },
    );
}

#[inline(always)]
fn normal_lanes<S: Simd>(s: S, stream: &Stream, first: u64, mean: f32, std: f32, y: &mut [f32]) {
    let (mean, std) = (s.splat(mean), s.splat(std));
    each_word(
        s,
        stream,
        first,
        y.len(),
        #[inline(always)]
        |i, count, words| s.write(&mut y[i..i + count], s.fma(inverse_normal(s, words), std, mean)),
    );
}

/// The inverse of the normal distribution function at u = (word + ½) / 2³².
#[inline(always)]
fn inverse_normal<S: Simd>(s: S, word: S::U) -> S::F {
    // By symmetry from the nearer end, so that small probabilities keep their bits: v = min(u, 1 − u).
    let upper = s.sar_u(word, 31);
    let folded = s.xor_u(word, upper);
    let half = s.splat(0.5);
    let v = s.mul(s.add(s.from_i32(folded), half), s.splat(1.0 / 4_294_967_296.0));
    // 1 − 2v, from the word again so that it has all its bits near the middle.
    let distance = s.xor_u(folded, s.splat_u(0x7FFF_FFFF));
    let distance = s.mul(s.add(s.from_i32(distance), half), s.splat(1.0 / 2_147_483_648.0));
    let product = s.mul(s.mul(s.splat(4.0), v), s.sub(s.splat(1.0), v));
    let w = s.neg(lanes::ln(s, product));
    // z = (1 − 2v) · g(w), relative error 1.1e-7 for w < 5 and 3.3e-7 from there to 22 (v = 2⁻³³).
    let near = lanes::horner(
        s,
        s.sub(w, s.splat(2.5)),
        [
            4.117_879_7e-8,
            4.917_964_7e-7,
            -5.001_690_6e-6,
            -6.287_085_4e-6,
            3.092_033_7e-4,
            -1.772_755_2e-3,
            -5.908_284e-3,
            3.488_024e-1,
            2.123_313_7,
        ],
    );
    let far = lanes::horner(
        s,
        s.sub(s.sqrt(w), s.splat(3.0)),
        [
            -1.990_964_7e-5,
            -1.837_689_6e-4,
            1.626_735_9e-3,
            -4.817_946_3e-3,
            8.218_882e-3,
            -1.090_738_3e-2,
            1.333_276_1e-2,
            1.416_591_8,
            4.006_435,
        ],
    );
    let g = s.select(s.lt(w, s.splat(5.0)), near, far);
    let size = s.mul(distance, g);
    // Words below 2³¹ are the lower half.
    let sign = s.xor_u(s.and_u(word, s.splat_u(0x8000_0000)), s.splat_u(0x8000_0000));
    s.from_bits(s.xor_u(s.bits(size), sign))
}
