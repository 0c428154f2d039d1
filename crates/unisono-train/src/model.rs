//! From the configuration to a model, an optimizer and a schedule.

use crate::config::{
    self, Activation as ConfigActivation, ModelConfig, OptimizerConfig, OptimizerRule, PositionalEmbedding,
    RopeScalingConfig, RunConfig, RunnerType, SchedulerConfig,
};
use std::rc::Rc;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Llama, LlamaConfig, Model, Perceptron, PerceptronConfig, Positions};
use unisono_nn::optimizers::{AdamW, AdamWConfig, NoOp, Optimizer, Sgd, SgdConfig};
use unisono_nn::rope::{Rope, RopeScaling};
use unisono_nn::{LanguageModel, Parameter, Regime, Schedule};
use unisono_tensor::{Dtype, MeshDevice, Result};

/// A model's definition, complete with its vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelSpec {
    /// A language model.
    Gpt(GptConfig),
    /// A language model of the Llama family.
    Llama(LlamaConfig),
    /// Linear regression or a perceptron.
    Perceptron(PerceptronConfig),
}

/// A model on a mesh.
#[derive(Clone)]
pub enum LiveModel {
    /// A language model.
    Gpt(Rc<Gpt>),
    /// A language model of the Llama family.
    Llama(Rc<Llama>),
    /// Linear regression or a perceptron.
    Perceptron(Rc<Perceptron>),
}

impl ModelSpec {
    /// The model that `config` describes; `vocab_size` is the tokenizer's, where there is one.
    pub fn of(config: &RunConfig, vocab_size: Option<usize>) -> ModelSpec {
        // A model that is loaded keeps its vocabulary; one that begins here takes the tokenizer's.
        let own = config.model.language().map_or(0, |(vocab_size, _)| vocab_size);
        let vocab_size = match config.training.model_path {
            Some(_) => own,
            None => vocab_size.unwrap_or(own),
        };
        match &config.model {
            ModelConfig::Gpt2(c) => ModelSpec::Gpt(GptConfig {
                vocab_size,
                max_sequence_length: c.max_sequence_length,
                num_blocks: c.num_blocks,
                num_heads: c.num_heads,
                num_groups: c.num_groups,
                embedding_dim: c.embedding_dim,
                intermediate_dim: c.intermediate_dim,
                dropout: c.dropout_prob as f32,
                bias: c.bias,
                weight_tying: c.weight_tying,
                positions: match c.positional_embedding_type {
                    PositionalEmbedding::Trainable => Positions::Trainable,
                    PositionalEmbedding::Fixed => Positions::Fixed,
                },
                activation: activation(c.activation),
                recompute: c.runner_type == RunnerType::MemoryEfficient,
                dtype: config.training.dtype,
            }),
            ModelConfig::Llama(c) => ModelSpec::Llama(LlamaConfig {
                vocab_size,
                max_sequence_length: c.max_sequence_length,
                num_blocks: c.num_blocks,
                num_heads: c.num_heads,
                num_groups: c.num_groups,
                head_dim: c.head_dim,
                embedding_dim: c.embedding_dim,
                intermediate_dim: c.intermediate_dim,
                rope: Rope {
                    theta: c.theta as f32,
                    scaling: rope_scaling(c.rope_scaling),
                },
                norm_eps: c.norm_eps as f32,
                weight_tying: c.weight_tying,
                qkv_bias: c.qkv_bias,
                output_bias: c.output_bias,
                mlp_bias: c.mlp_bias,
                qk_norm: c.qk_norm,
                dropout: c.dropout_prob as f32,
                recompute: c.runner_type == RunnerType::MemoryEfficient,
                dtype: config.training.dtype,
            }),
            ModelConfig::Linear(c) => ModelSpec::Perceptron(PerceptronConfig {
                inputs: c.input_features,
                hidden: Vec::new(),
                outputs: c.output_features,
                units: 1,
                bias: c.bias,
                activation: Activation::None,
                dtype: config.training.dtype,
            }),
            ModelConfig::Mlp(c) => ModelSpec::Perceptron(PerceptronConfig {
                inputs: c.input_features,
                hidden: c.hidden_features.clone(),
                outputs: c.output_features,
                units: hidden_units(&c.hidden_features),
                bias: c.bias,
                activation: activation(c.activation),
                dtype: config.training.dtype,
            }),
        }
    }

    /// Units that tensor parallelism cuts; its degree must divide them.
    pub fn units(&self) -> usize {
        match self {
            ModelSpec::Gpt(c) => c.num_groups,
            ModelSpec::Llama(c) => c.num_groups,
            ModelSpec::Perceptron(c) => c.units,
        }
    }

    /// The same model with activations of another kind.
    pub fn with_dtype(mut self, dtype: Dtype) -> ModelSpec {
        match &mut self {
            ModelSpec::Gpt(c) => c.dtype = dtype,
            ModelSpec::Llama(c) => c.dtype = dtype,
            ModelSpec::Perceptron(c) => c.dtype = dtype,
        }
        self
    }

    /// Entries of the vocabulary, if it is a language model.
    pub fn vocab_size(&self) -> Option<usize> {
        match self {
            ModelSpec::Gpt(c) => Some(c.vocab_size),
            ModelSpec::Llama(c) => Some(c.vocab_size),
            ModelSpec::Perceptron(_) => None,
        }
    }

    /// Targets of a sequence (sample).
    pub fn targets_per_sequence(&self) -> usize {
        match self {
            ModelSpec::Gpt(c) => c.max_sequence_length,
            ModelSpec::Llama(c) => c.max_sequence_length,
            ModelSpec::Perceptron(c) => c.outputs,
        }
    }

    /// Words for the header.
    pub fn describe(&self) -> String {
        match self {
            ModelSpec::Gpt(c) => format!(
                "GPT-2 style, {}, {}{}, width {}, MLP {}, {}, {} positions, {} head{}{}",
                counted(c.num_blocks, "block"),
                counted(c.num_heads, "head"),
                in_groups(c.num_heads, c.num_groups),
                c.embedding_dim,
                c.intermediate_dim,
                counted(c.max_sequence_length, "token"),
                match c.positions {
                    Positions::Trainable => "learned",
                    Positions::Fixed => "fixed",
                },
                if c.weight_tying { "tied" } else { "untied" },
                with_dropout(c.dropout),
                if c.recompute { ", blocks recomputed" } else { "" },
            ),
            ModelSpec::Llama(c) => format!(
                "Llama style, {}, {}{} of {}, width {}, MLP {}, {}, rotary positions (theta {}{}), {} head{}{}{}",
                counted(c.num_blocks, "block"),
                counted(c.num_heads, "head"),
                in_groups(c.num_heads, c.num_groups),
                c.head_dim,
                c.embedding_dim,
                c.intermediate_dim,
                counted(c.max_sequence_length, "token"),
                c.rope.theta,
                match c.rope.scaling {
                    RopeScaling::None => String::new(),
                    RopeScaling::Linear { factor } => format!(", linear scaling {factor}"),
                    RopeScaling::Llama3 { factor, .. } => format!(", llama3 scaling {factor}"),
                },
                if c.weight_tying { "tied" } else { "untied" },
                if c.qk_norm { ", norms of queries and keys" } else { "" },
                with_dropout(c.dropout),
                if c.recompute { ", blocks recomputed" } else { "" },
            ),
            ModelSpec::Perceptron(c) if c.hidden.is_empty() => {
                format!("linear regression, {} → {}", c.inputs, c.outputs)
            }
            ModelSpec::Perceptron(c) => format!("perceptron, {} → {:?} → {}", c.inputs, c.hidden, c.outputs),
        }
    }

    /// The model on a mesh, its parameters kept as `regime` says. (A perceptron is always trained, from fresh parameters.)
    ///
    /// # Errors
    /// A mesh that cannot cut it evenly, or too little memory.
    pub fn build(&self, device: &MeshDevice, regime: &Regime) -> Result<LiveModel> {
        Ok(match self {
            ModelSpec::Gpt(config) => {
                LiveModel::Gpt(Rc::new(Gpt::with_regime(device, config.clone(), regime.clone())?))
            }
            ModelSpec::Llama(config) => LiveModel::Llama(Rc::new(Llama::new(device, config.clone(), regime.clone())?)),
            ModelSpec::Perceptron(config) => LiveModel::Perceptron(Rc::new(Perceptron::new(device, config.clone())?)),
        })
    }

    /// Floating-point operations of training on one sequence of `tokens` tokens (one sample), as the field counts them (PaLM, appendix B): six a matrix
    /// parameter and token, and twelve a layer for each (query, seen key, feature) of attention, half of which is masked.
    pub fn training_flops_per_sequence(&self, tokens: usize) -> f64 {
        match self {
            ModelSpec::Gpt(c) => {
                let (t, e) = (tokens as f64, c.embedding_dim as f64);
                let head = e / c.num_heads as f64;
                let fused = e + 2.0 * c.num_groups as f64 * head;
                let block = e * fused + e * e + 2.0 * e * c.intermediate_dim as f64;
                let products = 6.0 * t * (c.num_blocks as f64 * block + e * c.vocab_size as f64);
                products + 12.0 * c.num_blocks as f64 * e * t * t / 2.0
            }
            ModelSpec::Llama(c) => {
                let (t, e) = (tokens as f64, c.embedding_dim as f64);
                let queries = c.num_heads as f64 * c.head_dim as f64;
                let keys = c.num_groups as f64 * c.head_dim as f64;
                let block = 2.0 * e * queries + 2.0 * e * keys + 3.0 * e * c.intermediate_dim as f64;
                let products = 6.0 * t * (c.num_blocks as f64 * block + e * c.vocab_size as f64);
                products + 12.0 * c.num_blocks as f64 * queries * t * t / 2.0
            }
            ModelSpec::Perceptron(c) => {
                let mut sizes = vec![c.inputs];
                sizes.extend(&c.hidden);
                sizes.push(c.outputs);
                sizes.windows(2).map(|s| 6.0 * s[0] as f64 * s[1] as f64).sum()
            }
        }
    }
}

impl LiveModel {
    /// As the training loop sees it.
    pub fn as_model(&self) -> &dyn Model {
        match self {
            LiveModel::Gpt(model) => model.as_ref(),
            LiveModel::Llama(model) => model.as_ref(),
            LiveModel::Perceptron(model) => model.as_ref(),
        }
    }

    /// As generation sees it, if it is a language model.
    pub fn as_language_model(&self) -> Option<&dyn LanguageModel> {
        match self {
            LiveModel::Gpt(model) => Some(model.as_ref()),
            LiveModel::Llama(model) => Some(model.as_ref()),
            LiveModel::Perceptron(_) => None,
        }
    }
}

/// The optimizer that `config` describes.
///
/// # Errors
/// Too little memory.
pub fn optimizer(config: &OptimizerConfig, parameters: &[Parameter]) -> Result<Box<dyn Optimizer>> {
    let decay_norms_and_biases = config.decay_norms_and_biases;
    Ok(match config.rule {
        OptimizerRule::AdamW {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            ..
        } => Box::new(AdamW::new(
            parameters,
            AdamWConfig {
                beta1,
                beta2,
                epsilon,
                weight_decay,
                decay_norms_and_biases,
            },
        )?),
        OptimizerRule::Sgd {
            momentum,
            dampening,
            weight_decay,
            nesterov,
            ..
        } => Box::new(Sgd::new(
            parameters,
            SgdConfig {
                momentum,
                dampening,
                weight_decay,
                nesterov,
                decay_norms_and_biases,
            },
        )?),
        OptimizerRule::NoOp => Box::new(NoOp),
    })
}

/// The schedule that `config` describes, for a run of `total` optimizer steps.
pub fn schedule(config: &SchedulerConfig, total: u64) -> Schedule {
    match config {
        SchedulerConfig::Identity => Schedule::Constant,
        SchedulerConfig::WarmupLinear => Schedule::WarmupLinear { total },
        SchedulerConfig::WarmupHoldDecay {
            max_lr,
            min_lr,
            warmup_steps,
            hold_steps,
        } => Schedule::WarmupHoldDecay {
            max: *max_lr,
            min: *min_lr,
            warmup: *warmup_steps,
            hold: *hold_steps,
            total,
        },
        SchedulerConfig::Cosine { min_lr, steps } => Schedule::Cosine {
            min: *min_lr,
            steps: steps.unwrap_or(total),
        },
        SchedulerConfig::Step { step_size, gamma } => Schedule::Step {
            size: *step_size,
            gamma: *gamma,
        },
        SchedulerConfig::Linear {
            start_factor,
            end_factor,
            steps,
        } => Schedule::Linear {
            start: *start_factor,
            end: *end_factor,
            steps: steps.unwrap_or(total),
        },
        SchedulerConfig::Sequential(phases) => {
            let mut left = total;
            Schedule::Sequential(
                phases
                    .iter()
                    .map(|phase| {
                        let steps = phase.steps.unwrap_or(left);
                        left = left.saturating_sub(steps);
                        (steps, schedule(&phase.schedule, steps))
                    })
                    .collect(),
            )
        }
    }
}

/// The configuration that gives a model: the way back from [`ModelSpec::of`].
pub(crate) fn config_of(spec: &ModelSpec) -> ModelConfig {
    let runner = |recompute| match recompute {
        true => RunnerType::MemoryEfficient,
        false => RunnerType::Default,
    };
    match spec {
        ModelSpec::Gpt(c) => ModelConfig::Gpt2(config::GptConfig {
            num_heads: c.num_heads,
            num_groups: c.num_groups,
            embedding_dim: c.embedding_dim,
            intermediate_dim: c.intermediate_dim,
            dropout_prob: real(c.dropout),
            num_blocks: c.num_blocks,
            vocab_size: c.vocab_size,
            max_sequence_length: c.max_sequence_length,
            weight_tying: c.weight_tying,
            positional_embedding_type: match c.positions {
                Positions::Trainable => PositionalEmbedding::Trainable,
                Positions::Fixed => PositionalEmbedding::Fixed,
            },
            runner_type: runner(c.recompute),
            bias: c.bias,
            activation: match c.activation {
                Activation::GeluTanh => ConfigActivation::GeluTanh,
                Activation::Gelu => ConfigActivation::Gelu,
                Activation::Relu => ConfigActivation::Relu,
                Activation::Silu | Activation::None => ConfigActivation::Silu,
            },
        }),
        ModelSpec::Llama(c) => ModelConfig::Llama(config::LlamaConfig {
            num_heads: c.num_heads,
            num_groups: c.num_groups,
            head_dim: c.head_dim,
            embedding_dim: c.embedding_dim,
            intermediate_dim: c.intermediate_dim,
            dropout_prob: real(c.dropout),
            num_blocks: c.num_blocks,
            vocab_size: c.vocab_size,
            max_sequence_length: c.max_sequence_length,
            weight_tying: c.weight_tying,
            runner_type: runner(c.recompute),
            theta: real(c.rope.theta),
            rope_scaling: match c.rope.scaling {
                RopeScaling::None => None,
                RopeScaling::Linear { factor } => Some(RopeScalingConfig::Linear { factor: real(factor) }),
                RopeScaling::Llama3 {
                    factor,
                    low_freq_factor,
                    high_freq_factor,
                    original_context,
                } => Some(RopeScalingConfig::Llama3 {
                    factor: real(factor),
                    low_freq_factor: real(low_freq_factor),
                    high_freq_factor: real(high_freq_factor),
                    original_context_length: original_context,
                }),
            },
            norm_eps: real(c.norm_eps),
            qkv_bias: c.qkv_bias,
            output_bias: c.output_bias,
            mlp_bias: c.mlp_bias,
            qk_norm: c.qk_norm,
        }),
        ModelSpec::Perceptron(_) => panic!("bug in unisono: a perceptron was loaded from a model's directory"),
    }
}

/// The shortest decimal number that is this f32: what a person wrote.
fn real(x: f32) -> f64 {
    // A number that was printed can be read.
    x.to_string().parse().unwrap_or(f64::from(x))
}

fn rope_scaling(scaling: Option<RopeScalingConfig>) -> RopeScaling {
    match scaling {
        None => RopeScaling::None,
        Some(RopeScalingConfig::Linear { factor }) => RopeScaling::Linear { factor: factor as f32 },
        Some(RopeScalingConfig::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context_length,
        }) => RopeScaling::Llama3 {
            factor: factor as f32,
            low_freq_factor: low_freq_factor as f32,
            high_freq_factor: high_freq_factor as f32,
            original_context: original_context_length,
        },
    }
}

fn activation(activation: ConfigActivation) -> Activation {
    match activation {
        ConfigActivation::GeluTanh => Activation::GeluTanh,
        ConfigActivation::Gelu => Activation::Gelu,
        ConfigActivation::Relu => Activation::Relu,
        ConfigActivation::Silu => Activation::Silu,
    }
}

/// The largest power of two up to 64 that divides every hidden width: so many units can be cut.
fn hidden_units(hidden: &[usize]) -> usize {
    [64, 32, 16, 8, 4, 2]
        .into_iter()
        .find(|units| hidden.iter().all(|h| h.is_multiple_of(*units)))
        .unwrap_or(1)
}

/// ` in 2 groups` where heads share keys and values.
fn in_groups(num_heads: usize, num_groups: usize) -> String {
    match num_groups == num_heads {
        true => String::new(),
        false => format!(" in {}", counted(num_groups, "group")),
    }
}

/// `, dropout 0.1` where there is any.
fn with_dropout(dropout: f32) -> String {
    match dropout > 0.0 {
        true => format!(", dropout {dropout}"),
        false => String::new(),
    }
}

/// `1 block`, `2 blocks`.
fn counted(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}
