//! `unisono export`: a trained model's weights for other programs.

use super::DONE;
use super::trained::Trained;
use crate::cli::{Changes, ExportArgs};
use crate::context::Context;
use crate::exit::Failure;
use serde_json::json;
use unisono_train::export::export;
use unisono_train::model::ModelSpec;

/// See the module.
///
/// # Errors
/// A name that is no run, files in the way, a full disk.
pub fn run(args: &ExportArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let trained = Trained::load_to_write(&args.run, &Changes::default(), context)?;
    let gpt = match &trained.spec {
        ModelSpec::Gpt(config) => Some(config),
        ModelSpec::Llama(_) | ModelSpec::Perceptron(_) => None,
    };
    let parameters = trained.model.as_model().parameters();
    let exported = export(parameters, gpt, trained.tokenizer.as_ref(), &args.out)?;
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
