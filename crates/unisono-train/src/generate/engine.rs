//! The loop of generation: requests wait, go through the model, and end.

use super::error::prompt_of;
use super::logprobs::Logprobs;
use super::{Batching, Decoder, End, Event, Finish, GenerateError, Output, Request, Sampler, Work};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Instant;
use unisono_nn::LanguageModel;

/// What requests have to keep to.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    vocabulary: usize,
    positions: usize,
}

impl Limits {
    pub(super) fn new(model: &dyn LanguageModel, batching: &Batching) -> Result<Limits, GenerateError> {
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

    pub(super) fn check(&self, index: usize, of: usize, request: &Request) -> Result<(), GenerateError> {
        let whose = prompt_of(index, of);
        request.sampling.check().map_err(|problem| GenerateError::Sampling {
            whose: format!("the sampling of {whose}"),
            problem,
        })?;
        self.check_prompt(&whose, &request.prompt_ids)
    }

    pub(super) fn check_prompt(&self, whose: &str, ids: &[u32]) -> Result<(), GenerateError> {
        let whose = whose.to_string();
        if ids.is_empty() {
            return Err(GenerateError::EmptyPrompt { whose });
        }
        if let Some((place, id)) = ids.iter().enumerate().find(|(_, id)| **id as usize >= self.vocabulary) {
            return Err(GenerateError::TokenOutOfRange {
                whose,
                id: *id,
                place,
                last: self.vocabulary - 1,
            });
        }
        if ids.len() > self.positions {
            return Err(GenerateError::PromptTooLong {
                whose,
                tokens: ids.len(),
                positions: self.positions,
            });
        }
        Ok(())
    }

    /// Tokens of a request that go through the model: the last one drawn does not.
    pub(super) fn cached(&self, request: &Request) -> usize {
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
    logprobs: Option<Logprobs>,
    /// The token that goes through the model next.
    last: u32,
    /// When it took its lane.
    begun: Instant,
}

type OnEvent<'e> = dyn FnMut(usize, Event<'_>) -> ControlFlow<End> + 'e;

/// Requests, and the decoder that they share. Lane `i` is the decoder's sequence `i`.
pub(super) struct Engine<'e, 'm> {
    limits: Limits,
    requests: &'e [Request],
    decoder: &'e mut Decoder<'m>,
    chunk: usize,
    on_event: &'e mut OnEvent<'e>,
    /// Whether the decoder keeps the tokens of a request that is over.
    keeps: bool,
    waiting: VecDeque<usize>,
    lanes: Vec<Option<Sequence>>,
    outputs: Vec<Output>,
    /// Whether the caller ended everything.
    ended: bool,
    work: Work,
}

impl<'e, 'm> Engine<'e, 'm> {
    pub(super) fn new(
        limits: Limits,
        requests: &'e [Request],
        decoder: &'e mut Decoder<'m>,
        chunk: usize,
        on_event: &'e mut OnEvent<'e>,
    ) -> Engine<'e, 'm> {
        Engine {
            limits,
            requests,
            chunk,
            on_event,
            keeps: false,
            waiting: (0..requests.len()).collect(),
            lanes: decoder.lengths().iter().map(|_| None).collect(),
            decoder,
            outputs: requests.iter().map(begun).collect(),
            ended: false,
            work: Work::default(),
        }
    }

    /// Goes on with a single sequence that the decoder holds, whose tokens are the first of the request's; and keeps it.
    pub(super) fn continuing(self) -> Engine<'e, 'm> {
        Engine { keeps: true, ..self }
    }

    /// What requests give that want no tokens.
    pub(super) fn nothing_to_do(
        requests: &[Request],
        on_event: &mut OnEvent<'_>,
    ) -> Result<(Vec<Output>, Work), GenerateError> {
        let outputs: Vec<Output> = requests.iter().map(begun).collect();
        for (request, output) in outputs.iter().enumerate() {
            if on_event(request, Event::Finished { output, seconds: 0.0 }) == ControlFlow::Break(End::All) {
                break;
            }
        }
        Ok((outputs, Work::default()))
    }

    /// Until every request is over.
    ///
    /// # Errors
    /// Broken weights, or a failed command.
    pub(super) fn run(mut self) -> Result<(Vec<Output>, Work), GenerateError> {
        loop {
            self.close_gaps()?;
            // A request that its prompt's first token ends makes room for another.
            while !self.ended && !self.waiting.is_empty() && self.lanes.iter().any(Option::is_none) {
                self.admit()?;
            }
            let Some(last) = self.lanes.iter().rposition(Option::is_some).filter(|_| !self.ended) else {
                return Ok((self.outputs, self.work));
            };
            let start = Instant::now();
            let lanes = self.lanes[..=last].iter();
            let tokens: Vec<Option<u32>> = lanes.map(|lane| lane.as_ref().map(|s| s.last)).collect();
            let logits = self.decoder.step(&tokens)?.wait()?;
            let row = logits.len() / tokens.len();
            let before = self.work.new_tokens;
            for (lane, logits) in logits.chunks(row).enumerate() {
                self.advance(lane, logits)?;
            }
            self.work.later_tokens += self.work.new_tokens - before;
            self.work.later_seconds += start.elapsed().as_secs_f64();
        }
    }

    /// Moves sequences to the first slots, since rows behind them cost nothing. All data-parallel positions run the same
    /// commands, so a slot is free where none of them has a sequence in it.
    fn close_gaps(&mut self) -> Result<(), GenerateError> {
        let free = self.lanes.iter().filter(|lane| lane.is_none()).count();
        if self.waiting.len() >= free {
            // Requests that wait fill the gaps.
            return Ok(());
        }
        let replicas = self.decoder.replicas();
        loop {
            let mut slots = self.lanes.chunks(replicas);
            let gap = slots.position(|slot| slot.iter().all(Option::is_none));
            let last = self.lanes.iter().rposition(Option::is_some).map(|lane| lane / replicas);
            let (Some(gap), Some(last)) = (gap, last) else {
                return Ok(());
            };
            if gap > last {
                return Ok(());
            }
            self.decoder.relocate(last, gap)?;
            for replica in 0..replicas {
                self.lanes.swap(last * replicas + replica, gap * replicas + replica);
            }
        }
    }

    /// Free lanes take the requests that wait; their prompts go through the model, and each gets its first token. A single token
    /// goes with the next step of all lanes instead.
    fn admit(&mut self) -> Result<(), GenerateError> {
        let start = Instant::now();
        let mut begun = Vec::new();
        while !self.ended
            && let Some(request) = self.waiting.pop_front()
        {
            let wanted = &self.requests[request];
            if wanted.max_new_tokens == 0 {
                let output = &self.outputs[request];
                let wish = (self.on_event)(request, Event::Finished { output, seconds: 0.0 });
                self.ended |= wish == ControlFlow::Break(End::All);
                continue;
            }
            // The lowest lane is in the first slot that a data-parallel position has free.
            let Some(lane) = self.lanes.iter().position(Option::is_none) else {
                self.waiting.push_front(request);
                break;
            };
            let ids = &wanted.prompt_ids;
            let new = &ids[self.decoder.lengths()[lane]..];
            self.lanes[lane] = Some(Sequence {
                request,
                sampler: Sampler::new(wanted.sampling, self.limits.vocabulary, ids),
                logprobs: wanted.logprobs.map(Logprobs::new),
                last: new[0],
                begun: start,
            });
            if new.len() > 1 {
                begun.push((lane, new));
            }
        }
        if begun.is_empty() {
            return Ok(());
        }
        let logits = self.decoder.extend(&begun, self.chunk)?.wait()?;
        self.work.prompt_tokens += begun.iter().map(|(_, ids)| ids.len()).sum::<usize>();
        self.work.prompt_seconds += start.elapsed().as_secs_f64();
        for ((lane, _), logits) in begun.iter().zip(logits.chunks(logits.len() / begun.len())) {
            self.advance(*lane, logits)?;
        }
        Ok(())
    }

    /// Draws a lane's next token; it is free again if that was the last.
    fn advance(&mut self, lane: usize, logits: &[f32]) -> Result<(), GenerateError> {
        let Some(sequence) = self.lanes[lane].as_mut().filter(|_| !self.ended) else {
            return Ok(());
        };
        let index = sequence.request;
        let (request, output) = (&self.requests[index], &mut self.outputs[index]);
        let tokens = request.prompt_ids.len() + output.ids.len();
        let real = &logits[..self.limits.vocabulary];
        if let Some(id) = real.iter().position(|logit| !logit.is_finite()) {
            return Err(GenerateError::NotFinite {
                whose: prompt_of(index, self.requests.len()),
                tokens,
                id,
                value: real[id],
            });
        }
        let id = sequence.sampler.next(real, tokens as u64);
        let mut wish = ControlFlow::Continue(());
        let finish = if request.stop_ids.contains(&id) {
            Some(Finish::Stop(id))
        } else {
            if let Some(logprobs) = &mut sequence.logprobs {
                output.logprobs.push(logprobs.of(real, id));
            }
            output.ids.push(id);
            self.work.new_tokens += 1;
            sequence.last = id;
            wish = (self.on_event)(index, Event::Token(id));
            if output.ids.len() == request.max_new_tokens {
                Some(Finish::Length)
            } else if wish.is_break() {
                Some(Finish::Cancelled)
            } else if tokens == self.limits.positions {
                Some(Finish::Context {
                    positions: self.limits.positions,
                })
            } else {
                None
            }
        };
        let Some(finish) = finish else { return Ok(()) };
        output.finish = finish;
        let seconds = sequence.begun.elapsed().as_secs_f64();
        self.lanes[lane] = None;
        if !self.keeps {
            // Short sequences cost little, where other data-parallel positions have more of them.
            self.decoder.truncate(lane, 0);
        }
        self.ended = wish == ControlFlow::Break(End::All);
        if !self.ended {
            let output = &self.outputs[index];
            let wish = (self.on_event)(index, Event::Finished { output, seconds });
            self.ended = wish == ControlFlow::Break(End::All);
        }
        Ok(())
    }
}

/// What a request has given before its first token.
fn begun(request: &Request) -> Output {
    Output {
        ids: Vec::new(),
        logprobs: Vec::new(),
        finish: match request.max_new_tokens {
            0 => Finish::Length,
            _ => Finish::Cancelled,
        },
    }
}
