//! Hugging Face's GPT-2: its names and its configuration.

use serde_json::json;
use unisono_nn::layers::Activation;
use unisono_nn::models::{GptConfig, Positions};

/// The head's name, which is outside of the transformer.
pub(super) const HEAD: &str = "lm_head.weight";
/// The name of the table that a tied head is.
pub(super) const TABLE: &str = "wte.weight";
/// What stands before every other name in a file of `GPT2LMHeadModel`.
pub(super) const PREFIX: &str = "transformer.";

/// A key of `config.json` by which a later export knows it for its own.
const MARK: &str = "unisono_version";

/// Whether the text of a `config.json` is one of ours.
pub(super) fn is_ours(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok_and(|value| value.get(MARK).is_some())
}

/// What Hugging Face's GPT-2 cannot express; nothing where it can express the model.
pub(super) fn obstacles(config: &GptConfig) -> Vec<String> {
    let mut obstacles = Vec::new();
    if config.num_groups != config.num_heads {
        obstacles.push(format!(
            "grouped heads ({} heads in {} groups)",
            config.num_heads, config.num_groups
        ));
    }
    if !config.bias {
        obstacles.push("layers without biases".to_string());
    }
    if config.positions == Positions::Fixed {
        obstacles.push("fixed positions".to_string());
    }
    obstacles
}

/// The name of a parameter in a file of `GPT2LMHeadModel`.
pub(super) fn name(ours: &str) -> String {
    match ours {
        HEAD => HEAD.to_string(),
        ours => format!("{PREFIX}{ours}"),
    }
}

/// Whether a name is a buffer that older files carry and that holds no weights: the causal mask.
pub(super) fn is_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
}

/// The text of `config.json`.
pub(super) fn config_json(config: &GptConfig) -> String {
    let activation = match config.activation {
        Activation::GeluTanh => "gelu_new",
        Activation::Gelu => "gelu",
        Activation::Relu => "relu",
        Activation::Silu => "silu",
        Activation::None => "linear",
    };
    // The nearest decimal: 0.1 is not to become 0.10000000149.
    let dropout: f64 = config.dropout.to_string().parse().unwrap_or(0.0);
    let value = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.max_sequence_length,
        "n_embd": config.embedding_dim,
        "n_layer": config.num_blocks,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_dim,
        "activation_function": activation,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false,
        "reorder_and_upcast_attn": false,
        "tie_word_embeddings": config.weight_tying,
        // The library's own ids lie outside a small vocabulary.
        "bos_token_id": null,
        "eos_token_id": null,
        "use_cache": true,
        "torch_dtype": "float32",
        MARK: env!("CARGO_PKG_VERSION"),
    });
    format!("{value:#}\n")
}
