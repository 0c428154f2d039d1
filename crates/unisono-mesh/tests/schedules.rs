//! Every collective's schedule: carried out on sets and on numbers, against the textbook's and its own closed forms, and broken
//! on purpose.

use std::ops::Range;
use unisono_mesh::schedule::{
    Algorithm, CanonicalTree, Collective, Fabric, Part, Reduction, Schedule, Topology, Traffic, link_bytes, traffic,
};

/// One chunk's bytes in these tests: every count of parallel links divides it.
const CHUNK: u64 = 12;

fn line(n: usize, topology: Topology) -> Fabric {
    Fabric::line(n, topology).expect("a valid group")
}

/// Lines and rings of 1 to 16 devices, and grids of up to 16.
fn fabrics() -> Vec<Fabric> {
    use Topology::{Linear, Ring};
    let mut fabrics = Vec::new();
    for n in 1..=16 {
        fabrics.extend([line(n, Linear), line(n, Ring)]);
    }
    for sizes in [
        [2, 2],
        [2, 4],
        [4, 2],
        [3, 2],
        [2, 3],
        [3, 3],
        [4, 4],
        [2, 8],
        [5, 3],
        [3, 4],
    ] {
        for topology in [[Linear, Linear], [Ring, Ring], [Ring, Linear], [Linear, Ring]] {
            fabrics.push(Fabric::grid(sizes, topology).expect("a valid group"));
        }
    }
    fabrics
}

/// Every collective for a group of `n`.
fn collectives(n: usize) -> Vec<Collective> {
    let mut all = vec![
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllReduce(Reduction::Sum),
        Collective::AllReduce(Reduction::Max),
        Collective::AllBroadcast,
        Collective::AllToAll,
        Collective::Barrier,
    ];
    for root in [0, n / 2, n - 1] {
        all.extend([
            Collective::Broadcast { root },
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::PointToPoint {
                from: root,
                to: n - 1 - root / 2,
            },
        ]);
    }
    all.extend([-7, -1, 0, 1, 2, 3, n as isize / 2].map(|by| Collective::Shift { by }));
    all
}

/// Every schedule of every group, with a payload that makes chunks of [`CHUNK`] bytes where they are n-th parts.
fn for_all(mut test: impl FnMut(&Schedule)) {
    for fabric in fabrics() {
        let n = fabric.num_devices();
        for collective in collectives(n) {
            for algorithm in collective.algorithms() {
                let bytes = CHUNK * n as u64;
                test(&Schedule::new(collective, &fabric, *algorithm, bytes, 1).expect("a schedule"));
            }
        }
    }
}

fn title(schedule: &Schedule) -> String {
    format!(
        "{} {} on {}",
        schedule.algorithm,
        schedule.collective,
        schedule.fabric.describe()
    )
}

#[test]
fn every_schedule_gives_every_device_what_the_collective_promises() {
    let mut schedules = 0;
    for_all(|schedule| {
        assert_eq!(schedule.check(), Ok(()), "{}", title(schedule));
        schedules += 1;
    });
    assert!(schedules > 2000, "{schedules}");
}

/// The canonical sum by its definition: a node is its children, added left to right.
fn sum(values: &[f32]) -> f32 {
    let n = values.len();
    if n == 1 {
        return values[0];
    }
    let children = if n.is_multiple_of(2) {
        2
    } else {
        (3..=n).find(|p| n.is_multiple_of(*p)).expect("n divides itself")
    };
    values
        .chunks(n / children)
        .map(sum)
        .reduce(|left, right| left + right)
        .expect("at least one child")
}

/// Addends whose sum depends on the order.
fn addend(device: usize, chunk: usize) -> f32 {
    let hash = (device as u32 * 31 + chunk as u32 * 17 + 5).wrapping_mul(2_654_435_761);
    (hash >> 8) as f32 * 2f32.powi((hash % 23) as i32 - 11)
}

/// A partial sum: the devices whose addends it holds, and its value.
type Sum = (Range<usize>, f32);

/// Carries a sum out on numbers: a device makes what it sends of the pieces that it has, in device order, with the additions
/// of a stack on which a complete node replaces its children. Returns each device's values of the chunks it should have.
fn numbers(schedule: &Schedule) -> Vec<Vec<(usize, f32)>> {
    let n = schedule.num_devices();
    let tree = CanonicalTree::over(n);
    let mut held: Vec<Vec<Vec<Sum>>> = (0..n)
        .map(|device| {
            (0..schedule.chunks)
                .map(|chunk| vec![(device..device + 1, addend(device, chunk))])
                .collect()
        })
        .collect();
    let make = |pieces: &[Sum], run: &Range<usize>| -> f32 {
        let mut pieces: Vec<_> = pieces
            .iter()
            .filter(|(r, _)| run.start <= r.start && r.end <= run.end)
            .collect();
        pieces.sort_by_key(|(range, _)| range.start);
        let mut stack: Vec<Sum> = Vec::new();
        for (range, value) in pieces {
            stack.push((range.clone(), *value));
            while let [.., (a, x), (b, y)] = stack.as_slice() {
                // The two may be added when both lie in one node and the second is a whole child.
                if tree.is_span(&(a.start..b.end)) && tree.is_span(a) && a.end == b.start {
                    let merged = (a.start..b.end, x + y);
                    stack.truncate(stack.len() - 2);
                    stack.push(merged);
                } else {
                    break;
                }
            }
        }
        assert_eq!(stack.len(), 1, "{run:?}: {stack:?} in {}", title(schedule));
        assert_eq!(stack[0].0, *run);
        stack[0].1
    };
    for step in &schedule.steps {
        let before = held.clone();
        for send in &step.sends {
            for part in &send.parts {
                let [run] = part.combines.as_slice() else {
                    panic!("not canonical")
                };
                let value = make(&before[send.from][part.chunk], run);
                let pieces = &mut held[send.to][part.chunk];
                if *run == (0..n) {
                    pieces.clear();
                }
                pieces.push((run.clone(), value));
            }
        }
    }
    (0..n)
        .map(|device| {
            let goal = schedule.goal(device);
            goal.into_iter()
                .map(|chunk| (chunk, make(&held[device][chunk], &(0..n))))
                .collect()
        })
        .collect()
}

#[test]
fn canonical_sums_have_the_bits_of_one_device() {
    let mut sums = 0;
    for_all(|schedule| {
        let adds = matches!(
            schedule.collective,
            Collective::ReduceScatter | Collective::AllReduce(Reduction::Sum)
        );
        if schedule.algorithm == Algorithm::Canonical {
            assert!(schedule.is_canonical(), "{}", title(schedule));
        }
        if !adds || !schedule.is_canonical() {
            return;
        }
        let n = schedule.num_devices();
        for (device, values) in numbers(schedule).into_iter().enumerate() {
            for (chunk, value) in values {
                let addends: Vec<f32> = (0..n).map(|device| addend(device, chunk)).collect();
                assert_eq!(
                    value.to_bits(),
                    sum(&addends).to_bits(),
                    "{} device {device} chunk {chunk}",
                    title(schedule)
                );
            }
        }
        sums += 1;
    });
    assert!(sums > 200, "{sums}");
    // The addends tell orders apart.
    let addends: Vec<f32> = (0..8).map(|device| addend(device, 0)).collect();
    let straight = addends.iter().copied().reduce(|a, b| a + b).expect("eight");
    assert_ne!(straight.to_bits(), sum(&addends).to_bits());
}

#[test]
fn only_the_ring_and_odd_trees_leave_the_canonical_order() {
    let sum = Collective::AllReduce(Reduction::Sum);
    for n in 2..=16 {
        let canonical = |algorithm| {
            let schedule = Schedule::new(sum, &line(n, Topology::Ring), algorithm, 64, 1).expect("a schedule");
            schedule.is_canonical()
        };
        assert!(canonical(Algorithm::Server) && canonical(Algorithm::Naive) && canonical(Algorithm::Canonical));
        assert_eq!(canonical(Algorithm::Ring), n == 2, "{n}");
        if n.is_power_of_two() {
            assert!(canonical(Algorithm::Tree), "{n}");
        }
    }
    let five = Schedule::new(sum, &line(5, Topology::Ring), Algorithm::Tree, 64, 1).expect("a schedule");
    assert!(!five.is_canonical());
}

#[test]
fn a_schedule_with_a_message_dropped_fails() {
    let mut broken = 0;
    for_all(|schedule| {
        if schedule.num_devices() > 6 {
            return;
        }
        for step in 0..schedule.num_steps() {
            for send in 0..schedule.steps[step].sends.len() {
                let mut without = schedule.clone();
                without.steps[step].sends.remove(send);
                assert!(
                    without.check().is_err(),
                    "{} without message {send} of step {step}",
                    title(schedule)
                );
                broken += 1;
            }
        }
    });
    assert!(broken > 1000, "{broken}");
}

#[test]
fn a_message_over_no_link_twice_added_or_of_nothing_fails() {
    let whole = |schedule: &Schedule| schedule.check().expect_err("broken");
    let sum = Collective::AllReduce(Reduction::Sum);
    let good = Schedule::new(sum, &line(4, Topology::Linear), Algorithm::Canonical, 16, 1).expect("a schedule");
    let mut jump = good.clone();
    jump.steps[0].sends[0].to = 3;
    assert_eq!(whole(&jump), "step 1, the message from 0 to 3: no link joins 0 and 3");
    let mut twice = good.clone();
    let again = twice.steps[0].sends[0].clone();
    twice.steps[1].sends.push(again);
    assert!(
        whole(&twice).contains("1 holds values of chunk 3 already"),
        "{}",
        whole(&twice)
    );
    let mut nothing = good;
    nothing.steps[0].sends[0].parts = vec![Part {
        chunk: 3,
        combines: std::iter::once(1..2).collect(),
    }];
    assert!(
        whole(&nothing).contains("0 does not hold its part [1..2] of chunk 3"),
        "{}",
        whole(&nothing)
    );
}

#[test]
fn counts_without_listing_are_those_of_the_messages() {
    for_all(|listed| {
        for (bytes, num_links) in [(listed.bytes, 1), (listed.bytes, 3), (1001, 4), (0, 2), (3, 1)] {
            let listed = Schedule::new(listed.collective, &listed.fabric, listed.algorithm, bytes, num_links);
            let listed = listed.expect("a schedule");
            let (collective, fabric, algorithm) = (&listed.collective, &listed.fabric, listed.algorithm);
            let counted = traffic(collective, fabric, algorithm, bytes, num_links).expect("countable");
            let expected = Traffic {
                steps: listed.num_steps() as u64,
                messages: listed.messages(),
                bytes: listed.bytes_total(),
                busiest_link_bytes: listed.busiest_link().map_or(0, |(_, bytes)| bytes),
                own_bytes: (0..listed.num_devices())
                    .map(|device| listed.own_bytes(device))
                    .max()
                    .unwrap_or(0),
            };
            assert_eq!(counted, expected, "{} with {bytes} bytes", title(&listed));
            let links = link_bytes(collective, fabric, algorithm, bytes).expect("countable");
            assert_eq!(links, listed.link_bytes(), "{}", title(&listed));
        }
    });
}
