//! `unisono eval`: how well a trained model predicts held-out data.

use super::DONE;
use super::trained::Trained;
use crate::cli::EvalArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::numbers::grouped;
use serde_json::json;
use std::path::Path;
use unisono_data::{Tokenizer, Tokens, text, token_file};
use unisono_train::dataset::{Dataset, Validation};
use unisono_train::evaluate::evaluate;

/// See the module.
///
/// # Errors
/// A name that is no run, or data that cannot be read.
pub fn run(args: &EvalArgs, context: &Context) -> Result<u8, Failure> {
    let trained = Trained::load(&args.run.run, &args.run.changes, context)?;
    let (out, training) = (&context.out, &trained.config.training);
    let dp = trained.device.mesh().axis_size("dp");
    let sequences = training.validation_batch_size.div_ceil(dp) * dp;
    let dataset = match &args.data {
        Some(_) => None,
        None => Some(Dataset::load(&trained.config)?),
    };
    if let Some(dataset) = &dataset
        && dataset.digest() != trained.manifest.data_digest
    {
        let vocabulary = |tokenizer: Option<&Tokenizer>| tokenizer.map(Tokenizer::to_json);
        if vocabulary(dataset.tokenizer()) != vocabulary(trained.tokenizer.as_ref()) {
            return Err(Failure::input(format!(
                "the data has changed since the run was trained and has another vocabulary than the run ({}): name a file \
                 whose text the run's own vocabulary can encode with --data",
                dataset.describe()
            )));
        }
        out.warn("the data is not what the run was trained on: its hash is another");
    }
    let tokens = match (&args.data, &dataset) {
        (Some(file), _) => Some(read_tokens(file, &trained)?),
        (None, Some(Dataset::Text(data))) => Some(data.validation.clone()),
        (None, _) => None,
    };
    let validation = match (&dataset, &tokens) {
        (Some(dataset), _) => dataset.validation(sequences, None)?,
        (None, Some(tokens)) => {
            let positions = trained.spec.targets_per_sequence();
            Some(Validation::of_tokens(tokens.clone(), positions, sequences)?)
        }
        (None, None) => None,
    };
    let Some(validation) = validation else {
        return Err(Failure::input(
            "this run keeps nothing for validation (validation_fraction is 0): name a file with --data",
        ));
    };
    let model = trained.model.as_model();
    let result = evaluate(&trained.device, model, &validation, sequences)?;
    let is_text = tokens.is_some();
    let per_character = tokens.and_then(|tokens| tokens_per_character(&tokens, trained.tokenizer.as_ref()));
    let bits_per_character = per_character.map(|tokens| result.bits() * tokens);
    out.result(format!("loss                {:.6}", result.loss));
    if is_text {
        out.result(format!("perplexity          {:.4}", result.perplexity()));
        out.result(format!("bits per token      {:.4}", result.bits()));
    }
    if let Some(bits) = bits_per_character {
        out.result(format!("bits per character  {bits:.4}"));
    }
    out.result(format!("targets             {}", grouped(result.targets as u64)));
    out.say(format!("checkpoint          {}", trained.checkpoint.display()));
    out.json(&json!({
        "loss": result.loss,
        "perplexity": is_text.then(|| result.perplexity()),
        "bits_per_token": is_text.then(|| result.bits()),
        "bits_per_character": bits_per_character,
        "targets": result.targets,
        "checkpoint": trained.checkpoint.display().to_string(),
    }));
    DONE
}

/// A file's tokens, as the run reads text.
fn read_tokens(file: &Path, trained: &Trained) -> Result<Tokens, Failure> {
    trained.language_model()?;
    let place = file.display().to_string();
    let tokens = match &trained.tokenizer {
        None => token_file::load_tokens(file, None)?,
        Some(Tokenizer::Byte) => {
            let ids = text::read_bytes(file)?.iter().map(|byte| u32::from(*byte)).collect();
            Tokens::from_vec(ids, 256, &place)?
        }
        Some(tokenizer) => {
            let ids = tokenizer
                .encode(&text::read_text(file)?.text)
                .map_err(|error| Failure::input(format!("{place}: {error}")))?;
            Tokens::from_vec(ids, tokenizer.vocab_size(), &place)?
        }
    };
    let size = trained.manifest.tensors.iter().find(|row| row.name == "wte.weight");
    if let Some(size) = size.and_then(|row| row.shape.first())
        && let Some(at) = tokens.iter().position(|id| id as usize >= *size)
    {
        return Err(Failure::input(format!(
            "{place}: token id {} at position {at} is outside the model's vocabulary of {size}",
            tokens.get(at).unwrap_or_default()
        )));
    }
    Ok(tokens)
}

/// How many tokens a character takes, where that is known.
fn tokens_per_character(tokens: &Tokens, tokenizer: Option<&Tokenizer>) -> Option<f64> {
    match tokenizer? {
        Tokenizer::Char(_) => Some(1.0),
        Tokenizer::Byte => {
            // All bytes of a character but its first are 10xxxxxx.
            let characters = tokens.iter().filter(|byte| byte & 0xC0 != 0x80).count();
            (characters > 0).then(|| tokens.len() as f64 / characters as f64)
        }
        tokenizer @ Tokenizer::Hf(_) => {
            let ids: Vec<u32> = tokens.iter().collect();
            let characters = tokenizer.decode(&ids).ok()?.chars().count();
            (characters > 0).then(|| tokens.len() as f64 / characters as f64)
        }
    }
}
