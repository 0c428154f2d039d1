//! Collectives that make one value of many.

use super::{Along, complete, normal, one_axis, relabelled};
use crate::Result;
use crate::error::TensorError;
use crate::ops::comm::finish_partial;
use crate::tensor::{Dtype, Meta, Tensor};
use unisono_mesh::{AxisHandle, Placement};
use unisono_runtime::ops::all_reduce::{self, AllReduce};
use unisono_runtime::ops::reduce_scatter::ReduceScatter;

/// How the values of the devices become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum in the canonical order.
    Sum,
    /// The sum divided by the number of devices.
    Mean,
    /// The largest, element by element.
    Max,
    /// The smallest, element by element.
    Min,
}

/// What the gradient of a sum means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gradient {
    /// The program is one: a gradient that is complete goes to every addend as it is, one that is a partial sum is completed
    /// first. It is what the derivative of the whole program says (and `noop_backward` of tt-train).
    #[default]
    Whole,
    /// Each device has a loss of its own and their sum is meant, as in tt-train: the gradient is the all-reduce of what
    /// arrives.
    PerDevice,
}

/// `y = reduction over the group of what each device holds`, on every device. In bf16 the complete sum is rounded once.
///
/// # Errors
/// Integers, an axis that there is not, or more links than there are.
pub fn all_reduce(x: &Tensor, reduction: Reduction, along: Along) -> Result<Tensor> {
    all_reduce_with(x, reduction, along, Gradient::Whole)
}

/// As [`all_reduce()`], with the meaning of the gradient. Maxima and minima have none.
///
/// # Errors
/// As [`all_reduce()`].
pub fn all_reduce_with(x: &Tensor, reduction: Reduction, along: Along, gradient: Gradient) -> Result<Tensor> {
    let op = "all_reduce";
    let Some(group) = along.group(op, x.device())? else {
        return Ok(x.clone());
    };
    if reduction == Reduction::Sum && x.meta().partial.is_some() {
        let y = along.over(op, x.device(), || finish_partial(op, x, group))?;
        return Ok(y.record_node(op, &[x], true, false, move |dy| Ok(vec![Some(finished(dy, group)?)])));
    }
    let meta = relabelled(x, group, Placement::Replicate);
    let y = Tensor::activation(x.device(), meta)?;
    let from = addends(op, x)?;
    along.issue(
        op,
        x.device(),
        AllReduce {
            axis: group,
            reduction: over(reduction, group),
            from: from.buffer(),
            slot: from.meta().len(),
            len: from.meta().len(),
            to: y.buffer(),
        },
    )?;
    if matches!(reduction, Reduction::Max | Reduction::Min) {
        return Ok(y);
    }
    let like = x.meta().clone();
    Ok(y.record_node(op, &[x], true, false, move |dy| {
        let mut dx = finished(dy, group)?;
        if gradient == Gradient::PerDevice {
            dx = all_reduce(&dx, Reduction::Sum, along)?;
        }
        if reduction == Reduction::Mean {
            dx = dx.mul_scalar(1.0 / group.size as f32)?;
        }
        Ok(vec![Some(as_shards_of(&dx, &like))])
    }))
}

/// The sum over the group of what each device holds, of which each device keeps its part of `dim`: `Shard(dim)` along the axis.
/// The gradient is an all-gather.
///
/// # Errors
/// A dim that the axis does not divide, integers, or a dim that another axis cuts.
pub fn reduce_scatter(x: &Tensor, dim: isize, along: Along) -> Result<Tensor> {
    let op = "reduce_scatter";
    let dim = normal(op, x, dim)?;
    let Some(group) = along.group(op, x.device())? else {
        return Ok(x.clone());
    };
    let axis = one_axis(op, x.device(), group)?;
    let mut meta = relabelled(x, group, Placement::Shard(dim));
    if !meta.local[dim].is_multiple_of(group.size) {
        return Err(TensorError::Shape {
            op,
            found: format!("dim {dim} of shards {:?} over {} devices", meta.local, group.size),
            rule: "the dim must be a multiple of the number of devices".into(),
        });
    }
    let cut = |(other, placement): (usize, &Placement)| other != axis && *placement == Placement::Shard(dim);
    if let Some(other) = meta.placements.iter().enumerate().position(cut) {
        let name = |axis| x.device().axis_name(axis);
        return Err(crate::ops::comm::cut_twice(
            op,
            &x.shape(),
            dim,
            &name(other),
            &name(axis),
        ));
    }
    let units = x.meta().partial.map(|partial| partial.units);
    if let Some(partial) = x.meta().partial {
        if partial.axis.index != axis {
            complete(op, x)?;
        }
        meta.dtype = partial.dtype;
    }
    meta.cut(x.device().axis_at(axis), dim);
    meta.units[dim] = group.size;
    let (outer, inner) = meta.around(dim);
    let y = Tensor::activation(x.device(), meta)?;
    let from = if units.is_some() { x.clone() } else { addends(op, x)? };
    along.issue(
        op,
        x.device(),
        ReduceScatter {
            axis: group,
            reduction: all_reduce::Reduction::Sum {
                units: units.unwrap_or(group.size),
            },
            outer,
            inner,
            from: from.buffer(),
            to: y.buffer(),
        },
    )?;
    let like = x.meta().clone();
    Ok(y.record(op, &[x], move |dy| {
        let dx = super::all_gather(dy, dim as isize, along)?;
        Ok(vec![Some(as_shards_of(&dx, &like))])
    }))
}

fn over(reduction: Reduction, group: AxisHandle) -> all_reduce::Reduction {
    // Each device holds one unit of the sum.
    let units = group.size;
    match reduction {
        Reduction::Sum => all_reduce::Reduction::Sum { units },
        Reduction::Mean => all_reduce::Reduction::Mean { units },
        Reduction::Max => all_reduce::Reduction::Max,
        Reduction::Min => all_reduce::Reduction::Min,
    }
}

/// Each device's values, in f32.
fn addends(op: &'static str, x: &Tensor) -> Result<Tensor> {
    complete(op, x)?;
    if !x.dtype().is_float() {
        return Err(TensorError::Argument {
            op,
            what: format!(
                "a tensor of {}; sums, maxima and minima are of f32 and bf16",
                x.dtype().name()
            ),
        });
    }
    x.detach().to_dtype(Dtype::F32)
}

/// A gradient, completed if it is a partial sum over the group.
fn finished(dy: &Tensor, group: AxisHandle) -> Result<Tensor> {
    match dy.meta().partial {
        Some(partial) if partial.axis.index == group.index => finish_partial("all_reduce", dy, group),
        _ => Ok(dy.clone()),
    }
}

/// The same values on each device as the shards of a tensor that lies as `like` does.
fn as_shards_of(t: &Tensor, like: &Meta) -> Tensor {
    t.reinterpret(Meta {
        dtype: t.dtype(),
        partial: None,
        placements: like
            .placements
            .iter()
            .map(|placement| match placement {
                Placement::Partial => Placement::Replicate,
                other => *other,
            })
            .collect(),
        ..like.clone()
    })
}
