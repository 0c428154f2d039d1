//! The numbers of the schedules against the textbook's, for 2 to 16 devices, both topologies and 1 to 4 links, and the text of
//! `explain`.

use unisono_mesh::schedule::{
    Algorithm, ClosedForm, Collective, Count, Fabric, LinkModel, Question, Reduction, Schedule, Topology, check_links,
    explain, link_bytes, topology_for, traffic,
};

const SUM: Collective = Collective::AllReduce(Reduction::Sum);
const MAX: Collective = Collective::AllReduce(Reduction::Max);

fn line(n: usize, topology: Topology) -> Fabric {
    Fabric::line(n, topology).expect("a valid group")
}

/// Steps, chunks over all links, and chunks at the busiest link that a collective takes.
fn counted(collective: &Collective, fabric: &Fabric, algorithm: Algorithm) -> [u64; 3] {
    let count = Count::of(collective, fabric, algorithm).expect("countable");
    [count.steps, count.chunks, count.busiest]
}

/// Both topologies with 2 to 16 devices, and whether the ends are joined by a link of their own.
fn lines() -> impl Iterator<Item = (usize, Fabric, bool)> {
    (2..=16).flat_map(|n| {
        [Topology::Ring, Topology::Linear].map(|topology| (n, line(n, topology), topology == Topology::Ring && n > 2))
    })
}

#[test]
fn moves_and_maxima_reach_the_textbooks_numbers() {
    for (n, fabric, ring) in lines() {
        let n = n as u64;
        let canonical = |collective: &Collective| counted(collective, &fabric, Algorithm::Canonical);
        let far = if ring { n / 2 } else { n - 1 };
        assert_eq!(canonical(&Collective::AllGather), [far, n * (n - 1), far]);
        assert_eq!(canonical(&Collective::AllBroadcast), [far, n * (n - 1), far]);
        let busiest = if ring { n - 1 } else { n };
        assert_eq!(canonical(&MAX), [2 * far, 2 * n * (n - 1), busiest], "{n} {ring}");
        let pipelined = if far == 1 {
            [1, n - 1, 1]
        } else {
            [far + n - 1, n * (n - 1), n]
        };
        assert_eq!(canonical(&Collective::Broadcast { root: 0 }), pipelined);
        let [steps, total, most] = canonical(&Collective::AllToAll);
        if ring {
            assert_eq!(
                [steps, total, most],
                [
                    n / 2,
                    n * (n * n / 4),
                    if n.is_multiple_of(2) {
                        (n * n).div_ceil(8)
                    } else {
                        n * n / 8
                    }
                ]
            );
        } else {
            assert_eq!(
                [steps, total, most],
                [n - 1, n * (n * n - 1) / 3, (n / 2) * n.div_ceil(2)]
            );
        }
        for root in 0..n as usize {
            let farthest = if ring {
                n / 2
            } else {
                (root as u64).max(n - 1 - root as u64)
            };
            for collective in [Collective::Gather { root }, Collective::Scatter { root }] {
                let [steps, _, most] = canonical(&collective);
                assert_eq!([steps, most], [farthest, farthest], "{collective} {n}");
            }
        }
        for by in 1..n {
            let near = by.min(n - by);
            let [steps, total, most] = canonical(&Collective::Shift { by: by as isize });
            assert_eq!(
                canonical(&Collective::Shift {
                    by: by as isize - n as isize
                }),
                [steps, total, most]
            );
            if !ring {
                assert_eq!([steps, total, most], [1, 2 * by * (n - by), near]);
            } else if 2 * by == n {
                assert_eq!([steps, total, most], [1, n * near, n.div_ceil(4)]);
            } else {
                assert_eq!([steps, total, most], [1, n * near, near]);
            }
        }
        for to in 1..n {
            let distance = if ring { to.min(n - to) } else { to };
            let message = Collective::PointToPoint {
                from: 0,
                to: to as usize,
            };
            assert_eq!(canonical(&message), [1, distance, 1]);
        }
        assert_eq!(canonical(&Collective::Barrier)[0], far);
    }
}

#[test]
fn the_plain_ring_is_the_textbooks() {
    for n in 2..=16u64 {
        let ring = line(n as usize, Topology::Ring);
        assert_eq!(
            counted(&SUM, &ring, Algorithm::Ring),
            [2 * (n - 1), 2 * n * (n - 1), 2 * (n - 1)]
        );
        let one_way = [n - 1, n * (n - 1), n - 1];
        assert_eq!(counted(&Collective::AllGather, &ring, Algorithm::Ring), one_way);
        assert_eq!(counted(&Collective::ReduceScatter, &ring, Algorithm::Ring), one_way);
        let levels = u64::from(n.next_power_of_two().trailing_zeros());
        assert_eq!(counted(&SUM, &ring, Algorithm::Tree)[0], 2 * levels);
        assert_eq!(counted(&SUM, &ring, Algorithm::Naive)[1], n * (n * n / 4));
    }
}

#[test]
fn sums_match_their_own_closed_form() {
    for (n, fabric, ring) in lines() {
        if !ring && n.is_power_of_two() {
            // Written with ones in binary numbers, as the documentation says.
            let at = |gap: u64, gathers: u64| {
                let (n, behind) = (n as u64, gap + 1);
                let ahead = (n - behind) * u64::from(behind.count_ones()) + gathers * behind;
                let back = behind * u64::from((n - behind).count_ones()) + gathers * (n - behind);
                [ahead, back]
            };
            for (collective, gathers) in [(Collective::ReduceScatter, 0), (SUM, 1)] {
                let loads: Vec<u64> = (0..n as u64 - 1).flat_map(|gap| at(gap, gathers)).collect();
                let [_, total, most] = counted(&collective, &fabric, Algorithm::Canonical);
                assert_eq!(total, loads.iter().sum::<u64>());
                assert_eq!(Some(&most), loads.iter().max());
            }
        }
        // Never more than a direct exchange, never less than the plain sum, in which everything is combined.
        let [steps, total, most] = counted(&SUM, &fabric, Algorithm::Canonical);
        let [plain_steps, plain_total, plain_most] = counted(&MAX, &fabric, Algorithm::Canonical);
        let exchange = counted(&Collective::AllToAll, &fabric, Algorithm::Canonical);
        let gather = counted(&Collective::AllGather, &fabric, Algorithm::Canonical);
        assert_eq!(steps, plain_steps);
        assert!(plain_total <= total && total <= exchange[1] + gather[1], "{n}");
        assert!(plain_most <= most && most <= exchange[2] + gather[2] + 1, "{n} {most}");
        let four = n <= 2 || (n == 4 && ring);
        assert!(!four || most == plain_most, "{n}");
    }
    let ring_of_eight = counted(&SUM, &line(8, Topology::Ring), Algorithm::Canonical);
    assert_eq!(ring_of_eight, [8, 132, 9]);
}

#[test]
fn the_forms_printed_are_the_counts() {
    for (n, fabric, _) in lines() {
        let mut collectives = vec![Collective::AllGather, Collective::ReduceScatter, SUM, MAX];
        collectives.extend([
            Collective::AllReduce(Reduction::Mean),
            Collective::AllBroadcast,
            Collective::AllToAll,
        ]);
        for root in 0..n {
            collectives.extend([Collective::Broadcast { root }, Collective::Gather { root }]);
            collectives.extend([
                Collective::Scatter { root },
                Collective::PointToPoint { from: 0, to: root },
            ]);
            collectives.push(Collective::Shift { by: root as isize - 3 });
        }
        for collective in collectives {
            let forms = ClosedForm::of(&collective, &fabric).expect("a line has one");
            let values = [forms.steps.value, forms.chunks.value, forms.busiest.value];
            assert_eq!(
                values,
                counted(&collective, &fabric, Algorithm::Canonical),
                "{collective} {}",
                fabric.describe()
            );
        }
        assert_eq!(ClosedForm::of(&Collective::Barrier, &fabric), None);
    }
}

#[test]
fn grids_go_by_dimension() {
    for (rows, cols) in [(2, 2), (2, 4), (4, 4), (3, 5), (8, 32)] {
        for topology in [Topology::Ring, Topology::Linear] {
            let grid = Fabric::grid([rows, cols], [topology, topology]).expect("a valid group");
            let row = |collective: &Collective| counted(collective, &line(cols, topology), Algorithm::Canonical);
            let column = |collective: &Collective| counted(collective, &line(rows, topology), Algorithm::Canonical);
            let (r, c) = (rows as u64, cols as u64);
            for collective in [Collective::AllGather, MAX] {
                let [steps, total, most] = counted(&collective, &grid, Algorithm::Canonical);
                let (along, down) = (row(&collective), column(&collective));
                assert_eq!(steps, along[0] + down[0]);
                assert_eq!(total, r * r * along[1] + c * down[1], "{collective} {rows}×{cols}");
                assert_eq!(most, (r * along[2]).max(down[2]));
            }
            let own = Count::of(&SUM, &grid, Algorithm::Canonical).expect("countable").own;
            assert_eq!(own, 2 * (r * c - 1));
        }
    }
}

#[test]
fn each_device_sends_its_own_share_and_links_split_it() {
    for (n, fabric, _) in lines() {
        let bytes = 12 * n as u64;
        for num_links in 1..=4 {
            let schedule = Schedule::new(SUM, &fabric, Algorithm::Canonical, bytes, num_links).expect("a schedule");
            for device in 0..n {
                assert_eq!(schedule.own_bytes(device), 2 * (n as u64 - 1) * bytes / n as u64);
            }
            let count = Count::of(&SUM, &fabric, Algorithm::Canonical).expect("countable");
            let traffic = traffic(&SUM, &fabric, Algorithm::Canonical, bytes, num_links).expect("countable");
            assert_eq!(traffic.busiest_link_bytes, count.busiest * 12 / num_links as u64);
            assert_eq!(traffic.bytes, count.chunks * 12);
            assert_eq!(traffic.own_bytes, 2 * (n as u64 - 1) * 12);
        }
    }
}

#[test]
fn groups_of_thousands_are_counted() {
    for topology in [Topology::Ring, Topology::Linear] {
        let fabric = line(4096, topology);
        for collective in [
            SUM,
            MAX,
            Collective::AllGather,
            Collective::AllToAll,
            Collective::Shift { by: 1000 },
        ] {
            let traffic = traffic(&collective, &fabric, Algorithm::Canonical, 1 << 20, 1).expect("countable");
            assert!(traffic.bytes > 0);
        }
    }
    let grid = Fabric::grid([64, 64], [Topology::Ring, Topology::Ring]).expect("a valid group");
    let links = link_bytes(&SUM, &grid, Algorithm::Canonical, 1 << 20).expect("countable");
    assert_eq!(links.len(), 4 * 4096);
    let refused = Schedule::new(SUM, &grid, Algorithm::Canonical, 1, 1).expect_err("too large");
    assert!(
        refused.to_string().contains("up to 64 devices, and the group has 4096"),
        "{refused}"
    );
    // The largest payload does not overflow.
    let traffic = traffic(&SUM, &grid, Algorithm::Naive, u64::MAX, 1).expect("countable");
    assert_eq!(traffic.bytes, u64::MAX);
}

#[test]
fn time_is_latency_by_step_and_bytes_at_the_busiest_link() {
    let model = LinkModel {
        bandwidth: 1000.0,
        latency: 0.5,
    };
    let time = |collective, topology| {
        let schedule =
            Schedule::new(collective, &line(4, topology), Algorithm::Canonical, 4000, 2).expect("a schedule");
        schedule.time(&model)
    };
    // Chunks of 1000 bytes, half of it on each of two links.
    assert_eq!(time(Collective::AllGather, Topology::Ring), 2.0 * (0.5 + 0.5));
    assert_eq!(time(Collective::AllGather, Topology::Linear), 3.0 * (0.5 + 0.5));
    assert_eq!(
        time(Collective::PointToPoint { from: 0, to: 3 }, Topology::Linear),
        3.0 * 0.5 + 2.0
    );
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let ring = line(4, Topology::Ring);
    let said = |collective, algorithm| {
        let refused = Schedule::new(collective, &ring, algorithm, 64, 1)
            .expect_err("refused")
            .to_string();
        assert_eq!(
            traffic(&collective, &ring, algorithm, 64, 1)
                .expect_err("refused")
                .to_string(),
            refused
        );
        refused
    };
    assert_eq!(
        said(Collective::AllToAll, Algorithm::Tree),
        "all-to-all has no tree algorithm; it has canonical"
    );
    assert_eq!(
        said(Collective::Broadcast { root: 4 }, Algorithm::Canonical),
        "broadcast names device 4 of a group whose devices are 0 to 3; give one of those"
    );
    assert!(said(Collective::PointToPoint { from: 0, to: 9 }, Algorithm::Canonical).contains("device 9"));
    assert_eq!(
        check_links(3, 2).expect_err("too many").to_string(),
        "num_links is 3, but 2 channels join neighbouring devices; give 1 to 2"
    );
    assert!(check_links(0, 2).is_err() && check_links(1, 1).is_ok() && check_links(2, 2).is_ok());
    assert!(Schedule::new(SUM, &ring, Algorithm::Canonical, 64, 0).is_err());
    assert!(Fabric::line(0, Topology::Ring).is_err() && Fabric::line(1 << 20, Topology::Ring).is_err());
}

#[test]
fn a_ring_without_its_closing_link_is_a_line_and_says_so() {
    assert_eq!(topology_for(None, true), (Topology::Ring, None));
    assert_eq!(topology_for(None, false), (Topology::Linear, None));
    assert_eq!(topology_for(Some(Topology::Linear), true), (Topology::Linear, None));
    assert_eq!(topology_for(Some(Topology::Ring), true), (Topology::Ring, None));
    let (topology, note) = topology_for(Some(Topology::Ring), false);
    assert_eq!(topology, Topology::Linear);
    assert!(note.expect("a note").contains("no link joins the ends"));
}

fn question(collective: Collective, fabric: Fabric) -> Question {
    Question {
        collective,
        algorithm: Algorithm::Canonical,
        fabric,
        bytes: 4 << 20,
        num_links: 1,
        model: None,
    }
}

#[test]
fn explain_tells_the_steps() {
    let text = explain(&question(SUM, line(4, Topology::Ring))).expect("a text");
    let steps = "\
step 1 of 4: reduce
  device  sends       then holds
       0  c2[0] to 1  c3[0–1]
       1  c3[1] to 0  c2[0–1]
       2  c0[2] to 3  c1[2–3]
       3  c1[3] to 2  c0[2–3]

step 2 of 4: reduce
  device  sends                     then holds
       0  c1[0] to 1; c3[0–1] to 3  c0
       1  c0[1] to 0; c2[0–1] to 2  c1
       2  c1[2–3] to 1; c3[2] to 3  c2
       3  c0[2–3] to 0; c2[3] to 2  c3
";
    assert!(text.contains(steps), "{text}");
    assert!(
        text.contains("own data             6 MiB a device, 2(n−1)/n = 6/4 of the payload"),
        "{text}"
    );
    assert!(text.contains("at the busiest link  3 MiB"), "{text}");
    let mut timed = question(SUM, line(4, Topology::Ring));
    timed.algorithm = Algorithm::Ring;
    timed.model = Some(LinkModel {
        bandwidth: 25e9,
        latency: 1e-6,
    });
    let text = explain(&timed).expect("a text");
    assert!(text.contains("does not add in the canonical order"), "{text}");
    assert!(text.contains("258 µs"), "{text}");
}

#[test]
fn explain_has_a_text_for_everything() {
    for (n, fabric, _) in lines().chain([
        (1, line(1, Topology::Ring), false),
        (100, line(100, Topology::Ring), true),
    ]) {
        let shift = Collective::Shift { by: 1 };
        let rooted = [
            Collective::Gather { root: 0 },
            Collective::Scatter { root: 0 },
            Collective::Broadcast { root: 0 },
        ];
        let others = [
            Collective::ReduceScatter,
            Collective::AllGather,
            Collective::AllToAll,
            Collective::AllBroadcast,
        ];
        let message = Collective::PointToPoint { from: 0, to: n - 1 };
        let all = [SUM, MAX, shift, message, Collective::Barrier]
            .into_iter()
            .chain(rooted)
            .chain(others);
        for collective in all {
            for algorithm in collective.algorithms() {
                let asked = Question {
                    algorithm: *algorithm,
                    ..question(collective, fabric.clone())
                };
                let text = explain(&asked).expect("a text");
                let steps = text.lines().filter(|line| line.starts_with("step ")).count() as u64;
                let expected = asked.traffic(*algorithm).expect("countable").steps;
                assert_eq!(steps, if n > 16 { 0 } else { expected }, "{text}");
                assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
            }
        }
    }
    let alone = explain(&question(SUM, line(1, Topology::Ring))).expect("a text");
    assert_eq!(
        alone,
        "all-reduce (sum), canonical, on a line of 1 device\nOne device: nothing to do.\n"
    );
}
