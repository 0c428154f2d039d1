//! How a prompt and its answer become one text.

use super::lines::Record;
use crate::DataError;
use crate::chat::{ChatTemplate, Message, Rendered};

/// How an example becomes a text; the answer is what the model learns to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Template {
    /// By the example's fields: `messages` by [`Chat`](Self::Chat), `instruction` by [`Alpaca`](Self::Alpaca), the others by
    /// [`QuestionAnswer`](Self::QuestionAnswer).
    #[default]
    Auto,
    /// `### Question:\n{prompt}\n\n### Answer:\n{response}`.
    QuestionAnswer,
    /// Stanford Alpaca's, of instruction and response, with or without an input.
    Alpaca,
    /// `{prompt}{response}`.
    Plain,
    /// The tokenizer's chat template; a prompt is the user's message, a response the assistant's.
    Chat,
    /// A text of one's own.
    Own {
        /// Before the prompt.
        before: String,
        /// Between prompt and response; the answer begins after it.
        between: String,
        /// After the response; a part of the answer.
        after: String,
    },
}

/// The named ones and their names.
const NAMES: [(&str, Template); 6] = [
    ("auto", Template::Auto),
    ("question-answer", Template::QuestionAnswer),
    ("lesson", Template::QuestionAnswer),
    ("alpaca", Template::Alpaca),
    ("plain", Template::Plain),
    ("chat", Template::Chat),
];

/// The places in a template of one's own.
const PROMPT: &str = "{prompt}";
const RESPONSE: &str = "{response}";

impl Template {
    /// A template by its name (`auto`, `question-answer` or `lesson`, `alpaca`, `plain`, `chat`), or a text with `{prompt}` and after it
    /// `{response}`, each once. Everything else in the text stands for itself.
    ///
    /// # Errors
    /// [`DataError::Template`].
    pub fn parse(text: &str) -> Result<Template, DataError> {
        if let Some((_, template)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(template.clone());
        }
        let refused = |problem: &str| {
            Err(DataError::Template {
                template: text.chars().take(200).collect(),
                problem: problem.to_string(),
            })
        };
        match (text.matches(PROMPT).count(), text.matches(RESPONSE).count()) {
            (0, 0) => refused(
                "is unknown; there are auto, question-answer (also called lesson), alpaca, plain, chat, or a text of your own with {prompt} \
                 and {response}",
            ),
            (1, 1) => {
                // Both are there, once each.
                let (prompt, response) = (text.find(PROMPT).unwrap_or(0), text.find(RESPONSE).unwrap_or(0));
                if response < prompt {
                    return refused("has {response} before {prompt}; a model writes the response after the prompt");
                }
                Ok(Template::Own {
                    before: text[..prompt].to_string(),
                    between: text[prompt + PROMPT.len()..response].to_string(),
                    after: text[response + RESPONSE.len()..].to_string(),
                })
            }
            _ => refused("must have {prompt} once and {response} once"),
        }
    }

    /// The name, or the text of one's own; [`parse`](Self::parse) reads it.
    pub fn text(&self) -> String {
        match self {
            Template::Own { before, between, after } => format!("{before}{PROMPT}{between}{RESPONSE}{after}"),
            named => {
                let name = NAMES.iter().find(|(_, template)| template == named);
                name.map_or(String::new(), |(name, _)| (*name).to_string())
            }
        }
    }

    /// The template that [`Auto`](Self::Auto) stands for.
    pub(super) fn of(&self, record: &Record) -> Template {
        match (self, record) {
            (Template::Auto, Record::Messages(_)) => Template::Chat,
            (Template::Auto, Record::Instruction { .. }) => Template::Alpaca,
            (Template::Auto, Record::Pair { .. }) => Template::QuestionAnswer,
            (template, _) => template.clone(),
        }
    }

    /// The prompt of a question that is asked without an answer, as the model has seen it in training; a chat's comes from `chat`.
    ///
    /// # Errors
    /// [`DataError::ChatTemplate`] where the template is [`Chat`](Self::Chat): there is none, or it refuses the message.
    pub fn prompt(&self, question: &str, chat: Option<&ChatTemplate>) -> Result<String, DataError> {
        match self {
            Template::Chat => need(chat)?.render(&[Message::new("user", question)], true),
            template => Ok(template.frame(question, "").0),
        }
    }

    /// An example's text, and which part of it is the answer.
    pub(super) fn render(&self, record: &Record, chat: Option<&ChatTemplate>) -> Result<Rendered, DataError> {
        let template = self.of(record);
        if template == Template::Chat {
            return need(chat)?.render_for_training(&conversation(record));
        }
        let (prompt, input, response) = parts(record)?;
        let (before, after) = template.frame(&prompt, &input);
        let start = before.len();
        let text = before + &response + &after;
        let answer = start..text.len();
        Ok(Rendered {
            text,
            answers: vec![answer],
        })
    }

    /// What stands before and after the response.
    fn frame(&self, prompt: &str, input: &str) -> (String, String) {
        let joined = match input.is_empty() {
            true => prompt.to_string(),
            false => format!("{prompt}\n\n{input}"),
        };
        let before = match self {
            Template::Alpaca if input.is_empty() => format!(
                "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n\
                 ### Instruction:\n{prompt}\n\n### Response:\n"
            ),
            Template::Alpaca => format!(
                "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that \
                 appropriately completes the request.\n\n### Instruction:\n{prompt}\n\n### Input:\n{input}\n\n### Response:\n"
            ),
            Template::Plain => joined,
            Template::Own { before, between, after } => {
                return (format!("{before}{joined}{between}"), after.clone());
            }
            Template::QuestionAnswer | Template::Auto | Template::Chat => {
                format!("### Question:\n{joined}\n\n### Answer:\n")
            }
        };
        (before, String::new())
    }
}

fn need(chat: Option<&ChatTemplate>) -> Result<&ChatTemplate, DataError> {
    chat.ok_or_else(|| DataError::ChatTemplate {
        problem: "is missing: the tokenizer has none".to_string(),
    })
}

/// Prompt, input and response of an example that is one question and one answer.
fn parts(record: &Record) -> Result<(String, String, String), DataError> {
    match record {
        Record::Pair { prompt, response } => Ok((prompt.clone(), String::new(), response.clone())),
        Record::Instruction {
            instruction,
            input,
            output,
        } => Ok((instruction.clone(), input.clone(), output.clone())),
        Record::Messages(messages) => match messages.as_slice() {
            [user, assistant] if user.role == "user" && assistant.role == "assistant" => {
                Ok((user.content.clone(), String::new(), assistant.content.clone()))
            }
            _ => Err(DataError::Template {
                template: "chat".to_string(),
                problem: format!(
                    "is needed for a conversation of {} messages; the others take one of the user and one of the assistant",
                    messages.len()
                ),
            }),
        },
    }
}

/// An example as a conversation.
pub(super) fn conversation(record: &Record) -> Vec<Message> {
    match record {
        Record::Messages(messages) => messages.clone(),
        Record::Pair { prompt, response } => {
            vec![Message::new("user", prompt), Message::new("assistant", response)]
        }
        Record::Instruction {
            instruction,
            input,
            output,
        } => {
            let question = match input.is_empty() {
                true => instruction.clone(),
                false => format!("{instruction}\n\n{input}"),
            };
            vec![Message::new("user", question), Message::new("assistant", output)]
        }
    }
}
