//! Kinds of numbers: casts, and the bf16 copies that products use in place of f32 weights.
//!
//! In bf16, activations and their gradients have two bytes; each operation reads them as f32, computes in f32 and rounds its
//! result once. Weights stay f32 and keep a rounded *copy* for products and lookups, which the optimizer renews with every
//! update. Partial sums, gradients of weights, norms' parameters, biases, statistics and losses are always f32.

use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Dtype, Meta, Tensor};
use unisono_runtime::ops::cast::Cast;
use unisono_runtime::{BufferRef, Kind};

impl Tensor {
    /// The same numbers in another kind: f32 becomes bf16 by rounding to nearest even, bf16 becomes f32 exactly. The gradient is
    /// cast back.
    ///
    /// # Errors
    /// A partial sum (it must be complete before it is rounded), or integers.
    pub fn to_dtype(&self, dtype: Dtype) -> Result<Tensor> {
        let op = "to_dtype";
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        self.complete(op, "the tensor")?;
        for side in [self.dtype(), dtype] {
            if !side.is_float() {
                return Err(TensorError::Argument {
                    op,
                    what: format!(
                        "{} to {}; f32 and bf16 can be cast to each other",
                        self.dtype().name(),
                        dtype.name()
                    ),
                });
            }
        }
        let meta = Meta {
            dtype,
            ..self.meta().clone()
        };
        let y = Tensor::activation(self.device(), meta)?;
        cast(self, &y)?;
        let from = self.dtype();
        Ok(y.record(op, &[self], move |dy| Ok(vec![Some(dy.to_dtype(from)?)])))
    }

    /// Lets a leaf keep a copy in `dtype` that products and lookups use in its place; the optimizer and
    /// [`Tensor::upload_global`] renew it.
    ///
    /// # Errors
    /// A tensor that is no leaf, or too little memory.
    pub fn keep_copy(&self, dtype: Dtype) -> Result<()> {
        let Some(leaf) = &self.inner.leaf else {
            return Err(TensorError::Gradient(format!(
                "keep_copy() on {self:?}, which is no leaf: call requires_grad() first"
            )));
        };
        if self.dtype() == dtype {
            return Ok(());
        }
        let meta = Meta {
            dtype,
            ..self.meta().clone()
        };
        let copy = Tensor::empty(self.device(), meta, Kind::Parameter)?;
        cast(self, &copy)?;
        *leaf.copy.borrow_mut() = Some(copy);
        Ok(())
    }

    /// The copy's memory, for whoever renews it with the values.
    pub fn copy_buffer(&self) -> Option<BufferRef> {
        self.copy().map(|copy| copy.buffer())
    }

    fn copy(&self) -> Option<Tensor> {
        self.inner.leaf.as_ref()?.copy.borrow().clone()
    }

    /// Rounds the values into the copy, where one is kept.
    pub(crate) fn renew_copy(&self) -> Result<()> {
        self.copy().map_or(Ok(()), |copy| cast(self, &copy))
    }

    /// What activations of kind `dtype` are multiplied with: this weight, or its copy.
    pub(crate) fn factor(&self, op: &'static str, dtype: Dtype) -> Result<Tensor> {
        let copy = self.copy().filter(|copy| copy.dtype() == dtype);
        let factor = copy.unwrap_or_else(|| self.detach());
        if factor.dtype() == dtype {
            return Ok(factor);
        }
        Err(TensorError::Argument {
            op,
            what: format!(
                "an input of {} and a weight {:?} of {}: cast the input with to_dtype(), or let the weight keep_copy() in the \
                 input's kind",
                dtype.name(),
                self.shape(),
                self.dtype().name()
            ),
        })
    }

    /// What lookups read: the copy where one is kept, else this table.
    pub(crate) fn looked_up(&self) -> Tensor {
        self.copy().unwrap_or_else(|| self.detach())
    }

    /// Fails for integers.
    pub(crate) fn expect_float(&self, op: &'static str) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(TensorError::Argument {
            op,
            what: format!("a tensor of {} was given; f32 or bf16 is needed", self.dtype().name()),
        })
    }

    /// Fails where two operands are of different kinds.
    pub(crate) fn expect_same_dtype(&self, op: &'static str, other: &Tensor) -> Result<()> {
        if self.dtype() == other.dtype() {
            return Ok(());
        }
        Err(TensorError::Argument {
            op,
            what: format!(
                "{:?} is {} and {:?} is {}: cast one of them with to_dtype()",
                self.shape(),
                self.dtype().name(),
                other.shape(),
                other.dtype().name()
            ),
        })
    }
}

/// Issues the copy with the conversion.
fn cast(from: &Tensor, to: &Tensor) -> Result<()> {
    from.device().runtime().issue(Cast {
        from: from.buffer(),
        to: to.buffer(),
    })?;
    Ok(())
}
