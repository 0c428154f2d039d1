//! Rows of `transformer_config`.

use super::{Choice, Key, Kind, Range, built, later, no_meaning, read, size, spelling};

const MODELS: &[Choice] = &[
    built("gpt2"),
    built("llama"),
    built("qwen3"),
    built("linear"),
    built("mlp"),
    later("deepseek"),
];

const SCALINGS: &[Choice] = &[built("llama3"), built("linear")];

const POSITIONS: &[Choice] = &[built("trainable"), built("fixed")];
const RUNNERS: &[Choice] = &[built("default"), built("memory_efficient")];
const ACTIVATIONS: &[Choice] = &[
    built("gelu_tanh"),
    built("gelu"),
    built("relu"),
    built("silu"),
    spelling("gelu_new", "gelu_tanh"),
];

const DEEPSEEK: &str = "only deepseek models have it";

/// Keys that only DeepSeek models have: a file with one of them and no `model_type` is neither a GPT-2 nor a Llama.
pub const FOREIGN: &[&str] = &["transformer_config.n_routed_experts", "transformer_config.kv_lora_rank"];

/// Keys that only Llamas have: a file with one of them and no `model_type` is one.
pub const OF_LLAMA: &[&str] = &[
    "transformer_config.theta",
    "transformer_config.rope_scaling.scaling_factor",
];

/// See the module.
pub const KEYS: &[Key] = &[
    read(
        "transformer_config.model_type",
        Kind::Choice(MODELS),
        "gpt2",
        "gpt2, llama, qwen3 (a llama with norms of queries and keys), linear (regression) or mlp. Default: llama where theta \
         or rope_scaling is given, what model_path says, otherwise gpt2.",
    ),
    read(
        "transformer_config.model_path",
        Kind::Path,
        "",
        "A model to start from: a Hugging Face directory (config.json, safetensors, tokenizer.json), or org/name in the \
         local Hugging Face cache. Its config.json defines the model; keys given here must agree with it, but for \
         max_sequence_length, dropout_prob and runner_type.",
    ),
    read(
        "transformer_config.num_heads",
        size(1),
        "6",
        "gpt2 and llama: attention heads. gpt2: they divide embedding_dim.",
    ),
    read(
        "transformer_config.num_groups",
        size(1),
        "",
        "gpt2 and llama: key/value heads; they divide num_heads. Default: num_heads; llama: 3, as tt-train.",
    ),
    read(
        "transformer_config.embedding_dim",
        size(1),
        "384",
        "gpt2 and llama: width. It needs no multiple of 32 here, as there are no tiles.",
    ),
    read(
        "transformer_config.intermediate_dim",
        size(1),
        "",
        "gpt2 and llama: width of the MLP's middle. Default: 4 times embedding_dim; llama: two thirds of that, rounded up to a \
         multiple of 256.",
    ),
    read(
        "transformer_config.dropout_prob",
        Kind::Real(Range::BelowOne),
        "0.2",
        "gpt2 and llama: dropout's probability. llama: default 0.",
    ),
    read(
        "transformer_config.num_blocks",
        Kind::Int { min: 1, max: 4096 },
        "6",
        "gpt2 and llama: blocks.",
    ),
    read(
        "transformer_config.vocab_size",
        size(1),
        "96",
        "gpt2 and llama: tokens of the vocabulary. The tokenizer's own size replaces it; it counts for data_path: random \
         and for \
         files of tokens that name no size.",
    ),
    read(
        "transformer_config.max_sequence_length",
        size(1),
        "128",
        "gpt2 and llama: tokens of a sequence. llama: default 256. (tt-train's C++ and its nanogpt script: 256.)",
    ),
    read(
        "transformer_config.weight_tying",
        Kind::Enabled,
        "false",
        "gpt2 and llama: whether the head shares the embedding's weights; enabled or disabled, true or false.",
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
        "gpt2 and llama: default keeps activations, memory_efficient recomputes each block's in the backward pass. Same \
         results.",
    ),
    read(
        "transformer_config.bias",
        Kind::Flag,
        "true",
        "gpt2, linear and mlp: whether linear layers and norms have biases.",
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
    read(
        "transformer_config.theta",
        Kind::Real(Range::Positive),
        "500000.0",
        "llama: base of the rotary positions' frequencies.",
    ),
    read(
        "transformer_config.head_dim",
        size(1),
        "",
        "llama: elements of a head. Default: embedding_dim / num_heads. Unisono's own key.",
    ),
    read(
        "transformer_config.norm_eps",
        Kind::Real(Range::Positive),
        "1e-5",
        "llama: added to the mean square in norms. Unisono's own key.",
    ),
    read(
        "transformer_config.qkv_bias",
        Kind::Flag,
        "false",
        "llama: biases of queries, keys and values, as in Qwen 2. Unisono's own key.",
    ),
    read(
        "transformer_config.output_bias",
        Kind::Flag,
        "false",
        "llama: a bias of the attention's output. Unisono's own key.",
    ),
    read(
        "transformer_config.mlp_bias",
        Kind::Flag,
        "false",
        "llama: biases in the MLP. Unisono's own key.",
    ),
    read(
        "transformer_config.qk_norm",
        Kind::Flag,
        "false",
        "llama: norms of query and key heads, as in Qwen 3. qwen3: default true. Unisono's own key.",
    ),
    read(
        "transformer_config.rope_scaling.type",
        Kind::Choice(SCALINGS),
        "llama3",
        "llama3 (Llama 3's, which tt-train has) or linear. Unisono's own key.",
    ),
    read(
        "transformer_config.rope_scaling.scaling_factor",
        Kind::Real(Range::NonNegative),
        "0.0",
        "How much longer sequences are than those of the first training; 0 is off.",
    ),
    read(
        "transformer_config.rope_scaling.high_freq_factor",
        Kind::Real(Range::Positive),
        "4.0",
        "llama3: waves shorter than original_context_length over this stay as they are.",
    ),
    read(
        "transformer_config.rope_scaling.low_freq_factor",
        Kind::Real(Range::Positive),
        "1.0",
        "llama3: waves longer than original_context_length over this are stretched whole.",
    ),
    read(
        "transformer_config.rope_scaling.original_context_length",
        size(0),
        "0",
        "llama3: longest sequence of the first training; 0 is off.",
    ),
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
