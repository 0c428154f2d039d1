//! Random programs give what a sequential interpreter gives: on every mesh, with every number of workers, whatever the timing.

mod common;

use common::program::{Program, Style};
use common::{Draw, Mix, for_a_minute, open_with};
use proptest::prelude::*;
use unisono_runtime::{Kind, Options};

const MESHES: [&[(&str, usize)]; 5] = [
    &[],
    &[("dp", 2)],
    &[("dp", 2), ("tp", 2)],
    &[("dp", 8)],
    &[("dp", 2), ("pp", 3), ("tp", 2)],
];

fn run(seed: u64, axes: &[(&str, usize)], workers: usize, steps: usize, depth: usize, slow: bool) {
    let options = Options {
        queue_depth: depth,
        ..Options::default()
    };
    let runtime = open_with(axes, workers, options);
    let style = Style { slow, traces: false };
    let mut program = Program::new(vec![runtime], Draw(seed), style);
    for _ in 0..steps {
        program.step();
    }
    program.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_are_as_in_order(
        seed: u64, mesh in 0..MESHES.len(), workers in 1..5usize, depth in prop::sample::select(vec![2usize, 8, 1024]), slow: bool
    ) {
        run(seed, MESHES[mesh], workers, 150, depth, slow);
    }
}

#[test]
fn every_mesh_with_every_number_of_workers() {
    for axes in MESHES {
        for workers in [1, 2, 3, 4, 8] {
            run(workers as u64 * 77, axes, workers, 120, 64, true);
        }
    }
}

/// Run by hand, for as long as one likes.
#[test]
#[ignore = "runs for a minute"]
fn stress() {
    for_a_minute(1000, &MESHES, |seed, axes, workers, depth, slow| {
        run(seed, axes, workers, 300, depth, slow);
    });
}

#[test]
fn the_stream_does_not_depend_on_workers_or_backend() {
    let program = |options: Options, workers: usize| {
        let runtime = open_with(&[("dp", 2)], workers, options);
        let a = runtime.alloc(100, Kind::Parameter).expect("memory");
        for salt in 0..50 {
            let b = runtime.alloc(1000 + salt, Kind::Activation).expect("memory");
            runtime.issue(Mix::new(b.r(), &[], 1).command()).expect("no failure");
            runtime
                .issue(Mix::new(a.r(), &[b.part(0, 100)], 2).command())
                .expect("no failure");
        }
        runtime.sync().expect("no failure");
        (runtime.stream_hash(), runtime.report().memory)
    };
    let reference = program(Options::null(), 1);
    for workers in [1, 2, 4] {
        assert_eq!(program(Options::default(), workers), reference);
    }
    assert_ne!(reference.0, 0);
}
