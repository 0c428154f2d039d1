//! Where a tile runs: the mesh, the device, and the devices' memory.

use crate::buffer::{BufferRef, Dtype};
use crate::command::Op;
use crate::processes::Part;
use crate::view::View;
use unisono_kernels::element::{Bf16, Floats, FloatsMut, OutFloats};
use unisono_kernels::out::Out;
use unisono_mesh::{AxisHandle, Mesh};

/// One device's arena: the base address, aligned to 64 bytes, and its length in four-byte elements.
#[derive(Clone, Copy, Debug)]
pub struct Arena {
    /// First element.
    pub base: *mut f32,
    /// Elements.
    pub len: usize,
}

// SAFETY: an arena is an address range that outlives the workers (the runtime joins them before it unmaps); what may be
// read or written by whom is decided by the queues.
unsafe impl Send for Arena {}
// SAFETY: as for `Send`.
unsafe impl Sync for Arena {}

/// What an operation sees while a tile of it runs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The mesh that the command was issued on.
    pub mesh: &'a Mesh,
    /// The device that runs the tile, by its place in the mesh; for a collective, the first of the group.
    pub device: usize,
    view: &'a View,
    /// Every device's arena.
    arenas: &'a [Arena],
    /// The operation that runs: debug builds check that it touches only what it has declared, because the queues know of
    /// nothing else.
    op: &'a dyn Op,
}

impl<'a> Place<'a> {
    /// Where a tile of `op` runs.
    pub(crate) fn new(view: &'a View, device: usize, arenas: &'a [Arena], op: &'a dyn Op) -> Place<'a> {
        Place {
            mesh: view.mesh(),
            device,
            view,
            arenas,
            op,
        }
    }

    /// Whether this process carries the device at `place`. A collective may read any member's buffers, those of other processes as
    /// they were sent; what it writes on devices that are not here is nobody's.
    pub fn is_here(&self, place: usize) -> bool {
        self.view.is_here(place)
    }

    /// The processes' parts of the group of `axis` that this place is the first of.
    pub(crate) fn parts(&self, axis: AxisHandle) -> Vec<Part> {
        self.view.parts(axis, self.device)
    }

    /// The number of this process.
    pub(crate) fn process(&self) -> usize {
        self.view.processes().rank()
    }

    /// The floats of `buffer` on this device.
    pub fn f32(&self, buffer: BufferRef) -> &'a [f32] {
        self.f32_on(self.device, buffer)
    }

    /// The integers of `buffer` on this device.
    pub fn u32(&self, buffer: BufferRef) -> &'a [u32] {
        let first = self.first(self.device, buffer, Access::Read, &WORDS);
        // SAFETY: as in `f32_on`; u32 and f32 have the same size and alignment and every bit pattern is valid for both.
        unsafe { std::slice::from_raw_parts(first.cast::<u32>(), buffer.len) }
    }

    /// The bytes of `buffer` on this device.
    pub fn u8(&self, buffer: BufferRef) -> &'a [u8] {
        self.u8_on(self.device, buffer)
    }

    /// The bytes of `buffer` on `device`, a peer in a collective: for moves, to which it is nothing what the elements are.
    pub fn u8_on(&self, device: usize, buffer: BufferRef) -> &'a [u8] {
        let first = self.first(device, buffer, Access::Read, &[buffer.dtype]);
        // SAFETY: as in `f32_on`; every byte of an element is a valid u8.
        unsafe { std::slice::from_raw_parts(first, buffer.dtype.bytes() * buffer.len) }
    }

    /// The bytes of the elements `from..from + len` of `buffer` on `device`, which this tile alone writes.
    pub fn write_u8_on(&self, device: usize, buffer: BufferRef, from: usize, len: usize) -> &'a mut [u8] {
        let first = self.first(device, buffer, Access::Write, &[buffer.dtype]);
        let size = buffer.dtype.bytes();
        // SAFETY: as in `out_on` and `write`; every bit pattern is a valid element.
        unsafe { Out::shared(first, size * buffer.len).slice(size * from, size * len) }
    }

    /// The numbers of `buffer` on this device, of whichever kind.
    pub fn floats(&self, buffer: BufferRef) -> Floats<'a> {
        self.floats_on(self.device, buffer)
    }

    /// The numbers of `buffer` on `device`, a peer in a collective, of whichever kind.
    pub fn floats_on(&self, device: usize, buffer: BufferRef) -> Floats<'a> {
        match buffer.dtype {
            Dtype::F32 | Dtype::U32 | Dtype::I32 | Dtype::U8 => Floats::F32(self.f32_on(device, buffer)),
            Dtype::Bf16 => {
                let first = self.first(device, buffer, Access::Read, &[Dtype::Bf16]);
                // SAFETY: as in `f32_on`; every bit pattern is valid.
                Floats::Bf16(unsafe { std::slice::from_raw_parts(first.cast::<Bf16>(), buffer.len) })
            }
        }
    }

    /// `buffer` on this device, of whichever kind, for tiles that write disjoint parts of it.
    pub fn out_floats(&self, buffer: BufferRef) -> OutFloats<'a> {
        self.out_floats_on(self.device, buffer)
    }

    /// `buffer` on `device`, a peer in a collective, of whichever kind, for tiles that write disjoint parts of it.
    pub fn out_floats_on(&self, device: usize, buffer: BufferRef) -> OutFloats<'a> {
        match buffer.dtype {
            Dtype::F32 | Dtype::U32 | Dtype::I32 | Dtype::U8 => OutFloats::F32(self.out_on(device, buffer)),
            Dtype::Bf16 => {
                let first = self.first(device, buffer, Access::Write, &[Dtype::Bf16]);
                // SAFETY: as in `out_on`.
                OutFloats::Bf16(unsafe { Out::shared(first.cast::<Bf16>(), buffer.len) })
            }
        }
    }

    /// The elements `from..from + len` of `buffer` on this device, of whichever kind, which this tile alone writes.
    pub fn write_floats(&self, buffer: BufferRef, from: usize, len: usize) -> FloatsMut<'a> {
        self.write_floats_on(self.device, buffer, from, len)
    }

    /// As [`Place::write_floats`], on `device`, a peer in a collective.
    pub fn write_floats_on(&self, device: usize, buffer: BufferRef, from: usize, len: usize) -> FloatsMut<'a> {
        // SAFETY: as in `write`.
        unsafe {
            match self.out_floats_on(device, buffer) {
                OutFloats::F32(out) => FloatsMut::F32(out.slice(from, len)),
                OutFloats::Bf16(out) => FloatsMut::Bf16(out.slice(from, len)),
            }
        }
    }

    /// The floats of `buffer` on `device`, a peer in a collective.
    pub fn f32_on(&self, device: usize, buffer: BufferRef) -> &'a [f32] {
        let first = self.first(device, buffer, Access::Read, &WORDS);
        // SAFETY: the range lies inside the arena (checked in `first`), which is mapped, zero-initialised and outlives the
        // workers. The queues run a command only when every earlier writer of the buffer has ended and no later one has
        // begun, and the command declared that it reads it, so nobody writes these elements meanwhile.
        unsafe { std::slice::from_raw_parts(first.cast::<f32>(), buffer.len) }
    }

    /// `buffer` on this device, for tiles that write disjoint parts of it.
    pub fn out(&self, buffer: BufferRef) -> Out<'a, f32> {
        self.out_on(self.device, buffer)
    }

    /// `buffer` on `device`, a peer in a collective, for tiles that write disjoint parts of it.
    pub fn out_on(&self, device: usize, buffer: BufferRef) -> Out<'a, f32> {
        let first = self.first(device, buffer, Access::Write, &WORDS);
        // SAFETY: inside the arena as checked; the queues let only this command touch the buffer now, and an operation's
        // tiles write disjoint parts of it.
        unsafe { Out::shared(first.cast::<f32>(), buffer.len) }
    }

    /// `buffer` on this device as integers, for tiles that write disjoint parts of it.
    pub fn out_u32(&self, buffer: BufferRef) -> Out<'a, u32> {
        let first = self.first(self.device, buffer, Access::Write, &WORDS);
        // SAFETY: as in `out_on`.
        unsafe { Out::shared(first.cast::<u32>(), buffer.len) }
    }

    /// The elements `from..from + len` of `buffer` on this device, which this tile alone writes.
    pub fn write(&self, buffer: BufferRef, from: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: an operation's tiles write disjoint parts of its outputs, and each tile takes a part once.
        unsafe { self.out(buffer).slice(from, len) }
    }

    /// The elements `from..from + len` of `buffer` on `device`, which this tile alone writes.
    pub fn write_on(&self, device: usize, buffer: BufferRef, from: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: as in `write`.
        unsafe { self.out_on(device, buffer).slice(from, len) }
    }

    /// As [`Place::write`], for integers.
    pub fn write_u32(&self, buffer: BufferRef, from: usize, len: usize) -> &'a mut [u32] {
        // SAFETY: as in `write`.
        unsafe { self.out_u32(buffer).slice(from, len) }
    }

    /// The address of the buffer's first element, which is aligned for it: arenas are, and offsets count elements.
    fn first(&self, device: usize, buffer: BufferRef, access: Access, dtypes: &[Dtype]) -> *mut u8 {
        if cfg!(debug_assertions) {
            self.check_declared(device, buffer, access);
        }
        assert!(
            dtypes.contains(&buffer.dtype),
            "bug in unisono: {} touches {buffer:?}, whose elements are {}, as {dtypes:?}",
            self.op.name(),
            buffer.dtype.name()
        );
        let arena = self.arenas[self.view.device(device)];
        let size = buffer.dtype.bytes();
        let end = buffer.offset.checked_add(buffer.len);
        assert!(
            end.is_some_and(|end| end <= 4 / size * arena.len),
            "bug in unisono: {buffer:?} lies outside the arena of {} words",
            arena.len
        );
        // SAFETY: inside the arena, as just checked.
        unsafe { arena.base.cast::<u8>().add(size * buffer.offset) }
    }

    /// What an operation writes it may also read: whoever must be waited for by a writer includes whoever a reader waits for.
    fn check_declared(&self, device: usize, buffer: BufferRef, access: Access) {
        let mut declared = false;
        let mut see = |known: BufferRef| {
            let end = known.offset + known.len;
            declared |= known.id == buffer.id
                && known.dtype == buffer.dtype
                && known.offset <= buffer.offset
                && buffer.offset + buffer.len <= end;
        };
        self.op.writes(&mut see);
        if access == Access::Read {
            self.op.reads(&mut see);
        }
        assert!(
            declared && (device == self.device || self.op.group().is_some()),
            "bug in unisono: {} touches {buffer:?} ({access:?}) of device {device} on device {} without having declared it",
            self.op.name(),
            self.device
        );
    }
}

/// What four bytes may be.
const WORDS: [Dtype; 2] = [Dtype::F32, Dtype::U32];

/// What a tile wants to do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}
