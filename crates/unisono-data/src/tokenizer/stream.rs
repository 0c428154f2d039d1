//! Decoding one id at a time.

use super::Tokenizer;
use super::pieces::{Piece, Pieces};
use crate::DataError;

/// Decodes ids one at a time and holds back bytes of a character that is not complete yet: the pieces, with
/// [`finish`](Self::finish)'s, make exactly the text that [`Tokenizer::decode`] gives ([`Tokenizer::decode_text`] where special
/// tokens are left out).
#[derive(Debug, Clone)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    skip_special: bool,
    /// The beginning of a character, at most 3 bytes.
    held: Vec<u8>,
    /// Ids seen.
    position: usize,
    /// Tokens decoded: those seen but for what was left out.
    tokens: usize,
    /// Characters at the text's beginning that may still be taken off.
    strip: usize,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, skip_special: bool) -> Self {
        StreamDecoder {
            tokenizer,
            skip_special,
            held: Vec::new(),
            position: 0,
            tokens: 0,
            strip: tokenizer.hf().map_or(0, |hf| hf.pieces().strip.1),
        }
    }

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
            Tokenizer::Hf(tokenizer) if id as usize >= tokenizer.vocab_size() => return Err(out_of_range()),
            Tokenizer::Hf(tokenizer) => match tokenizer.token_of(id) {
                Some(token) if !(self.skip_special && tokenizer.is_special(id)) => {
                    self.push_token(&token, tokenizer.pieces())
                }
                // An id that the vocabulary leaves out has no text.
                _ => String::new(),
            },
        };
        self.position += 1;
        Ok(text)
    }

    /// What is still held back when no more ids come: U+FFFD for the beginning of a character, else nothing.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }

    /// The text of all of the ids.
    pub(super) fn all(mut self, ids: &[u32]) -> Result<String, DataError> {
        let mut text = String::with_capacity(4 * ids.len());
        for id in ids {
            text += &self.push(*id)?;
        }
        text += &self.finish();
        Ok(text)
    }

    fn push_token(&mut self, token: &str, pieces: &Pieces) -> String {
        let mut text = match pieces.piece(token, self.tokens == 0) {
            Piece::Bytes(bytes) => {
                self.held.extend_from_slice(&bytes);
                self.complete()
            }
            Piece::Text(piece) => self.finish() + &piece,
        };
        self.tokens += 1;
        while self.strip > 0 {
            match text.chars().next() {
                // Nothing of the text is there yet.
                None => break,
                Some(first) if first == pieces.strip.0 => {
                    text.remove(0);
                    self.strip -= 1;
                }
                Some(_) => self.strip = 0,
            }
        }
        text
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
