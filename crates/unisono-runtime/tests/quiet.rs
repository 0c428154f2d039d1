//! A program at rest uses no processor, and workers at work use no heap.

mod common;

use common::{Mix, alone, burn, open, open_with};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unisono_runtime::{Group, Kind, Options};

/// Counts allocations of worker threads.
struct Counting;

static BY_WORKERS: AtomicU64 = AtomicU64::new(0);
static ON: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_WORKER: std::cell::Cell<u8> = const { std::cell::Cell::new(0) };
}

fn count() {
    if ON.load(Ordering::Relaxed) == 0 {
        return;
    }
    let is_worker = IS_WORKER.try_with(|known| {
        if known.get() == 0 {
            // Asking for the name allocates nothing once the thread has one.
            known.set(1);
            let worker = std::thread::current()
                .name()
                .is_some_and(|name| name.starts_with("unisono"));
            known.set(1 + u8::from(worker));
        }
        known.get() == 2
    });
    if is_worker == Ok(true) {
        BY_WORKERS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn workers_do_not_allocate_once_warm() {
    let _alone = alone();
    for workers in [2, 4] {
        let runtime = open(&[("dp", 2), ("tp", 2)], workers);
        let a = runtime.alloc(5000, Kind::Activation).expect("memory");
        let b = runtime.alloc(5000, Kind::Activation).expect("memory");
        for round in 0..30 {
            if round == 3 {
                runtime.sync().expect("no failure");
                ON.store(1, Ordering::SeqCst);
            }
            for salt in 0..40 {
                let mut op = Mix::new(a.r(), &[b.r()], salt);
                op.tiles = 4;
                op.delay = 3;
                op.group = [
                    None,
                    None,
                    Some(Group::Along(runtime.mesh().axis_at(1).expect("two axes"))),
                    Some(Group::All),
                ][salt as usize % 4];
                let issued = if salt % 5 == 0 {
                    runtime.issue_transfer(op.command())
                } else {
                    runtime.issue(op.command())
                };
                issued.expect("no failure");
            }
            runtime.upload(b.r(), vec![round as f32; 5000]).expect("no failure");
            let _ = runtime.read_later(a.part(0, 10), round % 4).expect("no failure");
            if round % 10 == 9 {
                // Sleep and wake-up belong to the path too.
                runtime.sync().expect("no failure");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        runtime.sync().expect("no failure");
        ON.store(0, Ordering::SeqCst);
        assert_eq!(BY_WORKERS.swap(0, Ordering::SeqCst), 0, "{workers} workers");
        let spread = runtime.report().total().busy;
        assert!(spread > Duration::from_millis(1));
    }
}

fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let nanos: u64 = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next().and_then(|field| field.parse::<u64>().ok()))
        .sum();
    Duration::from_nanos(nanos)
}

#[test]
#[cfg(target_os = "linux")]
fn an_idle_program_uses_no_processor() {
    let _alone = alone();
    for workers in [2, 8] {
        let runtime = open(&[("dp", 8)], workers);
        let a = runtime.alloc(5000, Kind::Activation).expect("memory");
        for salt in 0..50 {
            runtime.issue(Mix::new(a.r(), &[], salt).command()).expect("no failure");
        }
        runtime.sync().expect("no failure");
        std::thread::sleep(Duration::from_millis(5));
        let before = processor_time();
        std::thread::sleep(Duration::from_millis(200));
        let used = processor_time() - before;
        assert!(
            used < Duration::from_millis(2),
            "{workers} workers used {used:?} in 200 ms"
        );
    }
}

#[test]
fn no_wake_up_is_lost() {
    let _alone = alone();
    // The host only looks and never works, so a command that woke nobody would lie there for ever.
    for (workers, devices) in [(1, 2), (2, 1), (2, 8), (3, 2), (4, 8)] {
        let runtime = open(&[("dp", devices)], workers);
        let a = runtime.alloc(64, Kind::Activation).expect("memory");
        for round in 0..600 {
            // Around the time after which workers fall asleep.
            burn([0, 1, 5, 20, 45, 48, 50, 52, 55, 60, 80, 120][round % 12] + round as u64 / 100);
            for salt in 0..=round % 3 {
                let mut op = Mix::new(a.r(), &[], salt as u32);
                op.tiles = 1 + round % 4;
                op.group = (round % 5 == 0).then_some(Group::All);
                let issued = if round % 7 == 0 {
                    runtime.issue_transfer(op.command())
                } else {
                    runtime.issue(op.command())
                };
                issued.expect("no failure");
            }
            let pending = runtime.read_later(a.part(0, 1), round % devices).expect("no failure");
            let start = Instant::now();
            while !pending.is_ready() {
                assert!(
                    start.elapsed() < Duration::from_secs(10),
                    "{workers} workers, {devices} devices, round {round}: nobody came"
                );
                std::hint::spin_loop();
            }
        }
    }
}

#[test]
fn more_workers_than_cores_are_no_disaster() {
    let _alone = alone();
    // 400 commands of 100 µs on 8 devices are 320 ms of one core.
    let time = |workers: usize| {
        let runtime = open_with(&[("dp", 8)], workers, Options::default());
        let a = runtime.alloc(64, Kind::Activation).expect("memory");
        let start = Instant::now();
        for salt in 0..400 {
            let mut op = Mix::new(a.r(), &[], salt);
            op.delay = 100;
            op.group = (salt % 10 == 0).then_some(Group::All);
            runtime.issue(op.command()).expect("no failure");
        }
        runtime.sync().expect("no failure");
        start.elapsed().as_secs_f64()
    };
    burn(1000);
    let (one, many) = (time(1), time(16));
    assert!(many < 3.0 * one, "16 workers took {many:.3} s, one took {one:.3} s");
}
