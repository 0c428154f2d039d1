//! Sums along a row in canonical order, for the kernels that work row by row.

use crate::order::{Share, Tree, Units};
use crate::simd::{LANES, Simd};

/// Units whose merges are looked up; those beyond are worked out anew.
const KNOWN: usize = 128;

/// Entries of the stack: more than a tree has levels.
const DEPTH: usize = 64;

/// The order of a sum along a row: leaves of 16 lanes, halvings within a unit, the tree over units.
///
/// The same for each row of a call, so what can be worked out once is.
pub(crate) struct RowOrder {
    leaf: usize,
    leaves_per_unit: usize,
    from: usize,
    to: usize,
    tree: Tree,
    merges: [u8; KNOWN],
}

/// The spans of `K` sums along a row, bottom of the stack first; one span for a whole sum.
pub(crate) struct Spans<const K: usize> {
    stack: [[f32; K]; DEPTH],
    depth: usize,
}

impl<const K: usize> Spans<K> {
    /// The whole sums, where all units were added; nothing at all sums to +0.
    pub fn whole(&self) -> [f32; K] {
        self.stack[0].map(|v| v + 0.0)
    }

    /// The spans.
    pub fn as_slice(&self) -> &[[f32; K]] {
        &self.stack[..self.depth]
    }
}

impl RowOrder {
    /// The whole sum.
    pub fn whole(units: Units) -> RowOrder {
        RowOrder::of(&Share::whole(units))
    }

    /// A share that continues no stack.
    ///
    /// # Panics
    /// If it does: a bug in unisono.
    pub fn of(share: &Share) -> RowOrder {
        assert!(
            share.open == share.from && share.from <= share.to && share.to <= share.units.count,
            "bug in unisono: {share:?} is no share to begin a sum along rows with"
        );
        let mut order = RowOrder {
            leaf: share.units.leaf(),
            leaves_per_unit: share.units.leaves_per_unit(),
            from: share.from,
            to: share.to,
            tree: Tree::over_units(share.units.count),
            merges: [0; KNOWN],
        };
        for unit in order.from..order.to.min(order.from + KNOWN) {
            order.merges[unit - order.from] = order.tree.merges(order.from, unit..unit + 1) as u8;
        }
        order
    }

    /// Addends of the share, absent ones counted.
    pub fn addends(&self) -> usize {
        (self.to - self.from) * self.leaves_per_unit * self.leaf
    }

    /// `K` sums over the elements `0..cols` at once.
    ///
    /// `chunk(i, n, acc)` adds the elements `i..i + n` to the lanes of each sum, `n` being 16 but at the end of a leaf; what
    /// lanes from `n` on add must be ±0. Lanes are counted from the leaf's start and folded 8-4-2-1.
    #[inline(always)]
    pub fn sum<S: Simd, const K: usize>(
        &self,
        s: S,
        cols: usize,
        mut chunk: impl FnMut(usize, usize, [S::F; K]) -> [S::F; K],
    ) -> Spans<K> {
        let mut spans = Spans {
            stack: [[0.0; K]; DEPTH],
            depth: 0,
        };
        let mut i = 0;
        for unit in self.from..self.to {
            for leaf in 0..self.leaves_per_unit {
                let leaf_end = (unit - self.from) * self.leaves_per_unit * self.leaf + (leaf + 1) * self.leaf;
                let end = leaf_end.min(cols);
                let mut acc = [s.zero(); K];
                while i + LANES <= end {
                    acc = chunk(i, LANES, acc);
                    i += LANES;
                }
                if i < end {
                    acc = chunk(i, end - i, acc);
                    i = end;
                }
                // Within a unit the leaves pair up as the bits of a binary counter carry.
                let mut merges = leaf.trailing_ones() as usize;
                if leaf + 1 == self.leaves_per_unit {
                    merges += self.unit_merges(unit);
                }
                let mut top = [0.0; K];
                for (top, lanes) in top.iter_mut().zip(acc) {
                    *top = s.fold(lanes);
                }
                for _ in 0..merges {
                    spans.depth -= 1;
                    for (t, below) in top.iter_mut().zip(&spans.stack[spans.depth % DEPTH]) {
                        *t += below; // below + top: addition commutes
                    }
                }
                spans.stack[spans.depth % DEPTH] = top;
                spans.depth += 1;
            }
        }
        spans
    }

    #[inline(always)]
    fn unit_merges(&self, unit: usize) -> usize {
        match self.merges.get(unit - self.from) {
            Some(merges) => usize::from(*merges),
            None => self.tree.merges(self.from, unit..unit + 1),
        }
    }
}
