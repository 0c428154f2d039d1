//! The canonical tree over the devices of a group: which partial sums may be formed on the way.
//!
//! `docs/exactness.md` defines the tree and `unisono_kernels::order` computes with it; this crate knows no numbers and needs
//! only the *spans*: the fewest partial sums that carry a run of consecutive addends. A test of the `unisono` crate compares
//! the two.

use std::ops::Range;

/// The sum over `count` addends, one a device: prime factors, the twos at the top, the largest odd prime at the bottom. A
/// node adds its children left to right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalTree {
    count: usize,
    /// Children of a node at each level, from the bottom up.
    radices: Vec<usize>,
}

impl CanonicalTree {
    /// The tree over `count` addends; 0 is taken as 1.
    pub fn over(count: usize) -> Self {
        let count = count.max(1);
        let twos = count.trailing_zeros() as usize;
        let mut rest = count >> twos;
        let mut radices = Vec::new();
        let mut factor = 3;
        while rest > 1 {
            if factor * factor > rest {
                factor = rest;
            }
            while rest.is_multiple_of(factor) {
                radices.push(factor);
                rest /= factor;
            }
            factor += 2;
        }
        radices.reverse();
        radices.extend(std::iter::repeat_n(2, twos));
        Self { count, radices }
    }

    /// Number of addends.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One past the end of the first span of the run `start..end`: the largest node that begins at `start` and fits, or as
    /// many first children of a node as fit.
    fn first_span(&self, start: usize, end: usize) -> usize {
        let mut size = 1;
        for radix in &self.radices {
            if !start.is_multiple_of(size * radix) {
                return start + size;
            }
            if start + size * radix > end {
                return start + (end - start) / size * size;
            }
            size *= radix;
        }
        start + size
    }

    /// The partial sums that carry the addends `run`, in order: none of them can be added to its neighbour in the canonical
    /// order while the rest is missing.
    pub fn spans(&self, run: Range<usize>) -> Vec<Range<usize>> {
        let mut spans = Vec::new();
        let mut at = run.start;
        while at < run.end {
            let next = self.first_span(at, run.end);
            spans.push(at..next);
            at = next;
        }
        spans
    }

    /// How many there are of [`spans`](Self::spans).
    pub fn num_spans(&self, run: Range<usize>) -> u64 {
        let mut spans = 0;
        let mut at = run.start;
        while at < run.end {
            at = self.first_span(at, run.end);
            spans += 1;
        }
        spans
    }

    /// The first addends of the runs that adding `item` completes, largest first: a share that begins at `open` and ends
    /// at `item` loses one span for every one of these that is at least `open`.
    pub(super) fn completes(&self, item: usize) -> impl Iterator<Item = usize> + '_ {
        let mut index = item;
        let mut size = 1;
        let mut going = true;
        self.radices.iter().map_while(move |radix| {
            let digit = index % radix;
            if !going || digit == 0 {
                return None;
            }
            let start = (index - digit) * size;
            going = digit + 1 == *radix;
            index /= radix;
            size *= radix;
            Some(start)
        })
    }

    /// True when the canonical order ever holds the sum of exactly this run.
    pub fn is_span(&self, run: &Range<usize>) -> bool {
        run.start < run.end && run.end <= self.count && self.num_spans(run.clone()) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_the_documented_example() {
        // The table in docs/exactness.md: 12 addends on three devices.
        let tree = CanonicalTree::over(12);
        assert_eq!(tree.spans(0..4), [0..3, 3..4]);
        assert_eq!(tree.spans(4..8), [4..5, 5..6, 6..8]);
        assert_eq!(tree.spans(8..12), [8..9, 9..12]);
        assert!(tree.is_span(&(6..8)) && !tree.is_span(&(7..9)));
    }

    #[test]
    fn spans_change_as_completes_says() {
        for count in 1..=40 {
            let tree = CanonicalTree::over(count);
            assert!(tree.is_span(&(0..count)));
            for open in 0..count {
                for item in open..count {
                    let merges = tree.completes(item).take_while(|start| *start >= open).count() as u64;
                    let before = tree.num_spans(open..item);
                    assert_eq!(
                        tree.num_spans(open..item + 1),
                        before + 1 - merges,
                        "{count}: {open}..={item}"
                    );
                }
            }
        }
    }
}
