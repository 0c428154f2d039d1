//! The micro-kernel: a register tile of C over a block of the contracted dimension, with the tree's additions between leaves.

// Plain indices over register tiles unroll surely and read like the formula.
#![allow(clippy::needless_range_loop)]

use super::arithmetic::Arithmetic;
use super::epilogue::Finish;
use super::job::{JOBS, Job};
use crate::simd::{LANES, Simd};

/// What follows a leaf: how many entries of the stack are added to it (each `below + newest`).
///
/// Entries that this block pushed lie on top of those that earlier blocks left, so the former go first.
#[derive(Clone, Copy, Default)]
pub(super) struct Merges {
    /// Additions of entries pushed in this block.
    pub local: u8,
    /// Additions, after those, of entries from earlier blocks.
    pub below: u8,
}

/// One register tile's work in one block of the contracted dimension.
///
/// A stack entry is a tile of rows that are [`Kernel::NR`] floats apart.
pub(super) struct Micro<'a> {
    /// Packed panel of A: step p of the block at `a[p * rows..]`.
    pub a: *const f32,
    /// Packed panel of B: step p of the block at `b[p * width..]`, width being 16 × vectors.
    pub b: *const f32,
    /// Steps per leaf.
    pub leaf: usize,
    /// One entry per leaf of the block.
    pub merges: &'a [Merges],
    /// The first leaf goes on where the newest entry below stopped, instead of at +0.
    pub carry: bool,
    /// Room for the entries that this block pushes.
    pub local: *mut f32,
    /// One past the newest entry from earlier blocks.
    pub below: *const f32,
    /// Distance between entries from earlier blocks.
    pub below_stride: usize,
    /// What happens to the newest values when the block is done, if it can happen in registers.
    pub finish: Option<&'a Finish>,
    /// Where the newest values go otherwise.
    pub dst: *mut f32,
    /// Distance between rows of `dst`.
    pub dst_stride: usize,
    /// [`JOBS`] pieces of work on the side, one after the other, which end with all portions done. Each quadruple of steps
    /// inside of a leaf does up to `pace` portions of one of them; there must be quadruples enough. Only tiles of `MR` rows of
    /// `V` vectors do it, others must get none.
    pub jobs: *mut Job,
    /// Portions after every fourth step.
    pub pace: usize,
}

/// A micro-kernel with its packing, for one instruction set.
pub(super) trait Kernel: Simd {
    /// Rows of a register tile.
    const MR: usize;
    /// Vectors in a row of a register tile.
    const V: usize;
    /// Columns of a register tile.
    const NR: usize = Self::V * LANES;
    /// Steps of the contracted dimension in a block, at most.
    const KC: usize;

    /// Runs `work` in a function that has the features of the instruction set, and of the arithmetic.
    ///
    /// # Safety
    /// The CPU has them; the rest is what `work` asks for.
    unsafe fn call<A: Arithmetic<Self>, W: Work<Self, A>>(work: W) -> W::Result;

    /// Runs `micro` for `rows ≤ MR` rows of `vectors ≤ V` vectors. Gives back whether its [`Micro::finish`] is done;
    /// otherwise the newest values are in `dst`.
    ///
    /// # Safety
    /// The CPU has the instruction set, and the pointers of `micro` reach as far as its fields say.
    unsafe fn micro<A: Arithmetic<Self>>(micro: &Micro, rows: usize, vectors: usize) -> bool;

    /// `dst[p * width + o] = src[o * stride + 4 * p]`, words at these bytes, for `o < outs`, +0 for `outs ≤ o < width`,
    /// `p < k`: a transpose.
    ///
    /// # Safety
    /// The CPU has the instruction set; `src` and `dst` are valid for that, and `dst` for 16 floats more.
    unsafe fn pack_steps(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize);

    /// Lane `i` of result `j` is lane `j` of `x[i]`.
    fn transpose(self, x: [Self::F; LANES]) -> [Self::F; LANES];

    /// Four words from each of four places that are `apart` bytes from each other.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn load_fours(self, src: *const u8, apart: usize) -> Self::U;

    /// `x`, computed here and not later: the compiler may move no multiply-add from before to after this point.
    /// (It would, across a branch, and spill what it needs for that.)
    fn pin(x: Self::F) -> Self::F;

    /// Asks for the cache line of `p`, which need not be valid, into the second level.
    fn prefetch<T>(p: *const T);
}

/// Lane code to be inlined into a function with the features of `K` and `A`.
pub(super) trait Work<K: Kernel, A: Arithmetic<K>> {
    /// What it gives back.
    type Result;

    /// Does it; implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// What the implementor says.
    unsafe fn run(self, s: K) -> Self::Result;
}

/// `R` rows of `V` vectors of a register tile.
pub(super) struct RegisterTile<'a, const R: usize, const V: usize>(pub &'a Micro<'a>);

impl<K: Kernel, A: Arithmetic<K>, const R: usize, const V: usize> Work<K, A> for RegisterTile<'_, R, V> {
    type Result = bool;

    #[inline(always)]
    unsafe fn run(self, s: K) -> bool {
        // SAFETY: the caller's promise.
        unsafe { body::<K, A, R, V>(s, self.0) }
    }
}

/// [`Kernel::pack_steps`] word by word.
///
/// # Safety
/// As for that.
pub(super) unsafe fn pack_words(src: *const u8, stride: usize, outs: usize, k: usize, dst: *mut f32, width: usize) {
    for p in 0..k {
        for o in 0..width {
            // SAFETY: the caller's promise.
            unsafe {
                *dst.add(p * width + o).cast::<u32>() = if o < outs {
                    src.add(o * stride + 4 * p).cast::<u32>().read_unaligned()
                } else {
                    0
                };
            }
        }
    }
}

/// The micro-kernel on any lanes: `R` rows of `V` vectors.
///
/// # Safety
/// As for [`Kernel::micro`].
#[inline(always)]
unsafe fn body<K: Kernel, A: Arithmetic<K>, const R: usize, const V: usize>(s: K, t: &Micro) -> bool {
    // SAFETY: panels hold `leaf` steps per leaf; the stack pointers stay inside the entries that `merges` speaks of.
    unsafe {
        let (mut a, mut b) = (t.a, t.b);
        let (mut local, mut below) = (t.local, t.below);
        // In place: a copy, read in pieces that are not those that were just written, would keep the CPU waiting.
        let (mut job, mut group) = (t.jobs, 0);
        let last_job = t.jobs.add(JOBS - 1);
        while (*job).count == 0 && job < last_job {
            job = job.add(1);
        }
        let mut acc = [[s.zero(); V]; R];
        if t.carry {
            below = below.sub(t.below_stride);
            for r in 0..R {
                for v in 0..V {
                    acc[r][v] = s.load(below.add(r * K::NR + v * LANES));
                }
            }
        }
        for (i, merges) in t.merges.iter().enumerate() {
            let mut left = t.leaf;
            // The leaf before is still to be pushed.
            let mut push = i > 0;
            if push && left < 4 {
                for r in 0..R {
                    push_row::<K, R, V>(s, local, r, &mut acc);
                }
                local = local.add(K::MR * K::NR);
                push = false;
            }
            while left >= 4 {
                if push {
                    push_and_four_steps::<K, A, R, V>(s, a, b, local, &mut acc);
                    local = local.add(K::MR * K::NR);
                    push = false;
                } else {
                    for u in 0..4 {
                        step::<K, A, R, V>(s, a.add(u * R), b.add(u * V * LANES), &mut acc);
                    }
                }
                a = a.add(4 * R);
                b = b.add(4 * V * LANES);
                left -= 4;
                for row in &mut acc {
                    for x in row {
                        *x = K::pin(*x);
                    }
                }
                if R == K::MR && V == K::V && (*job).count > 0 {
                    for _ in 0..t.pace.min((*job).count) {
                        (*job).portion::<K, A>(s, &mut group);
                    }
                    while (*job).count == 0 && job < last_job {
                        (job, group) = (job.add(1), 0);
                    }
                }
            }
            while left > 0 {
                step::<K, A, R, V>(s, a, b, &mut acc);
                a = a.add(R);
                b = b.add(V * LANES);
                left -= 1;
            }
            for _ in 0..merges.local {
                local = local.sub(K::MR * K::NR);
                add_entry::<K, R, V>(s, local, &mut acc);
            }
            for _ in 0..merges.below {
                below = below.sub(t.below_stride);
                add_entry::<K, R, V>(s, below, &mut acc);
            }
        }
        for row in &mut acc {
            for x in row {
                // +0 once, so that no stored sum is −0.
                *x = s.add(*x, s.zero());
            }
        }
        if let Some(finish) = t.finish
            && finish.registers::<K, A, R, V>(s, &acc)
        {
            return true;
        }
        for r in 0..R {
            for v in 0..V {
                s.store(t.dst.add(r * t.dst_stride + v * LANES), acc[r][v]);
            }
        }
        false
    }
}

/// Pushes one row of the accumulators, which begin a new leaf.
///
/// # Safety
/// `local` has room for an entry.
#[inline(always)]
unsafe fn push_row<K: Kernel, const R: usize, const V: usize>(
    s: K,
    local: *mut f32,
    r: usize,
    acc: &mut [[K::F; V]; R],
) {
    for (v, x) in acc[r].iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { s.store(local.add(r * K::NR + v * LANES), *x) };
        *x = s.zero();
    }
}

/// The first four steps of a leaf, and the push of the one before on its way. A store takes the CPU two cycles, so three rows are
/// pushed at a time, which then take all four steps: the next rows' stores pass beside these multiply-adds.
#[inline(always)]
unsafe fn push_and_four_steps<K: Kernel, A: Arithmetic<K>, const R: usize, const V: usize>(
    s: K,
    a: *const f32,
    b: *const f32,
    local: *mut f32,
    acc: &mut [[K::F; V]; R],
) {
    // SAFETY: the caller's promise. (A loop here is not unrolled, and its rows then are no registers.)
    unsafe {
        push_three::<K, A, R, V, 0>(s, a, b, local, acc);
        push_three::<K, A, R, V, 3>(s, a, b, local, acc);
        push_three::<K, A, R, V, 6>(s, a, b, local, acc);
        push_three::<K, A, R, V, 9>(s, a, b, local, acc);
    }
}

/// The rows from `FIRST` on, of those that there are.
///
/// # Safety
/// Both panels have four steps, and `local` has room for an entry.
#[inline(always)]
unsafe fn push_three<K: Kernel, A: Arithmetic<K>, const R: usize, const V: usize, const FIRST: usize>(
    s: K,
    a: *const f32,
    b: *const f32,
    local: *mut f32,
    acc: &mut [[K::F; V]; R],
) {
    const { assert!(R <= 12) };
    // SAFETY: the caller's promise.
    unsafe {
        for r in FIRST..FIRST + 3 {
            if r < R {
                push_row::<K, R, V>(s, local, r, acc);
            }
        }
        for u in 0..4 {
            for r in FIRST..FIRST + 3 {
                if r < R {
                    let x = s.splat(*a.add(u * R + r));
                    for v in 0..V {
                        acc[r][v] = A::dot(s, x, s.load(b.add((u * V + v) * LANES)), acc[r][v]);
                    }
                }
            }
        }
    }
}

/// One step into each accumulator.
#[inline(always)]
unsafe fn step<K: Kernel, A: Arithmetic<K>, const R: usize, const V: usize>(
    s: K,
    a: *const f32,
    b: *const f32,
    acc: &mut [[K::F; V]; R],
) {
    // SAFETY: one step of both panels.
    unsafe {
        let mut row = [s.zero(); V];
        for v in 0..V {
            row[v] = s.load(b.add(v * LANES));
        }
        for r in 0..R {
            let x = s.splat(*a.add(r));
            for v in 0..V {
                acc[r][v] = A::dot(s, x, row[v], acc[r][v]);
            }
        }
    }
}

/// `acc = entry + acc`.
#[inline(always)]
unsafe fn add_entry<K: Kernel, const R: usize, const V: usize>(s: K, entry: *const f32, acc: &mut [[K::F; V]; R]) {
    for r in 0..R {
        for v in 0..V {
            // SAFETY: an entry holds R rows.
            acc[r][v] = s.add(unsafe { s.load(entry.add(r * K::NR + v * LANES)) }, acc[r][v]);
        }
    }
}
