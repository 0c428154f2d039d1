//! The two-layer perceptron of a transformer block, by units along `tp`.

use super::{Activation, ColumnParallelLinear, Residual, RowParallelLinear};
use crate::Result;
use crate::parameter::Parameters;
use unisono_tensor::Tensor;

/// `activation(x W₁ + b₁) W₂ + b₂`.
pub struct Mlp {
    expand: ColumnParallelLinear,
    shrink: RowParallelLinear,
    activation: Activation,
}

impl Mlp {
    /// From `width` to `hidden` and back; `hidden` falls into `units` units.
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn new(
        p: &mut Parameters,
        name: &str,
        (width, hidden, units): (usize, usize, usize),
        activation: Activation,
        bias: bool,
    ) -> Result<Mlp> {
        let expand = ColumnParallelLinear::new(p, &format!("{name}.c_fc"), width, hidden, units, bias)?;
        let shrink = RowParallelLinear::new(p, &format!("{name}.c_proj"), hidden, width, units, bias)?;
        Ok(Mlp {
            expand,
            shrink,
            activation,
        })
    }

    /// [.., width] to the same.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.shrink.forward(&self.expand.forward(x, self.activation)?)
    }

    /// [`Mlp::forward`], added to the residual.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward_onto(&self, x: &Tensor, residual: &Residual) -> Result<Tensor> {
        self.shrink
            .forward_onto(&self.expand.forward(x, self.activation)?, residual)
    }
}
