//! The formats in which already tokenised data comes:
//!
//! | file | what makes it so | ids |
//! |---|---|---|
//! | `x.bin` with `x.idx` | Megatron-LM's indexed data set; its documents follow one another as one stream | u8, u16, i32 |
//! | `x.bin` with `x.bin.json` | plain ids, little-endian; `{"dtype": "u16", "vocab_size": 50257}` beside them | u8, u16, u32 |
//! | YAML | tt-train's: `tokens: [1, 2, …]` (or one `- 1` a line) and `tokenizer_vocab_size: 50257` | up to 2³² − 1 |
//! | anything else | ids separated by blanks, commas, semicolons or line ends | up to 2³² − 1 |
//!
//! `.bin` files are memory-mapped. Every id is checked when a file is loaded.

mod binary;
mod list;

use crate::{DataError, Tokens};
use std::path::Path;

pub use binary::write_tokens;

/// Loads a token file of any of the formats, told apart by its name and, for text, its beginning.
///
/// The vocabulary is the smaller of what the file states and of `vocab_size` (say, the model's); where neither is there, it is the
/// largest id and one.
///
/// # Errors
/// [`DataError::Read`], [`DataError::TokenFile`] (with line and column for text) or [`DataError::TokenOutOfRange`].
pub fn load_tokens(path: &Path, vocab_size: Option<usize>) -> Result<Tokens, DataError> {
    if path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("bin"))
    {
        return binary::load(path, vocab_size);
    }
    let bytes = std::fs::read(path).map_err(|error| DataError::read(path, &error))?;
    let (ids, stated) = list::parse(&bytes).map_err(|problem| DataError::TokenFile {
        path: path.display().to_string(),
        problem,
    })?;
    let vocab_size = match (stated, vocab_size) {
        (Some(stated), Some(given)) => stated.min(given),
        (Some(size), None) | (None, Some(size)) => size,
        (None, None) => ids.iter().max().map_or(0, |id| *id as usize + 1),
    };
    Tokens::from_vec(ids, vocab_size, &path.display().to_string())
}
