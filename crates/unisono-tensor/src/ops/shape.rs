//! Operations that move elements without computing: reshape, permute, slice, concat, broadcasting.

use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Meta, Tensor};
use std::ops::Range;
use unisono_kernels::copy::Strided;
use unisono_kernels::order::Units;
use unisono_mesh::Placement;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::copy::Copy;
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::reduce::ColumnSums;

/// Most dimensions that a copy can tell apart.
const MAX_DIMS: usize = 6;

/// Row-major strides of a shape.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// A strided copy of `dims` elements, row-major, with these strides.
pub(super) fn plan(op: &'static str, dims: &[usize], src: &[usize], dst: &[usize]) -> Result<Strided> {
    if dims.len() > MAX_DIMS {
        return Err(TensorError::Argument {
            op,
            what: format!("a tensor of {} dimensions; up to {MAX_DIMS} are built", dims.len()),
        });
    }
    let mut plan = Strided {
        dims: [1; MAX_DIMS],
        src: [0; MAX_DIMS],
        dst: [0; MAX_DIMS],
        src_offset: 0,
        dst_offset: 0,
    };
    let missing = MAX_DIMS - dims.len();
    plan.dims[missing..].copy_from_slice(dims);
    plan.src[missing..].copy_from_slice(src);
    plan.dst[missing..].copy_from_slice(dst);
    Ok(plan)
}

fn issue(from: &Tensor, to: &Tensor, plan: Strided) -> Result<()> {
    Ok(from.device().runtime().issue(Copy {
        from: from.buffer(),
        to: to.buffer(),
        plan,
    })?)
}

impl Tensor {
    /// The same elements in row-major order under another shape. Nothing is copied.
    ///
    /// A cut dimension keeps its place if everything before it stays as it is or is merged into it; `local` is the shape of
    /// one device's shard.
    ///
    /// # Errors
    /// Another number of elements, or a cut dimension that would not stay one.
    pub fn reshape(&self, local: &[usize]) -> Result<Tensor> {
        self.complete("reshape", "the tensor")?;
        let y = reshaped(self, local)?;
        let before = self.meta().clone();
        Ok(y.record("reshape", &[self], move |dy| {
            Ok(vec![Some(dy.reinterpret(before.clone()))])
        }))
    }

    /// Dimensions in another order: dimension `i` of the result is dimension `order[i]` of this tensor.
    ///
    /// # Errors
    /// An order that does not name every dimension once.
    pub fn permute(&self, order: &[usize]) -> Result<Tensor> {
        self.complete("permute", "the tensor")?;
        let y = permuted(self, order)?;
        let mut inverse = vec![0; order.len()];
        for (to, from) in order.iter().enumerate() {
            inverse[*from] = to;
        }
        Ok(y.record("permute", &[self], move |dy| Ok(vec![Some(permuted(dy, &inverse)?)])))
    }

    /// Two dimensions exchanged.
    ///
    /// # Errors
    /// A dimension that there is not.
    pub fn transpose(&self, a: usize, b: usize) -> Result<Tensor> {
        let mut order: Vec<usize> = (0..self.rank()).collect();
        if a >= order.len() || b >= order.len() {
            return Err(TensorError::Argument {
                op: "transpose",
                what: format!(
                    "dimensions {a} and {b} of a tensor of shape {:?}; they count from 0",
                    self.shape()
                ),
            });
        }
        order.swap(a, b);
        self.permute(&order)
    }

    /// The elements `range` of dimension `dim`, which must not be cut over devices.
    ///
    /// # Errors
    /// A range outside the dimension, or a cut dimension.
    pub fn slice(&self, dim: usize, range: Range<usize>) -> Result<Tensor> {
        self.complete("slice", "the tensor")?;
        uncut("slice", self, dim)?;
        let size = self.local_shape()[dim];
        if range.start > range.end || range.end > size {
            return Err(TensorError::Argument {
                op: "slice",
                what: format!("elements {range:?} of dimension {dim}, which has {size}"),
            });
        }
        let mut local = self.local_shape().to_vec();
        local[dim] = range.len();
        let y = Tensor::activation(self.device(), resized(self, local.clone(), dim))?;
        let (from, to) = (strides(self.local_shape()), strides(&local));
        let mut forward = plan("slice", &local, &from, &to)?;
        forward.src_offset = range.start * from[dim];
        issue(self, &y, forward)?;
        let before = self.meta().clone();
        Ok(y.record("slice", &[self], move |dy| {
            let dx = Tensor::activation(dy.device(), before.clone())?;
            dy.device().runtime().issue(Fill {
                to: dx.buffer(),
                value: 0.0,
            })?;
            let mut back = plan("slice", &local, &to, &from)?;
            back.dst_offset = range.start * from[dim];
            issue(dy, &dx, back)?;
            Ok(vec![Some(dx)])
        }))
    }

    /// Tensors joined along dimension `dim`, which must not be cut over devices; all else must be equal.
    ///
    /// # Errors
    /// No tensors, shapes or placements that differ, or a cut dimension.
    pub fn concat(tensors: &[&Tensor], dim: usize) -> Result<Tensor> {
        let op = "concat";
        let Some(first) = tensors.first() else {
            return Err(TensorError::Argument {
                op,
                what: "no tensors were given; at least one is needed".into(),
            });
        };
        let mut total = 0;
        for t in tensors {
            super::same_device(op, first, t)?;
            t.complete(op, "a tensor")?;
            uncut(op, t, dim)?;
            let alike = t.rank() == first.rank()
                && t.placements() == first.placements()
                && (0..t.rank()).all(|d| d == dim || t.local_shape()[d] == first.local_shape()[d]);
            if !alike {
                return Err(TensorError::Shape {
                    op,
                    found: format!("{first:?} and {t:?}"),
                    rule: format!("all dimensions but {dim} and all placements must be equal"),
                });
            }
            total += t.local_shape()[dim];
        }
        let mut local = first.local_shape().to_vec();
        local[dim] = total;
        let y = Tensor::activation(first.device(), resized(first, local.clone(), dim))?;
        let to = strides(&local);
        let mut at = 0;
        let mut parts = Vec::new();
        for t in tensors {
            let from = strides(t.local_shape());
            let mut copy = plan(op, t.local_shape(), &from, &to)?;
            copy.dst_offset = at * to[dim];
            issue(t, &y, copy)?;
            parts.push((t.meta().clone(), at));
            at += t.local_shape()[dim];
        }
        Ok(y.record(op, tensors, move |dy| {
            let mut gradients = Vec::new();
            for (meta, at) in &parts {
                let mut copy = plan("concat", &meta.local, &to, &strides(&meta.local))?;
                copy.src_offset = at * to[dim];
                let dx = Tensor::activation(dy.device(), meta.clone())?;
                issue(dy, &dx, copy)?;
                gradients.push(Some(dx));
            }
            Ok(gradients)
        }))
    }

    /// Heads from features: [.., tokens, heads · d] becomes [.., heads, tokens, d].
    ///
    /// # Errors
    /// A last dimension that `heads` does not divide.
    pub fn split_heads(&self, heads: usize) -> Result<Tensor> {
        let rank = self.rank();
        if rank < 2 || heads == 0 || !self.last().is_multiple_of(heads) {
            return Err(TensorError::Shape {
                op: "split_heads",
                found: format!("{:?} into {heads} heads", self.shape()),
                rule: "the last dimension must be a multiple of the heads".into(),
            });
        }
        let mut local = self.local_shape().to_vec();
        local[rank - 1] = heads;
        local.push(self.last() / heads);
        self.reshape(&local)?.transpose(rank - 2, rank - 1)
    }

    /// Features from heads: [.., heads, tokens, d] becomes [.., tokens, heads · d].
    ///
    /// # Errors
    /// Fewer than three dimensions.
    pub fn merge_heads(&self) -> Result<Tensor> {
        let rank = self.rank();
        if rank < 3 {
            return Err(TensorError::Shape {
                op: "merge_heads",
                found: format!("{:?}", self.shape()),
                rule: "heads, tokens and elements are the last three dimensions".into(),
            });
        }
        let mut local = self.local_shape().to_vec();
        let (heads, tokens, d) = (local[rank - 3], local[rank - 2], local[rank - 1]);
        local.truncate(rank - 3);
        local.extend([tokens, heads * d]);
        self.transpose(rank - 3, rank - 2)?.reshape(&local)
    }
}

pub(crate) fn uncut(op: &'static str, t: &Tensor, dim: usize) -> Result<()> {
    if dim >= t.rank() {
        return Err(TensorError::Argument {
            op,
            what: format!(
                "dimension {dim} of a tensor of shape {:?}; dimensions count from 0",
                t.shape()
            ),
        });
    }
    match t.placements().iter().position(|p| *p == Placement::Shard(dim)) {
        Some(index) => {
            let axis = t.device().axis_name(index);
            Err(TensorError::Placement {
                op,
                found: format!("dimension {dim} of {:?} is cut over the devices", t.shape()),
                rule: format!("it must lie whole on each: call all_gather(\"{axis}\", {dim}, …) first"),
                axis,
            })
        }
        None => Ok(()),
    }
}

/// Metadata after dimension `dim` got another size.
fn resized(t: &Tensor, local: Vec<usize>, dim: usize) -> Meta {
    let mut meta = t.meta().with_local(local);
    meta.units[dim] = 1;
    if dim == 0 {
        meta.rows = None;
    }
    meta
}

/// Reshape, outside the graph.
fn reshaped(t: &Tensor, local: &[usize]) -> Result<Tensor> {
    let fail = |rule: String| TensorError::Shape {
        op: "reshape",
        found: format!("a shard of shape {:?} to {local:?}", t.local_shape()),
        rule,
    };
    if local.iter().product::<usize>() != t.meta().len() {
        return Err(fail("both must have the same number of elements".into()));
    }
    let mut meta = Meta {
        units: vec![1; local.len()],
        ..t.meta().with_local(local.to_vec())
    };
    let old = t.local_shape();
    for (index, placement) in meta.placements.iter_mut().enumerate() {
        if let Placement::Shard(dim) = *placement {
            // The cut dimension goes where the elements before it end.
            let before: usize = old[..dim].iter().product();
            let mut product = 1;
            let at = local.iter().position(|size| {
                let here = product == before;
                product *= size;
                here && (*size > 1 || before * old[dim] == product)
            });
            *placement = match at {
                Some(at) => Placement::Shard(at),
                None => {
                    let axis = t.device().axis_name(index);
                    return Err(fail(format!(
                        "dimension {dim} is cut along axis `{axis}` and would not stay one dimension: call \
                         all_gather(\"{axis}\", {dim}, …) first"
                    )));
                }
            };
        }
    }
    let keeps_batch = old.first() == local.first();
    if !keeps_batch {
        meta.rows = None;
    }
    Ok(t.reinterpret(meta))
}

/// Permute, outside the graph.
fn permuted(t: &Tensor, order: &[usize]) -> Result<Tensor> {
    let mut seen = vec![false; t.rank()];
    let valid = order.len() == t.rank()
        && order
            .iter()
            .all(|dim| seen.get_mut(*dim).is_some_and(|seen| !std::mem::replace(seen, true)));
    if !valid {
        return Err(TensorError::Argument {
            op: "permute",
            what: format!(
                "order {order:?} for a tensor of shape {:?}; each dimension must stand in it once",
                t.shape()
            ),
        });
    }
    let pick = |from: &[usize]| order.iter().map(|dim| from[*dim]).collect::<Vec<_>>();
    let local = pick(t.local_shape());
    let mut meta = Meta {
        units: pick(&t.meta().units),
        ..t.meta().with_local(local.clone())
    };
    for placement in &mut meta.placements {
        if let Placement::Shard(dim) = placement {
            *dim = order.iter().position(|d| d == dim).unwrap_or(0);
        }
    }
    if order.first() != Some(&0) {
        meta.rows = None;
    }
    let y = Tensor::activation(t.device(), meta)?;
    let src = pick(&strides(t.local_shape()));
    issue(t, &y, plan("permute", &local, &src, &strides(&local))?)?;
    Ok(y)
}

/// `t` repeated to the shape `local`: dimensions of 1 and missing leading ones grow.
pub(crate) fn expand(t: &Tensor, local: &[usize]) -> Result<Tensor> {
    if t.local_shape() == local {
        return Ok(t.clone());
    }
    let missing = local.len() - t.rank();
    let own = strides(t.local_shape());
    let src: Vec<usize> = (0..local.len())
        .map(|i| {
            if i < missing || t.local_shape()[i - missing] != local[i] {
                0
            } else {
                own[i - missing]
            }
        })
        .collect();
    let mut meta = Meta {
        units: vec![1; local.len()],
        ..t.meta().with_local(local.to_vec())
    };
    for placement in &mut meta.placements {
        if let Placement::Shard(dim) = placement {
            *dim += missing;
        }
    }
    if missing > 0 || t.local_shape().first() != local.first() {
        meta.rows = None;
    }
    let y = Tensor::activation(t.device(), meta)?;
    issue(t, &y, plan("broadcast", local, &src, &strides(local))?)?;
    let wanted = t.detach();
    Ok(y.record("broadcast", &[t], move |dy| Ok(vec![Some(sum_to(dy, &wanted)?)])))
}

/// The sum of `full` over the dimensions that `wanted` was repeated along.
pub(crate) fn sum_to(full: &Tensor, wanted: &Tensor) -> Result<Tensor> {
    let missing = full.rank() - wanted.rank();
    let repeated = |i: usize| i < missing || wanted.local_shape()[i - missing] != full.local_shape()[i];
    for dim in (0..full.rank()).filter(|dim| repeated(*dim)) {
        uncut("the gradient of broadcasting", full, dim)?;
    }
    let mut order: Vec<usize> = (0..full.rank()).filter(|dim| repeated(*dim)).collect();
    let rows: usize = order.iter().map(|dim| full.local_shape()[*dim]).product();
    order.extend((0..full.rank()).filter(|dim| !repeated(*dim)));
    let ordered = permuted(full, &order)?;
    let sum = Tensor::activation(full.device(), wanted.meta().clone())?;
    let cols = wanted.meta().len();
    full.device().runtime().issue(ColumnSums {
        x: ordered.buffer(),
        cols,
        sum: SumShare::whole(Units { count: rows, len: 1 }),
        to: sum.buffer(),
        slot: cols,
    })?;
    Ok(sum)
}
