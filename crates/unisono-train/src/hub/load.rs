//! Weights from files into a model: everything is checked before anything is changed, and then copied straight from the mapped
//! files into device memory.

use super::layout::Permutation;
use super::weights::WeightSet;
use super::{HubError, Result};
use crate::model::ModelSpec;
use std::collections::BTreeSet;
use unisono_data::Weights;
use unisono_data::weights::{Dtype, TensorEntry};
use unisono_nn::{Parameter, Regime};
use unisono_runtime::stored::StoredDtype;
use unisono_tensor::stored::StoredTensor;
use unisono_tensor::{Backend, Mesh, MeshDevice, Options, TensorError};

/// The head's name.
const HEAD: &str = "lm_head.weight";
/// What stands before names in files of `GPT2LMHeadModel`, except the head's.
pub(crate) const PREFIX: &str = "transformer.";

/// What loading has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Tensors of the files that have no place in the model and need none.
    pub ignored: Vec<String>,
}

/// Puts the tensors of files into a model on a mesh; `parameters` are the model's, trained and frozen. Adapters keep their
/// values. Each device reads its part, in f32, f16 or bf16, into f32 or bf16. Names are those of `transformers`, for GPT-2 with
/// `transformer.` before them or without. A head that is stored beside the table it is tied to must equal it.
///
/// # Errors
/// [`HubError::Misfit`] with all tensors that are missing, superfluous or of another shape, before anything is changed.
pub fn load<'a>(
    weights: &WeightSet,
    parameters: impl Iterator<Item = &'a Parameter>,
    spec: &ModelSpec,
) -> Result<Loaded> {
    let fit = Fit::of(weights, parameters.filter(|p| !p.is_adapter()), spec, Depth::Values)?;
    let mut device = None;
    for (parameter, file, entry) in &fit.found {
        copy_stored(parameter, file, entry)?;
        device = Some(parameter.tensor.device());
    }
    if let Some(device) = device {
        device.runtime().sync().map_err(TensorError::from)?;
    }
    Ok(Loaded { ignored: fit.ignored })
}

/// Copies a stored tensor, whose shape and dtype have been checked, to a parameter.
pub(crate) fn copy_stored(parameter: &Parameter, file: &Weights, entry: &TensorEntry) -> Result<()> {
    let (bytes, range) = file.shared(&entry.name)?;
    let stored = StoredTensor {
        bytes,
        start: range.start,
        dtype: stored_dtype(entry.dtype).unwrap_or(StoredDtype::F32),
        columns: Permutation::of(parameter.foreign).map(|p| p.runs()).unwrap_or_default(),
    };
    Ok(parameter.tensor.upload_stored(&parameter.spec, &stored)?)
}

/// Whether the files hold exactly what the model needs, by their headers alone: nothing is computed, no memory is taken.
///
/// # Errors
/// As [`load`]; a tied head that differs from its table is not found here.
pub fn check(weights: &WeightSet, spec: &ModelSpec) -> Result<Loaded> {
    let model = on_null_device(spec)?;
    let table = model.as_model().table();
    let fit = Fit::of(weights, table.all(), spec, Depth::Headers)?;
    Ok(Loaded { ignored: fit.ignored })
}

/// The model where nothing is computed and no memory is taken: its table of parameters.
pub(crate) fn on_null_device(spec: &ModelSpec) -> Result<crate::model::LiveModel> {
    let options = Options {
        backend: Backend::Null,
        ..Options::default()
    };
    let device = MeshDevice::open(Mesh::one(), options)?;
    Ok(spec.build(&device, &Regime::inference())?)
}

/// How far files are looked into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Headers,
    Values,
}

/// Which tensor goes where.
struct Fit<'a, 'w> {
    found: Vec<(&'a Parameter, &'w Weights, &'w TensorEntry)>,
    ignored: Vec<String>,
}

impl<'a, 'w> Fit<'a, 'w> {
    fn of(
        weights: &'w WeightSet,
        parameters: impl Iterator<Item = &'a Parameter>,
        spec: &ModelSpec,
        depth: Depth,
    ) -> Result<Fit<'a, 'w>> {
        let table = table(spec);
        let find = |name: &str| {
            let direct = weights.find(name);
            direct.or_else(|| {
                weights
                    .find(&format!("{PREFIX}{name}"))
                    .filter(|_| matches!(spec, ModelSpec::Gpt(_)))
            })
        };
        let mut problems = Vec::new();
        let mut used: BTreeSet<&str> = BTreeSet::new();
        let mut found = Vec::new();
        for parameter in parameters {
            let wanted = parameter.spec.shape();
            let name = parameter.name.as_str();
            let Some((file, entry)) = find(name) else {
                let hint = match name == HEAD && table.is_some_and(|table| find(table).is_some()) {
                    true => {
                        ": a file without a head is of a tied model (tie_word_embeddings in config.json, weight_tying in a run)"
                    }
                    false => "",
                };
                problems.push(format!("it has no tensor `{name}` of shape {wanted:?}{hint}"));
                continue;
            };
            if name == HEAD && table.is_some_and(|table| find(table).is_some_and(|(_, table)| table.name == entry.name))
            {
                problems.push(format!(
                    "its `{name}` is another name of `{}`, but this model does not tie them: set tie_word_embeddings in \
                     config.json (weight_tying in a run)",
                    entry.name
                ));
            }
            if entry.shape != wanted {
                problems.push(format!(
                    "its tensor `{}` has shape {:?}, the model's has {wanted:?}{}",
                    entry.name,
                    entry.shape,
                    padding(name == HEAD || Some(name) == table, &entry.shape, &wanted)
                ));
            }
            if stored_dtype(entry.dtype).is_none() {
                problems.push(format!(
                    "its tensor `{}` is of dtype {}, and weights are F32, F16 or BF16",
                    entry.name, entry.dtype
                ));
            }
            used.insert(entry.name.as_str());
            found.push((parameter, file, entry));
        }
        let mut ignored = Vec::new();
        for entry in weights.tensors().filter(|entry| !used.contains(entry.name.as_str())) {
            let name = &entry.name;
            let table = table.filter(|_| tied(spec) && name == HEAD).and_then(&find);
            match table {
                _ if is_no_weight(name) => ignored.push(name.clone()),
                Some(table) => {
                    let head = find(HEAD).filter(|_| depth == Depth::Values);
                    if let Some(index) = head.map(|head| first_difference(table, head)).transpose()?.flatten() {
                        problems.push(format!(
                            "its head `{HEAD}` differs from `{}` at element {index}, but this model ties them: set weight_tying: \
                             false (tie_word_embeddings in config.json)",
                            table.1.name
                        ));
                    }
                    ignored.push(name.clone());
                }
                None => problems.push(format!(
                    "its tensor `{name}` of shape {:?} has no place in the model",
                    entry.shape
                )),
            }
        }
        match problems.is_empty() {
            true => Ok(Fit { found, ignored }),
            false => Err(HubError::Misfit {
                path: weights.path().display().to_string(),
                problems,
            }),
        }
    }
}

/// Whether a name is a buffer that older files carry and that can be computed: causal masks, rotary frequencies.
fn is_no_weight(name: &str) -> bool {
    [".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// The name of the table that a tied head is.
fn table(spec: &ModelSpec) -> Option<&'static str> {
    match spec {
        ModelSpec::Gpt(_) => Some("wte.weight"),
        ModelSpec::Llama(_) => Some("model.embed_tokens.weight"),
        ModelSpec::Perceptron(_) => None,
    }
}

fn tied(spec: &ModelSpec) -> bool {
    match spec {
        ModelSpec::Gpt(c) => c.weight_tying,
        ModelSpec::Llama(c) => c.weight_tying,
        ModelSpec::Perceptron(_) => false,
    }
}

/// What to do where a table has another number of rows than the vocabulary has entries.
fn padding(is_table: bool, found: &[usize], wanted: &[usize]) -> String {
    match (is_table, found, wanted) {
        (true, [rows, width], [entries, as_wide]) if rows > entries && width == as_wide => format!(
            ": the file has {rows} rows for a vocabulary (vocab_size) of {entries}; if the last {} are padding, set vocab_size to {rows}",
            rows - entries
        ),
        _ => String::new(),
    }
}

/// What can be copied to a parameter, of the dtypes that files have.
pub(crate) fn stored_dtype(dtype: Dtype) -> Option<StoredDtype> {
    match dtype {
        Dtype::F32 => Some(StoredDtype::F32),
        Dtype::F16 => Some(StoredDtype::F16),
        Dtype::BF16 => Some(StoredDtype::Bf16),
        _ => None,
    }
}

/// The first element in which two tensors differ; 0 where their shapes do.
fn first_difference(a: (&Weights, &TensorEntry), b: (&Weights, &TensorEntry)) -> Result<Option<usize>> {
    if a.1.shape != b.1.shape {
        return Ok(Some(0));
    }
    let differ = |a: &[u8], b: &[u8]| a.iter().zip(b).position(|(a, b)| a != b);
    if a.1.dtype == b.1.dtype {
        let (bytes_a, bytes_b) = (a.0.bytes(&a.1.name)?, b.0.bytes(&b.1.name)?);
        if bytes_a == bytes_b {
            return Ok(None);
        }
        return Ok(differ(bytes_a, bytes_b).map(|at| at * 8 / a.1.dtype.bitsize()));
    }
    let (a, b) = (a.0.read_f32(&a.1.name)?, b.0.read_f32(&b.1.name)?);
    Ok(a.iter().zip(&b).position(|(a, b)| a.to_bits() != b.to_bits()))
}
