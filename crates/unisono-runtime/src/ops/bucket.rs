//! Several all-reduces as one command: gradients are summed by the bucket, so that processes meet seldom.

use super::all_reduce::AllReduce;
use crate::buffer::BufferRef;
use crate::command::{Cost, Group, Op};
use crate::place::Place;
use std::sync::Arc;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;
use unisono_mesh::schedule::Collective;

/// All-reduces over the same devices, each of its own buffers.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// At least one.
    pub parts: Arc<[AllReduce]>,
}

/// Which part of a command a tile belongs to, and which of its tiles it is; the parts have so many tiles each.
pub(crate) fn part_of(mut tile: usize, tiles: impl Iterator<Item = usize>) -> (usize, usize) {
    for (index, count) in tiles.enumerate() {
        if tile < count {
            return (index, tile);
        }
        tile -= count;
    }
    unreachable!("bug in unisono: tile {tile} beyond the last part")
}

impl Op for Bucket {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        self.parts.iter().for_each(|part| part.reads(see));
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        self.parts.iter().for_each(|part| part.writes(see));
    }

    fn group(&self) -> Option<Group> {
        self.parts.first().and_then(Op::group)
    }

    fn collective(&self) -> Option<(Collective, u64)> {
        let (kind, _) = self.parts.first()?.collective()?;
        let payloads = self.parts.iter().filter_map(Op::collective).map(|(_, payload)| payload);
        Some((kind, payloads.sum()))
    }

    fn cost(&self, mesh: &Mesh) -> Cost {
        let mut sum = Cost::default();
        for cost in self.parts.iter().map(|part| part.cost(mesh)) {
            sum.flops += cost.flops;
            sum.bytes += cost.bytes;
            sum.link_bytes += cost.link_bytes;
        }
        sum
    }

    fn tiles(&self) -> usize {
        self.parts.iter().map(Op::tiles).sum()
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let (part, tile) = part_of(tile, self.parts.iter().map(Op::tiles));
        self.parts[part].run(place, tile, scratch);
    }
}
