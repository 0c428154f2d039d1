//! Dropout keyed by the global element.

use super::{Region, bytes, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::dropout::{dropout, dropout_add};
use unisono_kernels::philox::Stream;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to = dropout(x)`, or `residual + dropout(x)`: kept elements times 1/(1 − p). The gradient is the same command on the
/// gradient. The buffers are of one kind, f32 or bf16.
#[derive(Clone, Debug)]
pub struct Dropout {
    /// Argument.
    pub x: BufferRef,
    /// Added to the result.
    pub residual: Option<BufferRef>,
    /// Result.
    pub to: BufferRef,
    /// Where the shard lies in the global tensor.
    pub region: Region,
    /// Seed, site and step.
    pub stream: Stream,
    /// Probability that an element is dropped.
    pub p: f32,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        self.residual.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let residual = self.residual.map_or(0, |residual| bytes(&[residual]));
        Cost {
            flops: 2 * self.x.len as u64,
            bytes: residual + bytes(&[self.x, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.region.rows(), self.region.dims[2].local)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        for row in tile_rows(tile, self.region.rows(), self.region.dims[2].local) {
            let run = self.region.row(place.device, row);
            let range = run.local..run.local + run.len;
            let x = place.floats(self.x).range(range.clone());
            let to = place.write_floats(self.to, run.local, run.len);
            match self.residual {
                Some(residual) => {
                    let residual = place.floats(residual).range(range);
                    dropout_add(scratch.isa(), &self.stream, run.global, self.p, x, residual, to);
                }
                None => dropout(scratch.isa(), &self.stream, run.global, self.p, x, to),
            }
        }
    }
}
