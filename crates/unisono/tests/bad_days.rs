//! Bad days: kills, signals, full disks, folders that cannot be written, losses that are no numbers, damaged checkpoints.

mod common;

use common::{Done, Sandbox, TINY, end, signal};
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A run of `steps` steps that saves each `every`.
fn long(steps: u64, every: u64) -> String {
    TINY.replace("max_steps: 8", &format!("max_steps: {steps}"))
        .replace("model_save_interval: 4", &format!("model_save_interval: {every}"))
        .replace("eval_every: 4", "eval_every: 50")
}

/// Nothing half-written lies about in a run's folder.
#[track_caller]
fn no_litter(s: &Sandbox, run: &str) {
    for folder in [run.to_string(), format!("{run}/checkpoints")] {
        for name in s.names(&folder) {
            assert!(!name.contains("tmp"), "{folder}/{name}");
        }
    }
}

/// Kills a run at `kills` moments, goes on each time, and compares the end with a run that nobody killed.
fn survives_kills(kills: u32, steps: u64) {
    let s = Sandbox::new();
    s.write("run.yaml", &long(steps, 2));
    s.run("train -q -c run.yaml --out straight").ended(0);
    let mut killed = 0;
    for round in 0..kills * 20 {
        let resume = s.path("killed/checkpoints/latest").exists();
        let start = match resume {
            true => "train -q --resume killed",
            false => "train -q -c run.yaml --out killed --fresh",
        };
        let mut child = s.start(start);
        // Spread over the start of the process, its steps and its checkpoints, which are written behind the steps.
        std::thread::sleep(Duration::from_millis(u64::from(round * 37 % 211)));
        if child.try_wait().expect("a process").is_some() {
            let done = end(child);
            assert_eq!(done.code, Some(0), "{}\n{}", done.out, done.err);
            break;
        }
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        killed += 1;
        if killed == kills {
            break;
        }
    }
    assert!(killed > 0);
    match s.path("killed/checkpoints/latest").exists() {
        true => s.run("train -q --resume killed").ended(0),
        false => s.run("train -q -c run.yaml --out killed --fresh").ended(0),
    };
    s.run("diff straight killed").ended(0).says(&["Identical, bit by bit."]);
    assert_eq!(s.steps("killed"), (1..=steps).collect::<Vec<u64>>());
    no_litter(&s, "killed");
}

#[test]
fn a_killed_run_goes_on_and_ends_the_same() {
    survives_kills(6, 60);
}

/// The long form of the test above; `cargo test --release -p unisono --test bad_days -- --ignored`.
#[test]
#[ignore = "minutes"]
fn a_run_that_is_killed_many_times_ends_the_same() {
    survives_kills(100, 1000);
}

#[test]
fn a_signal_ends_the_run_after_its_step_with_a_checkpoint() {
    // With a checkpoint each step, one is nearly always being written behind the run: the stop waits for it.
    for (name, code, every) in [("INT", 130, 0), ("TERM", 143, 0), ("INT", 130, 1)] {
        let s = Sandbox::new();
        s.write("run.yaml", &long(1_000_000, every));
        let child = s.start("train -c run.yaml --out run");
        s.wait_for("run/metrics.jsonl");
        signal(&child, name);
        end(child)
            .ended(code)
            .says(&["stopped after", "unisono train --resume run"]);
        let steps = s.steps("run");
        let last = *steps.last().expect("some steps");
        assert_eq!(steps, (1..=last).collect::<Vec<u64>>());
        assert_eq!(s.read("run/checkpoints/latest").trim(), format!("step-{last:08}"));
        no_litter(&s, "run");
        // The stopped run and the straight one are the same.
        let more = last + 2;
        s.run(&format!("train -q --resume run --set training_config.max_steps={more}"))
            .ended(0);
        s.run(&format!(
            "train -q -c run.yaml --out straight --set training_config.max_steps={more}"
        ))
        .ended(0);
        s.run("diff run straight").ended(0);
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let s = Sandbox::new();
    // A step of a second or more, so that the second signal comes before its end.
    let slow = long(1000, 0)
        .replace("batch_size: 4", "batch_size: 256\n  gradient_accumulation_steps: 8")
        .replace("embedding_dim: 32", "embedding_dim: 128");
    s.write("run.yaml", &slow);
    let child = s.start("train -c run.yaml --out run");
    s.wait_for("run/config.yaml");
    std::thread::sleep(Duration::from_millis(150));
    signal(&child, "TERM");
    // Two signals that come together are one.
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, "TERM");
    let start = Instant::now();
    let done = end(child).ended(143);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(!done.out.contains("stopped after"));
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_by_name() {
    let s = Sandbox::new();
    s.config("optimizer: {type: AdamW, lr: 1e-3}", "optimizer: {type: SGD, lr: 1e30}");
    let run =
        "train -c run.yaml --set training_config.use_clip_grad_norm=false --set training_config.model_save_interval=1";
    let done = s.run(run).ended(1);
    let error = done.errors().first().copied().unwrap_or_default().to_string();
    assert!(
        error.contains("step 2: the loss is") || error.contains("step 2: the gradient norm is"),
        "{error}"
    );
    for words in [
        "no update was made",
        "the last checkpoint, of step 1, is runs/tiny/checkpoints/step-00000001",
        "use_clip_grad_norm",
    ] {
        assert!(error.contains(words), "{error}");
    }
    no_litter(&s, "runs/tiny");
    // The checkpoint is whole: a lower rate goes on from it, as far as weights of 1e30 can.
    let after = s.run("train --resume runs/tiny");
    assert_eq!(after.code, Some(1), "{}", after.err);
    assert!(s.path("runs/tiny/checkpoints/step-00000001/manifest.json").is_file());
}

#[test]
fn a_full_disk_leaves_the_older_checkpoint_good() {
    // The last checkpoint of a run is written at once, those before it behind the run: then the next one, four steps later,
    // finds out at the latest.
    for (steps, trained) in [(12, 12..=12), (1_000_000, 11..=16)] {
        let s = Sandbox::new();
        s.run("train -q -c run.yaml --out run").ended(0);
        // No file may grow beyond 150 blocks of 512 bytes or 1 KiB: the weights fit, the optimizer's state does not.
        let program = env!("CARGO_BIN_EXE_unisono");
        let script = format!(
            "trap '' XFSZ; ulimit -f 150; exec {program} train --resume run --set training_config.max_steps={steps}"
        );
        let done = Sandbox::finish(Command::new("sh").args(["-c", &script]).current_dir(s.path(".")));
        let done = done.ended(1).tells(&["cannot write run/checkpoints"]);
        assert!(!done.err.contains("panicked"));
        assert_eq!(s.read("run/checkpoints/latest").trim(), "step-00000008");
        no_litter(&s, "run");
        let done = s.steps("run").len();
        assert!(trained.contains(&done), "{done} steps of {steps}");
        s.run("train -q --resume run --set training_config.max_steps=12")
            .ended(0);
        s.run("train -q -c run.yaml --out straight --set training_config.max_steps=12")
            .ended(0);
        s.run("diff run straight").ended(0);
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_told() {
    let s = Sandbox::new();
    s.run("train -c run.yaml --out text.txt/run")
        .ended(1)
        .tells(&["text.txt/run cannot be made"]);
    s.run("train -q -c run.yaml").ended(0);
    s.run("export --run latest --out /proc/nowhere/model.safetensors")
        .ended(1);
    s.run("init /proc/nowhere/run.yaml")
        .ended(1)
        .tells(&["cannot be written"]);
}

#[test]
fn damaged_checkpoints_are_refused_by_name_and_the_one_before_is_offered() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out run").ended(0);
    let file = s.path("run/checkpoints/step-00000008/model.safetensors");
    let whole = std::fs::read(&file).expect("a file");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&whole[..whole.len() - 100], &flipped] {
        std::fs::write(&file, damaged).expect("a file");
        for (command, offer) in [
            (
                "train --resume run",
                "the checkpoint before it, run/checkpoints/step-00000004, is good: resume with --resume run/checkpoints/step-00000004",
            ),
            // Who only uses the weights goes on with nothing.
            (
                "generate --run run --prompt The",
                "the checkpoint before it is good: name it with --run run/checkpoints/step-00000004",
            ),
            ("eval --run run", "--run run/checkpoints/step-00000004"),
        ] {
            s.run(command)
                .ended(2)
                .tells(&["run/checkpoints/step-00000008/model.safetensors is damaged", offer]);
        }
    }
    // The optimizer's state is for training alone.
    std::fs::write(&file, &whole).expect("a file");
    let optimizer = s.path("run/checkpoints/step-00000008/optimizer.safetensors");
    let state = std::fs::read(&optimizer).expect("a file");
    for damaged in [Some(&state[1..]), None] {
        match damaged {
            Some(bytes) => std::fs::write(&optimizer, bytes).expect("a file"),
            None => std::fs::remove_file(&optimizer).expect("it goes"),
        }
        s.run("generate --run run --prompt The -n 3").ended(0);
        s.run("eval --run run").ended(0);
        s.run("export --run run --out out.safetensors").ended(0);
        s.run("train --resume run")
            .ended(2)
            .tells(&["optimizer.safetensors is damaged"]);
    }
    s.run("train -q --resume run/checkpoints/step-00000004").ended(0);
    s.run("train -q -c run.yaml --out straight").ended(0);
    s.run("diff run straight").ended(0);
    // A directory without a manifest was never finished: passed over.
    std::fs::remove_file(s.path("run/checkpoints/step-00000008/manifest.json")).expect("a file");
    s.run("train -q --resume run")
        .ended(0)
        .tells(&["step-00000008 has no manifest.json and was passed over"]);
}

#[test]
fn output_that_nobody_reads_or_that_has_no_room_is_no_panic() {
    let s = Sandbox::new();
    let full = || File::options().write(true).open("/dev/full").expect("Linux has it");
    let to_full =
        |arguments: &str| -> Done { Sandbox::finish(s.command(arguments).stdout(full()).stderr(Stdio::piped())) };
    // A run's result lies in its folder.
    to_full("train -c run.yaml --out run")
        .ended(0)
        .tells(&["warning: standard output cannot be written"]);
    assert_eq!(s.steps("run").len(), 8);
    for command in [
        "devices",
        "schema",
        "check -c run.yaml --json",
        "generate --run run --prompt The",
        "train -c run.yaml --json",
    ] {
        to_full(command).ended(1).tells(&["standard output cannot be written"]);
    }
    for command in ["schema", "train -c run.yaml --out closed", "completions bash"] {
        let mut child = s.start(command);
        drop(child.stdout.take());
        end(child).ended(0);
    }
    assert_eq!(s.steps("closed").len(), 8);
}

#[test]
fn two_processes_do_not_train_in_one_folder() {
    let s = Sandbox::new();
    s.write("run.yaml", &long(1_000_000, 1));
    let mut first = s.start("train -q -c run.yaml --out run");
    s.wait_for("run/checkpoints/latest");
    s.run("train -c run.yaml --out run --fresh")
        .ended(2)
        .tells(&["another process trains in run"]);
    first.kill().expect("it can be killed");
    first.wait().expect("it ends");
    s.run("train -q --resume run --set training_config.max_steps=1")
        .ended(0);
}
