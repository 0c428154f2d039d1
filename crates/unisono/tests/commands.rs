//! The main path of every command through the program: what it prints, which files it leaves, its exit code.

mod common;

use common::{Sandbox, TINY};

#[test]
fn training_says_everything_and_leaves_a_run() {
    let s = Sandbox::new();
    s.run("train -c run.yaml --mesh dp=2,tp=2")
        .ended(0)
        .says(&[
            "2×2 = 4 devices (dp 2, tp 2) by --mesh dp=2,tp=2, in place of device_config",
            "2 blocks, 4 heads, width 32, MLP 128, 16 tokens, learned positions, tied head, dropout 0.1",
            "parameters",
            "vocabulary 21 characters",
            "its trigram model: ",
            "4 sequences a micro-step over all devices, 2 a device, × 1 accumulated",
            "= effective batch of 4 sequences or 64 tokens an optimizer step",
            "AdamW, lr 1e-3",
            "max_steps ends the run: 8 optimizer steps",
            "seed       7",
            "precision  f32, ",
            "data-parallel degree 1, 2, 4 × accumulation of the same 4 sequences and tensor-parallel degree 1, 2, 4",
            "a device at the predicted peak, ",
            "optimizer state",
            "step 1/8  loss ",
            " it/s  ",
            " tokens/s  ETA ",
            "step 4: validation loss ",
            "; trigram model ",
            "max_steps: 8 optimizer steps done",
            "(MFU)",
            "communication",
            " predicted; the whole process ",
            "runs/tiny/checkpoints/step-00000008",
            "are words of the training text",
        ])
        .tells(&["devices share", "no speed-up is to be expected"]);
    assert_eq!(
        s.names("runs/tiny"),
        [
            "checkpoints",
            "config.yaml",
            "metrics.jsonl",
            "tokenizer.json",
            "training_curves.png",
            "training_curves.svg",
            "validations.jsonl"
        ]
    );
    assert_eq!(
        s.names("runs/tiny/checkpoints"),
        ["best", "latest", "step-00000004", "step-00000008"]
    );
    assert_eq!(s.steps("runs/tiny"), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn folders_of_runs_are_never_overwritten_unasked() {
    let s = Sandbox::new();
    let quick = "train -q -c run.yaml --set training_config.max_steps=1";
    for folder in ["tiny", "tiny-2", "tiny-3"] {
        s.run(quick).ended(0);
        assert!(s.path("runs").join(folder).join("config.yaml").is_file(), "{folder}");
    }
    s.run(&format!("{quick} --out runs/tiny")).ended(2).tells(&[
        "runs/tiny holds a run already",
        "--resume runs/tiny",
        "--out runs/tiny --fresh",
    ]);
    s.write("runs/tiny/notes.txt", "mine");
    s.run("train -q -c run.yaml --fresh").ended(0);
    assert_eq!(s.steps("runs/tiny").len(), 8);
    assert_eq!(s.read("runs/tiny/notes.txt"), "mine");
    s.write("other/thesis.txt", "a year's work");
    for options in ["--out other", "--out other --fresh"] {
        s.run(&format!("{quick} {options}"))
            .ended(2)
            .tells(&["other is not empty and holds no run of unisono"]);
    }
    assert_eq!(s.names("other"), ["thesis.txt"]);
    s.run(&format!("{quick} --out text.txt"))
        .ended(2)
        .tells(&["this is a file"]);
}

#[test]
fn a_run_goes_on_elsewhere_and_ends_the_same() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out straight --set training_config.max_steps=12")
        .ended(0);
    s.run("train -q -c run.yaml --out parts").ended(0);
    s.run("train --resume parts --mesh dp=2 --set training_config.max_steps=12 --set training_config.batch_size=2 --set training_config.gradient_accumulation_steps=2")
        .ended(0)
        .says(&["parts, from step 8 on: sample 32 of the data comes next", "max_steps: 12 optimizer steps done"])
        .tells(&["from here on training_config.max_steps: 8 → 12", "device_config.enable_ddp: false → true"]);
    s.run("diff straight parts").ended(0).says(&[
        "Identical, bit by bit.",
        "12 common steps",
        "device_config.mesh_shape",
    ]);
    // From a checkpoint that is named, and once more, so that the metrics hold every step once.
    s.run("train -q --resume parts/checkpoints/step-00000008").ended(0);
    assert_eq!(s.steps("parts"), (1..=12).collect::<Vec<u64>>());
    s.run("diff straight parts").ended(0);
    s.run("train --resume parts")
        .ended(0)
        .tells(&["nothing is left to do; raise training_config.max_steps"]);
}

#[test]
fn latest_is_the_run_with_the_newest_checkpoint() {
    let s = Sandbox::new();
    s.run("train --resume latest")
        .ended(2)
        .tells(&["no run in runs/ has a complete checkpoint"]);
    s.run("train -q -c run.yaml").ended(0);
    s.run("train -q -c run.yaml --set training_config.seed=8").ended(0);
    s.run("train -q --resume runs/tiny --set training_config.max_steps=9")
        .ended(0);
    s.run("train --resume latest")
        .ended(0)
        .says(&["runs/tiny, from step 9 on"]);
    s.run("train --resume nowhere")
        .ended(2)
        .tells(&["nowhere: there is no such folder", "runs/ holds tiny, tiny-2"]);
}

#[test]
fn check_prints_the_plan_and_what_differs() {
    let s = Sandbox::new();
    s.run("check -c run.yaml")
        .ended(0)
        .says(&["1 device", "predicted peak"]);
    assert!(!s.path("runs").exists());
    s.write("twice.yaml", &TINY.replace("batch_size: 4", "batch_size: 8"));
    s.run("check -c twice.yaml --against run.yaml").ended(0).says(&[
        "training_config.batch_size",
        "4 → 8",
        "effective batch 4 → 8: by the square-root rule the learning rate goes 1e-3 → 1.4e-3",
    ]);
    s.run("train -q -c run.yaml").ended(0);
    s.run("check -c run.yaml --against runs/tiny")
        .ended(0)
        .says(&["equal configurations"]);
    let json = s.run("check -c run.yaml --json --mesh tp=4").ended(0).json();
    assert_eq!(json["plan"]["devices"], 4);
    assert_eq!(json["plan"]["batch"]["targets"], 64);
    assert!(json["plan"]["memory"]["peak_per_device"].as_u64() > Some(10_000));
}

#[test]
fn a_trained_model_writes_and_is_measured_the_same_on_every_mesh() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml").ended(0);
    let text = s
        .run("generate --run runs/tiny --prompt The -n 10 --seed 3")
        .ended(0)
        .out;
    assert!(
        text.starts_with("The") && text.chars().count() == 3 + 10 + 1,
        "{text:?}"
    );
    let on_mesh = s
        .run("generate --run runs/tiny --prompt The -n 10 --seed 3 --mesh tp=4 --workers 1")
        .ended(0)
        .out;
    assert_eq!(text, on_mesh);
    let ids = s
        .run("generate --run latest --prompt-ids 1,2 -n 5 --temperature 0 --json")
        .ended(0)
        .json();
    assert_eq!(ids["ids"].as_array().map(Vec::len), Some(5));
    s.run("generate --run latest --prompt The -n 99")
        .ended(0)
        .tells(&["16 positions of the model"]);
    s.run("generate --run latest --prompt Zé")
        .ended(2)
        .tells(&["'Z'", "not in the vocabulary"]);
    s.run("generate --run latest --prompt-ids 1,2,99")
        .ended(2)
        .tells(&["the token id 99 at place 2"]);
    s.run("generate --run latest --prompt The --temperature -1")
        .ended(2)
        .tells(&["temperature"]);
    let mut empty = s.command("generate --run latest --prompt");
    Sandbox::finish(empty.arg("")).ended(2).tells(&["the prompt is empty"]);

    let one = s.run("eval --run latest --json").ended(0).json();
    let four = s.run("eval --run latest --json --mesh dp=2,tp=2").ended(0).json();
    assert_eq!(one["loss"], four["loss"]);
    assert_eq!(one["bits_per_character"], one["bits_per_token"]);
    s.run("eval --run latest")
        .ended(0)
        .says(&["perplexity", "bits per character"]);
    s.write("short.txt", "The fox sat down.");
    let file = s.run("eval --run latest --data short.txt --json").ended(0).json();
    assert_eq!(file["targets"], 16);
    s.write("foreign.txt", "0123");
    s.run("eval --run latest --data foreign.txt")
        .ended(2)
        .tells(&["foreign.txt", "'0'", "not in the vocabulary"]);
}

#[test]
fn diff_finds_the_first_difference() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out a").ended(0);
    s.run("train -q -c run.yaml --out b --set training_config.seed=8")
        .ended(0);
    s.run("train -q -c run.yaml --out c --set training_config.batch_size=2")
        .ended(0);
    s.write("prompts.txt", "The\nfox\n");
    s.run("diff a b --prompts prompts.txt").ended(3).says(&[
        "the first difference is at step 1: loss is ",
        "training_config.seed: 7 in A, 8 in B",
        "Prompt \"fox\"",
        "Different.",
    ]);
    s.run("diff a c")
        .ended(3)
        .says(&["Square-root rule: 1.0e-3 for 4 sequences becomes 7.1e-4 for 2", "B - A"]);
    let json = s.run("diff a a --json").ended(0).json();
    assert_eq!(json["identical"], true);
    s.run("diff a nowhere").ended(2).tells(&["nowhere holds no run"]);
}

#[test]
fn weights_are_exported() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml").ended(0);
    s.write("out/keep", "");
    s.run("export --run latest --out out/model.safetensors")
        .ended(0)
        .says(&["wrote out/model.safetensors"]);
    assert_eq!(
        s.names("out"),
        ["config.json", "keep", "model.safetensors", "tokenizer.json"]
    );
    s.write("mine/config.json", "{\"mine\": true}");
    s.run("export --run latest --out mine/model.safetensors")
        .ended(2)
        .tells(&["would be replaced"]);
    assert_eq!(s.names("mine"), ["config.json"]);
    for _ in 0..2 {
        s.run("export --run latest --format hf --dtype bf16 --shard-bytes 20000 --out hf")
            .ended(0)
            .says(&[
                "model.safetensors.index.json",
                "wrote hf/config.json",
                "wrote hf/tokenizer.json",
            ]);
    }
    s.run("inspect hf")
        .ended(0)
        .says(&["GPT2LMHeadModel", "BF16", "verdict        unisono runs and trains it"]);
    s.run("inspect out/model.safetensors")
        .ended(0)
        .says(&["transformer.wte.weight", "F32"]);
    s.write("mine/model.safetensors", "short");
    s.run("inspect mine")
        .ended(2)
        .says(&["refused", "architectures and model_type are missing", "header"]);
    s.run("inspect org/absent").ended(2).tells(&["hf download org/absent"]);
    s.run("export --run latest --dtype bf16 --out out/model.safetensors")
        .ended(2)
        .tells(&["--dtype is for --format hf"]);
    s.run("export --run latest --shard-bytes 20000 --out out/model.safetensors")
        .ended(2)
        .tells(&["--shard-bytes 20000 is for --format hf"]);
    for bytes in ["0", "-1", "x"] {
        s.run(&format!(
            "export --run latest --format hf --shard-bytes {bytes} --out hf2"
        ))
        .ended(2)
        .tells(&["a number of bytes is needed, at least 1"]);
    }
    s.run("export --run latest --out mine").ended(2).tells(&[
        "--out mine is a directory, and a file is written",
        "mine/model.safetensors",
    ]);
    assert_eq!(s.names("mine"), ["config.json", "model.safetensors"]);
}

#[test]
fn every_preset_is_a_file_that_passes() {
    let s = Sandbox::new();
    for preset in ["char-gpt", "nanogpt", "simple-gpt", "linear"] {
        let file = format!("{preset}.yaml");
        s.run(&format!("init --preset {preset} {file}")).ended(0).says(&[&file]);
        assert!(s.read(&file).contains('#'));
    }
    s.run("check -c simple-gpt.yaml").ended(0);
    s.run("train -q -c linear.yaml").ended(0);
    s.run("init char-gpt.yaml").ended(2).tells(&["exists already"]);
    s.run("init --preset gpt5 x.yaml")
        .ended(2)
        .tells(&["no such preset", "simple-gpt"]);
    assert!(!s.path("x.yaml").exists());
}

#[test]
fn the_machine_the_schema_and_completions_are_shown() {
    let s = Sandbox::new();
    s.run("devices")
        .ended(0)
        .says(&["cores", "portable", "products in pairs: ", "memory"]);
    let json = s.run("devices --json").ended(0).json();
    assert!(json["cores"].as_u64() >= Some(1));
    assert!(json["mpi"].is_array());
    let without = [("UNISONO_MPI", "no-such-library.so")];
    let words = ["UNISONO_MPI names no-such-library.so", "apt-get install openmpi-bin"];
    s.run_with("devices", &without).ended(0).says(&words);
    let json = s.run_with("devices --json", &without).ended(0).json();
    assert_eq!(json["mpi"], serde_json::json!([]));
    let schema = s.run("schema").ended(0).json();
    assert!(schema["properties"]["training_config"].is_object());
    s.run("completions bash")
        .ended(0)
        .says(&["_unisono", "--max-new-tokens"]);
    let version = s.run("--version").ended(0);
    let isa = version
        .out
        .trim_end()
        .trim_end_matches(')')
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .to_string();
    assert!(
        ["portable", "avx2", "avx512"].contains(&isa.as_str()),
        "{}",
        version.out
    );
    s.run("--help")
        .ended(0)
        .says(&["Exit codes:", "UNISONO_LOG", "130 143"]);
    s.run("bench add --repetitions 1 --threads 1")
        .ended(0)
        .says(&["GB/s", "1 thread"]);
    s.run("bench nonsense").ended(2).tells(&["no kernel's name contains"]);
}

#[test]
fn as_much_is_said_as_was_asked_for() {
    let s = Sandbox::new();
    let quiet = s.run("train -q -c run.yaml --out q").ended(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    let json = s.run("train -c run.yaml --out j --json").ended(0).json();
    assert_eq!(json["result"]["summary"]["steps"], 8);
    assert!(json["plan"]["parameters"].as_u64() > Some(20_000));
    assert!(json["sample"]["text"].is_string());
    let talk = |variable: &str, value: &str| {
        let mut command = s.command("check -c run.yaml --mesh dp=4");
        Sandbox::finish(command.env(variable, value)).ended(0).err
    };
    assert!(talk("UNISONO_LOG", "info").contains("note: "));
    assert!(!talk("UNISONO_LOG", "error").contains("note: "));
    assert!(!talk("TT_METAL_LOGGER_LEVEL", "Error").contains("note: "));
    assert!(
        s.run("train -v -c run.yaml --out v")
            .ended(0)
            .err
            .contains("debug: step 4: checkpoint v/checkpoints")
    );
    let mut wrong = s.command("check -c run.yaml");
    Sandbox::finish(wrong.env("UNISONO_LOG", "loud"))
        .ended(2)
        .tells(&["UNISONO_LOG is `loud`"]);
    let mut wrong = s.command("check -c run.yaml");
    Sandbox::finish(wrong.env("UNISONO_ISA", "sse2"))
        .ended(2)
        .tells(&["UNISONO_ISA is `sse2`"]);
}

#[test]
fn instruction_sets_workers_and_verification_change_no_bit() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out a").ended(0);
    let mut portable = s.command("train -q -c run.yaml --out b --workers 1 --verify 2 --mesh dp=2");
    Sandbox::finish(portable.env("UNISONO_ISA", "portable")).ended(0);
    s.run("diff a b").ended(0);
}

#[test]
fn epochs_end_a_run_where_steps_are_not_given() {
    let s = Sandbox::new();
    s.write("text.txt", &"abcdefgh".repeat(16));
    s.config("max_steps: 8", "num_epochs: 2\n  validation_fraction: 0");
    // 128 tokens give 112 windows of 16: two epochs are 56 steps of 4.
    s.run("train -c run.yaml").ended(0).says(&[
        "num_epochs ends the run: 2 epochs of 112 samples, 56 optimizer steps",
        "num_epochs: 56 optimizer steps done",
    ]);
}
