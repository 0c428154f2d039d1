//! The data of a run: what its configuration names, ready to be read step by step.

use crate::config::{DataPath, ModelConfig, RunConfig, TokenizerType};
use crate::error::{Result, TrainError};
use unisono_data::{
    Batch, IGNORE, Prefetcher, Sampler, Tokenizer, Tokens, TrainBatches, Trigram, ValidationBatches, Windows, corpus,
    files, split, text, token_file,
};
use unisono_kernels::philox::Stream;

/// Random tokens that `data_path: random` pretends to hold.
const RANDOM_TOKENS: usize = 1 << 24;
/// Random sites of synthetic rows.
const ROWS_SITE: u32 = 0x4000_0000;

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
    /// Targets; [`IGNORE`] masks one.
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
    /// Rows of numbers with a linear law and noise.
    Regression(RegressionData),
}

/// Text or tokens.
pub struct TextData {
    /// How text becomes tokens; `None` for data that is tokens already.
    pub tokenizer: Option<Tokenizer>,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// Where it came from.
    pub source: String,
    /// Training part.
    pub train: Tokens,
    /// Validation part; may be empty.
    pub validation: Tokens,
    /// Windows of the training part.
    pub windows: Windows,
    /// Hash of the tokens.
    pub digest: String,
}

/// Rows of numbers: `y = x W + noise`, drawn by element, so that nothing is stored.
pub struct RegressionData {
    inputs: usize,
    outputs: usize,
    law: Vec<f32>,
    noise: f32,
    seed: u64,
    /// Samples to train on.
    pub train: u64,
    /// Samples to validate on.
    pub validation: u64,
}

impl Dataset {
    /// Loads what `config` names.
    ///
    /// # Errors
    /// A file that cannot be read or does not hold enough.
    pub fn load(config: &RunConfig) -> Result<Dataset> {
        let t = &config.training;
        let (inputs, outputs) = match &config.model {
            ModelConfig::Gpt2(model) => {
                return Ok(Dataset::Text(TextData::load(
                    config,
                    model.vocab_size,
                    model.max_sequence_length,
                )?));
            }
            ModelConfig::Linear(model) => (model.input_features, model.output_features),
            ModelConfig::Mlp(model) => (model.input_features, model.output_features),
        };
        let stream = Stream {
            seed: t.seed,
            site: ROWS_SITE,
            step: 0,
        };
        let mut law = vec![0.0; inputs * outputs];
        unisono_kernels::random::fill_uniform(&stream, 0, -1.0, 1.0, &mut law);
        let validation = (t.num_samples as f64 * t.validation_fraction) as u64;
        let train = t.num_samples as u64 - validation;
        if train == 0 {
            return Err(TrainError::Refused(format!(
                "training_config.num_samples is {} and validation_fraction {}: no sample is left to train on",
                t.num_samples, t.validation_fraction
            )));
        }
        let noise = t.noise as f32;
        Ok(Dataset::Regression(RegressionData {
            inputs,
            outputs,
            law,
            noise,
            seed: t.seed,
            train,
            validation,
        }))
    }

    /// Different samples (windows of stride 1) of the training part.
    pub fn num_samples(&self) -> u64 {
        match self {
            Dataset::Text(data) => data.windows.num_samples(),
            Dataset::Regression(data) => data.train,
        }
    }

    /// The tokenizer's vocabulary, where there are tokens.
    pub fn vocab_size(&self) -> Option<usize> {
        match self {
            Dataset::Text(data) => Some(data.vocab_size),
            Dataset::Regression(_) => None,
        }
    }

    /// How text becomes tokens, where that is known.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        match self {
            Dataset::Text(data) => data.tokenizer.as_ref(),
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
                let width = data.windows.seq_len();
                let prefetcher = Prefetcher::new(move |step, batch: &mut Batch| {
                    let first = first_sample + step * sequences as u64;
                    batches.fill(first, sequences, batch)?;
                    let present = last_sample.saturating_sub(first).min(sequences as u64) as usize;
                    batch.targets[present * width..].fill(IGNORE);
                    Ok(())
                })?;
                Ok(Steps::Text { prefetcher, width })
            }
            Dataset::Regression(data) => Ok(Steps::Regression {
                data: data.clone_law(),
                sampler: Sampler::new(data.train, seed, true)?,
                sequences,
                next: first_sample,
            }),
        }
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

impl TextData {
    fn load(config: &RunConfig, vocab_size: usize, seq_len: usize) -> Result<TextData> {
        let t = &config.training;
        let (tokenizer, tokens, source) = match (&t.data_path, t.tokenizer_type) {
            (DataPath::Random, _) => (
                None,
                Tokens::random(t.seed, RANDOM_TOKENS, vocab_size)?,
                "random tokens".into(),
            ),
            (DataPath::BuiltIn, kind) => {
                let text = corpus::stories();
                let (tokenizer, tokens) = tokenise(kind, &text, "the built-in corpus")?;
                (Some(tokenizer), tokens, "built-in corpus of stories".into())
            }
            (DataPath::Path(path), TokenizerType::Pretokenised) => (
                None,
                token_file::load_tokens(path, Some(vocab_size))?,
                path.display().to_string(),
            ),
            (DataPath::Path(path), TokenizerType::Byte) => {
                let bytes = text::read_bytes(path)?;
                let ids = bytes.iter().map(|byte| u32::from(*byte)).collect();
                let place = path.display().to_string();
                (Some(Tokenizer::Byte), Tokens::from_vec(ids, 256, &place)?, place)
            }
            (DataPath::Path(path), kind) => {
                let place = path.display().to_string();
                let (tokenizer, tokens) = tokenise(kind, &text::read_text(path)?.text, &place)?;
                (Some(tokenizer), tokens, place)
            }
        };
        let vocab_size = tokenizer.as_ref().map_or(tokens.vocab_size(), Tokenizer::vocab_size);
        let digest = match t.data_path {
            DataPath::Random => files::hash_bytes(format!("random {} {vocab_size}", t.seed).as_bytes()),
            _ => {
                let mut bytes = Vec::with_capacity(4 * tokens.len());
                tokens.iter().for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
                files::hash_bytes(&bytes)
            }
        };
        let (train, validation) = match t.validation_fraction {
            0.0 => (tokens.clone(), tokens.slice(tokens.len()..tokens.len())),
            fraction => split(&tokens, fraction)?,
        };
        let windows = Windows::new(train.clone(), seq_len)?;
        Ok(TextData {
            tokenizer,
            vocab_size,
            source,
            train,
            validation,
            windows,
            digest,
        })
    }
}

fn tokenise(kind: TokenizerType, text: &str, place: &str) -> Result<(Tokenizer, Tokens)> {
    let tokenizer = match kind {
        TokenizerType::Byte => Tokenizer::Byte,
        TokenizerType::Char | TokenizerType::Pretokenised => Tokenizer::char_from_text(text)?,
    };
    let ids = tokenizer.encode(text)?;
    let tokens = Tokens::from_vec(ids, tokenizer.vocab_size(), place)?;
    Ok((tokenizer, tokens))
}

/// Batches of optimizer steps, one after the other.
pub enum Steps {
    /// Prepared by a thread.
    Text {
        /// The thread.
        prefetcher: Prefetcher,
        /// Tokens of a sequence.
        width: usize,
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
    /// The next step's batch.
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn next_step(&mut self) -> Result<StepData> {
        match self {
            Steps::Text { prefetcher, width } => {
                let batch = prefetcher.next_batch()?;
                Ok(text_step(&batch, *width))
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

fn text_step(batch: &Batch, width: usize) -> StepData {
    StepData {
        num_targets: batch.num_targets(),
        inputs: Rows::Tokens(batch.inputs.clone()),
        input_width: width,
        targets: Rows::Tokens(batch.targets.clone()),
        target_width: width,
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
            ValidationSource::Text(batches) => {
                let mut batch = Batch::default();
                batches.fill(first, self.sequences, &mut batch)?;
                batch.targets[real * batches.seq_len()..].fill(IGNORE);
                text_step(&batch, batches.seq_len())
            }
            ValidationSource::Regression(data) => {
                let samples: Vec<u64> = (0..real).map(|i| data.train + (first + i) as u64).collect();
                data.rows(&samples, self.sequences)
            }
        };
        Ok((data, real))
    }
}

impl RegressionData {
    fn clone_law(&self) -> RegressionData {
        RegressionData {
            law: self.law.clone(),
            ..*self
        }
    }

    /// The rows of these samples, filled up with zeros to `count`.
    fn rows(&self, samples: &[u64], count: usize) -> StepData {
        let mut x = vec![0.0; count * self.inputs];
        let mut y = vec![0.0; count * self.outputs];
        let rows = Stream {
            seed: self.seed,
            site: ROWS_SITE + 1,
            step: 0,
        };
        let noise = Stream {
            seed: self.seed,
            site: ROWS_SITE + 2,
            step: 0,
        };
        for (i, sample) in samples.iter().enumerate() {
            let x = &mut x[i * self.inputs..(i + 1) * self.inputs];
            unisono_kernels::random::fill_uniform(&rows, sample * self.inputs as u64, -1.0, 1.0, x);
            let y = &mut y[i * self.outputs..(i + 1) * self.outputs];
            unisono_kernels::random::fill_normal(&noise, sample * self.outputs as u64, 0.0, self.noise, y);
            for (j, y) in y.iter_mut().enumerate() {
                for (k, x) in x.iter().enumerate() {
                    *y += x * self.law[k * self.outputs + j];
                }
            }
        }
        StepData {
            inputs: Rows::Numbers(x),
            input_width: self.inputs,
            targets: Rows::Numbers(y),
            target_width: self.outputs,
            num_targets: samples.len() * self.outputs,
        }
    }
}
