//! Contiguous columns: a strip of columns is read row by row, its sums in the first-level cache.

use crate::gemm::arithmetic::Arithmetic;
use crate::gemm::kernel::{Kernel, Work};
use crate::simd::LANES;

/// Steps of B that are read side by side.
const DEPTH: usize = 8;

/// A leaf of one strip: `sums[i, j] = dot(a[p, i], b[p, j], sums[i, j])` for p = 0, 1, … `steps`.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    /// A's words from the leaf on, step by step all rows; they may be unaligned.
    pub a: *const f32,
    pub rows: usize,
    /// The first addend of the strip's first column; addends lie `b_stride` bytes apart.
    pub b: *const u8,
    pub b_stride: usize,
    pub steps: usize,
    /// The last step lacks its last addend.
    pub odd: bool,
    /// Rows `sums_stride` apart, padded to whole vectors.
    pub sums: *mut f32,
    pub sums_stride: usize,
    pub cols: usize,
}

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Stream {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        match self.rows {
            1 => stream_rows::<K, A, 1>(s, self),
            2 => stream_rows::<K, A, 2>(s, self),
            3 => stream_rows::<K, A, 3>(s, self),
            4 => stream_rows::<K, A, 4>(s, self),
            5 => stream_rows::<K, A, 5>(s, self),
            6 => stream_rows::<K, A, 6>(s, self),
            7 => stream_rows::<K, A, 7>(s, self),
            _ => stream_rows::<K, A, 8>(s, self),
        }
    }
}

/// Reads [`DEPTH`] steps of B side by side, along the strip.
#[inline(always)]
fn stream_rows<K: Kernel, A: Arithmetic<K>, const M: usize>(s: K, part: Stream) {
    let size = size_of::<A::Element>();
    let step = part.b_stride * A::ADDENDS;
    let mut p = 0;
    while p < part.steps {
        let deep = (part.steps - p).min(DEPTH);
        let a = part.a.wrapping_add(p * M);
        let b = part.b.wrapping_add(p * step);
        let lacking = part.odd && p + deep == part.steps;
        let mut j = 0;
        while j < part.cols {
            let n = (part.cols - j).min(LANES);
            // SAFETY: `n` columns from `j` on are inside the strip; the sums' rows are padded to whole vectors.
            unsafe {
                let sums = part.sums.add(j);
                let b = b.add(j * size);
                let mut acc = [s.zero(); M];
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = s.load(sums.add(i * part.sums_stride));
                }
                if deep == DEPTH && n == LANES && !lacking {
                    for u in 0..DEPTH {
                        let from = b.add(u * step);
                        for addend in 0..A::ADDENDS {
                            K::prefetch(from.wrapping_add(DEPTH * step + addend * part.b_stride));
                        }
                        let row = A::load(s, from, part.b_stride);
                        for (i, acc) in acc.iter_mut().enumerate() {
                            *acc = A::dot(s, s.splat(a.wrapping_add(u * M + i).read_unaligned()), row, *acc);
                        }
                    }
                } else {
                    for u in 0..deep {
                        let addends = if lacking && u + 1 == deep { 1 } else { A::ADDENDS };
                        let row = A::load_partial(s, b.add(u * step), part.b_stride, n, addends);
                        for (i, acc) in acc.iter_mut().enumerate() {
                            *acc = A::dot(s, s.splat(a.wrapping_add(u * M + i).read_unaligned()), row, *acc);
                        }
                    }
                }
                for (i, acc) in acc.iter().enumerate() {
                    s.store(sums.add(i * part.sums_stride), *acc);
                }
            }
            j += LANES;
        }
        p += deep;
    }
}
