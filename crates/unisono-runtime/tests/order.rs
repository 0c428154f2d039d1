//! Random programs give what a sequential interpreter gives: on every mesh, with every number of workers, whatever the timing.

mod common;

use common::{Draw, Mix, members, mix, open_with};
use proptest::prelude::*;
use unisono_mesh::Mesh;
use unisono_runtime::{Buffer, BufferRef, Group, HostData, Kind, Options, Pending, Runtime};

/// A live buffer and what it should hold on each device.
struct Value {
    buffer: Buffer,
    expected: Vec<Vec<u32>>,
}

/// A program being written, run and interpreted at once.
struct Program {
    runtime: Runtime,
    mesh: Mesh,
    draw: Draw,
    live: Vec<Value>,
    pending: Vec<(Pending, Vec<u32>)>,
    slow: bool,
}

impl Program {
    fn devices(&self) -> usize {
        self.mesh.num_devices()
    }

    fn step(&mut self) {
        match self.draw.below(16) {
            0 | 1 => self.upload(),
            2 if self.live.len() > 3 => {
                let victim = self.draw.below(self.live.len());
                self.live.swap_remove(victim);
            }
            3 => self.read_later(),
            4 if self.draw.below(8) == 0 => self.runtime.sync().expect("no failure"),
            5..=8 => self.fresh(),
            _ => self.update(),
        }
    }

    fn len(&mut self) -> usize {
        // Small and large blocks, so that both kinds of holes are reused.
        [1, 16, 100, 1000, 9000][self.draw.below(5)]
    }

    fn upload(&mut self) {
        let len = self.len();
        let buffer = self.runtime.alloc(len, Kind::Data).expect("memory");
        let mut array = |salt: usize| -> Vec<u32> {
            let start = self.draw.below(1 << 20) + salt;
            (0..len).map(|i| mix(start as u32, i as u32)).collect()
        };
        let same = array(0);
        let each: Vec<Vec<u32>> = (0..self.mesh.num_devices()).map(&mut array).collect();
        let floats = |array: &[u32]| -> Vec<f32> { array.iter().map(|bits| f32::from_bits(*bits)).collect() };
        let (data, expected) = match self.draw.below(4) {
            0 => (HostData::F32(floats(&same).into()), vec![same; self.devices()]),
            1 => (HostData::U32(same.clone().into()), vec![same; self.devices()]),
            2 => (
                HostData::F32PerDevice(each.iter().map(|array| floats(array).into()).collect()),
                each,
            ),
            _ => (
                HostData::U32PerDevice(each.iter().map(|array| array.clone().into()).collect()),
                each,
            ),
        };
        self.runtime.upload(buffer.r(), data).expect("lengths agree");
        self.live.push(Value { buffer, expected });
    }

    /// Some live buffers of at least `len` elements, by index.
    fn inputs(&mut self, len: usize) -> Vec<usize> {
        let count = self.draw.below(3);
        let fit: Vec<usize> = (0..self.live.len())
            .filter(|index| self.live[*index].buffer.len >= len)
            .collect();
        (0..count.min(fit.len()))
            .map(|_| fit[self.draw.below(fit.len())])
            .collect()
    }

    fn group(&mut self) -> Option<Group> {
        match self.draw.below(4) {
            0 => Some(Group::All),
            1 if !self.mesh.axes().is_empty() => {
                let index = self.draw.below(self.mesh.axes().len());
                Some(Group::Along(self.mesh.axis_at(index).expect("an axis")))
            }
            _ => None,
        }
    }

    /// A new buffer, written whole.
    fn fresh(&mut self) {
        let len = self.len();
        let buffer = self.runtime.alloc(len, Kind::Activation).expect("memory");
        let expected = vec![vec![0; len]; self.devices()];
        self.live.push(Value { buffer, expected });
        self.write(self.live.len() - 1, 0, len, false);
    }

    /// A part of a buffer, changed.
    fn update(&mut self) {
        if self.live.is_empty() {
            return self.fresh();
        }
        let index = self.draw.below(self.live.len());
        let len = self.live[index].buffer.len;
        let from = if self.draw.below(2) == 0 {
            0
        } else {
            self.draw.below(len)
        };
        let to = if from == 0 {
            len
        } else {
            from + 1 + self.draw.below(len - from)
        };
        self.write(index, from, to - from, true);
    }

    fn write(&mut self, index: usize, from: usize, len: usize, update: bool) {
        let out = self.live[index].buffer.part(from, len);
        let inputs: Vec<usize> = self.inputs(len).into_iter().filter(|input| *input != index).collect();
        let ins: Vec<BufferRef> = inputs
            .iter()
            .map(|input| self.live[*input].buffer.part(0, len))
            .collect();
        let mut op = Mix::new(out, &ins, self.draw.below(1 << 30) as u32);
        op.update = update;
        op.group = self.group();
        op.tiles = 1 + self.draw.below(5);
        op.delay = match self.draw.below(8) {
            0 if self.slow => self.draw.below(200) as u64,
            _ => 0,
        };
        for first in 0..self.devices() {
            let members = members(&self.mesh, op.group, first);
            if members[0] != first {
                continue;
            }
            for i in 0..len {
                let mut h = mix(op.salt, i as u32);
                for device in &members {
                    if update {
                        h = mix(h, self.live[index].expected[*device][from + i]);
                    }
                    for input in &inputs {
                        h = mix(h, self.live[*input].expected[*device][i]);
                    }
                }
                for device in &members {
                    // Written only after all members were read, because position i of a member depends on no other.
                    self.live[index].expected[*device][from + i] = h;
                }
            }
        }
        let issued = if self.draw.below(3) == 0 {
            self.runtime.issue_transfer(op.command())
        } else {
            self.runtime.issue(op.command())
        };
        issued.expect("no failure");
    }

    fn read_later(&mut self) {
        if self.live.is_empty() {
            return;
        }
        let index = self.draw.below(self.live.len());
        let device = self.draw.below(self.devices());
        let value = &self.live[index];
        let pending = self.runtime.read_later(value.buffer.r(), device).expect("no failure");
        self.pending.push((pending, value.expected[device].clone()));
        if self.pending.len() > 5 {
            let which = self.draw.below(self.pending.len());
            check(self.pending.swap_remove(which));
        }
    }

    fn finish(mut self) {
        self.pending.drain(..).for_each(check);
        for value in &self.live {
            for (device, expected) in value.expected.iter().enumerate() {
                let found = self.runtime.read_u32(value.buffer.r(), device).expect("no failure");
                assert_same(&found, expected, device);
            }
        }
    }
}

fn check((pending, expected): (Pending, Vec<u32>)) {
    assert_same(&pending.wait_u32().expect("no failure"), &expected, 0);
}

fn assert_same(found: &[u32], expected: &[u32], device: usize) {
    assert_eq!(found.len(), expected.len());
    if let Some(i) = (0..found.len()).find(|i| found[*i] != expected[*i]) {
        panic!(
            "device {device}, element {i} of {}: {:#x} found, {:#x} expected",
            found.len(),
            found[i],
            expected[i]
        );
    }
}

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
    let mut program = Program {
        mesh: runtime.mesh().clone(),
        runtime,
        draw: Draw(seed),
        live: Vec::new(),
        pending: Vec::new(),
        slow,
    };
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
    let start = std::time::Instant::now();
    let mut seed = 1000;
    while start.elapsed().as_secs() < 60 {
        seed += 1;
        run(
            seed,
            MESHES[seed as usize % MESHES.len()],
            1 + seed as usize / 5 % 6,
            300,
            [2, 4, 64, 1024][seed as usize / 3 % 4],
            seed % 2 == 0,
        );
    }
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
