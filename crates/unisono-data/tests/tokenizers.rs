//! `tokenizer.json`: the values of Python's `tokenizers` and `transformers` (`reference/make.py`), streams, settings, broken files.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::tempdir;
use unisono_data::{BpeOptions, HfTokenizer, Tokenizer, corpus, train_bpe};

const KINDS: [&str; 4] = ["byte_level", "byte_fallback", "metaspace", "word_piece"];

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference")
}

fn load(kind: &str) -> Tokenizer {
    Tokenizer::load(&reference().join(kind)).expect("a tokenizer")
}

fn json_of(kind: &str) -> Value {
    let text = fs::read_to_string(reference().join(kind).join("tokenizer.json")).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

/// A tokenizer of a changed file, with files beside it.
fn with(value: &Value, beside: &[(&str, Value)]) -> Result<Tokenizer, String> {
    let folder = tempdir().expect("a temporary directory");
    fs::write(folder.path().join("tokenizer.json"), value.to_string()).expect("a writable directory");
    for (name, value) in beside {
        fs::write(folder.path().join(name), value.to_string()).expect("a writable directory");
    }
    Tokenizer::load(folder.path()).map_err(|error| {
        let text = error.to_string();
        text.replace(&folder.path().display().to_string(), "DIR")
    })
}

fn ids(value: &Value) -> Vec<u32> {
    let list = value.as_array().expect("a list");
    list.iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

/// The pieces of a stream.
fn pieces(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> Vec<String> {
    let mut stream = match skip_special {
        true => tokenizer.stream_text(),
        false => tokenizer.stream(),
    };
    let mut pieces: Vec<String> = ids.iter().map(|id| stream.push(*id).expect("an id")).collect();
    pieces.push(stream.finish());
    pieces
}

#[test]
fn ids_and_texts_are_those_of_python() {
    let text = fs::read_to_string(reference().join("tokenizers.json")).expect("a file");
    let values: Value = serde_json::from_str(&text).expect("JSON");
    for kind in KINDS {
        let (tokenizer, value) = (load(kind), &values[kind]);
        assert_eq!(tokenizer.vocab_size() as u64, value["vocab_size"], "{kind}");
        let (bos, eos) = (tokenizer.bos().expect("a BOS"), tokenizer.eos_ids()[0]);
        assert_eq!(
            (json!(bos), json!(eos)),
            (value["bos"].clone(), value["eos"].clone()),
            "{kind}"
        );
        for row in value["texts"].as_array().expect("a list") {
            let text = row["text"].as_str().expect("a text");
            let expected = ids(&row["ids"]);
            assert_eq!(tokenizer.encode(text), Ok(expected.clone()), "{kind} {text:?}");
            let framed: Vec<u32> = [&[bos], expected.as_slice(), &[eos]].concat();
            for (what, decoded) in [
                ("decoded", tokenizer.decode(&expected)),
                ("decoded_special", tokenizer.decode(&framed)),
                ("decoded_text", tokenizer.decode_text(&framed)),
            ] {
                assert_eq!(
                    decoded.as_deref(),
                    Ok(row[what].as_str().expect("a text")),
                    "{kind} {text:?} {what}"
                );
            }
        }
    }
}

#[test]
fn streams_give_the_whole_and_never_a_broken_character() {
    for kind in KINDS {
        let tokenizer = load(kind);
        for text in [
            "🦓🦓 zebra 漢字",
            " Привет, мир: как дела? ",
            "a\n\nb  c",
            "naïve café 日本語",
        ] {
            let prompt = tokenizer.encode_prompt(text).expect("encodes");
            for skip in [false, true] {
                let pieces = pieces(&tokenizer, &prompt, skip);
                let whole = match skip {
                    true => tokenizer.decode_text(&prompt),
                    false => tokenizer.decode(&prompt),
                };
                assert_eq!(Ok(pieces.concat()), whole, "{kind} {text:?}");
                assert!(!pieces.concat().contains('\u{fffd}'), "{kind} {pieces:?}");
            }
        }
    }
    // The zebra is four bytes in both of these, and comes at the last.
    for kind in ["byte_level", "byte_fallback"] {
        let tokenizer = load(kind);
        let ids = tokenizer.encode("x🦓").expect("encodes");
        let pieces = pieces(&tokenizer, &ids, false);
        assert!(ids.len() >= 5, "{ids:?}");
        assert_eq!(
            pieces.iter().filter(|piece| piece.contains('🦓')).count(),
            1,
            "{pieces:?}"
        );
    }
    // A text that ends inside a character says so at the end, and so does the decoding of all.
    let tokenizer = load("byte_level");
    let mut cut = tokenizer.encode("a🦓").expect("encodes");
    cut.pop();
    assert_eq!(pieces(&tokenizer, &cut, false).concat(), "a\u{fffd}");
    assert_eq!(tokenizer.decode(&cut).as_deref(), Ok("a\u{fffd}"));
}

#[test]
fn spaces_stand_between_a_prompt_and_its_continuation() {
    // Decoding what comes after a prompt by itself loses the space before its first word in vocabularies that put one before every text;
    // a stream that has seen the prompt keeps it.
    let tokenizer = load("byte_fallback");
    let (prompt, rest) = tokenizer.encode_pair("Привет,", " мир").expect("encodes");
    let all = [prompt.as_slice(), &rest].concat();
    assert_eq!(tokenizer.decode_text(&all).as_deref(), Ok("Привет, мир"));
    let mut stream = tokenizer.stream_text();
    let seen: String = prompt.iter().map(|id| stream.push(*id).expect("an id")).collect();
    let new: String = rest.iter().map(|id| stream.push(*id).expect("an id")).collect();
    assert_eq!((seen.as_str(), (new + &stream.finish()).as_str()), ("Привет,", " мир"));
}

#[test]
fn bos_stands_once_and_eos_is_not_added() {
    let tokenizer = load("byte_level");
    let bos = tokenizer.id_of("<|begin|>").expect("a token");
    let hello = tokenizer.encode("Hello").expect("encodes");
    assert!(!hello.contains(&bos));
    let prompt = tokenizer.encode_prompt("Hello").expect("encodes");
    assert_eq!(prompt, [&[bos], hello.as_slice()].concat());
    assert_eq!(tokenizer.encode_prompt("<|begin|>Hello"), Ok(prompt));
    assert_eq!(tokenizer.encode_prompt(""), Ok(vec![bos]));
    // The unigram's post-processor adds an EOS and no BOS: a prompt has neither.
    let tokenizer = load("metaspace");
    assert_eq!(tokenizer.encode_prompt("Hello"), tokenizer.encode("Hello"));
    // The configuration may say otherwise than the post-processor, either way.
    let bos_of = |kind: &str, add: bool| {
        let config = json!({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": add});
        let tokenizer = with(&json_of(kind), &[("tokenizer_config.json", config)]).expect("a tokenizer");
        tokenizer.encode_prompt("Hello").expect("encodes").first() == tokenizer.bos().as_ref()
    };
    assert_eq!(
        [
            bos_of("metaspace", true),
            bos_of("metaspace", false),
            bos_of("byte_fallback", true),
            bos_of("byte_fallback", false)
        ],
        [true, false, true, false]
    );
}

#[test]
fn the_files_beside_it_name_the_tokens_that_end_a_text() {
    let value = json_of("byte_level");
    let tokens = |beside: &[(&str, Value)]| {
        let tokenizer = with(&value, beside).expect("a tokenizer");
        (tokenizer.bos(), tokenizer.eos_ids().to_vec(), tokenizer.pad())
    };
    let id = |token: &str| load("byte_level").id_of(token).expect("a token");
    let (begin, end, im_end) = (id("<|begin|>"), id("<|end|>"), id("<|im_end|>"));
    // Nothing beside it: BOS is what the post-processor adds, EOS is a well-known name if there is one.
    assert_eq!(tokens(&[]), (Some(begin), vec![im_end], None));
    assert_eq!(
        tokens(&[
            (
                "tokenizer_config.json",
                json!({"bos_token": null, "eos_token": {"content": "<|im_end|>"}})
            ),
            (
                "special_tokens_map.json",
                json!({"eos_token": "<|end|>", "pad_token": "<|end|>"})
            ),
            ("generation_config.json", json!({"eos_token_id": [end, im_end]})),
            ("config.json", json!({"eos_token_id": begin, "bos_token_id": begin})),
        ]),
        (Some(begin), vec![im_end, end], Some(end))
    );
    assert_eq!(
        tokens(&[("config.json", json!({"eos_token_id": end, "pad_token_id": -1}))]),
        (Some(begin), vec![end], None)
    );
    // Ids that the tokenizer does not have are the model's own affair.
    assert_eq!(
        tokens(&[("generation_config.json", json!({"eos_token_id": [end, 99999]}))]).1,
        vec![end]
    );
}

#[test]
fn truncation_padding_and_dropout_of_the_file_are_left_out() {
    let mut value = json_of("byte_level");
    assert_eq!(
        value["truncation"]["max_length"], 8,
        "the reference file has lost its truncation"
    );
    let text = "The capital of France is Paris. ".repeat(20);
    let tokenizer = load("byte_level");
    let ids = tokenizer.encode(&text).expect("encodes");
    assert_eq!(tokenizer.decode(&ids), Ok(text.clone()));
    assert!(ids.len() > 50);
    assert_eq!(tokenizer.encode("a").expect("encodes").len(), 1);
    value["model"]["dropout"] = json!(0.5);
    let dropping = with(&value, &[]).expect("a tokenizer");
    assert_eq!(dropping.encode(&text), Ok(ids));
}

#[test]
fn what_is_saved_loads_as_the_same_tokenizer() {
    let folder = tempdir().expect("a temporary directory");
    let path = folder.path().join("tokenizer.json");
    for kind in KINDS {
        let tokenizer = load(kind);
        tokenizer.save(&path).expect("a writable directory");
        let original = fs::read(reference().join(kind).join("tokenizer.json")).expect("a file");
        assert_eq!(fs::read(&path).expect("a file"), original, "{kind}");
        let names: Vec<&str> = tokenizer.companions().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["tokenizer_config.json"]);
        let again = Tokenizer::load(&path).expect("a tokenizer");
        assert_eq!(again, tokenizer);
        assert_eq!((again.bos(), again.eos_ids()), (tokenizer.bos(), tokenizer.eos_ids()));
        let alone = Tokenizer::from_json(&tokenizer.to_json(), "memory").expect("a tokenizer");
        assert_eq!(alone.encode("Hello"), tokenizer.encode("Hello"));
        assert_ne!(alone, tokenizer, "the files beside it are a part of it");
    }
    let hf = HfTokenizer::new(
        json_of("byte_level").to_string(),
        "memory",
        vec![("chat_template.jinja".to_string(), b"{{ 1 }}".to_vec())],
        Some(br#"{"eos_token_id": 1}"#),
    )
    .expect("a tokenizer");
    assert_eq!((hf.chat_template("default"), hf.eos_ids()), (Some("{{ 1 }}"), &[1][..]));
}

#[test]
fn ids_outside_are_refused_and_ids_left_out_say_nothing() {
    let tokenizer = load("byte_level");
    let size = tokenizer.vocab_size() as u32;
    let error = tokenizer.decode(&[0, size]).expect_err("must be refused").to_string();
    assert_eq!(
        error,
        format!(
            "token id {size} at position 1 of the text to decode is outside the vocabulary of {size} (ids 0 to {})",
            size - 1
        )
    );
    let vocab = json!({"a": 0, "b": 7, "[UNK]": 3});
    let value = json!({"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"}});
    let holes = with(&value, &[]).expect("a tokenizer");
    assert_eq!(holes.vocab_size(), 8);
    assert_eq!(holes.decode(&[0, 5, 7]).as_deref(), Ok("a b"));
    assert_eq!(holes.token_of(5), None);
}

#[test]
fn broken_files_are_errors_that_name_file_and_fault() {
    let value = json_of("byte_level");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        with(&value, &[]).expect_err("must be refused")
    };
    let refused = |name: &str, beside: Value| with(&value, &[(name, beside)]).expect_err("must be refused");
    let cases = [
        (
            changed(&|v| v["model"]["vocab"] = json!({})),
            "DIR/tokenizer.json is no usable tokenizer: ",
        ),
        (
            changed(&|v| v["model"]["merges"] = json!([["Z", "nowhere"]])),
            "nowhere",
        ),
        (
            changed(&|v| v["model"]["type"] = json!("Telepathy")),
            "tokenizer.json is no usable tokenizer: ",
        ),
        (
            changed(&|v| v["version"] = json!("9.0")),
            "Unknown tokenizer version '9.0'",
        ),
        (
            changed(&|v| {
                v["decoder"] =
                    json!({"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": true})
            }),
            "its decoder is \"CTC\"",
        ),
        (
            changed(&|v| v["decoder"] = json!({"type": "Strip", "content": " ", "start": 1, "stop": 1})),
            "its decoder is \"Strip\"; unisono follows",
        ),
        (
            changed(&|v| v["added_tokens"][0]["id"] = json!(77)),
            "the added token \"<|begin|>\" has id 77 in added_tokens, but gets 0",
        ),
        (
            changed(&|v| v["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "?"})),
            "its normalizer's precompiled_charsmap is broken: ",
        ),
        (
            changed(&|v| v["post_processor"]["processors"][1]["special_tokens"] = json!({})),
            "its post-processor cannot be used: ",
        ),
        (
            refused("tokenizer_config.json", json!({"eos_token": "<gone>"})),
            "name \"<gone>\" as eos_token, but it has no such token",
        ),
        (
            refused("tokenizer_config.json", json!({"eos_token": 7})),
            "DIR/tokenizer_config.json is no usable tokenizer: eos_token must be a token, but is 7",
        ),
        (
            refused("tokenizer_config.json", json!({"chat_template": 7})),
            "chat_template must be a text, but is 7",
        ),
        (
            refused("tokenizer_config.json", json!([1])),
            "it must hold a JSON object",
        ),
        (
            refused("generation_config.json", json!({"eos_token_id": "x"})),
            "DIR/generation_config.json is no usable tokenizer: eos_token_id must be a token id",
        ),
    ];
    for (text, wanted) in cases {
        assert!(text.contains(wanted), "{text}\nhas no\n{wanted}");
    }
}

#[test]
fn files_that_are_no_tokenizers_are_refused() {
    let folder = tempdir().expect("a temporary directory");
    let file = folder.path().join("tokenizer.json");
    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).expect("a writable directory");
        Tokenizer::load(&file).expect_err("must be refused").to_string()
    };
    let deep = format!("{{\"model\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let cut = &json_of("byte_level").to_string()[..2000];
    for (text, wanted) in [
        (refused(b""), "it ends before its JSON does"),
        (
            refused(b"\xff\xfe{"),
            "it is not UTF-8 text: byte 0 is no part of a character",
        ),
        (refused(deep.as_bytes()), "recursion limit"),
        (refused(cut.as_bytes()), "it ends before its JSON does"),
        (refused(b"{\"model\": {}}"), "is no usable tokenizer: "),
        (
            refused(b"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": {}}}"),
            "is no usable tokenizer: ",
        ),
    ] {
        assert!(
            text.contains(wanted) && text.contains("tokenizer.json"),
            "{text}\nhas no\n{wanted}"
        );
    }
    // Larger than any of its kind: refused before it is read.
    fs::File::create(&file)
        .and_then(|file| file.set_len(1 << 40))
        .expect("a sparse file");
    let text = Tokenizer::load(&file).expect_err("must be refused").to_string();
    assert!(
        text.contains("it has 1099511627776 bytes, and at most 536870912 are read"),
        "{text}"
    );
    fs::remove_file(&file).expect("it is there");
    let text = Tokenizer::load(folder.path()).expect_err("must be refused").to_string();
    assert!(text.ends_with("it has no tokenizer.json"), "{text}");
    fs::write(folder.path().join("tokenizer.model"), "x").expect("a writable directory");
    let text = Tokenizer::load(folder.path()).expect_err("must be refused").to_string();
    assert!(
        text.contains("it has tokenizer.model but no tokenizer.json") && text.contains("save_pretrained"),
        "{text}"
    );
}

#[test]
fn a_trained_bpe_is_the_same_each_time_and_reads_back() {
    let texts = [corpus::stories(), "Привет 🦓\n\n  indented\r\n".repeat(50)];
    let options = BpeOptions {
        vocab_size: 512,
        bos: true,
        special_tokens: vec!["<|im_start|>".into(), "<|im_end|>".into()],
    };
    let trained = train_bpe(&texts, &options).expect("a tokenizer");
    assert_eq!(train_bpe(&texts, &options), Ok(trained.clone()));
    let tokenizer = Tokenizer::Hf(trained);
    assert_eq!((tokenizer.vocab_size(), tokenizer.kind()), (512, "BPE"));
    assert_eq!(
        (tokenizer.bos(), tokenizer.eos_ids(), tokenizer.pad()),
        (Some(0), &[0][..], Some(0))
    );
    assert_eq!(tokenizer.id_of("<|im_end|>"), Some(2));
    for text in [texts[1].as_str(), "漢字 never seen \u{0}\u{7f}", ""] {
        let ids = tokenizer.encode(text).expect("encodes");
        assert_eq!(tokenizer.decode(&ids).as_deref(), Ok(text));
        assert_eq!(tokenizer.encode_prompt(text), Ok([&[0], ids.as_slice()].concat()));
    }
    let tokens = tokenizer.encode(&texts[0]).expect("encodes").len();
    assert!(
        tokens * 2 < texts[0].len(),
        "{tokens} tokens for {} bytes",
        texts[0].len()
    );
    let without = train_bpe(
        &texts,
        &BpeOptions {
            bos: false,
            ..options.clone()
        },
    )
    .expect("a tokenizer");
    let without = Tokenizer::Hf(without);
    assert_eq!((without.bos(), without.encode_prompt("a")), (None, without.encode("a")));
    // A text of few pairs gives fewer tokens than asked for.
    let few = train_bpe(&["abab".into()], &options).expect("a tokenizer");
    assert!((259..512).contains(&few.vocab_size()), "{few:?}");
    for (options, problem) in [
        (
            BpeOptions {
                vocab_size: 258,
                ..options.clone()
            },
            "the vocabulary size is 258, and at least 259 ids are needed: 256 for the bytes and 3 for the special tokens",
        ),
        (
            BpeOptions {
                special_tokens: vec!["".into()],
                ..options.clone()
            },
            "a special token is empty",
        ),
        (
            BpeOptions {
                special_tokens: vec!["<|endoftext|>".into()],
                ..options
            },
            "\"<|endoftext|>\" is given twice",
        ),
    ] {
        let error = train_bpe(&texts, &options).expect_err("must be refused").to_string();
        assert!(error.contains(problem), "{error}");
    }
}
