//! Products with few rows of A (decoding): bound by reading B, which is therefore not packed but streamed.
//!
//! Where columns are contiguous, a strip of columns is read row by row, its sums in the first-level cache. Where rows are
//! (a weight `[n, k]` used transposed), small squares are transposed on the way.

use super::Gemm;
use super::arithmetic::{Arithmetic, Single};
use super::epilogue::Finish;
use super::feed::Side;
use super::kernel::{Kernel, Work, pack_any};
use crate::order::Tree;
use crate::scratch::Scratch;
use crate::simd::LANES;

/// Most rows of A.
pub(super) const ROWS: usize = 8;
/// Columns of a strip: wide enough for long reads where columns are contiguous…
const WIDE: usize = 512;
/// …and two vectors where they are not: two chains of additions hide some of each other's latency, and the rows of B are
/// still mostly one contiguous stretch.
const NARROW: usize = GATHERED * LANES;
const GATHERED: usize = 2;
/// Steps that are transposed at once.
const CHUNK: usize = 128;
/// Steps of B that are read side by side.
const DEPTH: usize = 8;

/// Whether a product is computed here.
pub(super) fn suits(g: &Gemm) -> bool {
    g.m <= ROWS && (g.b.col_stride == 1 || g.b.row_stride == 1)
}

/// A part of a leaf for one strip: `sums[i, j] = dot(a[p, i], b[p, j], sums[i, j])` for p = 0, 1, … `steps`.
#[derive(Clone, Copy)]
struct Part {
    /// Steps of `rows` words.
    a: *const f32,
    rows: usize,
    /// Addends `b_stride` bytes apart (streamed), or packed steps of `b_stride` words (gathered).
    b: *const u8,
    b_stride: usize,
    steps: usize,
    /// The last step lacks its last addend.
    odd: bool,
    /// Rows `sums_stride` apart.
    sums: *mut f32,
    sums_stride: usize,
    cols: usize,
}

/// Computes the columns `col..col + cols` of one product.
///
/// # Safety
/// The CPU has K's instruction set, and the extents of `g` are inside its slices.
pub(super) unsafe fn tile<K: Kernel, A: Arithmetic<K>>(
    g: &Gemm,
    batch: usize,
    col: usize,
    cols: usize,
    scratch: &mut Scratch,
) {
    let m = g.m;
    let wide = g.b.col_stride == 1;
    let width = if wide { WIDE } else { NARROW }.min(cols.next_multiple_of(LANES));
    let units = g.sum.units;
    let (addends, per_unit) = (units.leaf(), units.leaves_per_unit());
    // From here on in steps.
    let leaf = addends.div_ceil(A::ADDENDS);
    let tree = Tree::over_leaves(units);
    let (open, from, to) = (g.sum.open * per_unit, g.sum.from * per_unit, g.sum.to * per_unit);
    let depth_before = g.sum.slots_before();
    let entry = m * width;

    // How many merges follow each leaf, and how deep the stack becomes.
    let merges_of = |leaf: usize| tree.merges(open, leaf..leaf + 1);
    let (mut depth, mut deepest) = (depth_before, depth_before);
    for l in from..to {
        deepest = deepest.max(depth + 1);
        depth = depth + 1 - merges_of(l);
    }
    let k = (to - from) * leaf;
    let lens = [m * k, to - from, deepest * entry, CHUNK * NARROW + LANES].map(|len| len.next_multiple_of(LANES));
    let memory = scratch.floats(lens.iter().sum()).as_mut_ptr();
    let mut at = 0;
    let [a, merges, stack, panel] = lens.map(|len| {
        // SAFETY: the parts lie one after the other inside the scratch memory.
        let part = unsafe { memory.add(at) };
        at += len;
        part
    });
    let merges = merges.cast::<u32>();
    // SAFETY: A's extents, and the rooms' lengths as just computed; `g.c` has room for all slots.
    unsafe {
        for l in from..to {
            *merges.add(l - from) = merges_of(l) as u32;
        }
        let side = Side::new::<K, A>(g.a.data, batch * g.a_batch, g.a.row_stride, g.a.col_stride, addends);
        pack_any(&side, m, k, a, m);
        let b = Side::new::<K, A>(g.b.data, batch * g.b_batch, g.b.col_stride, g.b.row_stride, addends);
        for j in (col..col + cols).step_by(width) {
            let strip = width.min(col + cols - j);
            let c = batch * g.c_batch + j;
            for slot in 0..depth_before {
                for i in 0..m {
                    let from = g.sums().add(c + slot * g.slot + i * g.c_row);
                    std::ptr::copy_nonoverlapping(from, stack.add(slot * entry + i * width), strip);
                }
            }
            let mut depth = depth_before;
            for l in 0..to - from {
                let sums = stack.add(depth * entry);
                std::ptr::write_bytes(sums, 0, entry);
                let part = Part {
                    a: a.add(l * leaf * m),
                    rows: m,
                    b: b.at(j, l * leaf).address(),
                    b_stride: b.addend,
                    steps: leaf,
                    odd: !addends.is_multiple_of(A::ADDENDS),
                    sums,
                    sums_stride: width,
                    cols: strip,
                };
                if wide {
                    K::call::<A, _>(Stream(part));
                } else {
                    // What comes next: the same rows' next leaf, or the next strip.
                    let last = l + 1 == to - from;
                    let next = if last {
                        b.at(j + width, 0)
                    } else {
                        b.at(j, (l + 1) * leaf)
                    };
                    transposed::<K, A>(part, b.at(j, l * leaf), next, panel);
                }
                depth += 1;
                for _ in 0..*merges.add(l) {
                    depth -= 1;
                    let below = std::slice::from_raw_parts_mut(stack.add((depth - 1) * entry), entry);
                    let newest = std::slice::from_raw_parts(stack.add(depth * entry), entry);
                    for (below, newest) in below.iter_mut().zip(newest) {
                        *below += *newest;
                    }
                }
            }
            write::<K>(g, stack, depth, width, (c, j), strip);
        }
    }
}

/// Writes a strip's stack to the slots of C, the newest entry by way of the epilogue.
unsafe fn write<K: Kernel>(g: &Gemm, stack: *mut f32, depth: usize, width: usize, (c, j): (usize, usize), cols: usize) {
    if g.sum.from == g.sum.to {
        return;
    }
    // SAFETY: the caller's rooms and slots.
    unsafe {
        for x in std::slice::from_raw_parts_mut(stack, depth * g.m * width) {
            *x += 0.0;
        }
        for slot in 0..depth {
            let newest = slot + 1 == depth;
            let from = stack.add(slot * g.m * width);
            if !newest || g.stores_sums() {
                let to = g.sums().add(c + slot * g.slot);
                for i in 0..g.m {
                    std::ptr::copy_nonoverlapping(from.add(i * width), to.add(i * g.c_row), cols);
                }
                continue;
            }
            let sums = (from.cast_const(), width);
            K::call::<Single, _>(Finish::of(g, sums, (c + slot * g.slot, j), (g.m, cols)));
        }
    }
}

/// A part whose B has contiguous rows: squares are transposed into `panel` first; `next` is what is read after this part.
unsafe fn transposed<K: Kernel, A: Arithmetic<K>>(part: Part, b: Side, next: Side, panel: *mut f32) {
    let mut p = 0;
    while p < part.steps {
        let steps = (part.steps - p).min(CHUNK);
        let ahead = if p + steps < part.steps {
            b.at(0, p + steps)
        } else {
            next
        };
        ahead.prefetch::<K>(NARROW, CHUNK.min(part.steps));
        let width = part.cols.next_multiple_of(LANES);
        // SAFETY: the caller's promise; the panel has room for a chunk.
        unsafe { b.at(0, p).pack::<K, A>(part.cols, steps, panel, width) };
        let part = Part {
            a: part.a.wrapping_add(p * part.rows),
            b: panel.cast_const().cast(),
            b_stride: width,
            steps,
            // The panel's columns that are not there are +0, and the sums have room for them.
            cols: width,
            ..part
        };
        // SAFETY: as above.
        unsafe { K::call::<A, _>(Gather(part)) };
        p += steps;
    }
}

/// A part whose columns of B are contiguous.
struct Stream(Part);

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Stream {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        match self.0.rows {
            1 => stream_rows::<K, A, 1>(s, self.0),
            2 => stream_rows::<K, A, 2>(s, self.0),
            3 => stream_rows::<K, A, 3>(s, self.0),
            4 => stream_rows::<K, A, 4>(s, self.0),
            5 => stream_rows::<K, A, 5>(s, self.0),
            6 => stream_rows::<K, A, 6>(s, self.0),
            7 => stream_rows::<K, A, 7>(s, self.0),
            _ => stream_rows::<K, A, 8>(s, self.0),
        }
    }
}

/// Reads [`DEPTH`] steps of B side by side, along the strip.
#[inline(always)]
fn stream_rows<K: Kernel, A: Arithmetic<K>, const M: usize>(s: K, part: Part) {
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
                            *acc = A::dot(s, s.splat(*a.add(u * M + i)), row, *acc);
                        }
                    }
                } else {
                    for u in 0..deep {
                        let addends = if lacking && u + 1 == deep { 1 } else { A::ADDENDS };
                        let row = A::load_partial(s, b.add(u * step), part.b_stride, n, addends);
                        for (i, acc) in acc.iter_mut().enumerate() {
                            *acc = A::dot(s, s.splat(*a.add(u * M + i)), row, *acc);
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

/// A part whose B is a packed panel.
struct Gather(Part);

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Gather {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        match self.0.rows {
            1 => gather_rows::<K, A, 1>(s, self.0),
            2 => gather_rows::<K, A, 2>(s, self.0),
            3 => gather_rows::<K, A, 3>(s, self.0),
            4 => gather_rows::<K, A, 4>(s, self.0),
            5 => gather_rows::<K, A, 5>(s, self.0),
            6 => gather_rows::<K, A, 6>(s, self.0),
            7 => gather_rows::<K, A, 7>(s, self.0),
            _ => gather_rows::<K, A, 8>(s, self.0),
        }
    }
}

/// A panel in the first-level cache, the sums of a few vectors of columns in registers.
#[inline(always)]
fn gather_rows<K: Kernel, A: Arithmetic<K>, const M: usize>(s: K, part: Part) {
    let mut j = 0;
    while j + NARROW <= part.cols {
        gather_vectors::<K, A, M, GATHERED>(s, &part, j);
        j += NARROW;
    }
    while j < part.cols {
        gather_vectors::<K, A, M, 1>(s, &part, j);
        j += LANES;
    }
}

/// `V` vectors of columns from column `j` on.
#[inline(always)]
fn gather_vectors<K: Kernel, A: Arithmetic<K>, const M: usize, const V: usize>(s: K, part: &Part, j: usize) {
    let b = part.b.cast::<f32>().wrapping_add(j);
    // SAFETY: whole vectors of panel and sums.
    unsafe {
        let sums = part.sums.add(j);
        let mut acc = [[s.zero(); V]; M];
        for (i, row) in acc.iter_mut().enumerate() {
            for (v, acc) in row.iter_mut().enumerate() {
                *acc = s.load(sums.add(i * part.sums_stride + v * LANES));
            }
        }
        for p in 0..part.steps {
            let mut step = [s.zero(); V];
            for (v, step) in step.iter_mut().enumerate() {
                *step = s.load(b.add(p * part.b_stride + v * LANES));
            }
            for (i, row) in acc.iter_mut().enumerate() {
                let x = s.splat(*part.a.add(p * M + i));
                for (acc, step) in row.iter_mut().zip(&step) {
                    *acc = A::dot(s, x, *step, *acc);
                }
            }
        }
        for (i, row) in acc.iter().enumerate() {
            for (v, acc) in row.iter().enumerate() {
                s.store(sums.add(i * part.sums_stride + v * LANES), *acc);
            }
        }
    }
}
