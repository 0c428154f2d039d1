//! `generate`, `chat` and `eval` on a model in Hugging Face's files, from the outside.

mod common;

use common::{Done, Sandbox, end, signal};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use unisono_nn::Regime;
use unisono_nn::models::LlamaConfig;
use unisono_nn::rope::{Rope, RopeScaling};
use unisono_tensor::{Dtype, MeshDevice};
use unisono_train::hub::{SaveOptions, save};
use unisono_train::model::ModelSpec;

/// Positions of the model.
const POSITIONS: usize = 128;

/// A folder with `model`: a small random Llama and a tokenizer of words, which has a chat template.
fn sandbox() -> Sandbox {
    let s = Sandbox::new();
    let mut vocab = json!({"<s>": 0, "</s>": 1, "<unk>": 2, "user": 3, "assistant": 4, "system": 5});
    for id in 6..64 {
        vocab[format!("w{id}")] = json!(id);
    }
    let special = |id: usize, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<s>"), special(1, "</s>"), special(2, "<unk>")],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    });
    let template = "{{ bos_token }}{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}\
                    {{ raise_exception('no such role') }}{% endif %}{{ ' ' + m.role + ' ' + m.content }}{% endfor %}\
                    {% if add_generation_prompt %}{{ ' assistant' }}{% endif %}";
    let settings = json!({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": true,
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template,
    });
    let config = LlamaConfig {
        vocab_size: 64,
        max_sequence_length: POSITIONS,
        num_blocks: 2,
        num_heads: 4,
        num_groups: 2,
        head_dim: 8,
        embedding_dim: 32,
        intermediate_dim: 64,
        rope: Rope {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        },
        norm_eps: 1e-5,
        weight_tying: false,
        qkv_bias: false,
        output_bias: false,
        mlp_bias: false,
        qk_norm: false,
        dropout: 0.0,
        recompute: false,
        dtype: Dtype::F32,
    };
    let device = MeshDevice::one().expect("a device");
    let spec = ModelSpec::Llama(config);
    let model = spec.build(&device, &Regime::default()).expect("a model");
    let parameters: Vec<_> = model.as_model().table().all().collect();
    let file = |name: &str, value: &Value| (name.to_string(), value.to_string().into_bytes());
    let options = SaveOptions {
        files: vec![
            file("tokenizer.json", &tokenizer),
            file("tokenizer_config.json", &settings),
        ],
        ..SaveOptions::default()
    };
    save(&s.path("model"), &spec, &parameters, &options).expect("it is written");
    s
}

/// Runs with a text on standard input.
fn fed(s: &Sandbox, arguments: &str, input: &str) -> Done {
    let mut child = s
        .command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let stdin = child.stdin.take();
    // A program that refuses its arguments may end before it reads.
    let _ = stdin.expect("it was asked for").write_all(input.as_bytes());
    end(child)
}

fn lines(done: &Done) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    done.out.lines().map(parse).collect()
}

/// Lines without what depends on the clock.
fn timeless(done: &Done) -> Vec<Value> {
    let mut lines = lines(done);
    for line in &mut lines {
        let rate = line.as_object_mut().and_then(|line| line.remove("tokens_per_second"));
        assert!(rate.is_some_and(|rate| rate.as_f64().is_some_and(|rate| rate >= 0.0)));
    }
    lines
}

#[test]
fn prompts_from_everywhere_come_back_in_order() {
    let s = sandbox();
    s.write("long.txt", "w9 w10 w11 w12 w13 w14");
    s.write(
        "in.jsonl",
        "{\"prompt\": \"w20 w21\", \"max_new_tokens\": 3, \"temperature\": 0}\n\n\
         {\"prompt_ids\": [0, 7, 8], \"max_new_tokens\": 30, \"seed\": 5, \"logprobs\": 2}\r\n\
         {\"messages\": [{\"role\": \"user\", \"content\": \"w30\"}], \"top_k\": 5, \"min_p\": 0.1}\n",
    );
    let line = "generate --model model --prompt w6 --prompt-file long.txt --input in.jsonl --jsonl -n 12 --seed 3";
    let done = s.run(line).ended(0).tells(&["new tokens over 5 prompts", "tokens/s"]);
    let all = timeless(&done);
    let index: Vec<_> = all.iter().map(|line| line["index"].as_u64()).collect();
    assert_eq!(index, (0..5).map(Some).collect::<Vec<_>>());
    assert_eq!(all[0]["prompt"], "w6");
    assert_eq!(all[1]["prompt"], "w9 w10 w11 w12 w13 w14");
    // Its own setting, unless the model ended the text.
    let len = all[2]["ids"].as_array().map_or(0, Vec::len);
    assert!(len == 3 || len < 3 && all[2]["finish"] == "stop", "{}", all[2]);
    assert_eq!(all[3]["prompt_ids"], json!([0, 7, 8]));
    assert_eq!(all[4]["messages"][0]["content"], "w30");
    let logprobs = all[3]["logprobs"].as_array().expect("they were asked for");
    assert_eq!(logprobs.len(), all[3]["ids"].as_array().map_or(0, Vec::len));
    for (of, id) in logprobs.iter().zip(all[3]["ids"].as_array().expect("ids")) {
        assert_eq!(of["id"], *id);
        assert!(of["logprob"].as_f64().is_some_and(|logprob| logprob <= 0.0));
        assert_eq!(of["top"].as_array().map(Vec::len), Some(2));
    }
    assert!(all[0].get("logprobs").is_none());
    // The same on every mesh, in every batch, from a pipe.
    for more in [
        "--batch 1",
        "--batch 2 --mesh dp=2",
        "--mesh tp=2",
        "--mesh dp=2,tp=2 --workers 1",
    ] {
        let other = s.run(&format!("{line} {more}")).ended(0);
        assert_eq!(timeless(&other), all, "{more}");
    }
    let piped = fed(
        &s,
        "generate --model model --input - --jsonl -n 12 --seed 3",
        &s.read("in.jsonl"),
    )
    .ended(0);
    let ids = |line: &Value| line["ids"].clone();
    assert_eq!(
        timeless(&piped).iter().map(ids).collect::<Vec<_>>(),
        all[2..].iter().map(ids).collect::<Vec<_>>()
    );
    s.run("generate --model model --input in.jsonl")
        .ended(0)
        .tells(&["logprobs of the prompts are left out: they are written with --json and --jsonl only"]);
    let short = s.run("generate --model model --prompt w6 -n 1 --seed 3").ended(0);
    short.tells(&["2 prompt tokens in ", "; 1 new token\n"]);
    // One alone is streamed, several are told apart.
    let one = s.run("generate --model model --prompt w6 -n 12 --seed 3").ended(0);
    assert_eq!(one.out, format!("w6{}\n", all[0]["text"].as_str().unwrap_or_default()));
    s.run("generate --model model --prompt w6 --prompt w7 -n 2")
        .ended(0)
        .says(&["=== 1 of 2, --prompt", "=== 2 of 2, --prompt"]);
    let results = s
        .run("generate --model model --prompt w6 --prompt w7 -n 2 --json")
        .ended(0)
        .json();
    assert_eq!(results["results"].as_array().map(Vec::len), Some(2));
}

#[test]
fn bf16_is_the_same_everywhere_too() {
    let s = sandbox();
    let line = "generate --model model --prompt w6 --prompt w7 --prompt w8 --jsonl -n 40 --seed 3 --dtype bf16";
    for line in [line.to_string(), format!("{line} --bf16-order tiles")] {
        let all = timeless(&s.run(&line).ended(0));
        for more in ["--batch 1", "--mesh dp=2", "--mesh tp=2"] {
            assert_eq!(timeless(&s.run(&format!("{line} {more}")).ended(0)), all, "{more}");
        }
    }
}

#[test]
fn bad_lines_are_named_by_number_and_nothing_runs() {
    let s = sandbox();
    s.write(
        "in.jsonl",
        "{\"prompt\": \"w6\"}\n{\"prompt\": 5}\n{\"prompt\": \"w6\", \"temprature\": 1}\nno JSON\n{}\n\
         {\"prompt\": \"w6\", \"prompt_ids\": [1]}\n{\"prompt_ids\": [1, 64]}\n{\"prompt_ids\": []}\n\
         {\"prompt\": \"w6\", \"top_p\": 2}\n{\"prompt\": \"w6\", \"stop\": \"\"}\n\
         {\"messages\": [{\"role\": \"robot\", \"content\": \"w6\"}]}\n",
    );
    let done = s.run("generate --model model --input in.jsonl --jsonl").ended(2);
    assert_eq!(done.out, "");
    let told = [
        (2, "column 12: prompt is 5; a text in quotation marks is needed"),
        (3, "unknown field `temprature`"),
        (
            4,
            "a request is a JSON object, {\"prompt\": …}, and this line begins with 'n'",
        ),
        (5, "a request has one of \"prompt\", \"prompt_ids\" and \"messages\""),
        (6, "a request has one of"),
        (7, "the token id 64 at place 1"),
        (8, "the prompt is empty"),
        (9, "top_p is 2"),
        (10, "stop text 1 of 1 is empty"),
        (11, "no such role"),
    ];
    let errors = done.errors();
    for (line, problem) in told {
        let found = errors
            .iter()
            .any(|e| e.starts_with(&format!("in.jsonl:{line}: ")) && e.contains(problem));
        assert!(found, "line {line}, {problem}: {errors:#?}");
    }
    assert!(!errors.iter().any(|error| error.starts_with("in.jsonl:1:")));
    s.write("none.jsonl", "\n\n");
    s.run("generate --model model --input none.jsonl")
        .ended(2)
        .tells(&["none.jsonl has no lines"]);
    // An empty file of requests holds none; one of a prompt is an empty prompt.
    s.write("empty", "");
    s.run("generate --model model --input empty")
        .ended(2)
        .tells(&["empty has no lines, so there is nothing to go on from"]);
    s.run("generate --model model --prompt-file empty -n 2").ended(0);
    for (file, bytes) in [
        ("latin.jsonl", &b"{\"prompt\": \"\xe9\"}"[..]),
        ("utf16.jsonl", b"\xff\xfe{\0"),
    ] {
        std::fs::write(s.path(file), bytes).expect("a file");
        let done = s.run(&format!("generate --model model --input {file}")).ended(2);
        let done = done.tells(&[&format!("{file} is not UTF-8 text: byte 0x"), "iconv -f "]);
        assert!(!done.err.contains("tokenizer_type"), "{}", done.err);
    }
    s.run("generate --model model --input nowhere.jsonl")
        .ended(2)
        .tells(&["nowhere.jsonl"]);
    s.run("generate --model nowhere --prompt w6").ended(2).tells(&[
        "nowhere does not exist: name a directory, or a model in Hugging Face's cache as org/name; a run of unisono's is named \
         with --run",
    ]);
    s.run("generate --run model --prompt w6")
        .ended(2)
        .tells(&["but a model in Hugging Face's files, which generate, chat and eval take as --model"]);
    s.run("generate --model model --prompt w6 --set a=b")
        .ended(2)
        .tells(&["--set a=b is for runs"]);
    s.run("generate --model model --prompt w6 --mesh tp=4")
        .ended(2)
        .tells(&["use a degree that divides 2"]);
    s.run("generate --prompt w6").ended(2).tells(&["--run", "--model"]);
}

#[test]
fn contexts_end_in_words() {
    let s = sandbox();
    s.write("long.txt", &"w9 ".repeat(POSITIONS + 1));
    s.run("generate --model model --prompt-file long.txt")
        .ended(2)
        .tells(&["long.txt: the prompt has 130 tokens", "positions for 128"]);
    s.write("long.txt", &"w9 ".repeat(POSITIONS - 10));
    s.run("generate --model model --prompt-file long.txt -n 1000 --prompt-ids 3")
        .ended(2)
        .tells(&["cannot be used with"]);
    // Most seeds do not draw the end of text in ten tokens.
    let ends = (0..4).any(|seed| {
        let done = s.run(&format!(
            "generate --model model --prompt-file long.txt -n 1000 --seed {seed}"
        ));
        done.ended(0).err.contains("the 128 positions of the model")
    });
    assert!(ends);
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let s = sandbox();
    let prompts = "{\"prompt\": \"w6\"}\n".repeat(2000);
    s.write("in.jsonl", &prompts);
    let mut child = s.start("generate --model model --input in.jsonl --jsonl --batch 4 -n 120");
    let mut out = child.stdout.take().expect("it was asked for");
    let mut first = [0; 64];
    let read = out.read(&mut first).expect("a first line");
    assert!(read > 0);
    drop(out);
    end(child).ended(0);
}

#[test]
fn answers_are_written_as_soon_as_they_and_those_before_are_done() {
    let s = sandbox();
    // The others take long enough that nobody waits for their end.
    let rest = "{\"prompt\": \"w6\", \"max_new_tokens\": 120}\n".repeat(20_000);
    s.write(
        "in.jsonl",
        &format!("{{\"prompt\": \"w6\", \"max_new_tokens\": 2}}\n{rest}"),
    );
    let line = "generate --model model --input in.jsonl --jsonl --batch 2";
    let mut child = s.start(line);
    let mut out = BufReader::new(child.stdout.take().expect("it was asked for"));
    let mut first = String::new();
    out.read_line(&mut first).expect("a line");
    assert_eq!(
        serde_json::from_str::<Value>(&first).expect("a whole object")["index"],
        0
    );
    assert!(
        child.try_wait().expect("it is a child").is_none(),
        "it wrote when all was done"
    );
    // A signal: what is done is written, in order, and how much is missing is said.
    signal(&child, "INT");
    let mut written = vec![0];
    for line in out.lines() {
        let object: Value = serde_json::from_str(&line.expect("a line")).expect("a whole object");
        assert_ne!(object["finish"], "cancelled");
        written.push(object["index"].as_u64().expect("an index"));
    }
    assert!(written.is_sorted() && written.len() < 20_000);
    end(child).ended(130).tells(&[&format!(
        "ended by a signal: {} of 20001 prompts are answered and written",
        written.len()
    )]);
}

#[test]
fn a_stop_text_is_kept_out() {
    let s = sandbox();
    let free = s
        .run("generate --model model --prompt w6 -n 40 --seed 1 --json")
        .ended(0)
        .json();
    let text = free["text"].as_str().expect("a text");
    let stop: String = text.chars().skip(12).take(5).collect();
    let mut command = s.command("generate --model model --prompt w6 -n 40 --seed 1 --json");
    let stopped = Sandbox::finish(command.args(["--stop", &stop])).ended(0).json();
    assert_eq!(stopped["text"], text[..text.find(&stop).expect("it is there")]);
    assert_eq!(stopped["finish"], "stop");
    assert_eq!(
        stopped["finish_reason"],
        format!("the model wrote the stop text {stop:?}")
    );
}

#[test]
fn a_conversation_from_a_pipe() {
    let s = sandbox();
    let line = "chat --model model -n 6 --seed 2 -v";
    let first = fed(&s, line, "w6 w7\n").ended(0);
    let both = fed(&s, line, "w6 w7\nw8\n").ended(0);
    let answers: Vec<&str> = both.out.lines().collect();
    assert_eq!(answers.len(), 2);
    assert_eq!(first.out.lines().collect::<Vec<_>>(), answers[..1]);
    // FAULTS 21: the template writes a BOS and the tokenizer adds one, and there is one: <s> user w6 w7 assistant.
    assert!(both.err.contains("5 tokens, of which 0 are"), "{}", both.err);
    // The second turn finds the first in the cache.
    assert!(
        both.err.contains("tokens, of which 0 are in the cache already"),
        "{}",
        both.err
    );
    let known = both
        .err
        .lines()
        .filter(|l| l.contains("are in the cache already"))
        .nth(1);
    assert!(known.is_some_and(|line| !line.contains("of which 0")), "{}", both.err);
    // After /reset the conversation is a fresh one; unknown commands and empty lines are none.
    let again = fed(&s, line, "w6 w7\n/reset\n\n/what\nw6 w7\n/quit\nw8\n")
        .ended(0)
        .tells(&["/what is no command: /reset begins anew"]);
    assert_eq!(again.out.lines().collect::<Vec<_>>(), [answers[0], answers[0]]);
    // The system's words come first, and a mesh changes nothing.
    let told = fed(&s, &format!("{line} --system w50"), "w6 w7\n").ended(0);
    assert_ne!(told.out, first.out);
    let mesh = fed(&s, &format!("{line} --mesh dp=2,tp=2"), "w6 w7\nw8\n").ended(0);
    assert_eq!(mesh.out, both.out);
}

#[test]
fn a_conversation_for_programs_is_an_object_an_answer() {
    let s = sandbox();
    let text = fed(&s, "chat --model model -n 6 --seed 2", "w6 w7\nw8\n").ended(0);
    let done = fed(&s, "chat --model model -n 6 --seed 2 --json", "w6 w7\n/reset\nw6 w7\n").ended(0);
    let answers = lines(&done);
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0]["text"].as_str(), text.out.lines().next());
    assert!(answers[0]["ids"].as_array().is_some_and(|ids| ids.len() <= 6));
    let finish = answers[0]["finish"].as_str().expect("a word");
    assert!(["length", "stop"].contains(&finish), "{finish}");
}

#[test]
fn a_conversation_that_is_full_says_so() {
    let s = sandbox();
    let long = "w9 ".repeat(POSITIONS);
    let done = fed(&s, "chat --model model -n 3", &format!("w6\n{long}\nw7\n"))
        .ended(0)
        .tells(&["the model has positions for 128: the message was left out; /reset begins anew"]);
    assert_eq!(done.out.lines().count(), 2);
}

#[test]
fn without_a_chat_template_there_is_a_named_one() {
    let s = sandbox();
    let settings = s
        .read("model/tokenizer_config.json")
        .replace("chat_template", "other_template");
    s.write("model/tokenizer_config.json", &settings);
    fed(&s, "chat --model model", "w6\n")
        .ended(2)
        .tells(&["chat template is missing", "--template question-answer"]);
    let done = fed(&s, "chat --model model --template question-answer -n 5", "w6\n").ended(0);
    assert_eq!(done.out.lines().count(), 1);
    fed(&s, "chat --model model --template other", "w6\n")
        .ended(2)
        .tells(&["question-answer is the only one by name"]);
    let messages = "{\"messages\": [{\"role\": \"user\", \"content\": \"w6\"}]}\n";
    fed(&s, "generate --model model --input - --jsonl", messages)
        .ended(2)
        .tells(&["standard input:1: ", "chat template is missing"]);
}

#[test]
fn a_model_is_measured_the_same_in_every_batch_on_every_mesh() {
    let s = sandbox();
    let text: Vec<String> = (0..300).map(|i| format!("w{}", 6 + i * i % 58)).collect();
    s.write("words.txt", &text.join(" "));
    let examples: String = (0..7)
        .map(|i| {
            let answer = text[i..2 * i + 1].join(" ");
            format!(
                "{{\"prompt\": \"{}\", \"response\": \"{answer}\"}}\n",
                text[10 * i..11 * i + 1].join(" ")
            )
        })
        .collect();
    s.write("answers.jsonl", &examples);
    for (data, targets) in [("words.txt --context 32", 300), ("answers.jsonl --template plain", 0)] {
        for dtype in ["f32", "bf16"] {
            let measure = |more: &str| {
                let line = format!("eval --model model --data {data} --dtype {dtype} --json {more}");
                s.run(&line).ended(0).json()
            };
            let one = measure("");
            assert!(
                one["loss"].as_f64().is_some_and(|loss| (2.0..6.0).contains(&loss)),
                "{one}"
            );
            for more in [
                "--batch 1",
                "--batch 3",
                "--batch 16 --workers 1",
                "--mesh dp=2 --batch 3",
                "--mesh tp=2",
                "--mesh dp=2,tp=2",
            ] {
                assert_eq!(measure(more), one, "{data} {dtype} {more}");
            }
            match targets {
                // The tokenizer's BOS goes before the text.
                300 => assert_eq!(one["targets"], 300),
                // Words of the answers, and the end of each.
                _ => {
                    let words: usize = (0..7).map(|i| i + 1 + 1).sum();
                    assert_eq!((&one["targets"], &one["examples"]), (&json!(words), &json!(7)));
                }
            }
        }
    }
    s.run("eval --model model")
        .ended(2)
        .tells(&["name a text or examples (.jsonl) with --data"]);
    s.run("eval --model model --data words.txt --context 129")
        .ended(2)
        .tells(&["positions for 128"]);
    s.write(
        "bad.jsonl",
        "{\"prompt\": \"w6\", \"response\": \"w7\"}\n{\"prompt\": \"w6\"}\n",
    );
    s.run("eval --model model --data bad.jsonl")
        .ended(2)
        .tells(&["bad.jsonl", "line 2"]);
}
