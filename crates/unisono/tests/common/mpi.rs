//! Runs of several processes under `mpirun`, each with an end: no run outlives its test, whatever happens to it.

use super::{Done, Sandbox};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a run may take before all its processes are killed, seconds.
const LIMIT: u64 = 60;

/// Whether there is an `mpirun` here; a test says so and does nothing where there is none.
pub fn installed() -> bool {
    let version = Command::new("mpirun").arg("--version").stdin(Stdio::null()).output();
    let found = version.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: mpirun is not installed (Debian: openmpi-bin libopenmpi3)");
    }
    found
}

/// What one or several ranks run, where not all run the same.
#[derive(Clone, Debug)]
pub struct Part {
    /// Ranks that run this.
    pub ranks: usize,
    /// Variables of theirs alone.
    pub variables: Vec<(&'static str, String)>,
    /// A program before unisono with its arguments, such as `sh -c`'s.
    pub before: Vec<String>,
    /// Arguments of unisono, which hold no spaces.
    pub arguments: String,
}

impl Part {
    /// `ranks` processes of the program with these arguments.
    pub fn new(ranks: usize, arguments: &str) -> Part {
        Part {
            ranks,
            variables: Vec::new(),
            before: Vec::new(),
            arguments: arguments.to_string(),
        }
    }

    /// With a variable of their own.
    pub fn with(mut self, name: &'static str, value: &str) -> Part {
        self.variables.push((name, value.to_string()));
        self
    }

    /// Started by a shell that does something first.
    pub fn after(mut self, script: &str) -> Part {
        let script = format!("{script}; exec \"$0\" \"$@\"");
        self.before = ["sh", "-c", &script].map(str::to_string).to_vec();
        self
    }
}

/// A run of several processes on its way; killed where it is dropped.
pub struct World<'a> {
    sandbox: &'a Sandbox,
    child: Option<Child>,
    started: Instant,
}

/// Starts `ranks` processes of the program with these arguments.
pub fn start<'a>(sandbox: &'a Sandbox, ranks: usize, arguments: &str) -> World<'a> {
    start_parts(sandbox, &[Part::new(ranks, arguments)], &[])
}

/// Starts parts of a run, with variables for all of them.
pub fn start_parts<'a>(sandbox: &'a Sandbox, parts: &[Part], variables: &[(&str, &str)]) -> World<'a> {
    // Open MPI puts its files here, so that what it leaves can be seen.
    let session = sandbox.path("session");
    std::fs::create_dir_all(&session).expect("a folder");
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none", "--mca", "orte_tmpdir_base"]);
    command
        .arg(&session)
        .args(["--mca", "btl_vader_backing_directory"])
        .arg(&session);
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            command.arg(":");
        }
        command.args(["-np", &part.ranks.to_string()]);
        for (name, value) in &part.variables {
            command.args(["-x", &format!("{name}={value}")]);
        }
        command.args(&part.before).arg(env!("CARGO_BIN_EXE_unisono"));
        command.args(part.arguments.split_whitespace());
    }
    command
        .current_dir(sandbox.path("."))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A signal to the test's group is not one to the run.
        .process_group(0);
    for variable in ["UNISONO_LOG", "UNISONO_ISA", "TT_METAL_LOGGER_LEVEL", "NO_COLOR"] {
        command.env_remove(variable);
    }
    World {
        sandbox,
        child: Some(command.spawn().expect("mpirun starts")),
        started: Instant::now(),
    }
}

/// Runs `ranks` processes to their end.
pub fn run(sandbox: &Sandbox, ranks: usize, arguments: &str) -> Done {
    start(sandbox, ranks, arguments).end()
}

/// Runs parts to their end.
pub fn run_parts(sandbox: &Sandbox, parts: &[Part]) -> Done {
    start_parts(sandbox, parts, &[]).end()
}

impl World<'_> {
    /// Waits for the end and gathers what all processes said.
    #[track_caller]
    pub fn end(mut self) -> Done {
        let child = self.child.take().expect("it ends once");
        let gatherer = std::thread::spawn(move || child.wait_with_output());
        while !gatherer.is_finished() {
            if self.started.elapsed() > Duration::from_secs(LIMIT) {
                let left = processes(self.sandbox);
                kill_all(self.sandbox);
                let done = Done::of(gatherer.join().expect("no panic").expect("it has ended"));
                panic!(
                    "a run of several processes took more than {LIMIT} s: {left:?}\n{}\n{}",
                    done.out, done.err
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Done::of(gatherer.join().expect("no panic").expect("it has ended"))
    }

    /// Sends a signal to `mpirun`.
    pub fn signal(&self, name: &str) {
        signal_to(self.child.as_ref().expect("it lives").id(), name);
    }

    /// Whether the run goes on.
    pub fn lives(&mut self) -> bool {
        let child = self.child.as_mut().expect("it has not been waited for");
        child.try_wait().expect("a process").is_none()
    }

    /// The number that the system has for a rank's process, once it is there; none if the run has ended.
    pub fn process_of(&mut self, rank: usize) -> Option<u32> {
        while self.lives() {
            let found = processes(self.sandbox)
                .into_iter()
                .find(|found| found.rank == Some(rank));
            if let Some(found) = found {
                return Some(found.id);
            }
            assert!(
                self.started.elapsed() < Duration::from_secs(LIMIT),
                "rank {rank} did not start"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        kill_all(self.sandbox);
        if let Some(mut child) = self.child.take() {
            // It has been killed.
            let _ = child.wait();
        }
    }
}

/// A process that works in a sandbox's folder.
#[derive(Clone, Debug)]
pub struct Process {
    /// What the system calls it.
    pub id: u32,
    /// The rank, of one of unisono's.
    pub rank: Option<usize>,
    /// Its command line.
    pub line: String,
}

/// The processes that work in a sandbox's folder: `mpirun`, its helpers and the ranks, whatever group they belong to.
pub fn processes(sandbox: &Sandbox) -> Vec<Process> {
    let folder = sandbox.path(".").canonicalize().expect("the folder is there");
    let entries = std::fs::read_dir("/proc").expect("Linux has it");
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let id: u32 = path.file_name()?.to_str()?.parse().ok()?;
            // One that has ended has no folder any more.
            let here = std::fs::read_link(path.join("cwd")).ok()? == folder;
            here.then(|| Process {
                id,
                rank: rank_of(&path),
                line: std::fs::read_to_string(path.join("cmdline"))
                    .unwrap_or_default()
                    .replace('\0', " "),
            })
        })
        .collect()
}

/// The rank of a process of unisono.
fn rank_of(process: &Path) -> Option<usize> {
    let program = Path::new(env!("CARGO_BIN_EXE_unisono")).canonicalize().ok()?;
    if std::fs::read_link(process.join("exe")).ok()? != program {
        return None;
    }
    let variables = std::fs::read(process.join("environ")).ok()?;
    let variables = String::from_utf8_lossy(&variables).into_owned();
    let line = std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
    if line.contains("--rank-of-run") {
        // It waits for the rank's own process.
        return None;
    }
    let rank = variables.split('\0').find_map(|variable| {
        let open_mpi = variable.strip_prefix("OMPI_COMM_WORLD_RANK=");
        open_mpi.or_else(|| variable.strip_prefix("PMI_RANK="))
    })?;
    rank.parse().ok()
}

/// Files of Open MPI's, its shared memory among them, that the runs in a sandbox have left behind.
pub fn left_behind(sandbox: &Sandbox) -> Vec<PathBuf> {
    let mut folders = vec![sandbox.path("session")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}

/// Sends a signal to a process, if it is still there.
pub fn signal_to(id: u32, name: &str) {
    let script = format!("kill -{name} {id} 2> /dev/null");
    // It may just have ended.
    let _ = Command::new("sh").args(["-c", &script]).status();
}

fn kill_all(sandbox: &Sandbox) {
    for process in processes(sandbox) {
        signal_to(process.id, "KILL");
    }
}

/// Waits until no process works in the sandbox any more.
#[track_caller]
pub fn all_gone(sandbox: &Sandbox, within: Duration) {
    let start = Instant::now();
    loop {
        let left = processes(sandbox);
        if left.is_empty() {
            return;
        }
        assert!(
            start.elapsed() < within,
            "{} s after the end there are still {left:?}",
            within.as_secs()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}
