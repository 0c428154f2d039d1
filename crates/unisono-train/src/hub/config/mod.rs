//! `config.json`: from a family's keys to a model, and back.
//!
//! What a file does not say has the value that `transformers` gives it, family by family. What this program does not build is
//! refused, never passed over.

mod gpt2;
mod llama;
mod unknown;
mod write;

use super::json::{Keys, read_text, shown};
use super::{HubError, Result};
use crate::model::ModelSpec;
use serde_json::Value;
use std::path::Path;

pub use gpt2::obstacles as gpt2_obstacles;
pub use write::{config_json, generation_config_json, is_ours};

/// The families that are built, by the class that `architectures` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// `LlamaForCausalLM`: Llama 1 to 3, TinyLlama, SmolLM.
    Llama,
    /// `MistralForCausalLM` without a sliding window.
    Mistral,
    /// `Qwen2ForCausalLM`.
    Qwen2,
    /// `Qwen3ForCausalLM`.
    Qwen3,
    /// `GPT2LMHeadModel`.
    Gpt2,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 5] = [
        Architecture::Llama,
        Architecture::Mistral,
        Architecture::Qwen2,
        Architecture::Qwen3,
        Architecture::Gpt2,
    ];

    /// The class in `transformers`.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "LlamaForCausalLM",
            Architecture::Mistral => "MistralForCausalLM",
            Architecture::Qwen2 => "Qwen2ForCausalLM",
            Architecture::Qwen3 => "Qwen3ForCausalLM",
            Architecture::Gpt2 => "GPT2LMHeadModel",
        }
    }

    /// `model_type`.
    pub fn model_type(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Mistral => "mistral",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
            Architecture::Gpt2 => "gpt2",
        }
    }
}

/// The names of all architectures that are built.
fn known() -> String {
    Architecture::ALL.map(Architecture::name).join(", ")
}

/// Token ids with a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Each of these ends one.
    pub eos: Vec<u32>,
    /// Fills up shorter texts of a batch.
    pub pad: Option<u32>,
}

/// What a `config.json` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The family.
    pub architecture: Architecture,
    /// The model, in f32 and with all of its positions.
    pub spec: ModelSpec,
    /// Ids with a meaning, from `generation_config.json` where that has them.
    pub ids: Ids,
    /// What the file calls the kind of its weights (`bfloat16`), where it does.
    pub dtype: Option<String>,
}

/// Reads `config.json` of a model's directory, and the ids of `generation_config.json` where there is one.
///
/// # Errors
/// [`HubError::Config`] with everything that is wrong or not built; a directory without the file.
pub fn read_config(directory: &Path) -> Result<Described> {
    let path = directory.join("config.json");
    if !path.exists() {
        return Err(HubError::unusable(
            directory,
            "it has no config.json, so what model this is cannot be known: name the directory of a model in Hugging Face's format",
        ));
    }
    let mut described = parse_config(&path, &read_text(&path)?)?;
    let path = directory.join("generation_config.json");
    if path.exists() {
        let text = read_text(&path)?;
        let keys = Keys::parse(&path, &text)?;
        let ids = ids(&keys, &described.ids);
        described.ids = keys.finish(ids)?;
    }
    Ok(described)
}

/// The model that the text of a `config.json` describes; `path` is for messages.
///
/// # Errors
/// As [`read_config`].
pub fn parse_config(path: &Path, text: &str) -> Result<Described> {
    let keys = Keys::parse(path, text)?;
    let Some(architecture) = architecture(&keys) else {
        return Err(keys.finish(()).err().unwrap_or_else(|| {
            // An unknown architecture always notes a problem.
            HubError::unusable(path, "bug in unisono: an architecture was refused without a word")
        }));
    };
    if let Some(quantised) = keys.get("quantization_config") {
        let method = quantised.get("quant_method").map_or_else(|| shown(quantised), shown);
        keys.problem(format!(
            "quantization_config {method}: quantised weights are not built; use the f32, f16 or bf16 version of the model"
        ));
    }
    let spec = match architecture {
        Architecture::Gpt2 => ModelSpec::Gpt(gpt2::read(&keys)),
        family => ModelSpec::Llama(llama::read(&keys, family)),
    };
    let defaults = match architecture {
        Architecture::Llama | Architecture::Mistral => Ids {
            bos: Some(1),
            eos: vec![2],
            pad: None,
        },
        Architecture::Qwen2 | Architecture::Qwen3 => Ids::default(),
        Architecture::Gpt2 => Ids {
            bos: Some(50256),
            eos: vec![50256],
            pad: None,
        },
    };
    let described = Described {
        architecture,
        ids: ids(&keys, &defaults),
        dtype: keys
            .text("dtype")
            .or_else(|| keys.text("torch_dtype"))
            .map(str::to_owned),
        spec,
    };
    keys.finish(described)
}

/// The family, or a noted problem.
fn architecture(keys: &Keys) -> Option<Architecture> {
    let known_name = |name: &str| Architecture::ALL.into_iter().find(|a| a.name() == name);
    match keys.get("architectures") {
        None => {}
        Some(Value::Array(names)) => {
            if let Some(found) = names.iter().filter_map(Value::as_str).find_map(known_name) {
                return Some(found);
            }
            if let Some(name) = names.first() {
                let (name, missing) = match name.as_str() {
                    Some(name) => (name.to_owned(), unknown::missing(name)),
                    None => (shown(name), unknown::GENERIC),
                };
                keys.problem(format!("architectures {name}: {missing}; built are {}", known()));
                return None;
            }
        }
        Some(other) => {
            keys.wrong("architectures", other, "a list with the name of a class");
            return None;
        }
    }
    let Some(model_type) = keys.text("model_type") else {
        keys.problem(format!(
            "architectures and model_type are missing, so what model this is cannot be known; built are {}",
            known()
        ));
        return None;
    };
    let found = Architecture::ALL.into_iter().find(|a| a.model_type() == model_type);
    if found.is_none() {
        let missing = unknown::missing(model_type);
        keys.problem(format!("model_type {model_type}: {missing}; built are {}", known()));
    }
    found
}

/// The ids that `keys` name; what it does not say is as in `defaults`.
fn ids(keys: &Keys, defaults: &Ids) -> Ids {
    let id = |key: &str, value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        if id.is_none() {
            keys.wrong(key, value, "a token id");
        }
        id
    };
    let one = |key: &str, default: Option<u32>| match keys.stated(key) {
        None => default,
        Some(Value::Null) => None,
        // Some files say −1 for none.
        Some(value) if value.as_i64() == Some(-1) => None,
        Some(value) => id(key, value),
    };
    Ids {
        bos: one("bos_token_id", defaults.bos),
        eos: match keys.stated("eos_token_id") {
            None => defaults.eos.clone(),
            Some(Value::Array(values)) => values.iter().filter_map(|value| id("eos_token_id", value)).collect(),
            Some(_) => one("eos_token_id", None).into_iter().collect(),
        },
        pad: one("pad_token_id", defaults.pad),
    }
}

/// The most parameters that a configuration may ask for: sixteen times the largest models.
const MAX_PARAMETERS: u128 = 1 << 44;

/// Notes sizes that multiply to more than any machine holds.
fn check_total(keys: &Keys, parameters: u128, sizes: &[&str]) {
    if parameters > MAX_PARAMETERS {
        keys.problem(format!(
            "{} make a model of {parameters} parameters, and {MAX_PARAMETERS} are the most that is believed",
            sizes.join(", ")
        ));
    }
}

/// The most blocks.
const MAX_BLOCKS: usize = 10_000;

/// Notes more blocks than any model has.
fn check_blocks(keys: &Keys, key: &str, blocks: usize) {
    if blocks > MAX_BLOCKS {
        keys.problem(format!(
            "{key} is {blocks}; a whole number from 1 to {MAX_BLOCKS} is needed"
        ));
    }
}
