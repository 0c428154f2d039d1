//! Collectives that move values.

use super::{Along, complete, normal, one_axis, relabelled};
use crate::error::TensorError;
use crate::ops::comm::{self, cut_twice, finish_partial};
use crate::tensor::Tensor;
use crate::{MeshDevice, Result};
use unisono_mesh::{AxisHandle, MeshCoordinate, Placement};
use unisono_runtime::ops::exchange::{AllToAll, Barrier, PointToPoint, Shift};
use unisono_runtime::ops::gather::{AllGather, Broadcast, Scatter};

/// Every device gets the shards of all devices of the group, joined in `dim` in device order: `Replicate` along the axis. Along all
/// devices, every axis that cuts `dim` is gathered. The gradient is the device's own part of what arrives, reduced and
/// scattered where that is a partial sum.
///
/// # Errors
/// A tensor that is not `Shard(dim)` along the axis.
pub fn all_gather(x: &Tensor, dim: isize, along: Along) -> Result<Tensor> {
    let op = "all_gather";
    let dim = normal(op, x, dim)?;
    let Some(group) = along.group(op, x.device())? else {
        return Ok(x.clone());
    };
    let axis = cutting(op, x, group, dim)?;
    let y = along.over(op, x.device(), || comm::gather(x, axis, dim))?;
    Ok(y.record_node(op, &[x], true, false, move |dy| {
        let own = match dy.meta().partial {
            Some(_) => super::reduce_scatter(dy, dim as isize, along)?,
            None => comm::take_part(dy, axis, dim)?,
        };
        Ok(vec![Some(own)])
    }))
}

/// Each device keeps its own part of `dim` of a replicated tensor: `Shard(dim)` along the axis. Nothing is sent. The gradient is
/// an all-gather.
///
/// # Errors
/// A tensor that is not replicated along the axis, or a dim that the axis does not divide.
pub fn scatter(x: &Tensor, dim: isize, along: Along) -> Result<Tensor> {
    let op = "scatter";
    let dim = normal(op, x, dim)?;
    let Some(group) = along.group(op, x.device())? else {
        return Ok(x.clone());
    };
    let axis = one_axis(op, x.device(), group)?;
    comm::expect(
        x,
        op,
        axis,
        |p| p == Placement::Replicate,
        "it must be Replicate; all_gather makes it so",
    )?;
    let y = comm::take_part(x, x.device().axis_at(axis), dim)?;
    Ok(y.record(op, &[x], move |dy| Ok(vec![Some(all_gather(dy, dim as isize, along)?)])))
}

/// The values of the device at position `root` of the group on every device of it: `Replicate` along the axis. Of a replicated
/// tensor the gradient is what arrives, completed where that is a partial sum; else no gradient flows through.
///
/// # Errors
/// A position outside the group.
pub fn broadcast(x: &Tensor, root: usize, along: Along) -> Result<Tensor> {
    let op = "broadcast";
    complete(op, x)?;
    let Some(group) = along.group(op, x.device())? else {
        return position(op, root, 1).map(|()| x.clone());
    };
    position(op, root, group.size)?;
    let replicated = super::spanned(x.device(), group)
        .iter()
        .all(|axis| x.placements()[*axis].is_replicate());
    let y = Tensor::activation(x.device(), relabelled(x, group, Placement::Replicate))?;
    let command = Broadcast {
        axis: group,
        root,
        from: x.buffer(),
        to: y.buffer(),
    };
    along.issue(op, x.device(), command)?;
    if !replicated {
        return Ok(y);
    }
    Ok(y.record_node(op, &[x], true, false, move |dy| {
        Ok(vec![Some(match dy.meta().partial {
            Some(_) => finish_partial(op, dy, group)?,
            None => dy.clone(),
        })])
    }))
}

/// Every device's values on every device: one replicated tensor for each position of the group. No gradient flows through.
///
/// # Errors
/// An axis that there is not.
pub fn all_broadcast(x: &Tensor, along: Along) -> Result<Vec<Tensor>> {
    let size = along.group("all_broadcast", x.device())?.map_or(1, |group| group.size);
    let x = x.detach();
    (0..size).map(|root| broadcast(&x, root, along)).collect()
}

/// Each device cuts `split` into a part for every device of the group and joins what it gets in `join`: a tensor that was
/// `Shard(join)` along the axis becomes `Shard(split)`. The gradient goes the other way.
///
/// # Errors
/// A tensor that is not `Shard(join)` along the axis, or a dim `split` that another axis cuts or that this one does not divide.
pub fn all_to_all(x: &Tensor, split: isize, join: isize, along: Along) -> Result<Tensor> {
    let op = "all_to_all";
    let (split, join) = (normal(op, x, split)?, normal(op, x, join)?);
    let Some(group) = along.group(op, x.device())? else {
        return Ok(x.clone());
    };
    let index = one_axis(op, x.device(), group)?;
    comm::expect(
        x,
        op,
        index,
        |p| p == Placement::Shard(join),
        &format!("it must be Shard({join}) to be joined in dim {join}"),
    )?;
    if split == join {
        return Ok(x.clone());
    }
    let local = x.local_shape();
    if !local[split].is_multiple_of(group.size) {
        return Err(TensorError::Shape {
            op,
            found: format!("dim {split} of shards {local:?} over {} devices", group.size),
            rule: "the dim must be a multiple of the number of devices".into(),
        });
    }
    if let Some(other) = x.placements().iter().position(|p| *p == Placement::Shard(split)) {
        let name = |axis| x.device().axis_name(axis);
        return Err(cut_twice(op, &x.shape(), split, &name(other), &name(index)));
    }
    let mut meta = relabelled(x, group, Placement::Shard(split));
    meta.local[split] /= group.size;
    meta.local[join] *= group.size;
    meta.units[split] = group.size;
    meta.units[join] = 1;
    if split == 0 || join == 0 {
        meta.rows = None;
    }
    let y = Tensor::activation(x.device(), meta)?;
    along.issue(op, x.device(), exchange(x, &y, group, split, join))?;
    Ok(y.record(op, &[x], move |dy| {
        Ok(vec![Some(all_to_all(dy, join as isize, split as isize, along)?)])
    }))
}

/// The loops of an all-to-all: the dims before the first of the two, those between them, and what lies behind the second.
fn exchange(x: &Tensor, y: &Tensor, group: AxisHandle, split: usize, join: usize) -> AllToAll {
    let stride = |local: &[usize], dim: usize| -> usize { local[dim + 1..].iter().product() };
    let (from, to) = (x.local_shape(), y.local_shape());
    let (first, second) = (split.min(join), split.max(join));
    // One sender's part for one receiver: the split dim as in the result, the joined dim as in the source.
    let part: Vec<usize> = (0..from.len())
        .map(|dim| if dim == split { to[dim] } else { from[dim] })
        .collect();
    let outer: usize = part[..first].iter().product();
    let between: usize = part[first + 1..second].iter().product();
    let strides = |local: &[usize]| {
        [
            local[first..].iter().product(),
            stride(local, first),
            local[second..].iter().product(),
        ]
    };
    AllToAll {
        axis: group,
        extents: [outer, part[first], between],
        run: part[second..].iter().product(),
        from_strides: strides(from),
        to_strides: strides(to),
        from_part: to[split] * stride(from, split),
        to_part: from[join] * stride(to, join),
        from: x.buffer(),
        to: y.buffer(),
    }
}

/// The shards of the group joined in `dim`, on the device at position `root` alone: a tensor on the submesh of these devices. No
/// gradient flows through.
///
/// # Errors
/// A tensor that is not `Shard(dim)` along the axis, or a position outside the group.
pub fn gather(x: &Tensor, dim: isize, root: usize, along: Along) -> Result<Tensor> {
    let op = "gather";
    let dim = normal(op, x, dim)?;
    let Some(group) = along.group(op, x.device())? else {
        return position(op, root, 1).map(|()| x.detach());
    };
    position(op, root, group.size)?;
    let index = one_axis(op, x.device(), group)?;
    comm::expect(
        x,
        op,
        index,
        |p| p == Placement::Shard(dim),
        &format!("it must be Shard({dim}); scatter cuts a replicated tensor"),
    )?;
    let roots = slice(x.device(), index, root)?;
    let mut meta = relabelled(x, group, Placement::Replicate);
    meta.local[dim] *= group.size;
    // The command is one of the whole mesh, and so is the memory; the tensor is what the roots hold of it.
    let everywhere = Tensor::activation(x.device(), meta.clone())?;
    let (outer, inner) = x.meta().around(dim);
    let y = Tensor::view(&roots, everywhere.inner.memory.clone(), everywhere.buffer(), meta);
    let command = AllGather {
        axis: group,
        root: Some(root),
        outer,
        inner,
        from: x.buffer(),
        to: y.buffer(),
    };
    along.issue(op, x.device(), command)?;
    Ok(y)
}

/// The device at position `root` deals out `dim` of its values: `Shard(dim)` along the axis. No gradient flows through.
///
/// # Errors
/// A dim that the axis does not divide or that another axis cuts, or a position outside the group.
pub fn scatter_from(x: &Tensor, dim: isize, root: usize, along: Along) -> Result<Tensor> {
    let op = "scatter_from";
    complete(op, x)?;
    let dim = normal(op, x, dim)?;
    let Some(group) = along.group(op, x.device())? else {
        return position(op, root, 1).map(|()| x.detach());
    };
    position(op, root, group.size)?;
    let index = one_axis(op, x.device(), group)?;
    let mut meta = relabelled(x, group, Placement::Replicate);
    comm::check_part(op, x.device(), &meta, index, dim)?;
    meta.cut(x.device().axis_at(index), dim);
    meta.units[dim] = group.size;
    let (outer, inner) = meta.around(dim);
    let y = Tensor::activation(x.device(), meta)?;
    let command = Scatter {
        axis: group,
        root,
        outer,
        inner,
        from: x.buffer(),
        to: y.buffer(),
    };
    along.issue(op, x.device(), command)?;
    Ok(y)
}

/// Every device's values on the device `by` positions further along the group, round the end; a negative `by` goes back. The
/// gradient is shifted the other way.
///
/// # Errors
/// A partial sum, or an axis that there is not.
pub fn shift(x: &Tensor, by: isize, along: Along) -> Result<Tensor> {
    let op = "shift";
    complete(op, x)?;
    let Some(group) = along.group(op, x.device())? else {
        return Ok(x.clone());
    };
    let forward = by.rem_euclid(group.size as isize) as usize;
    if forward == 0 {
        return Ok(x.clone());
    }
    let y = Tensor::activation(x.device(), x.meta().clone())?;
    let command = Shift {
        axis: group,
        by: forward,
        from: x.buffer(),
        to: y.buffer(),
    };
    along.issue(op, x.device(), command)?;
    // Below the number of devices, which an isize holds.
    let back = -(forward as isize);
    Ok(y.record(op, &[x], move |dy| Ok(vec![Some(shift(dy, back, along)?)])))
}

/// The receiver's shard becomes the sender's; every other device keeps its own. With equal coordinates it is a copy. No gradient
/// flows through.
///
/// # Errors
/// A coordinate outside the mesh.
pub fn point_to_point(x: &Tensor, sender: &MeshCoordinate, receiver: &MeshCoordinate) -> Result<Tensor> {
    let op = "point_to_point";
    complete(op, x)?;
    let shape = x.device().mesh().shape();
    let (source, target) = (shape.device(sender)?, shape.device(receiver)?);
    let y = Tensor::activation(x.device(), x.meta().clone())?;
    let command = PointToPoint {
        axis: x.device().mesh().all(),
        source,
        target,
        from: x.buffer(),
        to: y.buffer(),
    };
    Along::ALL.issue(op, x.device(), command)?;
    Ok(y)
}

/// No device of the group goes on before all have come to this point of the program.
///
/// # Errors
/// An axis that there is not.
pub fn barrier(device: &MeshDevice, along: Along) -> Result<()> {
    match along.group("barrier", device)? {
        Some(axis) => along.issue("barrier", device, Barrier { axis }),
        None => Ok(()),
    }
}

/// The axis of the group that cuts `dim`, of which there must be one.
fn cutting(op: &'static str, x: &Tensor, group: AxisHandle, dim: usize) -> Result<AxisHandle> {
    complete(op, x)?;
    let axes = super::spanned(x.device(), group);
    let cut = axes.iter().find(|axis| x.placements()[**axis] == Placement::Shard(dim));
    match cut {
        Some(axis) => Ok(x.device().axis_at(*axis)),
        None => Err(TensorError::Placement {
            op,
            axis: axes
                .iter()
                .map(|axis| x.device().axis_name(*axis))
                .collect::<Vec<_>>()
                .join("`, `"),
            found: format!(
                "the tensor {:?} is {}",
                x.shape(),
                axes.iter()
                    .map(|axis| x.placements()[*axis].to_string())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            rule: format!("it must be Shard({dim}) to be gathered in dim {dim}"),
        }),
    }
}

/// The submesh of the devices at one position of an axis.
fn slice(device: &MeshDevice, axis: usize, at: usize) -> Result<MeshDevice> {
    let mut shape = device.mesh().shape().sizes().to_vec();
    let mut offset = vec![0; shape.len()];
    shape[axis] = 1;
    offset[axis] = at;
    device.create_submesh(&shape, Some(&offset))
}

fn position(op: &'static str, root: usize, size: usize) -> Result<()> {
    if root < size {
        return Ok(());
    }
    Err(TensorError::Argument {
        op,
        what: format!("position {root} in a group of {size} devices; positions count from 0"),
    })
}
