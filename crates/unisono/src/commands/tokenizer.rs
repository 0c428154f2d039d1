//! `unisono tokenizer`: trains tokenizers, and turns text into ids and back.

use super::DONE;
use crate::cli::{TokenizerCommand, TokenizerDecodeArgs, TokenizerEncodeArgs, TokenizerTrainArgs};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::numbers::grouped;
use serde_json::json;
use std::fs;
use std::io::Read;
use std::path::Path;
use unisono_data::tokenizer::{BpeOptions, train_bpe};
use unisono_data::{DataError, Examples, Template, Tokenizer, text};

/// Bytes of the training text that bytes a token are counted on: enough for three digits.
const MEASURED: usize = 1 << 20;

/// See the module.
///
/// # Errors
/// Files that cannot be read or written, no tokenizer, ids that it does not have.
pub fn run(command: &TokenizerCommand, context: &Context) -> Result<u8, Failure> {
    match command {
        TokenizerCommand::Train(args) => train(args, context),
        TokenizerCommand::Encode(args) => encode(args, context),
        TokenizerCommand::Decode(args) => decode(args, context),
    }
}

fn train(args: &TokenizerTrainArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let file = args.out.join("tokenizer.json");
    if file.exists() {
        return Err(Failure::input(format!(
            "{} exists already and is left as it is; name another directory with --out",
            file.display()
        )));
    }
    let mut texts = Vec::new();
    for path in &args.data {
        texts.extend(read(path)?);
    }
    let options = BpeOptions {
        vocab_size: args.vocab_size,
        bos: args.bos,
        special_tokens: args.special.clone(),
    };
    let tokenizer = Tokenizer::Hf(train_bpe(&texts, &options)?);
    let is_new = !args.out.exists();
    fs::create_dir_all(&args.out)
        .map_err(|error| Failure::running(format!("{} cannot be made: {error}", args.out.display())))?;
    if let Err(error) = tokenizer.save(&file) {
        if is_new {
            // It was made for nothing; the error that led here is the one to tell.
            let _ = fs::remove_file(args.out.join("tokenizer_config.json"));
            let _ = fs::remove_dir(&args.out);
        }
        return Err(error.into());
    }
    let (mut bytes, mut tokens) = (0, 0);
    for text in &texts {
        if bytes < MEASURED {
            bytes += text.len();
            tokens += tokenizer.encode(text)?.len();
        }
    }
    let per_token = bytes as f64 / tokens.max(1) as f64;
    if tokenizer.vocab_size() < args.vocab_size {
        out.note(format!(
            "the text has no more pairs that occur twice: the vocabulary is {} in place of {}",
            grouped(tokenizer.vocab_size() as u64),
            grouped(args.vocab_size as u64)
        ));
    }
    out.say(format!(
        "wrote {}: {} tokens, {per_token:.2} bytes of the text a token",
        args.out.display(),
        grouped(tokenizer.vocab_size() as u64)
    ));
    out.json(&json!({
        "directory": args.out.display().to_string(),
        "vocab_size": tokenizer.vocab_size(),
        "bytes_per_token": per_token,
    }));
    DONE
}

/// A file's text, the texts of its examples, or the built-in corpus.
fn read(path: &Path) -> Result<Vec<String>, Failure> {
    if path == Path::new("built-in") {
        return Ok(vec![unisono_data::corpus::stories()]);
    }
    if path.extension().is_none_or(|extension| extension != "jsonl") {
        let text = text::read_text_or_none(path)?.text;
        return match text.is_empty() {
            false => Ok(vec![text]),
            true => Err(Failure::input(format!(
                "{} is empty: there is no text in it to learn tokens from",
                path.display()
            ))),
        };
    }
    // Without a tokenizer an example's tokens are the bytes of its text.
    let (examples, report) = Examples::check(path, None, &Template::Auto, usize::MAX)?;
    if let Some(problem) = report.obstacle() {
        return Err(Failure::input(format!("{} {problem}", path.display())));
    }
    let text = |ids: &[u32]| Tokenizer::Byte.decode(ids);
    let texts: Result<Vec<String>, DataError> = examples.iter().map(|example| text(example.ids)).collect();
    Ok(texts?)
}

fn encode(args: &TokenizerEncodeArgs, context: &Context) -> Result<u8, Failure> {
    let tokenizer = Tokenizer::load(&args.tokenizer)?;
    let text = match &args.text {
        Some(text) => text.clone(),
        None => standard_input()?,
    };
    let ids = match args.prompt {
        true => tokenizer.encode_prompt(&text)?,
        false => tokenizer.encode(&text)?,
    };
    let shown: Vec<String> = ids.iter().map(u32::to_string).collect();
    context.out.result(shown.join(","));
    let tokens: Vec<Option<String>> = ids.iter().map(|id| tokenizer.token_of(*id)).collect();
    context.out.json(&json!({"ids": ids, "tokens": tokens}));
    DONE
}

fn decode(args: &TokenizerDecodeArgs, context: &Context) -> Result<u8, Failure> {
    let tokenizer = Tokenizer::load(&args.tokenizer)?;
    let ids = match &args.ids {
        Some(ids) => ids.clone(),
        None => parse_ids(&standard_input()?)?,
    };
    let text = match args.skip_special {
        true => tokenizer.decode_text(&ids)?,
        false => tokenizer.decode(&ids)?,
    };
    context.out.result(&text);
    context.out.json(&json!({"text": text}));
    DONE
}

/// Ids between blanks or commas.
fn parse_ids(text: &str) -> Result<Vec<u32>, Failure> {
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    words
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse()
                .map_err(|_| Failure::input(format!("{word:?} is no token id; ids go from 0 to 4294967295")))
        })
        .collect()
}

fn standard_input() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::input(format!("standard input cannot be read as UTF-8 text: {error}")))?;
    Ok(text)
}
