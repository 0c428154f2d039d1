//! What a block's layers are added to.

use crate::Result;
use unisono_tensor::Tensor;

/// The stream of features that runs past a layer: `x + dropout(layer)`.
pub struct Residual<'a> {
    x: &'a Tensor,
    dropout: f32,
    site: u32,
}

impl<'a> Residual<'a> {
    /// The layer's result is added to `x`, each element of it dropped with probability `dropout`; `site` tells the model's
    /// dropouts apart.
    pub fn with_dropout(x: &'a Tensor, dropout: f32, site: u32) -> Residual<'a> {
        Residual { x, dropout, site }
    }

    /// The layer's result is added to `x`.
    pub fn of(x: &'a Tensor) -> Residual<'a> {
        Residual::with_dropout(x, 0.0, 0)
    }

    /// `x + dropout(y)`.
    ///
    /// # Errors
    /// Another shape or placement, or a probability outside [0, 1).
    pub fn plus(&self, y: &Tensor) -> Result<Tensor> {
        y.dropout_add(self.x, self.dropout, self.site)
    }

    /// What a product can be added to while it is computed: where neither dropout nor a sum over devices comes between.
    pub(super) fn of_a_product(&self) -> Option<&'a Tensor> {
        (self.dropout == 0.0 && self.x.device().axis("tp").is_none()).then_some(self.x)
    }
}
