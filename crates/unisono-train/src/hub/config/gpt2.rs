//! `GPT2LMHeadModel`.

use super::super::json::Keys;
use super::{check_blocks, check_total};
use serde_json::{Value, json};
use unisono_nn::layers::Activation;
use unisono_nn::models::{GptConfig, Positions};
use unisono_tensor::Dtype;

/// The names of activations, ours first where there are several.
const ACTIVATIONS: [(&str, Activation); 7] = [
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu", Activation::Gelu),
    ("relu", Activation::Relu),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("linear", Activation::None),
];

/// The model that the keys describe.
pub(super) fn read(keys: &Keys) -> GptConfig {
    let vocab_size = keys.size("vocab_size", Some(50257));
    let max_sequence_length = keys.size("n_positions", Some(1024));
    let embedding_dim = keys.size("n_embd", Some(768));
    let num_blocks = keys.size("n_layer", Some(12));
    let num_heads = keys.size("n_head", Some(12));
    let intermediate_dim = keys
        .size_if_given("n_inner")
        .unwrap_or_else(|| embedding_dim.saturating_mul(4));
    if !embedding_dim.is_multiple_of(num_heads) {
        keys.problem(format!(
            "n_embd {embedding_dim} does not divide into n_head {num_heads} heads"
        ));
    }
    check_blocks(keys, "n_layer", num_blocks);
    let (e, inner) = (embedding_dim as u128, intermediate_dim as u128);
    let total = num_blocks as u128 * (4 * e * e + 2 * e * inner) + (vocab_size + max_sequence_length) as u128 * e;
    check_total(
        keys,
        total,
        &["vocab_size", "n_positions", "n_embd", "n_layer", "n_inner"],
    );
    let activation = keys.text("activation_function").unwrap_or("gelu_new");
    let found = ACTIVATIONS.iter().find(|(name, _)| *name == activation);
    if found.is_none() {
        let names = ACTIVATIONS.map(|(name, _)| name).join(", ");
        keys.problem(format!("activation_function {activation} is not built; {names} are"));
    }
    let eps = keys.positive("layer_norm_epsilon", 1e-5);
    if eps != 1e-5 {
        keys.problem(format!("layer_norm_epsilon is {eps}; only 1e-5 is built for GPT-2"));
    }
    for (key, usual) in [
        ("scale_attn_weights", true),
        ("scale_attn_by_inverse_layer_idx", false),
        ("add_cross_attention", false),
    ] {
        if keys.flag(key, usual) != usual {
            keys.problem(format!("{key} is {}, which is not built; {usual} is", !usual));
        }
    }
    GptConfig {
        vocab_size,
        max_sequence_length,
        num_blocks,
        num_heads,
        num_groups: num_heads,
        embedding_dim,
        intermediate_dim,
        dropout: keys.probability("resid_pdrop", 0.1),
        bias: true,
        weight_tying: keys.flag("tie_word_embeddings", true),
        positions: Positions::Trainable,
        activation: found.map_or(Activation::GeluTanh, |(_, activation)| *activation),
        recompute: false,
        dtype: Dtype::F32,
    }
}

/// What Hugging Face's GPT-2 cannot express; nothing where it can express the model.
pub fn obstacles(config: &GptConfig) -> Vec<String> {
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

/// The keys of a model that [`obstacles`] finds nothing in.
pub(super) fn written(config: &GptConfig) -> Value {
    let name = ACTIVATIONS
        .iter()
        .find(|(_, activation)| *activation == config.activation);
    let dropout = super::write::decimal(config.dropout);
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.max_sequence_length,
        "n_embd": config.embedding_dim,
        "n_layer": config.num_blocks,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_dim,
        "activation_function": name.map_or("linear", |(name, _)| name),
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false,
        "reorder_and_upcast_attn": false,
        "tie_word_embeddings": config.weight_tying,
        "use_cache": true,
    })
}
