//! Captured parts of programs: replays give what issuing gives, whatever happens between them.

mod common;

use common::cuts::some_views;
use common::program::{Program, Style};
use common::{Draw, Mix, for_a_minute, mix, open_with};
use proptest::prelude::*;
use unisono_runtime::{Backend, Group, Kind, Options, Phase, Runtime, RuntimeError};

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
    for_a_minute(9000, &MESHES, |seed, axes, workers, depth, slow| {
        run(seed, axes, workers, 250, depth, slow);
    });
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

fn text<T: std::fmt::Debug>(result: Result<T, RuntimeError>) -> String {
    result.expect_err("it cannot be").to_string()
}

/// Everything that a capture refuses says so, and the capture goes on.
#[test]
fn what_cannot_be_captured_is_told_in_words() {
    let runtime = open_with(&[("dp", 2)], 2, Options::default());
    let x = runtime.alloc(4, Kind::Data).expect("memory");
    runtime.upload(x.r(), vec![3u32; 4]).expect("lengths agree");
    assert_eq!(
        text(runtime.end_capture()),
        "a capture was ended that was never begun; call begin_capture() first"
    );
    runtime.begin_capture().expect("none is on");
    assert_eq!(
        text(runtime.begin_capture()),
        "a capture was begun inside another; end that one first with end_capture()"
    );
    assert_eq!(
        text(runtime.upload(x.r(), vec![1u32; 4])),
        "values were copied to the devices inside a capture, which a replay could not repeat; refresh inputs before execute()"
    );
    let read = "values were read inside a capture, which a replay could not repeat; read results after execute()";
    assert_eq!(text(runtime.read_later(x.r(), 0)), read);
    assert_eq!(text(runtime.read_u32(x.r(), 1)), read);
    assert_eq!(text(runtime.read_bytes(x.r(), 1)), read);
    assert_eq!(
        text(runtime.alloc(1, Kind::Parameter)),
        "memory for parameters was asked for inside a capture; make such tensors before begin_capture(). Only results of \
         commands belong to a trace"
    );
    let y = runtime.alloc(4, Kind::Activation).expect("memory");
    runtime
        .issue(Mix::new(y.r(), &[x.r()], 5).command())
        .expect("no failure");
    let trace = runtime.end_capture().expect("all is there");
    runtime.begin_capture().expect("none is on");
    assert_eq!(
        text(trace.execute()),
        "a trace was executed inside a capture; end the capture first"
    );
    assert_eq!(runtime.end_capture().expect("nothing in it").num_commands(), 0);
    trace.execute().expect("all is there");
    let expected: Vec<u32> = (0..4).map(|i| mix(mix(5, i), 3)).collect();
    assert_eq!(runtime.read_u32(y.r(), 1).expect("no failure"), expected);
    trace.release();
    trace.release();
    assert_eq!(
        text(trace.execute()),
        "a trace was executed after its release; capture it anew"
    );
    // What is still held of a released trace is memory like any other.
    let fresh = runtime.alloc(4, Kind::Activation).expect("memory");
    runtime
        .issue(Mix::new(fresh.r(), &[], 1).command())
        .expect("no failure");
    assert_eq!(runtime.read_u32(y.r(), 0).expect("no failure"), expected);
}

#[test]
fn a_freed_buffer_is_told_when_the_capture_ends_and_when_the_trace_is_executed() {
    let runtime = open_with(&[("dp", 2)], 1, Options::default());
    let told = |buffer: unisono_runtime::BufferRef| {
        format!(
            "the command mix of a trace uses {buffer:?}, which has been freed; keep the tensor for as long as the trace is executed"
        )
    };
    let capture = |x: unisono_runtime::BufferRef| {
        runtime.begin_capture().expect("none is on");
        let y = runtime.alloc(8, Kind::Activation).expect("memory");
        runtime.issue(Mix::new(y.r(), &[x], 5).command()).expect("no failure");
        y
    };
    let x = runtime.alloc(8, Kind::Data).expect("memory");
    let r = x.r();
    let y = capture(r);
    drop(x);
    assert_eq!(text(runtime.issue(Mix::new(y.r(), &[r], 5).command())), told(r));
    assert_eq!(text(runtime.end_capture()), told(r));
    let x = runtime.alloc(8, Kind::Data).expect("memory");
    let _z = capture(x.r());
    let trace = runtime.end_capture().expect("all is there");
    let r = x.r();
    drop(x);
    assert_eq!(text(trace.execute()), told(r));
    // The result of the capture that failed is memory like any other.
    runtime.issue(Mix::new(y.r(), &[], 2).command()).expect("no failure");
    assert_eq!(runtime.read_u32(y.r(), 0).expect("no failure")[0], mix(2, 0));
}

/// Replays are booked as the same commands issued one by one.
#[test]
fn a_replay_costs_what_issuing_costs() {
    for backend in [Backend::Null, Backend::Cpu] {
        let options = Options {
            backend,
            ..Options::default()
        };
        let runtime = open_with(&[("dp", 2), ("tp", 2)], 1, options);
        let row = runtime
            .on_view(runtime.view().submesh(&[1, 2], None).expect("a box"))
            .expect("of this system");
        let x = runtime.alloc(100, Kind::Data).expect("memory");
        let body = || {
            runtime.set_phase(Phase::Forward);
            let y = runtime.alloc(100, Kind::Activation).expect("memory");
            let mut op = Mix::new(y.r(), &[x.r()], 1);
            runtime.issue(op.clone().command()).expect("no failure");
            op.group = Some(Group::All);
            row.issue(op.command()).expect("no failure");
            runtime.set_phase(Phase::Backward);
            let z = row.alloc(50, Kind::Activation).expect("memory");
            row.issue(Mix::new(z.r(), &[x.part(0, 50)], 1).command())
                .expect("no failure");
        };
        let booked = |runtime: &Runtime| {
            runtime
                .report()
                .phases
                .map(|p| [p.commands, p.flops, p.bytes, p.link_bytes])
        };
        runtime.reset_report();
        body();
        let once = booked(&runtime);
        assert_eq!(once.iter().map(|phase| phase[0]).sum::<u64>(), 3);
        runtime.begin_capture().expect("none is on");
        body();
        let trace = runtime.end_capture().expect("all is there");
        runtime.reset_report();
        for replays in 1..4 {
            trace.execute().expect("all is there");
            assert_eq!(booked(&runtime), once.map(|phase| phase.map(|figure| replays * figure)));
        }
        let commands: Vec<u64> = trace.by_device().iter().map(|device| device.commands).collect();
        assert_eq!(commands, [3, 3, 1, 1]);
        let held = runtime.report().memory.current;
        drop(trace);
        // x alone is left: 100 words in lines of 16.
        assert!(held > 448, "{held}");
        assert_eq!(runtime.report().memory.current, 448);
    }
}
