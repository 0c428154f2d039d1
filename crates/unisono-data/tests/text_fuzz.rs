//! Broken and hostile text files: tokenizers, chat templates, JSONL. Whatever the bytes are, the answer is a value or an error in words,
//! and it comes soon. The quick tests run a few cases; `more_of_all` (ignored) runs many.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;
use tempfile::tempdir;
use unisono_data::{ChatTemplate, Examples, HfTokenizer, Message, Template, Tokenizer};

/// A change to a text: at a place (in parts of 2¹⁶), so many bytes go and these come.
type Change = (u16, u8, Vec<u8>);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let words: Vec<&[u8]> = vec![
        b"null",
        b"-1",
        b"4294967295",
        b"1e999",
        b"\"\"",
        b"[]",
        b"{}",
        b"true",
        b"\"a\"",
        b"0",
        b"{%",
        b"%}",
        b"{{",
        b"}}",
    ];
    let new = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..4),
        proptest::sample::select(words).prop_map(<[u8]>::to_vec),
    ];
    proptest::collection::vec((any::<u16>(), 0..12u8, new), 1..5)
}

fn apply(text: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for (place, gone, new) in changes {
        let at = usize::from(*place) * bytes.len() / (1 << 16);
        let end = (at + usize::from(*gone)).min(bytes.len());
        bytes.splice(at..end, new.iter().copied());
    }
    bytes
}

fn reference(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(name)).expect("a file")
}

/// Uses a tokenizer in every way.
fn exercise(tokenizer: &Tokenizer) {
    for text in ["", "Hello wörld 🦓", "<|begin|>a<s>", "▁\u{0}\n"] {
        let Ok(ids) = tokenizer.encode_prompt(text) else {
            continue;
        };
        let whole = tokenizer.decode(&ids).expect("its own ids");
        let mut stream = tokenizer.stream();
        let mut pieces: String = ids.iter().map(|id| stream.push(*id).expect("its own ids")).collect();
        pieces += &stream.finish();
        assert_eq!(pieces, whole);
        let _ = (tokenizer.decode_text(&ids), tokenizer.encode_pair(text, text));
    }
    let _ = tokenizer.decode(&[u32::MAX]);
}

fn tokenizers(cases: u32) {
    let kinds: Vec<Vec<u8>> = ["byte_level", "byte_fallback", "metaspace", "word_piece"]
        .iter()
        .map(|kind| reference(&format!("{kind}/tokenizer.json")))
        .collect();
    let strategy = (0..kinds.len(), changes());
    run(cases, &strategy, |(kind, changes)| {
        // Most of a file is vocabulary; its frame is where the interest is.
        let text = String::from_utf8_lossy(&kinds[kind]).into_owned();
        let (frame, vocabulary) = text.split_at(text.find("\"vocab\"").unwrap_or(text.len()));
        let mut bytes = apply(frame.as_bytes(), &changes);
        bytes.extend(vocabulary.as_bytes());
        for bytes in [bytes, apply(text.as_bytes(), &changes)] {
            if let Ok(tokenizer) = Tokenizer::from_json(&String::from_utf8_lossy(&bytes), "here") {
                exercise(&tokenizer);
            }
        }
        let config = apply(
            b"{\"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, \"chat_template\": [{\"name\": \"a\"}]}",
            &changes,
        );
        let files = vec![
            ("tokenizer_config.json".to_string(), config.clone()),
            ("generation_config.json".to_string(), config),
        ];
        let _ = HfTokenizer::new(text, "here", files, Some(b"{"));
    });
}

fn templates(cases: u32) {
    let names = [
        "llama3", "llama32", "qwen2", "qwen3", "zephyr", "mistral", "smollm", "odds",
    ];
    let sources: Vec<Vec<u8>> = names
        .iter()
        .map(|name| reference(&format!("chat/{name}.jinja")))
        .collect();
    let messages = [
        Message::new("user", "Hi 🦓"),
        Message::new("assistant", "<think>x</think> Ho"),
    ];
    run(cases, &(0..sources.len(), changes()), |(source, changes)| {
        let source = String::from_utf8_lossy(&apply(&sources[source], &changes)).into_owned();
        if let Ok(template) = ChatTemplate::new(&source, Some("<s>".into()), None, None) {
            let _ = template.render(&messages, true);
            if let Ok(rendered) = template.render_for_training(&messages) {
                assert!(
                    rendered
                        .answers
                        .iter()
                        .all(|answer| rendered.text.get(answer.clone()).is_some())
                );
            }
        }
    });
}

fn examples(cases: u32) {
    let lines =
        b"{\"prompt\": \"a\", \"response\": \"b\"}\n{\"instruction\": \"a\", \"input\": \"\", \"output\": \"c\"}\r\n\
        {\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n";
    let folder = tempdir().expect("a temporary directory");
    let path = folder.path().join("data.jsonl");
    let tokenizer = Tokenizer::from_json(
        &String::from_utf8_lossy(&reference("byte_level/tokenizer.json")),
        "here",
    )
    .expect("a tokenizer");
    run(cases, &changes(), |changes| {
        fs::write(&path, apply(lines, &changes)).expect("a writable directory");
        for template in [Template::Plain, Template::QuestionAnswer] {
            let (examples, report) = Examples::check(&path, Some(&tokenizer), &template, 8).expect("a report");
            assert_eq!(examples.len() + report.problems.len(), report.lines);
            for example in examples.iter() {
                assert!(
                    example
                        .answers
                        .iter()
                        .all(|answer| answer.start <= answer.end && answer.end <= example.ids.len())
                );
            }
        }
        let _ = Examples::load(&path, &tokenizer, &Template::Auto, 8);
    });
}

fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value)) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(strategy, |value| {
        test(value);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn tokenizers_of_any_bytes() {
    tokenizers(60);
}

#[test]
fn chat_templates_of_any_bytes() {
    templates(300);
}

#[test]
fn examples_of_any_bytes() {
    examples(200);
}

#[test]
#[ignore = "the long suite: minutes"]
fn more_of_all() {
    tokenizers(5_000);
    templates(50_000);
    examples(20_000);
}
