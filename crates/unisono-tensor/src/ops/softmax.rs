//! Softmax and log-softmax over the last dimension.

use super::whole_last;
use crate::Result;
use crate::tensor::{Dtype, Tensor};
use unisono_runtime::ops::softmax::{Softmax, SoftmaxGrad, SoftmaxKind};

impl Tensor {
    /// `exp(x) / Σ exp(x)` over the last dimension, which must not be cut.
    ///
    /// # Errors
    /// A partial sum or a cut last dimension.
    pub fn softmax(&self) -> Result<Tensor> {
        softmax("softmax", self, SoftmaxKind::Softmax)
    }

    /// `x − ln Σ exp(x)` over the last dimension, which must not be cut.
    ///
    /// # Errors
    /// A partial sum or a cut last dimension.
    pub fn log_softmax(&self) -> Result<Tensor> {
        softmax("log_softmax", self, SoftmaxKind::LogSoftmax)
    }
}

fn softmax(op: &'static str, x: &Tensor, kind: SoftmaxKind) -> Result<Tensor> {
    x.complete(op, "the input")?;
    x.expect_dtype(op, Dtype::F32)?;
    whole_last(op, x)?;
    let cols = x.last();
    let y = Tensor::activation(x.device(), x.meta().clone())?;
    x.device().runtime().issue(Softmax {
        kind,
        cols,
        x: x.buffer(),
        y: y.buffer(),
    })?;
    let result = y.detach();
    Ok(y.record(op, &[x], move |dy| {
        let dx = Tensor::activation(dy.device(), result.meta().clone())?;
        let command = SoftmaxGrad {
            kind,
            cols,
            y: result.buffer(),
            dy: dy.buffer(),
            dx: dx.buffer(),
        };
        dy.device().runtime().issue(command)?;
        Ok(vec![Some(dx)])
    }))
}
