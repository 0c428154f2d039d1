//! `unisono export`: a trained model's weights for other programs.

use super::DONE;
use super::trained::Trained;
use crate::cli::{Changes, ExportArgs};
use crate::context::Context;
use crate::exit::Failure;
use clap::ValueEnum;
use serde_json::json;
use unisono_data::weights::WrittenDtype;
use unisono_train::export::{Exported, export};
use unisono_train::hub::{SaveOptions, save};
use unisono_train::model::ModelSpec;

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One safetensors file, with config.json and tokenizer.json beside it
    File,
    /// A directory that transformers loads as it is
    Hf,
}

/// What exported weights become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportDtype {
    /// As they are
    F32,
    /// Rounded to nearest even
    Bf16,
}

/// See the module.
///
/// # Errors
/// A name that is no run, files in the way, a full disk.
pub fn run(args: &ExportArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let trained = Trained::load_to_write(&args.run, &Changes::default(), context)?;
    let exported = match args.format {
        ExportFormat::File => file(args, &trained)?,
        ExportFormat::Hf => directory(args, &trained)?,
    };
    for file in &exported.files {
        out.say(format!("wrote {}", file.display()));
    }
    for note in &exported.notes {
        out.note(note);
    }
    let files: Vec<String> = exported.files.iter().map(|file| file.display().to_string()).collect();
    out.json(&json!({"files": files, "notes": exported.notes, "checkpoint": trained.checkpoint.display().to_string()}));
    DONE
}

fn file(args: &ExportArgs, trained: &Trained) -> Result<Exported, Failure> {
    if args.dtype != ExportDtype::F32 {
        return Err(Failure::input(
            "--dtype is for --format hf: a single file holds the weights in f32, as they are",
        ));
    }
    let gpt = match &trained.spec {
        ModelSpec::Gpt(config) => Some(config),
        ModelSpec::Llama(_) | ModelSpec::Perceptron(_) => None,
    };
    let parameters = trained.model.as_model().parameters();
    Ok(export(parameters, gpt, trained.tokenizer.as_ref(), &args.out)?)
}

fn directory(args: &ExportArgs, trained: &Trained) -> Result<Exported, Failure> {
    let options = SaveOptions {
        dtype: match args.dtype {
            ExportDtype::F32 => WrittenDtype::F32,
            ExportDtype::Bf16 => WrittenDtype::Bf16,
        },
        shard_bytes: args.shard_bytes,
        ..SaveOptions::default()
    };
    let options = match &trained.tokenizer {
        Some(tokenizer) => options.with_tokenizer(tokenizer),
        None => options,
    };
    let parameters: Vec<_> = trained.model.as_model().table().all().collect();
    Ok(Exported {
        files: save(&args.out, &trained.spec, &parameters, &options)?,
        notes: Vec::new(),
    })
}
