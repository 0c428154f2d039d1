//! Logits of a language model's head, for reading and drawing from.

use super::check::check_head;
use super::{dim_sum, same_device};
use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Dtype, Tensor};
use unisono_kernels::gemm::Activation;
use unisono_mesh::Placement;
use unisono_runtime::ops::matmul::{MatMul, Matrix};

impl Tensor {
    /// Logits `self · tableᵀ` in f32, whatever the activations are: [.., width] times a table [vocabulary, width], as a tied
    /// head uses the embedding. A table that is cut in its rows gives a result cut in its last dimension. No gradient flows
    /// through: training uses [`Tensor::linear_cross_entropy`], or [`Tensor::linear_transposed`] and
    /// [`Tensor::cross_entropy`].
    ///
    /// # Errors
    /// Shapes or placements that do not fit, or recorded gradients.
    pub fn logits(&self, table: &Tensor) -> Result<Tensor> {
        let op = "logits";
        same_device(op, self, table)?;
        self.complete(op, "the input")?;
        if self.device().grad_enabled() && (self.needs_grad() || table.needs_grad()) {
            return Err(TensorError::Gradient(
                "logits has no gradient: call it inside no_grad, or use linear_cross_entropy or linear_transposed"
                    .into(),
            ));
        }
        let (&[outer, inner], last) = (table.local_shape(), self.last()) else {
            return Err(TensorError::Shape {
                op,
                found: format!("a table of shape {:?}", table.shape()),
                rule: "a table has two dimensions, [vocabulary, width]".into(),
            });
        };
        if inner != last {
            return Err(TensorError::Shape {
                op,
                found: format!("input {:?} times the transpose of {:?}", self.shape(), table.shape()),
                rule: "the last dimensions of both must be equal".into(),
            });
        }
        check_head(op, self, table)?;
        let mut meta = self.meta().clone();
        let dim = meta.local.len() - 1;
        meta.local[dim] = outer;
        meta.units[dim] = table.meta().units[0];
        if let Some(axis) = table.meta().axis_of(self.device(), 0) {
            meta.placements[axis.index] = Placement::Shard(dim);
        }
        meta.dtype = Dtype::F32;
        let y = Tensor::activation(self.device(), meta)?;
        self.device().runtime().issue(MatMul {
            batch: 1,
            m: self.leading(),
            n: outer,
            a: Matrix::rows(self.buffer(), inner),
            b: Matrix::transposed(table.factor(op, self.dtype())?.buffer(), inner),
            to: y.buffer(),
            to_batch: 0,
            slot: y.meta().len(),
            sum: dim_sum(op, inner, table.meta().units[1], None)?,
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
        })?;
        Ok(y)
    }
}
