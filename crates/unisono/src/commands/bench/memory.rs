//! The rates at which the workers read and copy device memory: the roof over kernels that do little arithmetic.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use unisono_kernels::bandwidth::read;
use unisono_kernels::scratch::Scratch;
use unisono_runtime::ops::reduce::Move;
use unisono_runtime::{BufferRef, Command, Cost, Op, Place};
use unisono_tensor::{Mesh, MeshDevice, Result, Tensor};

/// Two arrays of device memory to read and to copy.
pub struct Memory {
    from: Tensor,
    to: Tensor,
}

/// What is done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Reading alone.
    Read,
    /// Copying: bytes read plus bytes written.
    Copy,
}

impl Pass {
    /// The word for reports.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Read => "reading",
            Pass::Copy => "copying",
        }
    }
}

/// Numbers of each of the two arrays: several times what caches hold.
const LEN: usize = 32 << 20;
/// Random site of their values; no operand has it.
const SITE: u32 = 9000;
/// Elements of a tile.
const TILE: usize = 256 << 10;

impl Memory {
    /// Both arrays, full of random numbers: a host may keep equal pages once.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(device: &MeshDevice) -> Result<Memory> {
        let memory = Memory {
            from: device.rand(&[LEN], SITE)?,
            to: device.zeros(&[LEN])?,
        };
        memory.rate(Pass::Copy)?;
        Ok(memory)
    }

    /// GB a second of one pass. It leaves nothing else in the caches.
    ///
    /// # Errors
    /// A failed command.
    pub fn rate(&self, pass: Pass) -> Result<f64> {
        let runtime = self.from.device().runtime();
        let (from, to) = (self.from.buffer(), self.to.buffer());
        runtime.sync()?;
        let start = Instant::now();
        match pass {
            Pass::Read => runtime.issue(Command::Custom(Arc::new(Read { from })))?,
            Pass::Copy => runtime.issue(Move { from, to })?,
        }
        runtime.sync()?;
        let sides = if pass == Pass::Copy { 2 } else { 1 };
        Ok((4 * sides * LEN) as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9)
    }
}

/// Reads a buffer.
#[derive(Debug)]
struct Read {
    from: BufferRef,
}

impl Op for Read {
    fn name(&self) -> &'static str {
        "read"
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
        self.from.len.div_ceil(TILE)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let all = place.f32(self.from);
        let from = tile * TILE;
        black_box(read(scratch.isa(), &all[from..(from + TILE).min(all.len())]));
    }
}
