//! Sets of coordinates kept as few boxes.

use crate::{MeshCoordinate, MeshCoordinateRange};
use std::fmt;

/// A set of coordinates as disjoint boxes. Boxes that make up a larger box are joined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MeshCoordinateRangeSet {
    ranges: Vec<MeshCoordinateRange>,
}

impl MeshCoordinateRangeSet {
    /// No coordinates.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disjoint boxes, in order of their first coordinates.
    pub fn ranges(&self) -> &[MeshCoordinateRange] {
        &self.ranges
    }

    /// The number of coordinates.
    pub fn len(&self) -> usize {
        self.ranges
            .iter()
            .map(|range| range.sizes().iter().product::<usize>())
            .sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a coordinate is in the set.
    pub fn contains(&self, coordinate: &MeshCoordinate) -> bool {
        self.ranges.iter().any(|range| range.contains(coordinate))
    }

    /// Adds the coordinates of a box; those that are in the set already stay once. A box with another number of axes is kept
    /// beside the others.
    pub fn merge(&mut self, range: MeshCoordinateRange) {
        let mut fresh = vec![range];
        for known in &self.ranges {
            fresh = fresh.iter().flat_map(|range| without(range, known)).collect();
        }
        self.ranges.extend(fresh);
        while self.join_two() {}
        self.ranges.sort_by(|a, b| a.start().cmp(b.start()));
    }

    /// Joins one pair of boxes that differ on a single axis, where one begins right after the other ends.
    fn join_two(&mut self) -> bool {
        for i in 0..self.ranges.len() {
            for j in 0..self.ranges.len() {
                if let Some(joined) = (i != j).then(|| joined(&self.ranges[i], &self.ranges[j])).flatten() {
                    self.ranges[i] = joined;
                    self.ranges.remove(j);
                    return true;
                }
            }
        }
        false
    }
}

impl fmt::Display for MeshCoordinateRangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self
            .ranges
            .iter()
            .map(|range| format!("{}-{}", range.start(), range.end()))
            .collect();
        write!(f, "{{{}}}", texts.join(", "))
    }
}

/// Box `a` followed at once by `b` on one axis and equal on all others, as one.
fn joined(a: &MeshCoordinateRange, b: &MeshCoordinateRange) -> Option<MeshCoordinateRange> {
    let axes = a.start().0.len();
    if b.start().0.len() != axes {
        return None;
    }
    let differs = |axis: &usize| a.start().0[*axis] != b.start().0[*axis] || a.end().0[*axis] != b.end().0[*axis];
    let differing: Vec<usize> = (0..axes).filter(differs).collect();
    match differing.as_slice() {
        [axis] if a.end().0[*axis] + 1 == b.start().0[*axis] => {
            MeshCoordinateRange::new(a.start().clone(), b.end().clone()).ok()
        }
        _ => None,
    }
}

/// The part of `range` outside `cut`, as boxes: on each axis in turn, what lies before and after the cut.
fn without(range: &MeshCoordinateRange, cut: &MeshCoordinateRange) -> Vec<MeshCoordinateRange> {
    let axes = range.start().0.len();
    let apart = axes != cut.start().0.len()
        || (0..axes).any(|axis| cut.end().0[axis] < range.start().0[axis] || range.end().0[axis] < cut.start().0[axis]);
    if apart {
        return vec![range.clone()];
    }
    let mut parts = Vec::new();
    let (mut start, mut end) = (range.start().0.clone(), range.end().0.clone());
    let mut keep = |start: &[usize], end: &[usize]| {
        let corner = |at: &[usize]| MeshCoordinate(at.to_vec());
        // Made only where start ≤ end on every axis.
        parts.extend(MeshCoordinateRange::new(corner(start), corner(end)));
    };
    for axis in 0..axes {
        let (first, last) = (cut.start().0[axis], cut.end().0[axis]);
        if start[axis] < first {
            let whole = end[axis];
            end[axis] = first - 1;
            keep(&start, &end);
            end[axis] = whole;
            start[axis] = first;
        }
        if end[axis] > last {
            let whole = start[axis];
            start[axis] = last + 1;
            keep(&start, &end);
            start[axis] = whole;
            end[axis] = last;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: [usize; 2], end: [usize; 2]) -> MeshCoordinateRange {
        MeshCoordinateRange::new(MeshCoordinate(start.into()), MeshCoordinate(end.into())).expect("in order")
    }

    #[test]
    fn boxes_that_make_a_box_become_one() {
        let mut set = MeshCoordinateRangeSet::new();
        set.merge(range([0, 0], [0, 1]));
        set.merge(range([1, 0], [1, 1]));
        assert_eq!(set.ranges(), [range([0, 0], [1, 1])]);
        set.merge(range([0, 2], [1, 3]));
        assert_eq!(set.ranges(), [range([0, 0], [1, 3])]);
        assert_eq!(set.to_string(), "{(0, 0)-(1, 3)}");
    }

    #[test]
    fn overlaps_count_once_whatever_the_order() {
        let boxes = [
            range([0, 0], [2, 2]),
            range([1, 1], [4, 3]),
            range([0, 3], [0, 3]),
            range([1, 0], [1, 5]),
        ];
        for first in 0..boxes.len() {
            let mut set = MeshCoordinateRangeSet::new();
            for i in 0..boxes.len() {
                set.merge(boxes[(first + i) % boxes.len()].clone());
            }
            let mut count = 0;
            for r in 0..6 {
                for c in 0..6 {
                    let at = MeshCoordinate(vec![r, c]);
                    let inside = boxes.iter().any(|b| b.contains(&at));
                    assert_eq!(set.contains(&at), inside, "{at}");
                    count += usize::from(inside);
                }
            }
            assert_eq!(set.len(), count);
        }
    }
}
