//! The promise between processes: a run gives the same bits however many processes carry its mesh, over real MPI.

mod common;

use common::launcher::launch;
use common::{Sandbox, TINY, mpi};

/// A run that deals twelve sequences out in every way.
fn twelve(accumulation: usize) -> String {
    let batch = format!(
        "batch_size: {}\n  gradient_accumulation_steps: {accumulation}",
        12 / accumulation
    );
    TINY.replace("batch_size: 4", &batch)
        .replace("max_steps: 8", "max_steps: 4")
        .replace("eval_every: 4", "eval_every: 2")
        .replace("model_save_interval: 4", "model_save_interval: 2")
}

/// One configuration over a mesh in every split among these numbers of processes, beside one process.
fn same_on(config: &str, mesh: &str, counts: &[usize]) {
    let s = Sandbox::new();
    s.write("run.yaml", config);
    // On one device, and on the mesh within one process.
    s.run("train -q -c run.yaml --out one").ended(0);
    s.run(&format!("train -q -c run.yaml --out alone --mesh {mesh}"))
        .ended(0);
    s.run("diff one alone").ended(0).says(&["Identical, bit by bit."]);
    for count in counts {
        let run = format!("over-{count}");
        mpi::run(&s, *count, &format!("train -q -c run.yaml --out {run} --mesh {mesh}")).ended(0);
        s.run(&format!("diff one {run}"))
            .ended(0)
            .says(&["Identical, bit by bit."]);
        assert_eq!(
            s.read(&format!("{run}/validations.jsonl")),
            s.read("one/validations.jsonl"),
            "{mesh} over {count} processes"
        );
    }
}

#[test]
fn data_parallel() {
    if !mpi::installed() {
        return;
    }
    same_on(&twelve(1), "dp=2", &[2]);
    same_on(&twelve(1), "dp=4", &[2, 3, 4]);
    // No process's share is an aligned subtree of the sum.
    same_on(&twelve(1), "dp=3", &[2]);
    same_on(&twelve(1), "dp=12", &[3]);
}

#[test]
fn tensor_parallel_and_both() {
    if !mpi::installed() {
        return;
    }
    same_on(&twelve(1), "tp=2", &[2]);
    same_on(&twelve(1), "tp=4", &[3]);
    same_on(&twelve(1), "dp=2,tp=2", &[2, 3, 4]);
}

#[test]
fn accumulation() {
    if !mpi::installed() {
        return;
    }
    same_on(&twelve(3), "dp=4", &[2, 3]);
}

#[test]
fn other_models_and_precisions() {
    if !mpi::installed() {
        return;
    }
    let llama = twelve(1)
        .replace("model_type: gpt2", "model_type: llama\n  num_groups: 2")
        .replace("weight_tying: true", "weight_tying: false");
    same_on(&llama, "dp=2,tp=2", &[2]);
    let bf16 = twelve(1).replace("  seed: 7", "  seed: 7\n  dtype: bf16");
    same_on(&bf16, "dp=3,tp=2", &[2]);
    let tiles = bf16.replace("dtype: bf16", "dtype: bf16\n  bf16_order: tiles");
    same_on(&tiles, "dp=2,tp=2", &[2]);
}

/// The whole table; `cargo test --release -p unisono --test processes -- --ignored`.
#[test]
#[ignore = "minutes"]
fn every_layout_in_every_split() {
    if !mpi::installed() {
        return;
    }
    for dtype in ["f32", "bf16"] {
        for family in ["gpt2", "llama"] {
            for (mesh, devices, accumulation) in [
                ("dp=2", 2, 1),
                ("dp=3", 3, 1),
                ("dp=4", 4, 1),
                ("dp=12", 12, 1),
                ("tp=2", 2, 1),
                ("tp=4", 4, 1),
                ("dp=2,tp=2", 4, 1),
                ("dp=3,tp=2", 6, 1),
                ("dp=4", 4, 3),
                ("dp=2,tp=2", 4, 2),
                ("dp=3", 3, 4),
            ] {
                let config = twelve(accumulation)
                    .replace("  seed: 7", &format!("  seed: 7\n  dtype: {dtype}"))
                    .replace("model_type: gpt2", &format!("model_type: {family}"));
                let counts: Vec<usize> = [2, 3, 4].into_iter().filter(|count| *count <= devices).collect();
                same_on(&config, mesh, &counts);
            }
        }
    }
}

#[test]
fn resumed_on_another_number_of_processes() {
    if !mpi::installed() {
        return;
    }
    let s = Sandbox::new();
    s.write("run.yaml", &twelve(1));
    s.run("train -q -c run.yaml --out straight").ended(0);
    let half = "--set training_config.max_steps=2";
    let all = "--set training_config.max_steps=4";
    for (first, second) in [(1, 3), (3, 1), (2, 4), (4, 2)] {
        let run = format!("from-{first}-to-{second}");
        let go = |count: usize, arguments: String| match count {
            1 => s.run(&arguments).ended(0),
            count => mpi::run(&s, count, &arguments).ended(0),
        };
        go(
            first,
            format!("train -q -c run.yaml --out {run} --mesh dp=2,tp=2 {half}"),
        );
        assert_eq!(s.steps(&run), [1, 2]);
        go(second, format!("train -q --resume {run} --mesh dp=4 {all}"));
        s.run(&format!("diff straight {run}"))
            .ended(0)
            .says(&["Identical, bit by bit."]);
    }
}

#[test]
fn memory_is_foretold_for_the_processes_that_carry_the_mesh() {
    if !mpi::installed() {
        return;
    }
    let s = Sandbox::new();
    s.write("run.yaml", &twelve(1));
    let peaks = |done: common::Done| {
        let json = done.ended(0).json();
        let found = json["result"]["summary"]["memory_peak"].as_u64().expect("bytes");
        (
            found,
            json["plan"]["memory"]["peak_per_device"].as_u64().expect("bytes"),
        )
    };
    let (alone, before) = peaks(s.run("train --json -c run.yaml --out one --mesh dp=4"));
    assert_eq!(alone, before);
    for count in [2, 3] {
        let run = format!("train --json -c run.yaml --out over-{count} --mesh dp=4");
        let (found, foretold) = peaks(mpi::run(&s, count, &run));
        assert_eq!(found, foretold, "over {count} processes");
        // What others hold needs room while it is added.
        assert!(found > alone, "{found} bytes, and {alone} in one process");
    }
}

#[test]
fn generate_and_eval_say_the_same() {
    if !mpi::installed() {
        return;
    }
    let s = Sandbox::new();
    s.write("run.yaml", &twelve(1));
    s.run("train -q -c run.yaml --out run").ended(0);
    for command in [
        "generate -q --run run --prompt The --max-new-tokens 40 --mesh tp=2",
        "generate -q --run run --prompt The --prompt bear --max-new-tokens 12 --jsonl --mesh tp=2",
        "eval --run run --mesh dp=2",
        "eval --run run --mesh tp=2 --json",
    ] {
        let alone = s.run(command).ended(0);
        let together = mpi::run(&s, 2, command).ended(0);
        assert!(!alone.out.is_empty());
        assert_eq!(timeless(&together.out), timeless(&alone.out), "{command}");
    }
}

/// Lines of text, or of JSON without the rate.
fn timeless(text: &str) -> Vec<String> {
    let timeless = |line: &str| match serde_json::from_str::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(mut object)) => {
            object.remove("tokens_per_second");
            serde_json::Value::Object(object).to_string()
        }
        _ => line.to_string(),
    };
    text.lines().map(timeless).collect()
}

#[test]
fn output_comes_once_unless_more_is_asked_for() {
    if !mpi::installed() {
        return;
    }
    let s = Sandbox::new();
    let count = |text: &str, part: &str| text.matches(part).count();
    let done = mpi::run(&s, 2, "train -c run.yaml --out run --mesh dp=2").ended(0);
    for part in [
        "carried by 2 processes over Open MPI",
        "step 1/8",
        "step 8/8",
        "step 4: validation loss",
    ] {
        assert_eq!(count(&done.out, part), 1, "{part}\n{}\n{}", done.out, done.err);
    }
    assert_eq!(
        count(&done.err, "note: 2 devices share"),
        count(&done.err, "note: 2 devices")
    );
    assert_eq!(s.steps("run"), (1..=8).collect::<Vec<u64>>());
    for run in ["again", "some"] {
        let ranks = if run == "again" { "all" } else { "1" };
        let part = mpi::Part::new(2, &format!("train -c run.yaml --out {run} --mesh dp=2"));
        let done = mpi::run_parts(&s, &[part.with("UNISONO_LOG_RANKS", ranks)]).ended(0);
        let expected = if run == "again" { 2 } else { 1 };
        assert_eq!(count(&done.out, "step 8/8"), expected, "{}", done.out);
        // Lines of another rank say so, and none of the first's.
        let of_other = done.out.lines().filter(|line| line.starts_with("[rank 1] "));
        assert_eq!(
            of_other.filter(|line| line.contains("step 8/8")).count(),
            1,
            "{}",
            done.out
        );
        let of_first = done.out.lines().filter(|line| !line.contains("[rank 1] ")).count();
        assert_eq!(of_first == 0, ranks == "1", "{}", done.out);
        assert_eq!(s.steps(run), (1..=8).collect::<Vec<u64>>());
    }
    // For machines there is one object, and what others print goes the other way.
    for (ranks, beside) in [("0", 0), ("1", 0), ("all", 1), ("1,0", 1)] {
        let part = mpi::Part::new(2, "generate --json --run run --mesh tp=2 -n 4 --prompt The");
        let done = mpi::run_parts(&s, &[part.with("UNISONO_LOG_RANKS", ranks)]).ended(0);
        assert!(done.json().is_object(), "{}", done.out);
        assert_eq!(count(&done.err, "[rank 1] {"), beside, "{}", done.err);
    }
    // So it is where all fail.
    let done = mpi::run(&s, 2, "generate --json --run nowhere --mesh tp=2 --prompt The").ended(2);
    assert_eq!(done.json()["exit_code"], 2, "{}", done.out);
    let part = mpi::Part::new(2, "train -c run.yaml --mesh dp=2").with("UNISONO_LOG_RANKS", "most");
    let done = mpi::run_parts(&s, &[part]).ended(2);
    assert_eq!(done.errors().len(), 1, "{}", done.err);
}

#[test]
fn a_conversation_is_the_same() {
    if !mpi::installed() {
        return;
    }
    let s = Sandbox::new();
    let config = TINY
        .replace("seed: 7", "seed: 7\n  tokenizer_type: byte")
        .replace("max_sequence_length: 16", "max_sequence_length: 128");
    s.write("run.yaml", &config);
    s.run("train -q -c run.yaml --out run").ended(0);
    s.write("said", "The bear\n/reset\nThe fox\nAnd?\n/quit\nnobody reads this\n");
    let chat = "chat -q --run run -n 9 --template question-answer --mesh tp=2";
    let said = || std::fs::File::open(s.path("said")).expect("the messages");
    let alone = Sandbox::finish(s.command(chat).stdin(said())).ended(0);
    assert!(alone.out.lines().count() >= 3, "{}", alone.out);
    let words: Vec<&str> = ["run", "--np", "2", "--"].into_iter().chain(chat.split(' ')).collect();
    let together = Sandbox::finish(launch(&s, &words).stdin(said())).ended(0);
    assert_eq!(together.out, alone.out);
    // What the first process cannot read, all end for, with one message.
    std::fs::write(s.path("said"), b"The \xff\n").expect("the messages");
    let done = Sandbox::finish(launch(&s, &words).stdin(said())).ended(2);
    assert_eq!(done.errors(), ["a message on standard input is not UTF-8 text"]);
}

#[test]
fn ranks_that_see_the_same_devices_take_one_after_the_other() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if !mpi::installed() || cores < 2 {
        return;
    }
    let s = Sandbox::new();
    s.config("max_steps: 8", "max_steps: 100000");
    let part = mpi::Part::new(2, "train -q -c run.yaml --out run --mesh dp=2").with("UNISONO_VISIBLE_DEVICES", "0,1");
    let mut world = mpi::start_parts(&s, &[part], &[]);
    s.wait_for("run/metrics.jsonl");
    let mut allowed = |rank: usize| {
        let process = world.process_of(rank).expect("the run goes on");
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the run goes on");
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.expect("Linux has it").trim().to_string()
    };
    assert_ne!(allowed(0), allowed(1), "each has cores of its own");
}
