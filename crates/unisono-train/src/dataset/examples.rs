//! Prompts with answers, for fine-tuning.

use super::grouped;
use super::text::named_tokenizer;
use crate::config::{RunConfig, TokenizerType};
use crate::error::{Result, TrainError};
use std::path::Path;
use std::sync::Arc;
use unisono_data::examples::Report;
use unisono_data::{Batch, ExampleBatches, Examples, IGNORE, Template, Tokenizer};

/// Widths of batches are multiples of this.
const WIDTH: usize = 32;

/// Prompts with answers.
pub struct ExampleData {
    /// How text becomes tokens.
    pub tokenizer: Tokenizer,
    /// How a prompt and its answer become a text.
    pub template: Template,
    /// Where they came from.
    pub source: String,
    /// Training part.
    pub train: Arc<Examples>,
    /// Validation part; may be empty.
    pub validation: Arc<Examples>,
    /// Tokens of the widest batch.
    pub width: usize,
    /// What the user should know: examples that were cut or have no answer left, in sentences.
    pub notes: Vec<String>,
    /// Hash of tokens and masks.
    pub digest: String,
    answers: u64,
}

impl ExampleData {
    /// Loads the examples of `path` and, where one is named, of the file to validate on.
    pub(super) fn load(config: &RunConfig, path: &Path, max_sequence_length: usize) -> Result<ExampleData> {
        let training = &config.training;
        let tokenizer = match training.tokenizer_type {
            TokenizerType::Bpe => named_tokenizer(config)?,
            TokenizerType::Byte => Tokenizer::Byte,
            TokenizerType::Char | TokenizerType::Pretokenised => {
                return Err(TrainError::Refused(format!(
                    "{}: examples are tokenised by tokenizer_type: bpe (with a tokenizer_path or model_path) or byte, since a \
                     vocabulary of characters is made from one text and would not hold those of another",
                    path.display()
                )));
            }
        };
        let template = match &training.template {
            Some(text) => Template::parse(text)?,
            None => Template::default(),
        };
        // A row has one token less than its example: the last is only ever a target.
        let longest = max_sequence_length.saturating_add(1);
        let (all, report) = Examples::load(path, &tokenizer, &template, longest)?;
        let mut notes = notes(path, &report, max_sequence_length);
        let (train, validation) = match &training.validation_data_path {
            Some(file) => {
                let (validation, report) = Examples::load(file, &tokenizer, &template, longest)?;
                notes.extend(self::notes(file, &report, max_sequence_length));
                (all, validation)
            }
            None => {
                let kept = (all.len() as f64 * training.validation_fraction) as usize;
                all.split(kept)
            }
        };
        if train.is_empty() || train.iter().all(|example| example.num_targets() == 0) {
            return Err(TrainError::Refused(format!(
                "{}: after {} examples for validation (validation_fraction {}) none with an answer is left to train on",
                path.display(),
                validation.len(),
                training.validation_fraction
            )));
        }
        let widest = train.longest().max(validation.longest()).saturating_sub(1).max(1);
        let digest = unisono_data::files::hash_bytes(format!("{} {}", train.digest(), validation.digest()).as_bytes());
        Ok(ExampleData {
            answers: train.iter().map(|example| example.num_targets() as u64).sum(),
            source: path.display().to_string(),
            width: widest.next_multiple_of(WIDTH).min(max_sequence_length),
            train: Arc::new(train),
            validation: Arc::new(validation),
            tokenizer,
            template,
            notes,
            digest,
        })
    }

    /// Words for the header.
    pub(super) fn describe(&self) -> String {
        format!(
            "{}: {} examples to train on and {} to validate on, {} tokens of answers, at most {} tokens an example, vocabulary {} \
             tokens",
            self.source,
            grouped(self.train.len() as u64),
            grouped(self.validation.len() as u64),
            grouped(self.answers),
            grouped(self.train.longest().max(self.validation.longest()) as u64),
            grouped(self.tokenizer.vocab_size() as u64),
        )
    }

    /// Batches of the training part, in the order of the seed.
    pub(super) fn training(&self, seed: u64) -> Result<ExampleBatches> {
        Ok(ExampleBatches::new(self.train.clone(), self.width, seed, true)?)
    }

    /// Batches of the validation part.
    pub(super) fn validation(&self) -> Result<ExampleBatches> {
        Ok(ExampleBatches::new(self.validation.clone(), self.width, 0, false)?)
    }
}

/// Cuts off the columns behind the last target of any row. The width belongs to the whole optimizer step, so it is the same
/// however the step is cut into micro-steps and over devices.
pub(super) fn narrow(batch: &mut Batch) {
    let old = batch.seq_len;
    let used = |row: &[u32]| row.iter().rposition(|target| *target != IGNORE).map_or(0, |at| at + 1);
    let widest = batch.targets.chunks_exact(old).map(used).max().unwrap_or(0).max(1);
    let new = widest.next_multiple_of(WIDTH).min(old);
    if new == old {
        return;
    }
    for values in [&mut batch.inputs, &mut batch.targets] {
        for row in 0..batch.num_sequences {
            values.copy_within(row * old..row * old + new, row * new);
        }
        values.truncate(batch.num_sequences * new);
    }
    batch.seq_len = new;
}

/// Sentences on what of a file cannot be learnt as it stands.
fn notes(path: &Path, report: &Report, max_sequence_length: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let file = path.display();
    let lines = |lines: &[usize]| {
        const SHOWN: usize = 10;
        let shown: Vec<String> = lines.iter().take(SHOWN).map(usize::to_string).collect();
        let more = if lines.len() > SHOWN { ", …" } else { "" };
        let word = if lines.len() == 1 { "line" } else { "lines" };
        format!("{word} {}{more}", shown.join(", "))
    };
    let of = report.examples;
    if !report.truncated.is_empty() {
        notes.push(format!(
            "{file}: {} of {of} examples are longer than max_sequence_length {max_sequence_length} and were cut at their end ({})",
            report.truncated.len(),
            lines(&report.truncated)
        ));
    }
    if !report.all_masked.is_empty() {
        notes.push(format!(
            "{file}: {} of {of} examples have no token of an answer left and teach nothing ({})",
            report.all_masked.len(),
            lines(&report.all_masked)
        ));
    }
    if !report.empty_answers.is_empty() {
        notes.push(format!(
            "{file}: {} of {of} examples have an empty answer ({})",
            report.empty_answers.len(),
            lines(&report.empty_answers)
        ));
    }
    if report.forms.len() > 1 {
        let forms: Vec<String> = report
            .forms
            .iter()
            .map(|(form, count)| format!("{count} {}", form.name()))
            .collect();
        notes.push(format!("{file}: its lines are of several forms: {}", forms.join(", ")));
    }
    notes
}
