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

/// A number for each gap of a ring, added up from straight pieces: of each only its ends are noted.
struct Pieces {
    size: usize,
    /// What is added from a gap on.
    jumps: Vec<i64>,
    /// What is added from a gap on to every further gap.
    slopes: Vec<i64>,
}

impl Pieces {
    /// Pieces lie on three rounds, so that none has to be cut.
    fn new(size: usize) -> Self {
        let zeros = vec![0; 3 * size + 2];
        Self {
            size,
            jumps: zeros.clone(),
            slopes: zeros,
        }
    }

    /// `each`, on the gaps from `start` to before `end`.
    fn level(&mut self, start: usize, end: usize, each: i64) {
        self.jumps[start] += each;
        self.jumps[end] -= each;
    }

    /// `each`, twice as much and so on, on the gaps from `start` to before `end`.
    fn rising(&mut self, start: usize, end: usize, each: i64) {
        if start < end {
            self.slopes[start] += each;
            self.slopes[end] -= each;
            self.jumps[end] -= each * (end - start) as i64;
        }
    }

    /// The same backward: `each` on the last gap before `end`.
    fn falling(&mut self, start: usize, end: usize, each: i64) {
        if start < end {
            self.jumps[start] += each * (end - start) as i64;
            self.slopes[start + 1] -= each;
            self.slopes[end + 1] += each;
        }
    }

    /// The sums, by gap.
    fn sums(&self) -> Vec<i64> {
        let (mut slope, mut value) = (0, 0);
        let mut gaps = vec![0; self.size];
        for (at, (jump, bend)) in self.jumps.iter().zip(&self.slopes).enumerate() {
            slope += bend;
            value += slope + jump;
            gaps[at % self.size] += value;
        }
        gaps
    }
}

/// Chunks over the gaps of a ring of at least three, ahead and back; without a tree one for every target that they serve.
///
/// A run of addends has as many spans as it has addends, less one for each addition that the tree makes within it. So each
/// addition, of the addends from `start` to `item`, takes one from every message that carries both: those over the gaps from
/// `item` on, for every target that is farther and whose arm begins at `start` or before. (And the other way about backward.)
pub(super) fn collected_on_ring(tree: Option<&CanonicalTree>, shares: Shares, size: usize) -> [Vec<i64>; 2] {
    let mut ahead = Pieces::new(size);
    let mut back = Pieces::new(size);
    let width = shares.width as i64;
    let long = size / 2;
    let even = size.is_multiple_of(2);
    for target in 0..size {
        let shorter = |odd: usize| usize::from(even && target % 2 == odd);
        let (before, after) = (long - shorter(1), long - shorter(0));
        if tree.is_some() {
            ahead.rising(target + size - before, target + size, width);
            back.falling(target, target + after, width);
        } else {
            ahead.level(target + size - before, target + size, 1);
            back.level(target, target + after, 1);
        }
    }
    let Some(tree) = tree else {
        return [ahead.sums(), back.sums()];
    };
    for item in shares.first..shares.first + size * shares.width {
        for start in tree.completes(item).take_while(|start| *start >= shares.first) {
            let [start, item] = [start, item].map(|unit| (unit - shares.first) / shares.width);
            // The last target whose arm begins at `start` or before; of an even ring's places every other begins an arm. It is
            // `size` higher than it is, so that nothing is negative.
            let begins = start + size - usize::from(even && !(start + long).is_multiple_of(2));
            ahead.falling(item + size, begins + long, -1);
            // The first target whose arm ends at `item` or after, in the same way.
            let ends = item + size + usize::from(even && (item + long).is_multiple_of(2));
            back.rising(ends - long, start + size, -1);
        }
    }
    [ahead.sums(), back.sums()]
}
