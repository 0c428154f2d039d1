//! Bad days: commands that panic, memory that ends, misuse, programs that stop in the middle.

mod common;

use common::{Mix, burn, open, open_with};
use std::sync::Arc;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::{
    Backend, BufferRef, Command, Cost, Group, HostData, Kind, Op, Options, Phase, Place, Queue, Runtime, RuntimeError,
    UNDEFINED,
};

/// Panics on one device in one tile.
#[derive(Debug)]
struct Broken {
    device: usize,
    group: Option<Group>,
}

impl Op for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }
    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}
    fn writes(&self, _see: &mut dyn FnMut(BufferRef)) {}
    fn group(&self) -> Option<Group> {
        self.group
    }
    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }
    fn tiles(&self) -> usize {
        7
    }
    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        burn(5);
        assert!(place.device != self.device || tile != 3, "tile {tile} does not add up");
    }
}

/// Keeps panics of worker threads out of the tests' output.
fn hush() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !std::thread::current()
            .name()
            .is_some_and(|name| name.starts_with("unisono"))
        {
            default(info);
        }
    }));
}

#[test]
fn a_panic_in_a_kernel_reaches_the_host_in_words() {
    hush();
    for (workers, group) in [(1, None), (2, None), (4, None), (3, Some(Group::All))] {
        let runtime = open(&[("dp", 4)], workers);
        let device = if group.is_some() { 0 } else { 2 };
        let a = runtime.alloc(1000, Kind::Activation).expect("memory");
        let early = runtime.read_later(a.r(), 0).expect("no failure yet");
        runtime
            .issue(Command::Custom(Arc::new(Broken { device, group })))
            .expect("no failure yet");
        for salt in 0..100 {
            let mut op = Mix::new(a.r(), &[], salt);
            op.tiles = 3;
            // The failure may show here already.
            let _ = runtime.issue(op.command());
        }
        let error = runtime.sync().expect_err("the failure shows at the latest here");
        assert_eq!(
            error.to_string(),
            format!(
                "command Command(Custom(Broken {{ device: {device}, group: {group:?} }})) failed on device {device}: \
                 tile 3 does not add up"
            )
        );
        // From here on everything says so, and nothing hangs.
        assert_eq!(runtime.issue(Mix::new(a.r(), &[], 1).command()), Err(error.clone()));
        assert_eq!(runtime.read_f32(a.r(), 1).expect_err("void"), error);
        assert_eq!(runtime.alloc(1, Kind::Data).expect_err("void"), error);
        assert_eq!(early.wait().expect_err("void"), error);
        assert_eq!(runtime.sync(), Err(error));
    }
}

#[test]
fn a_runtime_may_be_dropped_with_work_pending() {
    for workers in [1, 2, 4] {
        for round in 0..20 {
            let runtime = open(&[("dp", 4)], workers);
            let a = runtime.alloc(1000, Kind::Activation).expect("memory");
            for salt in 0..200 {
                let mut op = Mix::new(a.r(), &[], salt);
                op.delay = 20;
                op.group = (salt % 7 == 0).then_some(Group::All);
                runtime.issue(op.command()).expect("no failure");
            }
            let pending = runtime.read_later(a.r(), 3).expect("no failure");
            burn(round * 10);
            if round % 2 == 0 {
                drop(runtime);
                // The buffer and the value keep the devices open.
                assert!(round > 3 || pending.wait().is_ok());
            }
        }
    }
}

#[test]
fn memory_is_limited_and_counted() {
    let limit = 1 << 20;
    for backend in [Backend::Cpu, Backend::Null] {
        let runtime = open_with(
            &[("dp", 2)],
            1,
            Options {
                backend,
                memory_limit: Some(limit),
                ..Options::default()
            },
        );
        let a = runtime.alloc(100_000, Kind::Parameter).expect("400,000 bytes");
        let b = runtime.alloc(100_001, Kind::Activation).expect("400,064 bytes");
        let error = runtime.alloc(70_000, Kind::Gradient).expect_err("280,000 bytes more");
        assert_eq!(
            error.to_string(),
            "a device would need 1080064 bytes, 1048576 are allowed: 280000 more bytes for gradients do not fit beside the \
             800064 in use"
        );
        assert!(runtime.alloc(usize::MAX, Kind::Data).is_err());
        drop(b);
        runtime.set_phase(Phase::Backward);
        let c = runtime.alloc(1, Kind::Gradient).expect("64 bytes");
        let memory = runtime.report().memory;
        assert_eq!((memory.current, memory.peak), (400_064, 800_064));
        assert_eq!(memory.current_by_kind, [400_000, 64, 0, 0, 0, 0]);
        assert_eq!(memory.peak_by_kind, [400_000, 0, 0, 400_064, 0, 0]);
        assert_eq!(memory.highest_by_kind, [400_000, 64, 0, 400_064, 0, 0]);
        assert_eq!(memory.peak_by_phase[Phase::Backward as usize], 400_064);
        assert_eq!(memory.peak_by_phase[Phase::Other as usize], 800_064);
        assert!(memory.extent >= 800_064);
        drop((a, c));
        assert_eq!(runtime.report().memory.current, 0);
        runtime.reset_report();
        assert_eq!(runtime.report().memory.peak, 0);
    }
}

#[test]
fn fragments_do_not_eat_the_limit() {
    // Live memory stays below the limit while blocks of growing size come and go.
    let runtime = open_with(
        &[],
        1,
        Options {
            memory_limit: Some(8 << 20),
            ..Options::default()
        },
    );
    let mut live = Vec::new();
    for round in 0..200 {
        live.push(runtime.alloc(10_000 + 137 * round, Kind::Activation).expect("memory"));
        if live.len() > 20 {
            live.remove(round % 7);
        }
    }
}

#[test]
fn lengths_and_devices_are_checked() {
    let runtime = open(&[("dp", 2)], 2);
    let a = runtime.alloc(4, Kind::Data).expect("memory");
    let text = |result: Result<(), RuntimeError>| result.expect_err("must be refused").to_string();
    assert_eq!(
        text(runtime.upload(a.r(), vec![1.0f32; 3])),
        "values to upload: 3 elements given, 4 expected"
    );
    let arrays = |lens: &[usize]| HostData::U32PerDevice(lens.iter().map(|len| vec![0; *len].into()).collect());
    assert_eq!(
        text(runtime.upload(a.r(), arrays(&[4]))),
        "arrays to upload, one a device: 1 elements given, 2 expected"
    );
    assert_eq!(
        text(runtime.upload(a.r(), arrays(&[4, 5]))),
        "values to upload: 5 elements given, 4 expected"
    );
    assert_eq!(
        text(runtime.read_f32(a.r(), 2).map(|_| ())),
        "device 2 does not exist: the mesh has 2, numbered from 0"
    );
    runtime.upload(a.r(), arrays(&[4, 4])).expect("fits");
    runtime.upload(a.part(1, 2), vec![8u32, 9]).expect("fits");
    assert_eq!(runtime.read_u32(a.r(), 1), Ok(vec![0, 8, 9, 0]));
    assert_eq!(runtime.read_u32(a.part(2, 2), 0), Ok(vec![9, 0]));
    let empty = runtime.alloc(0, Kind::Data).expect("memory");
    runtime.upload(empty.r(), Vec::<f32>::new()).expect("fits");
    assert_eq!(runtime.read_f32(empty.r(), 1), Ok(vec![]));
}

#[test]
fn settings_are_checked() {
    let text = |options: Options| {
        Runtime::new(Mesh::one(), options)
            .expect_err("must be refused")
            .to_string()
    };
    let workers = text(Options {
        workers: Some(0),
        ..Options::default()
    });
    assert!(
        workers.starts_with("0 workers were asked for; 1 to 1024 work, and this process may use "),
        "{workers}"
    );
    let depth = text(Options {
        queue_depth: 1,
        ..Options::default()
    });
    assert_eq!(depth, "a queue depth of 1 was asked for; 2 to 1048576 work");
    let memory = text(Options {
        memory_limit: Some(1 << 60),
        ..Options::default()
    });
    assert!(
        memory.starts_with("the system refused 2305843009280802816 bytes of address space for 1 devices: "),
        "{memory}"
    );
}

#[test]
fn the_null_backend_accounts_and_has_no_values() {
    let run = |options: Options| {
        let runtime = open_with(&[("dp", 2), ("tp", 2)], 2, options);
        runtime.set_phase(Phase::Data);
        let a = runtime.alloc(1000, Kind::Data).expect("memory");
        runtime.upload(a.r(), vec![1.0; 1000]).expect("no failure");
        runtime.set_phase(Phase::Forward);
        let b = runtime.alloc(1000, Kind::Activation).expect("memory");
        runtime
            .issue(Mix::new(b.r(), &[a.r()], 1).command())
            .expect("no failure");
        let mut all = Mix::new(b.r(), &[a.r()], 2);
        all.group = Some(Group::Along(runtime.mesh().axis_at(0).expect("an axis")));
        runtime.issue_transfer(all.command()).expect("no failure");
        runtime.sync().expect("no failure");
        let mut report = runtime.report();
        report.wall = Default::default();
        report
            .phases
            .iter_mut()
            .for_each(|phase| phase.busy = Default::default());
        (report, runtime.read_f32(b.r(), 0).err(), runtime.stream_hash())
    };
    let (null, refused, hash) = run(Options::null());
    let (cpu, fine, same) = run(Options::default());
    assert_eq!(refused, Some(RuntimeError::NoValues));
    assert_eq!(fine, None);
    assert_eq!(null, cpu);
    assert_eq!(hash, same);
    assert_eq!(null.phase(Phase::Data).bytes, 4000);
    assert_eq!(
        (null.phase(Phase::Forward).commands, null.phase(Phase::Forward).flops),
        (1, 2000)
    );
    let communication = null.phase(Phase::Communication);
    assert_eq!((communication.commands, communication.link_bytes), (1, 4000));
    assert_eq!(null.total().commands, 3);
}

#[test]
fn busy_time_goes_to_the_phase_and_collectives_to_communication() {
    let runtime = open(&[("dp", 2)], 2);
    let a = runtime.alloc(8, Kind::Data).expect("memory");
    runtime.sync().expect("no failure");
    runtime.reset_report();
    runtime.set_phase(Phase::Backward);
    let mut op = Mix::new(a.r(), &[], 1);
    op.delay = 2000;
    runtime.issue(op.clone().command()).expect("no failure");
    op.group = Some(Group::All);
    runtime.issue(op.command()).expect("no failure");
    runtime.sync().expect("no failure");
    let report = runtime.report();
    let millis = |phase: Phase| report.phase(phase).busy.as_secs_f64() * 1e3;
    assert!(
        millis(Phase::Backward) >= 4.0 && millis(Phase::Backward) < 1000.0,
        "{}",
        millis(Phase::Backward)
    );
    assert!(millis(Phase::Communication) >= 2.0 && millis(Phase::Communication) < 1000.0);
    assert_eq!(millis(Phase::Forward), 0.0);
    assert!(report.wall.as_secs_f64() >= 4e-3);
}

#[test]
fn streams_are_recorded() {
    let runtime = open_with(&[], 1, Options::null());
    let a = runtime.alloc(4, Kind::Data).expect("memory");
    runtime.record(true);
    runtime.set_phase(Phase::Setup);
    runtime.upload(a.r(), vec![1.0; 4]).expect("no failure");
    runtime
        .issue(Fill {
            to: a.part(1, 2),
            value: 0.5,
        })
        .expect("no failure");
    let lines = runtime.take_record();
    assert_eq!(lines[0].queue, Queue::Transfer);
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "transfer setup Upload { to: b1[0+4], .. }",
            "compute setup Fill { to: b1[1+2], value: 0.5 }"
        ]
    );
    assert!(runtime.take_record().is_empty());
}

#[test]
#[cfg(debug_assertions)]
fn unwritten_memory_shows() {
    let runtime = open(&[("dp", 2)], 2);
    let a = runtime.alloc(20_000, Kind::Activation).expect("memory");
    assert_eq!(runtime.read_u32(a.r(), 1), Ok(vec![UNDEFINED; 20_000]));
    assert!(runtime.read_f32(a.part(0, 1), 0).expect("no failure")[0].is_nan());
}

#[test]
#[should_panic(expected = "bug in unisono: mix uses b1[0+4], which has been freed")]
fn a_freed_buffer_is_not_used() {
    let runtime = open_with(&[], 1, Options::null());
    let a = runtime.alloc(4, Kind::Data).expect("memory");
    let stale = a.r();
    drop(a);
    let b = runtime.alloc(4, Kind::Data).expect("memory");
    assert_eq!(b.offset, stale.offset);
    let _ = runtime.issue(Mix::new(stale, &[], 1).command());
}

/// Writes a buffer that it does not name.
#[derive(Debug)]
struct Sly(BufferRef);

impl Op for Sly {
    fn name(&self) -> &'static str {
        "sly"
    }
    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.0);
    }
    fn writes(&self, _see: &mut dyn FnMut(BufferRef)) {}
    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }
    fn tiles(&self) -> usize {
        1
    }
    fn run(&self, place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
        place.write(self.0, 0, 1)[0] = 1.0;
    }
}

#[test]
#[cfg(debug_assertions)]
fn an_operation_touches_only_what_it_has_declared() {
    hush();
    let runtime = open(&[("dp", 2)], 1);
    let a = runtime.alloc(4, Kind::Data).expect("memory");
    runtime
        .issue(Command::Custom(Arc::new(Sly(a.r()))))
        .expect("no failure yet");
    let RuntimeError::CommandFailed { reason, .. } = runtime.sync().expect_err("caught") else {
        panic!("another error");
    };
    assert_eq!(
        reason,
        "bug in unisono: sly touches b1[0+4] (Write) of device 0 on device 0 without having declared it"
    );
}
