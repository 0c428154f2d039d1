//! Matrix products: linear layers, and batched products of activations.

use super::{batch_only, dim_sum, partial_of, same_device};
use crate::Result;
use crate::error::TensorError;
use crate::leaf::{UseKey, WeightGrad};
use crate::saved::Saved;
use crate::tensor::{Dtype, Meta, PartialSum, Tensor};
use std::rc::Rc;
pub use unisono_kernels::gemm::Activation;
use unisono_kernels::order::Units;
use unisono_mesh::{AxisHandle, Placement};
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::elementwise::{MapGrad, Unary};
use unisono_runtime::ops::matmul::{MatMul, Matrix};
use unisono_runtime::ops::reduce::ColumnSums;

impl Tensor {
    /// `activation(self · weight + bias)`: [.., in] times [in, out].
    ///
    /// Along a mesh axis, a weight that is `Shard(1)` (column-parallel) takes a replicated input and gives a result cut in
    /// its last dimension; one that is `Shard(0)` (row-parallel) takes an input cut in its last dimension and gives a
    /// partial sum, to be completed with [`Tensor::all_reduce`] before bias or activation. Of an input in bf16 the result is
    /// bf16, rounded once; a partial sum is f32 until it is complete.
    ///
    /// # Errors
    /// Shapes or placements that do not fit, or a bias or activation on a partial sum.
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>, activation: Activation) -> Result<Tensor> {
        let layer = Linear::new(self, weight, bias, activation)?;
        let wants_grad = self.needs_grad() || weight.needs_grad() || bias.is_some_and(Tensor::needs_grad);
        let (mut y, pre) = layer.forward(self, wants_grad && self.device().grad_enabled())?;
        if let (Some(f), Some(pre)) = (unary_of(activation), &pre) {
            // What an activation was made from is kept for its gradient; its result need not be.
            let pre = pre.clone();
            y = y.remade_by(Rc::new(move || pre.map(f)));
        }
        let keys = (weight.use_key("linear"), bias.map(|bias| bias.use_key("bias")));
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        Ok(y.record("linear", &inputs, move |dy| layer.backward(dy, pre.as_ref(), keys)))
    }

    /// `activation(self)`.
    ///
    /// # Errors
    /// A partial sum.
    pub fn activate(&self, activation: Activation) -> Result<Tensor> {
        match unary_of(activation) {
            Some(f) => self.map(f),
            None => Ok(self.clone()),
        }
    }

    /// `self · weightᵀ`: [.., in] times a table [out, in], as a tied head uses the embedding. A table that is cut in its rows
    /// gives a result cut in its last dimension. No gradient flows through: training uses
    /// [`Tensor::linear_cross_entropy`].
    ///
    /// # Errors
    /// Shapes or placements that do not fit, or recorded gradients.
    pub fn linear_transposed(&self, weight: &Tensor) -> Result<Tensor> {
        let op = "linear_transposed";
        same_device(op, self, weight)?;
        self.complete(op, "the input")?;
        if self.device().grad_enabled() && (self.needs_grad() || weight.needs_grad()) {
            return Err(TensorError::Gradient(
                "linear_transposed has no gradient: call it inside no_grad, or use linear_cross_entropy".into(),
            ));
        }
        let (&[outer, inner], last) = (weight.local_shape(), self.last()) else {
            return Err(TensorError::Shape {
                op,
                found: format!("a weight of shape {:?}", weight.shape()),
                rule: "a weight has two dimensions, [out, in]".into(),
            });
        };
        if inner != last {
            return Err(TensorError::Shape {
                op,
                found: format!("input {:?} times the transpose of {:?}", self.shape(), weight.shape()),
                rule: "the last dimensions of both must be equal".into(),
            });
        }
        let mut meta = self.meta().clone();
        let dim = meta.local.len() - 1;
        meta.local[dim] = outer;
        meta.units[dim] = weight.meta().units[0];
        if let Some(axis) = weight.meta().axis_of(self.device(), 0) {
            meta.placements[axis.index] = Placement::Shard(dim);
        }
        // Logits: not rounded.
        meta.dtype = Dtype::F32;
        let y = Tensor::activation(self.device(), meta)?;
        self.device().runtime().issue(MatMul {
            batch: 1,
            m: self.leading(),
            n: outer,
            a: Matrix::rows(self.buffer(), inner),
            b: Matrix::transposed(weight.factor(op, self.dtype())?.buffer(), inner),
            to: y.buffer(),
            to_batch: 0,
            slot: y.meta().len(),
            sum: dim_sum(op, inner, weight.meta().units[1], None)?,
            bias: None,
            activation: Activation::None,
            pre: None,
        })?;
        Ok(y)
    }

    /// The matrix product over the last two dimensions; leading dimensions must be equal, or `other` is one matrix.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        if other.rank() == 2 {
            return self.linear(other, None, Activation::None);
        }
        let op = "matmul";
        same_device(op, self, other)?;
        self.complete(op, "the left factor")?;
        other.complete(op, "the right factor")?;
        self.expect_float(op)?;
        self.expect_same_dtype(op, other)?;
        let (a, b) = (self.local_shape(), other.local_shape());
        let rank = self.rank();
        if rank < 2 || other.rank() != rank || a[..rank - 2] != b[..rank - 2] || a[rank - 1] != b[rank - 2] {
            return Err(TensorError::Shape {
                op,
                found: format!("{:?} times {:?}", self.shape(), other.shape()),
                rule: "[.., m, k] times [.., k, n] with equal leading dimensions, or [.., k] times one matrix [k, n]"
                    .into(),
            });
        }
        let uncut = |t: &Tensor| {
            t.placements()
                .iter()
                .all(|p| p.sharded_dim().is_none_or(|dim| dim < rank - 2))
        };
        if self.placements() != other.placements() || !uncut(self) {
            let pairs = self.placements().iter().zip(other.placements());
            let cut = |p: &Placement| p.sharded_dim().is_some_and(|dim| dim + 2 >= rank);
            let index = pairs.clone().position(|(p, q)| p != q || cut(p)).unwrap_or(0);
            return Err(TensorError::Placement {
                op,
                axis: self.device().axis_name(index),
                found: format!("the factors are {self:?} and {other:?}"),
                rule: "a batched product needs factors that are placed alike and not cut in the last two dimensions: \
                       all_gather or scatter one of them"
                    .into(),
            });
        }
        let y = batched(self, false, other, false)?;
        let (a, b) = (self.detach(), other.detach());
        Ok(y.record(op, &[self, other], move |dy| {
            Ok(vec![
                Some(batched(dy, false, &b, true)?),
                Some(batched(&a, true, dy, false)?),
            ])
        }))
    }
}

/// Batched product of activations, either factor transposed.
fn batched(a: &Tensor, a_transposed: bool, b: &Tensor, b_transposed: bool) -> Result<Tensor> {
    let rank = a.rank();
    let size = |t: &Tensor, transposed: bool| {
        let (rows, cols) = (t.local_shape()[rank - 2], t.local_shape()[rank - 1]);
        if transposed { (cols, rows) } else { (rows, cols) }
    };
    let ((m, k), (_, n)) = (size(a, a_transposed), size(b, b_transposed));
    let mut local = a.local_shape().to_vec();
    (local[rank - 2], local[rank - 1]) = (m, n);
    let y = Tensor::activation(
        a.device(),
        Meta {
            units: vec![1; rank],
            ..a.meta().with_local(local)
        },
    )?;
    let matrix = |t: &Tensor, transposed: bool| {
        let cols = t.last();
        let matrix = if transposed {
            Matrix::transposed(t.buffer(), cols)
        } else {
            Matrix::rows(t.buffer(), cols)
        };
        Matrix {
            batch: t.local_shape()[rank - 2] * cols,
            ..matrix
        }
    };
    a.device().runtime().issue(MatMul {
        batch: a.local_shape()[..rank - 2].iter().product(),
        m,
        n,
        a: matrix(a, a_transposed),
        b: matrix(b, b_transposed),
        to: y.buffer(),
        to_batch: m * n,
        slot: y.meta().len(),
        sum: SumShare::whole(Units::whole(k)),
        bias: None,
        activation: Activation::None,
        pre: None,
    })?;
    Ok(y)
}

/// A linear layer whose placements have been checked.
struct Linear {
    x: Saved,
    /// How the input lies.
    x_meta: Meta,
    weight: Tensor,
    /// The weight's values in the kind of `x`.
    factor: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
    /// Which gradients are wanted.
    wants: [bool; 3],
    /// Inner and outer dimension of the weight's shard.
    size: (usize, usize),
    /// The axis along which the inner dimension is cut (row-parallel).
    row_axis: Option<AxisHandle>,
    /// The axis along which the outer dimension is cut (column-parallel).
    column_axis: Option<AxisHandle>,
}

impl Linear {
    fn new(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: Activation) -> Result<Linear> {
        let op = "linear";
        same_device(op, x, weight)?;
        x.complete(op, "the input")?;
        x.expect_float(op)?;
        let factor = weight.factor(op, x.dtype())?;
        if let Some(bias) = bias {
            bias.expect_dtype(op, Dtype::F32)?;
        }
        let &[inner, outer] = weight.local_shape() else {
            return Err(TensorError::Shape {
                op,
                found: format!("a weight of shape {:?}", weight.shape()),
                rule: "a weight has two dimensions, [in, out]".into(),
            });
        };
        if x.rank() == 0 || x.last() != inner {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "input {:?} (a device holds {:?}) times weight {:?} (a device holds {:?})",
                    x.shape(),
                    x.local_shape(),
                    weight.shape(),
                    weight.local_shape()
                ),
                rule: "the input's last dimension must be the weight's first, on each device".into(),
            });
        }
        if let Some(bias) = bias.filter(|bias| bias.local_shape() != [outer]) {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "a bias of shape {:?} for a weight of shape {:?}",
                    bias.shape(),
                    weight.shape()
                ),
                rule: "a bias has one element for each output, placed like them".into(),
            });
        }
        let device = x.device();
        for (index, (px, pw)) in x.placements().iter().zip(weight.placements()).enumerate() {
            let last = x.rank() - 1;
            let fits = match (px, pw) {
                (Placement::Shard(dim), Placement::Shard(0)) => *dim == last,
                (Placement::Replicate, Placement::Shard(1)) | (Placement::Replicate, Placement::Replicate) => true,
                (Placement::Shard(dim), Placement::Replicate) => *dim < last,
                _ => false,
            };
            if !fits {
                return Err(TensorError::Placement {
                    op,
                    axis: device.axis_name(index),
                    found: format!("the input is {px} and the weight {pw}"),
                    rule: format!(
                        "a replicated weight takes an input that is not cut in its last dimension ({last}), a Shard(1) weight a \
                         replicated input, a Shard(0) weight an input that is Shard({last})"
                    ),
                });
            }
            let wanted = match pw {
                Placement::Shard(1) => Placement::Shard(0),
                _ => Placement::Replicate,
            };
            if let Some(bias) = bias.filter(|bias| bias.placements()[index] != wanted) {
                return Err(TensorError::Placement {
                    op,
                    axis: device.axis_name(index),
                    found: format!(
                        "the weight is {pw} and the bias {:?} is {}",
                        bias.shape(),
                        bias.placements()[index]
                    ),
                    rule: format!("the bias must lie as the outputs do: {wanted}"),
                });
            }
        }
        let layer = Linear {
            x: Saved::of(x),
            x_meta: x.meta().clone(),
            weight: weight.clone(),
            factor,
            bias: bias.cloned(),
            activation,
            wants: [
                x.needs_grad(),
                weight.needs_grad(),
                bias.is_some_and(Tensor::needs_grad),
            ],
            size: (inner, outer),
            row_axis: weight.meta().axis_of(device, 0),
            column_axis: weight.meta().axis_of(device, 1),
        };
        if let Some(axis) = layer.row_axis
            && (bias.is_some() || activation != Activation::None)
        {
            return Err(TensorError::Partial {
                op,
                what: format!(
                    "the product of {:?} with a row-parallel weight {:?}",
                    x.shape(),
                    weight.shape()
                ),
                axis: device.axis_name(axis.index),
                hint: ", then add the bias and apply the activation, once",
            });
        }
        for weight in std::iter::once(weight).chain(bias) {
            batch_only(op, x, weight)?;
        }
        Ok(layer)
    }

    fn forward(&self, x: &Tensor, save: bool) -> Result<(Tensor, Option<Tensor>)> {
        let (inner, outer) = self.size;
        let device = x.device();
        let sum = dim_sum("linear", inner, self.weight.meta().units[0], self.row_axis)?;
        let mut meta = x.meta().clone();
        let last = meta.local.len() - 1;
        meta.local[last] = outer;
        meta.units[last] = self.weight.meta().units[1];
        if let Some(axis) = self.column_axis {
            meta.placements[axis.index] = Placement::Shard(last);
        }
        if let Some(axis) = self.row_axis {
            meta.placements[axis.index] = Placement::Partial;
            let dtype = x.dtype();
            meta.partial = partial_of(&sum).map(|partial| PartialSum { dtype, ..partial });
            // Rounded when it is complete.
            meta.dtype = Dtype::F32;
        }
        let y = Tensor::activation(device, meta)?;
        let pre = match self.activation {
            Activation::None => None,
            _ if save => Some(Tensor::activation(device, y.meta().clone())?),
            _ => None,
        };
        device.runtime().issue(MatMul {
            batch: 1,
            m: x.leading(),
            n: outer,
            a: Matrix::rows(x.buffer(), inner),
            b: Matrix::rows(self.factor.buffer(), outer),
            to: y.buffer(),
            to_batch: 0,
            slot: y.meta().len(),
            sum,
            bias: self.bias.as_ref().map(Tensor::buffer),
            activation: self.activation,
            pre: pre.as_ref().map(Tensor::buffer),
        })?;
        Ok((y, pre))
    }

    fn backward(
        &self,
        dy: &Tensor,
        pre: Option<&Tensor>,
        (weight_key, bias_key): (UseKey, Option<UseKey>),
    ) -> Result<Vec<Option<Tensor>>> {
        let (inner, outer) = self.size;
        let runtime = dy.device().runtime().clone();
        let d_pre = match (unary_of(self.activation), pre) {
            (Some(f), Some(pre)) => {
                let d_pre = Tensor::activation(dy.device(), dy.meta().clone())?;
                runtime.issue(MapGrad {
                    f,
                    x: pre.buffer(),
                    dy: dy.buffer(),
                    to: d_pre.buffer(),
                })?;
                d_pre
            }
            _ => dy.clone(),
        };
        let dy = &d_pre;
        let rows = dy.batch_rows();
        let len = dy.leading() / rows.count.max(1);
        let mut gradients = vec![None, None];
        if self.wants[1] {
            let x = self.x.get()?;
            let grad = WeightGrad::open(&self.weight, weight_key, &rows, len, rows.count)?;
            runtime.issue(MatMul {
                batch: 1,
                m: inner,
                n: outer,
                a: Matrix::transposed(x.buffer(), inner),
                b: Matrix::rows(dy.buffer(), outer),
                to: grad.target.buffer,
                to_batch: 0,
                slot: grad.target.slot,
                sum: grad.target.sum,
                bias: None,
                activation: Activation::None,
                pre: None,
            })?;
            gradients[1] = grad.finish()?;
        }
        if let (Some(bias), Some(key)) = (&self.bias, bias_key) {
            let mut gradient = None;
            if self.wants[2] {
                let grad = WeightGrad::open(bias, key, &rows, len, rows.count)?;
                runtime.issue(ColumnSums {
                    x: dy.buffer(),
                    cols: outer,
                    sum: grad.target.sum,
                    to: grad.target.buffer,
                    slot: grad.target.slot,
                })?;
                gradient = grad.finish()?;
            }
            gradients.push(gradient);
        }
        if self.wants[0] {
            gradients[0] = Some(self.input_grad(dy)?);
        }
        Ok(gradients)
    }

    /// `dy · weightᵀ`: a partial sum over the axis that cuts the outputs.
    fn input_grad(&self, dy: &Tensor) -> Result<Tensor> {
        let (inner, outer) = self.size;
        let sum = dim_sum("linear", outer, self.weight.meta().units[1], self.column_axis)?;
        let mut meta = self.x_meta.clone();
        if let Some(axis) = self.column_axis {
            meta.placements[axis.index] = Placement::Partial;
            let dtype = meta.dtype;
            meta.partial = partial_of(&sum).map(|partial| PartialSum { dtype, ..partial });
            meta.dtype = Dtype::F32;
        }
        let dx = Tensor::activation(dy.device(), meta)?;
        dy.device().runtime().issue(MatMul {
            batch: 1,
            m: dy.leading(),
            n: inner,
            a: Matrix::rows(dy.buffer(), outer),
            b: Matrix::transposed(self.factor.buffer(), outer),
            to: dx.buffer(),
            to_batch: 0,
            slot: dx.meta().len(),
            sum,
            bias: None,
            activation: Activation::None,
            pre: None,
        })?;
        Ok(dx)
    }
}

/// The elementwise function that an epilogue fuses.
fn unary_of(activation: Activation) -> Option<Unary> {
    match activation {
        Activation::None => None,
        Activation::Relu => Some(Unary::Relu),
        Activation::Gelu => Some(Unary::Gelu),
        Activation::GeluTanh => Some(Unary::GeluTanh),
        Activation::Silu => Some(Unary::Silu),
    }
}
