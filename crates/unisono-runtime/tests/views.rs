//! Programs on submeshes and other views of one system give what a sequential interpreter gives, share memory as they should and
//! run at the same time.

mod common;

use common::cuts::some_views;
use common::program::{Program, Style};
use common::{Draw, Mix, for_a_minute, open, open_with};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;
use unisono_runtime::{BufferRef, Command, Cost, Kind, Op, Options, Place, Runtime};

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
    for_a_minute(5000, &MESHES, |seed, axes, workers, depth, slow| {
        run(seed, axes, workers, 250, depth, slow);
    });
}

/// Blocks of the whole mesh that come and go beside those of submeshes do not use the arena up.
#[test]
fn holes_that_differ_between_submeshes_are_found() {
    let limit = 4 << 20;
    let options = Options {
        memory_limit: Some(limit),
        ..Options::default()
    };
    let all = open_with(&[("dp", 2)], 1, options);
    let halves: Vec<_> = (0..2)
        .map(|i| {
            all.on_view(all.view().submesh(&[1], Some(&[i])).expect("a box"))
                .expect("of this system")
        })
        .collect();
    let words = limit as usize / 4;
    for (full, low) in [(0, 1), (1, 0)] {
        drop(halves[full].alloc(words, Kind::Activation).expect("everything"));
        let _low = halves[low].alloc(words / 4, Kind::Activation).expect("a quarter");
        for round in 0..100 {
            let half = all.alloc(words / 2, Kind::Activation);
            assert!(half.is_ok(), "round {round}: {half:?}");
        }
    }
}

/// On a device outside the mesh of a buffer, its memory may be someone else's.
#[test]
fn a_buffer_of_a_submesh_is_not_for_more_devices_than_that() {
    let all = open(&[("dp", 4)], 1);
    let cut = |size: usize, at: usize| {
        let view = all.view().submesh(&[size], Some(&[at])).expect("a box inside");
        all.on_view(view).expect("of this system")
    };
    let (left, right, part) = (cut(2, 0), cut(2, 2), cut(1, 1));
    let a = left.alloc(16, Kind::Activation).expect("memory");
    let b = right.alloc(16, Kind::Activation).expect("memory");
    // Disjoint submeshes share no memory, so that both may use the same addresses.
    assert_eq!(a.offset, b.offset);
    let told = |mesh: &str| {
        format!(
            "mix on {mesh} uses {:?}, which belongs to 2 devices (dp 2) on devices [0, 1] and not to all of these devices; issue it \
             on that mesh or on one cut out of it",
            a.r()
        )
    };
    let write = |on: &Runtime| {
        on.issue(Mix::new(a.r(), &[], 1).command())
            .map_err(|error| error.to_string())
    };
    assert_eq!(write(&all), Err(told("4 devices (dp 4) on devices [0, 1, 2, 3]")));
    assert_eq!(write(&right), Err(told("2 devices (dp 2) on devices [2, 3]")));
    assert_eq!(write(&part), Ok(()));
    assert!(right.read_u32(a.r(), 0).is_err() && all.upload(a.r(), vec![0u32; 16]).is_err());
    assert_eq!(part.read_u32(a.r(), 0), left.read_u32(a.r(), 1));
}

#[test]
fn limits_count_on_each_device() {
    let options = Options {
        memory_limit: Some(4096),
        ..Options::null()
    };
    let all = open_with(&[("dp", 2)], 1, options);
    let half = |at| {
        all.on_view(all.view().submesh(&[1], Some(&[at])).expect("a box"))
            .expect("of this system")
    };
    let (left, right) = (half(0), half(1));
    let _a = left.alloc(768, Kind::Activation).expect("three quarters of the left");
    let _b = right.alloc(768, Kind::Activation).expect("three quarters of the right");
    let _c = all.alloc(128, Kind::Activation).expect("an eighth of both");
    assert_eq!(
        all.alloc(129, Kind::Data).expect_err("no room").to_string(),
        "a device would need 4160 bytes, 4096 are allowed: 576 more bytes for data do not fit beside the 3584 in use"
    );
    assert_eq!(all.report().memory.current, 3584);
}

/// Every tile waits until as many tiles run at the same time as were announced.
#[derive(Debug)]
struct Meet {
    out: BufferRef,
    expected: usize,
    here: Arc<AtomicUsize>,
}

impl Op for Meet {
    fn name(&self) -> &'static str {
        "meet"
    }

    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.out);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
        self.here.fetch_add(1, Ordering::SeqCst);
        // A machine with other work may take its time; that the others never come is what fails.
        let start = Instant::now();
        while self.here.load(Ordering::SeqCst) < self.expected {
            if start.elapsed() > Duration::from_secs(20) {
                return;
            }
            std::thread::yield_now();
        }
        place.write(self.out, 0, 1)[0] = 1.0;
    }
}

#[test]
fn submeshes_run_at_the_same_time() {
    let whole = open(&[("rows", 2), ("columns", 2)], 2);
    let halves: Vec<Runtime> = whole
        .view()
        .submeshes(&[2, 1])
        .expect("they tile")
        .into_iter()
        // One device of each half, so that two workers can be in both.
        .map(|half| half.submesh(&[1, 1], None).expect("inside"))
        .map(|view| whole.on_view(view).expect("of this system"))
        .collect();
    let here = Arc::new(AtomicUsize::new(0));
    let buffers: Vec<_> = halves
        .iter()
        .map(|half| half.alloc(1, Kind::Data).expect("memory"))
        .collect();
    for (half, buffer) in halves.iter().zip(&buffers) {
        half.issue(Command::Custom(Arc::new(Meet {
            out: buffer.r(),
            expected: 2,
            here: here.clone(),
        })))
        .expect("no failure");
    }
    for (half, buffer) in halves.iter().zip(&buffers) {
        assert_eq!(half.read_f32(buffer.r(), 0).expect("no failure"), [1.0]);
    }
}
