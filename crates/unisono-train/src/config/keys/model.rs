//! Rows of `transformer_config`.

use super::{Choice, Key, Kind, Range, built, later, no_meaning, not_built, read, size, spelling};

const MODELS: &[Choice] = &[
    built("gpt2"),
    built("linear"),
    built("mlp"),
    later("llama"),
    later("deepseek"),
    later("qwen3"),
];

const POSITIONS: &[Choice] = &[built("trainable"), built("fixed")];
const RUNNERS: &[Choice] = &[built("default"), built("memory_efficient")];
const ACTIVATIONS: &[Choice] = &[
    built("gelu_tanh"),
    built("gelu"),
    built("relu"),
    built("silu"),
    spelling("gelu_new", "gelu_tanh"),
];

const LLAMA: &str = "only llama, deepseek and qwen3 models have it";
const DEEPSEEK: &str = "only deepseek models have it";

/// Keys that only models other than gpt2 have: a file with one of them and no `model_type` is not a GPT-2.
pub const FOREIGN_TO_GPT: &[&str] = &[
    "transformer_config.theta",
    "transformer_config.rope_scaling",
    "transformer_config.n_routed_experts",
    "transformer_config.kv_lora_rank",
];

/// See the module.
pub const KEYS: &[Key] = &[
    read(
        "transformer_config.model_type",
        Kind::Choice(MODELS),
        "gpt2",
        "gpt2, linear (regression) or mlp.",
    ),
    not_built(
        "transformer_config.model_path",
        &[""],
        "starting from a checkpoint file (model_path)",
    ),
    read(
        "transformer_config.num_heads",
        size(1),
        "6",
        "gpt2: attention heads; they divide embedding_dim.",
    ),
    read(
        "transformer_config.num_groups",
        size(1),
        "",
        "gpt2: key/value heads; they divide num_heads. Default: num_heads.",
    ),
    read(
        "transformer_config.embedding_dim",
        size(1),
        "384",
        "gpt2: width. It needs no multiple of 32 here, as there are no tiles.",
    ),
    read(
        "transformer_config.intermediate_dim",
        size(1),
        "",
        "gpt2: width of the MLP's middle. Default: 4 times embedding_dim.",
    ),
    read(
        "transformer_config.dropout_prob",
        Kind::Real(Range::BelowOne),
        "0.2",
        "gpt2: dropout's probability.",
    ),
    read(
        "transformer_config.num_blocks",
        Kind::Int { min: 1, max: 4096 },
        "6",
        "gpt2: blocks.",
    ),
    read(
        "transformer_config.vocab_size",
        size(1),
        "96",
        "gpt2: tokens of the vocabulary. The tokenizer's own size replaces it; it counts for data_path: random \
         and for \
         files of tokens that name no size.",
    ),
    read(
        "transformer_config.max_sequence_length",
        size(1),
        "128",
        "gpt2: tokens of a sequence. (tt-train's C++ and its nanogpt script: 256.)",
    ),
    read(
        "transformer_config.weight_tying",
        Kind::Enabled,
        "false",
        "gpt2: whether the head shares the embedding's weights; enabled or disabled, true or false.",
    ),
    read(
        "transformer_config.positional_embedding_type",
        Kind::Choice(POSITIONS),
        "trainable",
        "gpt2: trainable (a learned table) or fixed (sines and cosines).",
    ),
    read(
        "transformer_config.runner_type",
        Kind::Choice(RUNNERS),
        "default",
        "gpt2: default keeps activations, memory_efficient recomputes each block's in the backward pass. Same \
         results.",
    ),
    read(
        "transformer_config.bias",
        Kind::Flag,
        "true",
        "Whether linear layers and norms have biases.",
    ),
    read(
        "transformer_config.activation",
        Kind::Choice(ACTIVATIONS),
        "gelu_tanh",
        "gpt2 and mlp: gelu_tanh (GPT-2's), gelu (by erf), relu or silu. Unisono's own key.",
    ),
    read(
        "transformer_config.input_features",
        size(1),
        "64",
        "linear and mlp: numbers in a row.",
    ),
    read(
        "transformer_config.hidden_features",
        Kind::Ints { min: 1 },
        "[128]",
        "mlp: width of each hidden layer.",
    ),
    read(
        "transformer_config.output_features",
        size(1),
        "64",
        "linear and mlp: numbers to predict.",
    ),
    no_meaning(
        "transformer_config.experimental",
        "it picks between kernels of the same arithmetic",
    ),
    no_meaning(
        "transformer_config.embedding_placement",
        "where the embedding lies cannot change a result here",
    ),
    no_meaning("transformer_config.theta", LLAMA),
    no_meaning("transformer_config.rope_scaling", LLAMA),
    no_meaning("transformer_config.inter_dim", DEEPSEEK),
    no_meaning("transformer_config.moe_inter_dim", DEEPSEEK),
    no_meaning("transformer_config.n_dense_layers", DEEPSEEK),
    no_meaning("transformer_config.n_routed_experts", DEEPSEEK),
    no_meaning("transformer_config.n_shared_experts", DEEPSEEK),
    no_meaning("transformer_config.n_activated_experts", DEEPSEEK),
    no_meaning("transformer_config.n_expert_groups", DEEPSEEK),
    no_meaning("transformer_config.n_limited_groups", DEEPSEEK),
    no_meaning("transformer_config.score_func", DEEPSEEK),
    no_meaning("transformer_config.route_scale", DEEPSEEK),
    no_meaning("transformer_config.q_lora_rank", DEEPSEEK),
    no_meaning("transformer_config.kv_lora_rank", DEEPSEEK),
    no_meaning("transformer_config.qk_nope_head_dim", DEEPSEEK),
    no_meaning("transformer_config.qk_rope_head_dim", DEEPSEEK),
    no_meaning("transformer_config.v_head_dim", DEEPSEEK),
];
