//! Copies of a block's rows in the layouts that the inner loops read, as f32.

use super::BLOCK;
use crate::element::Element;
use crate::simd::{LANES, Simd};

/// Words of a row that are transposed together.
const WORDS: usize = 4;

/// `to[t * padded + c] = from[t * stride + c]`, +0 for `d ≤ c < padded`.
///
/// # Safety
/// `from` and `to` are valid for that.
#[inline(always)]
pub(super) unsafe fn rows<S: Simd, E: Element>(
    s: S,
    from: *const E,
    stride: usize,
    rows: usize,
    d: usize,
    to: *mut f32,
) {
    let padded = d.next_multiple_of(LANES);
    for t in 0..rows {
        for c in (0..padded).step_by(LANES) {
            // SAFETY: row `t` of both; a partial load reads no further than `d`.
            unsafe {
                let x = match d - c {
                    LANES.. => E::load(s, from.add(t * stride + c)),
                    left => E::load_partial(s, from.add(t * stride + c), left),
                };
                s.store(to.add(t * padded + c), x);
            }
        }
    }
}

/// `to[c * BLOCK + t] = from[t * stride + c]` for the `rows ≤ BLOCK` rows of a block, +0 for rows that are not there.
///
/// # Safety
/// `from` and `to` (`d * BLOCK` floats) are valid for that.
#[inline(always)]
pub(super) unsafe fn transposed<S: Simd, E: Element>(
    s: S,
    from: *const E,
    stride: usize,
    rows: usize,
    d: usize,
    to: *mut f32,
) {
    // Words of 32 bits are transposed: an f32, or two neighbours of bf16 that are parted afterwards.
    let per_word = size_of::<u32>() / size_of::<E>();
    let step = WORDS * per_word;
    for t in (0..BLOCK).step_by(LANES) {
        let here = rows.saturating_sub(t).min(LANES);
        let whole = if here == LANES { d / step * step } else { 0 };
        // SAFETY: the rows `t..t + here`, elements below `d`.
        unsafe {
            let row = |i: usize| from.add((t + i) * stride);
            for c in (0..whole).step_by(step) {
                // Vector k holds four words of the rows k, 4 + k, 8 + k and 12 + k.
                let quads = std::array::from_fn(|k| {
                    let mut quad = [0u32; LANES];
                    for group in 0..LANES / WORDS {
                        let four = row(4 * group + k).add(c).cast::<[u32; WORDS]>().read_unaligned();
                        quad[WORDS * group..WORDS * (group + 1)].copy_from_slice(&four);
                    }
                    s.from_array_u(quad)
                });
                for (j, column) in s.transpose4_u(quads).into_iter().enumerate() {
                    let to = to.add((c + j * per_word) * BLOCK + t);
                    if per_word == 1 {
                        s.store(to, s.from_bits(column));
                    } else {
                        // The earlier of two neighbours is the lower half.
                        s.store(to, s.from_bits(s.shl_u(column, 16)));
                        s.store(to.add(BLOCK), s.from_bits(s.and_u(column, s.splat_u(0xffff_0000))));
                    }
                }
            }
            for c in whole..d {
                for i in 0..LANES {
                    *to.add(c * BLOCK + t + i) = if i < here { (*row(i).add(c)).to_f32() } else { 0.0 };
                }
            }
        }
    }
}
