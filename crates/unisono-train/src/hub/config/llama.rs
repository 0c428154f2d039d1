//! The Llama family: Llama, Mistral, Qwen 2 and 3.

use super::super::json::{Keys, shown};
use super::{Architecture, check_blocks, check_total};
use serde_json::{Value, json};
use unisono_nn::models::LlamaConfig;
use unisono_nn::rope::{Rope, RopeScaling};
use unisono_tensor::Dtype;

/// The widest head: hundreds of times a usual one.
const MAX_HEAD_DIM: usize = 65_536;

/// What `transformers` takes for keys that a file leaves out.
struct Defaults {
    vocab_size: usize,
    intermediate_size: usize,
    /// None: as many as query heads.
    num_key_value_heads: Option<usize>,
    max_position_embeddings: usize,
    /// None: `hidden_size / num_attention_heads`.
    head_dim: Option<usize>,
}

impl Defaults {
    fn of(family: Architecture) -> Defaults {
        match family {
            Architecture::Mistral => Defaults {
                vocab_size: 32000,
                intermediate_size: 14336,
                num_key_value_heads: Some(8),
                max_position_embeddings: 131_072,
                head_dim: None,
            },
            Architecture::Qwen2 | Architecture::Qwen3 => Defaults {
                vocab_size: 151_936,
                intermediate_size: 22016,
                num_key_value_heads: Some(32),
                max_position_embeddings: 32768,
                head_dim: (family == Architecture::Qwen3).then_some(128),
            },
            Architecture::Llama | Architecture::Gpt2 => Defaults {
                vocab_size: 32000,
                intermediate_size: 11008,
                num_key_value_heads: None,
                max_position_embeddings: 2048,
                head_dim: None,
            },
        }
    }
}

/// The model that the keys describe.
pub(super) fn read(keys: &Keys, family: Architecture) -> LlamaConfig {
    let defaults = Defaults::of(family);
    let vocab_size = keys.size("vocab_size", Some(defaults.vocab_size));
    let embedding_dim = keys.size("hidden_size", Some(4096));
    let intermediate_dim = keys.size("intermediate_size", Some(defaults.intermediate_size));
    let num_blocks = keys.size("num_hidden_layers", Some(32));
    let num_heads = keys.size("num_attention_heads", Some(32));
    let num_groups = match keys.stated("num_key_value_heads") {
        Some(Value::Null) => num_heads,
        _ => keys.size(
            "num_key_value_heads",
            Some(defaults.num_key_value_heads.unwrap_or(num_heads)),
        ),
    };
    let max_sequence_length = keys.size("max_position_embeddings", Some(defaults.max_position_embeddings));
    if num_heads % num_groups != 0 {
        keys.problem(format!(
            "num_attention_heads {num_heads} does not divide into num_key_value_heads {num_groups} groups"
        ));
    }
    let head_dim = keys.size_if_given("head_dim").or(defaults.head_dim).unwrap_or_else(|| {
        if embedding_dim % num_heads != 0 {
            keys.problem(format!(
                "hidden_size {embedding_dim} does not divide into num_attention_heads {num_heads} heads, and head_dim is not given"
            ));
        }
        (embedding_dim / num_heads).max(1)
    });
    if head_dim > MAX_HEAD_DIM {
        keys.problem(format!("head_dim is {head_dim}; at most {MAX_HEAD_DIM} is believed"));
    }
    if head_dim % 2 != 0 {
        keys.problem(format!(
            "head_dim is {head_dim}; rotary positions need pairs, so an even number"
        ));
    }
    check_blocks(keys, "num_hidden_layers", num_blocks);
    let (e, d) = (embedding_dim as u128, head_dim as u128);
    let block = 2 * e * d * (num_heads + num_groups) as u128 + 3 * e * intermediate_dim as u128;
    check_total(
        keys,
        num_blocks as u128 * block + 2 * e * vocab_size as u128,
        &[
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "head_dim",
        ],
    );
    check_activation(keys);
    check_window(keys, family, max_sequence_length);
    let attention_bias = match family {
        Architecture::Llama | Architecture::Qwen3 => keys.flag("attention_bias", false),
        _ => false,
    };
    LlamaConfig {
        vocab_size,
        max_sequence_length,
        num_blocks,
        num_heads,
        num_groups,
        head_dim,
        embedding_dim,
        intermediate_dim,
        rope: rope(keys, max_sequence_length),
        norm_eps: keys.positive("rms_norm_eps", 1e-6),
        weight_tying: keys.flag("tie_word_embeddings", false),
        qkv_bias: attention_bias || family == Architecture::Qwen2,
        output_bias: attention_bias,
        mlp_bias: family == Architecture::Llama && keys.flag("mlp_bias", false),
        qk_norm: family == Architecture::Qwen3,
        dropout: 0.0,
        recompute: false,
        dtype: Dtype::F32,
    }
}

fn check_activation(keys: &Keys) {
    if let Some(name) = keys.text("hidden_act").filter(|name| !["silu", "swish"].contains(name)) {
        keys.problem(format!("hidden_act {name} is not built for this family; silu is"));
    }
}

/// Notes attention that does not see all earlier tokens.
fn check_window(keys: &Keys, family: Architecture, positions: usize) {
    let shorter = |window: usize, said: &str| {
        keys.problem(format!(
            "sliding_window {window}{said} is shorter than max_position_embeddings {positions}, and attention over a sliding window is \
             not built: set max_position_embeddings to {window} (texts up to that length are then computed as the model does), or \
             take a version of the model without a window"
        ));
    };
    match family {
        Architecture::Mistral => match keys.stated("sliding_window") {
            None if positions > 4096 => shorter(4096, " (which the file does not name, so it is the default)"),
            None | Some(Value::Null) => {}
            Some(_) => {
                let window = keys.size("sliding_window", None);
                if window < positions {
                    shorter(window, "");
                }
            }
        },
        Architecture::Qwen2 | Architecture::Qwen3 => {
            if keys.flag("use_sliding_window", false) {
                keys.problem("use_sliding_window is true: attention over a sliding window is not built");
            }
            let mixed = |value: &&Value| value.as_str() != Some("full_attention");
            if let Some(other) = keys
                .get("layer_types")
                .and_then(Value::as_array)
                .and_then(|types| types.iter().find(mixed))
            {
                keys.problem(format!(
                    "layer_types has {}; only full_attention is built",
                    shown(other)
                ));
            }
        }
        Architecture::Llama | Architecture::Gpt2 => {}
    }
}

/// `rope_parameters` of newer files, or `rope_theta` and `rope_scaling` of older ones.
fn rope(keys: &Keys, positions: usize) -> Rope {
    let (name, settings) = match (keys.get("rope_parameters"), keys.get("rope_scaling")) {
        (Some(settings), _) => ("rope_parameters", Some(settings)),
        (None, settings) => ("rope_scaling", settings),
    };
    let theta = settings
        .and_then(|settings| settings.get("rope_theta"))
        .filter(|theta| !theta.is_null())
        .and_then(|theta| keys.positive_value(&format!("{name}.rope_theta"), theta))
        .unwrap_or_else(|| keys.positive("rope_theta", 10_000.0));
    let mut rope = Rope {
        theta,
        scaling: RopeScaling::None,
    };
    let partial = settings
        .and_then(|settings| settings.get("partial_rotary_factor"))
        .or_else(|| keys.get("partial_rotary_factor"))
        .filter(|factor| !factor.is_null() && factor.as_f64() != Some(1.0));
    if let Some(factor) = partial {
        keys.problem(format!("partial_rotary_factor is {}; only 1 is built", shown(factor)));
    }
    let Some(settings) = settings else { return rope };
    let Some(settings) = settings.as_object() else {
        keys.wrong(name, settings, "an object");
        return rope;
    };
    let kind = ["rope_type", "type"].iter().find_map(|key| settings.get(*key));
    let number = |key: &str| {
        let full = format!("{name}.{key}");
        match settings.get(key) {
            Some(value) => keys.positive_value(&full, value).unwrap_or(1.0),
            None => {
                keys.problem(format!("{full} is missing; a number above 0 is needed"));
                1.0
            }
        }
    };
    rope.scaling = match kind {
        None if settings.values().any(Value::is_object) => {
            keys.problem(format!("{name} differs from layer to layer, which is not built"));
            RopeScaling::None
        }
        None | Some(Value::Null) => RopeScaling::None,
        Some(kind) => match kind.as_str() {
            Some("default") => RopeScaling::None,
            Some("linear") => RopeScaling::Linear {
                factor: number("factor"),
            },
            Some("llama3") => {
                let key = "original_max_position_embeddings";
                let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
                if high <= low {
                    keys.problem(format!(
                        "{name}.high_freq_factor is {high} and low_freq_factor {low}; the first must be greater"
                    ));
                }
                let original = match settings.get(key).filter(|value| !value.is_null()) {
                    None => positions,
                    Some(value) => match value.as_u64() {
                        Some(original @ 1..=0xffff_ffff) => original as usize,
                        _ => {
                            keys.wrong(&format!("{name}.{key}"), value, "a whole number from 1 to 4294967295");
                            positions
                        }
                    },
                };
                RopeScaling::Llama3 {
                    factor: number("factor"),
                    low_freq_factor: low,
                    high_freq_factor: high,
                    original_context: original,
                }
            }
            _ => {
                keys.problem(format!(
                    "{name} of the kind {} is not built; default, linear and llama3 are",
                    shown(kind)
                ));
                RopeScaling::None
            }
        },
    };
    rope
}

/// The keys of a model, and the family that can express it.
///
/// # Errors
/// What no family can express, as a clause.
pub(super) fn written(config: &LlamaConfig) -> Result<Value, String> {
    let c = config;
    let family = match (c.qk_norm, c.qkv_bias, c.output_bias, c.mlp_bias) {
        (true, qkv, output, false) if qkv == output => Architecture::Qwen3,
        (false, qkv, output, _) if qkv == output => Architecture::Llama,
        (false, true, false, false) => Architecture::Qwen2,
        _ => {
            return Err(format!(
                "no family has this choice of biases and norms: norms of queries and keys {}, biases of queries, keys and values {}, \
                 of the output projection {}, of the perceptron {}",
                c.qk_norm, c.qkv_bias, c.output_bias, c.mlp_bias
            ));
        }
    };
    let decimal = super::write::decimal;
    let theta = decimal(c.rope.theta);
    let scaling = match c.rope.scaling {
        RopeScaling::None => None,
        RopeScaling::Linear { factor } => Some(json!({"rope_type": "linear", "factor": decimal(factor)})),
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context,
        } => Some(json!({
            "rope_type": "llama3",
            "factor": decimal(factor),
            "low_freq_factor": decimal(low_freq_factor),
            "high_freq_factor": decimal(high_freq_factor),
            "original_max_position_embeddings": original_context,
        })),
    };
    // Newer versions read rope_parameters, older ones rope_theta and rope_scaling.
    let mut parameters = scaling.clone().unwrap_or_else(|| json!({"rope_type": "default"}));
    parameters["rope_theta"] = json!(theta);
    let mut value = json!({
        "architectures": [family.name()],
        "model_type": family.model_type(),
        "vocab_size": c.vocab_size,
        "hidden_size": c.embedding_dim,
        "intermediate_size": c.intermediate_dim,
        "num_hidden_layers": c.num_blocks,
        "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_groups,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.max_sequence_length,
        "hidden_act": "silu",
        "rms_norm_eps": decimal(c.norm_eps),
        "rope_theta": theta,
        "rope_scaling": scaling,
        "rope_parameters": parameters,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": c.weight_tying,
        "use_cache": true,
    });
    match family {
        Architecture::Llama => {
            value["attention_bias"] = json!(c.qkv_bias);
            value["mlp_bias"] = json!(c.mlp_bias);
        }
        Architecture::Qwen3 => value["attention_bias"] = json!(c.qkv_bias),
        _ => {}
    }
    if matches!(family, Architecture::Qwen2 | Architecture::Qwen3) {
        value["use_sliding_window"] = json!(false);
        value["sliding_window"] = Value::Null;
        value["max_window_layers"] = json!(c.num_blocks);
    }
    Ok(value)
}
