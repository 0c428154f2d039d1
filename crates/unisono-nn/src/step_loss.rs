//! The loss of an optimizer step: one number a sequence, gathered and summed in the order of the sequences.

use crate::Result;
use unisono_kernels::order::Units;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::gather::AllGather;
use unisono_runtime::ops::reduce::{Move, VectorSum};
use unisono_tensor::{MeshDevice, Rows, Tensor};

/// Collects the sequences' losses of all micro-batches of a step.
pub struct StepLoss {
    device: MeshDevice,
    rows: Rows,
    share: Tensor,
    all: Tensor,
    total: Tensor,
}

impl StepLoss {
    /// For steps of `rows.total` sequences.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(device: &MeshDevice, rows: Rows) -> Result<StepLoss> {
        Ok(StepLoss {
            device: device.clone(),
            rows,
            share: device.zeros(&[rows.per_position()])?,
            all: device.zeros(&[rows.total])?,
            total: device.zeros(&[1])?,
        })
    }

    /// Takes the losses [sequences on a device] of the micro-batch that `rows` describes.
    ///
    /// # Errors
    /// An earlier command that failed.
    pub fn put(&self, losses: &Tensor, rows: &Rows) -> Result<()> {
        let to = self.share.buffer().part(rows.skip, rows.count);
        Ok(self.device.runtime().issue(Move {
            from: losses.buffer(),
            to,
        })?)
    }

    /// `scale` times the sum over all sequences of the step, `[1]`, on every device.
    ///
    /// # Errors
    /// An earlier command that failed.
    pub fn total(&self, scale: f32) -> Result<&Tensor> {
        let runtime = self.device.runtime();
        let all = match self.rows.axis {
            None => &self.share,
            Some(axis) => {
                let (from, to) = (self.share.buffer(), self.all.buffer());
                runtime.issue(AllGather {
                    axis,
                    root: None,
                    outer: 1,
                    inner: from.len,
                    from,
                    to,
                })?;
                &self.all
            }
        };
        let sum = SumShare::whole(Units {
            count: self.rows.total,
            len: 1,
        });
        runtime.issue(VectorSum {
            x: all.buffer(),
            sum,
            to: self.total.buffer(),
            slot: 1,
            scale,
        })?;
        Ok(&self.total)
    }
}
