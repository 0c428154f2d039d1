//! The canonical order in which every sum of the system is taken.
//!
//! A summed dimension of `n` addends is cut into [`Units`]: `count` units of `len = ceil(n / count)` addends (later units
//! may be shorter; what is missing counts as +0). The sum is
//!
//! * over units: a [`Tree`] by the prime factors of `count`, twos at the top, then the odd primes ascending; a node adds
//!   its children left to right;
//! * inside a unit: while the length is even and half of it is at least [`LEAF`], first half plus second half; else left to
//!   right from +0 (dot products by fused multiply-add).
//!
//! A share of the sum that covers the consecutive items `open..end` of the tree is carried as a short list of partial
//! sums, its *spans*: what a stack machine holds that pushes item after item and adds as soon as two neighbours belong
//! together. The list of `0..count` is one span, the whole sum; whoever holds the lists of neighbouring shares pushes one
//! after the other and gets the same bits as a single device that did everything.

use std::ops::Range;

/// Shortest half that a unit is still split into, for f32.
pub const LEAF: usize = 64;

/// Levels that a tree can have at most: more than the bits of any count.
const MAX_DEPTH: usize = 48;

/// How the addends of one dimension are grouped: `count` units of `len` addends each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Units {
    /// Number of units.
    pub count: usize,
    /// Addends in a unit; the last units of a dimension may hold fewer, the rest being absent.
    pub len: usize,
}

impl Units {
    /// One unit that holds all `n` addends.
    pub fn whole(n: usize) -> Units {
        Units { count: 1, len: n }
    }

    /// `n` addends in `count` units of `ceil(n / count)`; a count of 0 is taken as 1.
    pub fn of(n: usize, count: usize) -> Units {
        let count = count.max(1);
        Units {
            count,
            len: n.div_ceil(count),
        }
    }

    /// Addends with the absent ones of the last units counted: `count * len`.
    pub fn padded(&self) -> usize {
        self.count * self.len
    }

    /// Addends that are summed left to right: the unit's length halved while it is even and half is at least [`LEAF`].
    pub fn leaf(&self) -> usize {
        let mut leaf = self.len;
        while leaf.is_multiple_of(2) && leaf / 2 >= LEAF {
            leaf /= 2;
        }
        leaf
    }

    /// Leaves in one unit, a power of two (1 for an empty unit).
    pub fn leaves_per_unit(&self) -> usize {
        match self.leaf() {
            0 => 1,
            leaf => self.len / leaf,
        }
    }
}

/// Which part of a sum a call adds: the units `from..to` on top of a stack that began at unit `open`.
///
/// On entry the output's slots hold the spans of `open..from` (none where `from == open`), on return those of `open..to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// How the whole dimension is grouped.
    pub units: Units,
    /// First unit of the stack that is continued.
    pub open: usize,
    /// First unit that this call adds.
    pub from: usize,
    /// One past the last unit that this call adds.
    pub to: usize,
}

impl Share {
    /// The whole sum in one call.
    pub fn whole(units: Units) -> Share {
        Share {
            units,
            open: 0,
            from: 0,
            to: units.count,
        }
    }

    /// Addends that the call reads: `(to - from) * units.len`.
    pub fn addends(&self) -> usize {
        (self.to - self.from) * self.units.len
    }

    /// Slots that hold the stack before the call.
    pub fn slots_before(&self) -> usize {
        Tree::over_units(self.units.count).num_spans(self.open, self.from)
    }

    /// Slots that hold the stack after the call.
    pub fn slots_after(&self) -> usize {
        Tree::over_units(self.units.count).num_spans(self.open, self.to)
    }
}

/// The shape of a sum over `count` items: the number of children at each level, from the bottom up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    count: usize,
    depth: usize,
    radices: [u32; MAX_DEPTH],
}

impl Tree {
    /// The tree over `count` units: prime factors, the largest at the bottom, the twos at the top.
    pub fn over_units(count: usize) -> Tree {
        let mut tree = Tree {
            count: count.max(1),
            depth: 0,
            radices: [1; MAX_DEPTH],
        };
        let mut rest = tree.count;
        let twos = rest.trailing_zeros();
        rest >>= twos;
        let mut ascending = [0u32; MAX_DEPTH];
        let mut odd_primes = 0;
        let mut p = 3;
        while rest > 1 {
            if p * p > rest {
                p = rest;
            }
            while rest.is_multiple_of(p) {
                ascending[odd_primes] = p as u32;
                odd_primes += 1;
                rest /= p;
            }
            p += 2;
        }
        for i in (0..odd_primes).rev() {
            tree.push_level(ascending[i]);
        }
        for _ in 0..twos {
            tree.push_level(2);
        }
        tree
    }

    /// The tree over all leaves of a dimension: the halvings inside each unit below the tree over units.
    pub fn over_leaves(units: Units) -> Tree {
        let per_unit = units.leaves_per_unit();
        let top = Tree::over_units(units.count);
        let mut tree = Tree {
            count: top.count * per_unit,
            depth: 0,
            radices: [1; MAX_DEPTH],
        };
        for _ in 0..per_unit.trailing_zeros() {
            tree.push_level(2);
        }
        for level in 0..top.depth {
            tree.push_level(top.radices[level]);
        }
        tree
    }

    fn push_level(&mut self, radix: u32) {
        self.radices[self.depth] = radix;
        self.depth += 1;
    }

    /// Number of children of a node at each level, from the bottom up; their product is [`Tree::count`].
    pub fn radices(&self) -> &[u32] {
        &self.radices[..self.depth]
    }

    /// Number of items that the tree sums.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How often the newest entry of the stack is added to the one below it after `span` was pushed, when the stack
    /// began at item `open`. `span` is one item, or one span as [`Tree::spans`] gives them.
    ///
    /// Each such addition is `below + newest`, and its result is the new top.
    pub fn merges(&self, open: usize, span: Range<usize>) -> usize {
        let len = span.end - span.start;
        let mut size = 1;
        let mut level = 0;
        while size < len {
            if level == self.depth {
                return 0;
            }
            size *= self.radices[level] as usize;
            level += 1;
        }
        if size != len || !span.start.is_multiple_of(size) {
            // The first children of a node that is not complete: nothing can be added to them from the left.
            return 0;
        }
        let mut index = span.start / size;
        let mut merges = 0;
        while level < self.depth {
            let radix = self.radices[level] as usize;
            let digit = index % radix;
            if digit == 0 || (index - digit) * size < open {
                break;
            }
            merges += 1;
            if digit + 1 < radix {
                break;
            }
            index /= radix;
            size *= radix;
            level += 1;
        }
        merges
    }

    /// The spans that the stack holds after the items `open..end` were pushed, bottom of the stack first.
    pub fn spans(&self, open: usize, end: usize) -> Spans<'_> {
        Spans {
            tree: self,
            next: open,
            end,
        }
    }

    /// Number of spans of the share `open..end`.
    pub fn num_spans(&self, open: usize, end: usize) -> usize {
        self.spans(open, end).count()
    }

    /// Most spans that the stack holds at any of the moments `open + step, open + 2 step, …, end`.
    pub fn max_spans(&self, open: usize, end: usize, step: usize) -> usize {
        let step = step.max(1);
        let mut most = 0;
        let mut at = open;
        while at < end {
            at = (at + step).min(end);
            most = most.max(self.num_spans(open, at));
        }
        most
    }
}

/// Iterator over the spans of a share of a sum; see [`Tree::spans`].
#[derive(Clone, Debug)]
pub struct Spans<'a> {
    tree: &'a Tree,
    next: usize,
    end: usize,
}

impl Iterator for Spans<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.next;
        if start >= self.end {
            return None;
        }
        let (mut size, mut below, mut level) = (1, 1, 0);
        // Climb while the next larger node begins here too; stop at the first that is not complete.
        while level < self.tree.depth {
            let parent = size * self.tree.radices[level] as usize;
            if !start.is_multiple_of(parent) {
                break;
            }
            below = size;
            size = parent;
            level += 1;
            if start + size > self.end {
                break;
            }
        }
        let end = if start + size <= self.end {
            start + size
        } else {
            // As many of the node's first children as are there, added left to right.
            start + (self.end - start) / below * below
        };
        self.next = end;
        Some(start..end)
    }
}

/// The sum of `values` in canonical order, straight from the definition: the slow twin of every sum.
///
/// `values` holds the addends that are present (at most `units.padded()`).
pub fn sum(values: &[f32], units: Units) -> f32 {
    over_units(0, units.count, &|unit| {
        halves(unit * units.len, (unit + 1) * units.len, &|from, to| {
            (from..to).fold(0.0, |acc, i| acc + values.get(i).copied().unwrap_or(0.0))
        })
    })
}

/// The dot product of `a` and `b` in canonical order, straight from the definition.
pub fn dot(a: &[f32], b: &[f32], units: Units) -> f32 {
    over_units(0, units.count, &|unit| {
        halves(unit * units.len, (unit + 1) * units.len, &|from, to| {
            (from..to.min(a.len())).fold(0.0, |acc, i| a[i].mul_add(b[i], acc))
        })
    })
}

/// A row sum in canonical order: as [`sum`], but a leaf is summed in 16 lanes (`i mod 16`, counted from the leaf's start)
/// that are folded 8-4-2-1.
pub fn row_sum(values: &[f32], units: Units) -> f32 {
    over_units(0, units.count, &|unit| {
        halves(unit * units.len, (unit + 1) * units.len, &|from, to| {
            let mut lanes = [0.0f32; 16];
            for i in from..to {
                lanes[(i - from) % 16] += values.get(i).copied().unwrap_or(0.0);
            }
            fold_lanes(lanes)
        })
    })
}

/// The sum of 16 lanes: lanes 8–15 onto 0–7, then 4–7 onto 0–3, 2–3 onto 0–1, 1 onto 0.
pub fn fold_lanes(mut lanes: [f32; 16]) -> f32 {
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// The tree over units `first..first + count`, by recursion on the prime factors (twos first, then ascending).
fn over_units(first: usize, count: usize, unit: &dyn Fn(usize) -> f32) -> f32 {
    if count <= 1 {
        return unit(first);
    }
    let factor = (2..=count).find(|p| count.is_multiple_of(*p)).unwrap_or(count);
    let child = count / factor;
    (1..factor).fold(over_units(first, child, unit), |acc, i| {
        acc + over_units(first + i * child, child, unit)
    })
}

/// Halves a unit while its length is even and half of it is at least [`LEAF`].
fn halves(from: usize, to: usize, leaf: &dyn Fn(usize, usize) -> f32) -> f32 {
    let len = to - from;
    if len.is_multiple_of(2) && len / 2 >= LEAF {
        let middle = from + len / 2;
        halves(from, middle, leaf) + halves(middle, to, leaf)
    } else {
        leaf(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs the stack machine over items `open..end` on top of `stack`.
    fn push_all(tree: &Tree, open: usize, items: Range<usize>, values: &[f32], stack: &mut Vec<f32>) {
        for i in items {
            stack.push(values[i]);
            for _ in 0..tree.merges(open, i..i + 1) {
                let top = stack.pop().expect("merges never exceed the stack");
                *stack.last_mut().expect("a merge has something below") += top;
            }
        }
    }

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        let mut x = seed.wrapping_mul(2654435761).wrapping_add(1);
        (0..count)
            .map(|_| {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                (x >> 8) as f32 / 8388608.0 - 1.0
            })
            .collect()
    }

    #[test]
    fn spans_of_the_documented_example() {
        let tree = Tree::over_units(12); // 2 · 2 · 3
        let spans = |a, b| tree.spans(a, b).map(|s| (s.start, s.end)).collect::<Vec<_>>();
        assert_eq!(spans(0, 4), [(0, 3), (3, 4)]);
        assert_eq!(spans(4, 8), [(4, 5), (5, 6), (6, 8)]);
        assert_eq!(spans(8, 12), [(8, 9), (9, 12)]);
        assert_eq!(spans(0, 12), [(0, 12)]);
        assert_eq!(spans(0, 6), [(0, 6)]);
    }

    proptest! {
        #[test]
        fn stack_machine_equals_the_definition(count in 1usize..200, seed: u32) {
            let tree = Tree::over_units(count);
            let values = numbers(count, seed);
            let mut stack = Vec::new();
            push_all(&tree, 0, 0..count, &values, &mut stack);
            prop_assert_eq!(stack.len(), 1);
            let want = sum(&values, Units { count, len: 1 });
            prop_assert_eq!(stack[0].to_bits(), want.to_bits());
        }

        #[test]
        fn spans_are_what_the_stack_holds(count in 1usize..130, a in 0usize..130, b in 0usize..130) {
            let (open, end) = (a.min(b) % (count + 1), a.max(b) % (count + 1));
            let (open, end) = (open.min(end), open.max(end));
            let tree = Tree::over_units(count);
            let mut stack: Vec<Range<usize>> = Vec::new();
            for i in open..end {
                stack.push(i..i + 1);
                for _ in 0..tree.merges(open, i..i + 1) {
                    let top = stack.pop().expect("merges never exceed the stack");
                    let below = stack.last_mut().expect("a merge has something below");
                    prop_assert_eq!(below.end, top.start);
                    below.end = top.end;
                }
            }
            prop_assert_eq!(stack, tree.spans(open, end).collect::<Vec<_>>());
        }

        #[test]
        fn shares_combine_to_the_whole(count in 1usize..130, cuts in proptest::collection::vec(0usize..130, 0..6), seed: u32) {
            let tree = Tree::over_units(count);
            let values = numbers(count, seed);
            let mut edges: Vec<usize> = cuts.iter().map(|c| c % (count + 1)).collect();
            edges.extend([0, count]);
            edges.sort_unstable();
            let mut total: Vec<f32> = Vec::new();
            for pair in edges.windows(2) {
                let (open, end) = (pair[0], pair[1]);
                let mut share = Vec::new();
                push_all(&tree, open, open..end, &values, &mut share);
                for (span, value) in tree.spans(open, end).zip(share) {
                    total.push(value);
                    for _ in 0..tree.merges(0, span.clone()) {
                        let top = total.pop().expect("merges never exceed the stack");
                        *total.last_mut().expect("a merge has something below") += top;
                    }
                }
            }
            let want = sum(&values, Units { count, len: 1 });
            prop_assert_eq!(total.len(), 1);
            prop_assert_eq!(total[0].to_bits(), want.to_bits());
        }

        #[test]
        fn leaves_follow_units(n in 1usize..3000, count in 1usize..20, seed: u32) {
            let units = Units::of(n, count);
            let values = numbers(n, seed);
            let tree = Tree::over_leaves(units);
            let leaf = units.leaf();
            let leaves: Vec<f32> = (0..tree.count())
                .map(|l| (l * leaf..(l + 1) * leaf).fold(0.0, |acc, i| acc + values.get(i).copied().unwrap_or(0.0)))
                .collect();
            let mut stack = Vec::new();
            push_all(&tree, 0, 0..tree.count(), &leaves, &mut stack);
            prop_assert_eq!(stack[0].to_bits(), sum(&values, units).to_bits());
        }
    }

    #[test]
    fn another_order_gives_other_bits() {
        // The broken control: a plain running sum differs, so the comparisons above can fail.
        let values = numbers(96, 7);
        let running = values.iter().fold(0.0f32, |a, b| a + b);
        assert_ne!(running.to_bits(), sum(&values, Units { count: 96, len: 1 }).to_bits());
    }
}
