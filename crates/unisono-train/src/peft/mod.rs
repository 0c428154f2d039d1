//! Adapters in the files of Hugging Face's PEFT: a directory with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! ```text
//! directory ─ Stored::open ─▶ Adapters, for the regime that a model is built with ─ build ─▶ Stored::load
//! ```
//!
//! Tensors are named as in PEFT: `base_model.model.` before the name here, for an adapter
//! (`base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`, [rank, in]) and for a parameter of the model that was
//! trained beside them.

mod config;
mod merge;
mod save;

pub use config::{CONFIG, PeftConfig, Targets, TrainedBiases};
pub use merge::merged;
pub use save::save;

use crate::hub::{HubError, Result, copy_stored, stored_dtype};
use crate::model::ModelSpec;
use config::read;
use std::collections::BTreeSet;
use std::path::Path;
use unisono_data::Weights;
use unisono_nn::adapters::Adapters;
use unisono_nn::models::LlamaConfig;
use unisono_nn::parameter::Table;
use unisono_tensor::TensorError;

/// The name of the file with the tensors.
pub const TENSORS: &str = "adapter_model.safetensors";
/// What stands before the name of every tensor.
const PREFIX: &str = "base_model.model.";

/// An adapter in its files, open. Nothing of its values is read yet.
#[derive(Debug)]
pub struct Stored {
    /// What its configuration says.
    pub config: PeftConfig,
    /// The same, of a given model: which layers, and which other parameters.
    pub adapters: Adapters,
    weights: Weights,
}

impl Stored {
    /// Opens the adapter in `directory` for a model. Names, shapes and dtypes of all tensors are compared with what the
    /// configuration and the model need.
    ///
    /// # Errors
    /// A kind of adapter that is not built, named; files that are missing or broken; [`HubError::Misfit`] with every tensor that
    /// is missing, superfluous or of another shape.
    pub fn open(directory: &Path, spec: &ModelSpec) -> Result<Stored> {
        let config = read(directory)?;
        let ModelSpec::Llama(llama) = spec else {
            return Err(HubError::unusable(
                directory,
                format!(
                    "adapters are built for models of the Llama family, and the model is {}",
                    spec.describe()
                ),
            ));
        };
        let path = directory.join(TENSORS);
        if !path.exists() {
            return Err(HubError::unusable(directory, absent(directory)));
        }
        let weights = Weights::open(&path)?;
        let model = crate::hub::on_null_device(spec)?;
        let table = model.as_model().table();
        let adapters = config.adapters(llama, table, directory)?;
        let stored = Stored {
            config,
            adapters,
            weights,
        };
        stored.check(&path, table, llama)?;
        Ok(stored)
    }

    /// Compares the tensors with what is needed.
    fn check(&self, path: &Path, table: &Table, llama: &LlamaConfig) -> Result<()> {
        let rank = self.adapters.rank;
        let mut needed: Vec<(String, Vec<usize>)> = Vec::new();
        for layer in &self.adapters.layers {
            let weight = format!("{layer}.weight");
            let shape = table.all().find(|p| p.name == weight).map(|p| p.spec.shape());
            let Some(&[out, inputs]) = shape.as_deref() else {
                panic!("bug in unisono: the layer {layer} of {llama:?} has no weight");
            };
            needed.push((format!("{layer}.lora_A.weight"), vec![rank, inputs]));
            needed.push((format!("{layer}.lora_B.weight"), vec![out, rank]));
        }
        let also = table.all().filter(|p| self.adapters.also.contains(&p.name));
        needed.extend(also.map(|p| (p.name.clone(), p.spec.shape())));
        let mut problems = Vec::new();
        let mut used: BTreeSet<&str> = BTreeSet::new();
        for (name, shape) in &needed {
            let Some(entry) = self.find(name) else {
                problems.push(format!("it has no tensor `{PREFIX}{name}` of shape {shape:?}"));
                continue;
            };
            let tensor = &entry.name;
            if entry.shape != *shape {
                problems.push(format!(
                    "its tensor `{tensor}` has shape {:?}; with rank {rank} and this model it is {shape:?}",
                    entry.shape
                ));
            }
            if stored_dtype(entry.dtype).is_none() {
                problems.push(format!(
                    "its tensor `{tensor}` is of dtype {}, and adapters are F32, F16 or BF16",
                    entry.dtype
                ));
            }
            used.insert(tensor);
        }
        for entry in self.weights.tensors() {
            if !used.contains(entry.name.as_str()) {
                problems.push(format!(
                    "its tensor `{}` of shape {:?} has no place in the adapter that its configuration describes",
                    entry.name, entry.shape
                ));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(HubError::Misfit {
                path: path.display().to_string(),
                problems,
            }),
        }
    }

    /// The stored tensor of a parameter here. A bias beside an adapter is stored under the name of the layer that PEFT wraps.
    fn find(&self, name: &str) -> Option<&unisono_data::weights::TensorEntry> {
        let direct = self.weights.entry(&format!("{PREFIX}{name}")).ok();
        direct.or_else(|| {
            let layer = name.strip_suffix(".bias")?;
            self.weights.entry(&format!("{PREFIX}{layer}.base_layer.bias")).ok()
        })
    }

    /// Puts the values into a model that was built with [`Stored::adapters`], over what is there. Each device reads its part.
    ///
    /// # Errors
    /// [`HubError::Misfit`] if the model has other adapters, before anything is changed; a failed command.
    pub fn load(&self, table: &Table) -> Result<()> {
        let place = |name: &str| table.all().find(|p| p.name == name);
        let mut pairs = Vec::new();
        let mut problems = Vec::new();
        let ends = ["lora_A.weight", "lora_B.weight"];
        let of_layers = self
            .adapters
            .layers
            .iter()
            .flat_map(|layer| ends.map(|end| format!("{layer}.{end}")));
        for name in of_layers.chain(self.adapters.also.iter().cloned()) {
            match (place(&name), self.find(&name)) {
                (Some(parameter), Some(entry)) if parameter.spec.shape() == entry.shape => {
                    pairs.push((parameter, entry))
                }
                (None, _) => problems.push(format!("the model was built without `{name}`")),
                (Some(parameter), _) => problems.push(format!(
                    "the model's `{name}` has shape {:?}, and that is not the file's",
                    parameter.spec.shape()
                )),
            }
        }
        let known = |name: &str| pairs.iter().any(|(parameter, _)| parameter.name == name);
        let more = table.all().filter(|p| p.is_adapter() && !known(&p.name));
        problems.extend(more.map(|p| format!("the model has `{}` as well, which the file does not", p.name)));
        if !problems.is_empty() {
            return Err(HubError::Misfit {
                path: self.weights.path().display().to_string(),
                problems,
            });
        }
        for (parameter, entry) in &pairs {
            copy_stored(parameter, &self.weights, entry)?;
        }
        if let Some((parameter, _)) = pairs.first() {
            parameter.tensor.device().runtime().sync().map_err(TensorError::from)?;
        }
        Ok(())
    }
}

/// What to say of a directory without the tensors.
fn absent(directory: &Path) -> String {
    match directory.join("adapter_model.bin").exists() {
        true => format!(
            "it has no {TENSORS}, and adapter_model.bin is not read, since such files can run code: save the adapter again with \
             safe_serialization=True"
        ),
        false => format!("it has no {TENSORS}: is the download complete?"),
    }
}
