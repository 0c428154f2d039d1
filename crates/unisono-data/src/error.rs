//! The one error type of this crate.

use std::io;
use std::path::Path;

/// What can go wrong between a file and a batch. Each text states what was found, the rule, and what would work.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DataError {
    /// A file could not be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: String,
        /// Why, in words.
        reason: String,
    },
    /// A file could not be written. An older file of that name is as it was.
    #[error("cannot write {path}: {reason}")]
    Write {
        /// The file.
        path: String,
        /// Why, in words.
        reason: String,
    },
    /// A text file without text.
    #[error(
        "{path} is empty: it has 0 tokens, and at least 2 are needed, since each is predicted from those before it"
    )]
    EmptyText {
        /// The file.
        path: String,
    },
    /// A text file that is not UTF-8.
    #[error("{path} is not UTF-8 text: byte {byte:#04x} at offset {offset} (line {line}) {hint}")]
    NotUtf8 {
        /// The file.
        path: String,
        /// Offset of the first bad byte in the file, from 0.
        offset: usize,
        /// The first bad byte.
        byte: u8,
        /// Its line, from 1.
        line: usize,
        /// What to do about it.
        hint: String,
    },
    /// A character that the vocabulary does not have.
    #[error(
        "the character {character:?} (U+{code:04X}) at character {position} (byte {byte}) is not in the vocabulary, which has {num_known} characters: {known}"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its code point.
        code: u32,
        /// Its place in the text in characters, from 0.
        position: usize,
        /// Its place in the text in bytes, from 0.
        byte: usize,
        /// Size of the vocabulary.
        num_known: usize,
        /// The vocabulary as text, or its beginning.
        known: String,
    },
    /// A token id that the vocabulary does not have.
    #[error("token id {id} at position {position} of {place} is outside the vocabulary of {vocab_size} (ids 0 to {})", .vocab_size.saturating_sub(1))]
    TokenOutOfRange {
        /// The id.
        id: u64,
        /// Its place among the tokens, from 0.
        position: usize,
        /// What holds the tokens.
        place: String,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A vocabulary that cannot be used.
    #[error("{place} holds no usable vocabulary: {problem}")]
    Vocabulary {
        /// File or text that should hold it.
        place: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A `tokenizer.json`, or a file beside it, that cannot be used.
    #[error("{place} is no usable tokenizer: {problem}")]
    Tokenizer {
        /// The file.
        place: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A text that a `tokenizer.json` cannot encode.
    #[error("the tokenizer cannot encode the text: {problem}")]
    Encode {
        /// Why, in words.
        problem: String,
    },
    /// A chat template that is broken, or that refuses a conversation.
    #[error("the chat template {problem}")]
    ChatTemplate {
        /// What is wrong, with the template's line where it is known.
        problem: String,
    },
    /// A template for prompts and responses that cannot be used.
    #[error("the template {template:?} {problem}")]
    Template {
        /// The template.
        template: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A file of examples that cannot be trained on.
    #[error("{path} {problem}")]
    Examples {
        /// The file.
        path: String,
        /// What is wrong, with lines.
        problem: String,
    },
    /// A token file that cannot be used.
    #[error("{path} is no usable token file: {problem}")]
    TokenFile {
        /// The file.
        path: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// Fewer training tokens than one window needs.
    #[error(
        "the training data has {}, but a sequence of {seq_len} needs {needed} (its targets lie one token further); use more text{}", tokens(*.had), shorter(*.had)
    )]
    TooShort {
        /// The tokens there are.
        had: usize,
        /// The tokens needed.
        needed: usize,
        /// The sequence length asked for.
        seq_len: usize,
    },
    /// Tokens to evaluate on, without anything to predict.
    #[error(
        "the text to predict has {}, but at least 2 are needed: each token is predicted from those before it; use a longer text", tokens(*.had)
    )]
    TooShortToPredict {
        /// The tokens there are.
        had: usize,
    },
    /// A split that leaves nothing to one side.
    #[error(
        "a validation fraction of {fraction} cuts {total} tokens into {train} for training and {validation} for validation; {rule}"
    )]
    Split {
        /// The fraction asked for.
        fraction: f64,
        /// All tokens.
        total: usize,
        /// Tokens for training.
        train: usize,
        /// Tokens for validation.
        validation: usize,
        /// The rule and what would work.
        rule: String,
    },
    /// A number that makes no sense for what it is given to.
    #[error("{what} is {given}; {rule}")]
    Argument {
        /// What the number is for.
        what: &'static str,
        /// What was given.
        given: String,
        /// The rule.
        rule: &'static str,
    },
    /// The thread that prepares batches ended.
    #[error("preparing batch {batch} failed: {reason}")]
    Prefetch {
        /// The number of the batch, from 0.
        batch: u64,
        /// Why, in words.
        reason: String,
    },
    /// A safetensors file that is broken as a whole.
    #[error("{path} is no usable safetensors file: {problem}")]
    WeightFile {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A tensor in a safetensors file that is broken, missing or of the wrong kind.
    #[error("the tensor {tensor:?} in {path} {problem}")]
    Tensor {
        /// The file.
        path: String,
        /// The tensor.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
}

impl DataError {
    /// An error of reading, with the system's words made plainer where that is possible.
    pub fn read(path: &Path, error: &io::Error) -> Self {
        DataError::Read {
            path: shown(path),
            reason: reason(error),
        }
    }

    /// An error of writing, likewise.
    pub fn write(path: &Path, error: &io::Error) -> Self {
        DataError::Write {
            path: shown(path),
            reason: reason(error),
        }
    }
}

/// A path, an empty one too, which is the current directory.
fn shown(path: &Path) -> String {
    match path.as_os_str().is_empty() {
        true => "the current directory (.)".to_string(),
        false => path.display().to_string(),
    }
}

/// `1 token`, `5 tokens`.
fn tokens(count: usize) -> String {
    format!("{count} token{}", if count == 1 { "" } else { "s" })
}

/// The other way out of too few tokens, where there is one.
fn shorter(had: usize) -> String {
    match had {
        0 | 1 => String::new(),
        _ => format!(" or a sequence length of at most {}", had - 1),
    }
}

/// An operating system's error as a clause that says what to do where that is known.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".to_string(),
        io::ErrorKind::PermissionDenied => "permission denied; check its owner and mode".to_string(),
        io::ErrorKind::IsADirectory => "it is a directory; name a file".to_string(),
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a directory".to_string(),
        io::ErrorKind::StorageFull => "the disk is full".to_string(),
        io::ErrorKind::FileTooLarge => {
            "it would be larger than a file may be here (`ulimit -f` shows the limit, `ulimit -f unlimited` lifts it)"
                .to_string()
        }
        io::ErrorKind::QuotaExceeded => "the disk quota is used up".to_string(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_string(),
        _ => error.to_string(),
    }
}
