//! Weights for other programs, and back: one safetensors file that loads in PyTorch.
//!
//! A GPT that Hugging Face's GPT-2 can express gets its names (`transformer.wte.weight` …) and a `config.json`; any other
//! model keeps the names of its own table, and a sentence says so. Either way tensors are whole, without padding, a tied head
//! is written once, and the fused attention projection is laid out as (q of all heads, k of all groups, v of all groups).

mod tokenizer;

pub use tokenizer::to_json as tokenizer_json;

use crate::hub::config::{Ids, config_json, gpt2_obstacles, is_ours};
use crate::hub::{HubError, Permutation, file_name, refuse_to_replace};
use crate::model::ModelSpec;
use crate::shards::real_values;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use unisono_data::{TensorSpec, Tokenizer, atomic_write, write_safetensors};
use unisono_nn::Parameter;
use unisono_nn::models::GptConfig;

/// Result of everything here that can fail.
pub type Result<T> = std::result::Result<T, HubError>;

/// What [`export`] wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The files, the weights first.
    pub files: Vec<PathBuf>,
    /// What the user should know, in sentences.
    pub notes: Vec<String>,
}

/// Writes a model's parameters to `path`, with a `config.json` and a `tokenizer.json` beside it where there are any. `gpt` is
/// the model's configuration if it is a GPT. Each file is written at once or not at all; equal models give equal files.
///
/// # Errors
/// Whatever the disk says, and a `config.json` or `tokenizer.json` there that belongs to something else.
pub fn export(
    parameters: &[Parameter],
    gpt: Option<&GptConfig>,
    tokenizer: Option<&Tokenizer>,
    path: &Path,
) -> Result<Exported> {
    let mut notes = Vec::new();
    let foreign = match gpt.map(gpt2_obstacles) {
        Some(obstacles) if obstacles.is_empty() => true,
        Some(obstacles) => {
            notes.push(format!(
                "Hugging Face's GPT-2 has no {}, so the tensors keep unisono's names and there is no config.json; weights are \
                 [in, out], and c_attn's columns are (q of all heads, k of all groups, v of all groups)",
                obstacles.join(" and no ")
            ));
            false
        }
        None => {
            notes.push(
                "the model is no GPT, so the tensors keep unisono's names and there is no config.json; weights are [in, out], \
                 the transpose of torch.nn.Linear's"
                    .to_string(),
            );
            false
        }
    };
    let mut beside = Vec::new();
    if let Some(config) = gpt.filter(|_| foreign) {
        refuse_to_replace(&path.with_file_name("config.json"), is_ours)?;
        let text = config_json(&ModelSpec::Gpt(config.clone()), &Ids::default(), "float32");
        let text = text.map_err(|problem| HubError::unusable(path, problem))?;
        beside.push((path.with_file_name("config.json"), text));
    }
    if let Some(tokenizer) = tokenizer {
        refuse_to_replace(&path.with_file_name("tokenizer.json"), tokenizer::is_ours)?;
        beside.push((path.with_file_name("tokenizer.json"), tokenizer::to_json(tokenizer)));
    }
    write_weights(parameters, foreign, path)?;
    let mut files = vec![path.to_path_buf()];
    for (file, text) in beside {
        atomic_write(&file, |out| out.write_all(text.as_bytes()))?;
        files.push(file);
    }
    if foreign && path.file_name().is_some_and(|name| name != "model.safetensors") {
        notes.push(format!(
            "from_pretrained() on a directory looks for the name model.safetensors; {} loads with \
             safetensors.torch.load_file()",
            path.display()
        ));
    }
    Ok(Exported { files, notes })
}

fn write_weights(parameters: &[Parameter], foreign: bool, path: &Path) -> Result<()> {
    let specs: Vec<TensorSpec> = parameters
        .iter()
        .map(|p| TensorSpec {
            name: if foreign { file_name(&p.name) } else { p.name.clone() },
            shape: p.spec.shape(),
        })
        .collect();
    // Without this word, transformers refuses a file.
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    write_safetensors(path, &specs, &metadata, |index| {
        let parameter = &parameters[index];
        let mut values = real_values(&parameter.tensor, &parameter.spec)?;
        if let Some(permutation) = Permutation::of(parameter.foreign) {
            values = permutation.exported(&values);
        }
        Ok::<_, HubError>(Cow::Owned(values))
    })?;
    Ok(())
}
