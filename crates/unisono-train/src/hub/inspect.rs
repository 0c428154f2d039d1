//! What a model's files hold and what would become of them, without reading a single weight.

use super::load::{check, on_null_device};
use super::weights::WeightSet;
use super::{Described, HubError, Ids, Result, read_config};
use crate::model::ModelSpec;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use unisono_data::Tokenizer;
use unisono_data::files::open_regular;
use unisono_nn::Regime;
use unisono_nn::rope::RopeScaling;
use unisono_tensor::{Backend, Dtype, Kind, Mesh, MeshDevice, Options};

/// A file and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileInfo {
    /// Its name in the directory.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

/// A stored tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// The kind of its values, as the file calls it.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: u64,
}

/// What the tensors in files are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StoredInfo {
    /// Number of tensors.
    pub tensors: usize,
    /// Number of values in them.
    pub values: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes by kind of value.
    pub bytes_by_dtype: BTreeMap<String, u64>,
}

/// Bytes of one device's memory, activations and caches left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryInfo {
    /// Weights for generation in f32.
    pub inference_f32: u64,
    /// Weights for generation in bf16.
    pub inference_bf16: u64,
    /// Weights, gradients and the state of AdamW for training in f32.
    pub training_f32: u64,
    /// The same in bf16: the weights are f32 with a rounded copy of matrices and tables.
    pub training_bf16: u64,
}

/// What `config.json` describes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelInfo {
    /// The class in `transformers`.
    pub architecture: &'static str,
    /// In words.
    pub description: String,
    /// Its parameters, a tied head counted once.
    pub parameters: u64,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// Longest sequence.
    pub context: usize,
    /// Rotary positions in words, where it has them.
    pub rope: Option<String>,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Degrees of tensor parallelism divide this number.
    pub tensor_parallel_units: usize,
    /// Memory by precision.
    pub memory: MemoryInfo,
}

/// What the tokenizer's files hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenizerInfo {
    /// Its kind.
    pub kind: String,
    /// Entries of its vocabulary.
    pub vocabulary: usize,
    /// The tokens with a meaning, by name: id and text.
    pub special: BTreeMap<String, (u32, Option<String>)>,
    /// Whether it comes with a chat template.
    pub chat_template: bool,
}

/// A model's directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The directory.
    pub path: String,
    /// Its files.
    pub files: Vec<FileInfo>,
    /// The model, where `config.json` describes one that is built.
    pub model: Option<ModelInfo>,
    /// Its weights, where they can be read.
    pub weights: Option<StoredInfo>,
    /// Its tokenizer, where there is one that can be read.
    pub tokenizer: Option<TokenizerInfo>,
    /// Why it cannot be run; nothing where it can.
    pub refused: Vec<String>,
    /// What else the user should know.
    pub notes: Vec<String>,
}

/// Looks into a model's directory: `config.json`, the headers of the weights, the tokenizer. Whatever is wrong becomes a reason
/// why it is refused.
///
/// # Errors
/// A path that is no directory.
pub fn inspect(directory: &Path) -> Result<Inspection> {
    let mut seen = Inspection {
        path: directory.display().to_string(),
        files: files(directory)?,
        model: None,
        weights: None,
        tokenizer: None,
        refused: Vec::new(),
        notes: Vec::new(),
    };
    let described = seen.try_to(read_config(directory));
    let weights = seen.try_to(WeightSet::open(directory));
    if let Some(described) = &described {
        seen.model = seen.try_to(model_info(described));
    }
    seen.weights = weights.as_ref().map(stored_info);
    if let (Some(described), Some(weights)) = (&described, &weights)
        && let Some(loaded) = seen.try_to(check(weights, &described.spec))
        && !loaded.ignored.is_empty()
    {
        let count = loaded.ignored.len();
        let first = &loaded.ignored[0];
        seen.notes.push(format!(
            "{count} stored tensors have no use and are left out, the first is {first}"
        ));
    }
    seen.look_at_tokenizer(directory, described.as_ref());
    Ok(seen)
}

impl Inspection {
    /// The value, or its error as a reason to refuse.
    fn try_to<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.refused.push(error.to_string())).ok()
    }

    fn look_at_tokenizer(&mut self, directory: &Path, described: Option<&Described>) {
        if !directory.join("tokenizer.json").is_file() {
            self.notes.push(match directory.join("tokenizer.model").is_file() {
                true => "there is no tokenizer.json, and tokenizer.model (SentencePiece) is not read: text cannot be encoded, token ids \
                         work; `AutoTokenizer.from_pretrained(…).save_pretrained(…)` writes a tokenizer.json"
                    .into(),
                false => "there is no tokenizer.json: text cannot be encoded, token ids work".into(),
            });
            return;
        }
        let tokenizer = match Tokenizer::load(directory) {
            Ok(tokenizer) => tokenizer,
            Err(error) => {
                return self
                    .notes
                    .push(format!("text cannot be encoded, token ids work: {error}"));
            }
        };
        let mut special = BTreeMap::new();
        let mut named = |name: &str, id: Option<u32>| {
            if let Some(id) = id {
                special.insert(name.to_owned(), (id, tokenizer.token_of(id)));
            }
        };
        let no_ids = Ids::default();
        let ids = described.map_or(&no_ids, |described| &described.ids);
        named("bos", tokenizer.bos().or(ids.bos));
        named("pad", tokenizer.pad().or(ids.pad));
        let eos = match tokenizer.eos_ids() {
            [] => &ids.eos[..],
            eos => eos,
        };
        for (index, id) in eos.iter().enumerate() {
            let name = if index == 0 {
                "eos".into()
            } else {
                format!("eos {}", index + 1)
            };
            named(&name, Some(*id));
        }
        let vocabulary = tokenizer.vocab_size();
        if let Some(model) = self.model.as_ref().filter(|model| vocabulary > model.vocabulary) {
            self.notes.push(format!(
                "the tokenizer has {vocabulary} entries and the model's vocabulary {}: a text with one of the last {} is refused",
                model.vocabulary,
                vocabulary - model.vocabulary
            ));
        }
        let chat_template = tokenizer
            .hf()
            .is_some_and(|hf| hf.chat_template_names().next().is_some());
        self.tokenizer = Some(TokenizerInfo {
            kind: match tokenizer.hf() {
                Some(hf) => hf.model().to_string(),
                None => tokenizer.kind().to_string(),
            },
            vocabulary,
            special,
            chat_template,
        });
    }
}

/// The files of a directory, by name.
fn files(directory: &Path) -> Result<Vec<FileInfo>> {
    let entries = std::fs::read_dir(directory).map_err(|error| unisono_data::DataError::read(directory, &error))?;
    let mut files: Vec<FileInfo> = entries
        .flatten()
        .filter_map(|entry| {
            // A snapshot in Hugging Face's cache is made of links.
            let metadata = std::fs::metadata(entry.path()).ok()?;
            metadata.is_file().then(|| FileInfo {
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: metadata.len(),
            })
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// The tensors in a safetensors file, or in a directory of such.
///
/// # Errors
/// As [`WeightSet::open`].
pub fn tensors(path: &Path) -> Result<(Vec<TensorInfo>, StoredInfo)> {
    if !path.is_dir() {
        // Refused with the words for whatever is no file.
        open_regular(path)?;
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            return Err(HubError::unusable(
                path,
                "it is no safetensors file: name one, a model's directory or a run",
            ));
        }
    }
    let weights = WeightSet::open(path)?;
    let list = weights
        .tensors()
        .map(|tensor| TensorInfo {
            name: tensor.name.clone(),
            dtype: tensor.dtype.to_string(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes.len() as u64,
        })
        .collect();
    Ok((list, stored_info(&weights)))
}

fn stored_info(weights: &WeightSet) -> StoredInfo {
    let mut info = StoredInfo::default();
    for tensor in weights.tensors() {
        let bytes = tensor.bytes.len() as u64;
        info.tensors += 1;
        info.values += tensor.num_values() as u64;
        info.bytes += bytes;
        *info.bytes_by_dtype.entry(tensor.dtype.to_string()).or_default() += bytes;
    }
    info
}

fn model_info(described: &Described) -> Result<ModelInfo> {
    let spec = &described.spec;
    let model = on_null_device(spec)?;
    let (vocabulary, context, rope, tied) = match spec {
        ModelSpec::Gpt(c) => (c.vocab_size, c.max_sequence_length, None, c.weight_tying),
        ModelSpec::Llama(c) => {
            let scaling = match c.rope.scaling {
                RopeScaling::None => String::new(),
                RopeScaling::Linear { factor } => format!(", linear scaling by {factor}"),
                RopeScaling::Llama3 {
                    factor,
                    original_context,
                    ..
                } => format!(", llama3 scaling by {factor} from {original_context} tokens"),
            };
            let rope = format!("theta {}{scaling}", c.rope.theta);
            (c.vocab_size, c.max_sequence_length, Some(rope), c.weight_tying)
        }
        ModelSpec::Perceptron(c) => (c.outputs, 1, None, false),
    };
    Ok(ModelInfo {
        architecture: described.architecture.name(),
        description: spec.describe(),
        parameters: model.as_model().num_parameters() as u64,
        vocabulary,
        context,
        rope,
        tied,
        tensor_parallel_units: spec.units(),
        memory: memory_info(spec)?,
    })
}

/// Memory by precision, from the same program on the null backend.
///
/// # Errors
/// None that the null backend gives.
pub fn memory_info(spec: &ModelSpec) -> Result<MemoryInfo> {
    let weights = |dtype: Dtype, regime: &Regime| -> Result<(u64, u64)> {
        let options = Options {
            backend: Backend::Null,
            ..Options::default()
        };
        let device = MeshDevice::open(Mesh::one(), options)?;
        let model = spec.clone().with_dtype(dtype).build(&device, regime)?;
        let elements = model
            .as_model()
            .table()
            .all()
            .map(|p| p.spec.padded().iter().product::<usize>())
            .sum::<usize>();
        let memory = device.runtime().report().memory;
        let parameters = Kind::ALL.iter().position(|kind| *kind == Kind::Parameter).unwrap_or(0);
        Ok((memory.current_by_kind[parameters], elements as u64))
    };
    let training = |dtype: Dtype| -> Result<u64> {
        let (bytes, elements) = weights(dtype, &Regime::default())?;
        // A gradient and two moments of AdamW, each in f32.
        Ok(bytes + 3 * 4 * elements)
    };
    Ok(MemoryInfo {
        inference_f32: weights(Dtype::F32, &Regime::inference())?.0,
        inference_bf16: weights(Dtype::Bf16, &Regime::inference())?.0,
        training_f32: training(Dtype::F32)?,
        training_bf16: training(Dtype::Bf16)?,
    })
}
