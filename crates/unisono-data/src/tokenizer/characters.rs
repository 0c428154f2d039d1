//! The vocabulary of a character tokenizer.

use crate::DataError;

/// The characters of a [`Tokenizer::Char`](super::Tokenizer::Char), sorted by code point; a character's id is its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CharVocabulary {
    pub(super) characters: Vec<char>,
}

impl CharVocabulary {
    /// A vocabulary of characters that must be sorted, each once; `place` names their source in errors.
    pub(super) fn new(characters: Vec<char>, place: &str) -> Result<Self, DataError> {
        let problem = if characters.is_empty() {
            "it has no characters".to_string()
        } else if let Some(pair) = characters.windows(2).find(|pair| pair[0] >= pair[1]) {
            format!(
                "its characters must be sorted by code point, each once, but {:?} is followed by {:?}",
                pair[0], pair[1]
            )
        } else {
            return Ok(CharVocabulary { characters });
        };
        Err(DataError::Vocabulary {
            place: place.to_string(),
            problem,
        })
    }

    /// The vocabulary of exactly the characters of a text.
    pub(super) fn of_text(text: &str) -> Result<Self, DataError> {
        // A set of bits for the 0x110000 code points: quick on long texts, and sorted by nature.
        let mut seen = vec![0u64; 0x11_0000 / 64];
        for character in text.chars() {
            seen[character as usize / 64] |= 1 << (character as usize % 64);
        }
        let characters = (0..0x11_0000u32)
            .filter(|code| seen[*code as usize / 64] >> (code % 64) & 1 == 1)
            .filter_map(char::from_u32)
            .collect();
        Self::new(characters, "the text")
    }

    /// The characters in id order.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// A character's id.
    pub(super) fn id(&self, character: char) -> Option<u32> {
        self.characters.binary_search(&character).ok().map(|id| id as u32)
    }

    /// The ids of a text.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        const UNKNOWN: u32 = u32::MAX;
        let mut ascii = [UNKNOWN; 128];
        for (id, character) in self.characters.iter().take_while(|c| c.is_ascii()).enumerate() {
            ascii[*character as usize] = id as u32;
        }
        let mut ids = Vec::with_capacity(text.len());
        for (position, (byte, character)) in text.char_indices().enumerate() {
            let id = match ascii.get(character as usize) {
                Some(&UNKNOWN) => None,
                Some(&id) => Some(id),
                None => self.id(character),
            };
            ids.push(id.ok_or_else(|| DataError::UnknownCharacter {
                character,
                code: character as u32,
                position,
                byte,
                num_known: self.characters.len(),
                known: self.shown(),
            })?);
        }
        Ok(ids)
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
