//! Layer norm and RMS norm over the last dimension.

use super::{batch_only, same_device, whole_last};
use crate::Result;
use crate::error::TensorError;
use crate::leaf::WeightGrad;
use crate::ops::shape::uncut;
use crate::tensor::{Dtype, Meta, Tensor};
use std::rc::Rc;
use unisono_runtime::ops::norm::{Norm, NormGrad, NormParamGrad};

impl Tensor {
    /// `(x − mean) / sqrt(variance + eps) · gamma + beta` over the last dimension, which must not be cut.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn layer_norm(&self, gamma: Option<&Tensor>, beta: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        norm("layer_norm", self, gamma, beta, eps, true)
    }

    /// `x / sqrt(mean(x²) + eps) · gamma` over the last dimension, which must not be cut.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn rms_norm(&self, gamma: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        norm("rms_norm", self, gamma, None, eps, false)
    }
}

fn norm(
    op: &'static str,
    x: &Tensor,
    gamma: Option<&Tensor>,
    beta: Option<&Tensor>,
    eps: f32,
    centred: bool,
) -> Result<Tensor> {
    x.complete(op, "the input")?;
    x.expect_float(op)?;
    let cols = x.last();
    whole_last(op, x)?;
    for parameter in gamma.iter().chain(beta.iter()) {
        same_device(op, x, parameter)?;
        parameter.expect_dtype(op, Dtype::F32)?;
        if parameter.local_shape() != [cols] {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "a parameter of shape {:?} for an input of shape {:?}",
                    parameter.shape(),
                    x.shape()
                ),
                rule: format!("it needs the {cols} elements of the input's last dimension"),
            });
        }
        uncut(op, parameter, 0)?;
        batch_only(op, x, parameter)?;
    }
    let device = x.device().clone();
    let per_row = || Tensor::activation(&device, Meta::replicated(&device, Dtype::F32, &[x.leading()]));
    let mean = if centred { Some(per_row()?) } else { None };
    let rstd = per_row()?;
    let forward = {
        let (x, gamma, beta) = (x.detach(), gamma.map(Tensor::detach), beta.map(Tensor::detach));
        let (mean, rstd) = (mean.clone(), rstd.clone());
        move || {
            let y = Tensor::activation(x.device(), x.meta().clone())?;
            x.device().runtime().issue(Norm {
                x: x.buffer(),
                cols,
                gamma: gamma.as_ref().map(Tensor::buffer),
                beta: beta.as_ref().map(Tensor::buffer),
                eps,
                y: y.buffer(),
                mean: mean.as_ref().map(Tensor::buffer),
                rstd: rstd.buffer(),
            })?;
            Ok(y)
        }
    };
    let mut y = forward()?;
    let mut inputs = vec![x];
    inputs.extend(gamma);
    inputs.extend(beta);
    let keys = (gamma.map(|g| g.use_key(op)), beta.map(|b| b.use_key(op)));
    let saved = (x.detach(), gamma.cloned(), beta.cloned());
    let wants_x = x.needs_grad();
    if inputs.iter().any(|input| input.needs_grad()) && device.grad_enabled() {
        y = y.remade_by(Rc::new(forward));
    }
    Ok(y.record(op, &inputs, move |dy| {
        let (x, gamma, beta) = &saved;
        let runtime = x.device().runtime().clone();
        let rows = x.batch_rows();
        let len = x.leading() / rows.count.max(1);
        let open = |parameter: &Option<Tensor>, key| match (parameter, key) {
            (Some(parameter), Some(key)) if parameter.needs_grad() => {
                WeightGrad::open(parameter, key, &rows, len, rows.count).map(Some)
            }
            _ => Ok(None),
        };
        let d_gamma = open(gamma, keys.0)?;
        let d_beta = open(beta, keys.1)?;
        if let Some(any) = d_gamma.as_ref().or(d_beta.as_ref()) {
            runtime.issue(NormParamGrad {
                x: x.buffer(),
                cols,
                dy: dy.buffer(),
                mean: mean.as_ref().map(Tensor::buffer),
                rstd: rstd.buffer(),
                sum: any.target.sum,
                dgamma: d_gamma.as_ref().map(|grad| grad.target.buffer),
                dbeta: d_beta.as_ref().map(|grad| grad.target.buffer),
                slot: any.target.slot,
            })?;
        }
        let mut gradients = vec![None];
        for (parameter, grad) in [(&gamma, d_gamma), (&beta, d_beta)] {
            if parameter.is_some() {
                gradients.push(match grad {
                    Some(grad) => grad.finish()?,
                    None => None,
                });
            }
        }
        if wants_x {
            let dx = Tensor::activation(x.device(), x.meta().clone())?;
            runtime.issue(NormGrad {
                x: x.buffer(),
                cols,
                dy: dy.buffer(),
                gamma: gamma.as_ref().map(Tensor::buffer),
                mean: mean.as_ref().map(Tensor::buffer),
                rstd: rstd.buffer(),
                dx: dx.buffer(),
            })?;
            gradients[0] = Some(dx);
        }
        Ok(gradients)
    }))
}
