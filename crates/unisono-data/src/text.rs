//! Text files: UTF-8, with the traces of other systems taken off and said.

use crate::DataError;
use crate::files::read_regular;
use std::path::Path;

/// A text and what was changed in reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The text, without a byte order mark, lines ending in `\n`.
    pub text: String,
    /// True when the file began with a byte order mark, which was taken off.
    pub had_bom: bool,
    /// How many `\r\n` became `\n`.
    pub num_crlf: usize,
}

/// Reads a UTF-8 text file.
///
/// A byte order mark is taken off and `\r\n` becomes `\n`, so that a text gives the same tokens, vocabulary and losses
/// whichever system saved it; a lone `\r` stays. Use [`read_bytes`] where every byte counts.
///
/// # Errors
/// [`DataError::Read`], [`DataError::EmptyText`] (no bytes, or just a byte order mark) or [`DataError::NotUtf8`].
pub fn read_text(path: &Path) -> Result<Text, DataError> {
    let text = read_text_or_none(path)?;
    if text.text.is_empty() {
        return Err(DataError::EmptyText {
            path: path.display().to_string(),
        });
    }
    Ok(text)
}

/// As [`read_text`], of a file that may hold no text.
///
/// # Errors
/// [`DataError::Read`] or [`DataError::NotUtf8`].
pub fn read_text_or_none(path: &Path) -> Result<Text, DataError> {
    text_of(read_regular(path)?, &path.display().to_string())
}

/// The same of bytes that are there; `place` names them in errors.
///
/// # Errors
/// [`DataError::NotUtf8`].
pub fn text_of(bytes: Vec<u8>, place: &str) -> Result<Text, DataError> {
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        not_utf8(place, error.as_bytes(), offset)
    })?;
    let had_bom = text.starts_with('\u{feff}');
    if had_bom {
        text.drain(..'\u{feff}'.len_utf8());
    }
    let num_crlf = text.matches("\r\n").count();
    if num_crlf > 0 {
        text = text.replace("\r\n", "\n");
    }
    Ok(Text {
        text,
        had_bom,
        num_crlf,
    })
}

/// Reads a file as it is, for the byte tokenizer.
///
/// # Errors
/// [`DataError::Read`] or [`DataError::EmptyText`].
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    let bytes = read_regular(path)?;
    if bytes.is_empty() {
        return Err(DataError::EmptyText {
            path: path.display().to_string(),
        });
    }
    Ok(bytes)
}

fn not_utf8(place: &str, bytes: &[u8], offset: usize) -> DataError {
    let hint = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        "looks like UTF-16; convert it with iconv -f UTF-16 -t UTF-8"
    } else if bytes.starts_with(&[0x1f, 0x8b]) {
        "looks like gzip; unpack it first"
    } else {
        "is no part of a character; convert it to UTF-8 (iconv -f LATIN1 -t UTF-8, where it is Latin-1)"
    };
    DataError::NotUtf8 {
        path: place.to_string(),
        offset,
        byte: bytes[offset],
        line: 1 + bytes[..offset].iter().filter(|byte| **byte == b'\n').count(),
        hint: hint.to_string(),
    }
}
