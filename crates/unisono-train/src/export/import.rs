//! Reading a file of weights back into a model.

use super::Result;
use super::error::ExportError;
use super::gpt2::{HEAD, PREFIX, TABLE, is_mask};
use super::layout::Permutation;
use crate::checkpoint::upload_real;
use std::collections::BTreeSet;
use std::path::Path;
use unisono_data::Weights;
use unisono_data::weights::Dtype;
use unisono_nn::Parameter;
use unisono_nn::models::GptConfig;
use unisono_tensor::TensorError;

/// What [`import`] has to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Tensors of the file that have no place in the model and need none.
    pub ignored: Vec<String>,
}

/// Puts the tensors of a safetensors file into a model: one that [`export`](super::export()) wrote, or one of Hugging Face's
/// GPT-2 models, with `transformer.` before its names or without, in f32, f16 or bf16. `gpt` is the model's configuration if
/// it is a GPT. A head that the file holds beside the table it is tied to must equal it.
///
/// # Errors
/// [`ExportError::Misfit`] for tensors that are missing, superfluous or of another shape, before anything is changed.
pub fn import(path: &Path, parameters: &[Parameter], gpt: Option<&GptConfig>) -> Result<Imported> {
    let weights = Weights::open(path)?;
    let find = |name: &str| {
        let prefixed = format!("{PREFIX}{name}");
        [name.to_string(), prefixed]
            .into_iter()
            .find(|name| weights.contains(name))
    };
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    let mut names = Vec::with_capacity(parameters.len());
    for parameter in parameters {
        let wanted = parameter.spec.shape();
        let Some(name) = find(&parameter.name) else {
            let hint = match parameter.name == HEAD && find(TABLE).is_some() {
                true => ": a file without a head is of a tied model (weight_tying: true)",
                false => "",
            };
            problems.push(format!(
                "it has no tensor `{}` of shape {wanted:?}{hint}",
                parameter.name
            ));
            continue;
        };
        let entry = weights.entry(&name)?;
        if entry.shape != wanted {
            problems.push(format!(
                "its tensor `{name}` has shape {:?}, the model's has {wanted:?}",
                entry.shape
            ));
        }
        if !matches!(entry.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
            problems.push(format!(
                "its tensor `{name}` is of dtype {}, and weights are F32, F16 or BF16",
                entry.dtype
            ));
        }
        used.insert(entry.name.clone());
        names.push(name);
    }
    let mut ignored = Vec::new();
    for entry in weights.tensors().iter().filter(|entry| !used.contains(&entry.name)) {
        let tied = gpt.is_some_and(|gpt| gpt.weight_tying) && entry.name == HEAD;
        match find(TABLE) {
            _ if is_mask(&entry.name) => ignored.push(entry.name.clone()),
            Some(table) if tied => {
                if let Some(index) = first_difference(&weights, &table, HEAD)? {
                    problems.push(format!(
                        "its head `{HEAD}` differs from `{table}` at element {index}, but this model ties them: set \
                         weight_tying: false"
                    ));
                }
                ignored.push(entry.name.clone());
            }
            _ => problems.push(format!(
                "its tensor `{}` of shape {:?} has no place in the model",
                entry.name, entry.shape
            )),
        }
    }
    if !problems.is_empty() {
        return Err(ExportError::Misfit {
            path: path.display().to_string(),
            problems,
        });
    }
    for (parameter, name) in parameters.iter().zip(&names) {
        let mut values = weights.read_f32(name)?;
        if let Some(permutation) = Permutation::of(parameter.foreign) {
            values = permutation.imported(&values);
        }
        upload_real(&parameter.tensor, &parameter.spec, &values)?;
        parameter.tensor.device().runtime().sync().map_err(TensorError::from)?;
    }
    Ok(Imported { ignored })
}

/// The first element in which two tensors differ; 0 where their shapes do.
fn first_difference(weights: &Weights, a: &str, b: &str) -> Result<Option<usize>> {
    if weights.entry(a)?.shape != weights.entry(b)?.shape {
        return Ok(Some(0));
    }
    let (a, b) = (weights.read_f32(a)?, weights.read_f32(b)?);
    Ok(a.iter().zip(&b).position(|(a, b)| a.to_bits() != b.to_bits()))
}
