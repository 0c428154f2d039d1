//! Bad days under the launcher: the launcher itself is killed or stopped, a rank of a program that is not unisono fails. All ends with
//! one message, and nothing is left: no process, no folder, no shared memory.

#![cfg(target_os = "linux")]

mod common;

use common::launcher::{has_mpirun, launch, run};
use common::mpi::{all_gone, processes};
use common::{Done, Sandbox, end, signal};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What all processes may take to be gone once the launcher is.
const GONE: Duration = Duration::from_secs(15);

/// A script that may be executed.
fn script(sandbox: &Sandbox, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    sandbox.write(name, &format!("#!/bin/sh\n{text}"));
    std::fs::set_permissions(sandbox.path(name), std::fs::Permissions::from_mode(0o755)).expect("a script");
}

/// The launcher with its temporary folder in the sandbox, started.
fn start(sandbox: &Sandbox, arguments: &[&str]) -> Child {
    launch(sandbox, arguments)
        .env("TMPDIR", sandbox.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// A training run of two processes that goes on until it is stopped.
const TRAINING: [&str; 11] = [
    "run", "--np", "2", "--mesh", "dp=2", "--", "train", "-c", "run.yaml", "--out", "run",
];

fn long_training(sandbox: &Sandbox) -> Child {
    sandbox.config("max_steps: 8", "max_steps: 100000");
    let child = start(sandbox, &TRAINING);
    sandbox.wait_for("run/checkpoints/latest");
    child
}

/// Temporary folders of the launcher `pid`, its ranks and Open MPI, wherever they lie.
fn left(sandbox: &Sandbox, pid: u32) -> Vec<String> {
    let mark = format!("unisono-run-{pid}-");
    let of = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    };
    let shared = of(Path::new("/dev/shm"))
        .into_iter()
        .filter(|name| name.starts_with(&mark));
    let own = of(&sandbox.path(""))
        .into_iter()
        .filter(|name| name.starts_with("unisono-run-") || name.starts_with("ompi."));
    shared.chain(own).collect()
}

/// Everything that belonged to the job of the launcher `pid` is gone, and one message has told why.
#[track_caller]
fn nothing_left(sandbox: &Sandbox, pid: u32, done: &Done, errors: usize) {
    all_gone(sandbox, GONE);
    assert!(left(sandbox, pid).is_empty(), "{:?}", left(sandbox, pid));
    assert_eq!(done.errors().len(), errors, "{}\n{}", done.out, done.err);
    assert!(
        !done.err.contains("-----") && !done.err.contains("ORTE"),
        "{}",
        done.err
    );
}

#[test]
fn a_launcher_that_is_killed_takes_its_training_with_it() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    let child = long_training(&sandbox);
    let pid = child.id();
    assert!(!left(&sandbox, pid).is_empty(), "while it runs there is a folder");
    signal(&child, "KILL");
    // The guard holds standard error open until all is done.
    let done = end(child);
    assert_eq!(done.code, None);
    nothing_left(&sandbox, pid, &done, 1);
    let parts = [
        &format!("the launcher (process {pid}) was killed"),
        "/run goes on from its last checkpoint",
    ];
    for part in parts {
        assert!(done.errors()[0].contains(part), "{}", done.err);
    }
    // The checkpoint is good: the run goes on as one that nobody ended.
    let more = sandbox.steps("run").last().expect("some steps") + 2;
    for run in ["train -q --resume run", "train -q -c run.yaml --out straight"] {
        sandbox
            .run(&format!("{run} --set training_config.max_steps={more}"))
            .ended(0);
    }
    sandbox
        .run("diff run straight")
        .ended(0)
        .says(&["Identical, bit by bit."]);
}

#[test]
fn a_launcher_that_is_killed_takes_any_program_with_it() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    // A child that MPI's launcher does not know of, in a group of its own, and ranks that do not end when they are asked to, and speak
    // without end to nobody.
    script(
        &sandbox,
        "prog",
        "trap '' TERM INT\nsetsid sleep 600 &\necho x > up-${1:-0}-$OMPI_COMM_WORLD_RANK\n\
         while true; do echo some; echo words >&2; sleep 0.05; done\n",
    );
    // The second way Open MPI's files are its own affair, as with hosts: it must get to tidy up.
    for (index, mpi_args) in ["", "--host localhost:2"].into_iter().enumerate() {
        let child = start(
            &sandbox,
            &["run", "--np", "2", "--mpi-args", mpi_args, "./prog", &index.to_string()],
        );
        let pid = child.id();
        sandbox.wait_for(&format!("up-{index}-0"));
        sandbox.wait_for(&format!("up-{index}-1"));
        signal(&child, "KILL");
        nothing_left(&sandbox, pid, &end(child), 1);
    }
}

/// The long form of the tests above; `cargo test -p unisono --test launch_bad_days -- --ignored`.
#[test]
#[ignore = "a minute"]
fn launchers_killed_at_any_moment_leave_nothing() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.config("max_steps: 8", "max_steps: 100000");
    let again = [&TRAINING[..], &["--fresh", "-q"]].concat();
    for round in 0..20 {
        let child = start(&sandbox, &again);
        let pid = child.id();
        // Before the ranks are there, while MPI joins them, in steps and checkpoints.
        std::thread::sleep(Duration::from_millis(20 + 70 * round));
        signal(&child, "KILL");
        let done = end(child);
        // Before MPI's launcher was started there is nothing to tell.
        nothing_left(&sandbox, pid, &done, done.errors().len().min(1));
    }
    let more = sandbox.steps("run").last().expect("some steps") + 2;
    let set = format!("--set training_config.max_steps={more}");
    sandbox.run(&format!("train -q --resume run {set}")).ended(0);
}

#[test]
fn a_stop_of_the_launcher_ends_all_in_order() {
    if !has_mpirun() {
        return;
    }
    for (name, code) in [("TERM", 143), ("HUP", 129)] {
        if name == "HUP" && common::is_under_nohup() {
            continue;
        }
        let sandbox = Sandbox::new();
        let child = long_training(&sandbox);
        let pid = child.id();
        signal(&child, name);
        let done = end(child).ended(code);
        nothing_left(&sandbox, pid, &done, 0);
        let last = *sandbox.steps("run").last().expect("some steps");
        let names = sandbox.names("run/checkpoints");
        assert!(names.contains(&format!("step-{last:08}")), "{last} in {names:?}");
    }
}

#[test]
fn a_closed_terminal_ends_all_in_order() {
    let has_script = Command::new("script").arg("--version").output().is_ok();
    if !has_mpirun() || !has_script || common::is_under_nohup() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.config("max_steps: 8", "max_steps: 100000");
    // `script` gives the launcher a terminal, which is closed with it.
    let line = [&[env!("CARGO_BIN_EXE_unisono")], &TRAINING[..]].concat().join(" ");
    let mut command = Command::new("script");
    command
        .args(["-q", "-c", &format!("exec {line}"), "/dev/null"])
        .current_dir(sandbox.path(""))
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .env("TMPDIR", sandbox.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut terminal = command.spawn().expect("it starts");
    sandbox.wait_for("run/checkpoints/latest");
    terminal.kill().expect("it runs");
    terminal.wait().expect("it ends");
    all_gone(&sandbox, GONE);
    let own = sandbox.names("");
    assert!(!own.iter().any(|name| name.starts_with("unisono-run-")), "{own:?}");
    let last = *sandbox.steps("run").last().expect("some steps");
    let names = sandbox.names("run/checkpoints");
    assert!(names.contains(&format!("step-{last:08}")), "{last} in {names:?}");
}

/// Values of PATH by which each MPI of this machine is the first: MPICH's launcher by the name that is looked for first.
fn paths(sandbox: &Sandbox) -> Vec<String> {
    let path = std::env::var("PATH").expect("there is one");
    let has_mpich = Command::new("mpiexec.hydra").arg("--version").output().is_ok();
    let mpich = has_mpich.then(|| {
        script(sandbox, "mpich/mpirun", "exec mpiexec.hydra \"$@\"\n");
        format!("{}:{path}", sandbox.path("mpich").display())
    });
    [path].into_iter().chain(mpich).collect()
}

#[test]
fn a_rank_of_training_that_is_killed_is_named_with_its_step() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.config("max_steps: 8", "max_steps: 100000");
    for path in paths(&sandbox) {
        let _ = std::fs::remove_dir_all(sandbox.path("run"));
        let mut command = launch(&sandbox, &TRAINING);
        command.env("PATH", &path).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("it starts");
        sandbox.wait_for("run/checkpoints/latest");
        let seen = *sandbox.steps("run").last().expect("some steps");
        let rank = processes(&sandbox).into_iter().find(|process| process.rank == Some(1));
        common::mpi::signal_to(rank.expect("it runs").id, "KILL");
        let done = end(child).ended(137);
        let last = *sandbox.steps("run").last().expect("some steps");
        let [error] = done.errors()[..] else {
            panic!("{}", done.err)
        };
        assert!(error.contains("rank 1 on "), "{error}");
        let words = "was ended by signal 9 (SIGKILL); the last that it did: step ";
        let step = error.split_once(words).map(|(_, rest)| rest.split(',').next());
        let step: u64 = step.flatten().and_then(|step| step.parse().ok()).expect(error);
        // Numbers are written a step later than they are worked out, by another rank.
        assert!((seen..=last + 3).contains(&step), "{seen} to {last}: {error}");
        all_gone(&sandbox, GONE);
    }
}

#[test]
fn a_library_of_another_mpi_than_the_launchers_is_refused_before_the_start() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    let paths = paths(&sandbox);
    if paths.len() < 2 {
        println!("skipped: MPICH is not installed (apt install mpich)");
        return;
    }
    for (path, library) in paths.iter().zip(["libmpich.so.12", "libmpi.so.40"]) {
        let mut command = launch(&sandbox, &TRAINING);
        let done = Sandbox::finish(command.env("PATH", path).env("UNISONO_MPI", library)).ended(2);
        let [error] = done.errors()[..] else {
            panic!("{}", done.err)
        };
        for part in ["UNISONO_MPI", library, "Open MPI", "MPICH"] {
            assert!(error.contains(part), "no {part} in {error}");
        }
        assert!(!sandbox.path("run").exists());
    }
}

fn is_open_mpi_4() -> bool {
    let version = Command::new("mpirun").arg("--version").output().expect("it is here");
    String::from_utf8_lossy(&version.stdout).contains("(Open MPI) 4")
}

#[test]
fn ranks_that_cannot_join_end_with_a_message() {
    // Others can do with files that cannot grow.
    if !has_mpirun() || !is_open_mpi_4() {
        return;
    }
    let sandbox = Sandbox::new();
    let line = format!(
        "ulimit -f 200; exec '{}' run --np 2 --mesh dp=2 --timeout 1 -- train -c run.yaml",
        env!("CARGO_BIN_EXE_unisono")
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &line])
        .current_dir(sandbox.path(""))
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    let done = Sandbox::finish(&mut command);
    // Which comes first is a race: a rank that gives up, or one that the kernel ends as it writes beyond the limit.
    let written_too_far = 128 + 25;
    assert!(
        [Some(1), Some(written_too_far)].contains(&done.code),
        "{:?}: {}",
        done.code,
        done.err
    );
    assert_eq!(done.errors().len(), 1, "{}", done.err);
    all_gone(&sandbox, GONE);
}

#[test]
fn a_rank_of_any_program_that_fails_is_named_once() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "prog",
        "if [ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 ]; then eval \"$1\"; fi\nexec sleep 600\n",
    );
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has it");
    for path in paths(&sandbox) {
        for (how, code, words) in [
            ("exit 3", 3, "ended with exit code 3"),
            ("exit 255", 255, "ended with exit code 255"),
            ("exit 137", 137, "ended with exit code 137"),
            ("kill -SEGV $$", 139, "was ended by signal 11 (SIGSEGV)"),
            ("kill -KILL $$", 137, "was ended by signal 9 (SIGKILL)"),
        ] {
            let mut command = launch(&sandbox, &["run", "-q", "--np", "2", "./prog", how]);
            let done = Sandbox::finish(command.env("PATH", &path)).ended(code);
            let message = format!(
                "error: rank 1 on {} {words}; this ended the other ranks too\n",
                host.trim()
            );
            let notes = |line: &&str| !line.starts_with("note: ");
            let told: String = done.err.split_inclusive('\n').filter(notes).collect();
            assert_eq!(told, message);
            all_gone(&sandbox, GONE);
        }
    }
}

#[test]
fn signals_for_the_ranks_reach_any_program_once() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "prog",
        "trap 'echo usr1 >> got' USR1\ntrap 'echo term >> got; exit 5' TERM\necho x > up\nwhile true; do sleep 0.1; done\n",
    );
    let child = start(&sandbox, &["run", "--np", "1", "./prog"]);
    sandbox.wait_for("up");
    let mpirun = processes(&sandbox)
        .into_iter()
        // Open MPI 5 calls it so.
        .find(|process| process.line.starts_with("mpirun") || process.line.starts_with("prterun"))
        .expect("it runs");
    common::mpi::signal_to(mpirun.id, "USR1");
    sandbox.wait_for("got");
    signal(&child, "TERM");
    end(child).ended(143);
    assert_eq!(sandbox.read("got"), "usr1\nterm\n");
}

#[test]
fn ranks_that_cannot_be_started_are_told_once_in_our_words() {
    if !has_mpirun() {
        return;
    }
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "no-name",
        "echo 'ssh: Could not resolve hostname far: Name or service not known' >&2\nexit 255\n",
    );
    script(
        &sandbox,
        "no-key",
        "echo 'root@far: Permission denied (publickey).' >&2\nexit 255\n",
    );
    let open_mpi_4 = is_open_mpi_4();
    sandbox.write("slot", "rank 0=localhost slot=0\nrank 1=localhost slot=9999\n");
    script(&sandbox, "prog", "exit 0\n");
    let far = ["--np", "2", "--hosts", "far,farther"];
    let agent = |name: &str| format!("--mca plm_rsh_agent {}", sandbox.path(name).display());
    for (arguments, mpi_args, parts) in [
        (
            &far[..],
            agent("no-name"),
            [
                "2 ranks on far and farther could not be started: ",
                "(ssh: Could not resolve hostname far: ",
            ],
        ),
        (
            &far,
            agent("no-key"),
            ["by ssh without a password", "(root@far: Permission denied (publickey))"],
        ),
        (
            &far,
            agent("nothing"),
            [
                "by which other hosts are reached, is not on this host",
                "apt install openssh-client",
            ],
        ),
        (
            &["--np", "2"],
            "--rankfile slot".to_string(),
            [
                "2 ranks could not be started: ",
                "places rank 1 at slot 9999 of localhost, which has ",
            ],
        ),
        (
            &["--np", "64"],
            "--host localhost:2 --map-by slot:NOOVERSUBSCRIBE".to_string(),
            [
                "64 ranks could not be started: ",
                "fewer slots than the 64 that are needed",
            ],
        ),
        (
            &["--np", "2", "--skip-executable-check"],
            String::new(),
            [
                "2 ranks could not be started: on ",
                "./no-such-program cannot be started there: No such file",
            ],
        ),
    ] {
        if arguments.len() == 2 && mpi_args.ends_with("slot") && !open_mpi_4 {
            // Others start the rank all the same, somewhere.
            continue;
        }
        let program = if mpi_args.is_empty() {
            "./no-such-program"
        } else {
            "./prog"
        };
        let words = [&["run"], arguments, &["--mpi-args", &mpi_args, program]].concat();
        let done = run(&sandbox, &words).ended(1);
        assert_eq!(done.errors().len(), 1, "{}", done.err);
        for part in parts {
            assert!(done.errors()[0].contains(part), "no {part:?} in {}", done.err);
        }
        let others = done.err.lines().filter(|line| !line.starts_with("note: ")).count();
        assert_eq!(others, 1, "{}", done.err);
        all_gone(&sandbox, GONE);
    }
    if !open_mpi_4 {
        // They have other words, and tell them elsewhere.
        return;
    }
    // All of it is there for whoever asks.
    let no_key = agent("no-key");
    let words = [&["run", "-v"], &far[..], &["--mpi-args", &no_key, "./prog"]].concat();
    let done = run(&sandbox, &words).ended(1);
    assert!(done.err.contains("ORTE was unable to reliably start"), "{}", done.err);
}
