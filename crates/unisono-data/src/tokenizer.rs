//! Between text and token ids: one id per character, or one per byte.

use crate::files::read_regular;
use crate::{DataError, atomic_write};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// How text becomes token ids. Both kinds read back exactly: decoding what was encoded gives the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokenizer {
    /// One id per character of a vocabulary that is sorted by code point.
    Char(CharVocabulary),
    /// One id per byte of UTF-8: 256 ids, any text.
    Byte,
}

/// The characters of a [`Tokenizer::Char`], sorted by code point; a character's id is its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharVocabulary {
    characters: Vec<char>,
}

/// The file form: `{"type": "char", "characters": ["\n", " ", "a"]}` or `{"type": "byte"}`.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Stored {
    Char { characters: Vec<char> },
    Byte {},
}

impl CharVocabulary {
    /// The characters in id order.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    fn id(&self, character: char) -> Option<u32> {
        self.characters.binary_search(&character).ok().map(|id| id as u32)
    }

    /// The vocabulary as an error message shows it: quoted, and cut where it is long.
    fn shown(&self) -> String {
        const MOST: usize = 128;
        let text: String = self.characters.iter().take(MOST).collect();
        if self.characters.len() > MOST {
            format!("{text:?}…")
        } else {
            format!("{text:?}")
        }
    }
}

impl Tokenizer {
    /// A character tokenizer for exactly the characters of a text.
    ///
    /// # Errors
    /// [`DataError::Vocabulary`] for an empty text.
    pub fn char_from_text(text: &str) -> Result<Self, DataError> {
        // A set of bits for the 0x110000 code points: quick on long texts, and sorted by nature.
        let mut seen = vec![0u64; 0x11_0000 / 64];
        for character in text.chars() {
            seen[character as usize / 64] |= 1 << (character as usize % 64);
        }
        let characters = (0..0x11_0000u32)
            .filter(|code| seen[*code as usize / 64] >> (code % 64) & 1 == 1)
            .filter_map(char::from_u32)
            .collect();
        Self::from_characters(characters, "the text")
    }

    /// The number of ids.
    pub fn vocab_size(&self) -> usize {
        match self {
            Tokenizer::Char(vocabulary) => vocabulary.characters.len(),
            Tokenizer::Byte => 256,
        }
    }

    /// The name of the kind: `char` or `byte`.
    pub fn kind(&self) -> &'static str {
        match self {
            Tokenizer::Char(_) => "char",
            Tokenizer::Byte => "byte",
        }
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// [`DataError::UnknownCharacter`] for the first character that the vocabulary does not have.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        match self {
            Tokenizer::Char(vocabulary) => {
                const UNKNOWN: u32 = u32::MAX;
                let mut ascii = [UNKNOWN; 128];
                for (id, character) in vocabulary.characters.iter().take_while(|c| c.is_ascii()).enumerate() {
                    ascii[*character as usize] = id as u32;
                }
                let mut ids = Vec::with_capacity(text.len());
                for (position, (byte, character)) in text.char_indices().enumerate() {
                    let id = match ascii.get(character as usize) {
                        Some(&UNKNOWN) => None,
                        Some(&id) => Some(id),
                        None => vocabulary.id(character),
                    };
                    ids.push(id.ok_or_else(|| DataError::UnknownCharacter {
                        character,
                        code: character as u32,
                        position,
                        byte,
                        num_known: vocabulary.characters.len(),
                        known: vocabulary.shown(),
                    })?);
                }
                Ok(ids)
            }
            Tokenizer::Byte => Ok(text.bytes().map(u32::from).collect()),
        }
    }

    /// The text of ids. Bytes that make no character become U+FFFD, one for each maximal bad run as in
    /// [`String::from_utf8_lossy`].
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, DataError> {
        let mut stream = self.stream();
        let mut text = String::with_capacity(ids.len());
        for id in ids {
            text += &stream.push(*id)?;
        }
        text += &stream.finish();
        Ok(text)
    }

    /// A decoder that takes one id at a time.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder {
            tokenizer: self,
            held: Vec::new(),
            position: 0,
        }
    }

    /// The file form, JSON ending in a newline.
    pub fn to_json(&self) -> String {
        let stored = match self {
            Tokenizer::Char(vocabulary) => Stored::Char {
                characters: vocabulary.characters.clone(),
            },
            Tokenizer::Byte => Stored::Byte {},
        };
        // Strings and lists of characters always have a JSON form.
        serde_json::to_string(&stored).expect("bug in unisono: a tokenizer has no JSON form") + "\n"
    }

    /// Reads the file form; `place` names its source in errors.
    ///
    /// # Errors
    /// [`DataError::Vocabulary`]: no such JSON, or characters that are unsorted, repeated or none.
    pub fn from_json(json: &str, place: &str) -> Result<Self, DataError> {
        match serde_json::from_str(json) {
            Ok(Stored::Char { characters }) => Self::from_characters(characters, place),
            Ok(Stored::Byte {}) => Ok(Tokenizer::Byte),
            Err(error) => Err(DataError::Vocabulary {
                place: place.to_string(),
                problem: error.to_string(),
            }),
        }
    }

    /// Writes the file form, at once or not at all.
    ///
    /// # Errors
    /// [`DataError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), DataError> {
        atomic_write(path, |file| file.write_all(self.to_json().as_bytes())).map(|_| ())
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`DataError::Read`] or [`DataError::Vocabulary`].
    pub fn load(path: &Path) -> Result<Self, DataError> {
        let json = String::from_utf8(read_regular(path)?).map_err(|_| DataError::Vocabulary {
            place: path.display().to_string(),
            problem: "it is not UTF-8 text".to_string(),
        })?;
        Self::from_json(&json, &path.display().to_string())
    }

    fn from_characters(characters: Vec<char>, place: &str) -> Result<Self, DataError> {
        let problem = if characters.is_empty() {
            "it has no characters".to_string()
        } else if let Some(pair) = characters.windows(2).find(|pair| pair[0] >= pair[1]) {
            format!(
                "its characters must be sorted by code point, each once, but {:?} is followed by {:?}",
                pair[0], pair[1]
            )
        } else {
            return Ok(Tokenizer::Char(CharVocabulary { characters }));
        };
        Err(DataError::Vocabulary {
            place: place.to_string(),
            problem,
        })
    }
}

/// Decodes ids one at a time and holds back bytes of a character that is not complete yet: the pieces, with
/// [`finish`](Self::finish)'s, make exactly the text that [`Tokenizer::decode`] gives.
#[derive(Debug, Clone)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The beginning of a character, at most 3 bytes.
    held: Vec<u8>,
    position: usize,
}

impl StreamDecoder<'_> {
    /// The text that an id completes; it may be empty.
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`]; the decoder may go on with other ids.
    pub fn push(&mut self, id: u32) -> Result<String, DataError> {
        let out_of_range = || DataError::TokenOutOfRange {
            id: u64::from(id),
            position: self.position,
            place: "the text to decode".to_string(),
            vocab_size: self.tokenizer.vocab_size(),
        };
        let text = match self.tokenizer {
            Tokenizer::Char(vocabulary) => vocabulary
                .characters
                .get(id as usize)
                .ok_or_else(out_of_range)?
                .to_string(),
            Tokenizer::Byte => {
                self.held.push(u8::try_from(id).map_err(|_| out_of_range())?);
                self.complete()
            }
        };
        self.position += 1;
        Ok(text)
    }

    /// What is still held back when no more ids come: U+FFFD for the beginning of a character, else nothing.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }

    /// Takes from the held bytes all that can no longer change.
    fn complete(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.held) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.held.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, rest) = self.held.split_at(error.valid_up_to());
                    // The error vouches for the first part; lossy decoding leaves valid text as it is.
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(bad) = error.error_len() else {
                        self.held = rest.to_vec();
                        return text;
                    };
                    text.push('\u{fffd}');
                    self.held = rest[bad..].to_vec();
                }
            }
        }
    }
}
