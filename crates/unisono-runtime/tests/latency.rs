//! Latencies and overheads; prints figures, asserts nothing. `cargo test --release -p unisono-runtime --test latency -- --ignored
//! --nocapture --test-threads 1`

mod common;

use common::{Mix, burn, open, open_with};
use std::time::{Duration, Instant};
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::{BufferRef, Group, Kind, Options, Runtime};

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 9 / 10])
}

fn round_trip(
    runtime: &Runtime,
    command: impl Fn() -> unisono_runtime::Command,
    pause: Duration,
    rounds: usize,
) -> (f64, f64) {
    median(
        (0..rounds)
            .map(|_| {
                if pause.is_zero() {
                    burn(3);
                } else {
                    std::thread::sleep(pause);
                }
                let start = Instant::now();
                runtime.issue(command()).expect("no failure");
                runtime.sync().expect("no failure");
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect(),
    )
}

#[test]
#[ignore = "prints figures"]
fn latencies() {
    for devices in [1, 8, 32] {
        for workers in [1, 2, 4] {
            let runtime = open(&[("dp", devices)], workers);
            let a = runtime.alloc(1, Kind::Activation).expect("memory").r();
            let keep = runtime.alloc(1, Kind::Activation).expect("memory");
            let a = BufferRef { ..keep.r() }.part(0, a.len);
            let fill = || Fill { to: a, value: 1.0 }.into();
            let reduce = || {
                let mut op = Mix::new(a, &[], 1);
                op.group = Some(Group::All);
                op.command()
            };
            let awake = round_trip(&runtime, fill, Duration::ZERO, 5000);
            let asleep = round_trip(&runtime, fill, Duration::from_millis(1), 300);
            let all = round_trip(&runtime, reduce, Duration::ZERO, 5000);
            println!(
                "{devices} devices, {workers} workers: empty command, awake {:.1} µs (p90 {:.1}), after 1 ms of sleep {:.1} (p90 {:.1}); \
                 4-byte collective, awake {:.1} (p90 {:.1})",
                awake.0, awake.1, asleep.0, asleep.1, all.0, all.1
            );
        }
    }
}

#[test]
#[ignore = "prints figures"]
fn throughput() {
    for devices in [1, 2, 8, 32] {
        for workers in [1, 2, 4] {
            let runtime = open(&[("dp", devices)], workers);
            let a = runtime.alloc(16, Kind::Activation).expect("memory");
            let rounds = 20_000;
            let start = Instant::now();
            for _ in 0..rounds {
                runtime.issue(Fill { to: a.r(), value: 1.0 }).expect("no failure");
            }
            runtime.sync().expect("no failure");
            let each = start.elapsed().as_secs_f64() * 1e9 / rounds as f64;
            println!(
                "{devices} devices, {workers} workers: {each:.0} ns a tiny command, {:.0} ns a device",
                each / devices as f64
            );
        }
    }
}

#[test]
#[ignore = "prints figures"]
fn host_time_on_null() {
    let runtime = open_with(&[("dp", 8)], 1, Options::null());
    let a = runtime.alloc(1000, Kind::Activation).expect("memory");
    let b = runtime.alloc(1000, Kind::Activation).expect("memory");
    let time = |what: &str, f: &dyn Fn()| {
        let rounds = 200_000;
        for _ in 0..1000 {
            f();
        }
        let start = Instant::now();
        for _ in 0..rounds {
            f();
        }
        println!(
            "null: {what}: {:.0} ns",
            start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
        );
    };
    time("fill", &|| {
        runtime.issue(Fill { to: a.r(), value: 1.0 }).expect("no failure")
    });
    time("custom of 4 buffers (with its two heap allocations)", &|| {
        runtime
            .issue(Mix::new(a.r(), &[b.r(), a.r(), b.r()], 1).command())
            .expect("no failure");
    });
    time("alloc and free of 1000 elements", &|| {
        runtime.alloc(1000, Kind::Activation).expect("memory");
    });
    time("alloc and free of 100,000 elements", &|| {
        runtime.alloc(100_000, Kind::Activation).expect("memory");
    });
}

/// Work that is worth sharing: does a second worker halve it?
#[test]
#[ignore = "prints figures"]
fn sharing() {
    for (devices, tiles, micros) in [(1, 2, 20), (1, 8, 10), (2, 1, 20), (8, 1, 20), (8, 4, 10), (32, 1, 20)] {
        let time = |workers: usize| {
            let runtime = open(&[("dp", devices)], workers);
            let a = runtime.alloc(64, Kind::Activation).expect("memory");
            let rounds = 40_000 / (devices * tiles * micros);
            let run = || {
                let start = Instant::now();
                for salt in 0..rounds {
                    runtime
                        .issue(Tiles(a.r(), tiles, micros as u64, salt % 20 == 0).command())
                        .expect("no failure");
                }
                runtime.sync().expect("no failure");
                start.elapsed().as_secs_f64() * 1e6 / rounds as f64
            };
            run();
            median((0..15).map(|_| run()).collect()).0
        };
        let (one, two, four) = (time(1), time(2), time(4));
        println!(
            "{devices} devices × {tiles} tiles of {micros} µs: {one:.1} µs a command with 1 worker, {two:.1} with 2, {four:.1} with 4"
        );
    }
}

/// Every tile takes so many microseconds.
#[derive(Debug)]
struct Tiles(BufferRef, usize, u64, bool);

impl Tiles {
    fn command(self) -> unisono_runtime::Command {
        unisono_runtime::Command::Custom(std::sync::Arc::new(self))
    }
}

impl unisono_runtime::Op for Tiles {
    fn name(&self) -> &'static str {
        "tiles"
    }
    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}
    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.0);
    }
    fn group(&self) -> Option<Group> {
        self.3.then_some(Group::All)
    }
    fn cost(&self, _mesh: &unisono_mesh::Mesh) -> unisono_runtime::Cost {
        unisono_runtime::Cost::default()
    }
    fn tiles(&self) -> usize {
        self.1
    }
    fn run(&self, _: &unisono_runtime::Place<'_>, _: usize, _: &mut unisono_kernels::scratch::Scratch) {
        burn(self.2);
    }
}
