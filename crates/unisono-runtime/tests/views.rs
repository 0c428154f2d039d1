//! Programs on submeshes and other views of one system give what a sequential interpreter gives, share memory as they should and
//! run at the same time.

mod common;

use common::program::{Program, Style, some_views};
use common::{Draw, Mix, open, open_with};
use proptest::prelude::*;
use unisono_runtime::{Kind, Options};

const MESHES: [&[(&str, usize)]; 5] = [
    &[("dp", 2)],
    &[("dp", 2), ("tp", 2)],
    &[("dp", 8)],
    &[("dp", 2), ("pp", 3), ("tp", 2)],
    &[("rows", 4), ("columns", 4)],
];

fn run(seed: u64, axes: &[(&str, usize)], workers: usize, steps: usize, depth: usize, slow: bool) {
    let options = Options {
        queue_depth: depth,
        ..Options::default()
    };
    let runtime = open_with(axes, workers, options);
    let mut draw = Draw(seed);
    let count = 2 + draw.below(6);
    let views = some_views(&runtime, &mut draw, count);
    let mut program = Program::new(views, draw, Style { slow, traces: false });
    for _ in 0..steps {
        program.step();
    }
    program.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_over_views_are_as_in_order(
        seed: u64, mesh in 0..MESHES.len(), workers in 1..5usize, depth in prop::sample::select(vec![2usize, 8, 1024]), slow: bool
    ) {
        run(seed, MESHES[mesh], workers, 120, depth, slow);
    }
}

/// Run by hand, for as long as one likes.
#[test]
#[ignore = "runs for a minute"]
fn stress() {
    let start = std::time::Instant::now();
    let mut seed = 5000;
    while start.elapsed().as_secs() < 60 {
        seed += 1;
        let index = seed as usize;
        let depth = [2, 4, 64, 1024][index / 3 % 4];
        run(seed, MESHES[index % MESHES.len()], 1 + index / 5 % 6, 250, depth, index.is_multiple_of(2));
    }
}
