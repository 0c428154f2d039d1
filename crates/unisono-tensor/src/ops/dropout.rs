//! Dropout.

use super::check_residual;
use crate::Result;
use crate::error::TensorError;
use crate::tensor::Tensor;
use unisono_runtime::ops::dropout::Dropout;

impl Tensor {
    /// Each element is zero with probability `p`, else multiplied by 1/(1 − p). What is dropped depends on seed, step,
    /// `site` and the element's place in the whole tensor, never on the mesh.
    ///
    /// # Errors
    /// A probability outside [0, 1), or a partial sum.
    pub fn dropout(&self, p: f32, site: u32) -> Result<Tensor> {
        dropout(self, None, p, site)
    }

    /// `residual + dropout(self)` in one pass.
    ///
    /// # Errors
    /// As [`Tensor::dropout`], or a residual of another shape or placement.
    pub fn dropout_add(&self, residual: &Tensor, p: f32, site: u32) -> Result<Tensor> {
        check_residual("dropout_add", self, residual)?;
        if p == 0.0 {
            return residual.add(self);
        }
        dropout(self, Some(residual), p, site)
    }
}

fn dropout(x: &Tensor, residual: Option<&Tensor>, p: f32, site: u32) -> Result<Tensor> {
    let op = "dropout";
    x.complete(op, "the input")?;
    x.expect_float(op)?;
    if !(0.0..1.0).contains(&p) {
        return Err(TensorError::Argument {
            op,
            what: format!("probability {p}; it must be at least 0 and below 1"),
        });
    }
    if p == 0.0 && residual.is_none() {
        return Ok(x.clone());
    }
    let stream = x.device().stream(site, true);
    let region = x.region(op)?;
    let y = Tensor::activation(x.device(), x.meta().clone())?;
    x.device().runtime().issue(Dropout {
        x: x.buffer(),
        residual: residual.map(Tensor::buffer),
        to: y.buffer(),
        region,
        stream,
        p,
    })?;
    let mut inputs = vec![x];
    inputs.extend(residual);
    let has_residual = residual.is_some();
    let wants = x.needs_grad();
    Ok(y.record(op, &inputs, move |dy| {
        let mut gradients = vec![None];
        if wants {
            let dx = Tensor::activation(dy.device(), dy.meta().clone())?;
            let command = Dropout {
                x: dy.buffer(),
                residual: None,
                to: dx.buffer(),
                region,
                stream,
                p,
            };
            dy.device().runtime().issue(command)?;
            gradients[0] = Some(dx);
        }
        if has_residual {
            gradients.push(Some(dy.clone()));
        }
        Ok(gradients)
    }))
}
