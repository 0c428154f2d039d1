//! A model, ready to run, of a run or of Hugging Face's files: what `generate`, `chat`, `eval`, `export` and `diff --prompts`
//! begin with.

use super::setup;
use super::system::System;
use crate::cli::{Changes, ModelArgs};
use crate::context::Context;
use crate::exit::Failure;
use crate::runs;
use std::path::{Path, PathBuf};
use unisono_data::Tokenizer;
use unisono_nn::{LanguageModel, Regime};
use unisono_tensor::{Dtype, Mesh, MeshDevice, Options};
use unisono_train::checkpoint::{self, CheckpointError, Holds, Manifest};
use unisono_train::config::{RunConfig, TokenizerType};
use unisono_train::generate::Sampling;
use unisono_train::hub::{self, WeightSet};
use unisono_train::model::{LiveModel, ModelSpec};
use unisono_train::plan::mesh_of;
use unisono_train::start::{model_of_files, trained_model};

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

/// What a run's weights are loaded for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To be used, in the run's precision.
    Run,
    /// To be written, in f32.
    Write,
}

impl Trained {
    /// Loads a run's newest checkpoint, or the one that is named, on one device unless a mesh is asked for: the results
    /// are the same on each.
    ///
    /// # Errors
    /// A name that is no run, a damaged checkpoint, a mesh that does not fit.
    pub fn load(name: &Path, changes: &Changes, context: &Context) -> Result<Trained, Failure> {
        Trained::load_for(Purpose::Run, name, changes, context)
    }

    /// As [`Trained::load`], with all weights as they were trained, in f32: for files.
    ///
    /// # Errors
    /// As [`Trained::load`].
    pub fn load_to_write(name: &Path, changes: &Changes, context: &Context) -> Result<Trained, Failure> {
        Trained::load_for(Purpose::Write, name, changes, context)
    }

    fn load_for(purpose: Purpose, name: &Path, changes: &Changes, context: &Context) -> Result<Trained, Failure> {
        if let Some(ranks) = &context.ranks {
            ranks.agree_on_arguments()?;
        }
        let named = runs::find(name, &context.environment)?;
        let loaded = setup::load_saved(&named.directory, &setup::overrides(changes, None)?, context)?;
        let mut config = loaded.config;
        if changes.mesh.is_none() && !changes.set.iter().any(|set| set.starts_with("device_config.")) {
            config.device.mesh_shape = vec![1];
            (config.device.enable_ddp, config.device.enable_tp) = (false, false);
        }
        // The optimizer's state is for training alone.
        let checkpoint = match &named.checkpoint {
            Some(path) => checkpoint::load_parameters(path),
            None => runs::checkpoints(&named.directory, &context.environment).newest_parameters(),
        };
        let checkpoint = checkpoint.map_err(|error| not_loaded(error, &named.directory))?;
        let file = named.directory.join("tokenizer.json");
        let tokenizer = match (config.training.tokenizer_type, file.is_file()) {
            (TokenizerType::Pretokenised, _) | (_, false) => None,
            (_, true) => Some(Tokenizer::load(&file)?),
        };
        // The head's size is the tokenizer's, which the checkpoint knows better than the configuration; one of adapters holds none.
        let table = ["wte.weight", "model.embed_tokens.weight"]
            .into_iter()
            .find_map(|name| checkpoint.row(Holds::Parameter, name));
        let vocab_size = table.and_then(|row| row.shape.first().copied());
        let spec = ModelSpec::of(&config, vocab_size.or(tokenizer.as_ref().map(Tokenizer::vocab_size)));
        if purpose == Purpose::Write && config.lora.is_some() {
            let run = named.directory.display();
            return Err(Failure::input(format!(
                "{run} trained adapters, and export writes whole models: `unisono lora merge --run {run} --out DIR` adds them to the \
                 model's weights, and {run}/final_model holds them alone"
            )));
        }
        let mesh = mesh_of(&config).map_err(Failure::input)?;
        check_units(&mesh, &spec)?;
        let device = setup::open(System::of(&mesh, None, context)?, &config, context)?;
        device.set_seed(config.training.seed);
        let model = match purpose {
            Purpose::Run => trained_model(&device, &config, &spec, &checkpoint)?,
            Purpose::Write => {
                let model = spec.build(&device, &Regime::default())?;
                checkpoint.restore_parameters(model.as_model().parameters())?;
                model.as_model().set_training(false);
                model
            }
        };
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

/// A language model in Hugging Face's files, ready to run.
pub struct HubModel {
    /// The files' folder.
    pub directory: PathBuf,
    /// The devices.
    pub device: MeshDevice,
    /// The model, which only runs.
    pub model: LiveModel,
    /// What it is.
    pub spec: ModelSpec,
    /// How text becomes tokens, or why it cannot.
    pub tokenizer: Result<Tokenizer, String>,
    /// Tokens that end a text.
    pub eos_ids: Vec<u32>,
}

impl HubModel {
    /// Loads the model `name`, a folder or `org/name`, on one device unless a mesh is asked for: the results are the same on
    /// each.
    ///
    /// # Errors
    /// Files that are missing or wrong, a model that is not built, a mesh that does not fit.
    pub fn load(name: &str, args: &ModelArgs, context: &Context) -> Result<HubModel, Failure> {
        if let Some(ranks) = &context.ranks {
            ranks.agree_on_arguments()?;
        }
        if let Some(set) = args.changes.set.first() {
            return Err(Failure::input(format!(
                "--set {set} is for runs; a model of --model takes --mesh, --workers, --dtype and --bf16-order"
            )));
        }
        let directory = hub::resolve(name, &context.environment.variables).map_err(|error| {
            let known = runs::known();
            Failure::input(format!("{error}; a run of unisono's is named with --run{known}"))
        })?;
        if directory.join("config.yaml").is_file() && !directory.join("config.json").is_file() {
            return Err(Failure::input(format!(
                "{name} is a run of unisono's: name it with --run"
            )));
        }
        let described = hub::read_config(&directory)?;
        let weights = WeightSet::open(&directory)?;
        let stored = match described.dtype.as_deref() {
            Some("bfloat16") => Dtype::Bf16,
            _ => Dtype::F32,
        };
        let (dtype, bf16_order) = args.precision.of_files(stored)?;
        let spec = described.spec.with_dtype(dtype);
        let mesh = match &args.changes.mesh {
            Some(text) => Mesh::parse(text).map_err(Failure::input)?,
            None => Mesh::one(),
        };
        check_units(&mesh, &spec)?;
        let options = Options {
            workers: args.changes.workers,
            isa: Some(context.isa),
            bf16_order,
            ..Options::default()
        };
        let system = System::of(&mesh, None, context)?;
        let device = setup::opened(system.view, system.processes, options, context)?;
        let adapter = args
            .adapter
            .as_ref()
            .map(|name| hub::resolve(name, &context.environment.variables))
            .transpose()?;
        let (model, loaded) = model_of_files(&device, &spec, &weights, adapter.as_deref())?;
        for name in loaded.ignored {
            context
                .out
                .debug(format!("{}: tensor `{name}` is not needed", directory.display()));
        }
        let tokenizer = Tokenizer::load(&directory).map_err(|error| error.to_string());
        let eos_ids = match &tokenizer {
            Ok(tokenizer) if !tokenizer.eos_ids().is_empty() => tokenizer.eos_ids().to_vec(),
            _ => described.ids.eos,
        };
        context.out.debug(format!(
            "{}: {}, on {}",
            directory.display(),
            spec.describe(),
            device.mesh().describe()
        ));
        Ok(HubModel {
            directory,
            device,
            model,
            spec,
            tokenizer,
            eos_ids,
        })
    }
}

/// Why a run has no weights to use, and what helps who wants to use them, not to train.
fn not_loaded(error: CheckpointError, run: &Path) -> Failure {
    let run = run.display();
    match error {
        CheckpointError::None { directory, .. } => Failure::input(format!(
            "{directory} holds no complete checkpoint, so {run} has no weights yet: wait until its training has written one, begin it \
             anew with `unisono train -c {run}/config.yaml --out {run} --fresh`, or name another run"
        )),
        CheckpointError::Damaged {
            file,
            problem,
            instead: Some(older),
        } => Failure::input(format!(
            "{file} is damaged: {problem}; the checkpoint before it is good: name it with --run {older}"
        )),
        error => error.into(),
    }
}

/// Whether a mesh cuts a model evenly.
fn check_units(mesh: &Mesh, spec: &ModelSpec) -> Result<(), Failure> {
    let (tp, units) = (mesh.axis_size("tp"), spec.units());
    match units.is_multiple_of(tp) {
        true => Ok(()),
        false => Err(Failure::input(format!(
            "tensor parallelism over {tp} devices cuts this model's {units} groups unevenly: use a degree that divides {units}"
        ))),
    }
}

/// How a run's configuration wants tokens to be drawn.
pub fn sampling(config: &RunConfig) -> Sampling {
    Sampling {
        temperature: config.eval.temperature as f32,
        top_k: config.eval.top_k,
        top_p: config.eval.top_p as f32,
        min_p: 0.0,
        repetition_penalty: config.eval.repetition_penalty as f32,
        seed: config.training.seed,
    }
}
