//! How the tokens of a `tokenizer.json` become text, token by token.
//!
//! The `tokenizers` crate decodes a list of tokens as a whole, and text differences between longer and longer lists are neither quick nor
//! always right. The decoders in use are all known token by token, so here they are read as such.

use serde_json::Value;
use std::sync::LazyLock;

/// A decoder, as it works on one token after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pieces {
    steps: Vec<Step>,
    /// The characters taken off the beginning of the whole text, and how many at most.
    pub(super) strip: (char, usize),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Characters stand for bytes, as in GPT-2.
    ByteLevel,
    /// A token `<0x0A>` is a byte.
    ByteFallback,
    Replace(String, String),
    /// A character stands for a space; the first token's is dropped.
    Metaspace {
        mark: char,
        drop_first: bool,
    },
    /// Tokens with the prefix go on with a word, others begin one.
    WordPiece {
        prefix: String,
        cleanup: bool,
    },
    /// No decoder: tokens are separated by blanks.
    Blank,
}

/// What a token gives.
pub(super) enum Piece {
    /// Whole characters.
    Text(String),
    /// Bytes, perhaps of a part of a character.
    Bytes(Vec<u8>),
}

impl Pieces {
    /// Reads a decoder in the form that the crate writes, or says in a clause what cannot be followed.
    pub(super) fn new(decoder: &Value) -> Result<Pieces, String> {
        let mut pieces = Pieces {
            steps: Vec::new(),
            strip: (' ', 0),
        };
        if decoder.is_null() {
            pieces.steps.push(Step::Blank);
            return Ok(pieces);
        }
        let mut chain = Vec::new();
        flatten(decoder, &mut chain);
        let mut fused = false;
        for decoder in chain {
            let kind = decoder["type"].as_str().unwrap_or_default();
            let cannot = || format!("its decoder holds {decoder}, which unisono cannot follow at that place");
            let after_bytes = pieces
                .steps
                .iter()
                .any(|step| matches!(step, Step::ByteLevel | Step::ByteFallback));
            match kind {
                "Fuse" => fused = true,
                "Strip" if fused && pieces.strip.1 == 0 && decoder["stop"] == 0 => {
                    let content = decoder["content"].as_str().and_then(|text| text.chars().next());
                    let start = decoder["start"].as_u64().and_then(|start| usize::try_from(start).ok());
                    pieces.strip = content.zip(start).ok_or_else(cannot)?;
                }
                _ if fused || after_bytes => return Err(cannot()),
                "ByteLevel" => pieces.steps.push(Step::ByteLevel),
                "ByteFallback" => pieces.steps.push(Step::ByteFallback),
                "Replace" => {
                    let pattern = decoder["pattern"]["String"].as_str().filter(|text| !text.is_empty());
                    let (from, to) = pattern.zip(decoder["content"].as_str()).ok_or_else(cannot)?;
                    pieces.steps.push(Step::Replace(from.to_string(), to.to_string()));
                }
                "Metaspace" => {
                    let mark = decoder["replacement"].as_str().and_then(|text| text.chars().next());
                    pieces.steps.push(Step::Metaspace {
                        mark: mark.ok_or_else(cannot)?,
                        drop_first: decoder["prepend_scheme"] != "never",
                    });
                }
                "WordPiece" => pieces.steps.push(Step::WordPiece {
                    prefix: decoder["prefix"].as_str().ok_or_else(cannot)?.to_string(),
                    cleanup: decoder["cleanup"] == true,
                }),
                _ => {
                    return Err(format!(
                        "its decoder is {kind:?}; unisono follows ByteLevel, Metaspace, WordPiece, and Replace, ByteFallback, Fuse and Strip in \
                         that order"
                    ));
                }
            }
        }
        Ok(pieces)
    }

    /// What a token gives; `first` for the first of a text.
    pub(super) fn piece(&self, token: &str, first: bool) -> Piece {
        let mut text = token.to_string();
        for step in &self.steps {
            match step {
                Step::ByteLevel => return Piece::Bytes(bytes_of(&text).unwrap_or_else(|| text.into_bytes())),
                Step::ByteFallback => {
                    if let Some(byte) = fallback_byte(&text) {
                        return Piece::Bytes(vec![byte]);
                    }
                }
                Step::Replace(from, to) => text = text.replace(from.as_str(), to),
                Step::Metaspace { mark, drop_first } => {
                    text = text.replace(*mark, if first && *drop_first { "" } else { " " });
                }
                Step::WordPiece { prefix, cleanup } => {
                    text = match text.strip_prefix(prefix.as_str()) {
                        _ if first => text,
                        Some(rest) => rest.to_string(),
                        None => format!(" {text}"),
                    };
                    if *cleanup {
                        text = clean(&text);
                    }
                }
                Step::Blank if !first => text.insert(0, ' '),
                Step::Blank => {}
            }
        }
        Piece::Text(text)
    }
}

/// A decoder and all that it is made of, in order.
fn flatten<'a>(decoder: &'a Value, into: &mut Vec<&'a Value>) {
    match decoder["decoders"].as_array() {
        Some(decoders) if decoder["type"] == "Sequence" => decoders.iter().for_each(|one| flatten(one, into)),
        _ => into.push(decoder),
    }
}

/// The byte of a token such as `<0x0A>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2)
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}

/// The bytes that the characters of a byte-level token stand for; none where one stands for no byte (as in added tokens).
fn bytes_of(token: &str) -> Option<Vec<u8>> {
    static BYTES: LazyLock<[Option<u8>; 512]> = LazyLock::new(|| {
        let mut bytes = [None; 512];
        for byte in 0..=255 {
            bytes[byte_character(byte) as usize] = Some(byte);
        }
        bytes
    });
    token
        .chars()
        .map(|character| BYTES.get(character as usize).copied().flatten())
        .collect()
}

/// The character that stands for a byte in byte-level vocabularies since GPT-2: itself where it is printable, otherwise the
/// next free code point from 256 on.
pub(super) fn byte_character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|byte| !printable(*byte)).count();
    char::from_u32(256 + place as u32).expect("256 to 323 are characters")
}

/// What the crate's WordPiece decoder does to English punctuation.
fn clean(text: &str) -> String {
    text.replace(" .", ".")
        .replace(" ?", "?")
        .replace(" !", "!")
        .replace(" ,", ",")
        .replace(" ' ", "'")
        .replace(" n't", "n't")
        .replace(" 'm", "'m")
        .replace(" do not", " don't")
        .replace(" 's", "'s")
        .replace(" 've", "'ve")
        .replace(" 're", "'re")
}
