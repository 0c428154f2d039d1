//! Communication, with the gradients of COMPATIBILITY §4.2 in their newest form.
//!
//! Each takes the name of a mesh axis; where the mesh has no such axis, or one of a single device, there is nothing to do.

use crate::error::TensorError;
use crate::tensor::{Dtype, Meta, PartialSum, Tensor};
use crate::{MeshDevice, Result};
use unisono_mesh::{AxisHandle, Placement};
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::gather::{AllGather, Broadcast, TakePart};
use unisono_runtime::ops::reduce_scatter::ReduceScatter;

impl Tensor {
    /// Completes a partial sum over `axis`: every device gets the whole sum, in canonical order, rounded once to the kind of
    /// the product that it comes from. The gradient is the identity.
    ///
    /// # Errors
    /// A tensor that is no partial sum over this axis.
    pub fn all_reduce(&self, axis: &str) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        let y = finish_partial("all_reduce", self, axis)?;
        Ok(y.record("all_reduce", &[self], |dy| Ok(vec![Some(dy.clone())])))
    }

    /// As [`Tensor::all_reduce`], but the complete sum stays f32: for a bias that is to be added before the rounding, as the
    /// product on a single device does. Without the axis the sum has been rounded already, so the bias belongs into
    /// [`Tensor::linear`] there.
    ///
    /// # Errors
    /// A tensor that is no partial sum over this axis.
    pub fn all_reduce_f32(&self, axis: &str) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        let y = finish_in("all_reduce_f32", self, axis, Some(Dtype::F32))?;
        Ok(y.record("all_reduce_f32", &[self], |dy| Ok(vec![Some(dy.clone())])))
    }

    /// The identity on a replicated tensor whose gradient will be a partial sum over `axis`: put it before sharded weights.
    /// The gradient is completed by an all-reduce.
    ///
    /// # Errors
    /// A tensor that is not replicated along this axis.
    pub fn broadcast(&self, axis: &str) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        expect(
            self,
            "broadcast",
            axis.index,
            |p| p == Placement::Replicate,
            "it must be Replicate; all_gather makes it so",
        )?;
        Ok(self.detach().record_node("broadcast", &[self], true, false, move |dy| {
            let complete = match dy.placements()[axis.index] {
                Placement::Partial => finish_partial("broadcast", dy, axis)?,
                _ => dy.clone(),
            };
            Ok(vec![Some(complete)])
        }))
    }

    /// Every device gets the shards of all devices on `axis`, joined in `dim` in axis order. With `replicated_gradient`
    /// the gradient of the result is known to be the same on every device (its loss is computed everywhere) and each takes
    /// its own part; otherwise the gradient must be a partial sum, and is reduced and scattered.
    ///
    /// # Errors
    /// A tensor that is not `Shard(dim)` along this axis.
    pub fn all_gather(&self, axis: &str, dim: usize, replicated_gradient: bool) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        expect(
            self,
            "all_gather",
            axis.index,
            |p| p == Placement::Shard(dim),
            &format!("it must be Shard({dim}); scatter cuts a replicated tensor"),
        )?;
        let y = gather(self, axis, dim)?;
        Ok(
            y.record_node("all_gather", &[self], !replicated_gradient, false, move |dy| {
                let complete = match dy.placements()[axis.index] {
                    Placement::Partial => finish_partial("all_gather", dy, axis)?,
                    _ => dy.clone(),
                };
                Ok(vec![Some(take_part(&complete, axis, dim)?)])
            }),
        )
    }

    /// Completes a partial sum over `axis` and leaves each device its part of `dim`. The gradient is an all-gather.
    ///
    /// # Errors
    /// A tensor that is no partial sum over this axis, or a dimension that the axis does not divide.
    pub fn reduce_scatter(&self, axis: &str, dim: usize) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        let y = finish_own_part(self, axis, dim)?;
        Ok(y.record("reduce_scatter", &[self], move |dy| {
            Ok(vec![Some(gather(dy, axis, dim)?)])
        }))
    }

    /// Each device keeps its part of `dim` of a replicated tensor. The gradient is an all-gather.
    ///
    /// # Errors
    /// A tensor that is not replicated along this axis, or a dimension that the axis does not divide.
    pub fn scatter(&self, axis: &str, dim: usize) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        expect(
            self,
            "scatter",
            axis.index,
            |p| p == Placement::Replicate,
            "it must be Replicate; all_gather makes it so",
        )?;
        let y = take_part(self, axis, dim)?;
        Ok(y.record("scatter", &[self], move |dy| Ok(vec![Some(gather(dy, axis, dim)?)])))
    }

    /// The values of the device at position `root` of `axis` on every device of it. No gradient flows through.
    ///
    /// # Errors
    /// A position outside the axis.
    pub fn broadcast_from(&self, axis: &str, root: usize) -> Result<Tensor> {
        let Some(axis) = self.device().axis(axis) else {
            return Ok(self.clone());
        };
        if root >= axis.size {
            return Err(TensorError::Argument {
                op: "broadcast_from",
                what: format!(
                    "position {root} on an axis of {} devices; positions count from 0",
                    axis.size
                ),
            });
        }
        self.complete("broadcast_from", "the tensor")?;
        let y = Tensor::activation(self.device(), self.meta().clone())?;
        self.device().runtime().issue(Broadcast {
            axis,
            root,
            from: self.buffer(),
            to: y.buffer(),
        })?;
        Ok(y)
    }
}

/// Fails where the placement along `axis` is not as `fits` says.
pub(crate) fn expect(
    t: &Tensor,
    op: &'static str,
    axis: usize,
    fits: impl Fn(Placement) -> bool,
    rule: &str,
) -> Result<()> {
    let placement = t.placements()[axis];
    if fits(placement) {
        return Ok(());
    }
    t.complete(op, "the tensor")?;
    Err(TensorError::Placement {
        op,
        axis: t.device().axis_name(axis),
        found: format!("the tensor {:?} is {placement}", t.shape()),
        rule: rule.into(),
    })
}

/// The complete sum on every device, rounded to the kind that it is to have.
pub(crate) fn finish_partial(op: &'static str, t: &Tensor, axis: AxisHandle) -> Result<Tensor> {
    finish_in(op, t, axis, None)
}

/// The sum over the axis that a tensor is a part of.
fn partial_over(op: &'static str, t: &Tensor, axis: AxisHandle) -> Result<PartialSum> {
    match t.meta().partial {
        Some(partial) if partial.axis.index == axis.index => Ok(partial),
        _ => Err(TensorError::Placement {
            op,
            axis: t.device().axis_name(axis.index),
            found: format!("the tensor {:?} is {}", t.shape(), t.placements()[axis.index]),
            rule: "only a partial sum over this axis can be reduced; a complete value would be counted once a device"
                .into(),
        }),
    }
}

/// The complete sum on every device, in its own kind or another one.
fn finish_in(op: &'static str, t: &Tensor, axis: AxisHandle, dtype: Option<Dtype>) -> Result<Tensor> {
    let partial = partial_over(op, t, axis)?;
    let mut meta = Meta {
        partial: None,
        dtype: dtype.unwrap_or(partial.dtype),
        ..t.meta().clone()
    };
    meta.placements[axis.index] = Placement::Replicate;
    let y = Tensor::activation(t.device(), meta)?;
    t.device().runtime().issue(AllReduce {
        axis,
        reduction: Reduction::Sum { units: partial.units },
        from: t.buffer(),
        slot: t.meta().len(),
        len: t.meta().len(),
        to: y.buffer(),
    })?;
    Ok(y)
}

/// Each device's own part of `dim` of the complete sum.
fn finish_own_part(t: &Tensor, axis: AxisHandle, dim: usize) -> Result<Tensor> {
    let op = "reduce_scatter";
    let partial = partial_over(op, t, axis)?;
    let mut meta = Meta {
        partial: None,
        dtype: partial.dtype,
        ..t.meta().clone()
    };
    meta.placements[axis.index] = Placement::Replicate;
    check_part(op, t.device(), &meta, axis.index, dim)?;
    meta.cut(axis, dim);
    let (outer, inner) = meta.around(dim);
    let y = Tensor::activation(t.device(), meta)?;
    t.device().runtime().issue(ReduceScatter {
        axis,
        reduction: Reduction::Sum { units: partial.units },
        outer,
        inner,
        from: t.buffer(),
        to: y.buffer(),
    })?;
    Ok(y)
}

/// Shards joined in `dim`.
pub(crate) fn gather(t: &Tensor, axis: AxisHandle, dim: usize) -> Result<Tensor> {
    let mut meta = t.meta().clone();
    let (outer, inner) = meta.around(dim);
    meta.local[dim] *= axis.size;
    meta.placements[axis.index] = Placement::Replicate;
    if dim == 0 {
        // Every device holds all rows now: they are dealt out along no axis.
        meta.rows = None;
    }
    let y = Tensor::activation(t.device(), meta)?;
    t.device().runtime().issue(AllGather {
        axis,
        root: None,
        outer,
        inner,
        from: t.buffer(),
        to: y.buffer(),
    })?;
    Ok(y)
}

/// A dimension that two axes would cut.
pub(crate) fn cut_twice(op: &'static str, shape: &[usize], dim: usize, first: &str, second: &str) -> TensorError {
    TensorError::Placement {
        op,
        axis: second.into(),
        found: format!("dimension {dim} of {shape:?} is cut along axis `{first}` already"),
        rule: format!("one axis can cut a dimension: use another dimension, or all_gather along `{first}` first"),
    }
}

/// Each device's own part of `dim`.
pub(crate) fn take_part(t: &Tensor, axis: AxisHandle, dim: usize) -> Result<Tensor> {
    let mut meta = t.meta().clone();
    check_part("scatter", t.device(), &meta, axis.index, dim)?;
    meta.cut(axis, dim);
    let (outer, inner) = meta.around(dim);
    let y = Tensor::activation(t.device(), meta)?;
    t.device().runtime().issue(TakePart {
        axis,
        outer,
        inner,
        from: t.buffer(),
        to: y.buffer(),
    })?;
    Ok(y)
}

/// Fails unless `dim` of a tensor that lies as `meta` says can be dealt out along the axis with this index.
pub(crate) fn check_part(op: &'static str, device: &MeshDevice, meta: &Meta, axis: usize, dim: usize) -> Result<()> {
    let axis = device.axis_at(axis);
    let shape = meta.shape(device);
    if dim >= meta.local.len() || !meta.local[dim].is_multiple_of(axis.size) {
        return Err(TensorError::Shape {
            op,
            found: format!("dimension {dim} of {shape:?} over {} devices", axis.size),
            rule: "the dimension must exist and be a multiple of the number of devices".into(),
        });
    }
    if let Some(other) = meta.placements.iter().position(|p| *p == Placement::Shard(dim)) {
        return Err(cut_twice(
            op,
            &shape,
            dim,
            &device.axis_name(other),
            &device.axis_name(axis.index),
        ));
    }
    Ok(())
}
