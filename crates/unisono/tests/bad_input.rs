//! Bad input through the program: every problem at once, each with its place, the numbers and what would work; exit code 2,
//! within a second, and nothing left behind.

mod common;

use common::{Done, Sandbox, TINY};
use std::time::{Duration, Instant};

/// `check` and `train` refuse `run.yaml` with these words, in a second, and leave nothing behind.
#[track_caller]
fn refused(s: &Sandbox, options: &str, words: &[&str]) -> Done {
    let before = s.names(".");
    s.run(&format!("check -c run.yaml {options}")).ended(2).tells(words);
    // Other tests share the cores: the quickest of a few runs counts.
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        s.run(&format!("train -c run.yaml {options}")).ended(2).tells(words);
        quickest = quickest.min(start.elapsed());
        if quickest < Duration::from_secs(1) {
            break;
        }
    }
    assert!(quickest < Duration::from_secs(1), "it took {quickest:?}");
    assert_eq!(s.names("."), before);
    s.run(&format!("train -c run.yaml {options}"))
}

#[test]
fn all_problems_are_told_at_once_with_their_places() {
    let s = Sandbox::new();
    let bad = TINY
        .replace("  seed: 7", "  seed: seven\n  sede: 7")
        .replace("batch_size: 4", "batch_size: 4\n  bathc_size: 4")
        .replace("num_heads: 4", "num_heads: 5")
        .replace("text.txt", "missing.txt");
    s.write("run.yaml", &bad);
    let done = refused(&s, "", &[]);
    let errors = done.errors();
    for (place, words) in [
        ("run.yaml:3:9: ", "training_config.seed needs a whole number"),
        ("run.yaml:4:3: ", "sede is not a key: did you mean seed?"),
        ("run.yaml:6:3: ", "bathc_size is not a key: did you mean batch_size?"),
        ("run.yaml:8:14: ", "missing.txt"),
        (
            "run.yaml:17:14: ",
            "embedding_dim 32 does not divide by transformer_config.num_heads 5",
        ),
    ] {
        assert!(
            errors
                .iter()
                .any(|line| line.starts_with(place) && line.contains(words)),
            "{place}{words}\n{}",
            done.err
        );
    }
    assert_eq!(errors.len(), 5, "{}", done.err);
}

#[test]
fn problems_of_layout_and_data_stand_beside_those_of_keys() {
    let s = Sandbox::new();
    s.write("short.txt", "short");
    s.config("text.txt", "short.txt\n  colour: green");
    let done = refused(&s, "--mesh dp=3,tp=3", &[]);
    let errors = done.errors();
    for words in [
        "run.yaml:7:3: training_config.colour is not a key",
        "cuts 5 tokens into 4 for training and 1 for validation",
        "batch_size 4 is the total over all devices and does not divide over 3 data-parallel devices: 3 and 6 do",
        "4 heads in 4 groups: degrees that work are 1, 2, 4",
    ] {
        assert!(errors.iter().any(|line| line.contains(words)), "{words}\n{}", done.err);
    }
    assert_eq!(errors.len(), 4, "{}", done.err);
    // What a misspelt key may have meant is not judged by its default.
    s.config("batch_size: 4", "bach_size: 4");
    let done = refused(&s, "--mesh dp=3", &["did you mean batch_size?"]);
    assert_eq!(done.errors().len(), 1, "{}", done.err);
}

#[test]
fn numbers_are_read_as_people_write_them() {
    let s = Sandbox::new();
    s.config("max_steps: 8", "max_steps: 30_000\n  model_save_interval: 1e3");
    s.write(
        "run.yaml",
        &s.read("run.yaml").replace("  model_save_interval: 4\n", ""),
    );
    for lr in ["1e-3", "1E-3", "1.e-3", ".001", "0.001"] {
        s.write(
            "run.yaml",
            &s.read("run.yaml").replace("lr: 1e-3", &format!("lr: {lr}")),
        );
        s.run("check -c run.yaml")
            .ended(0)
            .says(&["lr 1e-3", "max_steps ends the run: 30,000 optimizer steps"]);
        s.write(
            "run.yaml",
            &s.read("run.yaml").replace(&format!("lr: {lr}"), "lr: 1e-3"),
        );
    }
}

#[test]
fn foreign_line_ends_and_marks_are_read() {
    let s = Sandbox::new();
    s.write("run.yaml", &format!("\u{feff}{}", TINY.replace('\n', "\r\n")));
    s.write(
        "text.txt",
        &format!("\u{feff}{}", s.read("text.txt").replace('\n', "\r\n")),
    );
    s.run("train -q -c run.yaml").ended(0);
}

#[test]
fn files_that_are_none_are_refused() {
    let s = Sandbox::new();
    s.run("train -c missing.yaml").ended(2).tells(&["missing.yaml"]);
    s.run("check -c .").ended(2);
    s.write("run.yaml", "");
    refused(&s, "", &["run.yaml"]);
    s.write("run.yaml", "training_config: [1, 2\n");
    refused(&s, "", &["run.yaml:"]);
    s.config("  seed: 7", "  seed: 7\n  seed: 8");
    refused(&s, "", &["run.yaml:4:3", "seed"]);
}

#[test]
fn data_that_cannot_be_trained_on_is_refused() {
    let s = Sandbox::new();
    for (text, words) in [
        ("", "is empty"),
        ("a", "has 1 token, but a sequence of 16 needs 17"),
        ("abcdefghijklmnop", "a sequence of 16 needs 17"),
    ] {
        s.write("text.txt", text);
        s.config("text.txt", "text.txt\n  validation_fraction: 0");
        refused(&s, "", &["run.yaml:6:14", words]);
    }
    // One token more is one sample.
    s.write("text.txt", "abcdefghijklmnopq");
    s.config("text.txt", "text.txt\n  validation_fraction: 0");
    s.run("train -c run.yaml").ended(0).says(&["epochs of 1 sample\n"]);
    std::fs::write(s.path("text.txt"), b"abc\xff\xfe").expect("a file");
    refused(&s, "", &["not UTF-8", "0xff at offset 3"]);
    // Sixteen tokens of validation are not enough for a window; they are enough to predict.
    s.write("text.txt", &"abcdefgh".repeat(20));
    s.config("text.txt", "text.txt\n  validation_fraction: 0.1");
    s.run("train -q -c run.yaml").ended(0);
}

#[test]
fn layouts_that_do_not_fit_are_refused_with_the_nearest_that_do() {
    let s = Sandbox::new();
    refused(
        &s,
        "--mesh dp=3",
        &["run.yaml:4:15", "does not divide over 3", "3 and 6 do"],
    );
    refused(
        &s,
        "--mesh dp=8",
        &["8 data-parallel devices need at least a sequence each", "raise it to 8"],
    );
    refused(&s, "--mesh tp=3", &["over 3 devices", "degrees that work are 1, 2, 4"]);
    refused(
        &s,
        "--set device_config.mesh_shape=[2,2]",
        &["mesh_shape", "enable_ddp"],
    );
    refused(&s, "--mesh dp=0", &["--mesh dp=0", "at least 1"]);
    refused(&s, "--mesh pp=2", &["pp is not built yet"]);
    refused(&s, "--mesh 2x2", &["write it as dp=2, tp=2 or dp=2,tp=2"]);
    s.config("num_heads: 4", "num_heads: 4\n  num_groups: 3");
    refused(
        &s,
        "",
        &["num_heads 4 does not divide by transformer_config.num_groups 3"],
    );
}

#[test]
fn a_plan_larger_than_memory_names_what_fits() {
    let s = Sandbox::new();
    let done = refused(
        &s,
        "--set device_config.memory=900_000 --set training_config.batch_size=16",
        &[
            "each device needs",
            "activations",
            "device_config.memory allows",
            "at the same effective batch of 16 sequences",
        ],
    );
    // What it offers is right.
    let advice = done.err.split("batch_size: ").nth(1).expect("an offer");
    let batch: String = advice.chars().take_while(char::is_ascii_digit).collect();
    let accumulation = advice.split("gradient_accumulation_steps: ").nth(1).expect("an offer");
    let accumulation: String = accumulation.chars().take_while(char::is_ascii_digit).collect();
    s.run(&format!(
        "train -q -c run.yaml --set device_config.memory=900_000 --set training_config.batch_size={batch} \
         --set training_config.gradient_accumulation_steps={accumulation}"
    ))
    .ended(0);
    // The machine's own memory is a limit too.
    s.config("embedding_dim: 32", "embedding_dim: 65536");
    refused(&s, "", &["each device needs", "this machine's memory"]);
}

#[test]
fn contradicting_options_are_refused_by_name() {
    let s = Sandbox::new();
    refused(
        &s,
        "--mesh dp=2 --set device_config.mesh_shape=[2,1]",
        &["--mesh dp=2 and --set device_config.mesh_shape=[2,1] contradict each other"],
    );
    s.run("train -c run.yaml --resume latest")
        .ended(2)
        .tells(&["--config", "--resume"]);
    s.run("train --resume latest --fresh")
        .ended(2)
        .tells(&["--resume", "--fresh"]);
    s.run("train --resume latest --out x")
        .ended(2)
        .tells(&["--resume", "--out"]);
    s.run("generate --run x --prompt a --prompt-ids 1")
        .ended(2)
        .tells(&["--prompt"]);
    s.run("generate --run x").ended(2).tells(&["--prompt"]);
    s.run("").ended(2);
    s.run("trian").ended(2).tells(&["train"]);
    s.run("check -c run.yaml --set training_config.max_steps")
        .ended(2)
        .tells(&["--set"]);
    s.run("check -c run.yaml --set training_config.max_step=3")
        .ended(2)
        .tells(&["did you mean max_steps?"]);
}

#[test]
fn options_that_would_count_for_nothing_are_refused() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out run").ended(0);
    s.write("qa.jsonl", "{\"prompt\": \"The\", \"response\": \" fox\"}\n");
    let no_adapter = &[
        "--adapter nowhere is for --model",
        "unisono export --run run --format hf",
    ][..];
    let no_dtype = &["--dtype is for --model", "--set training_config.dtype=bf16"][..];
    for command in ["generate --prompt The -n 3", "chat --template question-answer", "eval"] {
        s.run(&format!("{command} --run run --adapter nowhere"))
            .ended(2)
            .tells(no_adapter);
        s.run(&format!("{command} --run run --dtype bf16"))
            .ended(2)
            .tells(no_dtype);
        s.run(&format!("{command} --run run --bf16-order tiles"))
            .ended(2)
            .tells(&[
                "--bf16-order is for --model",
                "--set training_config.bf16_order=tiles changes that for run",
            ]);
    }
    for (line, words) in [
        ("eval --run run --context 8", "--context is for --model"),
        (
            "eval --model m --data qa.jsonl --context 8",
            "--context is for text that is cut into windows",
        ),
        (
            "eval --run run --data text.txt --template plain",
            "--template is for examples (.jsonl)",
        ),
        (
            "eval --run run --batch 2 --set training_config.validation_batch_size=4",
            "--batch and --set training_config.validation_batch_size=4 contradict each other",
        ),
        (
            "generate --run run --prompt The -n 3 --logprobs 2",
            "--logprobs is written with --json and --jsonl only",
        ),
        (
            "generate --model run --prompt The",
            "run is a run of unisono's: name it with --run",
        ),
        ("bench collectives --repetitions 3", "--repetitions is for kernels"),
        ("bench collectives --bf16-order tiles", "--bf16-order is for kernels"),
        (
            "bench --bf16-order rows",
            "invalid value 'rows' for '--bf16-order <pairs|tiles>': pairs or tiles is needed",
        ),
        (
            "explain all-gather --mesh 1x4 --reduction max",
            "--reduction is not for all-gather",
        ),
        ("explain all-reduce --mesh 1x4 --root 1", "--root is not for all-reduce"),
        ("explain broadcast --mesh 1x4 --by 2", "--by is not for broadcast"),
    ] {
        s.run(line).ended(2).tells(&[words]);
    }
    // An option of sampling and a key of the configuration say the same.
    for (option, set) in [
        ("--temperature 1", "eval_config.temperature=0"),
        ("--top-k 3", "eval_config.top_k=2"),
        ("--top-p 0.5", "eval_config.top_p=0.4"),
        ("--repetition-penalty 2", "eval_config.repetition_penalty=1.5"),
        ("--seed 3", "training_config.seed=4"),
    ] {
        for command in ["generate --prompt The -n 3", "chat --template question-answer"] {
            s.run(&format!("{command} --run run {option} --set {set}"))
                .ended(2)
                .tells(&[&format!("--set {set} contradict each other")]);
        }
        s.run(&format!("generate --prompt The -n 3 --run run {option}"))
            .ended(0);
        s.run(&format!("generate --prompt The -n 3 --run run --set {set}"))
            .ended(0);
    }
}

#[test]
fn failures_are_json_too_where_that_is_asked_for() {
    let s = Sandbox::new();
    for (arguments, words) in [
        ("check -c run.yaml --json --mesh dp=3", "batch_size 4"),
        (
            "check -c run.yaml --json --mehs dp=3",
            "unexpected argument '--mehs' found",
        ),
        (
            "tokenizer train --json --vocab-size 300 --out words",
            "required arguments were not provided: --data <FILE>",
        ),
    ] {
        let done = s.run(arguments).ended(2);
        let json = done.json();
        assert_eq!(json["exit_code"], 2);
        let errors = json["errors"].as_array().expect("a list");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].as_str().expect("a text").contains(words), "{json}");
        // Once, not as text beside.
        assert_eq!(done.err, "");
    }
}

#[test]
fn other_data_or_another_model_cannot_go_on_with_a_checkpoint() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml").ended(0);
    s.run("train --resume latest --set transformer_config.embedding_dim=64")
        .ended(2)
        .tells(&["does not fit this model", "wte.weight"]);
    s.write(
        "text.txt",
        &"Other words entirely, and quite a few of them.\n".repeat(40),
    );
    s.run("train --resume latest")
        .ended(2)
        .tells(&["was trained on other data"]);
    s.run("eval --run latest")
        .ended(2)
        .tells(&["has another vocabulary than the run", "--data"]);
}
