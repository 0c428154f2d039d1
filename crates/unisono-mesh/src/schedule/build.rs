//! The messages of every collective.

use super::fabric::Along;
use super::{Algorithm, CanonicalTree, Collective, Fabric, Part, Reduction, Send, Step};
use std::ops::Range;

/// The steps of a collective; some may be empty.
pub(super) fn build(collective: &Collective, fabric: &Fabric, algorithm: Algorithm, chunks: usize) -> Vec<Step> {
    let n = fabric.num_devices();
    let all: Vec<Range<usize>> = std::iter::once(0..n).collect();
    match (collective, algorithm) {
        (Collective::AllGather | Collective::AllBroadcast, Algorithm::Canonical) => gather_all(fabric, &[]),
        (Collective::ReduceScatter, Algorithm::Canonical) => reduce(fabric, Reduction::Sum),
        (Collective::AllReduce(reduction), Algorithm::Canonical) => {
            let mut steps = reduce(fabric, *reduction);
            steps.extend(gather_all(fabric, &all));
            steps
        }
        (Collective::AllGather | Collective::AllBroadcast, Algorithm::Ring) => ring_gather(fabric, &[]),
        (Collective::ReduceScatter, Algorithm::Ring) => ring_reduce(fabric),
        (Collective::AllReduce(_), Algorithm::Ring) => {
            let mut steps = ring_reduce(fabric);
            steps.extend(ring_gather(fabric, &all));
            steps
        }
        (Collective::AllReduce(_), Algorithm::Tree) => {
            let mut steps = tree_reduce(fabric);
            steps.extend(tree_broadcast(fabric, 0, &all));
            steps
        }
        (Collective::Broadcast { root }, Algorithm::Tree) => tree_broadcast(fabric, *root, &[]),
        (Collective::AllReduce(_) | Collective::AllGather | Collective::AllBroadcast, Algorithm::Server) => {
            server(fabric, collective)
        }
        (Collective::Broadcast { root }, Algorithm::Canonical) => pipeline(fabric, *root, chunks),
        (Collective::Barrier, _) => meet(fabric),
        _ => direct(collective, fabric),
    }
}

fn steps(count: usize, what: &'static str) -> Vec<Step> {
    vec![
        Step {
            what,
            sends: Vec::new()
        };
        count
    ]
}

/// A message along the fabric's route.
fn routed(fabric: &Fabric, from: usize, to: usize, parts: Vec<Part>) -> Send {
    let route = fabric.route(from, to);
    Send {
        from,
        to,
        via: route[1..route.len() - 1].to_vec(),
        parts,
    }
}

/// How many devices of a line are served forward and backward from `place` when it sends to all of them. On a ring of even size
/// the farthest one is served forward from even places.
pub(super) fn arms(fabric: &Fabric, along: Along, place: usize) -> (usize, usize) {
    let size = fabric.size(along);
    if !fabric.wraps(along) {
        return (size - 1 - place, place);
    }
    let (long, short) = (size / 2, size - 1 - size / 2);
    if place.is_multiple_of(2) {
        (long, short)
    } else {
        (short, long)
    }
}

/// Every device's data to all devices of each line: neighbour to neighbour, both ways. `chunks` gives what a device begins with.
fn spread(fabric: &Fabric, along: Along, combines: &[Range<usize>], chunks: impl Fn(usize) -> Vec<usize>) -> Vec<Step> {
    let size = fabric.size(along);
    let count = if fabric.wraps(along) { size / 2 } else { size - 1 };
    let mut steps = steps(count, "gather");
    for line in 0..fabric.num_lines(along) {
        for place in 0..size {
            let parts: Vec<Part> = chunks(fabric.device(along, line, place))
                .into_iter()
                .map(|chunk| Part {
                    chunk,
                    combines: combines.to_vec(),
                })
                .collect();
            let (ahead, behind) = arms(fabric, along, place);
            for (forward, reach) in [(true, ahead), (false, behind)] {
                let mut at = place;
                for step in &mut steps[..reach] {
                    let next = fabric.step(along, at, forward);
                    step.sends.push(Send {
                        from: fabric.device(along, line, at),
                        to: fabric.device(along, line, next),
                        via: Vec::new(),
                        parts: parts.clone(),
                    });
                    at = next;
                }
            }
        }
    }
    steps
}

/// All-gather: along the columns with one chunk, then along the rows with a column's.
fn gather_all(fabric: &Fabric, combines: &[Range<usize>]) -> Vec<Step> {
    let [rows, cols] = fabric.sizes();
    let mut steps = spread(fabric, Along::Columns, combines, |device| vec![device]);
    steps.extend(spread(fabric, Along::Rows, combines, |device| {
        (0..rows).map(|row| row * cols + device % cols).collect()
    }));
    steps
}

/// The devices that one of a line's places stands for while a reduction collects along it: `width` a place, from `first`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    pub(super) first: usize,
    pub(super) width: usize,
}

impl Shares {
    /// Along a row each device stands for itself, along a column for its whole row.
    pub(super) fn of(fabric: &Fabric, along: Along, line: usize) -> Self {
        let cols = fabric.sizes()[1];
        match along {
            Along::Rows => Self {
                first: line * cols,
                width: 1,
            },
            Along::Columns => Self { first: 0, width: cols },
        }
    }

    /// The devices of `len` places from `place` on, round the end of a line of `size`: one run, or two ascending ones.
    pub(super) fn runs(&self, size: usize, place: usize, len: usize) -> Vec<Range<usize>> {
        let run = |places: Range<usize>| self.first + places.start * self.width..self.first + places.end * self.width;
        if place + len <= size {
            vec![run(place..place + len)]
        } else {
            vec![run(0..place + len - size), run(place..size)]
        }
    }
}

/// How many places before and after `place` send to it forward and backward in a reduction along a line.
pub(super) fn collecting_arms(fabric: &Fabric, along: Along, place: usize) -> (usize, usize) {
    let (ahead, behind) = arms(fabric, along, place);
    // On a ring the arms are those of a gathering: a link that carries one chunk more there carries one less here. And even
    // places have even runs of devices before them, of which fewer partial sums are left.
    if fabric.wraps(along) {
        (ahead, behind)
    } else {
        (behind, ahead)
    }
}

/// Each place of a line collects everyone's part of the chunks that are its own (`targets`), combined on the way as far as the
/// tree allows, or entirely without one.
fn collect(
    fabric: &Fabric,
    along: Along,
    tree: Option<&CanonicalTree>,
    targets: impl Fn(usize, usize) -> Vec<usize>,
) -> Vec<Step> {
    let size = fabric.size(along);
    let count = if fabric.wraps(along) { size / 2 } else { size - 1 };
    let mut steps = steps(count, "reduce");
    for line in 0..fabric.num_lines(along) {
        let shares = Shares::of(fabric, along, line);
        for place in 0..size {
            let chunks = targets(line, place);
            let (before, after) = collecting_arms(fabric, along, place);
            for (forward, arm) in [(true, before), (false, after)] {
                for len in 1..=arm {
                    // The arm's first `len` places, seen from its far end, have their values in this message.
                    let distance = arm + 1 - len;
                    let (at, start) = if forward {
                        ((place + size - distance) % size, (place + size - arm) % size)
                    } else {
                        ((place + distance) % size, (place + distance) % size)
                    };
                    let runs = shares.runs(size, start, len);
                    let sums: Vec<Vec<Range<usize>>> = match tree {
                        Some(tree) => runs
                            .into_iter()
                            .flat_map(|run| tree.spans(run))
                            .map(|span| vec![span])
                            .collect(),
                        None => vec![joined(runs)],
                    };
                    let parts = chunks
                        .iter()
                        .flat_map(|chunk| {
                            sums.iter().map(|combines| Part {
                                chunk: *chunk,
                                combines: combines.clone(),
                            })
                        })
                        .collect();
                    steps[count - distance].sends.push(Send {
                        from: fabric.device(along, line, at),
                        to: fabric.device(along, line, fabric.step(along, at, forward)),
                        via: Vec::new(),
                        parts,
                    });
                }
            }
        }
    }
    steps
}

/// Ranges that touch become one.
fn joined(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// Reduce-scatter: along the rows for a column's chunks, then along the columns for one.
fn reduce(fabric: &Fabric, reduction: Reduction) -> Vec<Step> {
    let [rows, cols] = fabric.sizes();
    let tree = reduction.is_sum().then(|| CanonicalTree::over(rows * cols));
    let mut steps = collect(fabric, Along::Rows, tree.as_ref(), |_, place| {
        (0..rows).map(|row| row * cols + place).collect()
    });
    steps.extend(collect(fabric, Along::Columns, tree.as_ref(), |line, place| {
        vec![place * cols + line]
    }));
    steps
}

/// The plain ring's reduce-scatter: in n − 1 steps each chunk goes once round, and everyone adds its own.
fn ring_reduce(fabric: &Fabric) -> Vec<Step> {
    let order = fabric.ring_order();
    let n = order.len();
    let mut steps = steps(n - 1, "reduce");
    for (i, step) in steps.iter_mut().enumerate() {
        for place in 0..n {
            let chunk = order[(place + n - 1 - i) % n];
            let mut combined: Vec<usize> = (0..=i).map(|back| order[(place + n - back) % n]).collect();
            combined.sort_unstable();
            let combines = joined(combined.into_iter().map(|device| device..device + 1).collect());
            let parts = vec![Part { chunk, combines }];
            step.sends
                .push(routed(fabric, order[place], order[(place + 1) % n], parts));
        }
    }
    steps
}

/// The plain ring's all-gather: in n − 1 steps each chunk goes once round.
fn ring_gather(fabric: &Fabric, combines: &[Range<usize>]) -> Vec<Step> {
    let order = fabric.ring_order();
    let n = order.len();
    let mut steps = steps(n - 1, "gather");
    for (i, step) in steps.iter_mut().enumerate() {
        for place in 0..n {
            let chunk = order[(place + n - i) % n];
            let parts = vec![Part {
                chunk,
                combines: combines.to_vec(),
            }];
            step.sends
                .push(routed(fabric, order[place], order[(place + 1) % n], parts));
        }
    }
    steps
}

/// The binomial tree towards device 0: in the i-th step devices at odd multiples of 2^i send to the even one before.
fn tree_reduce(fabric: &Fabric) -> Vec<Step> {
    let n = fabric.num_devices();
    let mut steps = Vec::new();
    let mut distance = 1;
    while distance < n {
        let sends = (distance..n)
            .step_by(2 * distance)
            .map(|from| {
                let combines = std::iter::once(from..n.min(from + distance)).collect();
                routed(fabric, from, from - distance, vec![Part { chunk: 0, combines }])
            })
            .collect();
        steps.push(Step { what: "reduce", sends });
        distance *= 2;
    }
    steps
}

/// The same tree from the root: in every step each device that has the data sends it to one that has not.
fn tree_broadcast(fabric: &Fabric, root: usize, combines: &[Range<usize>]) -> Vec<Step> {
    let n = fabric.num_devices();
    let mut steps = Vec::new();
    let mut distance = n.next_power_of_two() / 2;
    while distance > 0 {
        let sends = (distance..n)
            .step_by(2 * distance)
            .map(|to| {
                let parts = vec![Part {
                    chunk: 0,
                    combines: combines.to_vec(),
                }];
                routed(fabric, (root + to - distance) % n, (root + to) % n, parts)
            })
            .collect();
        steps.push(Step {
            what: "broadcast",
            sends,
        });
        distance /= 2;
    }
    steps
}

/// Everything to device 0, then the whole result from it to each.
fn server(fabric: &Fabric, collective: &Collective) -> Vec<Step> {
    let n = fabric.num_devices();
    let sums = collective.reduction().is_some();
    let reach = fabric.reach(0);
    let mut steps = steps(reach, if sums { "reduce" } else { "gather" });
    steps.extend(self::steps(reach, "broadcast"));
    for device in 1..n {
        let distance = fabric.distance(device, 0);
        let (there, back) = if sums {
            let part = |run: Range<usize>| {
                vec![Part {
                    chunk: 0,
                    combines: vec![run],
                }]
            };
            (part(device..device + 1), part(0..n))
        } else {
            let others = (0..n).filter(|chunk| *chunk != device);
            (vec![Part::moved(device)], others.map(Part::moved).collect())
        };
        steps[distance - 1].sends.push(routed(fabric, device, 0, there));
        // The farthest first, so that no link waits for it at the end.
        let distance = fabric.distance(0, device);
        steps[2 * reach - distance].sends.push(routed(fabric, 0, device, back));
    }
    steps
}

/// A broadcast whose chunks follow one another along the routes from the root.
fn pipeline(fabric: &Fabric, root: usize, chunks: usize) -> Vec<Step> {
    let mut steps = steps(fabric.reach(root) + chunks - 1, "broadcast");
    for device in (0..fabric.num_devices()).filter(|device| *device != root) {
        let route = fabric.route(root, device);
        let distance = route.len() - 1;
        for chunk in 0..chunks {
            steps[distance - 1 + chunk].sends.push(Send {
                from: route[distance - 1],
                to: device,
                via: Vec::new(),
                parts: vec![Part::moved(chunk)],
            });
        }
    }
    steps
}

/// A barrier: along every row, then along every column, everyone hears that all have come. In a line the news run from both ends
/// and gather what lies on their way; on a ring they go both ways round.
fn meet(fabric: &Fabric) -> Vec<Step> {
    let [_, cols] = fabric.sizes();
    let mut all = Vec::new();
    for along in [Along::Rows, Along::Columns] {
        // After the rows, a device knows of its row.
        let known = |device: usize| match along {
            Along::Rows => device..device + 1,
            Along::Columns => device / cols * cols..(device / cols + 1) * cols,
        };
        if fabric.wraps(along) {
            all.extend(spread(fabric, along, &[], |device| known(device).collect()));
            continue;
        }
        let size = fabric.size(along);
        let mut steps = steps(size - 1, "meet");
        for line in 0..fabric.num_lines(along) {
            let device = |place| fabric.device(along, line, place);
            for (i, step) in steps.iter_mut().enumerate() {
                let ahead = (0..=i).flat_map(|place| known(device(place)));
                let back = (size - 1 - i..size).flat_map(|place| known(device(place)));
                let send = |from, to, parts| Send {
                    from: device(from),
                    to: device(to),
                    via: Vec::new(),
                    parts,
                };
                step.sends.push(send(i, i + 1, ahead.map(Part::moved).collect()));
                step.sends
                    .push(send(size - 1 - i, size - 2 - i, back.map(Part::moved).collect()));
            }
        }
        all.extend(steps);
    }
    all
}

/// Messages straight from the one that has the data to the one that wants it, those that go as far in the same step.
fn direct(collective: &Collective, fabric: &Fabric) -> Vec<Step> {
    let n = fabric.num_devices();
    let what = match collective {
        Collective::ReduceScatter | Collective::AllReduce(_) => "reduce",
        Collective::AllGather | Collective::Gather { .. } => "gather",
        Collective::Broadcast { .. } | Collective::AllBroadcast => "broadcast",
        Collective::Scatter { .. } => "scatter",
        _ => "send",
    };
    let own = |device: usize| std::iter::once(device..device + 1).collect::<Vec<_>>();
    // What `from` has for `to`.
    let parts = |from: usize, to: usize| -> Vec<Part> {
        match collective {
            Collective::ReduceScatter => (0..n)
                .map(|chunk| Part {
                    chunk,
                    combines: own(from),
                })
                .collect(),
            Collective::AllReduce(_) => vec![Part {
                chunk: 0,
                combines: own(from),
            }],
            Collective::AllGather | Collective::AllBroadcast => vec![Part::moved(from)],
            Collective::Broadcast { root } if *root == from => vec![Part::moved(0)],
            Collective::AllToAll => vec![Part::moved(from * n + to)],
            Collective::Gather { root } if *root == to => vec![Part::moved(from)],
            Collective::Scatter { root } if *root == from => vec![Part::moved(to)],
            Collective::PointToPoint {
                from: sender,
                to: receiver,
            } if (*sender, *receiver) == (from, to) => {
                vec![Part::moved(0)]
            }
            Collective::Shift { by } if shifted(from, *by, n) == to => vec![Part::moved(from)],
            _ => Vec::new(),
        }
    };
    let at_once = matches!(collective, Collective::PointToPoint { .. } | Collective::Shift { .. });
    let farthest_first = matches!(collective, Collective::Scatter { .. });
    let count = (0..n).map(|device| fabric.reach(device)).max().unwrap_or(0);
    let mut steps = steps(count, what);
    for from in 0..n {
        for to in (0..n).filter(|to| *to != from) {
            let parts = parts(from, to);
            if parts.is_empty() {
                continue;
            }
            let distance = fabric.distance(from, to);
            let step = match (at_once, farthest_first) {
                (true, _) => 0,
                (_, true) => count - distance,
                _ => distance - 1,
            };
            steps[step].sends.push(routed(fabric, from, to, parts));
        }
    }
    steps
}

/// The device `by` places further, round the end of `n`.
pub(super) fn shifted(device: usize, by: isize, n: usize) -> usize {
    // `n` is at most MAX_DEVICES, so it is an `isize` too; the remainder is not negative.
    (device + by.rem_euclid(n as isize) as usize) % n
}
