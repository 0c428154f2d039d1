//! Fine-tuning examples: forms, templates, masks, batches, and every kind of bad line.

use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::{TempDir, tempdir};
use unisono_data::examples::{Duplicate, Lengths, Report};
use unisono_data::{Batch, ExampleBatches, Examples, HfTokenizer, IGNORE, Template, Tokenizer};

fn reference(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(name)
}

/// BOS `<|begin|>`, and `<|end|>` as EOS and as padding.
fn byte_level() -> Tokenizer {
    Tokenizer::load(&reference("byte_level")).expect("a tokenizer")
}

/// The same with a chat template whose turns end in `<|im_end|>`.
fn chat() -> Tokenizer {
    let json = fs::read_to_string(reference("byte_level/tokenizer.json")).expect("a file");
    let template = fs::read(reference("chat/qwen2.jinja")).expect("a file");
    let config = json!({"eos_token": "<|im_end|>", "pad_token": "<|im_end|>"})
        .to_string()
        .into_bytes();
    let files = vec![
        ("tokenizer_config.json".to_string(), config),
        ("chat_template.jinja".to_string(), template),
    ];
    Tokenizer::Hf(HfTokenizer::new(json, "here", files, None).expect("a tokenizer"))
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempdir().expect("a temporary directory");
    let path = folder.path().join("data.jsonl");
    fs::write(&path, bytes).expect("a writable directory");
    (folder, path)
}

fn load(text: &str, tokenizer: &Tokenizer, template: &Template, most: usize) -> (Examples, Report) {
    let (_folder, path) = file(text.as_bytes());
    Examples::load(&path, tokenizer, template, most).expect("examples")
}

/// The text that the loss is on, special tokens spelt out.
fn learnt(tokenizer: &Tokenizer, examples: &Examples, index: usize) -> Vec<String> {
    let example = examples.get(index).expect("an example");
    let answers = example.answers.iter();
    answers
        .map(|answer| tokenizer.decode(&example.ids[answer.clone()]).expect("ids"))
        .collect()
}

fn whole(tokenizer: &Tokenizer, examples: &Examples, index: usize) -> String {
    tokenizer
        .decode(examples.get(index).expect("an example").ids)
        .expect("ids")
}

const FRANCE: &str = r#"{"prompt": "What is the capital of France?", "response": "Paris.", "id": [1, {"x": 2}]}"#;

#[test]
fn the_lessons_template_and_the_others() {
    let tokenizer = byte_level();
    for (template, text) in [
        (
            "lesson",
            "<|begin|>### Question:\nWhat is the capital of France?\n\n### Answer:\nParis.<|end|>",
        ),
        (
            "question-answer",
            "<|begin|>### Question:\nWhat is the capital of France?\n\n### Answer:\nParis.<|end|>",
        ),
        (
            "auto",
            "<|begin|>### Question:\nWhat is the capital of France?\n\n### Answer:\nParis.<|end|>",
        ),
        ("plain", "<|begin|>What is the capital of France?Paris.<|end|>"),
        (
            "Q: {prompt} A: {response}",
            "<|begin|>Q: What is the capital of France? A: Paris.<|end|>",
        ),
        (
            "<|begin|>{prompt}\n{response}",
            "<|begin|>What is the capital of France?\nParis.<|end|>",
        ),
    ] {
        let template = Template::parse(template).expect("a template");
        assert_eq!(Template::parse(&template.text()), Ok(template.clone()));
        let (examples, _) = load(FRANCE, &tokenizer, &template, 1000);
        assert_eq!(whole(&tokenizer, &examples, 0), text);
        // A token of the vocabulary could join a blank and the word after it, but the prompt ends with the blank.
        assert_eq!(learnt(&tokenizer, &examples, 0), ["Paris.<|end|>"], "{text}");
        let example = examples.get(0).expect("an example");
        assert_eq!(
            (example.question, example.reference),
            ("What is the capital of France?", "Paris.")
        );
        assert_eq!(
            tokenizer.encode_prompt(example.prompt).as_deref(),
            Ok(&example.ids[..example.answers[0].start])
        );
        let asked = template
            .prompt("What is the capital of France?", None)
            .expect("a prompt");
        if template != Template::Auto {
            assert_eq!(asked, example.prompt);
        }
    }
    let with_end = Template::parse("{prompt} -> {response}\n##").expect("a template");
    let (examples, _) = load(FRANCE, &tokenizer, &with_end, 1000);
    assert_eq!(learnt(&tokenizer, &examples, 0), ["Paris.\n##<|end|>"]);
    for (text, problem) in [
        ("nonsense", "is unknown; there are auto, question-answer"),
        ("{prompt} only", "must have {prompt} once and {response} once"),
        ("{prompt}{prompt}{response}", "must have {prompt} once"),
        ("{response} {prompt}", "has {response} before {prompt}"),
    ] {
        let error = Template::parse(text).expect_err("must be refused").to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn all_forms_are_read_and_told() {
    let tokenizer = chat();
    let text = [
        FRANCE,
        r#"{"prompt": "1+1=", "completion": " 2"}"#,
        r#"{"instruction": "Add.", "input": "1 and 1", "output": "2"}"#,
        r#"{"instruction": "Sing.", "input": "", "output": "La"}"#,
        r#"{"instruction": "Sing.", "input": null, "output": "Li"}"#,
        r#"{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho", "weight": 1}], "prompt": "Hi"}"#,
    ]
    .join("\n");
    let (examples, report) = load(&text, &tokenizer, &Template::Auto, 1000);
    let forms: Vec<(&str, usize)> = report.forms.iter().map(|(form, count)| (form.name(), *count)).collect();
    assert_eq!(
        forms,
        [
            ("prompt/response", 1),
            ("prompt/completion", 1),
            ("instruction/input/output", 3),
            ("messages", 1)
        ]
    );
    assert_eq!(
        whole(&tokenizer, &examples, 2),
        "<|begin|>Below is an instruction that describes a task, paired with an input that provides further context. Write a response that \
         appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 and 1\n\n### Response:\n2<|im_end|>"
    );
    assert_eq!(
        whole(&tokenizer, &examples, 3),
        "<|begin|>Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n\
         ### Instruction:\nSing.\n\n### Response:\nLa<|im_end|>"
    );
    assert_eq!(
        whole(&tokenizer, &examples, 5),
        "<|begin|><|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
    );
    // One EOS: the template has written it.
    assert_eq!(learnt(&tokenizer, &examples, 5), ["Ho<|im_end|>\n"]);
    let lines: Vec<usize> = examples.iter().map(|example| example.line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 5, 6]);
    let (examples, _) = load(&text, &tokenizer, &Template::Chat, 1000);
    assert!(
        whole(&tokenizer, &examples, 2).contains("user\nAdd.\n\n1 and 1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>")
    );
    let (examples, _) = load(&text, &tokenizer, &Template::QuestionAnswer, 1000);
    assert_eq!(
        whole(&tokenizer, &examples, 5),
        "<|begin|>### Question:\nHi\n\n### Answer:\nHo<|im_end|>"
    );
}

#[test]
fn each_answer_of_a_conversation_is_learnt_and_nothing_else() {
    let tokenizer = chat();
    let talk = json!({"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
        {"role": "assistant", "content": "Four."},
        {"role": "user", "content": "Left out"},
    ]});
    let (examples, _) = load(&talk.to_string(), &tokenizer, &Template::Auto, 1000);
    assert_eq!(
        learnt(&tokenizer, &examples, 0),
        ["Two.<|im_end|>\n", "Four.<|im_end|>\n"]
    );
    let example = examples.get(0).expect("an example");
    assert_eq!((example.question, example.reference), ("Three?", "Four."));
    assert!(example.prompt.ends_with("Three?<|im_end|>\n<|im_start|>assistant\n"));
    assert!(!whole(&tokenizer, &examples, 0).contains("Left out"));
    // Without the chat template's turns it is no question with an answer.
    let (_folder, path) = file(talk.to_string().as_bytes());
    let error = Examples::load(&path, &tokenizer, &Template::Plain, 1000).expect_err("must be refused");
    assert!(
        error
            .to_string()
            .contains("line 1: the template \"chat\" is needed for a conversation of 6 messages"),
        "{error}"
    );
    let error = Examples::load(&path, &byte_level(), &Template::Auto, 1000).expect_err("must be refused");
    assert!(error.to_string().contains("the chat template is missing"), "{error}");
}

#[test]
fn a_batch_masks_by_place_and_not_by_id() {
    // EOS and padding are the same id here, and the answer has an EOS of its own in the middle.
    let tokenizer = byte_level();
    assert_eq!(tokenizer.pad(), tokenizer.eos_ids().first().copied());
    let text = "{\"prompt\": \"a<|end|>b\", \"response\": \"c\"}\n{\"prompt\": \"x\", \"response\": \"yyyyyy\"}\n";
    let (examples, _) = load(text, &tokenizer, &Template::Plain, 1000);
    let width = examples.longest() - 1;
    let batches = ExampleBatches::new(Arc::new(examples), width, 0, false).expect("batches");
    let mut batch = Batch::default();
    batches.fill(0, 2, &mut batch).expect("fits");
    let id = |token: &str| tokenizer.id_of(token).expect("a token");
    let (begin, end, [a, b, c, x, y]) = (id("<|begin|>"), id("<|end|>"), ["a", "b", "c", "x", "y"].map(id));
    let ys = tokenizer.encode("yyyyyy").expect("encodes");
    assert_eq!(ys, vec![y; 6]);
    assert_eq!(
        batch.inputs,
        [[begin, a, end, b, c, 0, 0, 0], [begin, x, y, y, y, y, y, y]].concat()
    );
    let no = IGNORE;
    assert_eq!(
        batch.targets,
        [[no, no, no, c, end, no, no, no], [no, y, y, y, y, y, y, end]].concat()
    );
    assert_eq!((batch.num_targets(), batches.num_targets()), (9, 9));
    let error =
        ExampleBatches::new(Arc::new(batches.examples().clone()), width - 1, 0, false).expect_err("must be refused");
    assert!(
        error.to_string().contains("is 7, and the longest example has 9 tokens"),
        "{error}"
    );
}

#[test]
fn long_examples_are_cut_counted_and_named() {
    let tokenizer = byte_level();
    let text = "{\"prompt\": \"zzzzzz\", \"response\": \"yyyy\"}\n\n{\"prompt\": \"z\", \"response\": \"y\"}\n{\"prompt\": \"z\", \"response\": \"\"}\n";
    // BOS, six, four, EOS; BOS, one, one, EOS; BOS, one, EOS.
    let (examples, report) = load(text, &tokenizer, &Template::Plain, 9);
    assert_eq!(
        report.lengths,
        Some(Lengths {
            min: 3,
            median: 4,
            p95: 12,
            max: 12
        })
    );
    assert_eq!(
        (
            report.lines,
            report.blank,
            report.examples,
            report.tokens,
            report.targets
        ),
        (3, 1, 3, 9 + 4 + 3, 2 + 2 + 1)
    );
    assert_eq!(
        (report.truncated, report.all_masked, report.empty_answers),
        (vec![1], vec![], vec![4])
    );
    assert_eq!(examples.longest(), 9);
    assert_eq!(learnt(&tokenizer, &examples, 0), ["yy"]);
    let (examples, report) = load(text, &tokenizer, &Template::Plain, 7);
    assert_eq!(
        (report.truncated, report.all_masked, report.targets),
        (vec![1], vec![1], 3)
    );
    let example = examples.get(0).expect("an example");
    assert_eq!(
        (example.ids.len(), example.answers.len(), example.num_targets()),
        (7, 0, 0)
    );
    // A batch of it alone has nothing to learn, and says so.
    let batches = ExampleBatches::new(Arc::new(examples), 8, 0, false).expect("batches");
    let mut batch = Batch::default();
    batches.fill(0, 1, &mut batch).expect("fits");
    assert_eq!((batch.num_targets(), batch.targets.len()), (0, 8));
    let (_folder, path) = file(text.as_bytes());
    let refuse = |most| {
        Examples::load(&path, &tokenizer, &Template::Plain, most)
            .expect_err("must be refused")
            .to_string()
    };
    assert!(refuse(2).ends_with(
        "has no answer to learn: 1 of 3 answers is empty, 2 of 3 answers begin beyond the longest length allowed; give the \
         examples answers, allow longer sequences"
    ));
    assert!(refuse(1).contains("the longest sequence length is 1; it must be at least 2"));
}

#[test]
fn batches_go_on_from_epoch_to_epoch() {
    let text: String = (0..50)
        .map(|i| format!("{{\"prompt\": \"p{i}\", \"response\": \"r{i}\"}}\n"))
        .collect();
    let (examples, _) = load(&text, &byte_level(), &Template::Plain, 64);
    let examples = Arc::new(examples);
    let batches = ExampleBatches::new(Arc::clone(&examples), 63, 5, true).expect("batches");
    let row = |batches: &ExampleBatches, first: u64, count: usize| {
        let mut batch = Batch::default();
        batches.fill(first, count, &mut batch).expect("fits");
        batch
    };
    let in_order = {
        let mut batch = Batch::default();
        batches.fill_in_order(0, 64, &mut batch).expect("fits");
        batch
    };
    let rows = |batch: &Batch| batch.inputs.chunks(63).map(<[u32]>::to_vec).collect::<Vec<_>>();
    let known = rows(&in_order);
    assert!(
        known[50..].iter().flatten().all(|id| *id == 0),
        "rows past the last example are empty"
    );
    assert_eq!(
        in_order.num_targets(),
        batches.num_targets(),
        "each example counts once"
    );
    // 64 of 50: an epoch, and 14 of the next.
    let places: Vec<usize> = rows(&row(&batches, 0, 64))
        .iter()
        .map(|row| known.iter().position(|one| one == row).expect("an example"))
        .collect();
    let mut epoch = places[..50].to_vec();
    epoch.sort_unstable();
    assert_eq!(epoch, (0..50).collect::<Vec<_>>());
    assert_ne!(places[..50], (0..50).collect::<Vec<_>>());
    assert_ne!(places[..14], places[50..], "the next epoch has an order of its own");
    // However the samples are cut into batches, and wherever one begins, they are the same.
    let cut: Vec<u32> = [(0, 30), (30, 8), (38, 26)]
        .into_iter()
        .flat_map(|(first, count)| row(&batches, first, count).targets)
        .collect();
    assert_eq!(cut, row(&batches, 0, 64).targets);
    assert!(batches.fill(u64::MAX, 2, &mut Batch::default()).is_err());
    assert!(batches.fill(0, usize::MAX, &mut Batch::default()).is_err());
}

#[test]
fn every_bad_line_is_told_with_its_number() {
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    let lines: [&[u8]; 16] = [
        b"{\"prompt\": \"good\", \"response\": \"line\"}\r",
        b"{\"prompt\": \"a\", \"response\": }",
        b"[1, 2]",
        b"\"text\"",
        b"{\"prompt\": \"a\"}",
        b"{\"prompt\": 7, \"response\": \"b\"}",
        b"{\"prompt\": \"a\", \"response\": [\"b\"]}",
        b"{\"prompt\": \"a\", \"response\": \"b\", \"completion\": \"c\"}",
        b"{\"question\": \"a\", \"answer\": \"b\"}",
        b"{\"messages\": {}}",
        b"{\"messages\": [7]}",
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
        b"{\"messages\": [{\"role\": \"assistant\", \"content\": null}]}",
        b"{\"prompt\": \"a\xff\", \"response\": \"b\"}",
        b"{\"prompt\": \"a\", \"prompt\": \"b\", \"response\": \"c\"}",
        b"{\"prompt\": \"\\ud800\", \"response\": \"c\"}",
    ];
    bytes.extend(lines.join(&b'\n'));
    // One line that is too long, and a good one after it without a line's end.
    bytes.extend(b"\n{\"prompt\": \"");
    bytes.resize(bytes.len() + (17 << 20), b'x');
    bytes.extend(b"\"}\n{\"prompt\": \"good\", \"response\": \"line\"}");
    let (_folder, path) = file(&bytes);
    let (examples, report) = Examples::check(&path, Some(&byte_level()), &Template::Auto, 64).expect("a report");
    assert_eq!(
        (examples.len(), report.lines, report.bom, report.crlf),
        (2, 18, true, 1)
    );
    assert_eq!(report.duplicates, [Duplicate { line: 18, first: 1 }]);
    let wanted = [
        (2, "column 29: a value is missing there"),
        (3, "it must be a JSON object {…}, but begins with '['"),
        (4, "it must be a JSON object {…}, but begins with '\"'"),
        (
            5,
            "it needs prompt and response, prompt and completion, instruction and output, or messages, but has only prompt",
        ),
        (6, "prompt must be a text, but is a number"),
        (7, "response must be a text, but is a list"),
        (
            8,
            "it has the fields of two forms, prompt/response and prompt/completion; which one is meant?",
        ),
        (9, "but has none of these fields"),
        (10, "messages must be a list, but is an object"),
        (
            11,
            "message 1: it must be an object with role and content, but is a number",
        ),
        (12, "no message has the role assistant"),
        (13, "message 1: content is missing"),
        (14, "column 14: byte 0xff is no part of a character"),
        (15, "duplicate field `prompt`"),
        (16, "prompt: "),
        (17, "it is longer than 16 MiB"),
    ];
    assert_eq!(report.problems.len(), wanted.len());
    for (problem, (line, text)) in report.problems.iter().zip(wanted) {
        assert!(
            problem.line == line && problem.problem.contains(text),
            "{problem:?}\nhas no\n{line}: {text}"
        );
    }
    let error = Examples::load(&path, &byte_level(), &Template::Auto, 64)
        .expect_err("must be refused")
        .to_string();
    assert!(
        error.contains("data.jsonl has 16 lines that cannot be used:\nline 2: column 29"),
        "{error}"
    );
    assert!(error.contains("\nline 11: ") && !error.contains("line 12: "), "{error}");
    assert!(error.ends_with("and 6 more (unisono data check lists all)"), "{error}");
}

#[test]
fn a_file_without_examples_is_refused() {
    for bytes in [&b""[..], b"\n\r\n  \n", b"\xef\xbb\xbf"] {
        let (_folder, path) = file(bytes);
        let error = Examples::load(&path, &Tokenizer::Byte, &Template::Auto, 64).expect_err("must be refused");
        assert!(error.to_string().ends_with("data.jsonl holds no examples"), "{error}");
    }
    let (folder, _) = file(b"");
    assert!(Examples::load(folder.path(), &Tokenizer::Byte, &Template::Auto, 64).is_err());
    let letters = Tokenizer::char_from_text("abc#QuestionAnswer:\n ").expect("a tokenizer");
    let (_folder, path) = file("{\"prompt\": \"a\", \"response\": \"é\"}".as_bytes());
    let error = Examples::load(&path, &letters, &Template::Auto, 64)
        .expect_err("must be refused")
        .to_string();
    assert!(error.contains("line 1: the character 'é'"), "{error}");
}

#[test]
fn without_a_tokenizer_bytes_are_counted() {
    let (_folder, path) = file(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"é?\"}, {\"role\": \"assistant\", \"content\": \"ja\"}]}"
            .as_bytes(),
    );
    let (examples, report) = Examples::check(&path, None, &Template::Auto, usize::MAX).expect("a report");
    assert_eq!((report.tokens, report.targets, report.problems.len()), (5, 2, 0));
    assert_eq!(whole(&Tokenizer::Byte, &examples, 0), "é?ja");
}

#[test]
fn the_digest_tells_tokens_and_masks() {
    let tokenizer = byte_level();
    let digest = |text: &str| load(text, &tokenizer, &Template::Plain, 64).0.digest();
    let one = digest(r#"{"prompt": "a", "response": "bc"}"#);
    assert_eq!(one, digest("\n{\"response\": \"bc\", \"prompt\": \"a\"}\r\n"));
    assert_ne!(
        one,
        digest(r#"{"prompt": "ab", "response": "c"}"#),
        "the same tokens, another mask"
    );
    assert_ne!(one, digest(r#"{"prompt": "a", "response": "bd"}"#));
}

#[test]
fn a_prompt_has_the_tokens_that_generation_gives_it() {
    // "…:" and " Paris" would be other tokens together than one after the other when the prompt ends with the blank.
    for kind in ["byte_level", "byte_fallback", "metaspace"] {
        let tokenizer = Tokenizer::load(&reference(kind)).expect("a tokenizer");
        for (prompt, response) in [
            ("The capital: ", "Paris"),
            ("The capital", " of France"),
            ("for", "range"),
            ("", "Hello"),
            ("Привет", ", мир"),
        ] {
            let line = json!({"prompt": prompt, "response": response}).to_string();
            let (examples, _) = load(&line, &tokenizer, &Template::Plain, 64);
            let example = examples.get(0).expect("an example");
            let start = example.answers[0].start;
            assert_eq!(
                tokenizer.encode_prompt(prompt).as_deref(),
                Ok(&example.ids[..start]),
                "{kind} {line}"
            );
            // What is learnt is the response, with no blank lost or added in between.
            let all = tokenizer.decode_text(example.ids).expect("ids");
            let plain = tokenizer
                .decode_text(&tokenizer.encode(&format!("{prompt}{response}")).expect("encodes"))
                .expect("ids");
            assert_eq!(all.replace("  ", " "), plain.replace("  ", " "), "{kind} {line}");
        }
    }
}
