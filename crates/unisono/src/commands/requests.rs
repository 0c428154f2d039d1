//! Prompts of `generate`: from options, files and JSON lines.

use super::request_line::Line;
use super::writer::{Template, Writer};
use crate::cli::{GenerateArgs, SamplingArgs};
use crate::context::Context;
use crate::exit::Failure;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use unisono_data::text;
use unisono_train::generate::{Request, Sampling, StopTexts};

/// Lines that are told of when they are bad.
const MOST_PROBLEMS: usize = 20;

/// A prompt, ready to be gone on from.
pub struct Asked {
    /// Where it comes from, in words.
    pub whose: String,
    /// What it was, for the result: `prompt`, `prompt_ids` or `messages`.
    pub given: (&'static str, Value),
    /// Its text, where it is one.
    pub text: Option<String>,
    /// Tokens and settings.
    pub request: Request,
    /// Texts that end it.
    pub stops: StopTexts,
}

/// A request, or what is wrong with it, and where it comes from.
type Named = (String, Result<Line, String>);

/// All prompts that the options name, in order: texts, files, tokens, lines.
///
/// # Errors
/// Everything that is wrong with them, a line each.
pub fn read(args: &GenerateArgs, writer: &Writer, context: &Context) -> Result<Vec<Asked>, Failure> {
    let mut lines = Vec::new();
    for prompt in &args.prompts.prompt {
        lines.push(("--prompt".to_string(), Ok(Line::of_text(prompt.clone()))));
    }
    for file in &args.prompts.prompt_file {
        // An empty file is an empty prompt, of which what can be said is said where it is tried.
        let text = text::read_text_or_none(file)?.text;
        lines.push((file.display().to_string(), Ok(Line::of_text(text))));
    }
    if let Some(ids) = &args.prompts.prompt_ids {
        let line = Line {
            prompt_ids: Some(ids.clone()),
            ..Line::default()
        };
        lines.push(("--prompt-ids".into(), Ok(line)));
    }
    if let Some(file) = &args.prompts.input {
        lines.extend(of_json(file, context)?);
    }
    let (mut asked, mut problems) = (Vec::new(), Vec::new());
    for (whose, line) in lines {
        match line.and_then(|line| ready(&whose, line, args, writer)) {
            Ok(one) => asked.push(one),
            Err(problem) => problems.push(format!("{whose}: {problem}")),
        }
    }
    if problems.is_empty() {
        return Ok(asked);
    }
    let more = problems.len().saturating_sub(MOST_PROBLEMS);
    problems.truncate(MOST_PROBLEMS);
    if more > 0 {
        problems.push(format!("and {more} more like these"));
    }
    Err(Failure::input(problems.join("\n")))
}

/// The lines of a file, or of standard input for `-`, by name and number; blank ones are left out.
fn of_json(file: &Path, context: &Context) -> Result<Vec<Named>, Failure> {
    let (name, text) = match file.to_str() {
        Some("-") => {
            let mut bytes = Vec::new();
            // Of several processes the first has it.
            if context.ranks.as_ref().is_none_or(|ranks| ranks.rank() == 0) {
                let read = std::io::stdin().read_to_end(&mut bytes);
                read.map_err(|error| Failure::input(format!("standard input cannot be read: {error}")))?;
            }
            let mut text = text::text_of(bytes, "standard input")?.text;
            if let Some(ranks) = &context.ranks {
                text = ranks.of_first("the reading of standard input", &text)?;
            }
            ("standard input".to_string(), text)
        }
        _ => (file.display().to_string(), text::read_text_or_none(file)?.text),
    };
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let lines: Vec<_> = filled
        .map(|(index, line)| (format!("{name}:{}", index + 1), Line::parse(line)))
        .collect();
    match lines.is_empty() {
        true => Err(Failure::input(format!(
            "{name} has no lines, so there is nothing to go on from: write one {{\"prompt\": …}} a line"
        ))),
        false => Ok(lines),
    }
}

/// How tokens are chosen, where the line and then the options say so.
fn sampling(line: &Line, options: Sampling) -> Result<Sampling, String> {
    let sampling = Sampling {
        temperature: line.temperature.map_or(options.temperature, |t| t as f32),
        top_k: match line.top_k {
            // What is not above 0 means all tokens.
            Some(k) => usize::try_from(k).ok().filter(|k| *k > 0),
            None => options.top_k,
        },
        top_p: line.top_p.map_or(options.top_p, |p| p as f32),
        min_p: line.min_p.map_or(options.min_p, |p| p as f32),
        repetition_penalty: line.repetition_penalty.map_or(options.repetition_penalty, |r| r as f32),
        seed: line.seed.unwrap_or(options.seed),
    };
    sampling.check().map(|()| sampling)
}

/// A prompt as tokens, with its settings.
fn ready(whose: &str, line: Line, args: &GenerateArgs, writer: &Writer) -> Result<Asked, String> {
    let sampling = sampling(&line, chosen(writer.sampling, &args.sampling))?;
    let (given, text, prompt_ids) = match (line.prompt, line.prompt_ids, line.messages) {
        (Some(prompt), None, None) => {
            let tokenizer = writer.tokenizer().map_err(|failure| failure.message)?;
            let ids = tokenizer.encode_prompt(&prompt).map_err(|error| error.to_string())?;
            (("prompt", json!(prompt)), Some(prompt), ids)
        }
        (None, Some(ids), None) => (("prompt_ids", json!(ids)), None, ids),
        (None, None, Some(said)) => {
            let ids = writer.conversation(Template::Tokenizer, &said)?;
            (("messages", json!(said)), None, ids)
        }
        _ => return Err("a request has one of \"prompt\", \"prompt_ids\" and \"messages\"".into()),
    };
    writer.check_prompt(&prompt_ids)?;
    let stops = line.stop.unwrap_or_else(|| args.sampling.stop.clone());
    if !stops.is_empty() {
        // Text can be watched only where there is any.
        writer.tokenizer().map_err(|failure| failure.message)?;
    }
    let asked = line.max_new_tokens.or(args.sampling.max_new_tokens);
    Ok(Asked {
        whose: whose.into(),
        given,
        text,
        request: Request {
            max_new_tokens: writer.new_tokens(asked, prompt_ids.len()),
            prompt_ids,
            sampling,
            stop_ids: writer.eos_ids.clone(),
            logprobs: line.logprobs.or(args.logprobs),
        },
        stops: StopTexts::new(stops)?,
    })
}

/// A model's usual way to choose tokens, changed by options.
pub fn chosen(sampling: Sampling, options: &SamplingArgs) -> Sampling {
    Sampling {
        temperature: options.temperature.map_or(sampling.temperature, |t| t as f32),
        top_k: match options.top_k {
            Some(0) => None,
            Some(k) => Some(k),
            None => sampling.top_k,
        },
        top_p: options.top_p.map_or(sampling.top_p, |p| p as f32),
        min_p: options.min_p.map_or(sampling.min_p, |p| p as f32),
        repetition_penalty: options
            .repetition_penalty
            .map_or(sampling.repetition_penalty, |r| r as f32),
        seed: options.seed.unwrap_or(sampling.seed),
    }
}
