//! `unisono export`: a trained model's weights for other programs.

use super::DONE;
use super::trained::Trained;
use crate::cli::Changes;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
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

/// Options of `export`.
#[derive(Args)]
pub struct ExportArgs {
    /// The run: a folder, one of its checkpoints, or `latest`
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
    /// The file to write; for --format hf the directory
    #[arg(short, long, value_name = "FILE.safetensors|DIR")]
    pub out: PathBuf,
    /// A single file of weights, or a directory that transformers loads
    #[arg(long, value_enum, default_value = "file")]
    pub format: ExportFormat,
    /// What the weights become; only for --format hf
    #[arg(long, value_enum, default_value = "f32")]
    pub dtype: ExportDtype,
    /// A file of weights is at most so large; only for --format hf [default: 5000000000]
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = at_least_one)]
    pub shard_bytes: Option<u64>,
}

/// See the module.
///
/// # Errors
/// A name that is no run, files in the way, a full disk.
pub fn run(args: &ExportArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    if args.format == ExportFormat::File {
        check_file(args)?;
    }
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

/// Whether a single file can be written as the options say.
fn check_file(args: &ExportArgs) -> Result<(), Failure> {
    if args.dtype != ExportDtype::F32 {
        return Err(Failure::input(
            "--dtype is for --format hf: a single file holds the weights in f32, as they are",
        ));
    }
    if let Some(bytes) = args.shard_bytes {
        return Err(Failure::input(format!(
            "--shard-bytes {bytes} is for --format hf: without it one file holds all weights, whatever its size"
        )));
    }
    if args.out.is_dir() {
        return Err(Failure::input(format!(
            "--out {0} is a directory, and a file is written: name one, such as {0}/model.safetensors, or write a directory that \
             does not exist yet with --format hf",
            args.out.display()
        )));
    }
    Ok(())
}

/// The value of `--shard-bytes`.
fn at_least_one(text: &str) -> Result<u64, String> {
    let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "a number of bytes is needed, at least 1".into())
}

fn file(args: &ExportArgs, trained: &Trained) -> Result<Exported, Failure> {
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
        shard_bytes: args.shard_bytes.unwrap_or(SaveOptions::default().shard_bytes),
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
