//! Collectives that move values without adding them: all-gather, gather, scatter, broadcast, select.
//!
//! Source and destination of each are of one kind; what the elements are plays no part.

use super::all_reduce::{here, members};
use super::{chunk, chunks, part_tiles, row_tiles, tile_parts, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use unisono_kernels::scratch::Scratch;
use unisono_kernels::stream;
use unisono_mesh::schedule::Collective;
use unisono_mesh::{AxisHandle, Mesh};

/// Results of this many bytes on each device go past the caches, which do not hold them.
const STREAMED: u64 = 8 << 20;

/// `to[o][i][..] = member i's from[o][..]`: a dimension grows by the number of devices on the axis, in axis order.
#[derive(Clone, Debug)]
pub struct AllGather {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// The only member that gets the result, where not all do.
    pub root: Option<usize>,
    /// Product of the dimensions before the gathered one.
    pub outer: usize,
    /// Elements of one device's gathered dimension and those after it.
    pub inner: usize,
    /// `outer × inner` elements.
    pub from: BufferRef,
    /// `outer × axis.size × inner` elements.
    pub to: BufferRef,
}

impl Op for AllGather {
    fn name(&self) -> &'static str {
        "all_gather"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn sends(&self, _source: usize, target: usize) -> bool {
        self.root.is_none_or(|root| root == target)
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        let collective = match self.root {
            Some(root) => Collective::Gather { root },
            None => Collective::AllGather,
        };
        Some((collective, self.axis.size as u64 * self.from.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let n = self.axis.size as u64;
        let part = (self.from.dtype.bytes() * self.outer * self.inner) as u64;
        Cost {
            flops: 0,
            bytes: part * (n + 1),
            link_bytes: if self.root.is_some() { part } else { part * (n - 1) },
        }
    }

    fn tiles(&self) -> usize {
        part_tiles(self.outer, self.inner, self.axis.size)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let width = self.inner * self.axis.size;
        let size = self.from.dtype.bytes();
        let streams = self.to.bytes() >= STREAMED;
        for (row, part) in tile_parts(tile, self.outer, self.inner, self.axis.size) {
            for (i, source) in members(self.axis, place.device).enumerate() {
                let first = row * self.inner;
                let from = &place.u8_on(source, self.from)[size * (first + part.start)..size * (first + part.end)];
                for (j, device) in here(place, self.axis) {
                    if self.root.is_none_or(|root| root == j) {
                        let to =
                            place.write_u8_on(device, self.to, row * width + i * self.inner + part.start, part.len());
                        match streams {
                            true => stream::copy(scratch.isa(), to, from),
                            false => to.copy_from_slice(from),
                        }
                    }
                }
            }
        }
    }
}

/// One tile of a move of whole values: what member `i` of the group gets in the second buffer is what member `sender(i)` has in the
/// first.
pub(super) fn carry(
    place: &Place<'_>,
    tile: usize,
    axis: AxisHandle,
    [from, to]: [BufferRef; 2],
    sender: impl Fn(usize) -> usize,
) {
    let range = chunk(tile, from.len);
    let size = from.dtype.bytes();
    for (i, receiver) in here(place, axis) {
        let source = place.u8_on(place.device + sender(i) * axis.stride, from);
        place
            .write_u8_on(receiver, to, range.start, range.len())
            .copy_from_slice(&source[size * range.start..size * range.end]);
    }
}

/// `to[o][..] = from[o][own position][..]`: each device keeps its part of a dimension. Nothing is sent.
#[derive(Clone, Debug)]
pub struct TakePart {
    /// The axis along which the dimension is dealt out.
    pub axis: AxisHandle,
    /// Product of the dimensions before it.
    pub outer: usize,
    /// Elements of one device's part and of the dimensions after it.
    pub inner: usize,
    /// `outer × axis.size × inner` elements.
    pub from: BufferRef,
    /// `outer × inner` elements.
    pub to: BufferRef,
}

impl Op for TakePart {
    fn name(&self) -> &'static str {
        "take_part"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: (2 * self.from.dtype.bytes() * self.outer * self.inner) as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        part_tiles(self.outer, self.inner, 1)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let position = super::position(Some(self.axis), place.device);
        let width = self.inner * self.axis.size;
        let size = self.from.dtype.bytes();
        for (row, part) in tile_parts(tile, self.outer, self.inner, 1) {
            let at = row * width + position * self.inner + part.start;
            place
                .write_u8_on(place.device, self.to, row * self.inner + part.start, part.len())
                .copy_from_slice(&place.u8(self.from)[size * at..size * (at + part.len())]);
        }
    }
}

/// `to[o][..] on member i = member root's from[o][i][..]`: the root deals out a dimension.
#[derive(Clone, Debug)]
pub struct Scatter {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// Position of the sender on the axis.
    pub root: usize,
    /// Product of the dimensions before the one that is dealt out.
    pub outer: usize,
    /// Elements of one device's part of it and those after it.
    pub inner: usize,
    /// `outer × axis.size × inner` elements.
    pub from: BufferRef,
    /// `outer × inner` elements.
    pub to: BufferRef,
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn sends(&self, source: usize, _target: usize) -> bool {
        source == self.root
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        Some((Collective::Scatter { root: self.root }, self.from.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let bytes = self.to.bytes();
        Cost {
            flops: 0,
            bytes: 2 * bytes,
            link_bytes: bytes,
        }
    }

    fn tiles(&self) -> usize {
        part_tiles(self.outer, self.inner, self.axis.size)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let width = self.inner * self.axis.size;
        let size = self.from.dtype.bytes();
        let from = place.u8_on(place.device + self.root * self.axis.stride, self.from);
        for (row, part) in tile_parts(tile, self.outer, self.inner, self.axis.size) {
            for (i, device) in here(place, self.axis) {
                let at = size * (row * width + i * self.inner + part.start);
                place
                    .write_u8_on(device, self.to, row * self.inner + part.start, part.len())
                    .copy_from_slice(&from[at..at + size * part.len()]);
            }
        }
    }
}

/// `to = member root's from` on every device of the group.
#[derive(Clone, Debug)]
pub struct Broadcast {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// Position of the sender on the axis.
    pub root: usize,
    /// What is sent.
    pub from: BufferRef,
    /// Where it goes; another buffer, as long.
    pub to: BufferRef,
}

impl Op for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn sends(&self, source: usize, _target: usize) -> bool {
        source == self.root
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        Some((Collective::Broadcast { root: self.root }, self.from.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let bytes = self.from.bytes();
        Cost {
            flops: 0,
            bytes: 2 * bytes,
            link_bytes: bytes,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.from.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        carry(place, tile, self.axis, [self.from, self.to], |_| self.root);
    }
}

/// `to[row] = owner's from[row]`, the owner of id `i` being position `i / shard`: a lookup in a sharded table is a select
/// from the owner, never a sum with zeros. Ids that nobody owns give zeros.
#[derive(Clone, Debug)]
pub struct SelectRows {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// Ids that one position owns.
    pub shard: usize,
    /// One id a row.
    pub ids: BufferRef,
    /// Elements of a row.
    pub cols: usize,
    /// Rows as each device looked them up.
    pub from: BufferRef,
    /// Rows of the owners; another buffer, as long.
    pub to: BufferRef,
}

impl Op for SelectRows {
    fn name(&self) -> &'static str {
        "select_rows"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.ids);
        see(self.from);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        // Every device's rows, from their owners to all: as much as all-gathering equal shares would carry.
        Some((Collective::AllGather, self.to.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let bytes = self.to.bytes();
        let n = self.axis.size as u64;
        Cost {
            flops: 0,
            bytes: 2 * bytes,
            link_bytes: bytes * (n - 1) / n,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.ids.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let ids = place.u32(self.ids);
        for row in tile_rows(tile, self.ids.len, self.cols) {
            let (at, owner) = (row * self.cols, ids[row] as usize / self.shard);
            for (_, device) in here(place, self.axis) {
                let mut to = place.write_floats_on(device, self.to, at, self.cols);
                if owner < self.axis.size {
                    let source = place.device + owner * self.axis.stride;
                    to.copy_from(place.floats_on(source, self.from).range(at..at + self.cols));
                } else {
                    to.fill(0.0);
                }
            }
        }
    }
}
