//! The weights that a model begins with, and those that a run gave it.

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::error::Result;
use crate::hub::config::Ids;
use crate::hub::{self, Loaded, WeightSet};
use crate::model::{LiveModel, ModelSpec};
use crate::peft::Stored;
use crate::step::regime;
use std::path::Path;
use std::rc::Rc;
use unisono_nn::{Parameter, Regime};
use unisono_tensor::MeshDevice;

/// Loads the weights of `model_path` into a model, where the configuration names one. Adapters keep their values.
///
/// # Errors
/// Files that are not there, or whose tensors are not the model's.
pub fn load_base(model: &LiveModel, config: &RunConfig, spec: &ModelSpec) -> Result<()> {
    if let Some(path) = &config.training.model_path {
        hub::load(&WeightSet::open(path)?, model.as_model().table().all(), spec)?;
    }
    Ok(())
}

/// Loads the adapter of `adapter_path` into a model, where the configuration names one, over its fresh one.
///
/// # Errors
/// Files that are not there, or whose tensors are not the model's.
pub fn load_adapter(model: &LiveModel, config: &RunConfig, spec: &ModelSpec) -> Result<()> {
    if let Some(path) = config.lora.as_ref().and_then(|lora| lora.adapter_path.as_ref()) {
        Stored::open(path, spec)?.load(model.as_model().table())?;
    }
    Ok(())
}

/// The model of a run as its files for others describe it, and the ids that its `model_path` names. A run may take shorter
/// sequences than the model it starts from has positions; the model keeps them.
///
/// # Errors
/// A `model_path` whose configuration cannot be read.
pub fn spec_of_files(config: &RunConfig, spec: &ModelSpec) -> Result<(ModelSpec, Option<Ids>)> {
    let mut spec = spec.clone();
    let Some(base) = &config.training.model_path else {
        return Ok((spec, None));
    };
    let described = hub::read_config(base)?;
    if let (ModelSpec::Llama(spec), ModelSpec::Llama(base)) = (&mut spec, &described.spec) {
        spec.max_sequence_length = base.max_sequence_length;
    }
    Ok((spec, Some(described.ids)))
}

/// A model of Hugging Face's files that only runs, with an adapter of PEFT's files beside its layers where one is named;
/// and what loading its weights had to say.
///
/// # Errors
/// Tensors that are not the model's or the adapter's, a mesh that does not fit.
pub fn model_of_files(
    device: &MeshDevice,
    spec: &ModelSpec,
    weights: &WeightSet,
    adapter: Option<&Path>,
) -> Result<(LiveModel, Loaded)> {
    let adapter = adapter.map(|path| Stored::open(path, spec)).transpose()?;
    let adapters = adapter.as_ref().map(|adapter| Rc::new(adapter.adapters.clone()));
    let model = spec.build(
        device,
        &Regime {
            adapters,
            ..Regime::inference()
        },
    )?;
    let loaded = hub::load(weights, model.as_model().table().all(), spec)?;
    if let Some(adapter) = adapter {
        adapter.load(model.as_model().table())?;
    }
    model.as_model().set_training(false);
    Ok((model, loaded))
}

/// The model of a run with the weights of `checkpoint`, which only runs: no gradients, no optimizer. What the checkpoint of a
/// run with adapters does not hold comes from where the run took it: `model_path`, or the seed.
///
/// # Errors
/// A checkpoint of another model, a model's directory that is gone, a mesh that does not fit.
pub fn trained_model(
    device: &MeshDevice,
    config: &RunConfig,
    spec: &ModelSpec,
    checkpoint: &Checkpoint,
) -> Result<LiveModel> {
    let training = regime(config, spec)?;
    let adapters = training.adapters.clone();
    let model = spec.build(
        device,
        &Regime {
            frozen: true,
            values_come_later: adapters.is_none() || training.values_come_later,
            ..training
        },
    )?;
    let held: Vec<Parameter> = match &adapters {
        None => model.as_model().table().all().cloned().collect(),
        Some(adapters) => {
            load_base(&model, config, spec)?;
            let all = model.as_model().table().all();
            all.filter(|p| adapters.trains(p)).cloned().collect()
        }
    };
    checkpoint.restore_parameters(&held)?;
    model.as_model().set_training(false);
    Ok(model)
}
