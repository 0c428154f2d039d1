//! The edges of the command line: odd paths, limits of the system, closed terminals, options with odd numbers.
#![cfg(target_os = "linux")]

mod common;

use common::{Done, Sandbox, TINY, end, signal};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// The program in a shell, after some preparation of it.
fn in_shell(s: &Sandbox, before: &str, arguments: &str) -> Done {
    let mut command = Command::new("bash");
    let program = env!("CARGO_BIN_EXE_unisono");
    command.args(["-c", &format!("{before}; exec '{program}' {arguments}")]);
    Sandbox::finish(command.current_dir(s.path(".")))
}

#[test]
fn a_path_that_is_no_text_is_a_path_all_the_same() {
    let s = Sandbox::new();
    let mut command = s.command("train --json -c run.yaml --out");
    let done = Sandbox::finish(command.arg(OsStr::from_bytes(b"bad\xff"))).ended(0);
    assert_eq!(done.json()["run"], "bad\u{fffd}");
    for line in [
        "generate --json --prompt The -n 3 --run",
        "eval --json --run",
        "export --json --out out.safetensors --run",
        "diff --json run",
        "train --json --resume",
    ] {
        if line.starts_with("diff") {
            s.run("train -q -c run.yaml --out run").ended(0);
        }
        let mut command = s.command(line);
        Sandbox::finish(command.arg(OsStr::from_bytes(b"bad\xff")))
            .ended(0)
            .json();
    }
}

#[test]
fn a_limit_on_files_is_a_write_error() {
    let s = Sandbox::new();
    in_shell(&s, "ulimit -f 20", "train -c run.yaml --out run")
        .ended(1)
        .tells(&["error: ", "ulimit -f"]);
}

#[test]
fn what_a_limit_on_files_cuts_off_says_what_it_takes_and_leaves_nothing() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out run").ended(0);
    let limit = [
        "it would be larger than a file may be here (`ulimit -f`",
        "the file takes ",
        " bytes in all: make room",
    ];
    let single = in_shell(&s, "ulimit -f 20", "export --run run --out one.safetensors").ended(1);
    single.tells(&limit).tells(&["cannot write one.safetensors: "]);
    let directory = in_shell(&s, "ulimit -f 20", "export --run run --format hf --out hf").ended(1);
    directory.tells(&limit).tells(&["cannot write hf/model.safetensors: "]);
    in_shell(
        &s,
        "ulimit -f 1",
        "tokenizer train --data text.txt --vocab-size 280 --out tok",
    )
    .ended(1)
    .tells(&["cannot write tok/", "ulimit -f"]);
    assert_eq!(s.names("."), ["run", "run.yaml", "text.txt"]);
}

#[test]
fn a_closed_terminal_ends_the_run_with_a_checkpoint() {
    if common::is_under_nohup() {
        return;
    }
    let s = Sandbox::new();
    s.config("max_steps: 8", "max_steps: 1000000");
    let child = s.start("train -c run.yaml --out run");
    s.wait_for("run/metrics.jsonl");
    signal(&child, "HUP");
    end(child).ended(129).says(&["unisono train --resume run"]);
    let last = *s.steps("run").last().expect("some steps");
    assert_eq!(s.read("run/checkpoints/latest").trim(), format!("step-{last:08}"));
}

#[test]
fn nohup_outlives_its_terminal() {
    let s = Sandbox::new();
    s.config("max_steps: 8", "max_steps: 1000000");
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_unisono");
    command.args([
        "-c",
        &format!("trap '' HUP; exec '{program}' train -c run.yaml --out run"),
    ]);
    command.current_dir(s.path(".")).stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("a shell");
    s.wait_for("run/metrics.jsonl");
    signal(&child, "HUP");
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(&child, "TERM");
    end(child).ended(143);
}

#[test]
fn a_run_without_a_checkpoint_is_begun_anew() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out kb").ended(0);
    std::fs::remove_dir_all(s.path("kb/checkpoints")).expect("it goes");
    let anew = "unisono train -c kb/config.yaml --out kb --fresh";
    s.run("train --resume kb")
        .ended(2)
        .tells(&["no complete checkpoint", anew]);
    for line in [
        "generate --run kb --prompt The",
        "eval --run kb",
        "export --run kb --out x.safetensors",
    ] {
        s.run(line).ended(2).tells(&[
            "kb/checkpoints holds no complete checkpoint, so kb has no weights yet",
            anew,
        ]);
    }
    let again = s
        .run("train -c run.yaml --out kb")
        .ended(2)
        .tells(&["--out kb --fresh"]);
    assert!(!again.err.contains("--resume"), "{}", again.err);
    s.run(&format!("{} -q", anew.trim_start_matches("unisono "))).ended(0);
}

#[test]
fn a_folder_in_use_is_not_one_to_begin_anew() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out kb").ended(0);
    std::fs::remove_dir_all(s.path("kb/checkpoints")).expect("it goes");
    let folder = std::fs::File::open(s.path("kb")).expect("a folder");
    folder.lock().expect("nobody has it");
    for arguments in [
        "train -c run.yaml --out kb",
        "train -c run.yaml --out kb --fresh",
        "train --resume kb",
        "run --np 2 --mesh dp=2 -- train -c run.yaml --out kb",
    ] {
        let done = s
            .run(arguments)
            .ended(2)
            .tells(&["another process trains in kb: wait for its end"]);
        assert!(!done.err.contains("--fresh"), "{}", done.err);
    }
    drop(folder);
    s.run("train -c run.yaml --out kb").ended(2).tells(&["begin it anew"]);
}

#[test]
fn negative_numbers_are_answered_with_their_rule() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out run").ended(0);
    let generate = |more: &str| s.run(&format!("generate --run run --prompt The -n 5 {more}"));
    let all = generate("--top-k 0").ended(0);
    assert_eq!(generate("--top-k -1").ended(0).out, all.out);
    generate("--top-k -2").ended(2).tells(&["or -1 for all tokens"]);
    generate("--temperature -1").ended(2).tells(&["temperature", "-1"]);
    generate("--seed -1")
        .ended(2)
        .tells(&["from 0 to 18446744073709551615"]);
    for line in [
        "train -c run.yaml --verify -1",
        "check --workers -1",
        "generate --run run --prompt a -n -1",
        "generate --run run --prompt-ids -1",
        "bench --repetitions -1",
        "bench --threads -1",
    ] {
        let done = s.run(line).ended(2);
        assert!(!done.err.contains("unexpected argument"), "{line}: {}", done.err);
    }
}

#[test]
fn a_lost_tokenizer_is_named() {
    let s = Sandbox::new();
    s.run("train -q -c run.yaml --out run").ended(0);
    std::fs::remove_file(s.path("run/tokenizer.json")).expect("it goes");
    let done = s
        .run("generate --run run --prompt The")
        .ended(2)
        .tells(&["run/tokenizer.json is missing"]);
    assert!(!done.err.contains("trained on tokens"), "{}", done.err);
}

#[test]
fn a_configuration_that_names_itself_is_told_so() {
    let s = Sandbox::new();
    let training = TINY.split("transformer_config").next().expect("the first half");
    s.write("mc2.yaml", &format!("{training}  model_config: mc2.yaml\n"));
    s.run("check -c mc2.yaml")
        .ended(2)
        .tells(&["mc2.yaml is this configuration itself"]);
}

#[test]
fn too_many_workers_are_refused_by_check_as_well() {
    let s = Sandbox::new();
    for command in ["check", "train"] {
        s.run(&format!("{command} -c run.yaml --workers 1025"))
            .ended(2)
            .tells(&["the most is 1024"]);
    }
    s.run("check -c run.yaml --workers 1024").ended(0);
}

#[test]
fn a_benchmark_of_nothing_says_nothing_else() {
    let s = Sandbox::new();
    for line in ["bench --threads 0", "bench --threads 1025", "bench --threads 1 nosuch"] {
        let done = s.run(line).ended(2);
        assert_eq!(done.out, "", "{line}");
    }
}

#[test]
fn the_version_tells_of_a_wrong_instruction_set() {
    let s = Sandbox::new();
    let version = |isa: &str| Sandbox::finish(s.command("--version").env("UNISONO_ISA", isa)).ended(0);
    version("nonsense").says(&["UNISONO_ISA is `nonsense`"]);
    version("portable").says(&["portable)"]);
}

#[test]
fn runs_at_the_same_time_take_folders_of_their_own() {
    let s = Sandbox::new();
    let children: Vec<_> = (0..4).map(|_| s.start("train -q -c run.yaml")).collect();
    for child in children {
        end(child).ended(0);
    }
    assert_eq!(s.names("runs"), ["tiny", "tiny-2", "tiny-3", "tiny-4"]);
    for run in s.names("runs") {
        assert_eq!(s.steps(&format!("runs/{run}")), (1..=8).collect::<Vec<u64>>());
    }
}

#[test]
fn little_address_space_is_answered_with_what_helps() {
    let s = Sandbox::new();
    let limit = "ulimit -v 8000000";
    let wants_more = "train -q -c run.yaml --out a --set device_config.memory=4GiB";
    in_shell(&s, limit, wants_more)
        .ended(1)
        .tells(&["address space", "--set device_config.memory=1GiB"]);
    in_shell(
        &s,
        limit,
        "train -q -c run.yaml --out b --set device_config.memory=1GiB",
    )
    .ended(0);
    in_shell(&s, limit, "bench --threads 1 --repetitions 1 nosuch").ended(2);
}

#[test]
fn one_is_not_many_and_lists_stay_short() {
    let s = Sandbox::new();
    let set = "--set transformer_config.num_blocks=1 --set transformer_config.num_heads=1";
    s.run(&format!("check -c run.yaml {set}"))
        .ended(0)
        .says(&["1 block, 1 head, "]);
    let done = s
        .run("check -c run.yaml --set training_config.gradient_accumulation_steps=1260")
        .ended(0)
        .says(&["1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, …, 5040"]);
    assert!(!done.out.contains("15, "), "{}", done.out);
}

/// FAULTS 2: a step whose every target is masked has no loss, and a validation of such examples is none.
#[test]
fn what_has_no_target_has_no_loss() {
    let s = Sandbox::new();
    s.write(
        "pairs.jsonl",
        "{\"prompt\": \"Who?\", \"response\": \"The fox.\"}\n{\"prompt\": \"Where?\", \"response\": \"\"}\n",
    );
    let sets = "--set training_config.data_path=pairs.jsonl --set training_config.tokenizer_type=byte \
                --set training_config.batch_size=1 --set transformer_config.max_sequence_length=64";
    let whole = "--set training_config.validation_fraction=0";
    // An epoch is both examples: one of two runs ends with the one without a target.
    let mut masked = None;
    for steps in [1, 2] {
        let run = format!("run{steps}");
        let line = format!("train -c run.yaml {sets} {whole} --set training_config.max_steps={steps} --out {run}");
        let done = s.run(&line).ended(0);
        let metrics = s.read(&format!("{run}/metrics.jsonl"));
        if metrics
            .lines()
            .last()
            .is_some_and(|line| line.contains("\"loss\":null"))
        {
            done.says(&["loss none", "none in the last step: all its targets are masked"])
                .tells(&["every target of the batch is masked"]);
            masked = Some(run);
        }
    }
    let run = masked.expect("one of the two examples has no target");
    s.run(&format!("diff {run} {run}"))
        .ended(0)
        .says(&["Identical, bit by bit."]);
    s.run(&format!(
        "eval --run {run} --set training_config.validation_fraction=0.5"
    ))
    .ended(2)
    .tells(&[
        "none of the 1 examples to validate on (from line 2 on)",
        "name a file with --data",
    ]);
    s.run(&format!(
        "train -c run.yaml {sets} --set training_config.validation_fraction=0.5 --out refused"
    ))
    .ended(2)
    .tells(&[
        "none of the 1 examples to validate on",
        "raise eval_batches or validation_fraction",
    ]);
    assert!(!s.path("refused/metrics.jsonl").exists());
}
