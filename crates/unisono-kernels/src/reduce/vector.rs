//! The sum of a vector: losses of sequences, norms of parameters, the rows of a squared norm.

use crate::isa::Isa;
use crate::order::Share;
use crate::out::Out;
use crate::reduce::slots::{Leaves, MOST_ABOVE};

/// Adds the addends of `share` in the order of [`sum`](crate::order::sum); span `s` is `out[s * slot]`.
///
/// `x` holds the share's addends, absent ones at the end left out. Order: a leaf left to right from +0, leaves and units
/// by the tree, continuing the stack that the slots hold.
///
/// # Panics
/// If `x` is longer than the share or `out` too short: a bug in unisono.
pub fn tree_sum(isa: Isa, x: &[f32], share: &Share, out: Out<f32>, slot: usize) {
    let _ = isa; // one chain of additions: nothing to vectorise.
    assert!(
        x.len() <= share.addends(),
        "bug in unisono: sum of {} addends for {share:?}",
        x.len()
    );
    let leaves = Leaves::of(share);
    push(&leaves, out, slot, 0, |leaf| {
        let from = (leaf * leaves.len).min(x.len());
        let to = (from + leaves.len).min(x.len());
        x[from..to].iter().fold(0.0, |acc, v| acc + v)
    });
}

/// Pushes the leaves' sums (`leaf_sum` of 0, 1, … counted from the share's first leaf) on the stack of scalars
/// `out[s * slot + at]`; stores with +0.0 added.
#[inline(always)]
pub(crate) fn push(leaves: &Leaves, out: Out<f32>, slot: usize, at: usize, leaf_sum: impl Fn(usize) -> f32) {
    let slots = leaves.slots();
    let mut above = [0.0f32; MOST_ABOVE];
    // SAFETY: the tile owns element `at` of every slot.
    let entry = |index: usize| unsafe { &mut out.slice(index * slot + at, 1)[0] };
    let mut depth = leaves.before;
    for leaf in leaves.from..leaves.to {
        let mut top = leaf_sum(leaf - leaves.from);
        for _ in 0..leaves.tree.merges(leaves.open, leaf..leaf + 1) {
            depth -= 1;
            let below = if depth < slots {
                *entry(depth)
            } else {
                above[depth - slots]
            };
            top += below; // below + top: addition commutes
        }
        if depth < slots {
            *entry(depth) = top + 0.0;
        } else {
            above[depth - slots] = top;
        }
        depth += 1;
    }
}
