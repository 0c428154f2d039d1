//! Bad days of runs over several processes, over real MPI: kills, stopped processes, a full disk on one rank, stops by signals. All
//! processes end together, one message says why, and the newest checkpoint is good.
//!
//! `mpirun` has words of its own for most of this; only lines that begin with `error:` are unisono's.

mod common;

use common::mpi::{Part, all_gone, installed, left_behind, processes, run_parts, signal_to, start, start_parts};
use common::{Done, Sandbox, TINY, mpi};
use std::process::Command;
use std::time::{Duration, Instant};

/// What all processes may take to be gone once one is.
const GONE: Duration = Duration::from_secs(15);

/// A run of `steps` steps that saves each `every`, of twelve sequences a step.
fn long(steps: u64, every: u64) -> String {
    TINY.replace("batch_size: 4", "batch_size: 12")
        .replace("max_steps: 8", &format!("max_steps: {steps}"))
        .replace("model_save_interval: 4", &format!("model_save_interval: {every}"))
        .replace("eval_every: 4", "eval_every: 1000")
}

fn sandbox(config: &str) -> Sandbox {
    let s = Sandbox::new();
    s.write("run.yaml", config);
    s
}

/// Exactly one message, which holds all of these.
#[track_caller]
fn one_message(done: &Done, code: i32, parts: &[&str]) {
    let errors = done.errors();
    assert_eq!((done.code, errors.len()), (Some(code), 1), "{}\n{}", done.out, done.err);
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {}", errors[0]);
    }
    assert!(!done.err.contains("panicked"), "{}", done.err);
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    name.trim().to_string()
}

/// Kills one rank of `ranks` after the other, goes on each time, and compares the end with a run that nobody killed.
fn survives_kills(ranks: usize, kills: usize, steps: u64) {
    let s = sandbox(&long(steps, 2));
    s.run("train -q -c run.yaml --out straight").ended(0);
    let mut killed = 0;
    for round in 0.. {
        let command = match s.path("killed/checkpoints/latest").exists() {
            true => format!("train -q --resume killed --mesh dp={ranks}"),
            false => format!("train -q -c run.yaml --out killed --fresh --mesh dp={ranks}"),
        };
        let mut world = start(&s, ranks, &command);
        let victim = round % ranks;
        if killed == kills {
            world.end().ended(0);
            break;
        }
        let Some(id) = world.process_of(victim) else {
            panic!("{:?}", world.end().ended(0).err);
        };
        // Spread over MPI's start, the steps and the checkpoints.
        std::thread::sleep(Duration::from_millis((round as u64 * 237) % 1_100));
        if !world.lives() {
            world.end().ended(0);
            break;
        }
        signal_to(id, "KILL");
        let moment = Instant::now();
        let done = world.end();
        if done.code == Some(0) {
            // It had just ended by itself.
            break;
        }
        all_gone(&s, GONE.saturating_sub(moment.elapsed()));
        let left = left_behind(&s);
        assert!(left.is_empty(), "{left:?}");
        assert!(!done.err.contains("panicked"), "{}", done.err);
        killed += 1;
    }
    // A run may end by itself between two kills, at the end of the steps.
    assert!(killed > kills / 2, "{killed} kills");
    s.run("diff straight killed").ended(0).says(&["Identical, bit by bit."]);
    assert_eq!(s.steps("killed"), (1..=steps).collect::<Vec<u64>>());
    for name in s.names("killed/checkpoints") {
        assert!(!name.contains("tmp"), "killed/checkpoints/{name}");
    }
}

#[test]
fn a_killed_rank_ends_all_and_the_run_goes_on_the_same() {
    if installed() {
        survives_kills(2, 8, 200);
    }
}

/// The long form of the test above; `cargo test --release -p unisono --test processes_bad_days -- --ignored`.
#[test]
#[ignore = "minutes"]
fn ranks_killed_many_times_end_the_same() {
    if installed() {
        survives_kills(3, 50, 4_000);
    }
}

#[test]
fn a_stopped_rank_is_named_and_ends_with_the_others() {
    if !installed() {
        return;
    }
    for victim in [1, 0] {
        let s = sandbox(&long(1_000_000, 0));
        let part = Part::new(3, "train -q -c run.yaml --out run --mesh dp=3");
        let mut world = start_parts(&s, &[part], &[("UNISONO_SILENCE", "3")]);
        s.wait_for("run/metrics.jsonl");
        let id = world.process_of(victim).expect("it runs");
        // While they live, they share memory.
        assert!(!left_behind(&s).is_empty());
        // Until it has said at which step it is.
        std::thread::sleep(Duration::from_millis(1_500));
        signal_to(id, "STOP");
        let done = world.end();
        let named = format!("rank {victim} on {} has given no sign of life for", host());
        one_message(&done, 1, &[&named, "it was last heard at step ", ", in "]);
        assert!(!done.err.contains("at step 0,"), "{}", done.err);
        all_gone(&s, GONE);
        assert!(left_behind(&s).is_empty(), "{:?}", left_behind(&s));
    }
}

#[test]
fn a_rank_that_lives_and_does_not_come_is_waited_for_so_long() {
    if !installed() {
        return;
    }
    let s = sandbox(TINY);
    s.run("train -q -c run.yaml --out run").ended(0);
    let made = Command::new("mkfifo").arg(s.path("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    // The first rank reads prompts for all, here from a pipe that nobody writes to; a shell opens it both ways, or it would wait itself.
    let generate = Part::new(1, "generate -q --run run --mesh tp=2 -n 4 --input -");
    let parts = [generate.clone().after("exec 0<> pipe"), generate];
    let done = start_parts(&s, &parts, &[("UNISONO_TIMEOUT", "2")]).end();
    let who = ["rank 1 (", "waited 2 s for rank 0 on "];
    one_message(&done, 1, &who);
    assert!(
        done.err
            .contains("at the reading of standard input; --timeout gives it longer")
    );
    all_gone(&s, GONE);
}

#[test]
fn a_rank_that_ends_before_it_has_joined_is_not_waited_for_without_end() {
    if !installed() {
        return;
    }
    // Open MPI takes an exit with 0 before MPI_Init for a program that needs no MPI, and leaves the others in MPI_Init for ever.
    let s = sandbox(TINY);
    let train = Part::new(1, "train -q -c run.yaml --out run --mesh dp=2");
    let done = start_parts(
        &s,
        &[train.clone(), train.clone().after("exit 0")],
        &[("UNISONO_TIMEOUT", "3")],
    )
    .end();
    one_message(
        &done,
        1,
        &[
            "rank 0 on ",
            "after 3 s MPI has not brought the 2 processes of this run together",
        ],
    );
    all_gone(&s, GONE);
    // One that fails ends the others by itself.
    let done = run_parts(&s, &[train.clone(), train.after("exit 7")]);
    assert_eq!(done.code, Some(7), "{}", done.err);
    all_gone(&s, GONE);
    assert!(!s.path("run/checkpoints").exists());
}

#[test]
fn a_full_disk_on_one_rank_is_told_once_and_leaves_the_older_checkpoint_good() {
    if !installed() {
        return;
    }
    let s = sandbox(&long(1_000_000, 5));
    let mut world = start(&s, 2, "train -q -c run.yaml --out run --mesh dp=2");
    s.wait_for("run/checkpoints/latest");
    let id = world.process_of(1).expect("it runs");
    // From here on no file of this rank may grow beyond 20 kB.
    let limited = Command::new("prlimit")
        .args(["--fsize=20000", "--pid", &id.to_string()])
        .status();
    assert!(limited.is_ok_and(|status| status.success()), "util-linux has prlimit");
    let done = world.end();
    let named = format!("rank 1 on {}: cannot write run/checkpoints/", host());
    one_message(&done, 1, &[&named]);
    all_gone(&s, GONE);
    let steps = s.steps("run");
    let more = steps.last().expect("some steps") + 2;
    for run in ["train -q --resume run", "train -q -c run.yaml --out straight"] {
        s.run(&format!("{run} --set training_config.max_steps={more}")).ended(0);
    }
    s.run("diff run straight").ended(0).says(&["Identical, bit by bit."]);
}

#[test]
fn signals_that_reach_the_ranks_one_after_the_other_stop_all_after_one_step() {
    if !installed() {
        return;
    }
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        let s = sandbox(&long(1_000_000, 0));
        let mut world = start(&s, 3, "train -c run.yaml --out run --mesh dp=3");
        s.wait_for("run/metrics.jsonl");
        for rank in [2, 0, 1] {
            let id = world.process_of(rank).expect("it runs");
            signal_to(id, name);
            std::thread::sleep(Duration::from_millis(30));
        }
        let done = world.end();
        assert_eq!(
            (done.code, done.errors().len()),
            (Some(code), 0),
            "{}\n{}",
            done.out,
            done.err
        );
        assert_eq!(done.out.matches("stopped after").count(), 1, "{}", done.out);
        let steps = s.steps("run");
        let last = *steps.last().expect("some steps");
        assert_eq!(steps, (1..=last).collect::<Vec<u64>>());
        let checkpoints = ["latest".to_string(), format!("step-{last:08}")];
        assert_eq!(s.names("run/checkpoints"), checkpoints);
        assert!(processes(&s).is_empty());
        let more = last + 2;
        let set = format!("--set training_config.max_steps={more}");
        mpi::run(&s, 2, &format!("train -q --resume run --mesh dp=2 {set}")).ended(0);
        s.run(&format!("train -q -c run.yaml --out straight {set}")).ended(0);
        s.run("diff run straight").ended(0);
    }
}

#[test]
fn a_loss_that_is_no_number_ends_all_ranks_with_one_message() {
    if !installed() {
        return;
    }
    let s = sandbox(&long(8, 1).replace("optimizer: {type: AdamW, lr: 1e-3}", "optimizer: {type: SGD, lr: 1e30}"));
    let clip = "--set training_config.use_clip_grad_norm=false";
    let done = mpi::run(&s, 3, &format!("train -q -c run.yaml --out run --mesh dp=3 {clip}"));
    one_message(
        &done,
        1,
        &["step 2: ", "no update was made", "run/checkpoints/step-00000001"],
    );
    all_gone(&s, GONE);
}

#[test]
fn programs_that_part_end_with_both_versions_of_the_first_difference() {
    if !installed() {
        return;
    }
    let s = sandbox(TINY);
    s.run("train -q -c run.yaml --out run").ended(0);
    // Equal arguments; the file is another one.
    s.write("prompt", "The");
    s.write("elsewhere/prompt", "bear");
    let run = s.path("run");
    let arguments = format!(
        "generate -q --run {} --mesh tp=2 -n 4 --prompt-file prompt",
        run.display()
    );
    let generate = Part::new(1, &arguments);
    let done = run_parts(&s, &[generate.clone(), generate.after("cd elsewhere")]);
    let versions = ["` on rank 0 at step 0 and `", "` on rank 1 at step 0"];
    let both = [
        "run different programs: the first difference is command ",
        versions[0],
        versions[1],
    ];
    one_message(&done, 1, &both);
    all_gone(&s, GONE);
}
