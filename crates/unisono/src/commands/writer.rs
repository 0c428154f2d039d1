//! A language model ready to write: what `generate` and `chat` begin with, from a run or from Hugging Face's files.

use super::trained::{self, HubModel, Trained};
use crate::cli::ModelArgs;
use crate::context::Context;
use crate::exit::Failure;
use unisono_data::{ChatTemplate, Message, Tokenizer};
use unisono_nn::LanguageModel;
use unisono_train::generate::Sampling;
use unisono_train::model::LiveModel;

/// Tokens that are written if nothing is said, as far as the model has positions for them.
const DEFAULT_TOKENS: usize = 300;

/// See the module.
pub struct Writer {
    /// Where it comes from: a checkpoint or a folder.
    pub source: String,
    model: LiveModel,
    /// How text becomes tokens, or why it cannot.
    tokenizer: Result<Tokenizer, String>,
    /// How tokens are chosen if nothing is said.
    pub sampling: Sampling,
    /// Tokens that end a text.
    pub eos_ids: Vec<u32>,
}

impl Writer {
    /// Loads the model that the options name.
    ///
    /// # Errors
    /// A name that is no run and no model, or one that writes no text.
    pub fn load(args: &ModelArgs, context: &Context) -> Result<Writer, Failure> {
        if let Some(name) = &args.model {
            let model = HubModel::load(name, args, context)?;
            return Ok(Writer {
                eos_ids: model.eos_ids,
                tokenizer: model.tokenizer,
                sampling: Sampling::default(),
                source: model.directory.display().to_string(),
                model: model.model,
            });
        }
        // One of both is required.
        let run = args.run.as_deref().expect("bug in unisono: neither --run nor --model");
        let trained = Trained::load(run, &args.changes, context)?;
        trained.language_model()?;
        let tokenizer = trained.tokenizer().cloned().map_err(|failure| failure.message);
        Ok(Writer {
            source: trained.checkpoint.display().to_string(),
            eos_ids: tokenizer
                .as_ref()
                .map_or(Vec::new(), |tokenizer| tokenizer.eos_ids().to_vec()),
            tokenizer,
            sampling: trained::sampling(&trained.config),
            model: trained.model,
        })
    }

    /// The model.
    pub fn model(&self) -> &dyn LanguageModel {
        // A model that writes no text was refused by `load`.
        self.model
            .as_language_model()
            .expect("bug in unisono: a writer that writes nothing")
    }

    /// How text becomes tokens.
    ///
    /// # Errors
    /// A model without a tokenizer.
    pub fn tokenizer(&self) -> Result<&Tokenizer, Failure> {
        self.tokenizer.as_ref().map_err(Failure::input)
    }

    /// Tokens that can be drawn, where they are fewer than the model's.
    pub fn vocabulary(&self) -> Option<usize> {
        self.tokenizer.as_ref().ok().map(Tokenizer::vocab_size)
    }

    /// Tokens to write behind a prompt of `prompt` tokens: as asked, or some, as far as the model has positions for them.
    pub fn new_tokens(&self, asked: Option<usize>, prompt: usize) -> usize {
        let positions = self.model().max_sequence_length();
        asked.unwrap_or_else(|| DEFAULT_TOKENS.min((positions + 1).saturating_sub(prompt)))
    }

    /// Whether the model can go on from a prompt.
    ///
    /// # Errors
    /// No tokens, too many, or ids that there are not.
    pub fn check_prompt(&self, ids: &[u32]) -> Result<(), String> {
        unisono_train::generate::check_prompt(self.model(), self.vocabulary(), ids).map_err(|error| error.to_string())
    }

    /// Whether conversations can be put into words as `template` says.
    ///
    /// # Errors
    /// A tokenizer without a chat template.
    pub fn check_template(&self, template: Template) -> Result<(), Failure> {
        match template {
            Template::QuestionAnswer => Ok(()),
            Template::Tokenizer => self.chat_template().map(|_| ()).map_err(|problem| {
                Failure::input(format!(
                    "{}: {problem}. `unisono chat --template question-answer` writes `### Question:` and `### Answer:` in its \
                     place, and `unisono generate` needs none",
                    self.source
                ))
            }),
        }
    }

    fn chat_template(&self) -> Result<ChatTemplate, String> {
        let tokenizer = self.tokenizer().map_err(|failure| failure.message)?;
        ChatTemplate::of(tokenizer).map_err(|error| error.to_string())
    }

    /// The tokens of a conversation that the model is to answer.
    ///
    /// # Errors
    /// A tokenizer without a chat template, or messages that the template refuses.
    pub fn conversation(&self, template: Template, messages: &[Message]) -> Result<Vec<u32>, String> {
        let text = match template {
            Template::QuestionAnswer => question_answer(messages)?,
            Template::Tokenizer => {
                let rendered = self.chat_template()?.render(messages, true);
                rendered.map_err(|error| error.to_string())?
            }
        };
        let tokenizer = self.tokenizer().map_err(|failure| failure.message)?;
        tokenizer.encode_prompt(&text).map_err(|error| error.to_string())
    }
}

/// How messages become a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// As the tokenizer's chat template says.
    Tokenizer,
    /// `### Question:`, the message, `### Answer:`.
    QuestionAnswer,
}

impl Template {
    /// By its name, the tokenizer's if none is given.
    ///
    /// # Errors
    /// An unknown name.
    pub fn named(name: Option<&str>) -> Result<Template, Failure> {
        match name {
            None => Ok(Template::Tokenizer),
            Some("question-answer") => Ok(Template::QuestionAnswer),
            Some(name) => Err(Failure::input(format!(
                "--template is `{name}`; question-answer is the only one by name, and without it the tokenizer's chat template \
                 is used"
            ))),
        }
    }

    /// The text that ends an answer, where it is no token.
    pub fn stop(self) -> Option<&'static str> {
        match self {
            Template::Tokenizer => None,
            Template::QuestionAnswer => Some(QUESTION),
        }
    }
}

const QUESTION: &str = "### Question:";
const ANSWER: &str = "### Answer:";

/// A conversation in the words that question-and-answer data is trained on.
fn question_answer(messages: &[Message]) -> Result<String, String> {
    let mut parts = Vec::new();
    for message in messages {
        parts.push(match message.role.as_str() {
            "system" => message.content.clone(),
            "user" => format!("{QUESTION}\n{}\n\n{ANSWER}\n", message.content),
            "assistant" => format!("{}\n\n", message.content),
            role => {
                return Err(format!(
                    "a message has the role `{role}`; system, user and assistant are known"
                ));
            }
        });
        if message.role == "system" {
            parts.push("\n\n".into());
        }
    }
    Ok(parts.concat())
}
