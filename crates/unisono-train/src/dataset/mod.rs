//! The data of a run: what its configuration names, ready to be read step by step.

mod examples;
mod regression;
mod text;

pub use examples::ExampleData;
pub use regression::RegressionData;
pub use text::{TextData, named_tokenizer};

use crate::config::{RunConfig, TrainingConfig};
use crate::error::Result;
use std::ops::Range;
use std::sync::Arc;
use unisono_data::{
    Batch, DataError, ExampleBatches, Examples, Prefetcher, Sampler, Tokenizer, Tokens, TrainBatches, Trigram,
    ValidationBatches, files,
};

/// Values of a batch, a row of `width` for each sequence (sample).
#[derive(Clone, Debug, PartialEq)]
pub enum Rows {
    /// Token ids.
    Tokens(Vec<u32>),
    /// Numbers.
    Numbers(Vec<f32>),
    /// Token ids of which only the shape is known: for the null backend.
    SomeTokens,
    /// Numbers of which only the shape is known: for the null backend.
    SomeNumbers,
}

/// The batch of one optimizer step, or of one validation batch: sequences in global order.
#[derive(Clone, Debug, PartialEq)]
pub struct StepData {
    /// Inputs.
    pub inputs: Rows,
    /// Values of one sequence's input.
    pub input_width: usize,
    /// Targets; [`unisono_data::IGNORE`] masks one.
    pub targets: Rows,
    /// Values of one sequence's target.
    pub target_width: usize,
    /// Unmasked targets.
    pub num_targets: usize,
}

/// A data set, split.
pub enum Dataset {
    /// Text or tokens.
    Text(TextData),
    /// Prompts with answers.
    Examples(ExampleData),
    /// Rows of numbers with a linear law and noise.
    Regression(RegressionData),
}

impl Dataset {
    /// Loads what `config` names.
    ///
    /// # Errors
    /// A file that cannot be read or does not hold enough.
    pub fn load(config: &RunConfig) -> Result<Dataset> {
        if let Some((vocab_size, max_sequence_length)) = config.model.language() {
            return match config.training.data_path.examples() {
                Some(path) => ExampleData::load(config, path, max_sequence_length).map(Dataset::Examples),
                None => TextData::load(config, vocab_size, max_sequence_length).map(Dataset::Text),
            };
        }
        Ok(Dataset::Regression(RegressionData::load(config)?))
    }

    /// Tokens of the widest batch, where that is not the model's longest sequence.
    pub fn width(&self) -> Option<usize> {
        match self {
            Dataset::Examples(data) => Some(data.width),
            Dataset::Text(_) | Dataset::Regression(_) => None,
        }
    }

    /// What the user should know of the data, in sentences.
    pub fn notes(&self) -> &[String] {
        match self {
            Dataset::Examples(data) => &data.notes,
            Dataset::Text(_) | Dataset::Regression(_) => &[],
        }
    }

    /// Different samples (windows of stride 1) of the training part.
    pub fn num_samples(&self) -> u64 {
        match self {
            Dataset::Text(data) => data.windows.num_samples(),
            Dataset::Examples(data) => data.train.len() as u64,
            Dataset::Regression(data) => data.train,
        }
    }

    /// The tokenizer's vocabulary, where there are tokens.
    pub fn vocab_size(&self) -> Option<usize> {
        match self {
            Dataset::Text(data) => Some(data.vocab_size),
            Dataset::Examples(data) => Some(data.tokenizer.vocab_size()),
            Dataset::Regression(_) => None,
        }
    }

    /// How text becomes tokens, where that is known.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        match self {
            Dataset::Text(data) => data.tokenizer.as_ref(),
            Dataset::Examples(data) => Some(&data.tokenizer),
            Dataset::Regression(_) => None,
        }
    }

    /// Words for the header.
    pub fn describe(&self) -> String {
        match self {
            Dataset::Text(data) => format!(
                "{}: {} tokens, {} to train on and {} to validate on, vocabulary {}{}",
                data.source,
                grouped((data.train.len() + data.validation.len()) as u64),
                grouped(data.train.len() as u64),
                grouped(data.validation.len() as u64),
                grouped(data.vocab_size as u64),
                match &data.tokenizer {
                    Some(Tokenizer::Char(_)) => " characters",
                    Some(Tokenizer::Byte) => " bytes",
                    Some(Tokenizer::Hf(_)) => " tokens",
                    None => "",
                }
            ),
            Dataset::Examples(data) => data.describe(),
            Dataset::Regression(data) => format!(
                "random rows, {} to train on and {} to validate on, {} → {}",
                data.train, data.validation, data.inputs, data.outputs
            ),
        }
    }

    /// A hash of the data, to tell whether two runs saw the same.
    pub fn digest(&self) -> String {
        match self {
            Dataset::Text(data) => data.digest.clone(),
            Dataset::Examples(data) => data.digest.clone(),
            Dataset::Regression(data) => files::hash_bytes(
                format!(
                    "{} {} {} {} {}",
                    data.inputs, data.outputs, data.noise, data.seed, data.train
                )
                .as_bytes(),
            ),
        }
    }

    /// Cross-entropy of the trigram model on the validation part, nats a token; `None` where there is none.
    ///
    /// # Errors
    /// What the trigram model says.
    pub fn trigram_loss(&self) -> Result<Option<f64>> {
        match self {
            Dataset::Text(data) if data.tokenizer.is_some() && !data.validation.is_empty() => {
                let model = Trigram::fit(data.train.iter(), data.vocab_size)?;
                Ok(model.nats_per_token(data.validation.iter())?)
            }
            _ => Ok(None),
        }
    }

    /// The batches of optimizer steps of `sequences` sequences, from sample number `first_sample` on. Samples from
    /// `last_sample` on are absent: masked.
    ///
    /// # Errors
    /// No thread to prepare them on.
    pub fn steps(&self, seed: u64, sequences: usize, first_sample: u64, last_sample: u64) -> Result<Steps> {
        match self {
            Dataset::Text(data) => {
                let batches = TrainBatches::new(data.windows.clone(), seed, true)?;
                let fill = move |first, batch: &mut Batch| batches.fill(first, sequences, batch);
                Steps::prefetched(sequences, first_sample..last_sample, fill, |_| ())
            }
            Dataset::Examples(data) => {
                let batches = data.training(seed)?;
                let fill = move |first, batch: &mut Batch| batches.fill(first, sequences, batch);
                Steps::prefetched(sequences, first_sample..last_sample, fill, examples::narrow)
            }
            Dataset::Regression(data) => Ok(Steps::Regression {
                data: data.clone_law(),
                sampler: Sampler::new(data.train, seed, true)?,
                sequences,
                next: first_sample,
            }),
        }
    }

    /// The validation batches of a run: as [`validation`](Self::validation), up to the sequences of its `eval_batches`.
    ///
    /// # Errors
    /// As [`validation`](Self::validation).
    pub fn evaluated(&self, training: &TrainingConfig, sequences: usize) -> Result<Option<Validation<'_>>> {
        let limit = training
            .eval_batches
            .map(|batches| batches.saturating_mul(training.validation_batch_size));
        self.validation(sequences, limit)
    }

    /// Validation batches of `sequences` sequences, in order, up to `limit` sequences in all; the last batch is filled up
    /// with masked rows. Which sequences are evaluated does not depend on the size of the batches.
    ///
    /// # Errors
    /// A validation part that cannot be cut into windows.
    pub fn validation(&self, sequences: usize, limit: Option<usize>) -> Result<Option<Validation<'_>>> {
        let limit = limit.unwrap_or(usize::MAX);
        match self {
            Dataset::Text(data) => {
                if data.validation.len() < 2 {
                    return Ok(None);
                }
                let batches = ValidationBatches::new(data.validation.clone(), data.windows.seq_len())?;
                let count = batches.num_sequences().min(limit);
                Ok(Some(Validation {
                    source: ValidationSource::Text(batches),
                    sequences,
                    count,
                }))
            }
            Dataset::Examples(data) if data.validation.is_empty() => Ok(None),
            Dataset::Examples(data) => Ok(Some(Validation {
                count: data.validation.len().min(limit),
                source: ValidationSource::Examples(data.validation()?),
                sequences,
            })),
            Dataset::Regression(data) if data.validation == 0 => Ok(None),
            Dataset::Regression(data) => Ok(Some(Validation {
                count: (data.validation as usize).min(limit),
                source: ValidationSource::Regression(data),
                sequences,
            })),
        }
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Batches of optimizer steps, one after the other.
pub enum Steps {
    /// Prepared by a thread.
    Tokens {
        /// The thread.
        prefetcher: Prefetcher,
    },
    /// Drawn on the spot.
    Regression {
        /// The law.
        data: RegressionData,
        /// Order of samples.
        sampler: Sampler,
        /// Samples of a step.
        sequences: usize,
        /// Samples drawn so far.
        next: u64,
    },
}

impl Steps {
    /// Batches of `sequences` sequences that a thread prepares: `fill` writes those from a sample on, the ones beyond `samples`
    /// are masked, and `finish` has the last word.
    fn prefetched(
        sequences: usize,
        samples: Range<u64>,
        mut fill: impl FnMut(u64, &mut Batch) -> std::result::Result<(), DataError> + Send + 'static,
        finish: fn(&mut Batch),
    ) -> Result<Steps> {
        let prefetcher = Prefetcher::new(move |step, batch: &mut Batch| {
            let first = samples.start + step * sequences as u64;
            fill(first, batch)?;
            batch.mask_from(samples.end.saturating_sub(first).min(sequences as u64) as usize);
            finish(batch);
            Ok(())
        })?;
        Ok(Steps::Tokens { prefetcher })
    }

    /// The next step's batch.
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn next_step(&mut self) -> Result<StepData> {
        match self {
            Steps::Tokens { prefetcher } => {
                let batch = prefetcher.next_batch()?;
                Ok(tokens_step(&batch))
            }
            Steps::Regression {
                data,
                sampler,
                sequences,
                next,
            } => {
                let samples = (0..*sequences as u64)
                    .map(|i| sampler.sample(*next + i).1)
                    .collect::<Vec<_>>();
                *next += *sequences as u64;
                Ok(data.rows(&samples, samples.len()))
            }
        }
    }
}

/// The batch that `fill` writes, its rows from `real` on masked.
fn masked(real: usize, fill: impl FnOnce(&mut Batch) -> std::result::Result<(), DataError>) -> Result<StepData> {
    let mut batch = Batch::default();
    fill(&mut batch)?;
    batch.mask_from(real);
    Ok(tokens_step(&batch))
}

/// A batch of token ids.
fn tokens_step(batch: &Batch) -> StepData {
    StepData {
        num_targets: batch.num_targets(),
        inputs: Rows::Tokens(batch.inputs.clone()),
        input_width: batch.seq_len,
        targets: Rows::Tokens(batch.targets.clone()),
        target_width: batch.seq_len,
    }
}

/// Validation batches.
pub struct Validation<'a> {
    source: ValidationSource<'a>,
    sequences: usize,
    count: usize,
}

enum ValidationSource<'a> {
    Text(ValidationBatches),
    Examples(ExampleBatches),
    Regression(&'a RegressionData),
}

impl Validation<'_> {
    /// Batches of `sequences` sequences over any tokens, in order.
    ///
    /// # Errors
    /// Fewer than two tokens.
    pub fn of_tokens(tokens: Tokens, seq_len: usize, sequences: usize) -> Result<Validation<'static>> {
        let batches = ValidationBatches::new(tokens, seq_len)?;
        Ok(Validation {
            count: batches.num_sequences(),
            source: ValidationSource::Text(batches),
            sequences,
        })
    }

    /// Batches of `sequences` examples, in order. Rows are as wide as the longest example needs, whatever the batch.
    ///
    /// # Errors
    /// No examples.
    pub fn of_examples(examples: Examples, sequences: usize) -> Result<Validation<'static>> {
        let (count, width) = (examples.len(), examples.longest().saturating_sub(1).max(1));
        let batches = ExampleBatches::new(Arc::new(examples), width, 0, false)?;
        Ok(Validation {
            count,
            source: ValidationSource::Examples(batches),
            sequences,
        })
    }

    /// Says that none of the sequences has a target, so that they have no loss; `None` where one has. Only answers can be missing:
    /// text and numbers always have targets.
    pub fn without_targets(&self) -> Option<String> {
        let ValidationSource::Examples(batches) = &self.source else {
            return None;
        };
        let examples = || batches.examples().iter().take(self.count);
        if examples().any(|example| example.num_targets() > 0) {
            return None;
        }
        let empty = examples().filter(|example| example.reference.trim().is_empty()).count();
        let first = examples().next().map_or(0, |example| example.line);
        Some(format!(
            "none of the {} examples to validate on (from line {first} on) has a token of an answer: {empty} have an empty answer, \
             and {} were cut before their answer began; there is no loss to measure",
            self.count,
            self.count - empty
        ))
    }

    /// Number of batches.
    pub fn num_batches(&self) -> usize {
        self.count.div_ceil(self.sequences.max(1))
    }

    /// Batch `index` and how many of its rows are real.
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn batch(&self, index: usize) -> Result<(StepData, usize)> {
        let first = index * self.sequences;
        let real = self.count.saturating_sub(first).min(self.sequences);
        let data = match &self.source {
            ValidationSource::Text(batches) => masked(real, |batch| batches.fill(first, self.sequences, batch))?,
            ValidationSource::Examples(batches) => {
                masked(real, |batch| batches.fill_in_order(first, self.sequences, batch))?
            }
            ValidationSource::Regression(data) => {
                let samples: Vec<u64> = (0..real).map(|i| data.train + (first + i) as u64).collect();
                data.rows(&samples, self.sequences)
            }
        };
        Ok((data, real))
    }
}
