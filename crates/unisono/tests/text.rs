//! `unisono tokenizer` and `unisono data` as a user runs them.

mod common;

use common::Sandbox;
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// Runs a command with a text on standard input, and gives standard output.
fn piped(s: &Sandbox, arguments: &str, input: &[u8]) -> String {
    let mut child = s
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    child
        .stdin
        .take()
        .expect("a pipe")
        .write_all(input)
        .expect("the program reads");
    let output = child.wait_with_output().expect("the program ends");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_tokenizer_is_trained_and_used() {
    let s = Sandbox::new();
    s.write(
        "more.jsonl",
        "{\"prompt\": \"Who was late?\", \"response\": \"The bear was late.\"}\n",
    );
    s.run("tokenizer train --data text.txt more.jsonl --vocab-size 300 --special <|im_end|> --out tok")
        .ended(0)
        .says(&["wrote tok: ", " tokens, ", " bytes of the text a token"]);
    assert_eq!(s.names("tok"), ["tokenizer.json", "tokenizer_config.json"]);
    // The same files give the same bytes.
    s.run("tokenizer train --data text.txt more.jsonl --vocab-size 300 --special <|im_end|> --out again")
        .ended(0);
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let bytes = |folder: &str| fs::read(s.path(folder).join(file)).expect("a file");
        assert_eq!(bytes("tok"), bytes("again"), "{file}");
    }
    let done = s.run("--json tokenizer encode -t tok bear<|im_end|>").ended(0);
    let encoded = done.json();
    let ids: Vec<String> = encoded["ids"]
        .as_array()
        .expect("ids")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        encoded["tokens"].as_array().expect("tokens").last(),
        Some(&"<|im_end|>".into())
    );
    s.run(&format!("tokenizer decode -t tok --ids {}", ids.join(",")))
        .ended(0)
        .says(&["bear<|im_end|>\n"]);
    s.run(&format!(
        "tokenizer decode -t tok/tokenizer.json --skip-special --ids {}",
        ids.join(",")
    ))
    .ended(0)
    .says(&["bear\n"]);
    let text = "Ein Bär 🦓,\n\n  zwei";
    let ids = piped(&s, "tokenizer encode -t tok", text.as_bytes());
    assert_eq!(
        piped(&s, "tokenizer decode -t tok", ids.as_bytes()),
        format!("{text}\n")
    );
    assert_eq!(piped(&s, "tokenizer encode -t tok", b""), "\n");
}

#[test]
fn what_is_wrong_with_a_tokenizer_is_said() {
    let s = Sandbox::new();
    s.run("tokenizer train --data text.txt --vocab-size 300 --out tok")
        .ended(0)
        .tells(&["the vocabulary is "]);
    s.run("tokenizer train --data text.txt --vocab-size 300 --out tok")
        .ended(2)
        .tells(&["tok/tokenizer.json exists already and is left as it is"]);
    s.run("tokenizer train --data text.txt --vocab-size 99 --out other")
        .ended(2)
        .tells(&["the vocabulary size is 99"]);
    s.run("tokenizer train --data text.txt --vocab-size 256 --out other")
        .ended(2)
        .tells(&["is 256, and at least 257 ids are needed: 256 for the bytes and 1 for the special token;"]);
    s.write("empty.txt", "");
    s.run("tokenizer train --data empty.txt --vocab-size 300 --out other")
        .ended(2)
        .tells(&["empty.txt is empty: there is no text in it to learn tokens from"]);
    s.run("tokenizer train --data nothing.txt --vocab-size 300 --out other")
        .ended(2)
        .tells(&["cannot read nothing.txt"]);
    assert!(!s.path("other").exists());
    s.run("tokenizer encode -t nowhere x")
        .ended(2)
        .tells(&["cannot read nowhere"]);
    s.run("tokenizer encode -t text.txt x")
        .ended(2)
        .tells(&["text.txt holds no usable vocabulary"]);
    s.run("tokenizer decode -t tok --ids 1,999999")
        .ended(2)
        .tells(&["token id 999999 at position 1"]);
    s.run("tokenizer decode -t tok --ids 1,-2")
        .ended(2)
        .tells(&["a whole number from 0 to 4294967295 is needed"]);
    s.write("bad.jsonl", "{\"prompt\": 1}\n");
    s.run("tokenizer train --data bad.jsonl --vocab-size 300 --out other")
        .ended(2)
        .tells(&["bad.jsonl has a line that cannot be used:"]);
}

#[test]
fn data_is_counted_and_every_problem_named() {
    let s = Sandbox::new();
    s.run("tokenizer train --data text.txt --vocab-size 300 --out tok")
        .ended(0);
    s.write(
        "good.jsonl",
        "{\"prompt\": \"Who?\", \"response\": \"The fox.\"}\r\n\n{\"prompt\": \"Who?\", \"response\": \"The fox.\"}\n\
         {\"instruction\": \"Sit!\", \"output\": \"\"}\n",
    );
    s.run("data check good.jsonl").ended(0).says(&[
        "examples      3",
        "fields        2 prompt/response, 1 instruction/input/output",
        "the file mixes forms",
        "bytes, median ",
        "empty answer  1: line 4",
        "duplicates    1: line 3",
        "1 line ends in CRLF",
        "nothing is in the way of training on it",
    ]);
    s.run("data check good.jsonl --tokenizer tok --template lesson --max-length 34")
        .ended(0)
        .says(&["tokens, median ", "truncated     2: lines 1, 3"]);
    s.run("data check good.jsonl --tokenizer tok --template lesson --max-length 4")
        .ended(2)
        .says(&[
            "all masked    3: lines 1, 3, 4",
            "good.jsonl has no answer to learn: 1 of 3 answers is empty, 2 of 3 answers begin beyond",
        ]);
    s.write(
        "bad.jsonl",
        "{\"prompt\": \"a\", \"response\": \"b\"}\nnonsense\n{\"prompt\": \"a\"}\n",
    );
    s.run("data check bad.jsonl").ended(2).says(&[
        "bad.jsonl:2: it must be a JSON object {…}, but begins with 'n'",
        "bad.jsonl:3: it needs prompt and response",
        "2 lines cannot be used",
    ]);
    let done = s.run("--json data check bad.jsonl -t tok").ended(2);
    let report = done.json();
    assert_eq!(
        (report["usable"].as_bool(), report["unit"].as_str()),
        (Some(false), Some("tokens"))
    );
    assert_eq!(report["report"]["problems"][1]["line"], 3);
    assert_eq!(report["report"]["forms"]["prompt/response"], 1);
    s.run("data check bad.jsonl --template nonsense")
        .ended(2)
        .tells(&["the template \"nonsense\" is unknown"]);
    s.run("data check bad.jsonl -t tok --template chat")
        .ended(2)
        .tells(&["the chat template is missing"]);
    s.run("data check nothing.jsonl")
        .ended(2)
        .tells(&["cannot read nothing.jsonl"]);
}
