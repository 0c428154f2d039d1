//! From values to adapters: by their keys, or by the directory that they are loaded from.

use super::build::Files;
use super::error::Findings;
use super::types::{LoraConfig, ModelConfig};
use super::value::Value;
use crate::peft::{PeftConfig, Targets, TrainedBiases};
use std::path::Path;

const PATH: &str = "lora_config.adapter_path";

/// The adapters, where any of their keys is given. A finished run has all keys and does not need the directory any more.
pub(super) fn lora(files: &Files<'_>, model: &ModelConfig, findings: &mut Findings) -> Option<LoraConfig> {
    let values = files.values;
    if !values.map.keys().any(|key| key.starts_with("lora_config.")) {
        return None;
    }
    let adapter_path = files.model(PATH, findings);
    let lora = LoraConfig {
        adapter_path: adapter_path.clone(),
        rank: values.int("lora_config.rank"),
        alpha: values.real("lora_config.alpha"),
        use_rslora: values.flag("lora_config.use_rslora"),
        dropout: values.real("lora_config.dropout"),
        target_modules: values.texts("lora_config.target_modules"),
        trainable_modules: values.texts("lora_config.trainable_modules"),
        is_bias_trainable: values.flag("lora_config.is_bias_trainable"),
    };
    match adapter_path.filter(|path| files.check_files && path.exists()) {
        Some(path) => Some(loaded(&path, lora, files, model, findings)),
        None => Some(lora),
    }
}

/// The adapters of a directory. Keys that it decides must agree with it.
fn loaded(
    path: &Path,
    given: LoraConfig,
    files: &Files<'_>,
    model: &ModelConfig,
    findings: &mut Findings,
) -> LoraConfig {
    let place = files.values.place(PATH);
    let found = PeftConfig::read(path).map_err(|error| error.to_string());
    let found = found.and_then(|config| {
        let (targets, also) = modules(&config, model)?;
        Ok(LoraConfig {
            adapter_path: given.adapter_path.clone(),
            rank: config.rank,
            alpha: config.alpha,
            use_rslora: config.rank_stabilised,
            dropout: match files.values.given("lora_config.dropout") {
                true => given.dropout,
                false => config.dropout,
            },
            target_modules: targets,
            trainable_modules: also,
            is_bias_trainable: config.biases == TrainedBiases::All,
        })
    });
    let found = match found {
        Ok(found) => found,
        Err(problem) => {
            findings.problem(place, format!("{PATH}: {problem}"));
            return given;
        }
    };
    let texts = |list: &[String]| Value::Texts(list.to_vec());
    for (key, here, there) in [
        (
            "lora_config.rank",
            Value::Int(given.rank as i128),
            Value::Int(found.rank as i128),
        ),
        ("lora_config.alpha", Value::Real(given.alpha), Value::Real(found.alpha)),
        (
            "lora_config.use_rslora",
            Value::Flag(given.use_rslora),
            Value::Flag(found.use_rslora),
        ),
        (
            "lora_config.target_modules",
            texts(&given.target_modules),
            texts(&found.target_modules),
        ),
        (
            "lora_config.trainable_modules",
            texts(&given.trainable_modules),
            texts(&found.trainable_modules),
        ),
        (
            "lora_config.is_bias_trainable",
            Value::Flag(given.is_bias_trainable),
            Value::Flag(found.is_bias_trainable),
        ),
    ] {
        if files.values.given(key) && here != there {
            findings.problem(
                files.values.place(key),
                format!("{key} is {here} here and {there} in the adapter of {PATH}: remove it here"),
            );
        }
    }
    found
}

/// `target_modules` and `trainable_modules` that mean what the directory's configuration means.
fn modules(config: &PeftConfig, model: &ModelConfig) -> Result<(Vec<String>, Vec<String>), String> {
    let ModelConfig::Llama(llama) = model else {
        return Err("adapters are built for models of the Llama family, and this model is none".into());
    };
    let layers = config.layers(llama.num_blocks)?;
    let plain = config.excluded.is_none() && config.blocks.is_none();
    let targets = match &config.targets {
        Targets::Pattern(pattern) if plain => vec![pattern.clone()],
        // Names that no layer of this model has are nothing to PEFT and a mistake here.
        Targets::Names(names) if plain => {
            let is_there = |name: &&String| layers.iter().any(|layer| crate::adapters::is_end(layer, name));
            names.iter().filter(is_there).cloned().collect()
        }
        _ => layers.iter().cloned().collect(),
    };
    let mut also = config.modules_to_save.clone();
    if config.biases == TrainedBiases::Adapted {
        let has_bias = |layer: &&String| match layer.rsplit('.').next() {
            Some("q_proj" | "k_proj" | "v_proj") => llama.qkv_bias,
            Some("o_proj") => llama.output_bias,
            _ => llama.mlp_bias,
        };
        also.extend(layers.iter().filter(has_bias).map(|layer| format!("{layer}.bias")));
    }
    Ok((targets, also))
}
