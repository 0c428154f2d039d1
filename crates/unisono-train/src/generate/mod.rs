//! Generation: token ids, or text, continued by a model with a cache of keys and values.
//!
//! Any number of requests go through one batch. Each prompt is one product over its tokens, in the cache of its own sequence,
//! so prompts of different lengths need no padding; then all sequences go on token by token, and a request that ends makes
//! room for the next one. Data-parallel positions share the requests. What a request gives depends on its own prompt and
//! settings alone: the same bits alone or in a batch, on any mesh, however the prompt is cut.

mod decoder;
mod engine;
mod error;
mod logprobs;
mod sampling;
mod session;
mod stop;
mod text;

pub use decoder::{Decoder, Logits};
pub use error::GenerateError;
pub use logprobs::TokenLogprob;
pub use sampling::{GREEDY, Sampler, Sampling};
pub use session::Session;
pub use stop::{Held, StopTexts};
pub use text::{TextEvent, TextOutput, TextRequest, answer_text, generate_text, generate_text_events};

use engine::{Engine, Limits};
use error::prompt_of;
use std::ops::ControlFlow;
use unisono_nn::LanguageModel;

/// A prompt and how it is to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Token ids, at least one.
    pub prompt_ids: Vec<u32>,
    /// Tokens to add at most.
    pub max_new_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
    /// Tokens that end the text; they do not become part of it.
    pub stop_ids: Vec<u32>,
    /// Whether the log-probability of each new token is wanted, and of how many of the likeliest tokens besides.
    pub logprobs: Option<usize>,
}

/// What a request gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The new tokens.
    pub ids: Vec<u32>,
    /// A log-probability each, where they were asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// Why there are no more.
    pub finish: Finish,
}

/// Why a text ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It has as many new tokens as were asked for.
    Length,
    /// The model chose this stop token.
    Stop(u32),
    /// The model wrote this stop text.
    StopText(String),
    /// Every position that the model has is taken.
    Context {
        /// The model's positions.
        positions: usize,
    },
    /// The caller ended it.
    Cancelled,
}

impl Finish {
    /// One word for programs: `length`, `stop`, `context` or `cancelled`.
    pub fn word(&self) -> &'static str {
        match self {
            Finish::Length => "length",
            Finish::Stop(_) | Finish::StopText(_) => "stop",
            Finish::Context { .. } => "context",
            Finish::Cancelled => "cancelled",
        }
    }
}

impl std::fmt::Display for Finish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finish::Length => write!(f, "it has as many new tokens as were asked for"),
            Finish::Stop(id) => write!(f, "the model chose the stop token {id}"),
            Finish::StopText(text) => write!(f, "the model wrote the stop text {text:?}"),
            Finish::Context { positions } => write!(
                f,
                "the {positions} positions of the model (max_sequence_length) are taken, so it ends before max_new_tokens"
            ),
            Finish::Cancelled => write!(f, "it was cancelled"),
        }
    }
}

/// What a caller who has seen enough wants to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The request whose token was just shown.
    Request,
    /// All of them.
    All,
}

/// Settings of a call that cannot change its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Most sequences at once, over all data-parallel positions.
    pub sequences: usize,
    /// Most tokens of a prompt in one pass.
    pub prompt_chunk: usize,
    /// Tokens that can be drawn, where they are fewer than the model's vocabulary: those of the tokenizer, where the model's
    /// size was rounded up. (This one does change results.)
    pub vocabulary: Option<usize>,
}

impl Default for Batching {
    fn default() -> Batching {
        Batching {
            sequences: 32,
            prompt_chunk: 512,
            vocabulary: None,
        }
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// It got a token.
    Token(u32),
    /// It is over. (Where the caller ends all of them, no more is told.)
    Finished {
        /// What it gave.
        output: &'a Output,
        /// Seconds since it began, its prompt included.
        seconds: f64,
    },
}

/// What a call did, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Tokens of prompts, each of which gives its request's first new token. (Single tokens go with the steps of other requests.)
    pub prompt_tokens: usize,
    /// Seconds of that.
    pub prompt_seconds: f64,
    /// New tokens; one that ends a text is none of it.
    pub new_tokens: usize,
    /// Those of them that steps gave, a token of each sequence at a time.
    pub later_tokens: usize,
    /// Seconds of those, of all sequences together.
    pub later_seconds: f64,
}

impl Work {
    /// Adds another call's.
    pub fn add(&mut self, other: &Work) {
        self.prompt_tokens += other.prompt_tokens;
        self.prompt_seconds += other.prompt_seconds;
        self.new_tokens += other.new_tokens;
        self.later_tokens += other.later_tokens;
        self.later_seconds += other.later_seconds;
    }

    /// Tokens of prompts a second.
    pub fn prompt_rate(&self) -> f64 {
        self.prompt_tokens as f64 / self.prompt_seconds.max(1e-9)
    }

    /// New tokens of steps a second, of all sequences together.
    pub fn later_rate(&self) -> f64 {
        self.later_tokens as f64 / self.later_seconds.max(1e-9)
    }
}

/// Whether a prompt can be gone on from: what [`generate`] would say of it. `vocabulary` is that of [`Batching`].
///
/// # Errors
/// No tokens, more than the model has positions for, or ids that the vocabulary does not have.
pub fn check_prompt(model: &dyn LanguageModel, vocabulary: Option<usize>, ids: &[u32]) -> Result<(), GenerateError> {
    let batching = Batching {
        vocabulary,
        ..Batching::default()
    };
    Limits::new(model, &batching)?.check_prompt(&prompt_of(0, 1), ids)
}

/// Continues every request. `on_token` sees each new token as it comes, with the index of its request.
///
/// # Errors
/// Anything wrong with a request, before anything is computed; broken weights; a failed command.
pub fn generate(
    model: &dyn LanguageModel,
    requests: &[Request],
    on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<End>,
) -> Result<Vec<Output>, GenerateError> {
    generate_with(model, requests, &Batching::default(), on_token)
}

/// [`generate`] with other settings.
///
/// # Errors
/// As [`generate`].
pub fn generate_with(
    model: &dyn LanguageModel,
    requests: &[Request],
    batching: &Batching,
    on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<End>,
) -> Result<Vec<Output>, GenerateError> {
    let mut on_event = |request: usize, event: Event<'_>| match event {
        Event::Token(id) => on_token(request, id),
        Event::Finished { .. } => ControlFlow::Continue(()),
    };
    Ok(generate_events(model, requests, batching, &mut on_event)?.0)
}

/// [`generate_with`], but the caller also hears when a request is over, and how much work was done.
///
/// # Errors
/// As [`generate`].
pub fn generate_events(
    model: &dyn LanguageModel,
    requests: &[Request],
    batching: &Batching,
    on_event: &mut dyn FnMut(usize, Event<'_>) -> ControlFlow<End>,
) -> Result<(Vec<Output>, Work), GenerateError> {
    let limits = Limits::new(model, batching)?;
    for (index, request) in requests.iter().enumerate() {
        limits.check(index, requests.len(), request)?;
    }
    let lanes = requests.len().min(batching.sequences.max(1));
    let capacity = requests.iter().map(|r| limits.cached(r)).max().unwrap_or(0);
    if capacity == 0 {
        return Engine::nothing_to_do(requests, on_event);
    }
    let mut decoder = Decoder::new(model, lanes, capacity)?;
    Engine::new(limits, requests, &mut decoder, batching.prompt_chunk, on_event).run()
}
