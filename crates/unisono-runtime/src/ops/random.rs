//! Random fills by global element.

use super::{Region, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::philox::Stream;
use unisono_kernels::random::{fill_normal, fill_uniform};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// What the draws are distributed like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform in [low, high).
    Uniform {
        /// Lower bound.
        low: f32,
        /// Upper bound.
        high: f32,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f32,
        /// Standard deviation.
        std: f32,
    },
}

/// `to` = random numbers keyed by the element's place in the global tensor, so that the mesh cannot change them; padding
/// is zero.
#[derive(Clone, Debug)]
pub struct FillRandom {
    /// The shard that is filled.
    pub to: BufferRef,
    /// Where the shard lies.
    pub region: Region,
    /// Seed, site and step.
    pub stream: Stream,
    /// Distribution of the draws.
    pub distribution: Distribution,
}

impl Op for FillRandom {
    fn name(&self) -> &'static str {
        "fill_random"
    }

    fn reads(&self, _see: &mut dyn FnMut(BufferRef)) {}

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: super::bytes(&[self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.region.rows(), self.region.dims[2].local)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        for row in tile_rows(tile, self.region.rows(), self.region.dims[2].local) {
            let run = self.region.row(place.device, row);
            let out = place.write(self.to, run.local, run.len);
            let (real, padding) = out.split_at_mut(run.valid);
            match self.distribution {
                Distribution::Uniform { low, high } => fill_uniform(&self.stream, run.global, low, high, real),
                Distribution::Normal { mean, std } => fill_normal(&self.stream, run.global, mean, std, real),
            }
            padding.fill(0.0);
        }
    }
}
