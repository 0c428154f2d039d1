//! The Llama family: pre-norm blocks of grouped-query attention with rotary positions and a gated perceptron.
//!
//! Sources: Touvron et al., *Llama 2* (2023); Grattafiori et al., *The Llama 3 herd of models* (2024). Mistral, Qwen 2 and
//! 3, TinyLlama and SmolLM differ by configuration. Parameter names and layouts are those of Hugging Face's
//! `LlamaForCausalLM`.

use super::{LanguageModel, Model, caches_of, places_of};
use crate::Result;
use crate::adapters::Cut;
use crate::layers::{Embedding, Projection, Residual, RmsNorm};
use crate::parameter::{Parameters, Regime, Table, whole};
use crate::rope::Rope;
use std::cell::Cell;
use std::rc::Rc;
use unisono_tensor::ops::attention::{AttentionSpec, KvCache, Places};
use unisono_tensor::recompute::recompute;
use unisono_tensor::{Dtype, MeshDevice, Tensor, TensorError};

/// Everything that defines a Llama.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Longest sequence.
    pub max_sequence_length: usize,
    /// Blocks.
    pub num_blocks: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads, each shared by `num_heads / num_groups` query heads: also the units that tensor parallelism cuts.
    pub num_groups: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Features of a token.
    pub embedding_dim: usize,
    /// Hidden features of the perceptron.
    pub intermediate_dim: usize,
    /// Positions.
    pub rope: Rope,
    /// Added to the mean square in norms.
    pub norm_eps: f32,
    /// Whether the head is the embedding table.
    pub weight_tying: bool,
    /// Biases of the projections to queries, keys and values (Qwen 2).
    pub qkv_bias: bool,
    /// Bias of the attention's output projection.
    pub output_bias: bool,
    /// Biases in the perceptron.
    pub mlp_bias: bool,
    /// RMS norms of each query and key head (Qwen 3).
    pub qk_norm: bool,
    /// Probability of dropout after the embedding, the attention and the perceptron.
    pub dropout: f32,
    /// Whether blocks are computed again in the backward pass.
    pub recompute: bool,
    /// What activations are: f32 or bf16.
    pub dtype: Dtype,
}

/// Standard deviation of fresh weights.
const STD: f32 = 0.02;

/// Attention of a block.
struct Attention {
    spec: AttentionSpec,
    q_proj: Projection,
    k_proj: Projection,
    v_proj: Projection,
    o_proj: Projection,
    /// Gains of the norms of queries and keys.
    qk_norm: Option<(Tensor, Tensor)>,
    eps: f32,
}

/// The gated perceptron: `(silu(x Gᵀ) ⊙ x Uᵀ) Dᵀ`. Source: Shazeer, *GLU variants improve transformer* (2020).
struct Mlp {
    gate_proj: Projection,
    up_proj: Projection,
    down_proj: Projection,
}

struct Block {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
    /// First of the block's two dropout sites.
    site: u32,
}

/// What a pass through the blocks is given besides the features.
#[derive(Clone)]
struct Pass {
    /// Of the rotary positions.
    frequencies: Tensor,
    dropout: f32,
    training: bool,
}

impl Attention {
    fn forward_onto(&self, x: &Tensor, pass: &Pass, residual: &Residual) -> Result<Tensor> {
        let (q, k, v) = self.project((x, None), (x, None), pass)?;
        let y = q.attention_qkv(&k, &v, &self.spec)?;
        self.o_proj.forward_onto(&y, pass.training, residual)
    }

    fn forward_cached_onto(
        &self,
        x: &Tensor,
        pass: &Pass,
        (cache, at): (&KvCache, &Places),
        residual: &Residual,
    ) -> Result<Tensor> {
        let asking = at.asking_of(x)?;
        let (q, k, v) = self.project((&asking, Some(&at.asking)), (x, Some(&at.all)), pass)?;
        let y = q.cached_attention_qkv(&k, &v, &self.spec, cache, at)?;
        self.o_proj.forward_onto(&y, pass.training, residual)
    }

    /// Queries of the tokens that ask and keys of all, normed and rotated, and values; of both the features and, where they are
    /// not 0, 1, 2, …, the positions are given.
    fn project(
        &self,
        (asking, asking_at): (&Tensor, Option<&Tensor>),
        (x, at): (&Tensor, Option<&Tensor>),
        pass: &Pass,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let (d, training) = (self.spec.head_dim, pass.training);
        let mut q = self.q_proj.forward(asking, training)?;
        let mut k = self.k_proj.forward(x, training)?;
        let v = self.v_proj.forward(x, training)?;
        if let Some((q_norm, k_norm)) = &self.qk_norm {
            q = q.head_norm(d, q_norm, self.eps)?;
            k = k.head_norm(d, k_norm, self.eps)?;
        }
        let rotate = |x: &Tensor, at| x.rope(d, &pass.frequencies, at);
        Ok((rotate(&q, asking_at)?, rotate(&k, at)?, v))
    }
}

impl Mlp {
    fn forward_onto(&self, x: &Tensor, training: bool, residual: &Residual) -> Result<Tensor> {
        let gate = self.gate_proj.forward(x, training)?;
        let up = self.up_proj.forward(x, training)?;
        self.down_proj.forward_onto(&gate.swiglu(&up)?, training, residual)
    }
}

impl Block {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let residual = Residual::with_dropout(x, pass.dropout, self.site);
        let x = self
            .self_attn
            .forward_onto(&self.input_layernorm.forward(x)?, pass, &residual)?;
        let residual = Residual::with_dropout(&x, pass.dropout, self.site + 1);
        let normed = self.post_attention_layernorm.forward(&x)?;
        self.mlp.forward_onto(&normed, pass.training, &residual)
    }

    fn forward_cached(&self, x: &Tensor, pass: &Pass, cache: &KvCache, at: &Places) -> Result<Tensor> {
        let normed = self.input_layernorm.forward(x)?;
        let asking = at.asking_of(x)?;
        let residual = Residual::of(&asking);
        let x = self
            .self_attn
            .forward_cached_onto(&normed, pass, (cache, at), &residual)?;
        let normed = self.post_attention_layernorm.forward(&x)?;
        self.mlp.forward_onto(&normed, pass.training, &Residual::of(&x))
    }
}

/// A Llama on a mesh.
pub struct Llama {
    config: LlamaConfig,
    embed_tokens: Embedding,
    blocks: Vec<Rc<Block>>,
    norm: RmsNorm,
    lm_head: Option<Embedding>,
    frequencies: Tensor,
    table: Table,
    training: Cell<bool>,
}

impl Llama {
    /// A model whose parameters are kept as `regime` says; fresh values are drawn from the device's seed.
    ///
    /// # Errors
    /// A mesh that cannot cut the model's units evenly, or too little memory.
    pub fn new(device: &MeshDevice, config: LlamaConfig, regime: Regime) -> Result<Llama> {
        let c = &config;
        let mut parameters = Parameters::with_regime(device, c.dtype, regime);
        let p = &mut parameters;
        let table =
            |p: &mut Parameters, name: &str| Embedding::new(p, name, c.vocab_size, c.embedding_dim, c.num_groups);
        let embed_tokens = table(p, "model.embed_tokens")?;
        let blocks = (0..c.num_blocks)
            .map(|i| Block::new(p, i, c).map(Rc::new))
            .collect::<Result<_>>()?;
        let norm = RmsNorm::new(p, "model.norm", c.embedding_dim, c.norm_eps)?;
        let lm_head = match c.weight_tying {
            true => None,
            false => Some(table(p, "lm_head")?),
        };
        let frequencies = c.rope.frequencies(c.head_dim);
        Ok(Llama {
            embed_tokens,
            blocks,
            norm,
            lm_head,
            frequencies: device.tensor(&frequencies, &[frequencies.len()])?,
            table: parameters.table(),
            training: Cell::new(true),
            config,
        })
    }

    /// What it was made from.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    fn head(&self) -> &Tensor {
        &self.lm_head.as_ref().unwrap_or(&self.embed_tokens).weight
    }

    fn pass(&self) -> Pass {
        let training = self.training.get();
        Pass {
            frequencies: self.frequencies.clone(),
            dropout: if training { self.config.dropout } else { 0.0 },
            training,
        }
    }
}

impl LlamaConfig {
    /// Its attention.
    pub fn attention(&self) -> AttentionSpec {
        AttentionSpec {
            num_heads: self.num_heads,
            num_groups: self.num_groups,
            head_dim: self.head_dim,
            causal: true,
        }
    }

    /// Names of the linear layers of a block, which adapters can stand beside.
    pub const LINEAR_LAYERS: [&str; 7] = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ];

    /// Full name of the linear layer `layer` of block `block`.
    pub fn layer_name(block: usize, layer: &str) -> String {
        format!("model.layers.{block}.{layer}")
    }
}

impl Block {
    fn new(p: &mut Parameters, index: usize, c: &LlamaConfig) -> Result<Block> {
        let (width, hidden, units) = (c.embedding_dim, c.intermediate_dim, c.num_groups);
        let (queries, keys) = (c.num_heads * c.head_dim, c.num_groups * c.head_dim);
        // Adapters' dropout sites lie beyond the blocks'; site 0 is the embedding's.
        let first = 1 + 2 * c.num_blocks as u32 + 7 * index as u32;
        let linear = |p: &mut Parameters, layer: usize, size, cut, bias| {
            let name = LlamaConfig::layer_name(index, LlamaConfig::LINEAR_LAYERS[layer]);
            Projection::new(p, &name, size, cut, bias, STD, first + layer as u32)
        };
        let norm =
            |p: &mut Parameters, name: &str| RmsNorm::new(p, &LlamaConfig::layer_name(index, name), width, c.norm_eps);
        let gain = |p: &mut Parameters, name: &str| {
            let name = LlamaConfig::layer_name(index, name);
            p.ones(&format!("{name}.weight"), vec![whole(c.head_dim)])
        };
        Ok(Block {
            input_layernorm: norm(p, "input_layernorm")?,
            self_attn: Attention {
                spec: c.attention(),
                q_proj: linear(p, 0, (queries, width), Cut::Outputs(units), c.qkv_bias)?,
                k_proj: linear(p, 1, (keys, width), Cut::Outputs(units), c.qkv_bias)?,
                v_proj: linear(p, 2, (keys, width), Cut::Outputs(units), c.qkv_bias)?,
                o_proj: linear(p, 3, (width, queries), Cut::Inputs(units), c.output_bias)?,
                qk_norm: match c.qk_norm {
                    true => Some((gain(p, "self_attn.q_norm")?, gain(p, "self_attn.k_norm")?)),
                    false => None,
                },
                eps: c.norm_eps,
            },
            post_attention_layernorm: norm(p, "post_attention_layernorm")?,
            mlp: Mlp {
                gate_proj: linear(p, 4, (hidden, width), Cut::Outputs(units), c.mlp_bias)?,
                up_proj: linear(p, 5, (hidden, width), Cut::Outputs(units), c.mlp_bias)?,
                down_proj: linear(p, 6, (width, hidden), Cut::Inputs(units), c.mlp_bias)?,
            },
            site: 1 + 2 * index as u32,
        })
    }
}

impl Model for Llama {
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

impl LanguageModel for Llama {
    fn device(&self) -> &MeshDevice {
        self.embed_tokens.weight.device()
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn max_sequence_length(&self) -> usize {
        self.config.max_sequence_length
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (tokens, max) = (
            ids.local_shape().last().copied().unwrap_or(0),
            self.config.max_sequence_length,
        );
        if tokens > max {
            return Err(TensorError::Argument {
                op: "llama",
                what: format!("sequences of {tokens} tokens; this model has positions for {max}"),
            });
        }
        let pass = self.pass();
        let mut x = self.embed_tokens.forward(ids)?.dropout(pass.dropout, 0)?;
        for block in &self.blocks {
            let (block, pass) = (block.clone(), pass.clone());
            let run = move |x: &Tensor| block.forward(x, &pass);
            x = match self.config.recompute {
                true => recompute(&x, Rc::new(run))?,
                false => run(&x)?,
            };
        }
        self.norm.forward(&x)
    }

    fn forward_cached(&self, ids: &Tensor, caches: &[KvCache], positions: &Tensor) -> Result<Tensor> {
        let pass = self.pass();
        let mut x = self.embed_tokens.forward(ids)?;
        for ((block, cache), at) in self
            .blocks
            .iter()
            .zip(caches)
            .zip(places_of(positions, self.blocks.len())?)
        {
            x = block.forward_cached(&x, &pass, cache, &at)?;
        }
        self.norm.forward(&x)
    }

    fn caches(&self, batch: usize, capacity: usize) -> Result<Vec<KvCache>> {
        let (spec, blocks) = (self.config.attention(), self.blocks.len());
        caches_of(self.device(), &spec, blocks, (batch, capacity), self.config.dtype)
    }

    fn logits(&self, features: &Tensor) -> Result<Tensor> {
        features.broadcast("tp")?.logits(self.head())
    }
}
