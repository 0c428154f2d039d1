//! Copies of a block's rows in the layouts that the inner loops read.

use super::BLOCK;
use crate::simd::{LANES, Simd};

/// `to[t * padded + c] = from[t * stride + c]`, +0 for `d ≤ c < padded`.
///
/// # Safety
/// `from` and `to` are valid for that.
#[inline(always)]
pub(super) unsafe fn rows<S: Simd>(s: S, from: *const f32, stride: usize, rows: usize, d: usize, to: *mut f32) {
    let padded = d.next_multiple_of(LANES);
    for t in 0..rows {
        for c in (0..padded).step_by(LANES) {
            // SAFETY: row `t` of both; a partial load reads no further than `d`.
            unsafe {
                let x = match d - c {
                    LANES.. => s.load(from.add(t * stride + c)),
                    left => s.load_partial(from.add(t * stride + c), left),
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
pub(super) unsafe fn transposed<S: Simd>(s: S, from: *const f32, stride: usize, rows: usize, d: usize, to: *mut f32) {
    for t in (0..BLOCK).step_by(LANES) {
        let here = rows.saturating_sub(t).min(LANES);
        let whole = if here == LANES { d / 4 * 4 } else { 0 };
        // SAFETY: the rows `t..t + here`, elements below `d`.
        unsafe {
            let row = |i: usize| from.add((t + i) * stride);
            for c in (0..whole).step_by(4) {
                // Vector k holds elements c..c + 4 of the rows k, 4 + k, 8 + k and 12 + k.
                let quads = std::array::from_fn(|k| {
                    let mut quad = [0.0f32; LANES];
                    for group in 0..4 {
                        let four = row(4 * group + k).add(c).cast::<[f32; 4]>().read_unaligned();
                        quad[4 * group..4 * group + 4].copy_from_slice(&four);
                    }
                    s.bits(s.from_array(quad))
                });
                for (j, column) in s.transpose4_u(quads).into_iter().enumerate() {
                    s.store(to.add((c + j) * BLOCK + t), s.from_bits(column));
                }
            }
            for c in whole..d {
                for i in 0..LANES {
                    *to.add(c * BLOCK + t + i) = if i < here { *row(i).add(c) } else { 0.0 };
                }
            }
        }
    }
}
