//! Negative log-likelihood of targets under given log-probabilities.

use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `loss[r] = −log_probs[r][targets[r]]`, 0 where masked; or, with `gradient`, what flows back:
/// `gradient[r][c] = −d_loss[r]` at the target and 0 elsewhere.
#[derive(Clone, Debug)]
pub struct Nll {
    /// Rows of log-probabilities (their gradient, where `backward`).
    pub log_probs: BufferRef,
    /// Columns of a row.
    pub cols: usize,
    /// Target ids, `u32::MAX` where masked.
    pub targets: BufferRef,
    /// One value a row (the gradient of the loss, where `backward`).
    pub loss: BufferRef,
    /// Whether `log_probs` is written from `loss`, and not `loss` from `log_probs`.
    pub backward: bool,
}

impl Op for Nll {
    fn name(&self) -> &'static str {
        "nll"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.targets);
        see(if self.backward { self.loss } else { self.log_probs });
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(if self.backward { self.log_probs } else { self.loss });
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 0,
            bytes: super::bytes(&[self.log_probs]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        super::row_tiles(self.targets.len, self.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let targets = place.u32(self.targets);
        for row in super::tile_rows(tile, self.targets.len, self.cols) {
            let target = targets[row] as usize;
            if self.backward {
                let gradient = place.write(self.log_probs, row * self.cols, self.cols);
                gradient.fill(0.0);
                if target < self.cols {
                    gradient[target] = 0.0 - place.f32(self.loss)[row];
                }
            } else {
                let loss = if target < self.cols {
                    0.0 - place.f32(self.log_probs)[row * self.cols + target]
                } else {
                    0.0
                };
                place.write(self.loss, row, 1)[0] = loss;
            }
        }
    }
}
