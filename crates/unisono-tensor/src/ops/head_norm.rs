//! RMS norm of each head with one gain for all heads (Qwen3's norm of queries and keys).

use super::shape::uncut;
use super::{dim_sum, partial_of, same_device};
use crate::Result;
use crate::error::TensorError;
use crate::leaf::WeightGrad;
use crate::tensor::{Dtype, Meta, Tensor};
use std::rc::Rc;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::norm::{Norm, NormGrad, NormParamGrad};
use unisono_runtime::ops::reduce::ColumnSums;

impl Tensor {
    /// `x / sqrt(mean(x²) + eps) · gamma` of each head of `self` [batch, tokens, heads · head_dim], which may be cut in its batch
    /// or, by whole heads, in its features. `gamma` is f32 `[head_dim]`, the same for all heads, on every device.
    ///
    /// The gradient of `gamma` is complete on each device that shares the heads: heads and tokens of a sequence are added first,
    /// by the units of the features, then the sequences of the step.
    ///
    /// # Errors
    /// Shapes, element types or placements that do not fit.
    pub fn head_norm(&self, head_dim: usize, gamma: &Tensor, eps: f32) -> Result<Tensor> {
        let op = "head_norm";
        check(op, self, head_dim, gamma)?;
        let device = self.device().clone();
        let rows = self.meta().len() / head_dim;
        let rstd = Tensor::activation(&device, Meta::replicated(&device, Dtype::F32, &[rows]))?;
        let forward = {
            let (x, gamma, rstd) = (self.detach(), gamma.detach(), rstd.clone());
            move || {
                let y = Tensor::activation(x.device(), x.meta().clone())?;
                x.device().runtime().issue(Norm {
                    x: x.buffer(),
                    cols: head_dim,
                    gamma: Some(gamma.buffer()),
                    beta: None,
                    eps,
                    y: y.buffer(),
                    mean: None,
                    rstd: rstd.buffer(),
                })?;
                Ok(y)
            }
        };
        let mut y = forward()?;
        let (wants_x, wants_gamma) = (self.needs_grad(), gamma.needs_grad());
        if (wants_x || wants_gamma) && device.grad_enabled() {
            y = y.remade_by(Rc::new(forward));
        }
        let key = gamma.use_key(op);
        let (x, gain) = (self.detach(), gamma.clone());
        Ok(y.record(op, &[self, gamma], move |dy| {
            let mut gradients = vec![None, None];
            if wants_gamma {
                let batch = x.batch_rows();
                let sums = sums_of_sequences(op, &x, dy, &rstd, head_dim)?;
                let grad = WeightGrad::open(&gain, key, &batch, 1, batch.count)?;
                x.device().runtime().issue(ColumnSums {
                    x: sums.buffer(),
                    cols: head_dim,
                    sum: grad.target.sum,
                    to: grad.target.buffer,
                    slot: grad.target.slot,
                })?;
                gradients[1] = grad.finish()?;
            }
            if wants_x {
                let dx = Tensor::activation(x.device(), x.meta().clone())?;
                x.device().runtime().issue(NormGrad {
                    x: x.buffer(),
                    cols: head_dim,
                    dy: dy.buffer(),
                    gamma: Some(gain.buffer()),
                    mean: None,
                    rstd: rstd.buffer(),
                    dx: dx.buffer(),
                })?;
                gradients[0] = Some(dx);
            }
            Ok(gradients)
        }))
    }
}

/// Each sequence's part of the gain's gradient, f32 [batch, head_dim]: Σ dy · x̂ over its heads and their tokens, complete on
/// every device. A head's tokens lie side by side in the sum, so that what a device holds is a run of the addends.
fn sums_of_sequences(op: &'static str, x: &Tensor, dy: &Tensor, rstd: &Tensor, head_dim: usize) -> Result<Tensor> {
    let device = x.device();
    let &[batch, tokens, width] = x.local_shape() else {
        unreachable!("bug in unisono: head_norm has checked the rank")
    };
    let heads = width / head_dim;
    let by_head = |t: &Tensor, len: usize| {
        let local = Meta::replicated(device, t.dtype(), &[batch, tokens, heads, len]);
        t.reinterpret(local).permute(&[0, 2, 1, 3])
    };
    let (x_rows, dy_rows, rstd_rows) = (by_head(x, head_dim)?, by_head(dy, head_dim)?, by_head(rstd, 1)?);
    let axis = x.meta().axis_of(device, 2);
    let sum = dim_sum(op, heads * tokens, x.meta().units[2], axis)?;
    let partial = partial_of(&sum);
    let slot = batch * head_dim;
    let slots = partial.map_or(1, |partial| partial.slots);
    let sums = Tensor::activation(device, Meta::replicated(device, Dtype::F32, &[slots, slot]))?;
    let each = heads * tokens;
    for sequence in 0..batch {
        let part = |t: &Tensor, len: usize| t.buffer().part(sequence * each * len, each * len);
        let at = sequence * head_dim;
        device.runtime().issue(NormParamGrad {
            x: part(&x_rows, head_dim),
            cols: head_dim,
            dy: part(&dy_rows, head_dim),
            mean: None,
            rstd: part(&rstd_rows, 1),
            sum,
            dgamma: Some(sums.buffer().part(at, (slots - 1) * slot + head_dim)),
            dbeta: None,
            slot,
        })?;
    }
    let Some(partial) = partial else { return Ok(sums) };
    let complete = Tensor::activation(device, Meta::replicated(device, Dtype::F32, &[batch, head_dim]))?;
    device.runtime().issue(AllReduce {
        axis: partial.axis,
        reduction: Reduction::Sum { units: partial.units },
        from: sums.buffer(),
        slot,
        len: slot,
        to: complete.buffer(),
    })?;
    Ok(complete)
}

fn check(op: &'static str, x: &Tensor, head_dim: usize, gamma: &Tensor) -> Result<()> {
    same_device(op, x, gamma)?;
    x.complete(op, "the input")?;
    x.expect_float(op)?;
    gamma.expect_dtype(op, Dtype::F32)?;
    uncut(op, gamma, 0)?;
    let fits = |width: usize| head_dim > 0 && width.is_multiple_of(head_dim);
    if !matches!(x.local_shape(), &[_, _, width] if fits(width)) {
        return Err(TensorError::Shape {
            op,
            found: format!(
                "an input {:?} (a device holds {:?}) with heads of {head_dim} elements",
                x.shape(),
                x.local_shape()
            ),
            rule: "[batch, tokens, features] with whole heads on each device".into(),
        });
    }
    if gamma.local_shape() != [head_dim] {
        return Err(TensorError::Shape {
            op,
            found: format!("a gain of shape {:?} for heads of {head_dim} elements", gamma.shape()),
            rule: "one gain an element of a head".into(),
        });
    }
    uncut(op, x, 1)
}
