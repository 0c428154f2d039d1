//! From values to the model: by its keys, or by the directory that it is loaded from.

use super::error::Findings;
use super::flat;
use super::keys::{FOREIGN, OF_LLAMA};
use super::types::*;
use super::values::Values;
use crate::model::{ModelSpec, config_of};
use std::path::Path;

/// Tokens of a sequence of a run that starts from a model with more positions, unless it says otherwise.
const DEFAULT_LENGTH: usize = 1024;

const TYPE: &str = "transformer_config.model_type";

/// The model of the directory `path`, or the one that the keys describe. A finished run (`check_files` is false) has all keys
/// and does not need the directory any more.
pub(super) fn model(values: &Values, path: Option<&Path>, check_files: bool, findings: &mut Findings) -> ModelConfig {
    let key = "transformer_config.model_path";
    if let Some(path) = path.filter(|path| check_files && path.exists()) {
        match crate::hub::read_config(path) {
            Ok(described) => return loaded(&described.spec, values, findings),
            Err(error) => findings.problem(values.place(key), format!("{key}: {error}")),
        }
    }
    described(values, findings)
}

/// The model of a directory, with what a run may choose for itself: the length of its sequences, dropout, recomputation. The
/// other keys must agree with it.
fn loaded(spec: &ModelSpec, values: &Values, findings: &mut Findings) -> ModelConfig {
    const OWN: [&str; 4] = [
        "transformer_config.max_sequence_length",
        "transformer_config.dropout_prob",
        "transformer_config.runner_type",
        TYPE,
    ];
    let mut model = config_of(spec);
    let positions = model.language().map_or(0, |(_, positions)| positions);
    for (key, has) in flat::of_model(&model) {
        let given = values.map.get(key).filter(|_| !OWN.contains(&key));
        if let Some((value, place)) = given.filter(|(value, _)| *value != has) {
            let message = format!("{key} is {value} here and {has} in the config.json of model_path: remove it here");
            findings.problem(Some(place.clone()), message);
        }
    }
    let length = match values.given(OWN[0]) {
        true => values.int(OWN[0]),
        // What fits a fine-tuning run; a model's own length is often far longer than its examples.
        false => positions.min(DEFAULT_LENGTH),
    };
    let learned =
        matches!(&model, ModelConfig::Gpt2(c) if c.positional_embedding_type == PositionalEmbedding::Trainable);
    let given = values.given(OWN[0]);
    let length = if learned && !given { positions } else { length };
    if length > positions || learned && length != positions {
        let message = format!(
            "{} is {length} and the model that model_path names has {positions} {}",
            OWN[0],
            match learned {
                true => "learned positions, which are parameters: remove the key",
                false => "positions: use that many at most",
            }
        );
        findings.problem(values.place(OWN[0]), message);
    }
    let dropout = values.given(OWN[1]).then(|| values.real(OWN[1]));
    match &mut model {
        ModelConfig::Gpt2(c) => {
            c.max_sequence_length = length;
            c.dropout_prob = dropout.unwrap_or(c.dropout_prob);
        }
        ModelConfig::Llama(c) => {
            c.max_sequence_length = length;
            c.dropout_prob = dropout.unwrap_or(c.dropout_prob);
        }
        ModelConfig::Linear(_) | ModelConfig::Mlp(_) => {}
    }
    model.with_runner(runner(values))
}

/// The model that the keys describe.
fn described(values: &Values, findings: &mut Findings) -> ModelConfig {
    if !values.given(TYPE) {
        // A file of another family that does not name it must not be trained as a GPT-2.
        for key in FOREIGN.iter().filter(|key| values.ignored(key).is_some()) {
            let message = format!(
                "{key} belongs to deepseek models, which are not built yet, and {TYPE} is not given: for another model remove \
                 {key} or add model_type"
            );
            findings.problem(values.ignored(key), message);
        }
    }
    let of_llama = OF_LLAMA.iter().find(|key| values.given(key));
    let word = match (values.given(TYPE), of_llama) {
        (false, Some(key)) => {
            let message = format!("{TYPE} is not given: {key} says that it is a llama");
            findings.note(values.place(key), message);
            "llama".to_string()
        }
        _ => values.word(TYPE),
    };
    let bias = values.flag("transformer_config.bias");
    let features = |path| values.int(path);
    match word.as_str() {
        "linear" => ModelConfig::Linear(LinearConfig {
            input_features: features("transformer_config.input_features"),
            output_features: features("transformer_config.output_features"),
            bias,
        }),
        "mlp" => ModelConfig::Mlp(MlpConfig {
            input_features: features("transformer_config.input_features"),
            hidden_features: values.sizes("transformer_config.hidden_features"),
            output_features: features("transformer_config.output_features"),
            bias,
            activation: activation(values),
        }),
        "llama" | "qwen3" => ModelConfig::Llama(llama(values, word == "qwen3", findings)),
        _ => ModelConfig::Gpt2(gpt(values)),
    }
}

fn gpt(values: &Values) -> GptConfig {
    let num_heads = values.int("transformer_config.num_heads");
    let embedding_dim: usize = values.int("transformer_config.embedding_dim");
    GptConfig {
        num_heads,
        num_groups: values.maybe_int("transformer_config.num_groups").unwrap_or(num_heads),
        embedding_dim,
        intermediate_dim: values
            .maybe_int("transformer_config.intermediate_dim")
            .unwrap_or(embedding_dim.saturating_mul(4)),
        dropout_prob: values.real("transformer_config.dropout_prob"),
        num_blocks: values.int("transformer_config.num_blocks"),
        vocab_size: values.int("transformer_config.vocab_size"),
        max_sequence_length: values.int("transformer_config.max_sequence_length"),
        weight_tying: values.flag("transformer_config.weight_tying"),
        positional_embedding_type: match values.word("transformer_config.positional_embedding_type").as_str() {
            "fixed" => PositionalEmbedding::Fixed,
            _ => PositionalEmbedding::Trainable,
        },
        runner_type: runner(values),
        bias: values.flag("transformer_config.bias"),
        activation: activation(values),
    }
}

fn llama(values: &Values, qwen3: bool, findings: &mut Findings) -> LlamaConfig {
    /// A default that differs from the table's, which is that of a GPT-2.
    fn or<T>(values: &Values, key: &'static str, given: T, default: T) -> T {
        if values.given(key) { given } else { default }
    }
    let num_heads: usize = values.int("transformer_config.num_heads");
    let embedding_dim: usize = values.int("transformer_config.embedding_dim");
    let groups = values.maybe_int("transformer_config.num_groups");
    // tt-train's default, which is only of use beside its default of six heads.
    let default_groups = if num_heads.is_multiple_of(3) { 3 } else { num_heads };
    for key in [
        "transformer_config.bias",
        "transformer_config.activation",
        "transformer_config.positional_embedding_type",
    ] {
        if values.given(key) && values.value(key) != super::values::default_of(key) {
            findings.problem(
                values.place(key),
                format!(
                    "{key} is a key of gpt2 models: a llama has SiLU, rotary positions, and biases by qkv_bias, output_bias and \
                     mlp_bias"
                ),
            );
        }
    }
    LlamaConfig {
        num_heads,
        num_groups: groups.unwrap_or(default_groups),
        head_dim: values
            .maybe_int("transformer_config.head_dim")
            .unwrap_or(embedding_dim / num_heads.max(1)),
        embedding_dim,
        intermediate_dim: values
            .maybe_int("transformer_config.intermediate_dim")
            .unwrap_or((embedding_dim.saturating_mul(8) / 3).next_multiple_of(256)),
        dropout_prob: or(
            values,
            "transformer_config.dropout_prob",
            values.real("transformer_config.dropout_prob"),
            0.0,
        ),
        num_blocks: values.int("transformer_config.num_blocks"),
        vocab_size: values.int("transformer_config.vocab_size"),
        max_sequence_length: or(
            values,
            "transformer_config.max_sequence_length",
            values.int("transformer_config.max_sequence_length"),
            256,
        ),
        weight_tying: values.flag("transformer_config.weight_tying"),
        runner_type: runner(values),
        theta: values.real("transformer_config.theta"),
        rope_scaling: rope_scaling(values),
        norm_eps: values.real("transformer_config.norm_eps"),
        qkv_bias: values.flag("transformer_config.qkv_bias"),
        output_bias: values.flag("transformer_config.output_bias"),
        mlp_bias: values.flag("transformer_config.mlp_bias"),
        qk_norm: or(
            values,
            "transformer_config.qk_norm",
            values.flag("transformer_config.qk_norm"),
            qwen3,
        ),
    }
}

/// tt-train's rule: on where both the factor and the original length are given. A linear one needs the factor alone.
fn rope_scaling(values: &Values) -> Option<RopeScalingConfig> {
    let factor = values.real("transformer_config.rope_scaling.scaling_factor");
    let original_context_length = values.int("transformer_config.rope_scaling.original_context_length");
    match values.word("transformer_config.rope_scaling.type").as_str() {
        _ if factor == 0.0 => None,
        "linear" => Some(RopeScalingConfig::Linear { factor }),
        _ if original_context_length == 0 => None,
        _ => Some(RopeScalingConfig::Llama3 {
            factor,
            low_freq_factor: values.real("transformer_config.rope_scaling.low_freq_factor"),
            high_freq_factor: values.real("transformer_config.rope_scaling.high_freq_factor"),
            original_context_length,
        }),
    }
}

fn runner(values: &Values) -> RunnerType {
    match values.word("transformer_config.runner_type").as_str() {
        "memory_efficient" => RunnerType::MemoryEfficient,
        _ => RunnerType::Default,
    }
}

fn activation(values: &Values) -> Activation {
    match values.word("transformer_config.activation").as_str() {
        "gelu" => Activation::Gelu,
        "relu" => Activation::Relu,
        "silu" => Activation::Silu,
        _ => Activation::GeluTanh,
    }
}
