//! The scores of a group of queries and a block of keys, and the probabilities that they become.

use super::BLOCK;
use super::ahead::Ahead;
use super::micro::{Micro, Product, Sink, Step, multiply};
use crate::element::{Bf16, Element};
use crate::math::lanes::exp;
use crate::order::Units;
use crate::simd::LANES;

/// Query rows that go through a block of keys together: their scores stay in the first cache.
pub(super) const GROUP: usize = 16;

/// How the two products are taken: of queries and keys, and (as `of` says) of probabilities and values.
#[derive(Clone, Copy)]
pub(super) struct Dots {
    pub of: Factors,
    /// Addends and steps of a leaf.
    pub addends: usize,
    pub leaf: usize,
    /// Steps of all leaves: what a query or a key takes in memory.
    pub steps: usize,
}

/// What the factors are kept as.
#[derive(Clone, Copy)]
pub(super) enum Factors {
    /// f32.
    Singles,
    /// Words that hold a pair of bf16 each.
    Pairs { instruction: bool },
}

impl Dots {
    /// Of heads of `d` elements of the kind `E`.
    #[inline(always)]
    pub fn of<E: Element>(d: usize, instruction: bool) -> Dots {
        let addends = Units::whole(d).leaf();
        let (of, leaf) = match size_of::<E>() == size_of::<Bf16>() {
            true => (Factors::Pairs { instruction }, addends.div_ceil(2)),
            false => (Factors::Singles, addends),
        };
        let steps = d / addends * leaf;
        Dots {
            of,
            addends,
            leaf,
            steps,
        }
    }
}

/// `scores[r][t] = dot(q[r], key t)` for `rows ≤ GROUP` rows and `vectors` vectors of keys.
///
/// A dot product of several leaves (`head_dim` of 128 and more) runs the stack machine of the canonical order on the whole
/// group; `scores` has room for its two entries.
///
/// # Safety
/// `q` holds the rows, `q_row` apart; `keys` is `[steps, BLOCK]`, and a leaf takes `leaf` steps.
#[inline(always)]
pub(super) unsafe fn dots<S: Micro, T: Step<S>>(
    s: S,
    (rows, vectors): (usize, usize),
    (q, q_row): (&[f32], usize),
    (keys, leaf): (&[f32], usize),
    scores: &mut [f32],
    ahead: &mut Ahead,
) {
    let mut depth = 0;
    for index in 0..keys.len() / BLOCK / leaf {
        let merges = (index + 1).trailing_zeros() as usize;
        let entry = if merges == 0 { depth } else { depth - 1 };
        // SAFETY: steps `index * leaf..` of both factors; entries of GROUP rows.
        unsafe {
            multiply::<S, T>(
                s,
                rows,
                vectors,
                &Product {
                    a: q.as_ptr().add(index * leaf),
                    a_row: q_row,
                    a_step: 1,
                    b: keys.as_ptr().add(index * leaf * BLOCK),
                    b_step: BLOCK,
                    steps: leaf,
                    seen: std::ptr::null(),
                    c: scores.as_mut_ptr().add(entry * GROUP * BLOCK),
                    c_row: BLOCK,
                    sink: if merges == 0 { Sink::Store } else { Sink::Add },
                },
                ahead,
            );
        }
        depth = entry + 1;
        for _ in 1..merges {
            depth -= 1;
            let (below, top) = scores.split_at_mut(depth * GROUP * BLOCK);
            for (b, t) in below[(depth - 1) * GROUP * BLOCK..].iter_mut().zip(top) {
                *b += *t;
            }
        }
    }
}

/// Which lanes of vector `v` a row's bits name.
#[inline(always)]
fn lanes_of<S: Micro>(s: S, bits: u64, v: usize) -> S::M {
    let each = s.from_array_u(std::array::from_fn(|lane| 1 << lane));
    s.eq_u(s.and_u(s.splat_u((bits >> (v * LANES)) as u32), each), each)
}

/// Per row the largest seen score of each lane, −∞ where there is none, to `[GROUP, 16]`.
///
/// # Safety
/// `rows ≤ GROUP`, `vectors ≤ 4`; `scores` and `to` have room for `GROUP` rows.
#[inline(always)]
pub(super) unsafe fn largest<S: Micro>(
    s: S,
    (rows, vectors): (usize, usize),
    bits: &[u64; GROUP],
    scores: &[f32],
    to: &mut [f32],
) {
    let none = s.splat(f32::NEG_INFINITY);
    for (r, bits) in bits.iter().enumerate() {
        let mut most = none;
        for v in 0..if r < rows { vectors } else { 0 } {
            // SAFETY: row `r` of the scores.
            let x = unsafe { s.load(scores.as_ptr().add(r * BLOCK + v * LANES)) };
            let x = match (bits >> (v * LANES)) & 0xffff {
                0xffff => x,
                _ => s.select(lanes_of(s, *bits, v), x, none),
            };
            most = s.max(most, x);
        }
        // SAFETY: row `r` of `[GROUP, 16]`.
        unsafe { s.store(to.as_mut_ptr().add(r * LANES), most) };
    }
}

/// Lane `r` is the largest element of row `r` of a 16 × 16 matrix.
///
/// # Safety
/// `rows` holds 256 floats.
#[inline(always)]
pub(super) unsafe fn fold_max<S: Micro>(s: S, rows: &[f32]) -> S::F {
    let mut out = [0.0; LANES];
    for (four, out) in out.chunks_exact_mut(4).enumerate() {
        // SAFETY: four of the rows.
        let quads = s.transpose4_u(std::array::from_fn(|k| unsafe {
            s.bits(s.load(rows.as_ptr().add((4 * four + k) * LANES)))
        }));
        let [x, y, z, w] = quads.map(|q| s.from_bits(q));
        // Lane 4 L + k: the largest of row k among its elements 4 L to 4 L + 3.
        let most = s.to_array(s.max(s.max(x, y), s.max(z, w)));
        let max = |a: f32, b: f32| if a > b { a } else { b };
        for (k, out) in out.iter_mut().enumerate() {
            *out = max(max(most[k], most[4 + k]), max(most[8 + k], most[12 + k]));
        }
    }
    s.from_array(out)
}

/// Replaces a row's scores by `exp(fma(score, scale, −m))`, +0 where the key is not seen, stored side by side as the
/// kind `E`; returns the sum of the f32 by lanes.
///
/// # Safety
/// `row` holds `vectors` vectors.
#[inline(always)]
pub(super) unsafe fn probabilities<S: Micro, E: Element>(
    s: S,
    row: *mut f32,
    vectors: usize,
    bits: u64,
    scale: S::F,
    minus_m: S::F,
) -> S::F {
    let mut sum = s.zero();
    for v in 0..vectors {
        // SAFETY: the row's vectors; what is stored takes no more room than the scores up to here, which were read.
        unsafe {
            let p = exp(s, s.fma(s.load(row.add(v * LANES)), scale, minus_m));
            let p = match (bits >> (v * LANES)) & 0xffff {
                0xffff => p,
                _ => s.select(lanes_of(s, bits, v), p, s.zero()),
            };
            E::store(s, row.cast::<E>().add(v * LANES), p);
            // From +0, and a probability is never −0, so the first addition changes nothing.
            sum = s.add(sum, p);
        }
    }
    sum
}
