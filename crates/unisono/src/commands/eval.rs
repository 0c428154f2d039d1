//! `unisono eval`: how well a model predicts held-out data.

use super::trained::{HubModel, Trained};
use super::{DONE, given};
use crate::cli::EvalArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::numbers::grouped;
use serde_json::json;
use std::path::Path;
use unisono_data::{Examples, Template, Tokenizer, Tokens, text, token_file};
use unisono_tensor::MeshDevice;
use unisono_train::dataset::{Dataset, Validation};
use unisono_train::evaluate::{Evaluation, evaluate};
use unisono_train::model::LiveModel;

/// Tokens of a window, where the model has positions for more.
const DEFAULT_WINDOW: usize = 1024;
/// Sequences at once.
const DEFAULT_SEQUENCES: usize = 8;

/// See the module.
///
/// # Errors
/// A name that is no run and no model, or data that cannot be read.
pub fn run(args: &EvalArgs, context: &Context) -> Result<u8, Failure> {
    given::model(&args.model)?;
    check_options(args)?;
    match &args.model.run {
        Some(run) => of_run(run, args, context),
        None => of_files(args, context),
    }
}

/// Refuses options that would count for nothing.
fn check_options(args: &EvalArgs) -> Result<(), Failure> {
    let changes = &args.model.changes;
    if args.batch.is_some() {
        given::once(changes, "--batch", "training_config.validation_batch_size")?;
    }
    if args.template.is_some() {
        given::once(changes, "--template", "training_config.template")?;
    }
    let text = args.data.as_ref().filter(|file| !is_examples(file));
    if let (Some(_), Some(text)) = (&args.template, text) {
        return Err(Failure::input(format!(
            "--template is for examples (.jsonl), and {} is text, which is measured as it is: leave --template out",
            text.display()
        )));
    }
    match (args.context, &args.model.run, &args.data) {
        (Some(_), Some(_), _) => Err(Failure::input(
            "--context is for --model, and a run is measured in windows of its own transformer_config.max_sequence_length: leave \
             --context out",
        )),
        (Some(_), _, Some(file)) if is_examples(file) => Err(Failure::input(format!(
            "--context is for text that is cut into windows, and {} holds examples, each of which is measured as a whole: leave \
             --context out",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// What is measured, and how its result is told.
struct Measured<'a> {
    device: &'a MeshDevice,
    model: &'a LiveModel,
    validation: Validation<'a>,
    sequences: usize,
    /// Tokens that a character takes, where that is known.
    per_character: Option<f64>,
    /// Examples, where the loss is on their answers only.
    examples: Option<usize>,
    /// What the model is: `checkpoint` or `model`, and where it lies.
    source: (&'static str, &'a Path),
}

/// A run, on its validation part or on a file.
fn of_run(run: &Path, args: &EvalArgs, context: &Context) -> Result<u8, Failure> {
    let trained = Trained::load(run, &args.model.changes, context)?;
    let training = &trained.config.training;
    let sequences = whole_batch(args.batch.unwrap_or(training.validation_batch_size), &trained.device);
    let data = match &args.data {
        Some(file) if is_examples(file) => {
            let template = args.template.as_deref().or(training.template.as_deref());
            examples_of(file, template, &trained.model, trained.tokenizer()?, sequences)?
        }
        Some(file) => {
            let tokens = read_tokens(file, &trained)?;
            let positions = trained.spec.targets_per_sequence();
            Data {
                per_character: tokens_per_character(&tokens, trained.tokenizer.as_ref()),
                validation: Validation::of_tokens(tokens, positions, sequences)?,
                examples: None,
            }
        }
        None => {
            let dataset = Dataset::load(&trained.config)?;
            check_data(&dataset, &trained, context)?;
            let (per_character, examples) = match &dataset {
                Dataset::Text(data) => (tokens_per_character(&data.validation, trained.tokenizer.as_ref()), None),
                Dataset::Examples(data) => (None, Some(data.validation.len())),
                Dataset::Regression(_) => (None, None),
            };
            let Some(validation) = dataset.validation(sequences, None)? else {
                return Err(Failure::input(
                    "this run keeps nothing for validation (validation_fraction is 0): name a file with --data",
                ));
            };
            if let Some(what) = validation.without_targets() {
                return Err(Failure::input(format!("{what}; name a file with --data")));
            }
            let measured = Measured {
                device: &trained.device,
                model: &trained.model,
                validation,
                sequences,
                per_character,
                examples,
                source: ("checkpoint", &trained.checkpoint),
            };
            return measured.tell(context);
        }
    };
    let measured = Measured {
        device: &trained.device,
        model: &trained.model,
        validation: data.validation,
        sequences,
        per_character: data.per_character,
        examples: data.examples,
        source: ("checkpoint", &trained.checkpoint),
    };
    measured.tell(context)
}

/// A model in Hugging Face's files, on a file.
fn of_files(args: &EvalArgs, context: &Context) -> Result<u8, Failure> {
    let Some(file) = &args.data else {
        return Err(Failure::input(
            "what to measure the model on is not said: name a text or examples (.jsonl) with --data",
        ));
    };
    let name = args.model.model.as_deref().unwrap_or_default();
    let model = HubModel::load(name, &args.model, context)?;
    let tokenizer = model.tokenizer.as_ref().map_err(Failure::input)?;
    let sequences = whole_batch(args.batch.unwrap_or(DEFAULT_SEQUENCES), &model.device);
    let data = match is_examples(file) {
        true => examples_of(file, args.template.as_deref(), &model.model, tokenizer, sequences)?,
        false => {
            let place = file.display().to_string();
            let text = text::read_text(file)?.text;
            let ids = tokenizer
                .encode_prompt(&text)
                .map_err(|error| Failure::input(format!("{place}: {error}")))?;
            let tokens = Tokens::from_vec(ids, tokenizer.vocab_size(), &place)?;
            check_vocabulary(&tokens, &model.model, &place)?;
            let characters = text.chars().count();
            Data {
                per_character: (characters > 0).then(|| tokens.len() as f64 / characters as f64),
                validation: Validation::of_tokens(tokens, window(args, model.spec.targets_per_sequence())?, sequences)?,
                examples: None,
            }
        }
    };
    let measured = Measured {
        device: &model.device,
        model: &model.model,
        validation: data.validation,
        sequences,
        per_character: data.per_character,
        examples: data.examples,
        source: ("model", &model.directory),
    };
    measured.tell(context)
}

/// The data of a file.
struct Data {
    validation: Validation<'static>,
    per_character: Option<f64>,
    examples: Option<usize>,
}

impl Measured<'_> {
    /// Measures, and prints the result.
    fn tell(&self, context: &Context) -> Result<u8, Failure> {
        let result: Evaluation = evaluate(self.device, self.model.as_model(), &self.validation, self.sequences)?;
        let (out, (kind, source)) = (&context.out, self.source);
        let is_text = self.model.as_language_model().is_some();
        let bits_per_character = self.per_character.map(|tokens| result.bits() * tokens);
        out.result(format!("loss                {:.6}", result.loss));
        if is_text {
            out.result(format!("perplexity          {:.4}", result.perplexity()));
            out.result(format!("bits per token      {:.4}", result.bits()));
        }
        if let Some(bits) = bits_per_character {
            out.result(format!("bits per character  {bits:.4}"));
        }
        out.result(format!("targets             {}", grouped(result.targets as u64)));
        if let Some(examples) = self.examples {
            out.result(format!("examples            {}", grouped(examples as u64)));
        }
        out.say(format!("{kind:<20}{}", source.display()));
        let mut object = json!({
            "loss": result.loss,
            "perplexity": is_text.then(|| result.perplexity()),
            "bits_per_token": is_text.then(|| result.bits()),
            "bits_per_character": bits_per_character,
            "targets": result.targets,
            "examples": self.examples,
        });
        object[kind] = json!(source.display().to_string());
        out.json(&object);
        DONE
    }
}

/// Tokens of a window of text.
fn window(args: &EvalArgs, positions: usize) -> Result<usize, Failure> {
    match args.context {
        Some(0) => Err(Failure::input("--context is 0; a window has at least one token")),
        Some(window) if window > positions => Err(Failure::input(format!(
            "--context is {window}, and this model has positions for {positions} tokens"
        ))),
        Some(window) => Ok(window),
        None => Ok(positions.min(DEFAULT_WINDOW)),
    }
}

/// Sequences at once: as many as asked for, rounded up to as many on each data-parallel device.
fn whole_batch(sequences: usize, device: &MeshDevice) -> usize {
    sequences.next_multiple_of(device.mesh().axis_size("dp"))
}

/// Whether a file holds examples, by its name.
fn is_examples(file: &Path) -> bool {
    let extension = file.extension().map(|extension| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| extension == "jsonl" || extension == "ndjson")
}

/// Examples of a file; what is longer than the model's positions is cut.
fn examples_of(
    file: &Path,
    template: Option<&str>,
    model: &LiveModel,
    tokenizer: &Tokenizer,
    sequences: usize,
) -> Result<Data, Failure> {
    let Some(model) = model.as_language_model() else {
        return Err(Failure::input("examples are for language models, and this is none"));
    };
    let template = template.map_or(Ok(Template::default()), Template::parse)?;
    // A row has one token less than its example: the last is only ever a target.
    let longest = model.max_sequence_length().saturating_add(1);
    let (examples, _) = Examples::load(file, tokenizer, &template, longest)?;
    let (last, known) = (tokenizer.vocab_size(), model.vocab_size());
    let beyond = examples
        .iter()
        .find(|example| example.ids.iter().any(|id| *id as usize >= known));
    if let Some(example) = beyond {
        return Err(Failure::input(format!(
            "{}:{}: it has a token id outside the model's vocabulary of {known}; the tokenizer has {last}",
            file.display(),
            example.line
        )));
    }
    Ok(Data {
        per_character: None,
        examples: Some(examples.len()),
        validation: Validation::of_examples(examples, sequences)?,
    })
}

/// Whether a run's data is still what it was trained on.
fn check_data(dataset: &Dataset, trained: &Trained, context: &Context) -> Result<(), Failure> {
    if dataset.digest() == trained.manifest.data_digest {
        return Ok(());
    }
    let vocabulary = |tokenizer: Option<&Tokenizer>| tokenizer.map(Tokenizer::to_json);
    if vocabulary(dataset.tokenizer()) != vocabulary(trained.tokenizer.as_ref()) {
        return Err(Failure::input(format!(
            "the data has changed since the run was trained and has another vocabulary than the run ({}): name a file \
             whose text the run's own vocabulary can encode with --data",
            dataset.describe()
        )));
    }
    context
        .out
        .warn("the data is not what the run was trained on: its hash is another");
    Ok(())
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
    check_vocabulary(&tokens, &trained.model, &place)?;
    Ok(tokens)
}

/// Fails where a token is none of the model's.
fn check_vocabulary(tokens: &Tokens, model: &LiveModel, place: &str) -> Result<(), Failure> {
    let size = model.as_language_model().map_or(usize::MAX, |model| model.vocab_size());
    match tokens.iter().position(|id| id as usize >= size) {
        None => Ok(()),
        Some(at) => Err(Failure::input(format!(
            "{place}: token id {} at position {at} is outside the model's vocabulary of {size}",
            tokens.get(at).unwrap_or_default()
        ))),
    }
}

/// How many tokens a character takes, where that is known.
fn tokens_per_character(tokens: &Tokens, tokenizer: Option<&Tokenizer>) -> Option<f64> {
    let tokenizer = tokenizer?;
    let characters = match tokenizer {
        Tokenizer::Char(_) => return Some(1.0),
        // All bytes of a character but its first are 10xxxxxx.
        Tokenizer::Byte => tokens.iter().filter(|byte| byte & 0xC0 != 0x80).count(),
        Tokenizer::Hf(_) => {
            let ids: Vec<u32> = tokens.iter().collect();
            tokenizer.decode_text(&ids).ok()?.chars().count()
        }
    };
    (characters > 0).then(|| tokens.len() as f64 / characters as f64)
}
