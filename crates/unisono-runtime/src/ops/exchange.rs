//! Collectives in which every device sends something else to each: all-to-all, shift, point-to-point, and the barrier.
//!
//! What the elements are plays no part.

use super::all_reduce::{here, members};
use super::gather::carry;
use super::{chunks, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::schedule::Collective;
use unisono_mesh::{AxisHandle, Mesh};

/// Each device cuts a dimension into as many parts as there are devices on the axis, sends the j-th to member j, and joins what
/// it gets from member i as the i-th part of another dimension (or the same).
///
/// Elements are walked as `[a][b][c][run]`, for one pair of sender and receiver.
#[derive(Clone, Debug)]
pub struct AllToAll {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// Extents of the loops around a run.
    pub extents: [usize; 3],
    /// Elements that lie side by side on both sides.
    pub run: usize,
    /// Elements from one turn of each loop to the next in `from`.
    pub from_strides: [usize; 3],
    /// The same in `to`.
    pub to_strides: [usize; 3],
    /// Elements from the part for one receiver to that for the next in `from`.
    pub from_part: usize,
    /// Elements from the part of one sender to that of the next in `to`.
    pub to_part: usize,
    /// What is sent.
    pub from: BufferRef,
    /// Where it goes; another buffer, as long and of the same kind.
    pub to: BufferRef,
}

impl AllToAll {
    fn rows(&self) -> usize {
        self.extents.iter().product()
    }

    /// First elements of a row in `from` and in `to`.
    fn row(&self, row: usize) -> [usize; 2] {
        let [_, b, c] = self.extents;
        let at = [row / (b * c), row / c % b, row % c];
        [self.from_strides, self.to_strides].map(|strides| at.iter().zip(strides).map(|(i, stride)| i * stride).sum())
    }
}

impl Op for AllToAll {
    fn name(&self) -> &'static str {
        "all_to_all"
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

    fn collective(&self) -> Option<(Collective, u64)> {
        Some((Collective::AllToAll, self.from.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let (n, bytes) = (self.axis.size as u64, self.from.bytes());
        Cost {
            flops: 0,
            bytes: 2 * bytes,
            link_bytes: bytes * (n - 1) / n,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.rows(), self.run * self.axis.size)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let size = self.from.dtype.bytes();
        for row in tile_rows(tile, self.rows(), self.run * self.axis.size) {
            let [from_row, to_row] = self.row(row);
            for (i, sender) in members(self.axis, place.device).enumerate() {
                let source = place.u8_on(sender, self.from);
                for (j, receiver) in here(place, self.axis) {
                    let at = size * (from_row + j * self.from_part);
                    place
                        .write_u8_on(receiver, self.to, to_row + i * self.to_part, self.run)
                        .copy_from_slice(&source[at..at + size * self.run]);
                }
            }
        }
    }
}

/// `to on member (i + by) mod n = from on member i`.
#[derive(Clone, Debug)]
pub struct Shift {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// Places that each value moves forward, below the size of the axis.
    pub by: usize,
    /// What is sent.
    pub from: BufferRef,
    /// Where it goes; another buffer, as long and of the same kind.
    pub to: BufferRef,
}

impl Op for Shift {
    fn name(&self) -> &'static str {
        "shift"
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

    fn sends(&self, source: usize, target: usize) -> bool {
        (source + self.by) % self.axis.size == target
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        let (by, n) = (self.by as isize, self.axis.size as isize);
        // The shorter way round.
        let by = if 2 * by > n { by - n } else { by };
        Some((Collective::Shift { by }, self.from.bytes()))
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
        let n = self.axis.size;
        carry(place, tile, self.axis, [self.from, self.to], |i| (i + n - self.by) % n);
    }
}

/// `to on member target = from on member source`; every other member keeps its own value.
#[derive(Clone, Debug)]
pub struct PointToPoint {
    /// The devices that meet.
    pub axis: AxisHandle,
    /// Position of the sender on the axis.
    pub source: usize,
    /// Position of the receiver on the axis.
    pub target: usize,
    /// What is sent.
    pub from: BufferRef,
    /// Where it goes; another buffer, as long and of the same kind.
    pub to: BufferRef,
}

impl Op for PointToPoint {
    fn name(&self) -> &'static str {
        "point_to_point"
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

    fn sends(&self, source: usize, target: usize) -> bool {
        (source, target) == (self.source, self.target)
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        let (from, to) = (self.source, self.target);
        Some((Collective::PointToPoint { from, to }, self.from.bytes()))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let bytes = self.from.bytes();
        Cost {
            flops: 0,
            bytes: 2 * bytes,
            link_bytes: if self.source == self.target { 0 } else { bytes },
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.from.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let sender = |i| if i == self.target { self.source } else { i };
        carry(place, tile, self.axis, [self.from, self.to], sender);
    }
}

/// No device of the group goes on before all have come.
#[derive(Clone, Debug)]
pub struct Barrier {
    /// The devices that meet.
    pub axis: AxisHandle,
}

impl Op for Barrier {
    fn name(&self) -> &'static str {
        "barrier"
    }

    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn writes(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn group(&self) -> Option<Group> {
        Some(Group::Along(self.axis))
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        Some((Collective::Barrier, 0))
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, _place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {}
}
