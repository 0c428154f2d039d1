//! The lesson of `docs/fine-tuning.md` as its reader goes through it: a tokenizer, a model from nothing, fine-tuning on 1, 2, 8 and 32
//! devices, answers. A few steps each here; the whole of it, command by command from the document, is
//! `cargo test --release -p unisono --test lesson -- --ignored`.

mod common;

use common::{Sandbox, mpi};
use std::path::Path;
use std::process::{Command, Stdio};

/// The repository's root.
fn root() -> &'static Path {
    // Two folders above this crate.
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A folder with a copy of `configs/lesson`: run folders of the checkout must not be found from it.
fn lesson() -> Sandbox {
    let s = Sandbox::new();
    for folder in ["configs/lesson", "configs/lesson/model_configs"] {
        for entry in std::fs::read_dir(root().join(folder)).expect("the lesson's folder") {
            let entry = entry.expect("an entry");
            if entry.path().is_file() {
                let text = std::fs::read_to_string(entry.path()).expect("text");
                s.write(&format!("{folder}/{}", entry.file_name().to_string_lossy()), &text);
            }
        }
    }
    s
}

/// Writes `runs/lesson-tokenizer` and `runs/lesson-model`, a smaller model than the lesson's after two steps.
fn base(s: &Sandbox) {
    s.run("tokenizer train --data text.txt configs/lesson/train.jsonl --vocab-size 400 --out runs/lesson-tokenizer")
        .ended(0)
        .says(&["400 tokens"]);
    s.run(
        "train -c configs/lesson/pretrain.yaml --set training_config.data_path=text.txt --set training_config.max_steps=2 \
         --set training_config.batch_size=2 --set training_config.eval_batches=1 --set transformer_config.num_blocks=2 \
         --set transformer_config.embedding_dim=64 --set transformer_config.intermediate_dim=96",
    )
    .ended(0)
    .says(&["16 heads in 8 groups of 16", "vocabulary 400 tokens"]);
    s.run("export --run runs/lesson-base --format hf --out runs/lesson-model")
        .ended(0);
}

/// Fine-tunes for two steps.
fn tune(s: &Sandbox, file: &str, options: &str) -> common::Done {
    s.run(&format!(
        "train -c configs/lesson/{file}.yaml --set training_config.max_steps=2 --set training_config.validation_frequency=2 {options}"
    ))
    .ended(0)
}

#[test]
fn the_lesson_gives_the_same_bits_on_every_mesh() {
    let s = lesson();
    base(&s);
    s.run("data check configs/lesson/train.jsonl --tokenizer runs/lesson-tokenizer --max-length 128")
        .ended(0)
        .says(&["50", "nothing is in the way"]);
    tune(&s, "n150", "").says(&[
        "50 examples to train on and 10 to validate on",
        "weights from ",
        "runs/lesson-model\n",
        "= effective batch of 32 examples",
    ]);
    tune(&s, "n300", "").says(&["= effective batch of 32 examples"]);
    tune(&s, "galaxy", "").says(&["4×8 = 32 devices", "= effective batch of 32 examples"]);
    // 64 of 50 examples: the batch goes on into the next epoch.
    tune(&s, "t3000", "").says(&["2×4 = 8 devices", "= effective batch of 64 examples"]);
    tune(
        &s,
        "n150",
        "--set training_config.gradient_accumulation_steps=8 --out runs/eight",
    );
    for pair in [
        "runs/lesson-n150 runs/lesson-n300",
        "runs/lesson-n150 runs/lesson-galaxy",
        "runs/eight runs/lesson-t3000",
    ] {
        s.run(&format!("diff {pair}"))
            .ended(0)
            .says(&["Identical, bit by bit."]);
    }
    s.run("diff runs/lesson-n150 runs/lesson-t3000").ended(3);
    let answers = s.read("runs/lesson-n150/validation.txt");
    assert!(answers.contains("Tram 1 is red."), "{answers}");
    for run in ["lesson-n300", "lesson-galaxy"] {
        assert_eq!(answers, s.read(&format!("runs/{run}/validation.txt")), "{run}");
    }
    let png = std::fs::read(s.path("runs/lesson-n150/training_curves.png")).expect("curves");
    assert!(png.starts_with(b"\x89PNG"));
    let answer = |run: &str| {
        let said = s.run(&format!(
            "generate --model runs/{run}/final_model --prompt Who? -n 8 --temperature 0 --json"
        ));
        said.ended(0).json()["text"].clone()
    };
    assert!(answer("lesson-n150").is_string());
    assert_eq!(answer("lesson-n150"), answer("lesson-galaxy"));
}

#[test]
fn adapters_of_the_lesson_are_merged_into_its_model() {
    let s = lesson();
    base(&s);
    tune(&s, "lora", "").says(&["adapters of rank 8, alpha 16, the others frozen"]);
    assert!(
        s.path("runs/lesson-lora/final_model/adapter_config.json").is_file(),
        "{:?}",
        s.names("runs/lesson-lora")
    );
    s.run("lora merge --model runs/lesson-model --adapter runs/lesson-lora/final_model --out merged")
        .ended(0);
    s.run("generate --model merged --prompt Who? -n 4 --temperature 0")
        .ended(0);
}

#[test]
fn adapters_are_the_same_over_two_processes() {
    if !mpi::installed() {
        return;
    }
    let s = lesson();
    base(&s);
    tune(&s, "lora", "");
    let two = "train -q -c configs/lesson/lora.yaml --out two --mesh dp=2,tp=2 --set training_config.max_steps=2 \
               --set training_config.validation_frequency=2";
    mpi::run(&s, 2, two).ended(0);
    s.run("diff runs/lesson-lora two")
        .ended(0)
        .says(&["Identical, bit by bit."]);
    assert_eq!(s.read("two/validation.txt"), s.read("runs/lesson-lora/validation.txt"));
    let files = s.names("runs/lesson-lora/final_model");
    assert_eq!(s.names("two/final_model"), files);
    for file in files {
        let bytes = |run: &str| std::fs::read(s.path(&format!("{run}/final_model/{file}"))).expect("a file");
        assert_eq!(bytes("two"), bytes("runs/lesson-lora"), "{file}");
    }
}

/// Runs every command of the blocks ```` ```sh ```` of the document in their order; each must end with 0.
#[test]
#[ignore = "minutes: cargo test --release -p unisono --test lesson -- --ignored"]
fn the_document_runs_as_it_stands() {
    let s = lesson();
    let text = std::fs::read_to_string(root().join("docs/fine-tuning.md")).expect("the document");
    let bin = Path::new(env!("CARGO_BIN_EXE_unisono")).parent().expect("a folder");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut count = 0;
    for block in text.split("\n```sh\n").skip(1) {
        let script = block.split("\n```").next().expect("the block ends");
        count += script.lines().filter(|line| line.starts_with("unisono ")).count();
        let mut shell = Command::new("bash");
        shell
            .args(["-e", "-c", script])
            .env("PATH", &path)
            .current_dir(s.path(""))
            .stdin(Stdio::null());
        Sandbox::finish(&mut shell).ended(0);
    }
    assert!(count >= 10, "{count} commands");
    // What was taught is known, in words that training has not put so.
    let mut right = 0;
    for line in s.read("configs/lesson/val.jsonl").lines() {
        let example: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        let text = |key: &str| example[key].as_str().expect("a text").to_string();
        let mut ask = s.command("generate --model runs/lesson-n150/final_model -n 40 --temperature 0 --json");
        ask.args([
            "--prompt",
            &format!("### Question:\n{}\n\n### Answer:\n", text("prompt")),
        ]);
        let said = Sandbox::finish(&mut ask).ended(0);
        right += usize::from(
            said.json()["text"]
                .as_str()
                .is_some_and(|said| said.ends_with(&text("response"))),
        );
    }
    assert!(right >= 5, "{right} of 10 answers are right");
}
