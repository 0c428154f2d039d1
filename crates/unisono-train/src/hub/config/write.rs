//! The way back: `config.json` and `generation_config.json` of a model.

use super::{Ids, gpt2, llama};
use crate::model::ModelSpec;
use serde_json::{Value, json};

/// A key of `config.json` by which a later export knows it for its own.
const MARK: &str = "unisono_version";

/// Whether the text of a `config.json` is one of ours.
pub fn is_ours(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.get(MARK).is_some())
}

/// The text of a `config.json` that `transformers` loads. `dtype` is its name for the weights' kind: `float32` or `bfloat16`.
///
/// # Errors
/// What no class there can express, as a clause.
pub fn config_json(spec: &ModelSpec, ids: &Ids, dtype: &str) -> Result<String, String> {
    let mut value = match spec {
        ModelSpec::Gpt(config) => {
            let obstacles = gpt2::obstacles(config);
            if !obstacles.is_empty() {
                return Err(format!("Hugging Face's GPT-2 has no {}", obstacles.join(" and no ")));
            }
            gpt2::written(config)
        }
        ModelSpec::Llama(config) => llama::written(config)?,
        ModelSpec::Perceptron(_) => return Err("it is no language model".into()),
    };
    // Named even where there are none: the library's own ids may lie outside the vocabulary.
    value["bos_token_id"] = json!(ids.bos);
    value["eos_token_id"] = one_or_more(&ids.eos);
    value["pad_token_id"] = json!(ids.pad);
    value["torch_dtype"] = json!(dtype);
    value["dtype"] = json!(dtype);
    value[MARK] = json!(env!("CARGO_PKG_VERSION"));
    Ok(format!("{value:#}\n"))
}

/// The text of a `generation_config.json`, where there are ids to name.
pub fn generation_config_json(ids: &Ids) -> Option<String> {
    if *ids == Ids::default() {
        return None;
    }
    let mut value = json!({"_from_model_config": true});
    for (key, id) in [
        ("bos_token_id", json!(ids.bos)),
        ("eos_token_id", one_or_more(&ids.eos)),
        ("pad_token_id", json!(ids.pad)),
    ] {
        if !id.is_null() {
            value[key] = id;
        }
    }
    Some(format!("{value:#}\n"))
}

fn one_or_more(ids: &[u32]) -> Value {
    match ids {
        [] => Value::Null,
        [id] => json!(id),
        ids => json!(ids),
    }
}

/// The nearest decimal: 0.1 is not to become 0.10000000149.
pub(super) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}
