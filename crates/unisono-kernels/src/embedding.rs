//! Lookups in a table of rows, and the gradient of the table.
//!
//! A shard holds the rows `first_row..` of the table; ids of other shards' rows are passed over, so that a lookup over a
//! sharded vocabulary is a select of the owner's row and not a sum.

use crate::element::{Bf16, Element, Floats, FloatsMut, mixed};
use crate::isa::Isa;
use crate::order::Share;
use crate::out::Out;
use crate::reduce::slots::{Entries, Leaves, add};
use crate::scratch::Scratch;
use crate::simd::{Simd, dispatch};

/// `out[t] = table[ids[t] − first_row]` for each token `t`, zeros where the row is not one of this shard's `rows`.
///
/// `table` is `[rows, cols]`, `out` `[ids.len(), cols]` of the same kind.
///
/// # Panics
/// If lengths or kinds do not fit: a bug in unisono.
pub fn gather<'a>(
    table: impl Into<Floats<'a>>,
    cols: usize,
    first_row: u32,
    rows: usize,
    ids: &[u32],
    out: impl Into<FloatsMut<'a>>,
) {
    match (table.into(), out.into()) {
        (Floats::F32(table), FloatsMut::F32(out)) => gather_rows(table, cols, first_row, rows, ids, out),
        (Floats::Bf16(table), FloatsMut::Bf16(out)) => gather_rows(table, cols, first_row, rows, ids, out),
        _ => mixed("a lookup"),
    }
}

fn gather_rows<E: Element>(table: &[E], cols: usize, first_row: u32, rows: usize, ids: &[u32], out: &mut [E]) {
    assert!(
        rows * cols <= table.len() && out.len() == ids.len() * cols,
        "bug in unisono: gather of {} rows of {cols} from {rows} rows in {} elements to {}",
        ids.len(),
        table.len(),
        out.len()
    );
    for (t, id) in ids.iter().enumerate() {
        let to = &mut out[t * cols..][..cols];
        let row = id.wrapping_sub(first_row) as usize;
        if row < rows {
            to.copy_from_slice(&table[row * cols..][..cols]);
        } else {
            to.fill(E::default());
        }
    }
}

/// The gradient of the rows `row_from..row_to` of this shard of a table: row `v` gets the sum of `dy[t]` over the tokens
/// with `ids[t] == first_row + v`.
///
/// `ids` are the share's tokens (`share.addends()`; `u32::MAX` for an absent one), `dy` is `[ids.len(), cols]`; span `s` of
/// row `v` is `out[s * slot + v * cols..][..cols]`. Order: that of the *whole* token dimension, in which the other tokens
/// are addends of +0: a leaf left to right from +0, leaves and units by the tree, continuing the stack that the slots
/// hold. `x + 0 = x` for every sum from +0 (none is −0), so addends of +0 are skipped and merges with an empty entry are
/// copies, without a change of bits. Rows do not depend on each other.
///
/// # Panics
/// If the lengths do not fit: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn embedding_grad(
    isa: Isa,
    share: &Share,
    ids: &[u32],
    dy: Floats<'_>,
    cols: usize,
    first_row: u32,
    row_from: usize,
    row_to: usize,
    out: Out<f32>,
    slot: usize,
    scratch: &mut Scratch,
) {
    let tokens = ids.len();
    assert!(
        tokens == share.addends() && dy.len() == tokens * cols && u32::try_from(tokens).is_ok(),
        "bug in unisono: embedding gradient of {tokens} tokens and {} elements in rows of {cols} for {share:?}",
        dy.len()
    );
    let rows = row_to - row_from;
    let leaves = Leaves::of(share);
    let above = leaves.above();
    let entries = leaves.slots() + above + 1;
    let floats = scratch.floats((1 + above) * cols + rows + 1 + tokens + entries);
    let (leaf_sum, rest) = floats.split_at_mut(cols);
    let (above, rest) = rest.split_at_mut(above * cols);
    let (starts, rest) = words(rest).split_at_mut(rows + 1);
    let (order, full) = rest.split_at_mut(tokens);
    let local = |id: u32| (id.wrapping_sub(first_row) as usize).wrapping_sub(row_from);
    sort(ids, local, rows, starts, order);
    let mut sums = Sums {
        leaves: &leaves,
        cols,
        leaf_sum,
        full,
        order: &[],
    };
    for row in 0..rows {
        sums.order = &order[starts[row] as usize..starts[row + 1] as usize];
        // SAFETY: the tile owns its rows of every slot.
        let entries = unsafe { Entries::new(out, slot, leaves.slots(), (row_from + row) * cols, cols, &mut *above) };
        if sums.order.is_empty() && leaves.before == 0 {
            clear(entries, leaves.after);
        } else {
            let sums = &mut sums;
            match dy {
                Floats::F32(dy) => dispatch!(isa, sum_row::<_, f32>(sums: &mut Sums, dy: &[f32], entries: Entries)),
                Floats::Bf16(dy) => dispatch!(isa, sum_row::<_, Bf16>(sums: &mut Sums, dy: &[Bf16], entries: Entries)),
            }
        }
    }
}

/// The same memory as words.
fn words(floats: &mut [f32]) -> &mut [u32] {
    // SAFETY: f32 and u32 have one size and alignment, and every bit pattern is a value of both.
    unsafe { std::slice::from_raw_parts_mut(floats.as_mut_ptr().cast::<u32>(), floats.len()) }
}

/// Sorts the tokens of the rows `0..rows` by row, ascending within a row: those of row `r` are
/// `order[starts[r]..starts[r + 1]]`.
fn sort(ids: &[u32], local: impl Fn(u32) -> usize, rows: usize, starts: &mut [u32], order: &mut [u32]) {
    starts.fill(0);
    for id in ids.iter().filter(|id| **id != u32::MAX) {
        let row = local(*id);
        if row < rows {
            starts[row + 1] += 1;
        }
    }
    // Shifted by one row while filling: `starts[r + 1]` is where the next token of row `r` goes.
    let mut next = 0;
    for start in starts[1..].iter_mut() {
        let count = *start;
        *start = next;
        next += count;
    }
    for (token, id) in ids.iter().enumerate().filter(|(_, id)| **id != u32::MAX) {
        let row = local(*id);
        if row < rows {
            order[starts[row + 1] as usize] = token as u32;
            starts[row + 1] += 1;
        }
    }
}

fn clear(mut entries: Entries, count: usize) {
    for entry in 0..count {
        entries.at(entry).fill(0.0);
    }
}

struct Sums<'a> {
    leaves: &'a Leaves,
    cols: usize,
    /// Where a leaf is summed before it is merged.
    leaf_sum: &'a mut [f32],
    /// Per entry of the stack: 0 if it is a sum of nothing, whose memory holds anything.
    full: &'a mut [u32],
    /// The row's tokens, ascending.
    order: &'a [u32],
}

#[inline(always)]
fn sum_row<S: Simd, E: Element>(_: S, sums: &mut Sums, dy: &[E], mut entries: Entries) {
    let leaves = sums.leaves;
    let (mut depth, mut leaf) = (leaves.before, leaves.from);
    sums.full[..depth].fill(1);
    let mut rest = sums.order;
    while let Some(first) = rest.first() {
        let here = leaves.from + *first as usize / leaves.len;
        let end = (here + 1 - leaves.from) * leaves.len;
        let count = rest.iter().take_while(|t| (**t as usize) < end).count();
        depth = push_empty(sums, &mut entries, depth, leaf, here);
        sum_leaf(sums.leaf_sum, &rest[..count], dy, sums.cols);
        depth = push_leaf(sums, &mut entries, depth, here);
        rest = &rest[count..];
        leaf = here + 1;
    }
    depth = push_empty(sums, &mut entries, depth, leaf, leaves.to);
    for entry in 0..depth {
        if sums.full[entry] == 0 {
            entries.at(entry).fill(0.0);
        }
    }
}

/// A leaf's tokens left to right from +0, four a pass.
#[inline(always)]
fn sum_leaf<E: Element>(sum: &mut [f32], tokens: &[u32], dy: &[E], cols: usize) {
    let row = |t: u32| &dy[t as usize * cols..][..cols];
    sum.fill(0.0);
    let (fours, rest) = tokens.as_chunks::<4>();
    for [a, b, c, d] in fours {
        let rows = row(*a).iter().zip(row(*b)).zip(row(*c)).zip(row(*d));
        for (s, (((a, b), c), d)) in sum.iter_mut().zip(rows) {
            *s = (((*s + a.to_f32()) + b.to_f32()) + c.to_f32()) + d.to_f32();
        }
    }
    for t in rest {
        add(sum, row(*t));
    }
}

/// Pushes the leaf whose sum lies in `leaf_sum`; returns the depth.
#[inline(always)]
fn push_leaf(sums: &mut Sums, entries: &mut Entries, depth: usize, leaf: usize) -> usize {
    let merges = sums.leaves.tree.merges(sums.leaves.open, leaf..leaf + 1);
    if merges == 0 {
        entries.at(depth).copy_from_slice(sums.leaf_sum);
        sums.full[depth] = 1;
        return depth + 1;
    }
    let below = entries.at(depth - 1);
    if sums.full[depth - 1] == 0 {
        below.copy_from_slice(sums.leaf_sum);
        sums.full[depth - 1] = 1;
    } else {
        add(below, sums.leaf_sum);
    }
    merge(sums, entries, depth, merges - 1)
}

/// Pushes the leaves `from..to`, in which the row does not occur; returns the depth.
#[inline(always)]
fn push_empty(sums: &mut Sums, entries: &mut Entries, mut depth: usize, from: usize, to: usize) -> usize {
    for span in sums.leaves.tree.spans(from, to) {
        let merges = sums.leaves.tree.merges(sums.leaves.open, span);
        sums.full[depth] = 0;
        depth = merge(sums, entries, depth + 1, merges);
    }
    depth
}

/// Adds the newest entry to the one below it, `merges` times; an empty entry adds nothing. Returns the depth.
#[inline(always)]
fn merge(sums: &mut Sums, entries: &mut Entries, mut depth: usize, merges: usize) -> usize {
    for _ in 0..merges {
        depth -= 1;
        if sums.full[depth] == 0 {
            continue;
        }
        let (below, top) = entries.pair(depth - 1, depth);
        if sums.full[depth - 1] == 0 {
            below.copy_from_slice(top);
            sums.full[depth - 1] = 1;
        } else {
            add(below, top);
        }
    }
    depth
}
