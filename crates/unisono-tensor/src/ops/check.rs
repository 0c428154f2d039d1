//! Checks that several operations share: shapes and placements that fit.

use super::{same_device, shape};
use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Dtype, Tensor};
use unisono_mesh::Placement;

/// Fails where the gradient of `weight`, a sum over all rows of `x`, would miss rows: those of a cut dimension other than the
/// batch stay on their devices.
pub(crate) fn batch_only(op: &'static str, x: &Tensor, weight: &Tensor) -> Result<()> {
    let device = x.device();
    if !weight.needs_grad() || !device.grad_enabled() {
        return Ok(());
    }
    let batch = x.batch_rows().axis.map(|axis| axis.index);
    for (index, (px, pw)) in x.placements().iter().zip(weight.placements()).enumerate() {
        if let (Placement::Shard(dim), Placement::Replicate) = (px, pw)
            && (*dim != 0 || batch != Some(index))
        {
            let axis = device.axis_name(index);
            return Err(TensorError::Placement {
                op,
                found: format!(
                    "the input {:?} is {px}, and the weight {:?} whose gradient sums over it is Replicate",
                    x.shape(),
                    weight.shape()
                ),
                rule: format!(
                    "that sum is built for dimension 0 only: call all_gather(\"{axis}\", {dim}, …) on the input first"
                ),
                axis,
            });
        }
    }
    Ok(())
}

/// Fails where the last dimension is cut, or is not there.
pub(crate) fn whole_last(op: &'static str, x: &Tensor) -> Result<()> {
    match x.rank() {
        0 => Err(TensorError::Argument {
            op,
            what: "a scalar was given; a tensor with at least one dimension is needed".into(),
        }),
        rank => shape::uncut(op, x, rank - 1),
    }
}

/// Fails where there is not one target for each row of `x`, on the same device.
pub(crate) fn check_targets(op: &'static str, x: &Tensor, targets: &Tensor) -> Result<()> {
    same_device(op, x, targets)?;
    x.expect_float(op)?;
    targets.expect_dtype(op, Dtype::U32)?;
    if x.rank() > 0 && targets.local_shape() == &x.local_shape()[..x.rank() - 1] {
        let rows = |p: &Placement| {
            if *p == Placement::Shard(x.rank() - 1) {
                Placement::Replicate
            } else {
                *p
            }
        };
        let pairs = x.placements().iter().map(rows).zip(targets.placements());
        return match pairs.enumerate().find(|(_, (rows, targets))| rows != *targets) {
            None => Ok(()),
            Some((index, (rows, found))) => Err(TensorError::Placement {
                op,
                axis: x.device().axis_name(index),
                found: format!(
                    "the rows of the input {:?} are {rows} and the targets {:?} are {found}",
                    x.shape(),
                    targets.shape()
                ),
                rule: "each row's target must lie on the same device: make both with batch(), or scatter the targets"
                    .into(),
            }),
        };
    }
    Err(TensorError::Shape {
        op,
        found: format!(
            "an input of shape {:?} and targets of shape {:?}",
            x.shape(),
            targets.shape()
        ),
        rule: "there must be one target for each row of the input".into(),
    })
}

/// Fails where an input and a fused head do not lie so that each device can make its own part of the logits.
pub(crate) fn check_head(op: &'static str, x: &Tensor, head: &Tensor) -> Result<()> {
    for (index, (px, ph)) in x.placements().iter().zip(head.placements()).enumerate() {
        let fits = match (px, ph) {
            (Placement::Replicate, head) => *head != Placement::Shard(1),
            (input, head) => *input == Placement::Shard(0) && head.is_replicate(),
        };
        if !fits {
            return Err(TensorError::Placement {
                op,
                axis: x.device().axis_name(index),
                found: format!(
                    "the input {:?} is {px} and the head {:?} is {ph}",
                    x.shape(),
                    head.shape()
                ),
                rule: "a replicated input takes a head that is Replicate or Shard(0), an input that is Shard(0) a \
                       replicated head; all_gather what is cut otherwise"
                    .into(),
            });
        }
    }
    Ok(())
}

/// Fails where `residual` cannot be added to `y` element by element as it lies.
pub(crate) fn check_residual(op: &'static str, y: &Tensor, residual: &Tensor) -> Result<()> {
    same_device(op, y, residual)?;
    residual.complete(op, "the residual")?;
    y.expect_same_dtype(op, residual)?;
    if residual.local_shape() != y.local_shape() || residual.placements() != y.placements() {
        return Err(TensorError::Shape {
            op,
            found: format!("{y:?} and {residual:?}"),
            rule: "both must have the same shape and placements".into(),
        });
    }
    Ok(())
}
