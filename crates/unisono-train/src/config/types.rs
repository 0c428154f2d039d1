//! The resolved configuration of a run: plain structs, every value present, every path found.
//!
//! The names are those of the YAML keys. Where the readers of tt-train differ in a default, the docstring says which
//! one was taken; the table of keys (`keys`) holds the defaults themselves.

use super::device::{DeviceConfig, MultihostConfig};
use serde::{Serialize, Serializer};
use std::path::PathBuf;
pub use unisono_kernels::bf16_order::Bf16Order;
pub use unisono_tensor::Dtype;

/// Everything that a run's YAML says, resolved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunConfig {
    /// Batches, steps, data, checkpoints: `training_config`.
    pub training: TrainingConfig,
    /// The update rule: `training_config.optimizer`.
    pub optimizer: OptimizerConfig,
    /// The learning rate over the steps: `training_config.scheduler_type` and `scheduler_config`.
    pub scheduler: SchedulerConfig,
    /// What is trained: `transformer_config`.
    pub model: ModelConfig,
    /// Low-rank adapters: `lora_config`; none trains the whole model.
    pub lora: Option<LoraConfig>,
    /// The mesh and what it may use: `device_config`.
    pub device: DeviceConfig,
    /// How samples are drawn: `eval_config`.
    pub eval: EvalConfig,
    /// Workers over processes, in tt-train's way: `multihost_config`; none says nothing of processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multihost: Option<MultihostConfig>,
}

fn dtype_name<S: Serializer>(dtype: &Dtype, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

fn order_name<S: Serializer>(order: &Bf16Order, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(order.name())
}

/// Batches, steps, data and checkpoints (`training_config`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainingConfig {
    /// Name of the run for trackers. Default `tt_train_nano_gpt`, as in both readers of tt-train.
    pub project_name: String,
    /// Seed of initialisation, dropout and shuffling. Default 5489 (C++ and the nanogpt script; the Python package
    /// says 42).
    pub seed: u64,
    /// Optimizer steps between checkpoints; 0 writes only the last one. Default 500.
    pub model_save_interval: u64,
    /// Sequences of one micro-step over all devices together. Default 64.
    pub batch_size: usize,
    /// Sequences of one validation batch over all devices. Default half of `batch_size`, at least 1.
    pub validation_batch_size: usize,
    /// Passes over the data. It rules only where `max_steps` is not given. Default 1.
    pub num_epochs: u64,
    /// Optimizer steps; it rules where given, and epochs repeat. Default: 1000 if `num_epochs` is not given either
    /// (the Python package), otherwise none.
    pub max_steps: Option<u64>,
    /// Micro-steps in one optimizer step: the effective batch is `batch_size` times this, on any mesh. Default 1.
    pub gradient_accumulation_steps: usize,
    /// Where the tokens come from. Default: the built-in corpus.
    pub data_path: DataPath,
    /// How text becomes tokens. Default `char` (C++; the Python package says `bpe`), or pre-tokenised where
    /// `data_path` is such a file.
    pub tokenizer_type: TokenizerType,
    /// The tokenizer of [`TokenizerType::Bpe`]: a `tokenizer.json` or its directory.
    pub tokenizer_path: Option<PathBuf>,
    /// The directory of the model that training starts from.
    pub model_path: Option<PathBuf>,
    /// A file of examples to validate on.
    pub validation_data_path: Option<PathBuf>,
    /// How an example becomes text; none is the default of its form.
    pub template: Option<String>,
    /// Answers that are written at each validation. Default 3.
    pub validation_samples: usize,
    /// Share of the data kept for validation, from its end. Default 0.1; 0 turns validation off.
    pub validation_fraction: f64,
    /// What activations are, and what products multiply: f32 or bf16. Weights, gradients and optimizer state are f32.
    #[serde(serialize_with = "dtype_name")]
    pub dtype: Dtype,
    /// In which order products of bf16 add up. Default pairs.
    #[serde(serialize_with = "order_name")]
    pub bf16_order: Bf16Order,
    /// Optimizer steps between validations; 0 validates only at the end. Default 200.
    pub eval_every: u64,
    /// Validation batches per validation; none means the whole split.
    pub eval_batches: Option<usize>,
    /// Folder for checkpoints, relative to the run's folder. Default `checkpoints`.
    pub checkpoint_dir: String,
    /// How many of the newest checkpoints are kept. Default 3.
    pub keep_last: usize,
    /// Whether the checkpoint with the lowest validation loss is kept as well. Default true.
    pub keep_best: bool,
    /// Whether the gradient is clipped by its global norm. Default false.
    pub use_clip_grad_norm: bool,
    /// The norm that it is clipped to. Default 1.0.
    pub clip_grad_norm_max_norm: f64,
    /// Optimizer steps between printed lines where there is no progress bar. Default 10.
    pub log_every: u64,
    /// How progress is shown. Default `auto`.
    pub progress: Progress,
    /// Optimizer steps between comparisons of the copies of replicated tensors; 0 compares only at checkpoints.
    /// Default 0.
    pub verify_every: u64,
    /// Rows drawn for the `linear` and `mlp` models with `data_path: random`. Default 10000.
    pub num_samples: usize,
    /// Standard deviation of the noise on those rows' targets. Default 0.1.
    pub noise: f64,
}

/// Where the tokens come from (`training_config.data_path`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum DataPath {
    /// The corpus that the program makes itself (`built-in`, or no `data_path`).
    BuiltIn,
    /// Random tokens, or random rows for the `linear` and `mlp` models (`random`).
    Random,
    /// A file, found and made absolute by [`load`](super::load).
    Path(PathBuf),
}

/// How text becomes tokens (`training_config.tokenizer_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TokenizerType {
    /// One token a character; the vocabulary is the sorted set of the text's characters.
    Char,
    /// One token a byte, 256 in all.
    Byte,
    /// Subwords, by a file of Hugging Face's `tokenizers`.
    Bpe,
    /// `data_path` holds tokens already; the text of a prompt cannot be encoded.
    Pretokenised,
}

/// How progress is shown (`training_config.progress`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Progress {
    /// A bar on a terminal, lines otherwise.
    Auto,
    /// A bar.
    Bar,
    /// A line each `log_every` steps.
    Lines,
    /// Nothing.
    Off,
}

/// The update rule and what it is applied to (`training_config.optimizer`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OptimizerConfig {
    /// The rule with its numbers.
    pub rule: OptimizerRule,
    /// Whether weight decay also touches norms' gains and biases, and all biases. Default false.
    pub decay_norms_and_biases: bool,
}

/// The update rules.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum OptimizerRule {
    /// Adam with decoupled weight decay.
    AdamW {
        /// Learning rate. Default 1e-3 (the registry's code; the README and the old flat keys say 3e-4).
        lr: f64,
        /// Decay of the first moment. Default 0.9.
        beta1: f64,
        /// Decay of the second moment. Default 0.999.
        beta2: f64,
        /// Added to the root of the second moment. Default 1e-8.
        epsilon: f64,
        /// Decoupled weight decay. Default 0.01.
        weight_decay: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate. Default 1e-3.
        lr: f64,
        /// Momentum. Default 0.
        momentum: f64,
        /// Dampening of the momentum. Default 0.
        dampening: f64,
        /// Weight decay, added to the gradient. Default 0.
        weight_decay: f64,
        /// Nesterov's momentum. Default false.
        nesterov: bool,
    },
    /// No update: for timing and tests.
    NoOp,
}

impl OptimizerRule {
    /// The base learning rate, which the scheduler multiplies; 0 for `NoOp`.
    pub fn lr(&self) -> f64 {
        match self {
            Self::AdamW { lr, .. } | Self::Sgd { lr, .. } => *lr,
            Self::NoOp => 0.0,
        }
    }
}

/// The learning rate over the optimizer steps. Unless said otherwise a schedule multiplies the optimizer's `lr`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum SchedulerConfig {
    /// Constant. The default.
    Identity,
    /// tt-train's: up over the first tenth of the run, then linearly down to 1 %.
    WarmupLinear,
    /// tt-train's `scheduler_config`: from 0 up to `max_lr`, held, then linearly down to `min_lr` at the run's end.
    /// The optimizer's `lr` is not used.
    WarmupHoldDecay {
        /// The highest learning rate. Default 1e-3.
        max_lr: f64,
        /// The last learning rate. Default 0.
        min_lr: f64,
        /// Steps of the way up. Default 100.
        warmup_steps: u64,
        /// Steps at the top. Default 0.
        hold_steps: u64,
    },
    /// Half a cosine from the optimizer's `lr` to `min_lr`.
    Cosine {
        /// The last learning rate. Default 0.
        min_lr: f64,
        /// Its length; none means the whole run.
        steps: Option<u64>,
    },
    /// Times `gamma` each `step_size` steps.
    Step {
        /// Steps between two drops. Default 1000.
        step_size: u64,
        /// The factor. Default 0.1.
        gamma: f64,
    },
    /// A straight line from one factor to another.
    Linear {
        /// Factor at the start. Default 1.
        start_factor: f64,
        /// Factor at the end. Default 0.
        end_factor: f64,
        /// Its length; none means the whole run.
        steps: Option<u64>,
    },
    /// One schedule after the other.
    Sequential(Vec<Phase>),
}

/// One part of a sequential schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Its length; only the last phase may leave it out, which means the rest of the run.
    pub steps: Option<u64>,
    /// Identity, cosine, step or linear; steps count from the phase's start, and a cosine or line is as long as the
    /// phase.
    pub schedule: SchedulerConfig,
}

/// What is trained (`transformer_config`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum ModelConfig {
    /// A GPT-2-style language model.
    Gpt2(GptConfig),
    /// A model of the Llama family.
    Llama(LlamaConfig),
    /// Linear regression.
    Linear(LinearConfig),
    /// A multi-layer perceptron.
    Mlp(MlpConfig),
}

/// A GPT-2-style language model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GptConfig {
    /// Attention heads. Default 6.
    pub num_heads: usize,
    /// Key/value heads, each shared by `num_heads / num_groups` query heads. Default `num_heads`.
    pub num_groups: usize,
    /// Width. Default 384.
    pub embedding_dim: usize,
    /// Width of the MLP's middle. Default 4 × `embedding_dim`.
    pub intermediate_dim: usize,
    /// Dropout's probability. Default 0.2.
    pub dropout_prob: f64,
    /// Blocks. Default 6.
    pub num_blocks: usize,
    /// Tokens of the vocabulary. The tokenizer's own size replaces it, so it counts only for `data_path: random` and
    /// files of tokens that do not name one. Default 96.
    pub vocab_size: usize,
    /// Tokens of a sequence. Default 128 (the Python package; C++ and the nanogpt script say 256).
    pub max_sequence_length: usize,
    /// Whether the head shares the embedding's weights. Default false.
    pub weight_tying: bool,
    /// Learned or sinusoidal positions. Default trainable.
    pub positional_embedding_type: PositionalEmbedding,
    /// Whether activations are kept or recomputed. Default keeps them.
    pub runner_type: RunnerType,
    /// Whether linear layers and norms have biases. Default true.
    pub bias: bool,
    /// The MLP's activation. Default GELU in its tanh form, as in GPT-2.
    pub activation: Activation,
}

/// A model of the Llama family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LlamaConfig {
    /// Query heads. Default 6.
    pub num_heads: usize,
    /// Key/value heads, each shared by `num_heads / num_groups` query heads. Default 3.
    pub num_groups: usize,
    /// Elements of a head. Default `embedding_dim / num_heads`.
    pub head_dim: usize,
    /// Width. Default 384.
    pub embedding_dim: usize,
    /// Width of the MLP's middle. Default: two thirds of 4 × `embedding_dim`, rounded up to a multiple of 256.
    pub intermediate_dim: usize,
    /// Dropout's probability. Default 0.
    pub dropout_prob: f64,
    /// Blocks. Default 6.
    pub num_blocks: usize,
    /// Tokens of the vocabulary; as for [`GptConfig`], but a model that is loaded keeps its own.
    pub vocab_size: usize,
    /// Tokens of a sequence. Default 256.
    pub max_sequence_length: usize,
    /// Whether the head shares the embedding's weights. Default false.
    pub weight_tying: bool,
    /// Whether activations are kept or recomputed. Default keeps them.
    pub runner_type: RunnerType,
    /// Base of the rotary positions' frequencies. Default 500000.
    pub theta: f64,
    /// How they are stretched; none is not at all, the default.
    pub rope_scaling: Option<RopeScalingConfig>,
    /// Added to the mean square in norms. Default 1e-5.
    pub norm_eps: f64,
    /// Biases of queries, keys and values. Default false.
    pub qkv_bias: bool,
    /// A bias of the attention's output. Default false.
    pub output_bias: bool,
    /// Biases in the MLP. Default false.
    pub mlp_bias: bool,
    /// Norms of query and key heads. Default false; true for `model_type: qwen3`.
    pub qk_norm: bool,
}

/// How rotary positions are stretched (`transformer_config.rope_scaling`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum RopeScalingConfig {
    /// All frequencies are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3's.
    Llama3 {
        /// The factor of long waves.
        factor: f64,
        /// What waves are long. Default 1.
        low_freq_factor: f64,
        /// What waves are short. Default 4.
        high_freq_factor: f64,
        /// Longest sequence of the first training.
        original_context_length: usize,
    },
}

/// Low-rank adapters (`lora_config`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoraConfig {
    /// The directory of an adapter in PEFT's format that training starts from; none starts from a fresh one.
    pub adapter_path: Option<PathBuf>,
    /// Inner dimension. Default 8.
    pub rank: usize,
    /// The product is multiplied by `alpha / rank`. Default 16.
    pub alpha: f64,
    /// Or by `alpha / √rank`. Default false.
    pub use_rslora: bool,
    /// Probability of dropout of the adapters' input. Default 0.
    pub dropout: f64,
    /// Layers that get adapters, by name or regular expression; none means all.
    pub target_modules: Vec<String>,
    /// Parameters of the model that are trained as well.
    pub trainable_modules: Vec<String>,
    /// Whether biases are trained as well. Default false.
    pub is_bias_trainable: bool,
}

/// Where positions come from (`transformer_config.positional_embedding_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PositionalEmbedding {
    /// A learned table.
    Trainable,
    /// Fixed sines and cosines.
    Fixed,
}

/// Whether activations are kept (`transformer_config.runner_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RunnerType {
    /// Kept (`default`).
    Default,
    /// Each block's are recomputed in the backward pass (`memory_efficient`).
    MemoryEfficient,
}

/// An activation (`transformer_config.activation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Activation {
    /// GELU by tanh, GPT-2's.
    GeluTanh,
    /// GELU by erf.
    Gelu,
    /// max(x, 0).
    Relu,
    /// x times sigmoid(x).
    Silu,
}

/// Linear regression.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinearConfig {
    /// Numbers in a row. Default 64.
    pub input_features: usize,
    /// Numbers to predict. Default 64.
    pub output_features: usize,
    /// Whether there is a bias. Default true.
    pub bias: bool,
}

/// A multi-layer perceptron.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MlpConfig {
    /// Numbers in a row. Default 64.
    pub input_features: usize,
    /// Width of each hidden layer. Default `[128]`.
    pub hidden_features: Vec<usize>,
    /// Numbers to predict. Default 64.
    pub output_features: usize,
    /// Whether the layers have biases. Default true.
    pub bias: bool,
    /// Between the layers. Default GELU in its tanh form.
    pub activation: Activation,
}

/// How samples are drawn (`eval_config`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalConfig {
    /// Divides the logits; below 0.01 the likeliest token is taken (as in the Python script; C++ reads 0 as
    /// "unscaled"). Default 1.
    pub temperature: f64,
    /// Only the k likeliest tokens; none (written -1 or 0) means all.
    pub top_k: Option<usize>,
    /// Only the likeliest tokens up to this probability; 1 means all. Default 1.
    pub top_p: f64,
    /// Divides positive and multiplies negative logits of tokens already there; 1 is off. Default 1.
    pub repetition_penalty: f64,
}

impl ModelConfig {
    /// Tokens of the vocabulary and of a sequence, if it is a language model.
    pub fn language(&self) -> Option<(usize, usize)> {
        match self {
            Self::Gpt2(c) => Some((c.vocab_size, c.max_sequence_length)),
            Self::Llama(c) => Some((c.vocab_size, c.max_sequence_length)),
            Self::Linear(_) | Self::Mlp(_) => None,
        }
    }

    /// The same with activations kept or recomputed.
    pub fn with_runner(&self, runner: RunnerType) -> ModelConfig {
        let mut model = self.clone();
        match &mut model {
            Self::Gpt2(c) => c.runner_type = runner,
            Self::Llama(c) => c.runner_type = runner,
            Self::Linear(_) | Self::Mlp(_) => {}
        }
        model
    }
}

impl DataPath {
    /// The file of examples to answer, if that is what it is.
    pub fn examples(&self) -> Option<&std::path::Path> {
        match self {
            Self::Path(path) => path
                .extension()
                .is_some_and(|extension| {
                    ["jsonl", "ndjson"]
                        .iter()
                        .any(|known| extension.eq_ignore_ascii_case(known))
                })
                .then_some(path),
            Self::BuiltIn | Self::Random => None,
        }
    }
}
