//! Optimizers: each is a file with its state and its update.

mod adamw;
mod sgd;

pub use adamw::{AdamW, AdamWConfig};
pub use sgd::{Sgd, SgdConfig};

use crate::Result;
use crate::parameter::Parameter;
use unisono_runtime::BufferRef;
use unisono_tensor::Tensor;

/// What the training loop asks of an optimizer.
pub trait Optimizer {
    /// Issues the update of optimizer step `step` (counted from 0) with learning rate `lr`. Gradients are scaled, and the
    /// update left out, as `control` says (see [`unisono_runtime::ops::optimizer::Control`]).
    ///
    /// # Errors
    /// A gradient whose sum is not complete.
    fn step(&mut self, parameters: &[Parameter], lr: f64, step: u64, control: BufferRef) -> Result<()>;

    /// The state by name (`exp_avg`, …) and parameter, placed like the parameter.
    fn state(&self) -> Vec<StateTensor<'_>>;
}

/// One tensor of an optimizer's state.
pub struct StateTensor<'a> {
    /// What it is: `exp_avg`, `exp_avg_sq`, `momentum`.
    pub name: &'static str,
    /// Index of its parameter in the model's table.
    pub parameter: usize,
    /// Values.
    pub tensor: &'a Tensor,
}

/// No update at all.
pub struct NoOp;

impl Optimizer for NoOp {
    fn step(&mut self, _parameters: &[Parameter], _lr: f64, _step: u64, _control: BufferRef) -> Result<()> {
        Ok(())
    }

    fn state(&self) -> Vec<StateTensor<'_>> {
        Vec::new()
    }
}
