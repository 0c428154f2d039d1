//! Our tokenizers as Hugging Face's `tokenizer.json`.

use serde_json::{Map, Value, json};
use unisono_data::Tokenizer;

/// The text of a `tokenizer.json` that encodes and decodes as `tokenizer` does.
pub fn to_json(tokenizer: &Tokenizer) -> String {
    let value = match tokenizer {
        Tokenizer::Char(vocabulary) => {
            let characters = vocabulary.characters().iter();
            let vocab: Map<String, Value> = characters
                .enumerate()
                .map(|(id, c)| (c.to_string(), json!(id)))
                .collect();
            // The token for unknown characters is not in the vocabulary: they are an error there, as they are here.
            with_model(
                of_characters(),
                json!({"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}),
            )
        }
        Tokenizer::Byte => {
            let vocab: Map<String, Value> = (0..=255)
                .map(|byte| (byte_character(byte).to_string(), json!(byte)))
                .collect();
            with_model(
                of_bytes(),
                json!({
                    "type": "BPE", "vocab": vocab, "merges": [], "dropout": null, "unk_token": null,
                    "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                }),
            )
        }
        // It is one already.
        Tokenizer::Hf(tokenizer) => return tokenizer.json().to_string(),
    };
    format!("{value:#}\n")
}

/// Whether a text is one of ours, of whatever vocabulary. (The format has no place for a mark.)
pub(super) fn is_ours(text: &str) -> bool {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    value
        .as_object_mut()
        .is_some_and(|object| object.remove("model").is_some())
        && (value == of_characters() || value == of_bytes())
}

fn with_model(mut value: Value, model: Value) -> Value {
    value["model"] = model;
    value
}

/// Everything but the vocabulary: each character is a word.
fn of_characters() -> Value {
    let every = json!({"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false});
    frame(&every, &json!({"type": "Fuse"}))
}

/// Everything but the vocabulary: each byte is a word.
fn of_bytes() -> Value {
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    frame(&bytes, &bytes)
}

fn frame(pre_tokenizer: &Value, decoder: &Value) -> Value {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": null,
        "decoder": decoder,
    })
}

/// The character that stands for a byte in byte-level vocabularies since GPT-2: itself where it is printable, otherwise the
/// next free code point from 256 on.
fn byte_character(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let place = (0..byte).filter(|byte| !printable(*byte)).count();
    char::from_u32(256 + place as u32).expect("256 to 323 are characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_their_usual_characters() {
        assert_eq!(byte_character(b'a'), 'a');
        assert_eq!(byte_character(b' '), 'Ġ');
        assert_eq!(byte_character(b'\n'), 'Ċ');
        assert_eq!(byte_character(0xad), 'Ń');
        let all: std::collections::BTreeSet<char> = (0..=255).map(byte_character).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn our_own_files_are_known() {
        let character = Tokenizer::char_from_text("ab\n\"").expect("a vocabulary");
        for tokenizer in [&character, &Tokenizer::Byte] {
            assert!(is_ours(&to_json(tokenizer)));
            assert!(
                !is_ours(&tokenizer.to_json()),
                "a run's own tokenizer.json is another file"
            );
        }
        assert!(!is_ours("{}") && !is_ours("[]") && !is_ours("?"));
    }
}
