//! Conversations, written out by the chat template that comes with a tokenizer.
//!
//! Templates are Jinja. They are rendered by `minijinja`, set up as `transformers` sets up Jinja2: `environment.rs`.

mod environment;

use crate::{DataError, Tokenizer};
use environment::Clock;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};
use serde::Serialize;
use std::ops::Range;

pub use environment::MOST_OUTPUT;

/// Name of the one template in its environment.
const NAME: &str = "chat";
/// Longest template that is read, in bytes; real ones have some thousands.
const MOST_SOURCE: usize = 1 << 20;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// A message of a role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message {
            role: role.into(),
            content: content.into(),
        }
    }
}

/// A conversation's text and the parts of it that the assistant says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The conversation up to the end of its last assistant message.
    pub text: String,
    /// For each assistant message, in order, its bytes in `text`: from where the model begins to write to where the message ends, the token
    /// that ends a turn included.
    pub answers: Vec<Range<usize>>,
}

/// A tokenizer's chat template, ready to render.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
    pad: Option<String>,
}

impl ChatTemplate {
    /// The chat template of a tokenizer: the one named `default`, else the only one.
    ///
    /// `strftime_now` gives a fixed day, 26 July 2024 (the one that Llama 3's template falls back on), so that training data are the same
    /// bytes every day; [`at`](Self::at) sets the clock.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`]: there is none, there are several and none is the default, or it is no valid template.
    pub fn of(tokenizer: &Tokenizer) -> Result<Self, DataError> {
        let names: Vec<&str> = tokenizer
            .hf()
            .map_or(Vec::new(), |hf| hf.chat_template_names().collect());
        let name = match names.as_slice() {
            [] => {
                return Err(DataError::ChatTemplate {
                    problem: "is missing: the tokenizer has none in tokenizer_config.json or chat_template.jinja; use \
                              another template, or a tokenizer of a chat model"
                        .to_string(),
                });
            }
            [only] => only,
            several => several
                .iter()
                .find(|name| **name == "default")
                .ok_or_else(|| DataError::ChatTemplate {
                    problem: format!(
                        "is ambiguous: the tokenizer has {} and none is named default",
                        several.join(", ")
                    ),
                })?,
        };
        let source = tokenizer.hf().and_then(|hf| hf.chat_template(name)).unwrap_or_default();
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.token_of(id));
        Self::new(
            source,
            token(tokenizer.bos()),
            token(tokenizer.eos_ids().first().copied()),
            token(tokenizer.pad()),
        )
    }

    /// A template from its source and the tokens that it may write.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`] for a source that cannot be parsed, with the line.
    pub fn new(source: &str, bos: Option<String>, eos: Option<String>, pad: Option<String>) -> Result<Self, DataError> {
        if source.len() > MOST_SOURCE {
            return Err(DataError::ChatTemplate {
                problem: format!("has {} bytes, and at most {MOST_SOURCE} are read", source.len()),
            });
        }
        let mut environment = environment::new(Clock::FIXED);
        environment
            .add_template_owned(NAME, environment::without_generation_tags(source))
            .map_err(|error| problem("cannot be parsed", &error))?;
        Ok(ChatTemplate {
            environment,
            bos,
            eos,
            pad,
        })
    }

    /// The same template with the clock set to a time, in seconds since 1970 (UTC).
    #[must_use]
    pub fn at(mut self, seconds: u64) -> Self {
        environment::set_clock(&mut self.environment, Clock(seconds));
        self
    }

    /// Writes a conversation out; with `add_generation_prompt` also what stands before the assistant's next message.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`]: the template refuses the conversation, fails, or does not end; with its line.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, DataError> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| problem("cannot be parsed", &error))?;
        // What is not there is undefined in the template, and written as nothing.
        let token = |token: &Option<String>| token.as_deref().map_or(Value::UNDEFINED, Value::from);
        let context = context! {
            messages => messages,
            add_generation_prompt => add_generation_prompt,
            bos_token => token(&self.bos),
            eos_token => token(&self.eos),
            pad_token => token(&self.pad),
            tools => (),
            documents => (),
        };
        let mut output = environment::Limited::default();
        match template.render_captured_to(context, &mut output) {
            Ok(_) => Ok(output.text()),
            Err(error) => Err(problem("fails", &error)),
        }
    }

    /// Writes out a conversation for training, up to its last assistant message, and says what the assistant's part is.
    ///
    /// Message by message, the part is what rendering with the message adds to rendering up to it with the generation prompt. So the
    /// rendering up to a message must be the beginning of the rendering with it. A template that writes earlier messages differently
    /// once there are later ones (as some do that take reasoning out of earlier answers) fits no such conversation.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`]: as [`render`](Self::render); no assistant message; a message, named, that changes what was written before it.
    pub fn render_for_training(&self, messages: &[Message]) -> Result<Rendered, DataError> {
        let mut rendered = Rendered {
            text: String::new(),
            answers: Vec::new(),
        };
        let unstable = |index: usize, what: &str| DataError::ChatTemplate {
            problem: format!(
                "writes {what} differently once message {} ({}) is there, so the answer's tokens cannot be told apart; use \
                 conversations with one answer, or another template",
                index + 1,
                messages[index].role
            ),
        };
        for (index, message) in messages.iter().enumerate() {
            if message.role != "assistant" {
                continue;
            }
            let before = self.render(&messages[..index], true)?;
            let with = self.render(&messages[..=index], false)?;
            if !before.starts_with(&rendered.text) {
                return Err(unstable(index, "earlier messages"));
            }
            if !with.starts_with(&before) {
                return Err(unstable(index, "the prompt"));
            }
            rendered.answers.push(before.len()..with.len());
            rendered.text = with;
        }
        if rendered.answers.is_empty() {
            return Err(DataError::ChatTemplate {
                problem: "has nothing to train on: no message has the role assistant".to_string(),
            });
        }
        Ok(rendered)
    }
}

/// An error of the template engine in our words.
fn problem(what: &str, error: &Error) -> DataError {
    let at = error.line().map_or(String::new(), |line| format!(" at line {line}"));
    let problem = match error.kind() {
        ErrorKind::OutOfFuel => format!(
            "was stopped{at}: it has not ended after {} steps",
            environment::MOST_STEPS
        ),
        ErrorKind::WriteFailure => format!("was stopped{at}: it writes more than {MOST_OUTPUT} bytes"),
        _ => match error.detail() {
            Some(detail) => format!("{what}{at}: {detail}"),
            None => format!("{what}{at}: {}", error.kind()),
        },
    };
    DataError::ChatTemplate { problem }
}
