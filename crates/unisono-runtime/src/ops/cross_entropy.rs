//! Cross-entropy over logits whose vocabulary may be sharded.
//!
//! One shard is the same code as several: maximum, sum of exponentials by units, target's logit, then loss and gradient.

use super::{SumShare, bytes, position, row_tiles, tile_rows};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::cast::cast;
use unisono_kernels::cross_entropy as kernel;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::{AxisHandle, Mesh};

/// How logits lie: rows of `cols` stored columns on each device, dealt out along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// Entries of the vocabulary; stored columns beyond them are padding.
    pub size: usize,
    /// Columns that each device stores.
    pub cols: usize,
    /// The axis that the vocabulary is sharded along.
    pub axis: Option<AxisHandle>,
}

impl Vocabulary {
    /// First vocabulary entry of a device.
    pub fn first(&self, device: usize) -> usize {
        position(self.axis, device) * self.cols
    }

    /// Columns of a device that are not padding.
    pub fn valid(&self, device: usize) -> usize {
        self.size.saturating_sub(self.first(device)).min(self.cols)
    }
}

/// Maximum of each row of the shard (−∞ where the shard holds only padding).
#[derive(Clone, Debug)]
pub struct LogitsMax {
    /// Rows of logits.
    pub logits: BufferRef,
    /// How they lie.
    pub vocabulary: Vocabulary,
    /// One value a row.
    pub max: BufferRef,
}

impl Op for LogitsMax {
    fn name(&self) -> &'static str {
        "logits_max"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.logits);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.max);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.logits.len as u64,
            bytes: bytes(&[self.logits]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.max.len, self.vocabulary.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let cols = self.vocabulary.cols;
        let rows = tile_rows(tile, self.max.len, cols);
        let logits = &place.f32(self.logits)[rows.start * cols..rows.end * cols];
        let valid = self.vocabulary.valid(place.device);
        kernel::row_max(
            scratch.isa(),
            logits,
            cols,
            valid,
            place.write(self.max, rows.start, rows.len()),
        );
    }
}

/// The spans of each row's Σ exp(logit − max), and the target's logit where this shard owns the target.
#[derive(Clone, Debug)]
pub struct LogitsSum {
    /// Rows of logits.
    pub logits: BufferRef,
    /// How they lie.
    pub vocabulary: Vocabulary,
    /// The rows' maxima over the whole vocabulary.
    pub max: BufferRef,
    /// Target ids, `u32::MAX` where masked.
    pub targets: BufferRef,
    /// Units of the vocabulary and this device's share.
    pub sum: SumShare,
    /// Slots of one value a row.
    pub sums: BufferRef,
    /// One value a row; 0 where the target is another shard's.
    pub target_logits: BufferRef,
}

impl Op for LogitsSum {
    fn name(&self) -> &'static str {
        "logits_sum"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.logits, self.max, self.targets] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.sums);
        see(self.target_logits);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 3 * self.logits.len as u64,
            bytes: bytes(&[self.logits]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.max.len, self.vocabulary.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let Vocabulary { cols, .. } = self.vocabulary;
        let (valid, first) = (self.vocabulary.valid(place.device), self.vocabulary.first(place.device));
        let rows = tile_rows(tile, self.max.len, cols);
        let logits = &place.f32(self.logits)[rows.start * cols..rows.end * cols];
        let max = &place.f32(self.max)[rows.clone()];
        let share = self.sum.at(place);
        kernel::row_sum_exp(
            scratch.isa(),
            logits,
            cols,
            valid,
            max,
            &share,
            place.out(self.sums),
            self.max.len,
            rows.start,
        );
        let targets = &place.u32(self.targets)[rows.clone()];
        let out = place.write(self.target_logits, rows.start, rows.len());
        kernel::target_logit(logits, cols, first as u32, valid, targets, out);
    }
}

/// Loss of each row, and the log of its sum of exponentials.
#[derive(Clone, Debug)]
pub struct TokenLoss {
    /// The rows' maxima.
    pub max: BufferRef,
    /// The rows' complete sums.
    pub sum: BufferRef,
    /// The targets' logits.
    pub target_logits: BufferRef,
    /// Target ids.
    pub targets: BufferRef,
    /// `max + ln(sum)`.
    pub lse: BufferRef,
    /// `lse − target's logit`; 0 where masked.
    pub loss: BufferRef,
}

impl Op for TokenLoss {
    fn name(&self) -> &'static str {
        "token_loss"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.max, self.sum, self.target_logits, self.targets] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.lse);
        see(self.loss);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 20 * self.max.len as u64,
            bytes: 6 * bytes(&[self.max]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, scratch: &mut Scratch) {
        let rows = self.max.len;
        kernel::loss(
            scratch.isa(),
            place.f32(self.max),
            &place.f32(self.sum)[..rows],
            place.f32(self.target_logits),
            place.u32(self.targets),
            place.write(self.lse, 0, rows),
            place.write(self.loss, 0, rows),
        );
    }
}

/// The gradient of logits: `(exp(l − lse) − [is target]) · scale`, 0 for masked rows and padding.
#[derive(Clone, Debug)]
pub struct LogitsGrad {
    /// Rows of logits.
    pub logits: BufferRef,
    /// Their gradients: the logits' own buffer, or another one of as many elements, in which bf16 is rounded once.
    pub to: BufferRef,
    /// How they lie.
    pub vocabulary: Vocabulary,
    /// The rows' log-sums.
    pub lse: BufferRef,
    /// Target ids.
    pub targets: BufferRef,
    /// One over the number of targets of the whole optimizer step.
    pub scale: f32,
}

impl Op for LogitsGrad {
    fn name(&self) -> &'static str {
        "logits_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.logits, self.lse, self.targets] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 4 * self.logits.len as u64,
            bytes: bytes(&[self.logits, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        row_tiles(self.lse.len, self.vocabulary.cols)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let Vocabulary { cols, .. } = self.vocabulary;
        let (valid, first) = (self.vocabulary.valid(place.device), self.vocabulary.first(place.device));
        let rows = tile_rows(tile, self.lse.len, cols);
        let (from, len) = (rows.start * cols, rows.len() * cols);
        let lse = &place.f32(self.lse)[rows.clone()];
        let targets = &place.u32(self.targets)[rows];
        let (isa, scale) = (scratch.isa(), self.scale);
        let gradient = |logits: &mut [f32]| {
            kernel::logits_grad(isa, logits, cols, valid, first as u32, lse, targets, scale);
        };
        if self.to == self.logits {
            return gradient(place.write(self.to, from, len));
        }
        // A tile fits the cache, so making it there first costs next to nothing.
        let tile = scratch.floats(len);
        tile.copy_from_slice(&place.f32(self.logits)[from..from + len]);
        gradient(tile);
        cast(isa, &*tile, place.write_floats(self.to, from, len));
    }
}
