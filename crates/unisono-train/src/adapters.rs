//! Which layers `lora_config` adapts: from names and patterns to full names.

use crate::config::LoraConfig;
use crate::error::{Result, TrainError};
use crate::hub::on_null_device;
use crate::model::ModelSpec;
use regex::Regex;
use std::collections::BTreeSet;
use unisono_nn::adapters::Adapters;
use unisono_nn::models::LlamaConfig;

/// The adapters that `config` asks for beside the layers of a model.
///
/// # Errors
/// A model without such layers, a pattern that is no regular expression, a name that no layer has.
pub fn adapters(config: &LoraConfig, spec: &ModelSpec) -> Result<Adapters> {
    let ModelSpec::Llama(llama) = spec else {
        return Err(TrainError::Refused(format!(
            "lora_config: adapters are built for models of the Llama family, and this one is {}: remove lora_config to train \
             all of it",
            spec.describe()
        )));
    };
    let layers: Vec<String> = (0..llama.num_blocks)
        .flat_map(|block| LlamaConfig::LINEAR_LAYERS.map(|layer| LlamaConfig::layer_name(block, layer)))
        .collect();
    let targets = match config.target_modules.is_empty() {
        true => layers.iter().cloned().collect(),
        false => chosen(&config.target_modules, &layers, "target_modules", &|layer| layer)?,
    };
    // The whole table is only made where it is asked for.
    let parameters = match config.trainable_modules.is_empty() && !config.is_bias_trainable {
        true => Vec::new(),
        false => parameter_names(spec)?,
    };
    let mut also = match config.trainable_modules.is_empty() {
        true => BTreeSet::new(),
        false => chosen(&config.trainable_modules, &parameters, "trainable_modules", &|name| {
            name.trim_end_matches(".weight").trim_end_matches(".bias")
        })?,
    };
    if config.is_bias_trainable {
        also.extend(parameters.into_iter().filter(|name| name.ends_with(".bias")));
    }
    Ok(Adapters {
        rank: config.rank,
        alpha: config.alpha as f32,
        rank_stabilised: config.use_rslora,
        dropout: config.dropout as f32,
        layers: targets,
        also,
    })
}

/// Names of a model's parameters: built where nothing is computed.
fn parameter_names(spec: &ModelSpec) -> Result<Vec<String>> {
    let model = on_null_device(spec)?;
    Ok(model.as_model().table().all().map(|p| p.name.clone()).collect())
}

/// The `names` that one of the patterns means. A pattern means the names that it equals or ends (`q_proj`), those of
/// tt-train's path of the same layer, and those that it matches whole as a regular expression. `layer` is what of a name is
/// compared.
fn chosen(patterns: &[String], names: &[String], key: &str, layer: &dyn Fn(&str) -> &str) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for pattern in patterns {
        let ours = ours(pattern);
        let mut found: Vec<&String> = names
            .iter()
            .filter(|name| {
                pattern == "all-linear" || ours.iter().any(|end| is_end(layer(name), end) || is_end(name, end))
            })
            .collect();
        if found.is_empty() {
            let whole = Regex::new(&format!("^(?:{pattern})$")).map_err(|error| {
                TrainError::Refused(format!(
                    "lora_config.{key}: \"{pattern}\" is neither a layer's name nor a regular expression: {error}"
                ))
            })?;
            found = names.iter().filter(|name| whole.is_match(layer(name))).collect();
        }
        if found.is_empty() {
            let mut ends: BTreeSet<&str> = BTreeSet::new();
            ends.extend(names.iter().map(|name| layer(name).rsplit('.').next().unwrap_or(name)));
            let ends: Vec<&str> = ends.into_iter().collect();
            return Err(TrainError::Refused(format!(
                "lora_config.{key}: no layer is called \"{pattern}\" or matches it; there are {}, in full for example \"{}\"",
                ends.join(", "),
                names.first().map_or("", String::as_str)
            )));
        }
        all.extend(found.into_iter().cloned());
    }
    Ok(all)
}

/// Whether a name is `end` or ends in it, after a dot.
pub(crate) fn is_end(name: &str, end: &str) -> bool {
    name.strip_suffix(end)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Ends of names here that a pattern stands for: itself, or those of a tt-train path such as
/// `llama/llama_block_9/attention/q_linear/`.
fn ours(pattern: &str) -> Vec<String> {
    let path: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    let Some(last) = path.last() else {
        return Vec::new();
    };
    let layers: &[&str] = match *last {
        "q_linear" => &["self_attn.q_proj"],
        "kv_linear" => &["self_attn.k_proj", "self_attn.v_proj"],
        "out_linear" => &["self_attn.o_proj"],
        "w1" => &["mlp.gate_proj"],
        "w2" => &["mlp.down_proj"],
        "w3" => &["mlp.up_proj"],
        _ => return vec![pattern.to_string()],
    };
    let block = path
        .iter()
        .find_map(|part| part.rsplit_once("block_")?.1.parse::<usize>().ok());
    layers
        .iter()
        .map(|layer| match block {
            Some(block) => LlamaConfig::layer_name(block, layer),
            None => (*layer).to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        (0..2)
            .flat_map(|block| LlamaConfig::LINEAR_LAYERS.map(|layer| LlamaConfig::layer_name(block, layer)))
            .collect()
    }

    fn count(pattern: &str) -> usize {
        chosen(&[pattern.to_string()], &names(), "target_modules", &|name| name).map_or(0, |found| found.len())
    }

    #[test]
    fn names_paths_and_patterns_choose_layers() {
        assert_eq!(count("q_proj"), 2);
        assert_eq!(count("self_attn.q_proj"), 2);
        assert_eq!(count("model.layers.1.mlp.up_proj"), 1);
        assert_eq!(count("all-linear"), 14);
        assert_eq!(count("llama/llama_block_1/attention/kv_linear/"), 2);
        assert_eq!(count("q_linear"), 2);
        assert_eq!(count(r".*\.layers\.0\..*"), 7);
        // A part of a name is no name.
        assert_eq!(count("proj"), 0);
        assert_eq!(count("(("), 0);
        let error = chosen(&["c_attn".to_string()], &names(), "target_modules", &|name| name)
            .expect_err("there is none")
            .to_string();
        assert!(error.contains("\"c_attn\"") && error.contains("q_proj"), "{error}");
    }
}
