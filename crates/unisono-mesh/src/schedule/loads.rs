//! What every link carries, in chunks, without listing messages.

use super::build::{Shares, arms, shifted};
use super::collected::{collected_on_line, collected_on_ring};
use super::fabric::Along;
use super::{Algorithm, CanonicalTree, Collective, Fabric, Link};

/// The two directions of the links along one axis: for each line and each gap between a place and the next, chunks.
#[derive(Debug, Clone)]
struct AxisLoads {
    along: Along,
    size: usize,
    ahead: Vec<i64>,
    back: Vec<i64>,
}

impl AxisLoads {
    fn new(fabric: &Fabric, along: Along) -> Self {
        let gaps = vec![0; fabric.num_devices()];
        Self {
            along,
            size: fabric.size(along),
            ahead: gaps.clone(),
            back: gaps,
        }
    }

    fn of(&mut self, forward: bool) -> &mut [i64] {
        if forward { &mut self.ahead } else { &mut self.back }
    }

    /// Notes `chunks` more on `count` gaps of a line from `first` on, round the end. The numbers are differences until
    /// [`settle`](Self::settle).
    fn note(&mut self, line: usize, forward: bool, first: usize, count: usize, chunks: i64) {
        let size = self.size;
        let gaps = &mut self.of(forward)[line * size..(line + 1) * size];
        let end = first + count;
        gaps[first] += chunks;
        if end < size {
            gaps[end] -= chunks;
        } else if end > size {
            gaps[0] += chunks;
            gaps[end - size] -= chunks;
        }
    }

    /// Notes a way that begins at `place`; way of no links nothing.
    fn note_way(&mut self, line: usize, place: usize, links: usize, forward: bool, chunks: i64) {
        if links > 0 {
            let first = if forward {
                place
            } else {
                (place + self.size - links) % self.size
            };
            self.note(line, forward, first, links, chunks);
        }
    }

    /// Makes sums of the differences.
    fn settle(&mut self) {
        for forward in [true, false] {
            let size = self.size;
            for line in self.of(forward).chunks_exact_mut(size) {
                let mut sum = 0;
                for gap in line {
                    sum += *gap;
                    *gap = sum;
                }
            }
        }
    }
}

/// What the links of a fabric carry.
#[derive(Debug, Clone)]
pub(super) struct Loads {
    fabric: Fabric,
    axes: [AxisLoads; 2],
}

impl Loads {
    /// Chunks over every link in a collective of at least two devices, cut into `chunks`.
    pub(super) fn of(collective: &Collective, fabric: &Fabric, algorithm: Algorithm, chunks: usize) -> Self {
        let mut loads = Self {
            fabric: fabric.clone(),
            axes: [Along::Rows, Along::Columns].map(|along| AxisLoads::new(fabric, along)),
        };
        loads.fill(collective, algorithm, chunks as i64);
        for axis in &mut loads.axes {
            axis.settle();
        }
        if algorithm == Algorithm::Canonical && collective.reduction().is_some() {
            let sums = collective.reduction().is_some_and(|reduction| reduction.is_sum());
            loads.collect(sums);
        }
        loads
    }

    /// Everything but the canonical reductions, as differences.
    fn fill(&mut self, collective: &Collective, algorithm: Algorithm, chunks: i64) {
        let n = self.fabric.num_devices();
        let reduces = collective.reduction().is_some();
        match (collective, algorithm) {
            (Collective::ReduceScatter, Algorithm::Canonical) | (Collective::Barrier, _) => {}
            (Collective::AllGather | Collective::AllBroadcast | Collective::AllReduce(_), Algorithm::Canonical) => {
                self.spread();
            }
            (_, Algorithm::Ring) => {
                let rounds = if matches!(collective, Collective::AllReduce(_)) {
                    2
                } else {
                    1
                };
                let order = self.fabric.ring_order();
                for place in 0..n {
                    self.route(order[place], order[(place + 1) % n], rounds * (n as i64 - 1));
                }
            }
            (_, Algorithm::Tree) => {
                let root = if let Collective::Broadcast { root } = collective {
                    *root
                } else {
                    0
                };
                for child in 1..n {
                    // The lowest bit that is set is the step in which the child sends or gets.
                    let parent = child & (child - 1);
                    self.route((root + parent) % n, (root + child) % n, 1);
                    if reduces {
                        self.route(child, parent, 1);
                    }
                }
            }
            (_, Algorithm::Server) => {
                for device in 1..n {
                    self.route(device, 0, 1);
                    self.route(0, device, if reduces { 1 } else { n as i64 - 1 });
                }
            }
            (Collective::Broadcast { root }, Algorithm::Canonical) => self.multicast(*root, chunks),
            (Collective::Broadcast { root } | Collective::Scatter { root }, _) => {
                for device in 0..n {
                    self.route(*root, device, 1);
                }
            }
            (Collective::Gather { root }, _) => {
                for device in 0..n {
                    self.route(device, *root, 1);
                }
            }
            (Collective::PointToPoint { from, to }, _) => self.route(*from, *to, 1),
            (Collective::Shift { by }, _) => {
                for device in 0..n {
                    self.route(device, shifted(device, *by, n), 1);
                }
            }
            (Collective::ReduceScatter, _) => self.exchange(n as i64),
            (Collective::AllToAll | Collective::AllGather | Collective::AllBroadcast | Collective::AllReduce(_), _) => {
                self.exchange(1);
            }
        }
    }

    /// One message along its route.
    fn route(&mut self, from: usize, to: usize, chunks: i64) {
        let corner = {
            let (row, _) = self.fabric.place(Along::Rows, from);
            self.fabric
                .device(Along::Rows, row, self.fabric.place(Along::Rows, to).1)
        };
        for (axis, (from, to)) in self.axes.iter_mut().zip([(from, corner), (corner, to)]) {
            let (line, place) = self.fabric.place(axis.along, from);
            let way = self.fabric.way(axis.along, place, self.fabric.place(axis.along, to).1);
            axis.note_way(line, place, way.links, way.forward, chunks);
        }
    }

    /// All-gather: every place of a line to all others along the arms.
    fn spread(&mut self) {
        let rows = self.fabric.sizes()[0];
        for axis in &mut self.axes {
            let chunks = if axis.along == Along::Rows { rows as i64 } else { 1 };
            for line in 0..self.fabric.num_lines(axis.along) {
                for place in 0..axis.size {
                    let (ahead, behind) = arms(&self.fabric, axis.along, place);
                    axis.note_way(line, place, ahead, true, chunks);
                    axis.note_way(line, place, behind, false, chunks);
                }
            }
        }
    }

    /// A broadcast along the root's row, and from there along the columns.
    fn multicast(&mut self, root: usize, chunks: i64) {
        for axis in &mut self.axes {
            let (line, place) = self.fabric.place(axis.along, root);
            let (ahead, behind) = arms(&self.fabric, axis.along, place);
            let lines = if axis.along == Along::Rows {
                line..line + 1
            } else {
                0..self.fabric.num_lines(axis.along)
            };
            for line in lines {
                axis.note_way(line, place, ahead, true, chunks);
                axis.note_way(line, place, behind, false, chunks);
            }
        }
    }

    /// Every device to every other, each along its route: along a row once for each row that the message may go to, along a
    /// column once for each place of the row that it came from.
    fn exchange(&mut self, chunks: i64) {
        for axis in &mut self.axes {
            let size = axis.size;
            let across = self.fabric.num_lines(axis.along) as i64;
            let mut line = AxisLoads {
                along: axis.along,
                size,
                ahead: vec![0; size],
                back: vec![0; size],
            };
            if self.fabric.wraps(axis.along) {
                // A way of `links` links covers each of them once: from every place together, each link `links` times.
                let each = |farthest: usize| (farthest * (farthest + 1) / 2) as i64 * chunks;
                line.note(0, true, 0, size, each((size - 1) / 2));
                line.note(0, false, 0, size, each((size - 1) / 2));
                if size.is_multiple_of(2) {
                    for place in 0..size {
                        line.note_way(0, place, size / 2, place.is_multiple_of(2), chunks);
                    }
                }
                line.settle();
            } else {
                for gap in 0..size - 1 {
                    let pairs = ((gap + 1) * (size - 1 - gap)) as i64 * chunks;
                    line.ahead[gap] = pairs;
                    line.back[gap] = pairs;
                }
            }
            // Differences again, as the others are.
            for forward in [true, false] {
                for gap in (0..size).rev() {
                    let before = if gap == 0 { 0 } else { line.of(forward)[gap - 1] };
                    line.of(forward)[gap] -= before;
                }
                for gaps in axis.of(forward).chunks_exact_mut(size) {
                    for (gap, chunks) in gaps.iter_mut().zip(line.of(forward)) {
                        *gap += across * *chunks;
                    }
                }
            }
        }
    }

    /// The canonical reduce-scatter, on top of settled sums.
    fn collect(&mut self, sums: bool) {
        let [rows, cols] = self.fabric.sizes();
        let tree = sums.then(|| CanonicalTree::over(rows * cols));
        for axis in &mut self.axes {
            let chunks = if axis.along == Along::Rows { rows as i64 } else { 1 };
            let size = axis.size;
            for line in 0..self.fabric.num_lines(axis.along) {
                let shares = Shares::of(&self.fabric, axis.along, line);
                let carried = if self.fabric.wraps(axis.along) {
                    collected_on_ring(tree.as_ref(), shares, size)
                } else {
                    collected_on_line(tree.as_ref(), shares, size)
                };
                for (forward, carried) in [true, false].into_iter().zip(carried) {
                    for (gap, collected) in axis.of(forward)[line * size..].iter_mut().zip(carried) {
                        *gap += chunks * collected;
                    }
                }
            }
        }
    }

    /// The links that carry something and how many chunks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Link, u64)> + '_ {
        self.axes.iter().flat_map(move |axis| {
            let link = move |i: usize, forward: bool| {
                let (line, gap) = (i / axis.size, i % axis.size);
                let here = self.fabric.device(axis.along, line, gap);
                let next = self.fabric.device(axis.along, line, (gap + 1) % axis.size);
                if forward {
                    Link { from: here, to: next }
                } else {
                    Link { from: next, to: here }
                }
            };
            [(true, &axis.ahead), (false, &axis.back)]
                .into_iter()
                .flat_map(move |(forward, gaps)| {
                    gaps.iter()
                        .enumerate()
                        .map(move |(i, chunks)| (link(i, forward), *chunks as u64))
                })
                .filter(|(_, chunks)| *chunks > 0)
        })
    }
}
