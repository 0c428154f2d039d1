//! The built-in corpus: the same bytes everywhere, and the shape that the default model counts on.

use std::collections::BTreeSet;
use std::time::Instant;
use unisono_data::{Tokenizer, Tokens, Trigram, corpus::stories, files::hash_bytes, split};

#[test]
fn the_corpus_is_the_same_bytes_everywhere() {
    let start = Instant::now();
    let text = stories();
    let took = start.elapsed();
    assert!((1_200_000..1_210_000).contains(&text.len()), "{} bytes", text.len());
    assert_eq!(
        hash_bytes(text.as_bytes()),
        "93dcfbe5fe0c278f53dad83bf2aabe5e5f37700e7bc363f585c210361f40ec2e",
        "another corpus; its beginning:\n{}",
        &text[..3000]
    );
    assert!(took.as_millis() < 1000, "it took {took:?}, and should take about 50 ms");
}

#[test]
fn it_is_plain_prose_with_a_modest_vocabulary() {
    let text = stories();
    assert!(text.is_ascii() && !text.contains(['{', '}', '\r', '\t']));
    let words: BTreeSet<String> = text
        .split(|c: char| !c.is_ascii_alphabetic())
        .filter(|w| !w.is_empty())
        .map(str::to_lowercase)
        .collect();
    assert!((400..=900).contains(&words.len()), "{} words", words.len());
    let characters = Tokenizer::char_from_text(&text).expect("not empty").vocab_size();
    assert!((40..=64).contains(&characters), "{characters} characters");
    assert!(!text.contains("  ") && !text.contains("\n\n\n") && text.ends_with(".\n\n") | text.ends_with("\"\n\n"));
    for story in text.trim_end().split("\n\n") {
        assert_eq!(story.lines().count(), 3, "{story}");
    }
}

#[test]
fn a_trigram_model_is_left_with_much_to_learn() {
    let text = stories();
    let tokenizer = Tokenizer::char_from_text(&text).expect("not empty");
    let ids = tokenizer.encode(&text).expect("its own characters");
    let tokens = Tokens::from_vec(ids, tokenizer.vocab_size(), "corpus").expect("its own ids");
    let (train, validation) = split(&tokens, 0.1).expect("enough text");
    let model = Trigram::fit(train.iter(), tokens.vocab_size()).expect("valid ids");
    let loss = model
        .nats_per_token(validation.iter())
        .expect("valid ids")
        .expect("not empty");
    assert!((1.0..1.7).contains(&loss), "{loss} nats per character");
}
