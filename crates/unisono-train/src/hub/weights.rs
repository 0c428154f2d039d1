//! The weights in a directory: one safetensors file, or shards with an index.

use super::json::{read_object, shown};
use super::{HubError, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use unisono_data::Weights;
use unisono_data::weights::TensorEntry;

/// The name of a file that holds all tensors.
pub(super) const SINGLE: &str = "model.safetensors";
/// The name of the file that says which shard holds which tensor.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// All tensors of a model in its files, memory-mapped. Opening reads the headers and no values.
#[derive(Debug)]
pub struct WeightSet {
    path: PathBuf,
    files: Vec<Weights>,
    /// Place in `files` by the name of a stored tensor.
    by_name: BTreeMap<String, usize>,
    /// Name to stored name, for tensors that are stored once under another name.
    aliases: BTreeMap<String, String>,
}

impl WeightSet {
    /// Opens a safetensors file, or a directory with `model.safetensors`, or with shards and
    /// `model.safetensors.index.json`.
    ///
    /// # Errors
    /// A directory without such files, a broken header, an index that does not fit its shards, a tensor in two shards.
    pub fn open(path: &Path) -> Result<WeightSet> {
        if !path.is_dir() {
            return Ok(WeightSet::of(path, vec![Weights::open(path)?]));
        }
        let (single, index) = (path.join(SINGLE), path.join(INDEX));
        // In this order, as transformers does.
        if single.exists() {
            return Ok(WeightSet::of(path, vec![Weights::open(&single)?]));
        }
        if index.exists() {
            return WeightSet::sharded(path, &index);
        }
        Err(HubError::unusable(path, absent(path)))
    }

    fn of(path: &Path, files: Vec<Weights>) -> WeightSet {
        let by_name: BTreeMap<String, usize> = files
            .iter()
            .enumerate()
            .flat_map(|(i, file)| file.tensors().iter().map(move |tensor| (tensor.name.clone(), i)))
            .collect();
        let aliases = files
            .iter()
            .flat_map(Weights::metadata)
            .filter(|(key, value)| by_name.contains_key(*value) && !by_name.contains_key(*key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        WeightSet {
            path: path.to_path_buf(),
            files,
            by_name,
            aliases,
        }
    }

    fn sharded(path: &Path, index: &Path) -> Result<WeightSet> {
        let refuse = |problems: Vec<String>| {
            Err(HubError::Config {
                path: index.display().to_string(),
                problems,
            })
        };
        let object = read_object(index)?;
        let Some(Value::Object(map)) = object.get("weight_map") else {
            return refuse(vec![
                "weight_map is missing; an object of tensors and files is needed".into(),
            ]);
        };
        let mut problems = Vec::new();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for (tensor, file) in map {
            match file.as_str().filter(|file| is_plain(file)) {
                Some(file) => {
                    names.insert(file);
                }
                None => problems.push(format!(
                    "weight_map.{tensor} is {}; the name of a file beside the index is needed",
                    shown(file)
                )),
            }
        }
        names.retain(|name| {
            let there = path.join(name).is_file();
            if !there {
                problems.push(format!(
                    "weight_map names the file {name}, which is not there: the download is not complete"
                ));
            }
            there
        });
        if !problems.is_empty() {
            return refuse(problems);
        }
        let files = names
            .iter()
            .map(|name| Weights::open(&path.join(name)))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        let mut stored: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, file) in names.iter().zip(&files) {
            for tensor in file.tensors() {
                let tensor = tensor.name.as_str();
                if let Some(other) = stored.insert(tensor, name) {
                    problems.push(format!("the tensor {tensor} is in two files, {other} and {name}"));
                } else if !map.contains_key(tensor) {
                    problems.push(format!("weight_map leaves out the tensor {tensor}, which is in {name}"));
                }
            }
        }
        for (tensor, file) in map {
            let file = file.as_str().unwrap_or_default();
            match stored.get(tensor.as_str()) {
                None => problems.push(format!("weight_map names the tensor {tensor}, which is not in {file}")),
                Some(found) if *found != file => {
                    problems.push(format!(
                        "weight_map says that the tensor {tensor} is in {file}, and it is in {found}"
                    ));
                }
                Some(_) => {}
            }
        }
        match problems.is_empty() {
            true => Ok(WeightSet::of(path, files)),
            false => refuse(problems),
        }
    }

    /// The directory or file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, open.
    pub fn files(&self) -> &[Weights] {
        &self.files
    }

    /// The stored tensors, file by file in the order of their bytes; aliases are left out.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorEntry> {
        self.files.iter().flat_map(|file| file.tensors())
    }

    /// Names that stand for a tensor stored under another one, and that one.
    pub fn aliases(&self) -> &BTreeMap<String, String> {
        &self.aliases
    }

    /// The tensor of this name, itself or as an alias, and its file.
    pub fn find(&self, name: &str) -> Option<(&Weights, &TensorEntry)> {
        let stored = self.aliases.get(name).map_or(name, String::as_str);
        let file = &self.files[*self.by_name.get(stored)?];
        Some((file, file.entry(stored).ok()?))
    }
}

/// A file's name without a directory.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    matches!(components.next(), Some(std::path::Component::Normal(_)))
        && components.next().is_none()
        && !name.contains(['/', '\\'])
}

/// What to say of a directory without safetensors.
fn absent(path: &Path) -> String {
    let mut others: Vec<String> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            [".bin", ".pt", ".pth", ".gguf", ".msgpack", ".h5"]
                .iter()
                .any(|end| name.ends_with(end))
        })
        .collect();
    others.sort();
    let dir = path.display();
    match others.first() {
        None => format!("it has neither {SINGLE} nor {INDEX}: is the download complete?"),
        Some(file) if file.ends_with(".gguf") => format!(
            "it has no {SINGLE}, and {file} is in a format that is not read: take the version of the model in safetensors"
        ),
        Some(file) => format!(
            "it has no {SINGLE}, and {file} is not read, since such files can run code: convert it with `python -c \"from \
             transformers import AutoModelForCausalLM as M; M.from_pretrained('{dir}').save_pretrained('{dir}')\"`"
        ),
    }
}
