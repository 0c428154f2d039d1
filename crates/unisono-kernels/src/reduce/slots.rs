//! The stack of a carried sum, kept where it is stored: in the output's slots.
//!
//! Of a stack that began at `open`, the entries that nothing can be added to from the left stay where they are; above them
//! lies at most one entry a level of the tree. So the output's slots hold nearly all of it, and scratch the little rest.

use crate::element::Element;
use crate::order::{Share, Tree};
use crate::out::Out;

/// Entries that a stack may need beyond its output's slots: one a level of the deepest tree, and one more.
pub(crate) const MOST_ABOVE: usize = 64;

/// `below += top`, element by element.
#[inline(always)]
pub(crate) fn add<E: Element>(below: &mut [f32], top: &[E]) {
    for (b, t) in below.iter_mut().zip(top) {
        *b += t.to_f32();
    }
}

/// The leaves that a share adds, and the tree that adds them.
pub(crate) struct Leaves {
    /// Tree over all leaves of the dimension.
    pub tree: Tree,
    /// Addends in a leaf.
    pub len: usize,
    /// First leaf of the stack.
    pub open: usize,
    /// First leaf of the call.
    pub from: usize,
    /// One past the last leaf of the call.
    pub to: usize,
    /// Entries of the stack on entry.
    pub before: usize,
    /// Entries of the stack on return.
    pub after: usize,
}

impl Leaves {
    /// The leaves of `share`.
    pub fn of(share: &Share) -> Leaves {
        assert!(
            share.open <= share.from && share.from <= share.to && share.to <= share.units.count,
            "bug in unisono: {share:?} is no part of a sum"
        );
        let per_unit = share.units.leaves_per_unit();
        Leaves {
            tree: Tree::over_leaves(share.units),
            len: share.units.leaf(),
            open: share.open * per_unit,
            from: share.from * per_unit,
            to: share.to * per_unit,
            before: share.slots_before(),
            after: share.slots_after(),
        }
    }

    /// Slots that the output has.
    pub fn slots(&self) -> usize {
        self.before.max(self.after)
    }

    /// Entries that the stack holds beyond the output's slots at its deepest.
    pub fn above(&self) -> usize {
        let (mut depth, mut deepest) = (self.before, 0);
        for leaf in self.from..self.to {
            depth = depth + 1 - self.tree.merges(self.open, leaf..leaf + 1);
            deepest = deepest.max(depth);
        }
        let above = deepest.saturating_sub(self.slots());
        debug_assert!(
            above < MOST_ABOVE,
            "a stack of {deepest} entries for {} slots",
            self.slots()
        );
        above
    }
}

/// The entries of one tile's stack, `width` elements each: those below `slots` in the output, the others in `above`.
pub(crate) struct Entries<'a> {
    out: Out<'a, f32>,
    slot: usize,
    slots: usize,
    offset: usize,
    width: usize,
    above: &'a mut [f32],
}

impl<'a> Entries<'a> {
    /// Entry `i < slots` is `out[i * slot + offset..][..width]`; the others lie in `above`, one after the other.
    ///
    /// # Safety
    /// No other tile may touch these elements of `out` while the entries live.
    pub unsafe fn new(
        out: Out<'a, f32>,
        slot: usize,
        slots: usize,
        offset: usize,
        width: usize,
        above: &'a mut [f32],
    ) -> Entries<'a> {
        assert!(
            slots == 0 || (slot >= width || slots == 1) && (slots - 1) * slot + offset + width <= out.len(),
            "bug in unisono: {slots} slots of {slot} with elements {offset}..+{width} in an output of {}",
            out.len()
        );
        Entries {
            out,
            slot,
            slots,
            offset,
            width,
            above,
        }
    }

    /// Entry `index`.
    #[inline(always)]
    pub fn at(&mut self, index: usize) -> &mut [f32] {
        if index < self.slots {
            // SAFETY: this tile's own elements, as promised to `new`; the borrow of `self` lasts as long as the slice.
            unsafe { self.out.slice(index * self.slot + self.offset, self.width) }
        } else {
            &mut self.above[(index - self.slots) * self.width..][..self.width]
        }
    }

    /// Entry `below`, to be changed, and entry `top` above it.
    #[inline(always)]
    pub fn pair(&mut self, below: usize, top: usize) -> (&mut [f32], &[f32]) {
        assert!(below < top, "bug in unisono: a stack entry merged with itself");
        let top: *const [f32] = self.at(top);
        // SAFETY: different entries never overlap: slots are at least `width` apart and `above` is memory of its own.
        (self.at(below), unsafe { &*top })
    }
}
