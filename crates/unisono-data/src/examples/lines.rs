//! The lines of a JSONL file and the forms of their objects.

use crate::DataError;
use crate::chat::Message;
use crate::files::open_regular;
use crate::json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line that is read, in bytes.
pub const MOST_LINE: usize = 16 << 20;

/// Which fields an example has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Form {
    /// `prompt` and `response`.
    PromptResponse,
    /// `prompt` and `completion`.
    PromptCompletion,
    /// `instruction`, `output` and perhaps `input`.
    Instruction,
    /// `messages`, a list of `role` and `content`.
    Messages,
}

impl Form {
    /// The fields in words.
    pub fn name(self) -> &'static str {
        match self {
            Form::PromptResponse => "prompt/response",
            Form::PromptCompletion => "prompt/completion",
            Form::Instruction => "instruction/input/output",
            Form::Messages => "messages",
        }
    }
}

impl From<Form> for &'static str {
    fn from(form: Form) -> &'static str {
        form.name()
    }
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Pair {
        prompt: String,
        response: String,
    },
    /// An empty `input` is none.
    Instruction {
        instruction: String,
        input: String,
        output: String,
    },
    Messages(Vec<Message>),
}

/// Traces of other systems in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Traces {
    pub(super) bom: bool,
    pub(super) crlf: usize,
    pub(super) blank: usize,
}

/// Calls `see` with the number (from 1) of each line that is not blank, and its text or what is wrong with it.
pub(super) fn for_each_line(
    path: &Path,
    mut see: impl FnMut(usize, Result<&str, String>) -> Result<(), DataError>,
) -> Result<Traces, DataError> {
    let failed = |error: std::io::Error| DataError::read(path, &error);
    let mut reader = BufReader::with_capacity(1 << 16, open_regular(path)?);
    let mut traces = Traces::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let most = MOST_LINE as u64 + 2;
        if reader
            .by_ref()
            .take(most)
            .read_until(b'\n', &mut line)
            .map_err(failed)?
            == 0
        {
            break;
        }
        let ended = line.last() == Some(&b'\n');
        if ended {
            line.pop();
        }
        if line.last() == Some(&b'\r') {
            line.pop();
            traces.crlf += 1;
        }
        let mut text = line.as_slice();
        if number == 1
            && let Some(rest) = text.strip_prefix(b"\xef\xbb\xbf")
        {
            traces.bom = true;
            text = rest;
        }
        if text.len() > MOST_LINE {
            see(number, Err(format!("it is longer than {} MiB", MOST_LINE >> 20)))?;
            if !ended {
                skip_line(&mut reader).map_err(failed)?;
            }
            continue;
        }
        if text.trim_ascii().is_empty() {
            traces.blank += 1;
            continue;
        }
        match str::from_utf8(text) {
            Ok(text) => see(number, Ok(text))?,
            Err(error) => {
                let at = error.valid_up_to();
                see(
                    number,
                    Err(format!(
                        "column {}: byte {:#04x} is no part of a character; the file must be UTF-8",
                        at + 1,
                        text[at]
                    )),
                )?;
            }
        }
    }
    Ok(traces)
}

/// Reads on to the end of the line without keeping it.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                reader.consume(at + 1);
                return Ok(());
            }
            None => {
                let all = buffer.len();
                reader.consume(all);
            }
        }
    }
}

/// Reads a line's object. The error is a clause.
pub(super) fn parse(line: &str) -> Result<(Form, Record), String> {
    let first = line.trim_start().chars().next();
    if let Some(first) = first.filter(|first| *first != '{') {
        return Err(format!("it must be a JSON object {{…}}, but begins with {first:?}"));
    }
    let fields: Fields = serde_json::from_str(line).map_err(|error| json::problem_in_line(&error, line))?;
    fields.record()
}

/// The fields that are looked at; a file may have others. What is `null` is not there.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    prompt: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    completion: Option<&'a RawValue>,
    #[serde(borrow)]
    instruction: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
}

/// The fields of a message that are looked at.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

impl Fields<'_> {
    fn record(&self) -> Result<(Form, Record), String> {
        let forms = [
            (Form::PromptResponse, self.prompt.is_some() && self.response.is_some()),
            (
                Form::PromptCompletion,
                self.prompt.is_some() && self.completion.is_some(),
            ),
            (Form::Instruction, self.instruction.is_some() && self.output.is_some()),
            (Form::Messages, self.messages.is_some()),
        ];
        let mut complete = forms.iter().filter(|(_, complete)| *complete).map(|(form, _)| *form);
        let (first, second) = (complete.next(), complete.next());
        let Some(form) = first else {
            return Err(self.incomplete());
        };
        if let Some(second) = second {
            return Err(format!(
                "it has the fields of two forms, {} and {}; which one is meant?",
                form.name(),
                second.name()
            ));
        }
        let record = match form {
            Form::PromptResponse => Record::Pair {
                prompt: text("prompt", self.prompt)?,
                response: text("response", self.response)?,
            },
            Form::PromptCompletion => Record::Pair {
                prompt: text("prompt", self.prompt)?,
                response: text("completion", self.completion)?,
            },
            Form::Instruction => Record::Instruction {
                instruction: text("instruction", self.instruction)?,
                // Alpaca's own files leave it empty; others leave it out.
                input: self
                    .input
                    .map_or(Ok(String::new()), |input| text("input", Some(input)))?,
                output: text("output", self.output)?,
            },
            Form::Messages => Record::Messages(messages(self.messages)?),
        };
        Ok((form, record))
    }

    /// What is missing.
    fn incomplete(&self) -> String {
        let fields = [
            ("prompt", self.prompt),
            ("response", self.response),
            ("completion", self.completion),
            ("instruction", self.instruction),
            ("input", self.input),
            ("output", self.output),
        ];
        let has: Vec<&str> = fields
            .iter()
            .filter(|(_, is)| is.is_some())
            .map(|(name, _)| *name)
            .collect();
        let has = match has.as_slice() {
            [] => "none of these fields".to_string(),
            has => format!("only {}", has.join(", ")),
        };
        format!(
            "it needs prompt and response, prompt and completion, instruction and output, or messages, but has {has}"
        )
    }
}

/// A field's text.
fn text(name: &str, value: Option<&RawValue>) -> Result<String, String> {
    let Some(value) = value else {
        return Err(format!("{name} is missing"));
    };
    match kind(value) {
        "a text" => serde_json::from_str(value.get())
            .map_err(|error| format!("{name}: {}", json::problem_in_line(&error, value.get()))),
        kind => Err(format!("{name} must be a text, but is {kind}")),
    }
}

fn messages(value: Option<&RawValue>) -> Result<Vec<Message>, String> {
    let entries: Vec<&RawValue> = match value.map(|value| (kind(value), value)) {
        Some(("a list", value)) => {
            serde_json::from_str(value.get()).map_err(|error| json::problem_in_line(&error, value.get()))?
        }
        Some((kind, _)) => return Err(format!("messages must be a list, but is {kind}")),
        None => Vec::new(),
    };
    let mut messages = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let place = |problem: String| format!("message {}: {problem}", index + 1);
        if kind(entry) != "an object" {
            return Err(place(format!(
                "it must be an object with role and content, but is {}",
                kind(entry)
            )));
        }
        let said: Said =
            serde_json::from_str(entry.get()).map_err(|error| place(json::problem_in_line(&error, entry.get())))?;
        messages.push(Message {
            role: text("role", said.role).map_err(place)?,
            content: text("content", said.content).map_err(place)?,
        });
    }
    if !messages.iter().any(|message| message.role == "assistant") {
        return Err("no message has the role assistant, so there is nothing to learn".to_string());
    }
    Ok(messages)
}

/// What a JSON value is.
fn kind(value: &RawValue) -> &'static str {
    match value.get().bytes().next() {
        Some(b'"') => "a text",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        _ => "a number",
    }
}
