//! `unisono generate`: a trained model goes on from a prompt, seen as it is written.

use super::DONE;
use super::trained::{Trained, sampling};
use crate::cli::GenerateArgs;
use crate::context::Context;
use crate::exit::Failure;
use serde_json::json;
use std::ops::ControlFlow;
use unisono_train::generate::{End, Finish, Request, Sampling, TextRequest, generate as generate_ids, generate_text};

/// Tokens that are written if nothing is said, as far as the model has positions for them.
const DEFAULT_TOKENS: usize = 300;

/// See the module.
///
/// # Errors
/// A name that is no run, a prompt that cannot be gone on from, settings that mean nothing.
pub fn run(args: &GenerateArgs, context: &Context) -> Result<u8, Failure> {
    let trained = Trained::load(&args.run.run, &args.run.changes, context)?;
    let sampling = changed(sampling(&trained.config), args);
    match &args.prompt_ids {
        Some(ids) => from_ids(ids, sampling, args, &trained, context),
        None => from_text(
            args.prompt.as_deref().unwrap_or_default(),
            sampling,
            args,
            &trained,
            context,
        ),
    }
}

fn from_text(
    prompt: &str,
    sampling: Sampling,
    args: &GenerateArgs,
    trained: &Trained,
    context: &Context,
) -> Result<u8, Failure> {
    let (out, model) = (&context.out, trained.language_model()?);
    let tokenizer = trained.tokenizer()?;
    let tokens = tokenizer
        .encode(prompt)
        .map_err(|error| Failure::input(format!("--prompt: {error}")))?
        .len();
    let request = TextRequest {
        prompt: prompt.into(),
        max_new_tokens: length(args, tokens, trained),
        sampling,
    };
    let mut begun = false;
    let outputs = generate_text(model, tokenizer, &[request], &mut |_, piece| {
        // The prompt stands before its continuation once it is known to be a good one.
        if !std::mem::replace(&mut begun, true) {
            out.piece(prompt);
        }
        out.piece(piece);
        go_on(context)
    })?;
    let Some(output) = outputs.into_iter().next() else {
        return DONE;
    };
    if !begun {
        out.piece(prompt);
    }
    out.piece("\n");
    tell_finish(&output.finish, context);
    out.json(&json!({
        "prompt": prompt,
        "text": output.text,
        "ids": output.ids,
        "finish": output.finish.to_string(),
        "checkpoint": trained.checkpoint.display().to_string(),
    }));
    DONE
}

fn from_ids(
    ids: &[u32],
    sampling: Sampling,
    args: &GenerateArgs,
    trained: &Trained,
    context: &Context,
) -> Result<u8, Failure> {
    let (out, model) = (&context.out, trained.language_model()?);
    let request = Request {
        prompt_ids: ids.to_vec(),
        max_new_tokens: length(args, ids.len(), trained),
        sampling,
        stop_ids: Vec::new(),
    };
    let mut first = true;
    let outputs = generate_ids(model, &[request], &mut |_, id| {
        let comma = if std::mem::replace(&mut first, false) { "" } else { "," };
        out.piece(&format!("{comma}{id}"));
        go_on(context)
    })?;
    let Some(output) = outputs.into_iter().next() else {
        return DONE;
    };
    out.piece("\n");
    tell_finish(&output.finish, context);
    out.json(&json!({
        "prompt_ids": ids,
        "ids": output.ids,
        "finish": output.finish.to_string(),
        "checkpoint": trained.checkpoint.display().to_string(),
    }));
    DONE
}

/// Nobody needs a text that nobody reads.
fn go_on(context: &Context) -> ControlFlow<End> {
    match context.out.is_broken() {
        true => ControlFlow::Break(End::All),
        false => ControlFlow::Continue(()),
    }
}

fn tell_finish(finish: &Finish, context: &Context) {
    if let Finish::Context { .. } = finish {
        context.out.note(format!("the text ends here: {finish}"));
    }
}

/// Tokens to write: as asked, or some, as far as the model has positions for them.
fn length(args: &GenerateArgs, prompt: usize, trained: &Trained) -> usize {
    let positions = trained.spec.targets_per_sequence();
    args.max_new_tokens
        .unwrap_or_else(|| DEFAULT_TOKENS.min((positions + 1).saturating_sub(prompt)))
}

fn changed(sampling: Sampling, args: &GenerateArgs) -> Sampling {
    Sampling {
        temperature: args.temperature.map_or(sampling.temperature, |t| t as f32),
        top_k: match args.top_k {
            Some(0) => None,
            Some(k) => Some(k),
            None => sampling.top_k,
        },
        top_p: args.top_p.map_or(sampling.top_p, |p| p as f32),
        repetition_penalty: args
            .repetition_penalty
            .map_or(sampling.repetition_penalty, |r| r as f32),
        seed: args.seed.unwrap_or(sampling.seed),
    }
}
