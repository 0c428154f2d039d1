//! Memory-mapped ids: plain `.bin` files with a JSON sidecar, and Megatron-LM's `.bin` with `.idx`.

use crate::files::{open_regular, read_regular};
use crate::tokens::Width;
use crate::{DataError, Tokens, atomic_write, json};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The sidecar `x.bin.json`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    /// `u8`, `u16` or `u32`.
    dtype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vocab_size: Option<usize>,
}

/// Writes ids as a plain `.bin` file and its sidecar; 16 bits an id where the vocabulary allows it, else 32.
///
/// # Errors
/// [`DataError::Write`].
pub fn write_tokens(path: &Path, tokens: &Tokens) -> Result<(), DataError> {
    let narrow = tokens.vocab_size() <= 1 << 16;
    let sidecar = Sidecar {
        dtype: if narrow { "u16" } else { "u32" }.to_string(),
        vocab_size: Some(tokens.vocab_size()),
    };
    atomic_write(path, |file| {
        tokens.iter().try_for_each(|id| match narrow {
            true => file.write_all(&(id as u16).to_le_bytes()),
            false => file.write_all(&id.to_le_bytes()),
        })
    })?;
    // A struct of a string and a number always has a JSON form.
    let json = serde_json::to_string(&sidecar).expect("bug in unisono: a sidecar has no JSON form");
    atomic_write(&sidecar_path(path), |file| writeln!(file, "{json}")).map(|_| ())
}

/// Loads a `.bin` file by the file beside it.
pub(super) fn load(path: &Path, fallback_vocab: Option<usize>) -> Result<Tokens, DataError> {
    let place = path.display().to_string();
    let problem = |problem: String| DataError::TokenFile {
        path: place.clone(),
        problem,
    };
    let file = open_regular(path)?;
    let bytes = file.metadata().map_err(|error| DataError::read(path, &error))?.len();
    let (width, stated) = describe(path, bytes)?;
    if bytes == 0 {
        return Err(problem("it is empty".to_string()));
    }
    if bytes % width.bytes() as u64 != 0 {
        return Err(problem(format!(
            "its {bytes} bytes are no whole number of ids of {} bytes; it is cut short or of another dtype",
            width.bytes()
        )));
    }
    // SAFETY: the map is private to this process and only ever read as bytes, for which every content is valid. Another
    // process that changes the file changes the ids read (they are data, not indices into memory here: consumers check
    // their own bounds); one that truncates it can end this process by a signal, as with any map of a file.
    let map = unsafe { Mmap::map(&file) }.map_err(|error| DataError::read(path, &error))?;
    Tokens::mapped(
        map,
        width,
        stated.or(fallback_vocab),
        &super::place(path, stated, fallback_vocab),
    )
}

/// Width and stated vocabulary, from the file beside.
fn describe(path: &Path, bytes: u64) -> Result<(Width, Option<usize>), DataError> {
    let sidecar = sidecar_path(path);
    let index = path.with_extension("idx");
    if sidecar.exists() {
        let problem = |problem: String| DataError::TokenFile {
            path: sidecar.display().to_string(),
            problem,
        };
        let json = read_regular(&sidecar)?;
        let read: Sidecar = serde_json::from_slice(&json).map_err(|error| {
            problem(format!(
                "{}; expected for example {{\"dtype\": \"u16\", \"vocab_size\": 50257}}",
                json::plain(error)
            ))
        })?;
        let width = match read.dtype.as_str() {
            "u8" => Width::U8,
            "u16" => Width::U16,
            "u32" => Width::U32,
            other => return Err(problem(format!("dtype {other:?} is unknown; use u8, u16 or u32"))),
        };
        Ok((width, read.vocab_size))
    } else if index.exists() {
        megatron(&index, bytes).map(|width| (width, None))
    } else {
        Err(DataError::TokenFile {
            path: path.display().to_string(),
            problem: format!(
                "neither {} (Megatron's index) nor {} lies beside it; for plain little-endian ids write the latter, for example \
                 {{\"dtype\": \"u16\", \"vocab_size\": 50257}}",
                name(&index),
                name(&sidecar)
            ),
        })
    }
}

/// Reads the head of Megatron-LM's index and compares the lengths it lists with the size of the data.
///
/// Little-endian: magic `MMIDIDX\0\0`, u64 version 1, u8 dtype code, u64 number of sequences, u64 number of documents,
/// then an i32 length per sequence (byte offsets and document borders follow, which a single stream has no use for).
fn megatron(index: &Path, bytes: u64) -> Result<Width, DataError> {
    const HEAD: usize = 9 + 8 + 1 + 8 + 8;
    let problem = |problem: String| DataError::TokenFile {
        path: index.display().to_string(),
        problem,
    };
    let content = read_regular(index)?;
    let Some((head, lengths)) = content.split_at_checked(HEAD) else {
        return Err(problem(format!(
            "its {} bytes are fewer than the {HEAD} of an index's head",
            content.len()
        )));
    };
    let number = |at: usize| {
        head[at..at + 8]
            .iter()
            .rev()
            .fold(0u64, |n, byte| n << 8 | u64::from(*byte))
    };
    if !head.starts_with(b"MMIDIDX\0\0") {
        return Err(problem(
            "it does not begin with MMIDIDX, so it is no Megatron index".to_string(),
        ));
    }
    if number(9) != 1 {
        return Err(problem(format!(
            "it is of version {}, but only version 1 is known",
            number(9)
        )));
    }
    let width = match head[17] {
        1 => Width::U8,
        4 => Width::U32, // i32; a negative id is above every vocabulary, so it is refused by its position
        8 => Width::U16,
        code => {
            return Err(problem(format!(
                "its dtype code is {code}; ids may be u8 (1), i32 (4) or u16 (8)"
            )));
        }
    };
    let sequences = number(18);
    let Some(lengths) = usize::try_from(sequences)
        .ok()
        .and_then(|n| lengths.get(..n.checked_mul(4)?))
    else {
        return Err(problem(format!(
            "it claims {sequences} sequences, more than its {} bytes hold",
            content.len()
        )));
    };
    let total: u64 = lengths
        .chunks_exact(4)
        .map(|length| u64::from(u32::from_le_bytes([length[0], length[1], length[2], length[3]])))
        .sum();
    if total.checked_mul(width.bytes() as u64) != Some(bytes) {
        return Err(problem(format!(
            "its sequences have {total} tokens of {} bytes, but the data beside it has {bytes} bytes",
            width.bytes()
        )));
    }
    Ok(width)
}

fn sidecar_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".json");
    PathBuf::from(name)
}

fn name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
