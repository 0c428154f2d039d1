//! `unisono diff`: whether two runs are equal bit by bit, else where they part.

use super::trained::Trained;
use crate::cli::{Changes, DiffArgs};
use crate::context::Context;
use crate::exit::{self, Failure};
use std::ops::ControlFlow;
use std::path::Path;
use unisono_data::text;
use unisono_train::diff::{Answers, compare};
use unisono_train::generate::{Sampling, TextRequest, generate_text};

/// Most tokens of an answer.
const ANSWER: usize = 100;

/// See the module.
///
/// # Errors
/// A folder that holds no run, a damaged checkpoint, prompts that cannot be read.
pub fn run(args: &DiffArgs, context: &Context) -> Result<u8, Failure> {
    let mut report = compare(&args.a, &args.b)?;
    if let Some(file) = &args.prompts {
        let prompts: Vec<String> = text::read_text_or_none(file)?
            .text
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_string)
            .collect();
        if prompts.is_empty() {
            return Err(Failure::input(format!(
                "{} has no lines, so there is nothing to go on from: write a prompt a line",
                file.display()
            )));
        }
        let (a, b) = (
            answers(&args.a, &prompts, context)?,
            answers(&args.b, &prompts, context)?,
        );
        report.answers = prompts
            .into_iter()
            .zip(a.into_iter().zip(b))
            .map(|(prompt, (a, b))| Answers { prompt, a, b })
            .collect();
    }
    context.out.result(report.to_string().trim_end());
    context.out.json(&report);
    Ok(match report.identical() {
        true => exit::OK,
        false => exit::DIFFERS,
    })
}

/// The likeliest continuation of each prompt, as far as the model has positions.
fn answers(run: &Path, prompts: &[String], context: &Context) -> Result<Vec<String>, Failure> {
    let trained = Trained::load(run, &Changes::default(), context)?;
    let tokenizer = trained.tokenizer()?;
    let requests: Vec<TextRequest> = prompts
        .iter()
        .map(|prompt| TextRequest {
            prompt: prompt.clone(),
            max_new_tokens: ANSWER,
            sampling: Sampling::greedy(),
        })
        .collect();
    let outputs = generate_text(trained.language_model()?, tokenizer, &requests, &mut |_, _| {
        ControlFlow::Continue(())
    })?;
    Ok(outputs.into_iter().map(|output| output.text).collect())
}
