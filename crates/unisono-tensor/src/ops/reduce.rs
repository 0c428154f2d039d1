//! Sums, means and the position of the maximum.

use super::comm::finish_partial;
use crate::MeshDevice;
use crate::error::TensorError;
use crate::ops::elementwise::with_value;
use crate::ops::shape::{expand, uncut};
use crate::tensor::{Dtype, Meta, Tensor};
use crate::{Result, Rows};
use unisono_kernels::order::Units;
use unisono_mesh::Placement;
use unisono_runtime::BufferRef;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::elementwise::{Binary, Combine, Operand};
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::reduce::{ArgMax, RowSums, VectorSum};

impl Tensor {
    /// The sum of all elements as a scalar, complete on every device. Of a micro-batch it is the micro-batch's share.
    ///
    /// # Errors
    /// A partial sum, or a tensor that is cut in another dimension than the first.
    pub fn sum(&self) -> Result<Tensor> {
        total("sum", self, 1.0)
    }

    /// The mean of all elements as a scalar, complete on every device. Of a micro-batch it is its share of the mean over
    /// the whole optimizer step: the sum divided by the number of elements of the step.
    ///
    /// # Errors
    /// A partial sum, or a tensor that is cut in another dimension than the first.
    pub fn mean(&self) -> Result<Tensor> {
        let rows = self.batch_rows();
        let elements = self.meta().len() / rows.count.max(1) * rows.total;
        total("mean", self, 1.0 / elements.max(1) as f32)
    }

    /// The sum over dimension `dim`, which is left out of the result.
    ///
    /// # Errors
    /// A partial sum or a cut dimension.
    pub fn sum_dim(&self, dim: usize) -> Result<Tensor> {
        let rank = self.rank();
        if dim >= rank {
            return Err(TensorError::Argument {
                op: "sum_dim",
                what: format!(
                    "dimension {dim} of a tensor of shape {:?}; dimensions count from 0",
                    self.shape()
                ),
            });
        }
        if dim + 1 < rank {
            let mut order: Vec<usize> = (0..rank).filter(|d| *d != dim).collect();
            order.push(dim);
            return self.permute(&order)?.sum_dim(rank - 1);
        }
        self.complete("sum_dim", "the tensor")?;
        uncut("sum_dim", self, dim)?;
        let mut meta = self.meta().clone();
        let cols = meta.local.pop().unwrap_or(1);
        meta.units.pop();
        if meta.local.is_empty() {
            meta.rows = None;
        }
        let y = Tensor::activation(self.device(), meta)?;
        self.device().runtime().issue(RowSums {
            x: self.buffer(),
            cols,
            to: y.buffer(),
        })?;
        let before = self.local_shape().to_vec();
        let template = self.meta().clone();
        Ok(y.record("sum_dim", &[self], move |dy| {
            let mut local = dy.local_shape().to_vec();
            local.push(1);
            let mut meta = dy.meta().with_local(local);
            meta.units.push(1);
            let full = dy.device().no_grad(|| expand(&dy.reinterpret(meta), &before))?;
            Ok(vec![Some(full.reinterpret(template.clone()))])
        }))
    }

    /// The mean over dimension `dim`, which is left out of the result.
    ///
    /// # Errors
    /// A partial sum or a cut dimension.
    pub fn mean_dim(&self, dim: usize) -> Result<Tensor> {
        let size = self.local_shape().get(dim).copied().unwrap_or(1);
        self.sum_dim(dim)?.mul_scalar(1.0 / size.max(1) as f32)
    }

    /// Index of the largest element along the last dimension, the lowest where several are equal.
    ///
    /// # Errors
    /// A partial sum or a cut last dimension.
    pub fn argmax(&self) -> Result<Tensor> {
        self.complete("argmax", "the tensor")?;
        super::whole_last("argmax", self)?;
        let mut meta = self.meta().clone();
        let cols = meta.local.pop().unwrap_or(1);
        meta.units.pop();
        meta.dtype = Dtype::U32;
        let y = Tensor::activation(self.device(), meta)?;
        self.device().runtime().issue(ArgMax {
            x: self.buffer(),
            cols,
            to: y.buffer(),
        })?;
        Ok(y)
    }
}

/// The sum of a micro-batch's own rows, as if it were a batch of its own.
fn own(rows: Rows) -> Rows {
    Rows::whole(rows.count * rows.axis.map_or(1, |axis| axis.size), rows.axis)
}

/// `scale` times the sum of all elements. The scale is applied after the sum is complete.
fn total(op: &'static str, x: &Tensor, scale: f32) -> Result<Tensor> {
    x.complete(op, "the tensor")?;
    x.expect_dtype(op, Dtype::F32)?;
    let device = x.device().clone();
    let rows = own(x.batch_rows());
    for (index, placement) in x.placements().iter().enumerate() {
        if let Placement::Shard(dim @ 1..) = placement {
            let axis = device.axis_name(index);
            return Err(TensorError::Placement {
                op,
                found: format!("the tensor {:?} is {placement}", x.shape()),
                rule: format!("only dimension 0 may be cut: call all_gather(\"{axis}\", {dim}, …) first"),
                axis,
            });
        }
    }
    let len = x.meta().len() / rows.count.max(1);
    let mut meta = Meta::replicated(&device, Dtype::F32, &[]);
    let slots = rows.slots(rows.count);
    if let Some(axis) = rows.axis {
        meta.placements[axis.index] = Placement::Partial;
        meta.partial = Some(crate::tensor::PartialSum {
            dtype: Dtype::F32,
            axis,
            units: rows.total,
            slots,
        });
    }
    let share = Tensor::activation(&device, meta)?;
    device.runtime().issue(VectorSum {
        x: x.buffer(),
        sum: rows.sum(len),
        to: share.buffer(),
        slot: 1,
        scale: 1.0,
    })?;
    let sum = match rows.axis {
        Some(axis) => finish_partial(op, &share, axis)?,
        None => share,
    };
    let y = if scale == 1.0 {
        sum
    } else {
        with_value(op, Binary::Mul, &sum, scale)?
    };
    let template = x.meta().clone();
    Ok(y.record(op, &[x], move |dy| {
        let runtime = dy.device().runtime();
        let dx = Tensor::activation(dy.device(), template.clone())?;
        runtime.issue(Fill {
            to: dx.buffer(),
            value: scale,
        })?;
        let b = Operand::Scalar(dy.buffer());
        runtime.issue(Combine {
            f: Binary::Mul,
            a: dx.buffer(),
            b,
            swapped: false,
            to: dx.buffer(),
        })?;
        Ok(vec![Some(dx)])
    }))
}

/// A device's share of a sum over one dimension of a tensor, and how its partial sums lie.
pub struct DimShare {
    /// Units and share.
    pub sum: SumShare,
    /// Slots that the share leaves on a device.
    pub slots: usize,
}

impl DimShare {
    /// The same units over `rows` rows that a device holds of the dimension and of those beside it.
    pub fn over_rows(&self, rows: usize) -> SumShare {
        let len = rows / self.sum.count.max(1);
        SumShare {
            units: Units {
                count: self.sum.units.count,
                len,
            },
            ..self.sum
        }
    }
}

/// The share of a sum over dimension `dim` of `t` (of a single number, for `None`).
///
/// # Errors
/// A dimension whose units its axis does not divide.
pub fn share_of(op: &'static str, t: &Tensor, dim: Option<usize>) -> Result<DimShare> {
    let sum = match dim {
        None => SumShare::whole(Units::whole(1)),
        Some(dim) => {
            let axis = t.meta().axis_of(t.device(), dim);
            super::dim_sum(op, t.local_shape()[dim], t.meta().units[dim], axis)?
        }
    };
    Ok(DimShare {
        sum,
        slots: super::partial_of(&sum).map_or(1, |partial| partial.slots),
    })
}

/// Completes slots of `len` elements over the axis of a share, in place.
///
/// # Errors
/// An earlier command that failed.
pub fn reduce_shares(device: &MeshDevice, share: &DimShare, slots: BufferRef, len: usize) -> Result<()> {
    if let Some(axis) = share.sum.axis {
        let reduction = Reduction::Sum {
            units: share.sum.units.count,
        };
        device.runtime().issue(AllReduce {
            axis,
            reduction,
            from: slots,
            slot: len,
            len,
            to: slots.part(0, len),
        })?;
    }
    Ok(())
}
