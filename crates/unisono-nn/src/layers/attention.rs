//! Self-attention with one fused projection, by heads along `tp`.

use super::{Activation, ColumnParallelLinear, Residual, RowParallelLinear};
use crate::Result;
use crate::parameter::{Foreign, Parameters};
use unisono_tensor::Tensor;
use unisono_tensor::ops::attention::{AttentionSpec, KvCache, Places};

/// Causal self-attention with grouped queries; as many groups as heads is plain multi-head attention.
///
/// Source: Vaswani et al. (2017); Ainslie et al., *GQA* (2023).
pub struct SelfAttention {
    spec: AttentionSpec,
    project_in: ColumnParallelLinear,
    project_out: RowParallelLinear,
}

impl SelfAttention {
    /// Attention over `width` features. Its heads are cut along `tp` by whole groups.
    ///
    /// # Errors
    /// Groups that the mesh does not divide, or too little memory.
    pub fn new(p: &mut Parameters, name: &str, width: usize, spec: AttentionSpec, bias: bool) -> Result<Self> {
        let AttentionSpec {
            num_heads,
            num_groups,
            head_dim,
            ..
        } = spec;
        let heads_per_group = num_heads / num_groups.max(1);
        let fused = num_groups * (heads_per_group + 2) * head_dim;
        let foreign = Foreign::FusedQkv {
            groups: num_groups,
            heads_per_group,
            head_dim,
        };
        let project_in = {
            let layer = ColumnParallelLinear::new(p, &format!("{name}.c_attn"), width, fused, num_groups, bias)?;
            p.stored(&format!("{name}.c_attn.weight"), foreign);
            p.stored(&format!("{name}.c_attn.bias"), foreign);
            layer
        };
        let heads = num_heads * head_dim;
        let project_out = RowParallelLinear::new(p, &format!("{name}.c_proj"), heads, width, num_groups, bias)?;
        Ok(SelfAttention {
            spec,
            project_in,
            project_out,
        })
    }

    /// [batch, tokens, width] to the same.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let fused = self.project_in.forward(x, Activation::None)?;
        self.project_out.forward(&fused.attention(&self.spec, mask)?)
    }

    /// [`SelfAttention::forward`], added to the residual.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward_onto(&self, x: &Tensor, mask: Option<&Tensor>, residual: &Residual) -> Result<Tensor> {
        let fused = self.project_in.forward(x, Activation::None)?;
        self.project_out
            .forward_onto(&fused.attention(&self.spec, mask)?, residual)
    }

    /// Those of the new tokens [batch, tokens, width] that ask, [batch, asking, width], over what the cache holds and all new
    /// ones; added to the residual of those that ask.
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward_cached_onto(&self, x: &Tensor, cache: &KvCache, at: &Places, residual: &Residual) -> Result<Tensor> {
        let fused = self.project_in.forward(x, Activation::None)?;
        self.project_out
            .forward_onto(&fused.cached_attention(&self.spec, cache, at)?, residual)
    }
}
