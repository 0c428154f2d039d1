//! *Text in, token batches out*, and the files around them. Knows nothing of models, meshes or devices.
//!
//! How a training run flows through here:
//!
//! ```text
//! corpus | text ─ tokenizer ─▶ tokens ─ split ─▶ windows ─ sampler ─▶ batch ─ prefetch ─▶ (training)
//!                                          └───▶ validation batches
//! ```
//!
//! Fine-tuning begins elsewhere and ends in the same batches:
//!
//! ```text
//! JSONL ─ template | chat template ─▶ text, answer's part ─ tokenizer ─▶ examples ─ sampler ─▶ batch ─ prefetch ─▶ (training)
//! ```
//!
//! - [`corpus`]: the built-in stories; [`text`]: UTF-8 files; [`tokenizer`]: characters, bytes or a `tokenizer.json` to ids and back.
//! - [`chat`]: conversations written out by a tokenizer's chat template; [`examples`]: prompts and answers of a JSONL file.
//! - [`tokens`]: a sequence of token ids, in memory, memory-mapped or made up; [`token_file`]: the formats it is read from.
//! - [`mod@split`], [`windows`], [`sampler`], [`batch`]: which tokens stand in which row of which batch, a pure function of
//!   the configuration, the seed and one counter (the samples consumed), so that a checkpoint keeps just that counter.
//! - [`prefetch`]: the same batches, prepared by a thread ahead of time.
//! - [`ngram`]: the trigram model that a trained model must beat.
//! - [`weights`]: safetensors files; [`files`]: atomic writes and hashes, for every file that unisono writes.
//!
//! Every fallible function answers with a [`DataError`], whose text is a sentence fit for the user.

pub mod batch;
pub mod chat;
pub mod corpus;
mod error;
pub mod examples;
pub mod files;
pub mod json;
pub mod ngram;
pub mod prefetch;
pub mod sampler;
pub mod split;
pub mod text;
pub mod token_file;
pub mod tokenizer;
pub mod tokens;
pub mod weights;
pub mod windows;

pub use batch::{Batch, IGNORE, TrainBatches, ValidationBatches};
pub use chat::{ChatTemplate, Message};
pub use error::DataError;
pub use examples::{Example, ExampleBatches, Examples, Template};
pub use files::{AtomicFile, FileDigest, atomic_write, hash_file};
pub use ngram::Trigram;
pub use prefetch::Prefetcher;
pub use sampler::Sampler;
pub use split::split;
pub use tokenizer::{BpeOptions, HfTokenizer, StreamDecoder, Tokenizer, train_bpe};
pub use tokens::Tokens;
pub use weights::{TensorSpec, Weights, write_safetensors};
pub use windows::Windows;
