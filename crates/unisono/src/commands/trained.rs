//! A trained model, ready to run: what `generate`, `eval`, `export` and `diff --prompts` begin with.

use super::setup;
use crate::cli::Changes;
use crate::context::Context;
use crate::exit::Failure;
use crate::runs;
use std::path::{Path, PathBuf};
use unisono_data::Tokenizer;
use unisono_nn::{LanguageModel, Regime};
use unisono_tensor::MeshDevice;
use unisono_train::checkpoint::{self, Holds, Manifest};
use unisono_train::config::{RunConfig, TokenizerType};
use unisono_train::generate::Sampling;
use unisono_train::model::{LiveModel, ModelSpec};
use unisono_train::plan::mesh_of;

/// See the module.
pub struct Trained {
    /// Its run's configuration.
    pub config: RunConfig,
    /// The devices.
    pub device: MeshDevice,
    /// The model with the checkpoint's weights, dropout off.
    pub model: LiveModel,
    /// What it is.
    pub spec: ModelSpec,
    /// Its run's folder.
    pub directory: PathBuf,
    /// How text becomes tokens, where that is known.
    pub tokenizer: Option<Tokenizer>,
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// What the checkpoint says of itself.
    pub manifest: Manifest,
}

impl Trained {
    /// Loads a run's newest checkpoint, or the one that is named, on one device unless a mesh is asked for: the results
    /// are the same on each.
    ///
    /// # Errors
    /// A name that is no run, a damaged checkpoint, a mesh that does not fit.
    pub fn load(name: &Path, changes: &Changes, context: &Context) -> Result<Trained, Failure> {
        let named = runs::find(name, &context.environment)?;
        let loaded = setup::load_saved(&named.directory, &setup::overrides(changes, None)?, context)?;
        let mut config = loaded.config;
        if changes.mesh.is_none() && !changes.set.iter().any(|set| set.starts_with("device_config.")) {
            config.device.mesh_shape = vec![1];
            (config.device.enable_ddp, config.device.enable_tp) = (false, false);
        }
        let checkpoint = match &named.checkpoint {
            Some(path) => checkpoint::load(path)?,
            None => runs::checkpoints(&named.directory, &context.environment).newest()?,
        };
        // The head's size is the tokenizer's, which the checkpoint knows better than the configuration.
        let table = checkpoint.row(Holds::Parameter, "wte.weight");
        let spec = ModelSpec::of(&config, table.and_then(|row| row.shape.first().copied()));
        let file = named.directory.join("tokenizer.json");
        let tokenizer = match (config.training.tokenizer_type, file.is_file()) {
            (TokenizerType::Pretokenised, _) | (_, false) => None,
            (_, true) => Some(Tokenizer::load(&file)?),
        };
        let mesh = mesh_of(&config).map_err(Failure::input)?;
        let (tp, units) = (mesh.axis_size("tp"), spec.units());
        if !units.is_multiple_of(tp) {
            return Err(Failure::input(format!(
                "tensor parallelism over {tp} devices cuts this model's {units} groups unevenly: use a degree that divides {units}"
            )));
        }
        let device = setup::open(&mesh, &config, context)?;
        device.set_seed(config.training.seed);
        let model = spec.build(&device, &Regime::default())?;
        checkpoint.restore_parameters(model.as_model().parameters())?;
        model.as_model().set_training(false);
        context.out.debug(format!(
            "{}: step {}, on {}",
            checkpoint.path().display(),
            checkpoint.manifest().state.step,
            mesh.describe()
        ));
        Ok(Trained {
            directory: named.directory,
            device,
            model,
            spec,
            tokenizer,
            checkpoint: checkpoint.path().to_owned(),
            manifest: checkpoint.manifest().clone(),
            config,
        })
    }

    /// The model as a language model.
    ///
    /// # Errors
    /// Another kind of model.
    pub fn language_model(&self) -> Result<&dyn LanguageModel, Failure> {
        self.model.as_language_model().ok_or_else(|| {
            Failure::input(format!(
                "{} is the checkpoint of a {}: only language models write text",
                self.checkpoint.display(),
                self.spec.describe()
            ))
        })
    }

    /// How text becomes tokens.
    ///
    /// # Errors
    /// A run on tokens, or a tokenizer that got lost.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Failure> {
        self.tokenizer.as_ref().ok_or_else(|| {
            let run = self.directory.display();
            Failure::input(match self.config.training.tokenizer_type {
                TokenizerType::Pretokenised => {
                    format!("{run} was trained on tokens: a text cannot be encoded, and --prompt-ids 1,2,3 works")
                }
                _ => format!(
                    "{run}/tokenizer.json is missing, so a text cannot be encoded: put it back (the same data and \
                     tokenizer_type write it again), or use --prompt-ids 1,2,3"
                ),
            })
        })
    }
}

/// How a run's configuration wants tokens to be drawn.
pub fn sampling(config: &RunConfig) -> Sampling {
    Sampling {
        temperature: config.eval.temperature as f32,
        top_k: config.eval.top_k,
        top_p: config.eval.top_p as f32,
        repetition_penalty: config.eval.repetition_penalty as f32,
        seed: config.training.seed,
    }
}
