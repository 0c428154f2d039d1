//! What the links of one line carry in a canonical reduce-scatter, without listing messages.

use super::CanonicalTree;
use super::build::Shares;

/// Chunks over the gaps of a line, ahead and back; without a tree one for every target that they serve.
pub(super) fn collected_on_line(tree: Option<&CanonicalTree>, shares: Shares, size: usize) -> [Vec<i64>; 2] {
    let mut ahead = vec![0; size];
    let mut back = vec![0; size];
    for gap in 0..size - 1 {
        let (before, after) = (gap + 1, size - 1 - gap);
        let spans = |place: usize, len: usize| {
            let unit = |place: usize| shares.first + place * shares.width;
            tree.map_or(1, |tree| tree.num_spans(unit(place)..unit(place + len)) as i64)
        };
        ahead[gap] = after as i64 * spans(0, before);
        back[gap] = before as i64 * spans(before, after);
    }
    [ahead, back]
}

/// Chunks over the gaps of a ring of at least three, ahead and back; without a tree one for every target that they serve.
///
/// A run of addends has as many spans as it has addends, less one for each addition that the tree makes within it. So each
/// addition, of the addends from `start` to `item`, takes one from every message that carries both: those over the gaps from
/// `item` on, for every target that is farther and whose arm begins at `start` or before. (And the other way about backward.)
pub(super) fn collected_on_ring(tree: Option<&CanonicalTree>, shares: Shares, size: usize) -> [Vec<i64>; 2] {
    let mut ahead = vec![0; size];
    let mut back = vec![0; size];
    let width = if tree.is_some() { shares.width as i64 } else { 1 };
    let long = size / 2;
    let even = size.is_multiple_of(2);
    for target in 0..size {
        let shorter = |odd: usize| usize::from(even && target % 2 == odd);
        let (before, after) = (long - shorter(1), long - shorter(0));
        for len in 1..=before {
            let carried = if tree.is_some() { len as i64 * width } else { 1 };
            ahead[(target + size - (before + 1 - len)) % size] += carried;
        }
        for len in 1..=after {
            let carried = if tree.is_some() { len as i64 * width } else { 1 };
            back[(target + after - len) % size] += carried;
        }
    }
    let Some(tree) = tree else { return [ahead, back] };
    for item in shares.first..shares.first + size * shares.width {
        for start in tree.completes(item).take_while(|start| *start >= shares.first) {
            let [start, item] = [start, item].map(|unit| (unit - shares.first) / shares.width);
            // The last target whose arm begins at `start` or before; of an even ring's places every other begins an arm. It is
            // `size` higher than it is, so that nothing is negative.
            let begins = start + size - usize::from(even && !(start + long).is_multiple_of(2));
            let last = begins + long;
            for gap in item + size..last {
                ahead[gap % size] -= (last - gap) as i64;
            }
            // The first target whose arm ends at `item` or after, in the same way.
            let ends = item + size + usize::from(even && (item + long).is_multiple_of(2));
            let first = ends - long;
            for place in first + 1..=start + size {
                back[(place - 1) % size] -= (place - first) as i64;
            }
        }
    }
    [ahead, back]
}
