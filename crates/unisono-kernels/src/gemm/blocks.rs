//! How the contracted dimension is cut into blocks that fit the caches, along the tree of its sum.

use super::kernel::Merges;
use crate::order::{Share, Tree};

/// Leaves in a block, at most: bounds the table of merges.
pub(super) const MAX_LEAVES: usize = 512;

/// A stretch of the contracted dimension that is packed and multiplied at once: whole leaves, or a part of one long leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// First step, counted from the call's first.
    pub k: usize,
    /// Leaves, or 1 for a part of a leaf.
    pub leaves: usize,
    /// Steps of each leaf, or of the part.
    pub leaf: usize,
    /// The block goes on inside the leaf that the block before left open.
    pub carry_in: bool,
    /// The block leaves its leaf open.
    pub carry_out: bool,
    /// First leaf, counted from the dimension's first.
    first: usize,
}

impl Block {
    /// Steps of the block.
    pub fn len(&self) -> usize {
        self.leaves * self.leaf
    }
}

/// The blocks of one call, in order, and the depth of the stack between them.
#[derive(Clone)]
pub(super) struct Blocks {
    tree: Tree,
    /// All counted in leaves of the whole dimension.
    open: usize,
    from: usize,
    at: usize,
    to: usize,
    leaf: usize,
    /// Steps of the open leaf that earlier blocks took.
    taken: usize,
    most: usize,
    /// Leaves in the largest node of the tree that fits a block, in a block, and in that node's parent.
    node: usize,
    run: usize,
    parent: usize,
}

impl Blocks {
    /// The blocks of `share`, of at most `most` steps each, a step being `addends` addends or the odd rest of a leaf.
    pub fn new(share: &Share, most: usize, addends: usize) -> Blocks {
        let units = share.units;
        let per_unit = units.leaves_per_unit();
        let leaf = units.leaf().div_ceil(addends);
        let tree = Tree::over_leaves(units);
        let fit = (most / leaf.max(1)).clamp(1, MAX_LEAVES);
        let mut node = 1;
        let mut parent = 1;
        for radix in tree.radices() {
            parent = node * *radix as usize;
            if parent > fit {
                break;
            }
            node = parent;
        }
        // As many whole nodes as fit; where their parent has more children than that, in pieces of about equal size.
        let children = (parent / node).max(1);
        let pieces = children.div_ceil(fit / node);
        Blocks {
            open: share.open * per_unit,
            from: share.from * per_unit,
            at: share.from * per_unit,
            to: share.to * per_unit,
            taken: 0,
            run: node * children.div_ceil(pieces),
            tree,
            leaf,
            most,
            node,
            parent,
        }
    }

    /// Most leaves that a block holds.
    pub fn max_leaves(&self) -> usize {
        self.run.min(self.to - self.at)
    }

    /// Most steps that a block holds.
    pub fn max_len(&self) -> usize {
        if self.leaf > self.most {
            self.most
        } else {
            self.max_leaves() * self.leaf
        }
    }

    /// Entries of the stack before the next block.
    pub fn depth(&self) -> usize {
        self.tree.num_spans(self.open, self.at) + usize::from(self.taken > 0)
    }

    /// Most entries of the stack before or after any block, the newest after the last not counted: it goes to C at once.
    pub fn max_depth(&self) -> usize {
        let mut walk = self.clone();
        let mut most = walk.depth();
        while walk.next().is_some() {
            most = most.max(walk.depth() - usize::from(walk.at == walk.to));
        }
        most
    }

    /// Fills in what follows each leaf of `block`, whose first leaf finds `depth` entries on the stack.
    /// Returns how many of the block's own entries lie below its newest value in the end, and how many of the earlier
    /// blocks' entries are left below those.
    pub fn merges(&self, block: &Block, depth: usize, table: &mut [Merges; MAX_LEAVES]) -> (usize, usize) {
        let mut local = 0;
        let mut below = depth - usize::from(block.carry_in);
        if block.carry_out {
            table[0] = Merges::default();
            return (0, below);
        }
        for (i, entry) in table[..block.leaves].iter_mut().enumerate() {
            let leaf = block.first + i;
            let all = self.tree.merges(self.open, leaf..leaf + 1);
            let mine = all.min(local);
            *entry = Merges {
                local: mine as u8,
                below: (all - mine) as u8,
            };
            local -= mine;
            below -= all - mine;
            if i + 1 < block.leaves {
                local += 1;
            }
        }
        (local, below)
    }
}

impl Iterator for Blocks {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        if self.at == self.to {
            return None;
        }
        let (first, taken) = (self.at, self.taken);
        let k = (first - self.from) * self.leaf + taken;
        if self.leaf > self.most {
            let rest = self.leaf - taken;
            // The rest of the leaf in parts of about equal size.
            let part = rest.div_ceil(rest.div_ceil(self.most));
            let carry_out = part < rest;
            if carry_out {
                self.taken += part;
            } else {
                self.taken = 0;
                self.at += 1;
            }
            return Some(Block {
                k,
                leaves: 1,
                leaf: part,
                carry_in: taken > 0,
                carry_out,
                first,
            });
        }
        let end = if first.is_multiple_of(self.node) {
            (first + self.run).min((first / self.parent + 1) * self.parent)
        } else {
            (first / self.node + 1) * self.node
        };
        self.at = end.min(self.to);
        Some(Block {
            k,
            leaves: self.at - first,
            leaf: self.leaf,
            carry_in: false,
            carry_out: false,
            first,
        })
    }
}
