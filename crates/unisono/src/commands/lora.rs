//! `unisono lora`: what can be done with adapters once they are trained.

use super::export::ExportDtype;
use super::trained::Trained;
use super::{DONE, setup};
use crate::cli::Changes;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};
use unisono_data::Tokenizer;
use unisono_data::weights::WrittenDtype;
use unisono_nn::Parameter;
use unisono_tensor::{Mesh, Options};
use unisono_train::adapters::adapters;
use unisono_train::hub::{self, SaveOptions, WeightSet};
use unisono_train::model::ModelSpec;
use unisono_train::peft::{Stored, merged};
use unisono_train::start::{model_of_files, spec_of_files};

/// What `lora` can do.
#[derive(Subcommand)]
pub enum LoraCommand {
    /// Work an adapter into the model it belongs to, and write that as a directory that transformers loads
    Merge(MergeArgs),
}

/// Options of `lora merge`.
#[derive(Args)]
pub struct MergeArgs {
    /// The model: a directory, or org/name in Hugging Face's cache
    #[arg(
        long,
        value_name = "DIR|ORG/NAME",
        required_unless_present = "run",
        requires = "adapter"
    )]
    pub model: Option<String>,
    /// The adapter in PEFT's format: a directory, or org/name in Hugging Face's cache
    #[arg(long, value_name = "DIR|ORG/NAME", requires = "model")]
    pub adapter: Option<String>,
    /// In place of both: a run with lora_config (a folder, one of its checkpoints, or `latest`)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "adapter"])]
    pub run: Option<PathBuf>,
    /// The directory to write
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// What the weights become; they are merged in f32
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: ExportDtype,
}

/// A model with its adapter worked in.
struct Merged {
    spec: ModelSpec,
    parameters: Vec<Parameter>,
    layers: usize,
    options: SaveOptions,
}

/// See the module.
///
/// # Errors
/// Files that are missing or do not fit each other, a run without adapters, a directory in the way, a full disk.
pub fn run(command: &LoraCommand, context: &Context) -> Result<u8, Failure> {
    let LoraCommand::Merge(args) = command;
    let dtype = match args.dtype {
        ExportDtype::F32 => WrittenDtype::F32,
        ExportDtype::Bf16 => WrittenDtype::Bf16,
    };
    let merged = match (&args.run, &args.model, &args.adapter) {
        (Some(run), ..) => of_run(run, context)?,
        (None, Some(model), Some(adapter)) => of_files(model, adapter, context)?,
        _ => return Err(Failure::input("--model and --adapter, or --run, are needed")),
    };
    let options = SaveOptions {
        dtype,
        ..merged.options
    };
    let parameters: Vec<&Parameter> = merged.parameters.iter().collect();
    let files = hub::save(&args.out, &merged.spec, &parameters, &options)?;
    for file in &files {
        context.out.say(format!("wrote {}", file.display()));
    }
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    context
        .out
        .json(&json!({"files": files, "merged_layers": merged.layers}));
    DONE
}

fn of_files(model: &str, adapter: &str, context: &Context) -> Result<Merged, Failure> {
    let variables = &context.environment.variables;
    let (directory, adapter) = (hub::resolve(model, variables)?, hub::resolve(adapter, variables)?);
    let described = hub::read_config(&directory)?;
    let adapters = Stored::open(&adapter, &described.spec)?.adapters;
    let options = Options {
        isa: Some(context.isa),
        ..Options::default()
    };
    let device = setup::alone(Mesh::one(), options)?;
    let weights = WeightSet::open(&directory)?;
    let (model, _) = model_of_files(&device, &described.spec, &weights, Some(&adapter))?;
    let mut options = SaveOptions::default();
    match Tokenizer::load(&directory) {
        Ok(tokenizer) => options = options.with_tokenizer(&tokenizer),
        Err(error) => context.out.note(format!("the merged model gets no tokenizer: {error}")),
    }
    options.ids = described.ids;
    Ok(Merged {
        parameters: merged(model.as_model().table(), &adapters)?,
        layers: adapters.layers.len(),
        spec: described.spec,
        options,
    })
}

fn of_run(name: &Path, context: &Context) -> Result<Merged, Failure> {
    let changes = Changes {
        set: vec!["training_config.dtype=f32".into()],
        ..Changes::default()
    };
    let trained = Trained::load(name, &changes, context)?;
    let Some(lora) = &trained.config.lora else {
        return Err(Failure::input(format!(
            "{} has no lora_config, so there is nothing to merge: `unisono export --format hf` writes its model",
            trained.directory.display()
        )));
    };
    let adapters = adapters(lora, &trained.spec)?;
    let (spec, ids) = spec_of_files(&trained.config, &trained.spec)?;
    let mut options = SaveOptions::default();
    if let Some(tokenizer) = &trained.tokenizer {
        options = options.with_tokenizer(tokenizer);
    }
    options.ids = ids.unwrap_or(options.ids);
    Ok(Merged {
        parameters: merged(trained.model.as_model().table(), &adapters)?,
        layers: adapters.layers.len(),
        spec,
        options,
    })
}
