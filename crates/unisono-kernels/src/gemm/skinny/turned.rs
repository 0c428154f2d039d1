//! Contiguous rows of B: words of 16 columns are transposed in registers as they are read.
//!
//! The lines of a strip lie one after the other in memory, but are read a little of each column at a time. So the strips that
//! follow are asked for in the order of memory, at the pace at which this one is read; and twice, since the processor drops
//! requests when too many are open.

use crate::gemm::arithmetic::Arithmetic;
use crate::gemm::kernel::{Kernel, Work};
use crate::simd::LANES;

/// Strips of more bytes are not asked for: three of them would not fit in the second-level cache, and long columns are found
/// by the processor itself.
const LARGE: usize = 256 << 10;
/// Columns that lie a multiple of this apart share few sets of the first-level cache. They are read in squares of 16 × 16 words,
/// a line of each column at once, as the line may be gone when it is wanted again.
const SHARED: usize = 2048;
/// Steps that are transposed at once otherwise.
const QUAD: usize = 4;

/// Leaves of one strip of 16 columns, each followed by its merges; the stack's entries are sums `[row, column]`.
#[derive(Clone, Copy)]
pub(super) struct Turned {
    /// A's words from the first leaf on, step by step all rows; they may be unaligned.
    pub a: *const f32,
    pub rows: usize,
    /// The first word of the strip's first column.
    pub b: *const u8,
    /// Bytes between columns.
    pub column: usize,
    /// Leaves, and steps of each.
    pub leaves: usize,
    pub steps: usize,
    /// How many entries of the stack each leaf is added to.
    pub merges: *const u32,
    pub stack: *mut f32,
    /// Entries before the first leaf.
    pub depth: usize,
    /// Columns that follow the strip in the tile.
    pub left: usize,
}

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Turned {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        // SAFETY: the caller's promise: columns, entries and merges that there are.
        unsafe {
            match self.rows {
                1 => leaves::<K, A, 1>(s, self),
                2 => leaves::<K, A, 2>(s, self),
                3 => leaves::<K, A, 3>(s, self),
                4 => leaves::<K, A, 4>(s, self),
                5 => leaves::<K, A, 5>(s, self),
                6 => leaves::<K, A, 6>(s, self),
                7 => leaves::<K, A, 7>(s, self),
                _ => leaves::<K, A, 8>(s, self),
            }
        }
    }
}

#[inline(always)]
unsafe fn leaves<K: Kernel, A: Arithmetic<K>, const M: usize>(s: K, strip: Turned) {
    let squares = strip.column.is_multiple_of(SHARED) && strip.steps.is_multiple_of(LANES);
    let mut ahead = Ahead::of(&strip);
    let (entry, mut depth) = (M * LANES, strip.depth);
    for leaf in 0..strip.leaves {
        let mut acc = [s.zero(); M];
        let a = strip.a.wrapping_add(leaf * strip.steps * M);
        let b = strip.b.wrapping_add(4 * leaf * strip.steps);
        let mut p = 0;
        // SAFETY: the caller's promise: each column has the leaf's steps.
        unsafe {
            if squares {
                while p < strip.steps {
                    ahead.ask::<K>(4 * LANES);
                    let words = square(s, b.wrapping_add(4 * p), strip.column);
                    for (i, words) in words.iter().enumerate() {
                        dot::<K, A, M>(s, &mut acc, a.wrapping_add((p + i) * M), *words);
                    }
                    p += LANES;
                }
            }
            while p + QUAD <= strip.steps {
                ahead.ask::<K>(4 * QUAD);
                let words = quad(s, b.wrapping_add(4 * p), strip.column);
                for (i, words) in words.iter().enumerate() {
                    dot::<K, A, M>(s, &mut acc, a.wrapping_add((p + i) * M), s.from_bits(*words));
                }
                p += QUAD;
            }
            while p < strip.steps {
                let mut words = [0; LANES];
                for (i, word) in words.iter_mut().enumerate() {
                    *word = b.wrapping_add(4 * p + i * strip.column).cast::<u32>().read_unaligned();
                }
                dot::<K, A, M>(s, &mut acc, a.wrapping_add(p * M), s.from_bits(s.from_array_u(words)));
                p += 1;
            }
            // As many entries as the merges ask for lie below, and there is room for one more.
            for _ in 0..*strip.merges.add(leaf) {
                depth -= 1;
                for (i, sum) in acc.iter_mut().enumerate() {
                    *sum = s.add(s.load(strip.stack.add(depth * entry + i * LANES)), *sum);
                }
            }
            for (i, sum) in acc.iter().enumerate() {
                s.store(strip.stack.add(depth * entry + i * LANES), *sum);
            }
        }
        depth += 1;
    }
}

/// One step of all rows.
#[inline(always)]
unsafe fn dot<K: Kernel, A: Arithmetic<K>, const M: usize>(s: K, acc: &mut [K::F; M], a: *const f32, words: K::F) {
    for (i, acc) in acc.iter_mut().enumerate() {
        // SAFETY: the caller's promise: A has the step.
        *acc = A::dot(s, s.splat(unsafe { a.wrapping_add(i).read_unaligned() }), words, *acc);
    }
}

/// Four steps: lane `i` of result `p` is word `p` of column `i`.
#[inline(always)]
unsafe fn quad<K: Kernel>(s: K, b: *const u8, column: usize) -> [K::U; QUAD] {
    let mut x = [s.splat_u(0); QUAD];
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: the caller's promise: each column has the steps.
        *x = unsafe { s.load_fours(b.wrapping_add(i * column), QUAD * column) };
    }
    s.transpose4_u(x)
}

/// 16 steps, likewise.
#[inline(always)]
unsafe fn square<K: Kernel>(s: K, b: *const u8, column: usize) -> [K::F; LANES] {
    let mut x = [s.zero(); LANES];
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: the caller's promise: each column has the steps.
        *x = unsafe { s.load(b.wrapping_add(i * column).cast()) };
    }
    s.transpose(x)
}

/// What is asked for while a strip is read: the next strip's lines, and those of the one after that.
struct Ahead {
    at: *const u8,
    strip: usize,
    /// Bytes of the tile from `at` on.
    left: usize,
}

impl Ahead {
    #[inline(always)]
    fn of(strip: &Turned) -> Ahead {
        let bytes = LANES * strip.column;
        Ahead {
            at: strip.b.wrapping_add(bytes),
            strip: bytes,
            left: if bytes > LARGE { 0 } else { strip.left * strip.column },
        }
    }

    /// Goes on by as much as a strip shrinks while `bytes` of each column are read.
    #[inline(always)]
    fn ask<K: Kernel>(&mut self, bytes: usize) {
        if self.left < bytes * LANES {
            return;
        }
        let second = if self.left > self.strip { self.strip } else { 0 };
        for line in 0..bytes * LANES / 64 {
            let at = self.at.wrapping_add(64 * line);
            K::prefetch(at);
            K::prefetch(at.wrapping_add(second));
        }
        self.at = self.at.wrapping_add(bytes * LANES);
        self.left -= bytes * LANES;
    }
}
