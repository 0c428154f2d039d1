//! Text in, text out: prompts through the tokenizer, new tokens as whole characters.

use super::error::prompt_of;
use super::{Batching, End, Finish, GenerateError, Request, Sampling, generate_with};
use std::ops::ControlFlow;
use unisono_data::{StreamDecoder, Tokenizer};
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextOutput {
    /// The text after the prompt.
    pub text: String,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Why there is no more.
    pub finish: Finish,
}

/// Continues every prompt. `on_text` sees each piece of text as it comes, always whole characters, with the index of its
/// request; the pieces of a request make its [`TextOutput::text`].
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
                prompt_ids: tokenizer.encode(&request.prompt).map_err(text)?,
                max_new_tokens: request.max_new_tokens,
                sampling: request.sampling,
                stop_ids: Vec::new(),
            })
        })
        .collect::<Result<Vec<_>, GenerateError>>()?;
    let batching = Batching {
        vocabulary: Some(tokenizer.vocab_size()),
        ..Batching::default()
    };
    let mut streams: Vec<Stream<'_>> = requests.iter().map(|_| Stream::new(tokenizer)).collect();
    let mut failed = None;
    let outputs = generate_with(model, &requests, &batching, &mut |request, id| {
        match streams[request].push(id) {
            Ok("") => ControlFlow::Continue(()),
            Ok(piece) => on_text(request, piece),
            // Ids below the tokenizer's size always decode; should one not, the text ends here and says so.
            Err(source) => {
                failed = Some((request, source));
                ControlFlow::Break(End::All)
            }
        }
    })?;
    if let Some((request, source)) = failed {
        return Err(GenerateError::Text {
            whose: format!("the continuation of {}", prompt_of(request, requests.len())),
            source,
        });
    }
    let mut results = Vec::with_capacity(outputs.len());
    for (request, (output, mut stream)) in outputs.into_iter().zip(streams).enumerate() {
        let rest = stream.finish();
        if !rest.is_empty() {
            // Everything is over; there is nothing left to end.
            let _ = on_text(request, rest);
        }
        results.push(TextOutput {
            text: stream.text,
            ids: output.ids,
            finish: output.finish,
        });
    }
    Ok(results)
}

/// The text of one request so far.
struct Stream<'a> {
    decoder: StreamDecoder<'a>,
    text: String,
}

impl<'a> Stream<'a> {
    fn new(tokenizer: &'a Tokenizer) -> Stream<'a> {
        Stream {
            decoder: tokenizer.stream(),
            text: String::new(),
        }
    }

    /// The whole characters that an id completes.
    fn push(&mut self, id: u32) -> Result<&str, unisono_data::DataError> {
        let from = self.text.len();
        self.text += &self.decoder.push(id)?;
        Ok(&self.text[from..])
    }

    /// What stands for a character that never became whole.
    fn finish(&mut self) -> &str {
        let from = self.text.len();
        self.text += &self.decoder.finish();
        &self.text[from..]
    }
}
