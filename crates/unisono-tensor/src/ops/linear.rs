//! Linear layers, whose weights lie `[in, out]` (GPT-2) or `[out, in]` (`torch.nn.Linear`). The order of every sum is the same,
//! so a weight and its transpose give the same bits.

use super::{batch_only, check_residual, dim_sum, partial_of, same_device};
use crate::Result;
use crate::error::TensorError;
use crate::leaf::{UseKey, WeightGrad};
use crate::saved::Saved;
use crate::tensor::{Dtype, Meta, PartialSum, Tensor};
use std::rc::Rc;
use unisono_kernels::gemm::Activation;
use unisono_mesh::{AxisHandle, Placement};
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
        linear(Direction::InOut, self, weight, bias, activation, None)
    }

    /// `residual + (self · weight + bias)`: the bits of [`Tensor::linear`] and [`Tensor::add`] in one pass.
    ///
    /// # Errors
    /// As for those, and a weight that gives a partial sum.
    pub fn linear_onto(&self, weight: &Tensor, bias: Option<&Tensor>, residual: &Tensor) -> Result<Tensor> {
        linear(Direction::InOut, self, weight, bias, Activation::None, Some(residual))
    }

    /// `self · weightᵀ + bias`: [.., in] times [out, in], as `torch.nn.Linear` keeps its weight.
    ///
    /// As [`Tensor::linear`] with the weight's dimensions exchanged: `Shard(0)` is column-parallel, `Shard(1)` row-parallel
    /// (no bias then).
    ///
    /// # Errors
    /// Shapes or placements that do not fit, or a bias on a partial sum.
    pub fn linear_transposed(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        linear(Direction::OutIn, self, weight, bias, Activation::None, None)
    }

    /// `residual + (self · weightᵀ + bias)`: the bits of [`Tensor::linear_transposed`] and [`Tensor::add`] in one pass.
    ///
    /// # Errors
    /// As for those, and a weight that gives a partial sum.
    pub fn linear_transposed_onto(&self, weight: &Tensor, bias: Option<&Tensor>, residual: &Tensor) -> Result<Tensor> {
        linear(Direction::OutIn, self, weight, bias, Activation::None, Some(residual))
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
}

fn linear(
    direction: Direction,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    activation: Activation,
    residual: Option<&Tensor>,
) -> Result<Tensor> {
    let layer = Linear::new(direction, x, weight, bias, activation, residual)?;
    let wants_grad = layer.wants.contains(&true) && x.device().grad_enabled();
    let (mut y, pre) = layer.forward(x, residual, wants_grad)?;
    if let (Some(f), Some(pre)) = (unary_of(activation), &pre) {
        // What an activation was made from is kept for its gradient; its result need not be.
        let pre = pre.clone();
        y = y.remade_by(Rc::new(move || pre.map(f)));
    }
    let keys = (weight.use_key("linear"), bias.map(|bias| bias.use_key("bias")));
    let mut inputs = vec![x, weight];
    inputs.extend(bias);
    inputs.extend(residual);
    let residual = residual.map(Tensor::needs_grad);
    Ok(y.record(direction.op(), &inputs, move |dy| {
        let mut gradients = layer.backward(dy, pre.as_ref(), keys)?;
        gradients.extend(residual.map(|wanted| wanted.then(|| dy.clone())));
        Ok(gradients)
    }))
}

/// Which dimension of a weight is which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// `[in, out]`.
    InOut,
    /// `[out, in]`.
    OutIn,
}

impl Direction {
    fn op(self) -> &'static str {
        match self {
            Direction::InOut => "linear",
            Direction::OutIn => "linear_transposed",
        }
    }

    /// The weight's dimension that is contracted, and the one that stays.
    fn dims(self) -> (usize, usize) {
        match self {
            Direction::InOut => (0, 1),
            Direction::OutIn => (1, 0),
        }
    }
}

/// A linear layer whose placements have been checked.
struct Linear {
    direction: Direction,
    /// Kept for the weight's gradient, where that is wanted.
    x: Option<Saved>,
    /// How the input lies.
    x_meta: Meta,
    weight: Tensor,
    /// The weight's values in the kind of `x`.
    factor: Tensor,
    bias: Option<Tensor>,
    activation: Activation,
    /// Which gradients are wanted: of input, weight, bias.
    wants: [bool; 3],
    /// Inner and outer dimension of the weight's shard.
    size: (usize, usize),
    /// The axis along which the inner dimension is cut (row-parallel).
    row_axis: Option<AxisHandle>,
    /// The axis along which the outer dimension is cut (column-parallel).
    column_axis: Option<AxisHandle>,
}

impl Linear {
    fn new(
        direction: Direction,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        activation: Activation,
        residual: Option<&Tensor>,
    ) -> Result<Linear> {
        let op = direction.op();
        let (in_dim, out_dim) = direction.dims();
        same_device(op, x, weight)?;
        x.complete(op, "the input")?;
        x.expect_float(op)?;
        let factor = weight.factor(op, x.dtype())?;
        if let Some(bias) = bias {
            bias.expect_dtype(op, Dtype::F32)?;
        }
        let &[first, second] = weight.local_shape() else {
            return Err(TensorError::Shape {
                op,
                found: format!("a weight of shape {:?}", weight.shape()),
                rule: match direction {
                    Direction::InOut => "a weight has two dimensions, [in, out]".into(),
                    Direction::OutIn => "a weight has two dimensions, [out, in]".into(),
                },
            });
        };
        let (inner, outer) = match direction {
            Direction::InOut => (first, second),
            Direction::OutIn => (second, first),
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
                rule: format!(
                    "the input's last dimension must be the weight's {}, on each device",
                    ["first", "second"][in_dim]
                ),
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
                (Placement::Shard(dim), Placement::Shard(cut)) => *cut == in_dim && *dim == last,
                (Placement::Replicate, Placement::Shard(cut)) => *cut == out_dim,
                (Placement::Replicate, Placement::Replicate) => true,
                (Placement::Shard(dim), Placement::Replicate) => *dim < last,
                _ => false,
            };
            if !fits {
                return Err(TensorError::Placement {
                    op,
                    axis: device.axis_name(index),
                    found: format!("the input is {px} and the weight {pw}"),
                    rule: format!(
                        "a replicated weight takes an input that is not cut in its last dimension ({last}), a Shard({out_dim}) \
                         weight a replicated input, a Shard({in_dim}) weight an input that is Shard({last})"
                    ),
                });
            }
            let wanted = match pw {
                Placement::Shard(cut) if *cut == out_dim => Placement::Shard(0),
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
            direction,
            x: weight.needs_grad().then(|| Saved::of(x)),
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
            row_axis: weight.meta().axis_of(device, in_dim),
            column_axis: weight.meta().axis_of(device, out_dim),
        };
        if let Some(axis) = layer.row_axis
            && (bias.is_some() || activation != Activation::None || residual.is_some())
        {
            return Err(TensorError::Partial {
                op,
                what: format!(
                    "the product of {:?} with a row-parallel weight {:?}",
                    x.shape(),
                    weight.shape()
                ),
                axis: device.axis_name(axis.index),
                hint: match residual {
                    None => ", then add the bias and apply the activation, once",
                    Some(_) => ", then add the bias and the residual, once",
                },
            });
        }
        for weight in std::iter::once(weight).chain(bias) {
            batch_only(op, x, weight)?;
        }
        Ok(layer)
    }

    fn forward(&self, x: &Tensor, residual: Option<&Tensor>, save: bool) -> Result<(Tensor, Option<Tensor>)> {
        let (inner, outer) = self.size;
        let (in_dim, out_dim) = self.direction.dims();
        let device = x.device();
        let units = &self.weight.meta().units;
        let sum = dim_sum(self.direction.op(), inner, units[in_dim], self.row_axis)?;
        let mut meta = x.meta().clone();
        let last = meta.local.len() - 1;
        meta.local[last] = outer;
        meta.units[last] = units[out_dim];
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
        if let Some(residual) = residual {
            check_residual(self.direction.op(), &y, residual)?;
        }
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
            b: match self.direction {
                Direction::InOut => Matrix::rows(self.factor.buffer(), outer),
                Direction::OutIn => Matrix::transposed(self.factor.buffer(), inner),
            },
            to: y.buffer(),
            to_batch: 0,
            slot: y.meta().len(),
            sum,
            bias: self.bias.as_ref().map(Tensor::buffer),
            activation: self.activation,
            pre: pre.as_ref().map(Tensor::buffer),
            residual: residual.map(Tensor::buffer),
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
        if let Some(x) = &self.x {
            let x = x.get()?;
            // xᵀ · dy, or its transpose.
            let ((left, m), (right, n)) = match self.direction {
                Direction::InOut => ((x.buffer(), inner), (dy.buffer(), outer)),
                Direction::OutIn => ((dy.buffer(), outer), (x.buffer(), inner)),
            };
            let grad = WeightGrad::open(&self.weight, weight_key, &rows, len, rows.count)?;
            runtime.issue(MatMul {
                batch: 1,
                m,
                n,
                a: Matrix::transposed(left, m),
                b: Matrix::rows(right, n),
                to: grad.target.buffer,
                to_batch: 0,
                slot: grad.target.slot,
                sum: grad.target.sum,
                bias: None,
                activation: Activation::None,
                pre: None,
                residual: None,
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

    /// The product of `dy` with the weight's other side: a partial sum over the axis that cuts the outputs.
    fn input_grad(&self, dy: &Tensor) -> Result<Tensor> {
        let (inner, outer) = self.size;
        let (_, out_dim) = self.direction.dims();
        let units = self.weight.meta().units[out_dim];
        let sum = dim_sum(self.direction.op(), outer, units, self.column_axis)?;
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
            b: match self.direction {
                Direction::InOut => Matrix::transposed(self.factor.buffer(), outer),
                Direction::OutIn => Matrix::rows(self.factor.buffer(), inner),
            },
            to: dx.buffer(),
            to_batch: 0,
            slot: dx.meta().len(),
            sum,
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
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
