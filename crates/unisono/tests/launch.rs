//! The launcher as users run it: exit codes, quoting, environments, signals, and the files that the documents show.

#![cfg(unix)]

mod common;

use common::launcher::{has_mpirun, launch, run};
use common::{Sandbox, end, signal};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A script that may be executed.
fn script(sandbox: &Sandbox, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    sandbox.write(name, &format!("#!/bin/sh\n{text}"));
    std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(0o755)).expect("a script");
}

/// Bindings of two ranks to one mesh over two processes.
fn bind(sandbox: &Sandbox, more: &str) {
    sandbox.write(
        "mgd.textproto",
        "mesh_descriptors { name: \"M\" arch: BLACKHOLE device_topology { dims: [1, 2] } \
         host_topology { dims: [1, 2] } channels { count: 1 } }\n\
         top_level_instance { mesh { mesh_descriptor: \"M\" mesh_id: 0 } }\n",
    );
    let ranks = "rank_bindings:\n- {rank: 0, mesh_id: 0, mesh_host_rank: 1}\n\
                 - {rank: 1, mesh_id: 0, mesh_host_rank: 0, env_overrides: {TT_A: own, ODD: \"a; 'b' $TT_B\"}}\n\
                 mesh_graph_desc_path: mgd.textproto\n";
    sandbox.write("b.yaml", &format!("{ranks}{more}"));
}

/// Lines without MPI's tags and in order, since ranks print when they like.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text
        .lines()
        // Open MPI 5 leaves a space behind the mark of the rank.
        .map(|line| line.split_once(">:").map_or(line, |(_, line)| line.trim_start()))
        .collect();
    lines.sort_unstable();
    lines
}

const ODD: [&str; 10] = [
    "--name",
    "a b",
    "--note",
    ":",
    "--config",
    "x=y",
    "-v",
    "",
    "it's \"$HOME\"",
    "--tune",
];

#[test]
fn the_line_of_a_dry_run_does_the_same_in_a_shell() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    bind(&sandbox, "");
    script(
        &sandbox,
        "prog",
        "for word in \"$@\"; do echo \"$OMPI_COMM_WORLD_RANK <$word> $TT_MESH_HOST_RANK $ODD $PWD\"; done\n",
    );
    for mode in [["--rank-binding", "b.yaml"], ["--np", "2"]] {
        let mut arguments = vec!["run"];
        arguments.extend(mode);
        let with = |more: &[&str]| {
            let words: Vec<&str> = arguments
                .iter()
                .chain(more)
                .chain(&["./prog"])
                .chain(&ODD)
                .copied()
                .collect();
            Sandbox::finish(launch(&sandbox, &words).env("TT_B", "b"))
        };
        let direct = with(&[]).ended(0);
        let line = with(&["--dry-run"]).ended(0).out;
        assert_eq!(line.lines().count(), 1, "{line}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir("/").env("TT_B", "b");
        shell.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        let pasted = Sandbox::finish(&mut shell).ended(0);
        assert_eq!(sorted(&direct.out), sorted(&pasted.out));
        assert_eq!(sorted(&direct.out).len(), 2 * ODD.len(), "{}", direct.out);
        for word in ODD {
            assert!(
                direct.out.contains(&format!("1 <{word}> ")),
                "{word} did not arrive:\n{}",
                direct.out
            );
        }
    }
}

#[test]
fn ranks_see_the_values_that_win() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    bind(&sandbox, "global_env: {TT_A: all, TT_C: 3}\n");
    script(
        &sandbox,
        "prog",
        "echo \"$OMPI_COMM_WORLD_RANK:$TT_A:$TT_B:$TT_C:$ODD:$TT_VISIBLE_DEVICES:$TT_MESH_HOST_RANK:$UNISONO_TIMEOUT:$GITHUB_TOKEN\"\n",
    );
    let mut command = launch(
        &sandbox,
        &["run", "--rank-binding", "b.yaml", "--timeout", "9", "./prog"],
    );
    let parent = [
        ("TT_A", "parent"),
        ("TT_B", "b; c"),
        ("TT_VISIBLE_DEVICES", "7"),
        ("TT_MESH_HOST_RANK", "9"),
        ("GITHUB_TOKEN", "s"),
    ];
    let done = Sandbox::finish(command.envs(parent)).ended(0);
    assert_eq!(
        sorted(&done.out),
        ["0:all:b; c:3:::1:9:", "1:own:b; c:3:a; 'b' b; c::0:9:"]
    );
}

#[test]
fn the_exit_code_is_the_ranks() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "prog",
        "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exit 7; fi; exec sleep 20\n",
    );
    run(&sandbox, &["run", "--np", "2", "./prog"])
        .ended(7)
        .tells(&["error: ", "ended with exit code 7"]);
    run(&sandbox, &["run", "--np", "2", "true"]).ended(0);
    run(&sandbox, &["run", "--np", "2", "sh", "-c", "kill -9 $$"])
        .ended(137)
        .tells(&["by signal 9"]);
    // Again and again, as often as was asked for.
    script(
        &sandbox,
        "count",
        "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then echo x >> tries; fi; exit 4\n",
    );
    run(&sandbox, &["run", "--np", "1", "--max-restarts", "2", "./count"])
        .ended(4)
        .tells(&["restart 2 of 2"]);
    assert_eq!(sandbox.read("tries").lines().count(), 3);
}

#[test]
fn wrong_input_starts_nothing_and_is_told_once() {
    let sandbox = Sandbox::new();
    bind(&sandbox, "");
    sandbox.write("folder/file", "");
    for (arguments, part) in [
        (&["run"][..], "nothing says which ranks there are"),
        (
            &["run", "--np", "2", "--rank-binding", "b.yaml"],
            "--rank-binding and --np each say",
        ),
        (
            &["run", "--np", "2", "no-such-program"],
            "the program no-such-program is not on PATH",
        ),
        (&["run", "--np", "2", "run"], "run starts no second run"),
        (
            &["run", "--np", "9", "--mesh", "dp=4"],
            "has 4 devices, and --np 9 gives it 9 ranks",
        ),
        (
            &["run", "--rank-binding", "b.yaml", "--mesh", "dp=4"],
            "has 4 devices, and mesh 0 of b.yaml has 2 devices",
        ),
        (
            &["run", "--np", "2", "-c", "nosuch.yaml"],
            "nosuch.yaml: the file does not exist",
        ),
        (
            &["run", "--np", "2", "--mesh", "dp=2", "true"],
            "--mesh dp=2 is for unisono's own commands",
        ),
        (
            &["run", "--np", "2", "--log-ranks", "0,2", "true"],
            "--log-ranks 0,2: \"2\" is no rank of this run, which has 0 to 1",
        ),
        (&["run", "--np", "x", "true"], "invalid value 'x'"),
        (
            &["run", "--np", "-1", "true"],
            "invalid value '-1' for '--np <N>': a whole number from 1 to 65536 is needed",
        ),
        (
            &["run", "--np", "0", "true"],
            "a whole number from 1 to 65536 is needed",
        ),
        (
            &["run", "--np", "2", "--nnodes", "3", "true"],
            "--np 2 and --nnodes 3 disagree",
        ),
        (
            &["run", "--np", "1", "--max-restarts", "-1", "true"],
            "invalid value '-1' for '--max-restarts <N>': a whole number from 0",
        ),
        (
            &["run", "--np", "1", "--timeout", "0", "true"],
            "invalid value '0' for '--timeout <SECONDS>': a whole number of seconds above 0 is needed",
        ),
        (
            &["run", "--np", "2", "--hosts", "", "true"],
            "--hosts \"\" names no host",
        ),
        (&["run", "--np", "2", "--hosts", "a,a", "true"], "names a twice"),
        (&["run", "--np", "2", "--mesh", ""], "--mesh is empty: write it as dp=2"),
        (
            &["run", "--np", "2", "--mesh", "dp=2", "trian"],
            "the program trian is not on PATH, and none of unisono's commands",
        ),
        (
            &["run", "--np", "2", "./text.txt"],
            "the program ./text.txt may not be executed (chmod +x)",
        ),
        (
            &["run", "--np", "2", "text.txt"],
            "text.txt is here, but may not be executed",
        ),
        (&["run", "--np", "2", "./folder"], "the program ./folder is a folder"),
        (&["run", "--np", "2", "folder"], "folder here is a folder"),
    ] {
        let done = run(&sandbox, arguments).ended(2).tells(&[part]);
        assert_eq!(done.err.matches(part).count(), 1, "{}", done.err);
    }
    // An entry too many is no reason to refuse, as tt-run sees it.
    run(&sandbox, &["run", "--np", "2", "--hosts", "a,,b", "--show", "true"])
        .ended(0)
        .tells(&["--hosts a,,b: 1 of its 3 entries is empty and left out"]);
    // Workers, ranks: two places that must say the same.
    let config = format!("{}multihost_config: {{enabled: true, num_workers: 4}}\n", common::TINY);
    sandbox.write("run.yaml", &config);
    run(&sandbox, &["run", "--np", "2", "-c", "run.yaml"]).ended(2).tells(&[
        "multihost_config.num_workers at run.yaml:",
        " is 4, and --np 2 gives 2 ranks",
    ]);
    run(&sandbox, &["run", "--rank-binding", "b.yaml", "-c", "run.yaml"])
        .ended(2)
        .tells(&["is 4, and b.yaml gives 2 ranks"]);
}

#[test]
fn what_cannot_be_started_is_said_before() {
    let sandbox = Sandbox::new();
    let mut command = launch(&sandbox, &["run", "--np", "2", "/bin/true"]);
    Sandbox::finish(command.env("PATH", sandbox.path("")))
        .ended(1)
        .tells(&["mpirun) is not on PATH", "openmpi-bin"]);
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout == b"0\n");
    if is_root && has_mpirun() {
        let mut command = launch(&sandbox, &["run", "--np", "2", "/bin/true"]);
        Sandbox::finish(command.env_remove("OMPI_ALLOW_RUN_AS_ROOT"))
            .ended(1)
            .tells(&["OMPI_ALLOW_RUN_AS_ROOT=1"]);
    }
}

#[test]
fn options_behind_the_program_are_its_own() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    script(&sandbox, "prog", "echo \"$@\"\n");
    let done = run(
        &sandbox,
        &["run", "-v", "--np", "1", "./prog", "-v", "--np", "3", "--", "--dry-run"],
    )
    .ended(0);
    assert!(done.out.contains("-v --np 3 -- --dry-run"), "{}", done.out);
    let help = run(&sandbox, &["run", "--np", "2", "train", "--help"]).ended(0);
    assert!(help.out.contains("Usage: unisono train"), "{}", help.out);
}

#[test]
fn by_the_name_of_tt_run_there_are_its_options_only() {
    let sandbox = Sandbox::new();
    bind(&sandbox, "");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_unisono"), sandbox.path("tt-run")).expect("a link");
    let tt_run = |arguments: &[&str]| {
        let mut command = Command::new(sandbox.path("tt-run"));
        Sandbox::finish(
            command
                .args(arguments)
                .current_dir(sandbox.path(""))
                .env_remove("TT_METAL_HOME"),
        )
    };
    tt_run(&["--rank-binding", "b.yaml", "--dry-run", "/bin/true", "-v"])
        .ended(0)
        .says(&["-x TT_MESH_HOST_RANK=1", "/bin/true -v"]);
    tt_run(&["--rank-binding", "b.yaml", "--multihost", "--dry-run", "true"])
        .ended(0)
        .tells(&["note: --multihost is the default now"]);
    tt_run(&["--rank-binding", "b.yaml"])
        .ended(2)
        .tells(&["no program is named"]);
    tt_run(&["--rank-binding", "b.yaml", "schema"])
        .ended(2)
        .tells(&["the program schema is not on PATH"]);
    tt_run(&["schema"])
        .ended(2)
        .tells(&["nothing says which ranks there are"]);
    tt_run(&["--help"]).ended(0).says(&["Usage: tt-run"]);
}

#[test]
fn ctrl_c_ends_every_rank() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "prog",
        "echo $$ > pid-$OMPI_COMM_WORLD_RANK.new\nmv pid-$OMPI_COMM_WORLD_RANK.new pid-$OMPI_COMM_WORLD_RANK\nexec sleep 60\n",
    );
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let child = launch(&sandbox, &["run", "--np", "2", "./prog"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pids = ["pid-0", "pid-1"].map(|file| {
            sandbox.wait_for(file);
            sandbox.read(file).trim().to_string()
        });
        signal(&child, name);
        end(child).ended(code);
        for pid in pids {
            assert!(
                !Path::new("/proc").join(&pid).join("fd/0").exists(),
                "rank {pid} is left"
            );
        }
        std::fs::remove_file(sandbox.path("pid-0")).expect("the file");
        std::fs::remove_file(sandbox.path("pid-1")).expect("the file");
    }
}

/// A training run of two processes that goes on until it is stopped.
fn long_training(sandbox: &Sandbox, more: &[&str]) -> Command {
    sandbox.config("max_steps: 8", "max_steps: 100000");
    let mut arguments = vec!["run", "--np", "2"];
    arguments.extend(more);
    arguments.extend([
        "--mesh",
        "dp=2",
        "--",
        "train",
        "-c",
        "run.yaml",
        "--out",
        "run",
        "--set",
        "training_config.log_every=1",
    ]);
    let mut command = launch(sandbox, &arguments);
    // The launcher's folder is there to be found.
    command
        .env("TMPDIR", sandbox.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn ctrl_c_at_the_launcher_ends_training_after_a_checkpoint() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    let child = long_training(&sandbox, &[]).spawn().expect("it starts");
    sandbox.wait_for("run/metrics.jsonl");
    signal(&child, "INT");
    let done = end(child).ended(130);
    assert!(done.errors().is_empty(), "{}", done.err);
    // The user's own line, without what the run knows by itself.
    let program = env!("CARGO_BIN_EXE_unisono");
    let line = format!("go on with: {program} run --np 2 --mesh dp=2 -- train --resume run\n");
    assert!(done.out.contains(&line), "{}", done.out);
    let steps = sandbox.steps("run");
    let last = steps.last().expect("a step");
    let names = sandbox.names("run/checkpoints");
    assert!(
        names.iter().any(|name| name.ends_with(&last.to_string())),
        "{last} in {names:?}"
    );
    let left: Vec<String> = sandbox
        .names("")
        .into_iter()
        .filter(|name| name.starts_with("unisono-run-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_rank_that_is_killed_is_named_once_and_the_run_goes_on() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    let mut child = long_training(&sandbox, &["--max-restarts", "1"])
        .spawn()
        .expect("it starts");
    sandbox.wait_for("run/checkpoints");
    let until = Instant::now() + Duration::from_secs(60);
    while !sandbox
        .names("run/checkpoints")
        .iter()
        .any(|name| name.starts_with("step-"))
    {
        assert!(
            Instant::now() < until && child.try_wait().expect("its state").is_none(),
            "no checkpoint"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill_rank_1 = |sandbox: &Sandbox| {
        let folder = sandbox
            .names("")
            .into_iter()
            .find(|name| name.starts_with("unisono-run-"))
            .expect("the launcher's folder");
        let word = sandbox.read(&format!("{folder}/rank-1"));
        let pid = word
            .lines()
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .expect("host and pid")
            .to_string();
        let killed = Command::new("kill").args(["-9", &pid]).status().expect("kill");
        assert!(killed.success());
        folder
    };
    let first = kill_rank_1(&sandbox);
    // The second attempt has a folder of its own.
    let is_second = |name: &String| name.starts_with("unisono-run-") && *name != first;
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let second = sandbox.names("").into_iter().find(is_second);
        if second
            .is_some_and(|name| sandbox.path(&name).join("rank-1").exists() && sandbox.path(&name).join("run").exists())
        {
            break;
        }
        assert!(
            Instant::now() < until && child.try_wait().expect("its state").is_none(),
            "no second attempt"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_rank_1(&sandbox);
    let done = end(child);
    assert!(done.code.is_some_and(|code| code != 0), "{:?}\n{}", done.code, done.err);
    assert_eq!(
        done.err
            .matches("restart 1 of 1: run goes on from its last checkpoint")
            .count(),
        1,
        "{}",
        done.err
    );
    assert_eq!(done.errors().len(), 1, "one message:\n{}", done.err);
    assert!(done.errors()[0].contains("rank 1"), "{}", done.err);
    let hint = " run --np 2 --max-restarts 1 --mesh dp=2 -- train --resume run\n";
    let hint = format!(
        "note: go on from the last checkpoint with: {}{hint}",
        env!("CARGO_BIN_EXE_unisono")
    );
    assert_eq!(done.err.matches(&hint).count(), 1, "{}", done.err);
    let steps = sandbox.steps("run");
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
}
