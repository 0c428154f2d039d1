//! Copies of a block's rows in the layouts that the inner loops read: as f32, or as words of two bf16.

use super::BLOCK;
use crate::element::Element;
use crate::gemm::arithmetic::{Arithmetic, Emulated};
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

/// Word `c` of row `t` of `to`, rows of `padded`, is `from[2 t * stride + c]` and `from[(2 t + 1) * stride + c]`, a pair of bf16 of
/// which the latter is the upper half; +0 for what is not there.
///
/// # Safety
/// `from` and `to` are valid for that.
#[inline(always)]
pub(super) unsafe fn pairs_of_rows<S: Simd>(
    s: S,
    from: *const u16,
    stride: usize,
    rows: usize,
    d: usize,
    to: *mut f32,
) {
    let padded = d.next_multiple_of(LANES);
    for t in 0..rows.div_ceil(2) {
        let addends = (rows - 2 * t).min(2);
        for c in (0..padded).step_by(LANES) {
            // SAFETY: rows `2 t` and `2 t + 1` of `from`, if they are there, no further than `d`; row `t` of `to`.
            unsafe {
                let (first, row) = (from.add(2 * t * stride + c).cast(), stride * size_of::<u16>());
                let words = match d - c {
                    LANES.. if addends == 2 => Emulated::load(s, first, row),
                    left => Emulated::load_partial(s, first, row, left.min(LANES), addends),
                };
                s.store(to.add(t * padded + c), words);
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
                let quads = quads(s, |i| row(i).add(c).cast());
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

/// Word `w` of a row whose leaves have `leaf` addends: two of them that follow each other, or the last of an odd leaf and +0.
///
/// # Safety
/// The row has the word.
#[inline(always)]
unsafe fn pair(row: *const u16, w: usize, leaf: usize) -> u32 {
    let steps = leaf.div_ceil(2);
    let (first, step) = (w / steps * leaf, w % steps);
    let from = row.wrapping_add(first + 2 * step);
    // SAFETY: the caller's promise.
    unsafe {
        let odd = if 2 * step + 1 < leaf { *from.wrapping_add(1) } else { 0 };
        u32::from(odd) << 16 | u32::from(*from)
    }
}

/// The words of a row of `d` bf16 in leaves of `leaf`.
///
/// # Safety
/// `from` is valid for `d` elements.
#[inline(always)]
pub(super) unsafe fn pairs(from: *const u16, (d, leaf): (usize, usize), to: &mut [f32]) {
    if leaf.is_multiple_of(2) {
        debug_assert_eq!(2 * to.len(), d);
        // SAFETY: the caller's promise; words are of the machine's order.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().cast::<u16>(), 2 * to.len()) };
        return;
    }
    for (w, to) in to.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *to = f32::from_bits(unsafe { pair(from, w, leaf) });
    }
}

/// `to[w * BLOCK + t]` is word `w` of row `t`, as [`pairs`] has them, for the `rows ≤ BLOCK` rows of a block, +0 for rows that
/// are not there.
///
/// # Safety
/// `from` and `to` are valid for that.
#[inline(always)]
pub(super) unsafe fn transposed_pairs<S: Simd>(
    s: S,
    from: *const u16,
    stride: usize,
    rows: usize,
    (d, leaf): (usize, usize),
    to: *mut f32,
) {
    let words = d / leaf * leaf.div_ceil(2);
    for t in (0..BLOCK).step_by(LANES) {
        let here = rows.saturating_sub(t).min(LANES);
        let whole = match here == LANES && leaf.is_multiple_of(2) {
            true => words / WORDS * WORDS,
            false => 0,
        };
        // SAFETY: the rows `t..t + here`.
        unsafe {
            let row = |i: usize| from.add((t + i) * stride);
            for w in (0..whole).step_by(WORDS) {
                let quads = quads(s, |i| row(i).add(2 * w).cast());
                for (j, column) in s.transpose4_u(quads).into_iter().enumerate() {
                    s.store(to.add((w + j) * BLOCK + t), s.from_bits(column));
                }
            }
            for w in whole..words {
                for i in 0..LANES {
                    let word = if i < here { pair(row(i), w, leaf) } else { 0 };
                    *to.add(w * BLOCK + t + i) = f32::from_bits(word);
                }
            }
        }
    }
}

/// Vector k holds the four words at `row` of the rows k, 4 + k, 8 + k and 12 + k.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn quads<S: Simd>(s: S, row: impl Fn(usize) -> *const u32) -> [S::U; WORDS] {
    std::array::from_fn(
        #[inline(always)]
        |k| {
            let mut quad = [0u32; LANES];
            for group in 0..LANES / WORDS {
                // SAFETY: the caller's promise.
                let four = unsafe { row(4 * group + k).cast::<[u32; WORDS]>().read_unaligned() };
                quad[WORDS * group..WORDS * (group + 1)].copy_from_slice(&four);
            }
            s.from_array_u(quad)
        },
    )
}
