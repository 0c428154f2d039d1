//! Captured parts of programs: replays give what issuing gives, whatever happens between them.

mod common;

use common::program::{Program, Style, some_views};
use common::{Draw, Mix, mix, open_with};
use proptest::prelude::*;
use unisono_runtime::{Kind, Options};

const MESHES: [&[(&str, usize)]; 4] = [
    &[],
    &[("dp", 2)],
    &[("dp", 2), ("tp", 2)],
    &[("dp", 2), ("pp", 3), ("tp", 2)],
];

fn run(seed: u64, axes: &[(&str, usize)], workers: usize, steps: usize, depth: usize, slow: bool) -> usize {
    let options = Options {
        queue_depth: depth,
        ..Options::default()
    };
    let runtime = open_with(axes, workers, options);
    let mut draw = Draw(seed);
    let count = 1 + draw.below(5);
    let views = some_views(&runtime, &mut draw, count);
    let mut program = Program::new(views, draw, Style { slow, traces: true });
    for _ in 0..steps {
        program.step();
    }
    program.finish();
    program.executed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_with_traces_are_as_in_order(
        seed: u64, mesh in 0..MESHES.len(), workers in 1..5usize, depth in prop::sample::select(vec![2usize, 8, 1024]), slow: bool
    ) {
        run(seed, MESHES[mesh], workers, 120, depth, slow);
    }
}

#[test]
fn the_random_programs_do_execute_traces() {
    assert!((0..8).map(|seed| run(seed, MESHES[1], 2, 150, 64, true)).sum::<usize>() > 40);
}

/// Run by hand, for as long as one likes.
#[test]
#[ignore = "runs for a minute"]
fn stress() {
    let start = std::time::Instant::now();
    let mut seed = 9000;
    while start.elapsed().as_secs() < 60 {
        seed += 1;
        let index = seed as usize;
        let depth = [2, 4, 64, 1024][index / 3 % 4];
        run(
            seed,
            MESHES[index % MESHES.len()],
            1 + index / 5 % 6,
            250,
            depth,
            index.is_multiple_of(2),
        );
    }
}

/// A result that a slow transfer still reads when the program lets go of it: the next replay must not write its memory before.
#[test]
fn a_replay_waits_for_transfers_that_read_a_dropped_result() {
    for workers in [2, 3] {
        let runtime = open_with(&[("dp", 2)], workers, Options::default());
        let x = runtime.alloc(100, Kind::Data).expect("memory");
        let z = runtime.alloc(100, Kind::Data).expect("memory");
        runtime.upload(x.r(), vec![1u32; 100]).expect("lengths agree");
        runtime.begin_capture().expect("none is on");
        let y = runtime.alloc(100, Kind::Activation).expect("memory");
        runtime
            .issue(Mix::new(y.r(), &[x.r()], 7).command())
            .expect("no failure");
        let trace = runtime.end_capture().expect("all is there");
        trace.execute().expect("all is there");
        let mut slow = Mix::new(z.r(), &[y.r()], 9);
        slow.delay = 20_000;
        runtime.issue_transfer(slow.command()).expect("no failure");
        drop(y);
        // Not from the host: that would come behind the slow command in its queue.
        runtime.issue(Mix::new(x.r(), &[], 2).command()).expect("no failure");
        trace.execute().expect("all is there");
        let of = |salt: u32, i: u32, x: u32| mix(mix(salt, i), x);
        let expected: Vec<u32> = (0..100).map(|i| of(9, i, of(7, i, 1))).collect();
        for device in 0..2 {
            assert_eq!(
                runtime.read_u32(z.r(), device).expect("no failure"),
                expected,
                "device {device}"
            );
        }
    }
}
