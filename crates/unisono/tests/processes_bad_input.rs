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
            "the mesh has 2 devices (dp 2), and 4 processes were started",
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
    if !s.run("--version").out.contains("portable)") {
        let portable = Part::new(1, TRAIN).with("UNISONO_ISA", "portable");
        refused(
            &run_parts(&s, &[one.clone(), portable]),
            &[
                "different versions of unisono",
                "only the instruction sets differ",
                "UNISONO_ISA=portable",
            ],
        );
    }
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
fn other_arguments_are_refused_where_a_trained_model_runs() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    let eval = "eval --run run --mesh dp=2";
    let other = format!("{eval} --set training_config.bf16_order=tiles");
    refused(
        &run_parts(&s, &[Part::new(1, eval), Part::new(1, &other)]),
        &[
            &format!("different arguments: `{eval}` on rank 0 ("),
            &format!("; `{other}` on rank 1 ("),
        ],
    );
    let seeded = |seed: u32| {
        let arguments = format!("generate --model model --mesh tp=2 --prompt The --seed {seed}");
        Part::new(1, &arguments)
    };
    refused(
        &run_parts(&s, &[seeded(1), seeded(2)]),
        &["different arguments", "--seed 1`", "--seed 2`"],
    );
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

#[test]
fn a_command_for_one_process_is_refused_once() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    for arguments in [
        "bench",
        "check -c run.yaml",
        "completions bash",
        "data check text.txt",
        "devices",
        "diff a b",
        "explain all-reduce --mesh 1x2",
        "export --run run --out weights.safetensors",
        "init new.yaml",
        "inspect run",
        "lora merge --run run --out merged",
        "mesh list",
        "schema",
        "tokenizer train --data text.txt --vocab-size 300 --out words",
        "topo",
    ] {
        let name = arguments.split(' ').next().expect("a name");
        let words = format!("`unisono {name}` is for one process, and 2 were asked for");
        // By MPI's launcher, and by unisono's, which starts nothing.
        refused(&run(&s, 2, arguments), &[&words]);
        refused(&launched(&s, &format!("run --np 2 -- {arguments}")), &[&words]);
    }
    refused(
        &run(&s, 2, "run --np 2 -- train -c run.yaml"),
        &["2 processes were started for it"],
    );
    assert_eq!(s.names(""), ["run.yaml", "session", "text.txt"]);
    launched(&s, "run --np 1 -- init new.yaml").ended(0);
    let help = run(&s, 2, "train --help").ended(0);
    assert_eq!(help.out.matches("Usage:").count(), 1, "{}", help.out);
}

#[test]
fn variables_that_mean_nothing_are_found_before_a_process_starts() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    for (name, value, words) in [
        ("UNISONO_TIMEOUT", "abc", "UNISONO_TIMEOUT is `abc`"),
        ("UNISONO_TIMEOUT", "0", "UNISONO_TIMEOUT is `0`"),
        ("UNISONO_SILENCE", "-1", "UNISONO_SILENCE is `-1`"),
        (
            "UNISONO_LOG_RANKS",
            "7",
            "\"7\" is no rank of this run, which has 0 to 1",
        ),
        ("UNISONO_LOG_RANKS", "0,most", "\"most\" is no rank of this run"),
        ("UNISONO_MPI", "/no/such", "UNISONO_MPI names /no/such"),
        ("UNISONO_LOG", "loud", "UNISONO_LOG is `loud`"),
        ("UNISONO_ISA", "mmx", "mmx"),
    ] {
        // By unisono's launcher, with nothing to launch with: nothing is started.
        let words_of_run = ["run", "--np", "2", "--mesh", "dp=2", "--", "train", "-c", "run.yaml"];
        let mut command = common::launcher::launch(&s, &words_of_run);
        refused(
            &Sandbox::finish(command.env(name, value).env("PATH", s.path(""))),
            &[words],
        );
        // By MPI's, where all ranks see it.
        refused(
            &run_parts(&s, &[Part::new(2, &TRAIN.replace(" -q", "")).with(name, value)]),
            &[words],
        );
    }
    // What the files say of one rank alone.
    s.write(
        "mgd.textproto",
        "mesh_descriptors { name: \"M\" arch: BLACKHOLE device_topology { dims: [1, 2] } \
         host_topology { dims: [1, 2] } channels { count: 1 } }\n\
         top_level_instance { mesh { mesh_descriptor: \"M\" mesh_id: 0 } }\n",
    );
    s.write(
        "b.yaml",
        "rank_bindings:\n- {rank: 0, mesh_id: 0, mesh_host_rank: 0}\n\
         - {rank: 1, mesh_id: 0, mesh_host_rank: 1, env_overrides: {UNISONO_SILENCE: soon}}\n\
         mesh_graph_desc_path: mgd.textproto\n",
    );
    refused(
        &launched(&s, "run --rank-binding b.yaml -- train -c run.yaml --mesh dp=2"),
        &["UNISONO_SILENCE is `soon`"],
    );
    assert!(!s.path("runs").exists() && !s.path("run").exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_found_before_anything_else() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    let train = "train -c run.yaml --mesh dp=2 --out";
    // A file in the way, and a file system on which nobody makes folders, root neither.
    for out in ["text.txt/run", "/proc/run"] {
        let words = [out, "cannot be made", "choose another --out"];
        let told = |done: Done| {
            let done = done.ended(1).tells(&words);
            assert_eq!(done.errors().len(), 1, "{}", done.err);
            assert!(!done.out.contains("step"), "{}", done.out);
        };
        told(s.run(&format!("{train} {out}")));
        told(run(&s, 2, &format!("{train} {out}")));
        let arguments = format!("run --np 2 -- {train} {out}");
        let words: Vec<&str> = arguments.split(' ').collect();
        let mut command = common::launcher::launch(&s, &words);
        // There is nothing to launch with, and that is not what is told.
        told(Sandbox::finish(command.env("PATH", s.path(""))));
    }
    // One rank does not see the folder of the others.
    let here = format!("train -q -c {} --mesh dp=2 --out run", s.path("run.yaml").display());
    s.write(
        "run.yaml",
        &TINY.replace("text.txt", &s.path("text.txt").display().to_string()),
    );
    s.write("elsewhere/file", "");
    let away = Part::new(1, &here).after("cd elsewhere");
    let done = run_parts(&s, &[Part::new(1, &here), away]).ended(1);
    assert_eq!(done.errors().len(), 1, "{}", done.err);
    done.tells(&["rank 1 (", "does not find the run's folder run, which rank 0 has made"]);
    assert_eq!(s.names("run"), Vec::<String>::new());
    let left = s.names("");
    assert!(!left.iter().any(|name| name.starts_with('.')), "{left:?}");
}

#[test]
fn errors_are_one_json_object_where_that_is_asked_for() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    let told = |done: Done, code: i32, words: &str| {
        let done = done.ended(code);
        let json = done.json();
        assert_eq!(json["exit_code"], code, "{json}");
        let errors = json["errors"].as_array().expect("a list");
        assert_eq!(errors.len(), 1, "{json}");
        assert!(errors[0].as_str().expect("a text").contains(words), "{json}");
        assert!(done.errors().is_empty(), "{}", done.err);
    };
    for (arguments, words) in [
        ("train --json -c absent.yaml --mesh dp=2", "absent.yaml"),
        ("train --json -c run.yaml --mehs dp=2", "--mehs"),
        ("train --json -c run.yaml", "1 device, and "),
        ("generate --json --run nowhere --prompt The", "nowhere"),
        ("devices --json", "is for one process"),
    ] {
        told(run(&s, 2, arguments), 2, words);
        // Asked of the launcher, of its program, and of both.
        let bare = arguments.replace(" --json", "");
        told(launched(&s, &format!("run --json --np 2 -- {bare}")), 2, words);
        told(launched(&s, &format!("run --np 2 -- {arguments}")), 2, words);
        told(
            launched(&s, &format!("run --json -q --np 2 -- {arguments} -q")),
            2,
            words,
        );
    }
    told(
        launched(&s, "run --json --np 0 -- train -c run.yaml"),
        2,
        "a whole number from 1 to 65536 is needed",
    );
    told(
        launched(
            &s,
            "run --json --np 2 -- train -c run.yaml --mesh dp=2 --out text.txt/run",
        ),
        1,
        "cannot be made",
    );
    // A rank that says nothing is named by the launcher.
    told(launched(&s, "run --json --np 1 false"), 1, "ended with exit code 1");
    let line = launched(&s, "run --dry-run --np 2 -- train --json -c run.yaml --mesh dp=2").ended(0);
    assert!(line.out.contains(" train --json -c run.yaml"), "{}", line.out);
}

#[test]
fn visible_devices_are_enough_for_all_ranks_of_a_host() {
    if !installed() {
        return;
    }
    let s = Sandbox::new();
    for (value, words) in [
        ("0", "which shows 1 of the "),
        ("", "which shows 0 of the "),
        ("0,no", "\"no\" is neither the index of a device"),
    ] {
        let arguments = ["run", "--np", "2", "--mesh", "dp=2", "--", "train", "-c", "run.yaml"];
        let mut command = common::launcher::launch(&s, &arguments);
        let command = command.env("UNISONO_VISIBLE_DEVICES", value).env("PATH", s.path(""));
        refused(&Sandbox::finish(command), &["UNISONO_VISIBLE_DEVICES", words]);
    }
    let words = [
        "the mesh of 2 devices (dp 2) has 2 of them on the processes of ",
        "UNISONO_VISIBLE_DEVICES is \"0\"",
    ];
    let part = Part::new(2, TRAIN).with("UNISONO_VISIBLE_DEVICES", "0");
    refused(&run_parts(&s, &[part]), &words);
    // The original's name is for one rank, and does not pass the launcher.
    let mut command = common::launcher::launch(&s, &["run", "--np", "2", "--show", "true"]);
    Sandbox::finish(command.env("TT_VISIBLE_DEVICES", "0"))
        .ended(0)
        .tells(&["note: TT_VISIBLE_DEVICES=0 does not reach rank 0"]);
}

#[test]
fn the_mesh_of_the_launcher_and_that_of_the_program_are_one() {
    let s = Sandbox::new();
    let own = format!(
        "run --np 2 --mesh dp=2 -- {} train -c run.yaml --mesh dp=4",
        env!("CARGO_BIN_EXE_unisono")
    );
    for arguments in [
        "run --np 2 --mesh dp=2 -- train -c run.yaml --mesh dp=4",
        "run --np 2 --mesh dp=2 -- train -c run.yaml -mdp=4",
        "run --np 2 --mesh dp=2 -- generate --run run --prompt The --mesh=dp=4",
        &own,
    ] {
        let words = "two meshes are given: --mesh dp=2 among the launcher's options, and --mesh dp=4 among those of the program";
        refused(&launched(&s, arguments), &[words]);
    }
    for program in [
        "train -c run.yaml --mesh dp=2",
        "train --mesh=dp=2 -c run.yaml",
        "train -c run.yaml",
    ] {
        let line = launched(&s, &format!("run --dry-run --np 2 --mesh dp=2 -- {program}")).ended(0);
        assert_eq!(line.out.matches("--mesh").count(), 1, "{}", line.out);
    }
    refused(
        &launched(&s, "run --np 2 --mesh dp=2 -- bench collectives"),
        &["--mesh dp=2: `unisono bench collectives` takes no mesh; leave it away"],
    );
    refused(
        &launched(&s, "run --np 2 --mesh dp=2 -- schema"),
        &["`unisono schema` is for one process"],
    );
    refused(
        &launched(&s, "run --np 2 --mesh dp=2 -- train -c"),
        &["a value is required"],
    );
}

#[test]
fn what_changes_nothing_is_told_as_a_note() {
    let s = Sandbox::new();
    let arguments = "run --multihost --dry-run --np 2 --mesh dp=2 -- train -c run.yaml";
    let words: Vec<&str> = arguments.split(' ').collect();
    let mut command = common::launcher::launch(&s, &words);
    let command = command.env("UNISONO_VISIBLE", "0").env("UNISONO_FOO", "1");
    let done = Sandbox::finish(command.env("UNISONO_SILENCE", "9")).ended(0);
    for note in [
        "note: --multihost is the default now",
        "note: UNISONO_VISIBLE is no variable of unisono's and changes nothing; did you mean UNISONO_VISIBLE_DEVICES?",
        "note: UNISONO_FOO is no variable of unisono's and changes nothing; the variables that there are: UNISONO_ISA, ",
    ] {
        assert_eq!(done.err.matches(note).count(), 1, "{}", done.err);
    }
    assert!(!done.err.contains("UNISONO_SILENCE is"), "{}", done.err);
}

/// A run of unisono's launcher.
fn launched(s: &Sandbox, arguments: &str) -> Done {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    common::launcher::run(s, &words)
}
