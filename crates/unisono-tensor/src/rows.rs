//! How the leading dimension of a tensor lies in the optimizer step's batch.

use unisono_kernels::order::{Tree, Units};
use unisono_mesh::AxisHandle;
use unisono_runtime::ops::SumShare;

/// The sequences (or samples) of a micro-batch within the batch of the whole optimizer step.
///
/// Each position of the data-parallel axis owns consecutive sequences of the step's batch; accumulation walks inside that
/// share. Sums over the batch follow the canonical tree over all `total` sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Sequences of the whole optimizer step, over all devices.
    pub total: usize,
    /// The axis that they are dealt out along.
    pub axis: Option<AxisHandle>,
    /// Sequences of each device's share that earlier micro-batches held.
    pub skip: usize,
    /// Sequences that this micro-batch holds on each device.
    pub count: usize,
}

impl Rows {
    /// A batch that is one micro-batch: `total` sequences dealt out along `axis`.
    pub fn whole(total: usize, axis: Option<AxisHandle>) -> Rows {
        Rows {
            total,
            axis,
            skip: 0,
            count: total / axis.map_or(1, |axis| axis.size),
        }
    }

    /// Sequences that one device owns in the whole step.
    pub fn per_position(&self) -> usize {
        self.total / self.axis.map_or(1, |axis| axis.size)
    }

    /// Whether this micro-batch is all of the step's batch.
    pub fn is_whole(&self) -> bool {
        self.skip == 0 && self.count == self.per_position()
    }

    /// The sum over all rows of a tensor whose sequences have `len` rows each.
    pub fn sum(&self, len: usize) -> SumShare {
        SumShare {
            units: Units { count: self.total, len },
            axis: self.axis,
            per_position: self.per_position(),
            skip: self.skip,
            count: self.count,
        }
    }

    /// Slots that any device needs after `done` sequences of its share were pushed.
    pub fn slots_after(&self, done: usize) -> usize {
        let tree = Tree::over_units(self.total);
        let each = self.per_position();
        let positions = self.axis.map_or(1, |axis| axis.size);
        (0..positions)
            .map(|i| tree.num_spans(i * each, i * each + done))
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// Most slots that any device needs while micro-batches of `step` sequences are pushed on its stack.
    ///
    /// Of very many micro-batches or devices only the first and last are looked at: an accumulator that turns out too small
    /// grows.
    pub fn slots(&self, step: usize) -> usize {
        let tree = Tree::over_units(self.total);
        let each = self.per_position();
        let step = step.max(1);
        let positions = self.axis.map_or(1, |axis| axis.size);
        ends(positions)
            .flat_map(|i| {
                let open = i * each;
                ends(each.div_ceil(step)).map(move |k| (open, open + ((k + 1) * step).min(each)))
            })
            .map(|(open, end)| tree.num_spans(open, end))
            .max()
            .unwrap_or(1)
            .max(1)
    }
}

/// Positions that [`Rows::slots`] looks at from either end.
const LOOKED_AT: usize = 256;

/// 0, 1, … from both ends of `0..n`.
fn ends(n: usize) -> impl Iterator<Item = usize> {
    let first = n.min(LOOKED_AT);
    (0..first).chain(first.max(n.saturating_sub(LOOKED_AT))..n)
}
