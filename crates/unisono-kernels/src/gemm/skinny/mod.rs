//! Products with few rows of A (decoding): bound by reading B, which is therefore not packed but streamed.
//!
//! Where columns are contiguous, a strip of columns is read row by row ([`stream`]). Where rows are (a weight `[n, k]` used
//! transposed), words are transposed in registers on the way ([`turned`]).

use super::Gemm;
use super::arithmetic::Arithmetic;
use super::epilogue::{Finish, FromMemory};
use super::kernel::Kernel;
use super::side::{Layout, SLACK, Side};
use super::tiling::SKINNY_ROWS;
use crate::order::Tree;
use crate::scratch::Scratch;
use crate::simd::LANES;
use stream::Stream;
use turned::Turned;

mod stream;
mod turned;

/// Columns of a strip whose columns are contiguous: wide enough for long reads.
const WIDE: usize = 512;

/// Whether a product is computed here.
pub(super) fn suits(g: &Gemm) -> bool {
    g.m <= SKINNY_ROWS && (g.b.col_stride == 1 || g.b.row_stride == 1)
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
    let units = g.sum.units;
    let (addends, per_unit) = (units.leaf(), units.leaves_per_unit());
    // From here on in steps.
    let leaf = addends.div_ceil(A::ADDENDS);
    let odd = !addends.is_multiple_of(A::ADDENDS);
    let width = if wide {
        WIDE.min(cols.next_multiple_of(LANES))
    } else {
        LANES
    };
    let tree = Tree::over_leaves(units);
    let (open, from, to) = (g.sum.open * per_unit, g.sum.from * per_unit, g.sum.to * per_unit);
    let depth_before = g.sum.slots_before();
    let entry = m * width;

    let num_leaves = to - from;
    let k = num_leaves * leaf;

    // How many merges follow each leaf, and how deep the stack becomes: at the beginning of the scratch memory.
    let (mut depth, mut deepest) = (depth_before, depth_before);
    for (l, merges) in scratch.floats(num_leaves).iter_mut().enumerate() {
        let count = tree.merges(open, from + l..from + l + 1);
        *merges = f32::from_bits(count as u32);
        deepest = deepest.max(depth + 1);
        depth = depth + 1 - count;
    }
    let depth = depth;
    let edge = if wide { 0 } else { width * k };
    // The first part begins where the merges are.
    let [merges, panel, stack, edge] = scratch.parts([num_leaves, m * k + SLACK, deepest * entry, edge]);
    let merges = merges.cast_const().cast::<u32>();
    let b = Side::of_b::<K, A>(g, batch, 0);
    // SAFETY: A's extents, and the rooms' lengths as just computed; `g.c` has room for all slots.
    unsafe {
        let a = words_of_a::<K, A>(g, batch, k, panel);
        for j in (col..col + cols).step_by(width) {
            let strip = width.min(col + cols - j);
            let c = batch * g.c_batch + j;
            for slot in 0..depth_before {
                for i in 0..m {
                    let from = g.sums().add(c + slot * g.slot + i * g.c_row);
                    std::ptr::copy_nonoverlapping(from, stack.add(slot * entry + i * width), strip);
                }
            }
            if wide {
                let mut depth = depth_before;
                for l in 0..num_leaves {
                    let sums = stack.add(depth * entry);
                    std::ptr::write_bytes(sums, 0, entry);
                    K::call::<A, _>(Stream {
                        a: a.wrapping_add(l * leaf * m),
                        rows: m,
                        b: b.at(j, l * leaf).address(),
                        b_stride: b.addend,
                        steps: leaf,
                        odd,
                        sums,
                        sums_stride: width,
                        cols: strip,
                    });
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
            } else {
                let whole = strip == width && !odd;
                let column = g.b.col_stride * size_of::<A::Element>();
                if !whole {
                    // Columns that are not there, and addends, are +0.
                    copy_columns(&b.at(j, 0), strip, width, k, edge);
                }
                K::call::<A, _>(Turned {
                    a,
                    rows: m,
                    b: if whole {
                        b.at(j, 0).address()
                    } else {
                        edge.cast_const().cast()
                    },
                    column: if whole { column } else { 4 * k },
                    leaves: num_leaves,
                    steps: leaf,
                    merges,
                    stack,
                    depth: depth_before,
                    left: if whole { col + cols - j - width } else { 0 },
                });
            }
            write::<K, A>(g, stack, depth, width, (c, j), strip);
        }
    }
}

/// A's words, all rows of a step side by side: where they are, of a single row that lies so, else packed into `panel`. They may
/// be unaligned.
///
/// # Safety
/// The CPU has K's instruction set, A's extents are inside its slice, and `panel` has room for its words and [`SLACK`] more.
unsafe fn words_of_a<K: Kernel, A: Arithmetic<K>>(g: &Gemm, batch: usize, k: usize, panel: *mut f32) -> *const f32 {
    let side = Side::of_a::<K, A>(g, batch, 0);
    if g.m == 1 && matches!(side.layout(), Layout::Steps(_)) {
        return side.address().cast();
    }
    // SAFETY: the caller's promise.
    unsafe { side.pack::<K, A>(g.m, k, panel, g.m) };
    panel
}

/// The words of `columns` columns one after the other, and of as many as make `width` with +0.
///
/// # Safety
/// The columns are there, and `to` has room for `width · k` words.
unsafe fn copy_columns(b: &Side, columns: usize, width: usize, k: usize, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let to = std::slice::from_raw_parts_mut(to.cast::<u32>(), width * k);
        to.fill(0);
        for (column, words) in to.chunks_exact_mut(k.max(1)).take(columns).enumerate() {
            for (step, word) in words.iter_mut().enumerate() {
                *word = b.word(column, step);
            }
        }
    }
}

/// Writes a strip's stack to the slots of C, the newest entry by way of the epilogue.
unsafe fn write<K: Kernel, A: Arithmetic<K>>(
    g: &Gemm,
    stack: *mut f32,
    depth: usize,
    width: usize,
    (c, j): (usize, usize),
    cols: usize,
) {
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
            K::call::<A, _>(FromMemory {
                finish: &Finish::of(g, c + slot * g.slot, j, (g.m, cols)),
                sums: from,
                stride: width,
            });
        }
    }
}
