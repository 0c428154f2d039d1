//! Files of examples that teach nothing, and why. FAULTS 51.

use unisono_data::{Examples, Template, Tokenizer};

#[test]
fn a_file_without_anything_to_learn_is_refused_for_its_true_reason() {
    let byte = Tokenizer::Byte;
    let line = |prompt: &str, response: &str| format!("{{\"prompt\": \"{prompt}\", \"response\": \"{response}\"}}\n");
    for (lines, expected) in [
        // A byte tokenizer has no token for the end, so that an empty answer leaves nothing.
        (
            vec![line("a", ""), line("b", ""), line("longer than eight", "")],
            "has no answer to learn: 3 of 3 answers are empty; give the examples answers",
        ),
        (
            vec![line("longer than eight", "a"), line("even longer than that", "b")],
            "has no answer to learn: 2 of 2 answers begin beyond the longest length allowed (the shortest example has 18 tokens); \
             allow longer sequences",
        ),
        (
            vec![line("longer than eight", "a"), line("", "b")],
            "has no answer to learn: 1 of 2 answers begins beyond the longest length allowed, 1 of 2 answers is a single token with \
             nothing before it to predict it from; allow longer sequences, give the examples prompts",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pairs.jsonl");
        std::fs::write(&path, lines.concat()).expect("written");
        let error = Examples::load(&path, &byte, &Template::Plain, 8)
            .expect_err("must be refused")
            .to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}
