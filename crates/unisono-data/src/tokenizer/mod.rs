//! Between text and token ids: one id per character, one per byte, or the tokens of a Hugging Face `tokenizer.json`.
//!
//! `characters`: the vocabulary of a character tokenizer; `hf`: `tokenizer.json`; `settings`: what the files beside it say;
//! `pieces`: how its tokens become text; `stream`: decoding one id at a time; `bpe`: training a
//! byte-level BPE.

mod bpe;
mod characters;
mod hf;
mod pieces;
mod settings;
mod stream;

pub use bpe::{BpeOptions, END_OF_TEXT, train_bpe};
pub use characters::CharVocabulary;
pub use hf::HfTokenizer;
pub use stream::StreamDecoder;

use crate::files::read_regular;
use crate::{DataError, atomic_write, json};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// How text becomes token ids.
///
/// `Char` and `Byte` read back exactly: decoding what was encoded gives the text. So do byte-level `tokenizer.json`s; others may
/// normalise text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokenizer {
    /// One id per character of a vocabulary that is sorted by code point.
    Char(CharVocabulary),
    /// One id per byte of UTF-8: 256 ids, any text.
    Byte,
    /// A `tokenizer.json` of Hugging Face.
    Hf(HfTokenizer),
}

/// The file form: `{"type": "char", "characters": ["\n", " ", "a"]}` or `{"type": "byte"}`.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Stored {
    Char { characters: Vec<char> },
    Byte {},
}

impl Tokenizer {
    /// A character tokenizer for exactly the characters of a text.
    ///
    /// # Errors
    /// [`DataError::Vocabulary`] for an empty text.
    pub fn char_from_text(text: &str) -> Result<Self, DataError> {
        CharVocabulary::of_text(text).map(Tokenizer::Char)
    }

    /// The number of ids: the largest and one. (A `tokenizer.json` may leave ids out.)
    pub fn vocab_size(&self) -> usize {
        match self {
            Tokenizer::Char(vocabulary) => vocabulary.characters.len(),
            Tokenizer::Byte => 256,
            Tokenizer::Hf(tokenizer) => tokenizer.vocab_size(),
        }
    }

    /// The name of the kind: `char`, `byte`, or for a `tokenizer.json` that of its model: `BPE`, `Unigram`, `WordPiece`, `WordLevel`.
    pub fn kind(&self) -> &'static str {
        match self {
            Tokenizer::Char(_) => "char",
            Tokenizer::Byte => "byte",
            Tokenizer::Hf(tokenizer) => tokenizer.model(),
        }
    }

    /// The ids of a text, without special tokens around it. (Special tokens that the text itself spells out, such as `<|endoftext|>`,
    /// are found in it.)
    ///
    /// # Errors
    /// [`DataError::UnknownCharacter`] for the first character that the vocabulary does not have; [`DataError::Encode`].
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match self {
            Tokenizer::Char(vocabulary) => vocabulary.encode(text),
            Tokenizer::Byte => Ok(text.bytes().map(u32::from).collect()),
            Tokenizer::Hf(tokenizer) => tokenizer.encode(text),
        }
    }

    /// The ids of a text that a model is to go on from: begins with BOS exactly once where the tokenizer adds one (also where the text
    /// spells it out already), and never has an EOS added.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match self {
            Tokenizer::Char(_) | Tokenizer::Byte => self.encode(text),
            Tokenizer::Hf(tokenizer) => Ok(tokenizer.with_prefix(tokenizer.encode(text)?)),
        }
    }

    /// The ids of a prompt, as [`encode_prompt`](Self::encode_prompt) gives them, and the ids of the answer that goes on from it.
    ///
    /// Where the tokens of the whole text begin with those of the prompt, the rest of them is the answer. Where they do not, since a
    /// token would lie across the border, the answer is encoded by itself, as a continuation: a model that generates has just the
    /// prompt's own tokens before it, so these are what it must learn to go on from.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_pair(&self, prompt: &str, answer: &str) -> Result<(Vec<u32>, Vec<u32>), DataError> {
        let prompt_ids = self.encode_prompt(prompt)?;
        let answer_ids = self.encode_after(prompt, &prompt_ids, answer)?;
        Ok((prompt_ids, answer_ids))
    }

    /// The ids of `text` after a text that is already encoded as `ids`; see [`encode_pair`](Self::encode_pair).
    pub(crate) fn encode_after(&self, before: &str, ids: &[u32], text: &str) -> Result<Vec<u32>, DataError> {
        match self {
            Tokenizer::Char(_) | Tokenizer::Byte => self.encode(text),
            Tokenizer::Hf(tokenizer) => {
                let whole = tokenizer.with_prefix(tokenizer.encode(&format!("{before}{text}"))?);
                match whole.strip_prefix(ids) {
                    Some(rest) => Ok(rest.to_vec()),
                    None => tokenizer.encode_continuation(text),
                }
            }
        }
    }

    /// The text of ids. Bytes that make no character become U+FFFD, one for each maximal bad run as in
    /// [`String::from_utf8_lossy`]. Special tokens are spelt out; [`decode_text`](Self::decode_text) leaves them out.
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, DataError> {
        self.stream().all(ids)
    }

    /// As [`decode`](Self::decode), without special tokens.
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`].
    pub fn decode_text(&self, ids: &[u32]) -> Result<String, DataError> {
        self.stream_text().all(ids)
    }

    /// A decoder that takes one id at a time; its pieces make what [`decode`](Self::decode) gives.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self, false)
    }

    /// A decoder that takes one id at a time; its pieces make what [`decode_text`](Self::decode_text) gives.
    pub fn stream_text(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self, true)
    }

    /// The id that begins a text, where there is one.
    pub fn bos(&self) -> Option<u32> {
        self.hf().and_then(HfTokenizer::bos)
    }

    /// The ids that end a text, the tokenizer's own first; none for characters and bytes.
    pub fn eos_ids(&self) -> &[u32] {
        self.hf().map_or(&[], HfTokenizer::eos_ids)
    }

    /// The id that fills up short rows in other programs, where there is one. Unisono masks by length and does not need it.
    pub fn pad(&self) -> Option<u32> {
        self.hf().and_then(HfTokenizer::pad)
    }

    /// The id of a token, spelt as in the vocabulary (`Ġthe` or `▁the` where the text is ` the`).
    pub fn id_of(&self, token: &str) -> Option<u32> {
        match self {
            Tokenizer::Char(vocabulary) => {
                let mut characters = token.chars();
                let id = vocabulary.id(characters.next()?);
                id.filter(|_| characters.next().is_none())
            }
            Tokenizer::Byte => match token.as_bytes() {
                [byte] => Some(u32::from(*byte)),
                _ => None,
            },
            Tokenizer::Hf(tokenizer) => tokenizer.id_of(token),
        }
    }

    /// The token of an id, spelt as in the vocabulary; none where the vocabulary has no such id.
    pub fn token_of(&self, id: u32) -> Option<String> {
        match self {
            Tokenizer::Char(vocabulary) => vocabulary.characters.get(id as usize).map(char::to_string),
            Tokenizer::Byte => u8::try_from(id).ok().map(|byte| match byte.is_ascii_graphic() {
                true => char::from(byte).to_string(),
                false => format!("<0x{byte:02X}>"),
            }),
            Tokenizer::Hf(tokenizer) => tokenizer.token_of(id),
        }
    }

    /// The `tokenizer.json` of Hugging Face, where it is one.
    pub fn hf(&self) -> Option<&HfTokenizer> {
        match self {
            Tokenizer::Hf(tokenizer) => Some(tokenizer),
            Tokenizer::Char(_) | Tokenizer::Byte => None,
        }
    }

    /// The small files that belong to the tokenizer beside `tokenizer.json`, by name: special tokens, chat template. [`save`](Self::save)
    /// writes them too.
    pub fn companions(&self) -> &[(String, Vec<u8>)] {
        self.hf().map_or(&[], HfTokenizer::companions)
    }

    /// The file form: JSON ending in a newline, or the very text of a `tokenizer.json`.
    pub fn to_json(&self) -> String {
        let stored = match self {
            Tokenizer::Char(vocabulary) => Stored::Char {
                characters: vocabulary.characters.clone(),
            },
            Tokenizer::Byte => Stored::Byte {},
            Tokenizer::Hf(tokenizer) => return tokenizer.json().to_string(),
        };
        // Strings and lists of characters always have a JSON form.
        serde_json::to_string(&stored).expect("bug in unisono: a tokenizer has no JSON form") + "\n"
    }

    /// Reads the file form, or a `tokenizer.json` without other files; `place` names its source in errors.
    ///
    /// # Errors
    /// [`DataError::Vocabulary`]: no such JSON, or characters that are unsorted, repeated or none. [`DataError::Tokenizer`]: no usable
    /// `tokenizer.json`.
    pub fn from_json(json: &str, place: &str) -> Result<Self, DataError> {
        if hf::is_hf(json) {
            return HfTokenizer::new(json.to_string(), place, Vec::new(), None).map(Tokenizer::Hf);
        }
        match serde_json::from_str(json) {
            Ok(Stored::Char { characters }) => CharVocabulary::new(characters, place).map(Tokenizer::Char),
            Ok(Stored::Byte {}) => Ok(Tokenizer::Byte),
            Err(error) => Err(DataError::Vocabulary {
                place: place.to_string(),
                problem: json::plain(error),
            }),
        }
    }

    /// Writes the file form, at once or not at all, and beside it the tokenizer's [`companions`](Self::companions), so that
    /// [`load`](Self::load) gives the same tokenizer.
    ///
    /// # Errors
    /// [`DataError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), DataError> {
        for (name, bytes) in self.companions() {
            atomic_write(&path.with_file_name(name), |file| file.write_all(bytes))?;
        }
        atomic_write(path, |file| file.write_all(self.to_json().as_bytes())).map(|_| ())
    }

    /// Reads a file that [`save`](Self::save) wrote, a Hugging Face `tokenizer.json` with the files beside it
    /// (`tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json`, `config.json`, `chat_template.jinja`), or a
    /// directory with one of these as `tokenizer.json`.
    ///
    /// # Errors
    /// [`DataError::Read`], [`DataError::Vocabulary`] or [`DataError::Tokenizer`].
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let file = match path.is_dir() {
            true => settings::in_directory(path)?,
            false => path.to_path_buf(),
        };
        settings::check_size(&file, hf::MOST_BYTES)?;
        let place = file.display().to_string();
        let json = String::from_utf8(read_regular(&file)?).map_err(|error| {
            let problem = format!(
                "it is not UTF-8 text: byte {} is no part of a character",
                error.utf8_error().valid_up_to()
            );
            DataError::Vocabulary {
                place: place.clone(),
                problem,
            }
        })?;
        match hf::is_hf(&json) {
            true => HfTokenizer::load(json, &file).map(Tokenizer::Hf),
            false => Self::from_json(&json, &place),
        }
    }
}
