//! Bad input to runs over several processes, over real MPI: what is wrong is told once, whichever and however many ranks see it.

mod common;

use common::mpi::{Part, installed, run, run_parts};
use common::{Done, Sandbox, TINY};

/// Exactly one message, which holds all of these; nothing was run.
#[track_caller]
fn refused(done: &Done, parts: &[&str]) {
    let errors = done.errors();
    assert_eq!((done.code, errors.len()), (Some(2), 1), "{}\n{}", done.out, done.err);
    for part in parts {
        assert!(errors[0].contains(part), "no {part:?} in {}", errors[0]);
    }
    assert!(!done.err.contains("panicked"), "{}", done.err);
}

const TRAIN: &str = "train -q -c run.yaml --out run --mesh dp=2";

#[test]
fn what_all_ranks_see_is_told_once() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    for (arguments, words) in [
        ("train -q -c run.yaml --mesh dp=3", "batch_size 4"),
        (
            "train -q -c run.yaml --mesh dp=2 --set training_config.max_stepz=3",
            "max_stepz",
        ),
        ("train -q -c absent.yaml", "absent.yaml"),
        ("train -q -c run.yaml --mehs dp=2", "--mehs"),
        (
            "train -q -c run.yaml --mesh dp=2",
            "has 2 devices, and 4 processes were started",
        ),
        ("generate --run nowhere --prompt The", "nowhere"),
    ] {
        refused(&run(&s, 4, arguments), &[words]);
    }
    for (name, value) in [
        ("UNISONO_LOG_RANKS", "most"),
        ("UNISONO_TIMEOUT", "soon"),
        ("UNISONO_SILENCE", "0"),
        ("UNISONO_LOG", "loud"),
        ("TT_MESH_ID", "first"),
    ] {
        refused(
            &run_parts(&s, &[Part::new(2, &TRAIN.replace(" -q", "")).with(name, value)]),
            &[name, value],
        );
    }
    assert!(!s.path("run").exists());
}

#[test]
fn ranks_that_run_different_things_are_refused_with_both() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    let one = Part::new(1, TRAIN);
    let seed = Part::new(1, &format!("{TRAIN} --set training_config.seed=9"));
    refused(
        &run_parts(&s, &[one.clone(), seed]),
        &[
            "different values of training_config.seed: 7 on rank 0 (",
            "; 9 on rank 1 (",
        ],
    );
    let build = one
        .clone()
        .after("cp \"$0\" other && echo >> other && exec ./other \"$@\"");
    refused(
        &run_parts(&s, &[Part::new(2, TRAIN), build]),
        &[
            "different builds of unisono",
            " on rank 0 (",
            ", rank 1 (",
            " on rank 2 (",
        ],
    );
    // The same path, and another file there.
    s.write("run.yaml", &TINY.replace("text.txt", "/proc/self/cwd/text.txt"));
    s.write(
        "elsewhere/text.txt",
        &"The bear went home, and the fox sat down.\n".repeat(40),
    );
    let config = s.path("run.yaml");
    let train = format!("train -q -c {} --out run --mesh dp=2", config.display());
    let data = Part::new(1, &train).after("cd elsewhere");
    refused(&run_parts(&s, &[Part::new(1, &train), data]), &["rank 0 (", "rank 1 ("]);
    assert!(!s.path("run").exists() && !s.path("elsewhere/run").exists());
}

#[test]
fn mpi_that_is_absent_or_at_odds_with_the_launcher_is_told_once() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    let with = |library: &str| run_parts(&s, &[Part::new(2, TRAIN).with("UNISONO_MPI", library)]);
    refused(
        &with("/nonexistent"),
        &["UNISONO_MPI names /nonexistent", "apt-get install openmpi-bin"],
    );
    let done = with("libmpich.so.12");
    match done.err.contains("which cannot be used") {
        true => println!("skipped: MPICH is not installed"),
        false => refused(
            &done,
            &[
                "the launcher and the library belong to two MPIs",
                "UNISONO_MPI=libmpi.so.40",
            ],
        ),
    }
    assert!(!s.path("run").exists());
}

#[test]
fn under_torchrun_the_run_is_refused_in_words() {
    let s = Sandbox::new();
    let variables = [
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "0"),
        ("LOCAL_WORLD_SIZE", "2"),
    ];
    let done = s.run_with(TRAIN, &variables);
    refused(&done, &["torchrun", "--nproc-per-node", "mpirun"]);
}
