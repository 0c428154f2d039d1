//! The gradients of gains and offsets: sums over rows (tokens), each column for itself.

use super::Normal;
use crate::element::{Bf16, Element, Floats, mixed};
use crate::isa::Isa;
use crate::order::Share;
use crate::out::Out;
use crate::reduce::column_sums;
use crate::reduce::slots::{Entries, Leaves, add};
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, dispatch};

/// Columns that are summed at once: the accumulators stay in the first cache, the rows are read in long runs.
const CHUNK: usize = 512;

/// Rows of a pass, so that accumulators are loaded and stored once for four additions.
const ROWS: usize = 4;

/// `dgamma[j] = Σ dy · x̂` (fused multiply-add, x̂ rounded before as in the forward call) and `dbeta[j] = Σ dy` over the rows
/// of `share`, for the columns `col_from..col_to`.
///
/// `x` and `dy`, of one kind, hold the share's rows of `cols` elements, `mean` (`None` for RMS norm) and `rstd` one element a row; rows that
/// are absent at the end are left out of all four. Span `k` of column `j` is at `k * slot + j`. Order: a leaf's rows left to
/// right from +0, leaves and units by the tree, continuing the stack that the slots hold.
///
/// # Panics
/// If lengths or kinds do not fit: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn norm_param_grad(
    isa: Isa,
    share: &Share,
    x: Floats<'_>,
    dy: Floats<'_>,
    mean: Option<&[f32]>,
    rstd: &[f32],
    cols: usize,
    col_from: usize,
    col_to: usize,
    dgamma: Option<Out<f32>>,
    dbeta: Option<Out<f32>>,
    slot: usize,
    scratch: &mut Scratch,
) {
    let rows = rstd.len();
    assert!(
        rows <= share.addends()
            && x.len() == rows * cols
            && dy.len() == x.len()
            && mean.is_none_or(|mean| mean.len() == rows)
            && col_from <= col_to
            && col_to <= cols,
        "bug in unisono: parameter gradients of a norm of {rows} rows of {cols} for columns {col_from}..{col_to}, {share:?}"
    );
    let Some(dgamma) = dgamma else {
        if let Some(dbeta) = dbeta {
            column_sums(isa, share, dy, cols, col_from, col_to, dbeta, slot, scratch);
        }
        return;
    };
    let leaves = Leaves::of(share);
    let above = leaves.above();
    let widest = CHUNK.min(col_to - col_from);
    let (gamma_memory, beta_memory) = scratch
        .floats(2 * (1 + above) * widest)
        .split_at_mut((1 + above) * widest);
    for col in (col_from..col_to).step_by(CHUNK) {
        let width = CHUNK.min(col_to - col);
        let (gamma_sum, gamma_above) = gamma_memory.split_at_mut(widest);
        let (beta_sum, beta_above) = beta_memory.split_at_mut(widest);
        let columns = Columns {
            leaves: &leaves,
            mean,
            rstd,
            cols,
            col,
            // SAFETY: the tile owns its columns of every slot.
            gamma: unsafe { Entries::new(dgamma, slot, leaves.slots(), col, width, gamma_above) },
            gamma_sum: &mut gamma_sum[..width],
            // SAFETY: as above.
            beta: dbeta.map(|out| unsafe { Entries::new(out, slot, leaves.slots(), col, width, beta_above) }),
            beta_sum: &mut beta_sum[..width],
        };
        match (x, dy) {
            (Floats::F32(x), Floats::F32(dy)) => {
                dispatch!(isa, sum_columns::<_, f32>(columns: Columns, x: &[f32], dy: &[f32]));
            }
            (Floats::Bf16(x), Floats::Bf16(dy)) => {
                dispatch!(isa, sum_columns::<_, Bf16>(columns: Columns, x: &[Bf16], dy: &[Bf16]));
            }
            _ => mixed("the gradient of a norm's parameters"),
        }
    }
}

struct Columns<'a> {
    leaves: &'a Leaves,
    mean: Option<&'a [f32]>,
    rstd: &'a [f32],
    cols: usize,
    col: usize,
    gamma: Entries<'a>,
    /// The leaf that is being summed.
    gamma_sum: &'a mut [f32],
    beta: Option<Entries<'a>>,
    beta_sum: &'a mut [f32],
}

#[inline(always)]
fn sum_columns<S: Simd, E: Element>(s: S, mut this: Columns, x: &[E], dy: &[E]) {
    let leaves = this.leaves;
    let mut depth = leaves.before;
    for leaf in leaves.from..leaves.to {
        let rows = (leaf - leaves.from) * leaves.len;
        let rows = rows.min(this.rstd.len())..(rows + leaves.len).min(this.rstd.len());
        sum_leaf(s, &mut this, x, dy, rows);
        let merges = leaves.tree.merges(leaves.open, leaf..leaf + 1);
        push(&mut this.gamma, this.gamma_sum, depth, merges);
        if let Some(beta) = &mut this.beta {
            push(beta, this.beta_sum, depth, merges);
        }
        depth = depth + 1 - merges;
    }
}

/// Pushes `sum` on a stack of `depth` entries and merges. A fused sum may be −0, so +0.0 is added.
#[inline(always)]
fn push(stack: &mut Entries, sum: &mut [f32], depth: usize, merges: usize) {
    for v in sum.iter_mut() {
        *v += 0.0;
    }
    if merges == 0 {
        stack.at(depth).copy_from_slice(sum);
        return;
    }
    add(stack.at(depth - 1), sum);
    for top in (depth - merges + 1..depth).rev() {
        let (below, top) = stack.pair(top - 1, top);
        add(below, top);
    }
}

/// Sums the rows of one leaf, in order.
#[inline(always)]
fn sum_leaf<S: Simd, E: Element>(s: S, this: &mut Columns, x: &[E], dy: &[E], rows: std::ops::Range<usize>) {
    this.gamma_sum.fill(0.0);
    this.beta_sum.fill(0.0);
    let mut row = rows.start;
    while row + ROWS <= rows.end {
        sum_rows::<S, E, ROWS>(s, this, x, dy, row);
        row += ROWS;
    }
    for row in row..rows.end {
        sum_rows::<S, E, 1>(s, this, x, dy, row);
    }
}

/// Adds `R` rows, in order.
#[inline(always)]
fn sum_rows<S: Simd, E: Element, const R: usize>(s: S, this: &mut Columns, x: &[E], dy: &[E], row: usize) {
    let width = this.gamma_sum.len();
    let part = |a: &'_ [E], r: usize| -> *const E { a[(row + r) * this.cols + this.col..][..width].as_ptr() };
    let x: [*const E; R] = std::array::from_fn(|r| part(x, r));
    let dy: [*const E; R] = std::array::from_fn(|r| part(dy, r));
    let mut normal = [Normal {
        mean: s.zero(),
        rstd: s.zero(),
    }; R];
    for (r, normal) in normal.iter_mut().enumerate() {
        normal.mean = s.splat(this.mean.map_or(0.0, |mean| mean[row + r]));
        normal.rstd = s.splat(this.rstd[row + r]);
    }
    let (gamma, beta) = (this.gamma_sum.as_mut_ptr(), this.beta_sum.as_mut_ptr());
    let mut i = 0;
    while i + LANES <= width {
        // SAFETY: `width` elements from each pointer are inside its slice.
        unsafe {
            let (mut g, mut b) = (s.load(gamma.add(i)), s.load(beta.add(i)));
            for r in 0..R {
                let d = E::load(s, dy[r].add(i));
                g = s.fma(d, normal[r].of(s, E::load(s, x[r].add(i))), g);
                b = s.add(b, d);
            }
            s.store(gamma.add(i), g);
            s.store(beta.add(i), b);
        }
        i += LANES;
    }
    let n = width - i;
    if n > 0 {
        // SAFETY: as above; the last `n` elements.
        unsafe {
            let (mut g, mut b) = (s.load_partial(gamma.add(i), n), s.load_partial(beta.add(i), n));
            for r in 0..R {
                let d = E::load_partial(s, dy[r].add(i), n);
                g = s.fma(d, normal[r].of(s, E::load_partial(s, x[r].add(i), n)), g);
                b = s.add(b, d);
            }
            s.store_partial(gamma.add(i), g, n);
            s.store_partial(beta.add(i), b, n);
        }
    }
}
