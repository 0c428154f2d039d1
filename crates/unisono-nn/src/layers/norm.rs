//! Norms over the last dimension.

use crate::Result;
use crate::parameter::{Parameters, whole};
use unisono_tensor::Tensor;

/// Layer norm with learned gain and, if wanted, offset. Source: Ba, Kiros, Hinton, *Layer normalization* (2016).
pub struct LayerNorm {
    gamma: Tensor,
    beta: Option<Tensor>,
    eps: f32,
}

impl LayerNorm {
    /// A norm over `width` elements, eps 1e-5.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(p: &mut Parameters, name: &str, width: usize, bias: bool) -> Result<LayerNorm> {
        let gamma = p.ones(&format!("{name}.weight"), vec![whole(width)])?;
        let beta = if bias {
            Some(p.zeros(&format!("{name}.bias"), vec![whole(width)])?)
        } else {
            None
        };
        Ok(LayerNorm { gamma, beta, eps: 1e-5 })
    }

    /// The same shape.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(Some(&self.gamma), self.beta.as_ref(), self.eps)
    }
}

/// RMS norm with learned gain. Source: Zhang, Sennrich, *Root mean square layer normalization* (2019).
pub struct RmsNorm {
    gamma: Tensor,
    eps: f32,
}

impl RmsNorm {
    /// A norm over `width` elements.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(p: &mut Parameters, name: &str, width: usize, eps: f32) -> Result<RmsNorm> {
        Ok(RmsNorm {
            gamma: p.ones(&format!("{name}.weight"), vec![whole(width)])?,
            eps,
        })
    }

    /// The same shape.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(Some(&self.gamma), self.eps)
    }
}
