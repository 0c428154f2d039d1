//! GPT-2: a decoder of pre-norm blocks with learned or fixed positions.
//!
//! Source: Radford et al., *Language models are unsupervised multitask learners* (2019); parameter names as in Hugging
//! Face's `GPT2LMHeadModel`, without the leading `transformer.`.

use super::{LanguageModel, Model, caches_of, places_of};
use crate::Result;
use crate::layers::{Activation, Embedding, LayerNorm, Mlp, Residual, SelfAttention, sinusoidal_positions};
use crate::parameter::{Parameters, Regime, Table, whole};
use std::cell::Cell;
use std::rc::Rc;
use unisono_tensor::ops::attention::{AttentionSpec, KvCache, Places};
use unisono_tensor::recompute::recompute;
use unisono_tensor::{Dtype, MeshDevice, Tensor, TensorError};

/// Where a token's position comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// A learned table.
    Trainable,
    /// Sines and cosines.
    Fixed,
}

/// Everything that defines a GPT.
#[derive(Clone, Debug, PartialEq)]
pub struct GptConfig {
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_sequence_length: usize,
    /// Blocks.
    pub num_blocks: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value groups: also the units that heads, hidden features and vocabulary fall into, so tensor parallelism of any
    /// degree that divides them gives the same bits.
    pub num_groups: usize,
    /// Features of a token.
    pub embedding_dim: usize,
    /// Hidden features of the perceptron.
    pub intermediate_dim: usize,
    /// Probability of dropout after the embedding, the attention and the perceptron.
    pub dropout: f32,
    /// Biases in linear layers and norms.
    pub bias: bool,
    /// Whether the head is the embedding table.
    pub weight_tying: bool,
    /// Positions.
    pub positions: Positions,
    /// The perceptron's activation.
    pub activation: Activation,
    /// Whether blocks are computed again in the backward pass.
    pub recompute: bool,
    /// What activations are: f32 or bf16. Weights, gradients and optimizer state are f32 in both.
    pub dtype: Dtype,
}

/// One block: attention and perceptron, each after a norm and around a residual.
struct Block {
    ln_1: LayerNorm,
    attn: SelfAttention,
    ln_2: LayerNorm,
    mlp: Mlp,
    /// First of the block's two dropout sites.
    site: u32,
}

impl Block {
    fn forward(&self, x: &Tensor, mask: Option<&Tensor>, dropout: f32) -> Result<Tensor> {
        let residual = Residual::with_dropout(x, dropout, self.site);
        let x = self.attn.forward_onto(&self.ln_1.forward(x)?, mask, &residual)?;
        let residual = Residual::with_dropout(&x, dropout, self.site + 1);
        self.mlp.forward_onto(&self.ln_2.forward(&x)?, &residual)
    }

    fn forward_cached(&self, x: &Tensor, cache: &KvCache, at: &Places) -> Result<Tensor> {
        let asking = at.asking_of(x)?;
        let residual = Residual::of(&asking);
        let x = self
            .attn
            .forward_cached_onto(&self.ln_1.forward(x)?, cache, at, &residual)?;
        self.mlp.forward_onto(&self.ln_2.forward(&x)?, &Residual::of(&x))
    }
}

/// A GPT on a mesh.
pub struct Gpt {
    config: GptConfig,
    wte: Embedding,
    wpe: Tensor,
    blocks: Vec<Rc<Block>>,
    ln_f: LayerNorm,
    lm_head: Option<Embedding>,
    table: Table,
    training: Cell<bool>,
    mask: Option<Tensor>,
}

impl Gpt {
    /// A model with fresh parameters, drawn from the device's seed, all of them trained.
    ///
    /// # Errors
    /// A mesh that cannot cut the model's units evenly, or too little memory.
    pub fn new(device: &MeshDevice, config: GptConfig) -> Result<Gpt> {
        Gpt::with_regime(device, config, Regime::default())
    }

    /// A model whose parameters are kept as `regime` says.
    ///
    /// # Errors
    /// As [`Gpt::new`].
    pub fn with_regime(device: &MeshDevice, config: GptConfig, regime: Regime) -> Result<Gpt> {
        let c = &config;
        let mut parameters = Parameters::with_regime(device, c.dtype, regime);
        let p = &mut parameters;
        let wte = Embedding::new(p, "wte", c.vocab_size, c.embedding_dim, c.num_groups)?;
        let wpe = match c.positions {
            Positions::Trainable => p.normal(
                "wpe.weight",
                vec![whole(c.max_sequence_length), whole(c.embedding_dim)],
                0.02,
            )?,
            Positions::Fixed => {
                sinusoidal_positions(device, c.max_sequence_length, c.embedding_dim)?.to_dtype(c.dtype)?
            }
        };
        let blocks = (0..c.num_blocks)
            .map(|i| Block::new(p, i, c).map(Rc::new))
            .collect::<Result<_>>()?;
        let ln_f = LayerNorm::new(p, "ln_f", c.embedding_dim, c.bias)?;
        let lm_head = match c.weight_tying {
            true => None,
            false => Some(Embedding::new(
                p,
                "lm_head",
                c.vocab_size,
                c.embedding_dim,
                c.num_groups,
            )?),
        };
        Ok(Gpt {
            config,
            wte,
            wpe,
            blocks,
            ln_f,
            lm_head,
            table: parameters.table(),
            training: Cell::new(true),
            mask: None,
        })
    }

    /// What it was made from.
    pub fn config(&self) -> &GptConfig {
        &self.config
    }

    /// An attention mask for all later forward passes; see [`Tensor::attention`].
    pub fn set_mask(&mut self, mask: Option<Tensor>) {
        self.mask = mask;
    }

    fn head(&self) -> &Tensor {
        &self.lm_head.as_ref().unwrap_or(&self.wte).weight
    }

    /// Token plus position. The position table's gradient is a sum over sequences.
    fn embed(&self, ids: &Tensor) -> Result<Tensor> {
        let tokens = ids.local_shape().last().copied().unwrap_or(0);
        let max = self.config.max_sequence_length;
        if tokens > max {
            return Err(TensorError::Argument {
                op: "gpt",
                what: format!("sequences of {tokens} tokens; this model has positions for {max}"),
            });
        }
        self.wte.forward(ids)?.add_rows(&self.wpe)
    }
}

impl GptConfig {
    /// Its attention.
    pub fn attention(&self) -> AttentionSpec {
        AttentionSpec {
            num_heads: self.num_heads,
            num_groups: self.num_groups,
            head_dim: self.embedding_dim / self.num_heads.max(1),
            causal: true,
        }
    }
}

impl Block {
    fn new(p: &mut Parameters, index: usize, c: &GptConfig) -> Result<Block> {
        let name = format!("h.{index}");
        let width = c.embedding_dim;
        Ok(Block {
            ln_1: LayerNorm::new(p, &format!("{name}.ln_1"), width, c.bias)?,
            attn: SelfAttention::new(p, &format!("{name}.attn"), width, c.attention(), c.bias)?,
            ln_2: LayerNorm::new(p, &format!("{name}.ln_2"), width, c.bias)?,
            mlp: Mlp::new(
                p,
                &format!("{name}.mlp"),
                (width, c.intermediate_dim, c.num_groups),
                c.activation,
                c.bias,
            )?,
            // Site 0 is the embedding's.
            site: 1 + 2 * index as u32,
        })
    }
}

impl Model for Gpt {
    fn table(&self) -> &Table {
        &self.table
    }

    fn losses(&self, inputs: &Tensor, targets: &Tensor, scale: f32) -> Result<Tensor> {
        self.forward(inputs)?
            .linear_cross_entropy(self.head(), targets, self.config.vocab_size, scale)
    }

    fn set_training(&self, on: bool) {
        self.training.set(on);
    }
}

impl LanguageModel for Gpt {
    fn device(&self) -> &MeshDevice {
        self.wte.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn max_sequence_length(&self) -> usize {
        self.config.max_sequence_length
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let dropout = if self.training.get() { self.config.dropout } else { 0.0 };
        let mut x = self.embed(ids)?.dropout(dropout, 0)?;
        for block in &self.blocks {
            let (block, mask) = (block.clone(), self.mask.clone());
            let run = move |x: &Tensor| block.forward(x, mask.as_ref(), dropout);
            x = if self.config.recompute {
                recompute(&x, Rc::new(run))?
            } else {
                run(&x)?
            };
        }
        self.ln_f.forward(&x)
    }

    fn forward_cached(&self, ids: &Tensor, caches: &[KvCache], positions: &Tensor) -> Result<Tensor> {
        let mut x = self.wte.forward(ids)?.add(&self.wpe.embedding(positions)?)?;
        for ((block, cache), at) in self
            .blocks
            .iter()
            .zip(caches)
            .zip(places_of(positions, self.blocks.len())?)
        {
            x = block.forward_cached(&x, cache, &at)?;
        }
        self.ln_f.forward(&x)
    }

    fn caches(&self, batch: usize, capacity: usize) -> Result<Vec<KvCache>> {
        let (spec, blocks) = (self.config.attention(), self.blocks.len());
        caches_of(self.device(), &spec, blocks, (batch, capacity), self.config.dtype)
    }

    fn logits(&self, features: &Tensor) -> Result<Tensor> {
        features.broadcast("tp")?.logits(self.head())
    }
}
