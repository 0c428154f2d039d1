//! `unisono inspect`: what a model's files hold and what would become of them. Reads no weights.

use super::{DONE, setup};
use crate::cli::InspectArgs;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::numbers::{bytes, counted, grouped};
use crate::runs;
use serde_json::json;
use std::path::Path;
use unisono_train::checkpoint::{Holds, Manifest};
use unisono_train::hub::inspect::{Inspection, MemoryInfo, StoredInfo, inspect, memory_info, tensors};
use unisono_train::hub::resolve;
use unisono_train::model::ModelSpec;

/// See the module.
///
/// # Errors
/// A name that leads nowhere, a file that is no safetensors file.
pub fn run(args: &InspectArgs, context: &Context) -> Result<u8, Failure> {
    let path = resolve(&args.path, &context.environment.variables)?;
    if path.join("config.yaml").is_file() {
        return of_run(&path, context);
    }
    if path.is_dir() && !is_checkpoint(&path) {
        let seen = inspect(&path)?;
        tell(&seen, context);
        context.out.json(&seen);
        // What cannot be used is told in full, and is wrong input all the same.
        return Ok(match seen.refused.is_empty() {
            true => exit::OK,
            false => exit::INPUT,
        });
    }
    let (list, total) = tensors(&path)?;
    let out = &context.out;
    let width = list.iter().map(|tensor| tensor.name.len()).max().unwrap_or(0);
    for tensor in &list {
        out.result(format!(
            "{:width$}  {:5}  {:?}",
            tensor.name, tensor.dtype, tensor.shape
        ));
    }
    out.result(stored(&total));
    out.json(&json!({"path": path.display().to_string(), "tensors": list, "stored": total}));
    DONE
}

fn is_checkpoint(path: &Path) -> bool {
    !path.join("config.json").exists() && Manifest::read_from(path).is_ok()
}

fn line(context: &Context, word: &str, text: impl std::fmt::Display) {
    context.out.result(format!("{word:<14} {text}"));
}

fn tell(seen: &Inspection, context: &Context) {
    line(context, "directory", &seen.path);
    if let Some(model) = &seen.model {
        line(
            context,
            "architecture",
            format!("{}: {}", model.architecture, model.description),
        );
        let tied = if model.tied {
            ", the head is the embedding table"
        } else {
            ""
        };
        line(context, "parameters", format!("{}{tied}", grouped(model.parameters)));
        let rope = model
            .rope
            .as_ref()
            .map(|rope| format!(", rotary positions with {rope}"))
            .unwrap_or_default();
        line(context, "context", format!("{}{rope}", counted(model.context, "token")));
        line(context, "vocabulary", grouped(model.vocabulary as u64));
    }
    if let Some(weights) = &seen.weights {
        line(context, "stored", stored(weights));
    }
    if let Some(model) = &seen.model {
        memory(&model.memory, context);
        let units = model.tensor_parallel_units;
        line(
            context,
            "tensor parallel",
            format!("over any number of devices that divides {units}"),
        );
    }
    if let Some(tokenizer) = &seen.tokenizer {
        let special = tokenizer.special.iter().map(|(name, (id, text))| {
            let text = text.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
            format!(", {name} {id}{text}")
        });
        line(
            context,
            "tokenizer",
            format!(
                "{}, {} entries{}, {} chat template",
                tokenizer.kind,
                grouped(tokenizer.vocabulary as u64),
                special.collect::<String>(),
                if tokenizer.chat_template { "with a" } else { "no" }
            ),
        );
    }
    let files: Vec<String> = seen
        .files
        .iter()
        .map(|file| format!("{} ({})", file.name, bytes(file.bytes)))
        .collect();
    line(context, "files", files.join(", "));
    for note in &seen.notes {
        line(context, "note", note);
    }
    if seen.refused.is_empty() {
        line(context, "verdict", "unisono runs and trains it");
    }
    for reason in &seen.refused {
        line(context, "refused", reason);
    }
}

fn stored(info: &StoredInfo) -> String {
    let kinds: Vec<String> = info
        .bytes_by_dtype
        .iter()
        .map(|(dtype, size)| format!("{dtype} {}", bytes(*size)))
        .collect();
    format!(
        "{}, {} values, {} ({})",
        counted(info.tensors, "tensor"),
        grouped(info.values),
        bytes(info.bytes),
        kinds.join(", ")
    )
}

fn memory(info: &MemoryInfo, context: &Context) {
    line(
        context,
        "memory",
        format!(
            "to generate {} in f32, {} in bf16; to train all weights with AdamW {} in f32, {} in bf16; activations and caches come on \
             top",
            bytes(info.inference_f32),
            bytes(info.inference_bf16),
            bytes(info.training_f32),
            bytes(info.training_bf16)
        ),
    );
}

/// A run of our own.
fn of_run(directory: &Path, context: &Context) -> Result<u8, Failure> {
    let loaded = setup::load_saved(directory, &[], context)?;
    let found = runs::checkpoints(directory, &context.environment).find()?.complete;
    let newest = found
        .first()
        .map(|found| Manifest::read_from(&found.path))
        .transpose()?;
    let rows = newest.iter().flat_map(|manifest| &manifest.tensors);
    let parameters: Vec<_> = rows.filter(|row| row.kind == Holds::Parameter).collect();
    let table = parameters
        .iter()
        .find(|row| ["wte.weight", "model.embed_tokens.weight"].contains(&row.name.as_str()));
    let spec = ModelSpec::of(&loaded.config, table.and_then(|row| row.shape.first().copied()));
    let total: u64 = parameters
        .iter()
        .map(|row| row.shape.iter().product::<usize>() as u64)
        .sum();
    let info = memory_info(&spec)?;
    line(context, "run", directory.display());
    line(context, "model", spec.describe());
    match &newest {
        Some(manifest) => {
            line(context, "parameters", grouped(total));
            line(
                context,
                "checkpoints",
                format!(
                    "{}, the newest of step {}, written on {}",
                    found.len(),
                    manifest.state.step,
                    manifest.mesh
                ),
            );
        }
        None => line(context, "checkpoints", "none is complete"),
    }
    memory(&info, context);
    context.out.json(&json!({
        "path": directory.display().to_string(),
        "description": spec.describe(),
        "parameters": newest.as_ref().map(|_| total),
        "step": newest.as_ref().map(|manifest| manifest.state.step),
        "checkpoints": found.iter().map(|found| found.path.display().to_string()).collect::<Vec<_>>(),
        "memory": info,
    }));
    DONE
}
