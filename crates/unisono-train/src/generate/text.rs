//! Text in, text out: prompts through the tokenizer, new tokens as whole characters.

use super::error::prompt_of;
use super::{
    Batching, End, Event, Finish, GenerateError, Held, Output, Request, Sampling, Session, StopTexts, TokenLogprob,
    Work, generate_events,
};
use std::ops::ControlFlow;
use unisono_data::{DataError, StreamDecoder, Tokenizer};
use unisono_nn::LanguageModel;

/// A prompt and how it is to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextRequest {
    /// The text to continue.
    pub prompt: String,
    /// Tokens to add at most.
    pub max_new_tokens: usize,
    /// How they are chosen.
    pub sampling: Sampling,
}

/// What a request gave.
#[derive(Clone, Debug, PartialEq)]
pub struct TextOutput {
    /// The text after the prompt, up to a stop text.
    pub text: String,
    /// Its tokens; those that made a stop text are among them.
    pub ids: Vec<u32>,
    /// A log-probability each, where they were asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// Why there is no more.
    pub finish: Finish,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TextEvent<'a> {
    /// Its text goes on, by whole characters.
    Piece(&'a str),
    /// It is over.
    Finished {
        /// What it gave.
        output: &'a TextOutput,
        /// Seconds since it began, its prompt included.
        seconds: f64,
    },
}

/// Continues every prompt, until the tokenizer's end-of-text tokens where it has any. `on_text` sees each piece of text as it
/// comes, always whole characters, with the index of its request; the pieces of a request make its [`TextOutput::text`].
///
/// # Errors
/// A character that the tokenizer does not have, named; a tokenizer that is not the model's; what [`super::generate`] says.
pub fn generate_text(
    model: &dyn LanguageModel,
    tokenizer: &Tokenizer,
    requests: &[TextRequest],
    on_text: &mut dyn FnMut(usize, &str) -> ControlFlow<End>,
) -> Result<Vec<TextOutput>, GenerateError> {
    let requests = requests
        .iter()
        .enumerate()
        .map(|(index, request)| {
            let text = |source| GenerateError::Text {
                whose: prompt_of(index, requests.len()),
                source,
            };
            Ok(Request {
                prompt_ids: tokenizer.encode_prompt(&request.prompt).map_err(text)?,
                max_new_tokens: request.max_new_tokens,
                sampling: request.sampling,
                stop_ids: tokenizer.eos_ids().to_vec(),
                logprobs: None,
            })
        })
        .collect::<Result<Vec<_>, GenerateError>>()?;
    let stops = vec![StopTexts::default(); requests.len()];
    let mut on_event = |request: usize, event: TextEvent<'_>| match event {
        TextEvent::Piece(piece) => on_text(request, piece),
        TextEvent::Finished { .. } => ControlFlow::Continue(()),
    };
    Ok(generate_text_events(model, tokenizer, &requests, &stops, &Batching::default(), &mut on_event)?.0)
}

/// Continues requests whose prompts are tokens already, with stop texts for each; the caller hears of pieces of text and of
/// requests that are over, and gets how much work was done. `batching.vocabulary` is the tokenizer's size.
///
/// # Errors
/// A tokenizer that is not the model's; what [`super::generate`] says.
///
/// # Panics
/// With another number of stop texts than of requests.
pub fn generate_text_events(
    model: &dyn LanguageModel,
    tokenizer: &Tokenizer,
    requests: &[Request],
    stops: &[StopTexts],
    batching: &Batching,
    on_event: &mut dyn FnMut(usize, TextEvent<'_>) -> ControlFlow<End>,
) -> Result<(Vec<TextOutput>, Work), GenerateError> {
    assert_eq!(
        requests.len(),
        stops.len(),
        "bug in unisono: each request has stop texts"
    );
    let batching = Batching {
        vocabulary: Some(tokenizer.vocab_size()),
        ..*batching
    };
    let mut texts = Texts::new(tokenizer, requests, stops, on_event);
    let (outputs, work) = generate_events(model, requests, &batching, &mut |request, event| {
        texts.event(request, event)
    })?;
    Ok((texts.outputs(&outputs)?, work))
}

/// As [`generate_text_events`], for one request that goes on where the session is.
///
/// # Errors
/// As [`generate_text_events`].
pub fn answer_text(
    session: &mut Session<'_>,
    tokenizer: &Tokenizer,
    request: &Request,
    stops: &StopTexts,
    on_text: &mut dyn FnMut(&str) -> ControlFlow<End>,
) -> Result<(TextOutput, Work), GenerateError> {
    let mut on_event = |_: usize, event: TextEvent<'_>| match event {
        TextEvent::Piece(piece) => on_text(piece),
        TextEvent::Finished { .. } => ControlFlow::Continue(()),
    };
    let mut texts = Texts::new(
        tokenizer,
        std::slice::from_ref(request),
        std::slice::from_ref(stops),
        &mut on_event,
    );
    let (output, work) = session.answer(request, &mut |request, event| texts.event(request, event))?;
    let mut outputs = texts.outputs(std::slice::from_ref(&output))?;
    Ok((outputs.swap_remove(0), work))
}

/// The texts of all requests so far.
struct Texts<'a, 'c> {
    streams: Vec<Stream<'a>>,
    on_event: &'c mut (dyn FnMut(usize, TextEvent<'_>) -> ControlFlow<End> + 'c),
    failed: Option<(usize, DataError)>,
}

impl<'a, 'c> Texts<'a, 'c> {
    fn new(
        tokenizer: &'a Tokenizer,
        requests: &[Request],
        stops: &[StopTexts],
        on_event: &'c mut (dyn FnMut(usize, TextEvent<'_>) -> ControlFlow<End> + 'c),
    ) -> Texts<'a, 'c> {
        Texts {
            streams: requests
                .iter()
                .zip(stops)
                .map(|(request, stops)| Stream::new(tokenizer, &request.prompt_ids, stops))
                .collect(),
            on_event,
            failed: None,
        }
    }

    fn event(&mut self, request: usize, event: Event<'_>) -> ControlFlow<End> {
        let stream = &mut self.streams[request];
        match event {
            Event::Token(id) => match stream.push(id) {
                Ok(piece) => {
                    let wish = match piece.is_empty() {
                        true => ControlFlow::Continue(()),
                        false => (self.on_event)(request, TextEvent::Piece(&piece)),
                    };
                    match stream.stopped {
                        Some(_) if wish.is_continue() => ControlFlow::Break(End::Request),
                        _ => wish,
                    }
                }
                // Ids below the tokenizer's size always decode; should one not, the text ends here and says so.
                Err(source) => {
                    self.failed = Some((request, source));
                    ControlFlow::Break(End::All)
                }
            },
            Event::Finished { output, seconds } => self.finish(request, output, seconds),
        }
    }

    /// Lets out what was held back, and says that the request is over.
    fn finish(&mut self, request: usize, output: &Output, seconds: f64) -> ControlFlow<End> {
        let stream = &mut self.streams[request];
        let rest = stream.finish();
        let told = match rest.is_empty() {
            true => ControlFlow::Continue(()),
            false => (self.on_event)(request, TextEvent::Piece(&rest)),
        };
        let output = &stream.output(output);
        let wish = (self.on_event)(request, TextEvent::Finished { output, seconds });
        if told == ControlFlow::Break(End::All) {
            told
        } else {
            wish
        }
    }

    /// What all requests gave; those that ended with everything are told nothing more.
    fn outputs(mut self, outputs: &[Output]) -> Result<Vec<TextOutput>, GenerateError> {
        if let Some((request, source)) = self.failed {
            return Err(GenerateError::Text {
                whose: format!("the continuation of {}", prompt_of(request, outputs.len())),
                source,
            });
        }
        let streams = self.streams.iter_mut().zip(outputs);
        Ok(streams
            .map(|(stream, output)| {
                stream.finish();
                stream.output(output)
            })
            .collect())
    }
}

/// The text of one request so far.
struct Stream<'a> {
    decoder: StreamDecoder<'a>,
    held: Held,
    text: String,
    stopped: Option<String>,
}

impl<'a> Stream<'a> {
    /// Behind a prompt: a tokenizer that writes a word's leading space with the word leaves it out only where a text begins.
    fn new(tokenizer: &'a Tokenizer, prompt_ids: &[u32], stops: &StopTexts) -> Stream<'a> {
        let mut decoder = tokenizer.stream_text();
        for id in prompt_ids {
            // Ids that do not decode are refused before anything is generated.
            let _ = decoder.push(*id);
        }
        Stream {
            decoder,
            held: Held::new(stops.clone()),
            text: String::new(),
            stopped: None,
        }
    }

    /// The whole characters that an id lets out.
    fn push(&mut self, id: u32) -> Result<String, DataError> {
        let piece = self.decoder.push(id)?;
        Ok(self.take(&piece))
    }

    fn take(&mut self, piece: &str) -> String {
        if self.stopped.is_some() {
            return String::new();
        }
        let (out, stop) = self.held.push(piece);
        self.stopped = stop.map(String::from);
        self.text += &out;
        out
    }

    /// What was held back, with what stands for a character that never became whole.
    fn finish(&mut self) -> String {
        let last = self.decoder.finish();
        let mut out = self.take(&last);
        let rest = self.held.finish();
        self.text += &rest;
        out += &rest;
        out
    }

    fn output(&self, output: &Output) -> TextOutput {
        TextOutput {
            text: self.text.clone(),
            ids: output.ids.clone(),
            logprobs: output.logprobs.clone(),
            finish: match &self.stopped {
                Some(stop) => Finish::StopText(stop.clone()),
                None => output.finish.clone(),
            },
        }
    }
}
