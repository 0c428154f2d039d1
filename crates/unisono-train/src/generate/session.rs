//! A conversation's side of generation: what the cache holds of the last prompt is not computed again.

use super::engine::{Engine, Limits};
use super::{Batching, Decoder, End, Event, GenerateError, Output, Request, Work};
use std::ops::ControlFlow;
use unisono_nn::LanguageModel;

/// A model that remembers the tokens of the last request and its answer.
pub struct Session<'a> {
    model: &'a dyn LanguageModel,
    decoder: Decoder<'a>,
    /// Tokens in the cache.
    cached: Vec<u32>,
    batching: Batching,
}

impl<'a> Session<'a> {
    /// An empty one; of `batching`, the sequences do not matter.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(model: &'a dyn LanguageModel, batching: Batching) -> Result<Session<'a>, GenerateError> {
        Ok(Session {
            model,
            decoder: Decoder::new(model, 1, model.max_sequence_length())?,
            cached: Vec::new(),
            batching,
        })
    }

    /// Tokens of a prompt that need not go through the model again: those that the cache begins with, but for the prompt's
    /// last one.
    pub fn known(&self, prompt_ids: &[u32]) -> usize {
        let most = prompt_ids.len().saturating_sub(1);
        let same = self.cached.iter().zip(&prompt_ids[..most]);
        same.take_while(|(a, b)| a == b).count()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.cached.clear();
        self.decoder.truncate(0, 0);
    }

    /// Continues a request, as [`super::generate_events`] does; only tokens behind the known ones go through the model.
    ///
    /// # Errors
    /// As [`super::generate`].
    pub fn answer(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(usize, Event<'_>) -> ControlFlow<End>,
    ) -> Result<(Output, Work), GenerateError> {
        let limits = Limits::new(self.model, &self.batching)?;
        limits.check(0, 1, request)?;
        self.decoder.truncate(0, self.known(&request.prompt_ids));
        let requests = std::slice::from_ref(request);
        // What the cache holds is told by the decoder's lengths, whatever happens on the way.
        self.cached.clear();
        let engine = Engine::new(
            limits,
            requests,
            &mut self.decoder,
            self.batching.prompt_chunk,
            on_event,
        );
        let (mut outputs, work) = engine.continuing().run()?;
        let output = outputs.swap_remove(0);
        self.cached.extend(request.prompt_ids.iter().chain(&output.ids));
        self.cached.truncate(self.decoder.lengths()[0]);
        Ok((output, work))
    }
}
