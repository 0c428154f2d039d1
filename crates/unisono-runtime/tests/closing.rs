//! Closed meshes: what was left in them is told, and every later use is an error in words.

mod common;

use common::{Mix, open, open_with};
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::{Backend, Kind, Leak, Options, Runtime, RuntimeError};

fn submesh(runtime: &Runtime, shape: &[usize], offset: &[usize]) -> Runtime {
    let view = runtime.view().submesh(shape, Some(offset)).expect("a box inside");
    runtime.on_view(view).expect("of this system")
}

fn text<T: std::fmt::Debug>(result: Result<T, RuntimeError>) -> String {
    result.expect_err("the mesh is closed").to_string()
}

/// Every use of `runtime` says that `mesh` has been closed.
fn all_uses_are_refused(runtime: &Runtime, held: &unisono_runtime::Buffer, mesh: &str) {
    let closed = format!("the mesh {mesh} has been closed; open it again");
    let r = held.r();
    assert_eq!(text(runtime.alloc(1, Kind::Activation)), closed);
    assert_eq!(text(runtime.issue(Fill { to: r, value: 1.0 })), closed);
    assert_eq!(text(runtime.issue_transfer(Fill { to: r, value: 1.0 })), closed);
    assert_eq!(text(runtime.upload(r, vec![1.0f32; r.len])), closed);
    assert_eq!(text(runtime.read_later(r, 0)), closed);
    assert_eq!(text(runtime.read_f32(r, 0)), closed);
    assert_eq!(text(runtime.read_u32(r, 0)), closed);
    assert_eq!(text(runtime.read_bytes(r, 0)), closed);
    assert_eq!(text(runtime.begin_capture()), closed);
    assert_eq!(text(runtime.sync()), closed);
    assert_eq!(text(runtime.on_view(runtime.view().clone())), closed);
    assert_eq!(text(runtime.close()), closed);
}

#[test]
fn what_was_left_is_told_by_kind() {
    for backend in [Backend::Cpu, Backend::Null] {
        let options = Options {
            backend,
            ..Options::default()
        };
        let runtime = open_with(&[("dp", 2)], 2, options);
        assert_eq!(open_with(&[], 1, Options::default()).close(), Ok(vec![]));
        let _weights = [1, 2].map(|len| runtime.alloc(len, Kind::Parameter).expect("memory"));
        let _batch = runtime.alloc(1000, Kind::Data).expect("memory");
        drop(runtime.alloc(77, Kind::Gradient));
        let half = submesh(&runtime, &[1], &[1]);
        let _cache = half.alloc(10, Kind::Cache).expect("memory");
        let leak = |kind, buffers, bytes| Leak { kind, buffers, bytes };
        assert_eq!(half.close(), Ok(vec![leak(Kind::Cache, 1, 40)]));
        assert_eq!(
            runtime.close(),
            Ok(vec![
                leak(Kind::Parameter, 2, 12),
                leak(Kind::Data, 1, 4000),
                leak(Kind::Cache, 1, 40)
            ])
        );
    }
}

#[test]
fn after_closing_the_whole_every_use_is_refused_on_it_and_on_what_was_cut_out() {
    for workers in [1, 2, 4] {
        let runtime = open(&[("dp", 4)], workers);
        let half = submesh(&runtime, &[2], &[1]);
        let (a, b) = (runtime.alloc(10, Kind::Data), half.alloc(10, Kind::Data));
        let (a, b) = (a.expect("memory"), b.expect("memory"));
        // Work is waiting when it is closed.
        for salt in 0..50 {
            let mut op = Mix::new(b.r(), &[], salt);
            op.delay = 20;
            half.issue(op.command()).expect("no failure");
        }
        let pending = half.read_later(b.r(), 0).expect("no failure");
        runtime.begin_capture().expect("none is on");
        runtime.issue(Mix::new(a.r(), &[], 1).command()).expect("no failure");
        let trace = runtime.end_capture().expect("all is there");
        assert_eq!(runtime.close().map(|leaks| leaks.len()), Ok(1));
        all_uses_are_refused(&runtime, &a, "4 devices (dp 4)");
        all_uses_are_refused(&runtime.clone(), &a, "4 devices (dp 4)");
        all_uses_are_refused(&half, &b, "4 devices (dp 4)");
        let closed = "the mesh 4 devices (dp 4) has been closed; open it again";
        assert_eq!(text(trace.execute()), closed);
        assert_eq!(text(trace.execute_and_wait()), closed);
        assert_eq!(text(runtime.end_capture()), closed);
        assert!(pending.is_ready());
        assert_eq!(text(pending.wait()), closed);
        assert_eq!(format!("{trace:?}"), "Trace(1 commands)");
        trace.release();
        runtime.set_phase(unisono_runtime::Phase::Forward);
        assert!(runtime.report().total().commands >= 51);
        // What is left goes in any order.
        drop((a, trace, runtime, b, half));
    }
}

#[test]
fn closing_inside_a_capture_ends_it() {
    let runtime = open(&[("dp", 2)], 2);
    let half = submesh(&runtime, &[1], &[0]);
    runtime.begin_capture().expect("none is on");
    let a = half.alloc(10, Kind::Activation).expect("memory");
    half.issue(Mix::new(a.r(), &[], 1).command()).expect("no failure");
    assert_eq!(half.close().map(|leaks| leaks.len()), Ok(1));
    assert_eq!(
        text(half.issue(Mix::new(a.r(), &[], 1).command())),
        "the mesh 1 device has been closed; open it again"
    );
    // The capture is the whole mesh's, and goes on; a command on what is closed cannot be replayed.
    let trace = runtime.end_capture().expect("all is there");
    assert_eq!(
        text(trace.execute()),
        "the mesh 1 device has been closed; open it again"
    );
    drop(a);
    runtime.begin_capture().expect("none is on");
    let _b = runtime.alloc(10, Kind::Activation).expect("memory");
    assert_eq!(runtime.close().map(|leaks| leaks.len()), Ok(1));
    assert_eq!(
        text(runtime.end_capture()),
        "the mesh 2 devices (dp 2) has been closed; open it again"
    );
}

#[test]
fn closing_a_submesh_leaves_the_rest_working() {
    for workers in [1, 2, 4] {
        let runtime = open(&[("rows", 2), ("columns", 2)], workers);
        let row = submesh(&runtime, &[1, 2], &[1, 0]);
        let other = submesh(&runtime, &[1, 2], &[1, 0]);
        let a = row.alloc(100, Kind::Activation).expect("memory");
        row.issue(Mix::new(a.r(), &[], 5).command()).expect("no failure");
        let early = row.read_later(a.r(), 1).expect("no failure");
        assert_eq!(row.close().map(|leaks| leaks.len()), Ok(1));
        all_uses_are_refused(&row, &a, "1×2 = 2 devices (rows 1, columns 2)");
        // What was asked for before comes, and the memory lives on for other handles on the same devices.
        let values = early.wait_u32().expect("no failure");
        assert_eq!(values, other.read_u32(a.r(), 1).expect("no failure"));
        let b = runtime.alloc(100, Kind::Activation).expect("memory");
        runtime.issue(Mix::new(b.r(), &[], 5).command()).expect("no failure");
        assert_eq!(values, runtime.read_u32(b.r(), 3).expect("no failure"));
        drop(a);
        assert_eq!(runtime.close().map(|leaks| leaks.len()), Ok(1));
    }
}
