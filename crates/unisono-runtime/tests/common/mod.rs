//! What the runtime's tests share: an operation whose result shows every mistake of order, and meshes.
#![allow(dead_code, missing_docs)]

pub mod cuts;
pub mod program;

use std::sync::Arc;
use std::time::{Duration, Instant};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;
use unisono_runtime::{BufferRef, Command, Cost, Group, Op, Options, Place, Runtime};

pub fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh::new(axes).expect("a valid mesh")
}

pub fn open(axes: &[(&str, usize)], workers: usize) -> Runtime {
    open_with(axes, workers, Options::default())
}

pub fn open_with(axes: &[(&str, usize)], workers: usize, options: Options) -> Runtime {
    let options = Options {
        workers: Some(workers),
        memory_limit: options.memory_limit.or(Some(64 << 20)),
        ..options
    };
    Runtime::new(mesh(axes), options).expect("a runtime")
}

/// `out[i] = mix(salt, i, ins[0][i], ins[1][i], …)`; with `update` the old `out[i]` goes in first. In a group, the inputs of all
/// members go in, in order, and every member gets the result.
#[derive(Clone, Debug)]
pub struct Mix {
    pub out: BufferRef,
    pub ins: Vec<BufferRef>,
    pub update: bool,
    pub salt: u32,
    pub group: Option<Group>,
    pub tiles: usize,
    /// Microseconds that tile 0 takes at least.
    pub delay: u64,
}

impl Mix {
    pub fn new(out: BufferRef, ins: &[BufferRef], salt: u32) -> Mix {
        Mix {
            out,
            ins: ins.to_vec(),
            update: false,
            salt,
            group: None,
            tiles: 1,
            delay: 0,
        }
    }

    pub fn command(self) -> Command {
        Command::Custom(Arc::new(self))
    }
}

/// One step of the hash that `Mix` computes.
pub fn mix(h: u32, x: u32) -> u32 {
    (h.rotate_left(7) ^ x)
        .wrapping_mul(0x9e37_79b1)
        .wrapping_add(0x7f4a_7c15)
}

/// The devices of the group that starts at `first`.
pub fn members(mesh: &Mesh, group: Option<Group>, first: usize) -> Vec<usize> {
    match group {
        None => vec![first],
        Some(Group::All) => (0..mesh.num_devices()).collect(),
        Some(Group::Along(axis)) => mesh.group(first, &mesh.axes()[axis.index].name),
    }
}

/// Spends time on the processor.
pub fn burn(micros: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros) {
        std::hint::spin_loop();
    }
}

impl Op for Mix {
    fn name(&self) -> &'static str {
        "mix"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        self.ins.iter().for_each(|buffer| see(*buffer));
        if self.update {
            see(self.out);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.out);
    }

    fn group(&self) -> Option<Group> {
        self.group
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let len = self.out.len as u64;
        Cost {
            flops: 2 * len * self.ins.len() as u64,
            bytes: 4 * len * (1 + self.ins.len() as u64),
            link_bytes: if self.group.is_some() { 4 * len } else { 0 },
        }
    }

    fn tiles(&self) -> usize {
        self.tiles
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let len = self.out.len;
        let (from, to) = (tile * len / self.tiles, (tile + 1) * len / self.tiles);
        if tile == 0 && self.delay > 0 {
            burn(self.delay);
        }
        let members = Members::of(place.mesh, self.group, place.device);
        let sums = scratch.floats(to - from);
        for i in from..to {
            let mut h = mix(self.salt, i as u32);
            for device in members.all() {
                if self.update {
                    h = mix(h, place.f32_on(device, self.out)[i].to_bits());
                }
                for input in &self.ins {
                    h = mix(h, place.f32_on(device, *input)[i].to_bits());
                }
            }
            sums[i - from] = f32::from_bits(h);
        }
        for device in members.all() {
            place.write_on(device, self.out, from, to - from).copy_from_slice(sums);
        }
    }
}

/// A group without a heap allocation.
struct Members {
    first: usize,
    stride: usize,
    size: usize,
}

impl Members {
    fn of(mesh: &Mesh, group: Option<Group>, first: usize) -> Members {
        let (stride, size) = match group {
            None => (1, 1),
            Some(Group::All) => (1, mesh.num_devices()),
            Some(Group::Along(axis)) => (axis.stride, axis.size),
        };
        Members { first, stride, size }
    }

    fn all(&self) -> impl Iterator<Item = usize> {
        let (first, stride) = (self.first, self.stride);
        (0..self.size).map(move |member| first + member * stride)
    }
}

/// A small generator for test programs.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 33) * n as u64) >> 31) as usize
    }
}

/// Axes of a mesh.
pub type Axes = &'static [(&'static str, usize)];

/// Runs random programs for a minute: `run` is given the seed, which counts from `first` on, a mesh, and numbers of workers and of entries
/// of a queue, and whether some commands are slow.
pub fn for_a_minute(first: u64, meshes: &[Axes], mut run: impl FnMut(u64, Axes, usize, usize, bool)) {
    let start = Instant::now();
    let mut seed = first;
    while start.elapsed().as_secs() < 60 {
        seed += 1;
        let index = seed as usize;
        let depth = [2, 4, 64, 1024][index / 3 % 4];
        run(
            seed,
            meshes[index % meshes.len()],
            1 + index / 5 % 6,
            depth,
            index.is_multiple_of(2),
        );
    }
}

/// Takes tests one after the other where they measure time or threads.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
