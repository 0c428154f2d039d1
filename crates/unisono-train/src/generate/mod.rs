//! Generation: token ids, or text, continued by a model with a cache of keys and values.
//!
//! Any number of requests go through one batch. Each prompt is one product over all its tokens, in the cache of its own
//! sequence, so prompts of different lengths need no padding; then all sequences go on token by token, and a request that
//! ends makes room for the next one. What a request gives depends on its own prompt and settings alone: the same bits alone
//! or in a batch, on any mesh, however the prompt is cut.

mod decoder;
mod error;
mod sampling;
mod text;

pub use decoder::Decoder;
pub use error::GenerateError;
pub use sampling::{GREEDY, Sampler, Sampling};
pub use text::{TextOutput, TextRequest, generate_text};

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
}

/// What a request gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The new tokens.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
}

/// Why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It has as many new tokens as were asked for.
    Length,
    /// The model chose this stop token.
    Stop(u32),
    /// Every position that the model has is taken.
    Context {
        /// The model's positions.
        positions: usize,
    },
    /// The caller ended it.
    Cancelled,
}

impl std::fmt::Display for Finish {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Finish::Length => write!(f, "it has as many new tokens as were asked for"),
            Finish::Stop(id) => write!(f, "the model chose the stop token {id}"),
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
    /// Most sequences at once; each has a cache of its longest request's length.
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
    let limits = Limits::new(model, batching)?;
    for (index, request) in requests.iter().enumerate() {
        limits.check(index, requests.len(), request)?;
    }
    let mut run = Run::new(limits, requests);
    let lanes = requests.len().min(batching.sequences.max(1));
    let capacity = requests.iter().map(|r| limits.cached(r)).max().unwrap_or(0);
    if capacity == 0 {
        return Ok(run.outputs);
    }
    let mut decoder = Decoder::new(model, lanes, capacity)?;
    let mut lanes: Vec<Option<Sequence>> = (0..lanes).map(|_| None).collect();
    loop {
        // Free lanes take the next requests; all their prompts are on their way before the first one's end is waited for.
        let mut begun = Vec::new();
        for (lane, sequence) in lanes.iter_mut().enumerate().filter(|(_, s)| s.is_none()) {
            // A lane without work is short, so that it costs little.
            decoder.clear(lane);
            let Some(next) = run.take() else { continue };
            let prompt = &requests[next.request].prompt_ids;
            begun.push((lane, decoder.append(lane, prompt, batching.prompt_chunk)?));
            *sequence = Some(next);
        }
        for (lane, logits) in begun {
            let logits = logits.wait().map_err(unisono_tensor::TensorError::from)?;
            run.advance(&mut lanes[lane], &logits, on_token)?;
        }
        let Some(last) = lanes.iter().rposition(Option::is_some) else {
            if run.is_over() {
                return Ok(run.outputs);
            }
            continue;
        };
        if run.ended {
            return Ok(run.outputs);
        }
        let tokens: Vec<Option<u32>> = lanes[..=last].iter().map(|s| s.as_ref().map(|s| s.last)).collect();
        let logits = decoder
            .step(&tokens)?
            .wait()
            .map_err(unisono_tensor::TensorError::from)?;
        let row = logits.len() / tokens.len();
        for (sequence, logits) in lanes.iter_mut().zip(logits.chunks(row)) {
            run.advance(sequence, logits, on_token)?;
        }
    }
}

/// What requests have to keep to.
#[derive(Clone, Copy)]
struct Limits {
    vocabulary: usize,
    positions: usize,
}

impl Limits {
    fn new(model: &dyn LanguageModel, batching: &Batching) -> Result<Limits, GenerateError> {
        let known = model.vocab_size();
        let vocabulary = batching.vocabulary.unwrap_or(known);
        if vocabulary == 0 || vocabulary > known {
            return Err(GenerateError::Setting(format!(
                "the tokenizer has {vocabulary} tokens and the model knows {known}: they do not belong together. Use the \
                 tokenizer that the model was trained with"
            )));
        }
        Ok(Limits {
            vocabulary,
            positions: model.max_sequence_length(),
        })
    }

    fn check(&self, index: usize, of: usize, request: &Request) -> Result<(), GenerateError> {
        let whose = || prompt_of(index, of);
        let ids = &request.prompt_ids;
        request.sampling.check().map_err(|problem| GenerateError::Sampling {
            whose: format!("the sampling of {}", whose()),
            problem,
        })?;
        if ids.is_empty() {
            return Err(GenerateError::EmptyPrompt { whose: whose() });
        }
        if let Some((place, id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= self.vocabulary) {
            return Err(GenerateError::TokenOutOfRange {
                whose: whose(),
                id: *id,
                place,
                last: self.vocabulary - 1,
            });
        }
        if ids.len() > self.positions {
            return Err(GenerateError::PromptTooLong {
                whose: whose(),
                tokens: ids.len(),
                positions: self.positions,
            });
        }
        Ok(())
    }

    /// Tokens of a request that go through the model: the last one drawn does not.
    fn cached(&self, request: &Request) -> usize {
        match request.max_new_tokens {
            0 => 0,
            new => request.prompt_ids.len().saturating_add(new - 1).min(self.positions),
        }
    }
}

/// A request on its way.
struct Sequence {
    request: usize,
    sampler: Sampler,
    /// The token that goes through the model next.
    last: u32,
}

/// Requests that wait, and what the others gave.
struct Run<'a> {
    limits: Limits,
    requests: &'a [Request],
    next: usize,
    /// Whether the caller ended everything.
    ended: bool,
    outputs: Vec<Output>,
}

impl<'a> Run<'a> {
    fn new(limits: Limits, requests: &'a [Request]) -> Run<'a> {
        let output = |request: &Request| Output {
            ids: Vec::new(),
            finish: match request.max_new_tokens {
                0 => Finish::Length,
                _ => Finish::Cancelled,
            },
        };
        Run {
            limits,
            requests,
            next: 0,
            ended: false,
            outputs: requests.iter().map(output).collect(),
        }
    }

    /// The next request that has tokens to draw.
    fn take(&mut self) -> Option<Sequence> {
        while !self.is_over() {
            let request = self.next;
            self.next += 1;
            let Request {
                prompt_ids,
                max_new_tokens,
                sampling,
                ..
            } = &self.requests[request];
            if *max_new_tokens > 0 {
                return Some(Sequence {
                    request,
                    sampler: Sampler::new(*sampling, self.limits.vocabulary, prompt_ids),
                    last: 0,
                });
            }
        }
        None
    }

    fn is_over(&self) -> bool {
        self.ended || self.next == self.requests.len()
    }

    /// Draws a sequence's next token; it is gone from its lane if that was the last.
    fn advance(
        &mut self,
        lane: &mut Option<Sequence>,
        logits: &[f32],
        on_token: &mut dyn FnMut(usize, u32) -> ControlFlow<End>,
    ) -> Result<(), GenerateError> {
        let Some(sequence) = lane.as_mut().filter(|_| !self.ended) else {
            return Ok(());
        };
        let request = &self.requests[sequence.request];
        let output = &mut self.outputs[sequence.request];
        let tokens = request.prompt_ids.len() + output.ids.len();
        let real = &logits[..self.limits.vocabulary];
        if let Some(id) = real.iter().position(|logit| !logit.is_finite()) {
            return Err(GenerateError::NotFinite {
                whose: prompt_of(sequence.request, self.requests.len()),
                tokens,
                id,
                value: real[id],
            });
        }
        let id = sequence.sampler.next(real, tokens as u64);
        if request.stop_ids.contains(&id) {
            output.finish = Finish::Stop(id);
            *lane = None;
            return Ok(());
        }
        output.ids.push(id);
        sequence.last = id;
        let wish = on_token(sequence.request, id);
        if output.ids.len() == request.max_new_tokens {
            output.finish = Finish::Length;
        } else if wish.is_break() {
            output.finish = Finish::Cancelled;
        } else if tokens == self.limits.positions {
            output.finish = Finish::Context {
                positions: self.limits.positions,
            };
        } else {
            return Ok(());
        }
        self.ended = wish == ControlFlow::Break(End::All);
        *lane = None;
        Ok(())
    }
}
