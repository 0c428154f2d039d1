//! A model as a directory that `transformers` loads.

use super::config::{Ids, config_json, generation_config_json, is_ours};
use super::layout::Permutation;
use super::load::PREFIX;
use super::weights::{INDEX, SINGLE};
use super::{HubError, Result};
use crate::export::tokenizer_json;
use crate::model::ModelSpec;
use crate::shards::real_values;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use unisono_data::files::sync_directory;
use unisono_data::weights::{WrittenDtype, write_safetensors_as};
use unisono_data::{DataError, TensorSpec, Tokenizer, atomic_write};
use unisono_nn::Parameter;

/// How a model is written.
#[derive(Clone, Debug)]
pub struct SaveOptions {
    /// What the weights become.
    pub dtype: WrittenDtype,
    /// A file of weights is at most so large, unless a single tensor is larger.
    pub shard_bytes: u64,
    /// Ids with a meaning.
    pub ids: Ids,
    /// Files that are put beside, by name: the tokenizer's.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Default for SaveOptions {
    /// f32, in files of at most 5 GB.
    fn default() -> SaveOptions {
        SaveOptions {
            dtype: WrittenDtype::F32,
            shard_bytes: 5_000_000_000,
            ids: Ids::default(),
            files: Vec::new(),
        }
    }
}

impl SaveOptions {
    /// The same with a tokenizer's files and ids. Settings of the model among its files are left out.
    #[must_use]
    pub fn with_tokenizer(mut self, tokenizer: &Tokenizer) -> SaveOptions {
        self.ids = Ids {
            bos: tokenizer.bos(),
            eos: tokenizer.eos_ids().to_vec(),
            pad: tokenizer.pad(),
        };
        self.files = vec![("tokenizer.json".into(), tokenizer_json(tokenizer).into_bytes())];
        // The model's own settings are written anew.
        let ours = |name: &str| name == "config.json" || name == "generation_config.json";
        let others = tokenizer.companions().iter().filter(|(name, _)| !ours(name));
        self.files.extend(others.cloned());
        self
    }
}

/// Names of files that accompany a model, which may be replaced in a directory of ours.
pub const TOKENIZER_FILES: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];

/// Writes a model's parameters, `config.json` and the files of `options` to `directory`: all of it or nothing. The directory is
/// made under another name beside it and then renamed; one that an earlier export made is replaced. Equal models give equal files.
///
/// # Errors
/// A model that no class of `transformers` can express, a directory with other files, whatever the disk says.
pub fn save(
    directory: &Path,
    spec: &ModelSpec,
    parameters: &[&Parameter],
    options: &SaveOptions,
) -> Result<Vec<PathBuf>> {
    let dtype = match options.dtype {
        WrittenDtype::F32 => "float32",
        WrittenDtype::Bf16 => "bfloat16",
    };
    let config = config_json(spec, &options.ids, dtype).map_err(|problem| {
        HubError::unusable(
            directory,
            format!("the model cannot be written for transformers: {problem}"),
        )
    })?;
    refuse_foreign(directory)?;
    replace_directory(directory, &|temporary| {
        let mut files = write_weights(temporary, spec, parameters, options)?;
        let mut write = |name: &str, bytes: &[u8]| {
            files.push(name.to_owned());
            atomic_write(&temporary.join(name), |out| out.write_all(bytes)).map(drop)
        };
        write("config.json", config.as_bytes())?;
        if let Some(text) = generation_config_json(&options.ids) {
            write("generation_config.json", text.as_bytes())?;
        }
        for (name, bytes) in &options.files {
            write(name, bytes)?;
        }
        Ok(files)
    })
}

/// Makes a directory with what `write` puts into it: all of it or nothing. It is made under another name beside it and then
/// renamed; one that is there is replaced. `write` answers with its files' names.
///
/// # Errors
/// Whatever `write` or the disk says.
pub(crate) fn replace_directory(
    directory: &Path,
    write: &dyn Fn(&Path) -> Result<Vec<String>>,
) -> Result<Vec<PathBuf>> {
    let failed = |error: std::io::Error| HubError::from(DataError::write(directory, &error));
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(parent).map_err(failed)?;
    let Some(name) = directory.file_name() else {
        return Err(HubError::unusable(
            directory,
            "the path names no directory that could be made",
        ));
    };
    let beside = |word: &str| {
        let name = name.to_string_lossy();
        parent.join(format!(".unisono-tmp-{}-{word}-{name}", std::process::id()))
    };
    let (temporary, old) = (Temporary(beside("new")), Temporary(beside("old")));
    std::fs::create_dir(&temporary.0).map_err(|error| DataError::write(&temporary.0, &error))?;
    let files = write(&temporary.0).map_err(|error| match error {
        // The name beside it is gone when this is read.
        HubError::Data(DataError::Write { path, reason }) => HubError::Data(DataError::Write {
            path: path.replace(&temporary.0.display().to_string(), &directory.display().to_string()),
            reason,
        }),
        error => error,
    })?;
    if directory.exists() {
        std::fs::rename(directory, &old.0).map_err(failed)?;
    }
    if let Err(error) = std::fs::rename(&temporary.0, directory) {
        // The older directory gets its name back; the first error is the one to tell.
        let _ = std::fs::rename(&old.0, directory);
        return Err(failed(error));
    }
    sync_directory(parent).map_err(failed)?;
    Ok(files.iter().map(|name| directory.join(name)).collect())
}

/// A directory that is removed when it is no longer needed, if it is there.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Mostly it has been renamed; where it has not, the error that led here is the one to tell.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Refuses a directory with anything that an export has not written: replacing it would delete that.
fn refuse_foreign(directory: &Path) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    let entries = std::fs::read_dir(directory).map_err(|error| DataError::read(directory, &error))?;
    let names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let known = |name: &String| {
        let weights = name.starts_with("model") && (name.ends_with(".safetensors") || name.ends_with(INDEX));
        weights
            || ["config.json", "generation_config.json"].contains(&name.as_str())
            || TOKENIZER_FILES.contains(&name.as_str())
    };
    if let Some(other) = names.iter().find(|name| !known(name)) {
        return Err(HubError::in_the_way(&directory.join(other)));
    }
    refuse_to_replace(&directory.join("config.json"), is_ours)?;
    match names.iter().any(|name| name == "config.json") {
        true => Ok(()),
        false => Err(HubError::in_the_way(directory)),
    }
}

/// Refuses to replace a file that no export has written: a configuration or a vocabulary of something else.
pub(crate) fn refuse_to_replace(path: &Path, is_ours: fn(&str) -> bool) -> Result<()> {
    match path.exists() && !std::fs::read_to_string(path).is_ok_and(|text| is_ours(&text)) {
        true => Err(HubError::in_the_way(path)),
        false => Ok(()),
    }
}

/// The name of a GPT's parameter in a file of `GPT2LMHeadModel`.
pub(crate) fn file_name(ours: &str) -> String {
    match ours.starts_with("lm_head.") {
        true => ours.to_owned(),
        false => format!("{PREFIX}{ours}"),
    }
}

/// Writes the weights, in one file or in shards with an index, and answers with the files' names.
fn write_weights(
    directory: &Path,
    spec: &ModelSpec,
    parameters: &[&Parameter],
    options: &SaveOptions,
) -> Result<Vec<String>> {
    let name = |p: &Parameter| match spec {
        ModelSpec::Gpt(_) => file_name(&p.name),
        _ => p.name.clone(),
    };
    let bytes = |p: &Parameter| (p.num_elements() * options.dtype.bytes()) as u64;
    let mut shards: Vec<Vec<&Parameter>> = vec![Vec::new()];
    let (mut held, mut total) = (0, 0);
    for parameter in parameters {
        let size = bytes(parameter);
        let shard = match shards.last_mut() {
            Some(shard) if held + size <= options.shard_bytes || shard.is_empty() => shard,
            _ => {
                held = 0;
                shards.push(Vec::new());
                shards.last_mut().expect("one has just been pushed")
            }
        };
        shard.push(parameter);
        held += size;
        total += size;
    }
    // Without this word, transformers refuses a file.
    let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
    let (mut files, mut map) = (Vec::new(), Map::new());
    for (index, shard) in shards.iter().enumerate() {
        let file = match shards.len() {
            1 => SINGLE.to_string(),
            n => format!("model-{:05}-of-{n:05}.safetensors", index + 1),
        };
        let tensors: Vec<TensorSpec> = shard
            .iter()
            .map(|p| TensorSpec {
                name: name(p),
                shape: p.spec.shape(),
            })
            .collect();
        write_safetensors_as(options.dtype, &directory.join(&file), &tensors, &metadata, |i| {
            let parameter = shard[i];
            let mut values = real_values(&parameter.tensor, &parameter.spec)?;
            if let Some(permutation) = Permutation::of(parameter.foreign) {
                values = permutation.exported(&values);
            }
            Ok::<_, HubError>(Cow::Owned(values))
        })?;
        for tensor in tensors {
            map.insert(tensor.name, json!(file));
        }
        files.push(file);
    }
    if shards.len() > 1 {
        let index = json!({"metadata": {"total_size": total}, "weight_map": Value::Object(map)});
        atomic_write(&directory.join(INDEX), |out| {
            out.write_all(format!("{index:#}\n").as_bytes())
        })?;
        files.push(INDEX.to_string());
    }
    Ok(files)
}
