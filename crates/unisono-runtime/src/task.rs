//! What an entry of a queue tells the devices to do: a command of the program, or a copy between host and devices.

use crate::buffer::{BufferRef, Dtype};
use crate::command::{Command, Cost, Op};
use crate::exchange::Exchange;
use crate::place::Place;
use crate::queue::Queue;
use crate::report::Phase;
use crate::transfer::HostData;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use unisono_kernels::cast::cast;
use unisono_kernels::element::{Bf16, Floats, FloatsMut};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// Something that devices do in its turn.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "tasks lie in the ring of a queue, where a box would cost an allocation each"
)]
pub enum Task {
    /// A command of the program.
    Command(Command),
    /// Values from the host.
    Upload(Upload),
    /// Values to the host.
    Download(Download),
    /// Messages to and from other processes.
    Exchange(Exchange),
    /// Fresh memory made to show, in debug builds, that nobody has written it.
    Undefine(Undefine),
}

impl Task {
    /// The operation behind it.
    pub fn op(&self) -> &dyn Op {
        match self {
            Task::Command(command) => command.op(),
            Task::Upload(op) => op,
            Task::Download(op) => op,
            Task::Exchange(op) => op,
            Task::Undefine(op) => op,
        }
    }

    /// The same without the values that go with it, which somebody else may want to give back.
    pub(crate) fn without_values(&self) -> Task {
        match self {
            Task::Upload(upload) => Task::Upload(Upload {
                to: upload.to,
                data: HostData::F32PerDevice(Vec::new()),
            }),
            Task::Download(download) => Task::Download(Download {
                landed: Arc::default(),
                ..download.clone()
            }),
            task => task.clone(),
        }
    }
}

/// One line of a recorded command stream.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The queue it was put in.
    pub queue: Queue,
    /// The phase that was set.
    pub phase: Phase,
    /// What is to be done.
    pub task: Task,
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.queue.name(), self.phase.name())?;
        match &self.task {
            Task::Command(command) => write!(f, "{:?}", command.op()),
            task => write!(f, "{:?}", task.op()),
        }
    }
}

/// Elements that one tile of a copy handles.
const TILE: usize = 256 * 1024;

fn tiles(len: usize) -> usize {
    len.div_ceil(TILE)
}

fn range(tile: usize, len: usize) -> std::ops::Range<usize> {
    tile * TILE..((tile + 1) * TILE).min(len)
}

/// Values from the host, copied to each device.
#[derive(Clone)]
pub struct Upload {
    /// Where to.
    pub to: BufferRef,
    /// The values, as many for each device as `to` has elements.
    pub data: HostData,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("to", &self.to).finish_non_exhaustive()
    }
}

impl Op for Upload {
    fn name(&self) -> &'static str {
        "upload"
    }

    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: self.to.bytes(),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        tiles(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = range(tile, self.to.len);
        let (from, len) = (range.start, range.len());
        let floats = |data: &[f32]| {
            cast(
                scratch.isa(),
                Floats::F32(&data[range.clone()]),
                place.write_floats(self.to, from, len),
            );
        };
        let words = |data: &[u32]| {
            place
                .write_u32(self.to, from, len)
                .copy_from_slice(&data[range.clone()])
        };
        let size = self.to.dtype.bytes();
        let bytes = |data: &[u8]| {
            place
                .write_u8_on(place.device, self.to, from, len)
                .copy_from_slice(&data[size * from..size * (from + len)])
        };
        match &self.data {
            HostData::F32(data) => floats(data),
            HostData::U32(data) => words(data),
            HostData::F32PerDevice(data) => floats(&data[place.device]),
            HostData::U32PerDevice(data) => words(&data[place.device]),
            HostData::Bytes(data) => bytes(data),
            HostData::BytesPerDevice(data) => bytes(&data[place.device]),
            HostData::Stored(stored) => {
                let to = place.write_floats(self.to, from, len);
                stored.copy(scratch.isa(), place.device, from, to);
            }
        }
    }
}

/// Values to the host from one device.
#[derive(Clone)]
pub struct Download {
    /// Where from.
    pub from: BufferRef,
    /// The device that has them.
    pub device: usize,
    /// The only process that wants them, where not all do.
    pub(crate) reader: Option<usize>,
    /// Whether the elements are wanted as they are, and not as floats.
    raw: bool,
    landed: Arc<Mutex<Landed>>,
}

/// Values that have come to the host.
#[derive(Default)]
struct Landed {
    values: Vec<f32>,
    /// The elements as they are, where that was asked for.
    bytes: Vec<u8>,
    at: Option<Instant>,
}

impl Download {
    /// A download of `from` into `room`, which is made large enough.
    pub(crate) fn new(from: BufferRef, device: usize, mut room: Vec<f32>) -> Download {
        room.clear();
        room.reserve_exact(from.len);
        Download {
            from,
            device,
            reader: None,
            raw: false,
            landed: Arc::new(Mutex::new(Landed {
                values: room,
                bytes: Vec::new(),
                at: None,
            })),
        }
    }

    /// A download of the bytes of `from`.
    pub(crate) fn raw(from: BufferRef, device: usize) -> Download {
        Download {
            from,
            device,
            reader: None,
            raw: true,
            landed: Arc::new(Mutex::new(Landed {
                values: Vec::new(),
                bytes: Vec::with_capacity(from.bytes() as usize),
                at: None,
            })),
        }
    }

    /// The bytes, once a raw download has ended.
    pub(crate) fn take_bytes(&self) -> Vec<u8> {
        let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut landed.bytes)
    }

    /// The values and the moment at which they came, once the download has ended.
    pub(crate) fn take(&self) -> (Vec<f32>, Option<Instant>) {
        let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut landed.values), landed.at)
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Download")
            .field("from", &self.from)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Op for Download {
    fn name(&self) -> &'static str {
        "download"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: self.from.bytes(),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        // Fresh memory of the host takes longer to appear than to fill, so sharing the copy out would gain little. Even an empty
        // one has its turn.
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
        let mut landed = self.landed.lock().unwrap_or_else(PoisonError::into_inner);
        if self.raw {
            landed.bytes.extend_from_slice(place.u8(self.from));
            landed.at = Some(Instant::now());
            return;
        }
        match place.floats(self.from) {
            Floats::F32(from) => landed.values.extend_from_slice(from),
            Floats::Bf16(from) => landed.values.extend(from.iter().map(|x| x.to_f32())),
        }
        landed.at = Some(Instant::now());
    }
}

/// Fresh memory filled with a NaN that no computation makes.
#[derive(Clone, Debug)]
pub struct Undefine {
    /// The memory.
    pub buffer: BufferRef,
}

/// The bits of the NaN.
pub const UNDEFINED: u32 = 0x7fc0_dead;
/// As [`UNDEFINED`], in bf16.
const UNDEFINED_BF16: Bf16 = Bf16::from_bits(0x7fde);

impl Op for Undefine {
    fn name(&self) -> &'static str {
        "undefine"
    }

    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.buffer);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        tiles(self.buffer.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let range = range(tile, self.buffer.len);
        if matches!(self.buffer.dtype, Dtype::I32 | Dtype::U8) {
            place
                .write_u8_on(place.device, self.buffer, range.start, range.len())
                .fill(0xad);
            return;
        }
        match place.write_floats(self.buffer, range.start, range.len()) {
            FloatsMut::F32(to) => to.fill(f32::from_bits(UNDEFINED)),
            FloatsMut::Bf16(to) => to.fill(UNDEFINED_BF16),
        }
    }
}
