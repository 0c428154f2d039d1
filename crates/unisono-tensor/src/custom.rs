//! A user's own operation with its own backward pass.

use crate::error::TensorError;
use crate::tensor::Tensor;
use crate::{MeshDevice, Result};
use std::sync::Arc;
use unisono_runtime::{Command, Op};

impl MeshDevice {
    /// Issues a user's own command: a kernel that implements [`Op`].
    ///
    /// # Errors
    /// An earlier command that failed.
    pub fn issue(&self, op: Arc<dyn Op + Send + Sync>) -> Result<()> {
        Ok(self.runtime().issue(Command::Custom(op))?)
    }
}

impl Tensor {
    /// A tensor like this one in shape and placements, with undefined values: the output of an operation of one's own.
    ///
    /// # Errors
    /// Too little memory.
    pub fn empty_like(&self) -> Result<Tensor> {
        self.complete("empty_like", "the tensor")?;
        Tensor::activation(self.device(), self.meta().clone())
    }

    /// Gives a result that was computed outside the graph its place in it: `backward` turns the result's gradient into the
    /// gradients of `inputs`, in their order, `None` where there is none.
    ///
    /// # Errors
    /// A result that has its place already.
    pub fn with_backward(
        self,
        name: &'static str,
        inputs: &[&Tensor],
        backward: impl Fn(&Tensor) -> Result<Vec<Option<Tensor>>> + 'static,
    ) -> Result<Tensor> {
        if self.needs_grad() {
            return Err(TensorError::Gradient(format!(
                "{name}: the result {self:?} has its place in the graph already"
            )));
        }
        Ok(self.record(name, inputs, backward))
    }
}
