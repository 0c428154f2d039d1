//! Examples for fine-tuning: prompts with answers, from a JSONL file.
//!
//! ```text
//! line ─ form ─▶ record ─ template ─▶ text, answer's part ─ tokenizer ─▶ ids, answer's part
//! ```
//!
//! The loss is on the answers' tokens and on the EOS after the last of them. What is no answer is masked by its position, never by its id, so
//! that a padding token that is also the EOS does no harm.

mod batches;
mod lines;
mod report;
mod template;

pub use batches::ExampleBatches;
pub use lines::{Form, MOST_LINE};
pub use report::{Duplicate, Lengths, Problem, Report};
pub use template::Template;

use crate::batch::IGNORE;
use crate::chat::{ChatTemplate, Rendered};
use crate::{DataError, Tokenizer};
use lines::Record;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

/// Examples in memory, tokenised.
#[derive(Debug, Clone, Default)]
pub struct Examples {
    examples: Vec<Stored>,
    vocab_size: usize,
}

#[derive(Debug, Clone)]
struct Stored {
    ids: Vec<u32>,
    answers: Vec<Range<usize>>,
    line: usize,
    question: String,
    prompt: String,
    reference: String,
}

/// One example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example<'a> {
    /// Its tokens, from BOS (where the tokenizer has one) to EOS.
    pub ids: &'a [u32],
    /// The positions in `ids` that the loss is on, in order; an example that is no conversation has one range. All lie within `ids`,
    /// and none may be left once an example is cut.
    pub answers: &'a [Range<usize>],
    /// Its line in the file, from 1.
    pub line: usize,
    /// What was asked last, as the file says it.
    pub question: &'a str,
    /// The text before the last answer, as the template writes it: what a model is given to answer.
    pub prompt: &'a str,
    /// The last answer, as the file says it.
    pub reference: &'a str,
}

impl Stored {
    fn example(&self) -> Example<'_> {
        Example {
            ids: &self.ids,
            answers: &self.answers,
            line: self.line,
            question: &self.question,
            prompt: &self.prompt,
            reference: &self.reference,
        }
    }
}

impl Example<'_> {
    /// Tokens that the loss is on. (The very first token of a sequence is predicted from nothing and is none.)
    pub fn num_targets(&self) -> usize {
        self.answers
            .iter()
            .map(|answer| answer.end - answer.start.max(1).min(answer.end))
            .sum()
    }

    /// Writes inputs and targets, each of one length, at least that of the example less one: the tokens, and at each the one that follows
    /// where the loss is on it. All else is 0 and [`IGNORE`].
    fn fill(&self, inputs: &mut [u32], targets: &mut [u32]) {
        let len = self.ids.len().saturating_sub(1);
        inputs[..len].copy_from_slice(&self.ids[..len]);
        inputs[len..].fill(0);
        targets.fill(IGNORE);
        for answer in self.answers {
            for position in answer.clone().filter(|position| *position > 0) {
                targets[position - 1] = self.ids[position];
            }
        }
    }
}

impl Examples {
    /// Reads a file for training. Examples longer than `max_sequence_length` tokens are cut at their end.
    ///
    /// # Errors
    /// [`DataError::Read`]; [`DataError::Examples`] if any line cannot be used (naming the first ten) or no example has a target;
    /// [`DataError::ChatTemplate`]; [`DataError::Argument`] for a length below 2.
    pub fn load(
        path: &Path,
        tokenizer: &Tokenizer,
        template: &Template,
        max_sequence_length: usize,
    ) -> Result<(Examples, Report), DataError> {
        let (examples, report) = Self::check(path, Some(tokenizer), template, max_sequence_length)?;
        match report.obstacle() {
            None => Ok((examples, report)),
            Some(problem) => Err(DataError::Examples {
                path: path.display().to_string(),
                problem,
            }),
        }
    }

    /// Reads a file and reports on it, whatever its lines are. Without a tokenizer a token is a byte, and a conversation is its contents one
    /// after the other.
    ///
    /// # Errors
    /// [`DataError::Read`]; [`DataError::ChatTemplate`] when one is needed and there is none; [`DataError::Argument`] for a length below 2.
    pub fn check(
        path: &Path,
        tokenizer: Option<&Tokenizer>,
        template: &Template,
        max_sequence_length: usize,
    ) -> Result<(Examples, Report), DataError> {
        if max_sequence_length < 2 {
            return Err(DataError::Argument {
                what: "the longest sequence length",
                given: max_sequence_length.to_string(),
                rule: "it must be at least 2: a token is predicted from those before it",
            });
        }
        let mut reader = Reader {
            tokenizer,
            template,
            chat: None,
            most: max_sequence_length,
            examples: Vec::new(),
            lengths: Vec::new(),
            seen: HashMap::new(),
            report: Report::default(),
        };
        if tokenizer.is_some() && *template == Template::Chat {
            reader.need_chat()?;
        }
        let traces = lines::for_each_line(path, |number, line| {
            reader.report.lines += 1;
            let parsed = line.and_then(lines::parse);
            match parsed {
                Ok((form, record)) => reader.add(number, form, &record),
                Err(problem) => {
                    reader.problem(number, problem);
                    Ok(())
                }
            }
        })?;
        let mut report = reader.report;
        (report.bom, report.crlf, report.blank) = (traces.bom, traces.crlf, traces.blank);
        report.lengths = Lengths::of(reader.lengths);
        let examples = Examples {
            examples: reader.examples,
            vocab_size: tokenizer.map_or(256, Tokenizer::vocab_size),
        };
        Ok((examples, report))
    }

    /// The examples but the last `kept`, and these.
    pub fn split(mut self, kept: usize) -> (Examples, Examples) {
        let at = self.examples.len().saturating_sub(kept);
        let last = Examples {
            examples: self.examples.split_off(at),
            vocab_size: self.vocab_size,
        };
        (self, last)
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.examples.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.examples.is_empty()
    }

    /// An example, by its place from 0.
    pub fn get(&self, index: usize) -> Option<Example<'_>> {
        self.examples.get(index).map(Stored::example)
    }

    /// All examples, in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = Example<'_>> {
        self.examples.iter().map(Stored::example)
    }

    /// Tokens of the longest example, after cutting.
    pub fn longest(&self) -> usize {
        self.examples.iter().map(|example| example.ids.len()).max().unwrap_or(0)
    }

    /// The vocabulary size of the tokenizer; all ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// A hash of tokens and masks, to tell whether two runs saw the same.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for example in &self.examples {
            let mut numbers = vec![example.ids.len() as u64, example.answers.len() as u64];
            numbers.extend(
                example
                    .answers
                    .iter()
                    .flat_map(|answer| [answer.start as u64, answer.end as u64]),
            );
            for number in numbers {
                hasher.update(&number.to_le_bytes());
            }
            for id in &example.ids {
                hasher.update(&id.to_le_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// A file being read.
struct Reader<'a> {
    tokenizer: Option<&'a Tokenizer>,
    template: &'a Template,
    /// Made when the first example needs it.
    chat: Option<ChatTemplate>,
    most: usize,
    examples: Vec<Stored>,
    lengths: Vec<usize>,
    /// Lines by a hash of their text.
    seen: HashMap<[u8; 32], usize>,
    report: Report,
}

impl Reader<'_> {
    fn problem(&mut self, line: usize, problem: String) {
        self.report.problems.push(Problem { line, problem });
    }

    fn need_chat(&mut self) -> Result<(), DataError> {
        if let (Some(tokenizer), None) = (self.tokenizer, &self.chat) {
            self.chat = Some(ChatTemplate::of(tokenizer)?);
        }
        Ok(())
    }

    /// Adds a line's example, or a problem of it. An error is one of the whole file.
    fn add(&mut self, line: usize, form: Form, record: &Record) -> Result<(), DataError> {
        *self.report.forms.entry(form).or_default() += 1;
        let is_chat = self.template.of(record) == Template::Chat;
        if is_chat {
            self.need_chat()?;
        }
        let rendered = match (self.tokenizer, is_chat) {
            (None, true) => Ok(contents(record)),
            _ => self.template.render(record, self.chat.as_ref()),
        };
        let made = rendered.and_then(|rendered| {
            let tokenizer = self.tokenizer.unwrap_or(&Tokenizer::Byte);
            let (ids, answers) = tokenise(tokenizer, &rendered)?;
            Ok((rendered, ids, answers))
        });
        let (rendered, mut ids, mut answers) = match made {
            Ok(made) => made,
            Err(error) => {
                self.problem(line, error.to_string());
                return Ok(());
            }
        };
        let hash = *blake3::hash(rendered.text.as_bytes()).as_bytes();
        match self.seen.get(&hash) {
            Some(&first) => self.report.duplicates.push(Duplicate { line, first }),
            None => {
                self.seen.insert(hash, line);
            }
        }
        self.lengths.push(ids.len());
        if ids.len() > self.most {
            self.report.truncated.push(line);
            ids.truncate(self.most);
            answers.retain_mut(|answer| {
                answer.end = answer.end.min(self.most);
                answer.start < answer.end
            });
        }
        let (question, reference) = last(record);
        if reference.trim().is_empty() {
            self.report.empty_answers.push(line);
        }
        let prompt = rendered
            .answers
            .last()
            .map_or("", |answer| &rendered.text[..answer.start]);
        let stored = Stored {
            ids,
            answers,
            line,
            question,
            prompt: prompt.to_string(),
            reference,
        };
        self.report.examples += 1;
        self.report.tokens += stored.ids.len() as u64;
        let targets = stored.example().num_targets();
        self.examples.push(stored);
        self.report.targets += targets as u64;
        if targets == 0 {
            self.report.all_masked.push(line);
        }
        Ok(())
    }
}

/// The tokens of a text and the positions of its answers among them. EOS comes after the last answer, unless that has one in it already
/// (as chat templates write it).
fn tokenise(tokenizer: &Tokenizer, rendered: &Rendered) -> Result<(Vec<u32>, Vec<Range<usize>>), DataError> {
    let text = rendered.text.as_str();
    let start = rendered.answers.first().map_or(text.len(), |answer| answer.start);
    let mut ids = tokenizer.encode_prompt(&text[..start])?;
    let mut answers = Vec::with_capacity(rendered.answers.len());
    let mut end = start;
    for answer in &rendered.answers {
        // What others say between two answers.
        if end < answer.start {
            let between = tokenizer.encode_after(&text[..end], &ids, &text[end..answer.start])?;
            ids.extend(between);
        }
        let from = ids.len();
        let said = tokenizer.encode_after(&text[..answer.start], &ids, &text[answer.clone()])?;
        ids.extend(said);
        answers.push(from..ids.len());
        end = answer.end;
    }
    if let (Some(answer), Some(&eos)) = (answers.last_mut(), tokenizer.eos_ids().first())
        && !ids[answer.clone()].iter().any(|id| tokenizer.eos_ids().contains(id))
    {
        ids.push(eos);
        answer.end = ids.len();
    }
    Ok((ids, answers))
}

/// A conversation without any template.
fn contents(record: &Record) -> Rendered {
    let mut rendered = Rendered {
        text: String::new(),
        answers: Vec::new(),
    };
    for message in &template::conversation(record) {
        let start = rendered.text.len();
        rendered.text += &message.content;
        if message.role == "assistant" {
            rendered.answers.push(start..rendered.text.len());
        }
    }
    rendered
}

/// What is asked last and how it is answered.
fn last(record: &Record) -> (String, String) {
    let messages = template::conversation(record);
    let answer = messages.iter().rposition(|message| message.role == "assistant");
    let before = &messages[..answer.unwrap_or(0)];
    let question = before.iter().rfind(|message| message.role == "user");
    let content = |message: &crate::Message| message.content.clone();
    (
        question.map(content).unwrap_or_default(),
        answer.map(|index| content(&messages[index])).unwrap_or_default(),
    )
}
