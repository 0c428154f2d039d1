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

use crate::files::read_regular;
use crate::{DataError, Tokens};
use std::path::Path;

pub use binary::write_tokens;

/// Loads a token file of any of the formats, told apart by its name and, for text, its beginning.
///
/// The vocabulary size that the file names rules. A file that names none has `fallback_vocab` (say, the configuration's); where that is
/// not there either, it is the largest id and one.
///
/// # Errors
/// [`DataError::Read`], [`DataError::TokenFile`] (with line and column for text) or [`DataError::TokenOutOfRange`].
pub fn load_tokens(path: &Path, fallback_vocab: Option<usize>) -> Result<Tokens, DataError> {
    let ends_with = |wanted: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(wanted));
    if ends_with("bin") {
        return binary::load(path, fallback_vocab);
    }
    if ends_with("idx") {
        return binary::load(&path.with_extension("bin"), fallback_vocab);
    }
    let bytes = read_regular(path)?;
    let (ids, stated) = list::parse(&bytes).map_err(|problem| DataError::TokenFile {
        path: path.display().to_string(),
        problem,
    })?;
    let vocab_size = stated
        .or(fallback_vocab)
        .unwrap_or_else(|| ids.iter().max().map_or(0, |id| *id as usize + 1));
    Tokens::from_vec(ids, vocab_size, &place(path, stated, fallback_vocab))
}

/// The file's name for errors, with where the vocabulary size comes from when it is not its own.
fn place(path: &Path, stated: Option<usize>, fallback_vocab: Option<usize>) -> String {
    let name = path.display();
    match (stated, fallback_vocab) {
        (None, Some(_)) => format!("{name} (which names no vocabulary size, so the model's counts)"),
        _ => name.to_string(),
    }
}
