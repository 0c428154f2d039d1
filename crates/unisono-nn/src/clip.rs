//! The global gradient norm, and clipping by it.
//!
//! Squared norms are taken by parameter: a tree over rows of trees over columns. On a mesh a parameter's cut dimension is
//! reduced over its axis, so every replica is counted once and every shard too. The parameters' numbers are added in an
//! order that depends on the model only: those whose rows are never cut, then the others, each in the table's order.

use crate::Result;
use crate::parameter::Parameter;
use unisono_runtime::ops::optimizer::{CONTROL, Control};
use unisono_runtime::ops::reduce::{RowSquares, VectorSum};
use unisono_runtime::{Buffer, BufferRef};
use unisono_tensor::ops::reduce::{reduce_shares, share_of};
use unisono_tensor::{Kind, MeshDevice, Tensor};

/// Works out norm, scale and permission of each update; see [`Control`].
pub struct GradientNorm {
    squares: Buffer,
    control: Buffer,
    max_norm: Option<f32>,
}

impl GradientNorm {
    /// For the parameters of one model; gradients of a norm above `max_norm` are scaled down to it.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(device: &MeshDevice, parameters: usize, max_norm: Option<f32>) -> Result<GradientNorm> {
        let runtime = device.runtime();
        let control = runtime.alloc(CONTROL, Kind::Optimizer)?;
        runtime.issue(unisono_runtime::ops::fill::Fill {
            to: control.r(),
            value: 1.0,
        })?;
        Ok(GradientNorm {
            squares: runtime.alloc(parameters.max(1), Kind::Optimizer)?,
            control,
            max_norm,
        })
    }

    /// Issues the commands for this step's gradients. Parameters without a gradient count as zero.
    ///
    /// # Errors
    /// A gradient whose sum is not complete.
    pub fn measure(&self, parameters: &[Parameter], loss: &Tensor) -> Result<()> {
        let runtime = loss.device().runtime();
        runtime.issue(unisono_runtime::ops::fill::Fill {
            to: self.squares.r(),
            value: 0.0,
        })?;
        let (cut, whole): (Vec<_>, Vec<_>) = parameters.iter().partition(|p| p.rows_can_be_cut());
        for (index, parameter) in whole.into_iter().chain(cut).enumerate() {
            if let Some(gradient) = parameter.tensor.grad()? {
                squared_norm(&parameter.tensor, &gradient, self.squares.r().part(index, 1))?;
            }
        }
        let loss = Some(loss.buffer());
        let squares = Some(self.squares.r().part(0, parameters.len()));
        Ok(runtime.issue(Control {
            squares,
            loss,
            max_norm: self.max_norm,
            to: self.control.r(),
        })?)
    }

    /// `[norm, scale, go, loss]` on every device.
    pub fn control(&self) -> BufferRef {
        self.control.r()
    }
}

/// `to = Σ gradient²`, complete on every device.
fn squared_norm(parameter: &Tensor, gradient: &Tensor, to: BufferRef) -> Result<()> {
    let device = parameter.device();
    let runtime = device.runtime();
    let local = gradient.local_shape();
    let (rows, columns_dim) = match local {
        [] => (1, None),
        [.., _] => (local[..local.len() - 1].iter().product(), Some(local.len() - 1)),
    };
    let columns = share_of("gradient norm", parameter, columns_dim)?;
    let row_share = share_of("gradient norm", parameter, if local.len() > 1 { Some(0) } else { None })?;
    let by_row = runtime.alloc(columns.slots * rows, Kind::Activation)?;
    runtime.issue(RowSquares {
        x: gradient.buffer(),
        rows,
        sum: columns.sum,
        to: by_row.r(),
    })?;
    reduce_shares(device, &columns, by_row.r(), rows)?;
    let total = runtime.alloc(row_share.slots, Kind::Activation)?;
    let x = by_row.r().part(0, rows);
    runtime.issue(VectorSum {
        x,
        sum: row_share.over_rows(rows),
        to: total.r(),
        slot: 1,
        scale: 1.0,
    })?;
    reduce_shares(device, &row_share, total.r(), 1)?;
    Ok(runtime.issue(unisono_runtime::ops::reduce::Move {
        from: total.r().part(0, 1),
        to,
    })?)
}
