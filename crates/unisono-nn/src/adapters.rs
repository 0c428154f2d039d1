//! Low-rank adapters (LoRA): a trained product of two thin matrices beside a frozen one.
//!
//! Source: Hu et al., *LoRA: low-rank adaptation of large language models* (2021); `use_rslora`: Kalajdzievski, *A rank
//! stabilization scaling factor for fine-tuning with LoRA* (2023). Names and first values are those of PEFT: `lora_A` is drawn,
//! `lora_B` is zero, so a model with fresh adapters computes what it computed before.

use crate::Result;
use crate::parameter::{Parameter, Parameters, cut, whole};
use std::collections::BTreeSet;
use unisono_tensor::Tensor;

/// What is adapted, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapters {
    /// Inner dimension of the product.
    pub rank: usize,
    /// The product is multiplied by `alpha / rank`.
    pub alpha: f32,
    /// Or by `alpha / √rank`.
    pub rank_stabilised: bool,
    /// Probability of dropout of the adapters' input while training.
    pub dropout: f32,
    /// Full names of the linear layers that are adapted (`model.layers.0.self_attn.q_proj`).
    pub layers: BTreeSet<String>,
    /// Full names of parameters of the model that are trained as well.
    pub also: BTreeSet<String>,
}

impl Adapters {
    /// Factor of the product.
    pub fn scale(&self) -> f32 {
        let rank = self.rank.max(1) as f32;
        self.alpha / if self.rank_stabilised { rank.sqrt() } else { rank }
    }

    /// Whether a parameter of a model with these adapters is trained: it is one of theirs, or named beside them.
    pub fn trains(&self, parameter: &Parameter) -> bool {
        parameter.is_adapter() || self.also.contains(&parameter.name)
    }
}

/// Which dimension of a weight [out, in] `tp` cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The outputs, by so many units: column-parallel.
    Outputs(usize),
    /// The inputs, by so many units: row-parallel.
    Inputs(usize),
}

/// The adapter of one layer: `scale · (x Aᵀ) Bᵀ` with A [rank, in] and B [out, rank].
pub struct Adapter {
    a: Tensor,
    b: Tensor,
    cut: Cut,
    scale: f32,
    dropout: f32,
    site: u32,
}

impl Adapter {
    /// The adapter of the layer `name`, [out, in] = `(outputs, inputs)`. `site` is the dropout's.
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn new(
        p: &mut Parameters,
        name: &str,
        (outputs, inputs): (usize, usize),
        cut_by: Cut,
        adapters: &Adapters,
        site: u32,
    ) -> Result<Adapter> {
        let rank = whole(adapters.rank);
        let (inputs_dim, outputs_dim) = match cut_by {
            Cut::Outputs(units) => (whole(inputs), cut(outputs, units)),
            Cut::Inputs(units) => (cut(inputs, units), whole(outputs)),
        };
        // Kaiming's bound with a = √5, which PEFT takes.
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        Ok(Adapter {
            a: p.adapter(&format!("{name}.lora_A.weight"), vec![rank, inputs_dim], bound)?,
            b: p.adapter(&format!("{name}.lora_B.weight"), vec![outputs_dim, rank], 0.0)?,
            cut: cut_by,
            scale: adapters.scale(),
            dropout: adapters.dropout,
            site,
        })
    }

    /// What is added to the layer's output: [.., out] of x [.., in], placed as the layer's own. `training` says whether
    /// dropout is on.
    ///
    /// # Errors
    /// A shape or placement that does not fit.
    pub fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        let x = match training {
            true => x.dropout(self.dropout, self.site)?,
            false => x.clone(),
        };
        let thin = x.linear_transposed(&self.a, None)?;
        let wide = match self.cut {
            Cut::Outputs(_) => thin.broadcast("tp")?.linear_transposed(&self.b, None)?,
            Cut::Inputs(_) => thin.all_reduce("tp")?.linear_transposed(&self.b, None)?,
        };
        wide.mul_scalar(self.scale)
    }
}
