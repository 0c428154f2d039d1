//! What each rank runs: that it is there, and what it is wrapped in.

use crate::request::{Caller, Request};
use crate::shell;
use std::path::{Path, PathBuf};
use unisono_train::config::Findings;

/// Ports of the debuggers of rank 0, 1, …
const GDBSERVER_PORT: usize = 20_000;
/// Where the profiler writes unless its arguments say otherwise.
const TRACY_FOLDER: &str = "generated/profiler";
/// What Open MPI's launcher takes out of the arguments of a program as well, wherever it stands.
const TAKEN_BY_MPIRUN: [&str; 11] = [
    ":",
    "--tune",
    "-tune",
    "--am",
    "-am",
    "--mca",
    "-mca",
    "--gmca",
    "-gmca",
    "--omca",
    "--prtemca",
];

/// Whether `path` is a file that may be run.
fn is_executable(path: &Path) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else {
        return false;
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
    }
    #[cfg(not(unix))]
    metadata.is_file()
}

/// The program `name` in the folders of `PATH`.
pub fn on_path(name: &str, caller: &Caller) -> Option<PathBuf> {
    let path = caller.variable("PATH")?;
    let folders = path.split(':').map(|folder| caller.directory.join(folder));
    folders
        .map(|folder| folder.join(name))
        .find(|program| is_executable(program))
}

/// Tells where there is no such program.
pub(crate) fn check(request: &Request, caller: &Caller, findings: &mut Findings) {
    let Some(name) = request.program.words.first() else {
        findings.problem(
            None,
            "no program is named: what shall each rank run? For example: --np 4 ./program",
        );
        return;
    };
    if name.is_empty() {
        findings.problem(None, "the program's name is empty");
        return;
    }
    if let Some(word) = request.program.words.iter().find(|word| word.contains('\0')) {
        findings.problem(None, format!("{} holds a character 0", word.escape_debug()));
    }
    if request.skip_executable_check {
        return;
    }
    let here = caller.directory.join(name);
    let skip = "--skip-executable-check for one that only the other hosts have";
    if name.contains('/') {
        if !here.exists() {
            findings.problem(None, format!("the program {name} does not exist ({skip})"));
        } else if !is_executable(&here) {
            let what = if here.is_dir() {
                "is a folder"
            } else {
                "may not be executed (chmod +x)"
            };
            findings.problem(None, format!("the program {name} {what}"));
        }
    } else if on_path(name, caller).is_none() {
        let hint = match is_executable(&here) {
            true => format!("; ./{name} is here"),
            false if here.is_dir() => format!("; {name} here is a folder"),
            false if here.is_file() => format!("; {name} is here, but may not be executed (chmod +x, then ./{name})"),
            false => String::new(),
        };
        let command = match request.program.tried {
            true => ", and none of unisono's commands",
            false => "",
        };
        findings.problem(
            None,
            format!("the program {name} is not on PATH{command}{hint} ({skip})"),
        );
    }
}

/// The profiler's arguments, split: those for all ranks, its port, its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tracy {
    arguments: Vec<String>,
    port: Option<usize>,
    folder: PathBuf,
}

impl Tracy {
    /// From `--tracy "ARGS"`. `None`: something is wrong, and `findings` says what.
    pub(crate) fn parse(text: &str, findings: &mut Findings) -> Option<Tracy> {
        let words = match shell::split(text) {
            Ok(words) => words,
            Err(error) => {
                findings.problem(None, format!("--tracy: {error}"));
                return None;
            }
        };
        let mut tracy = Tracy {
            arguments: Vec::new(),
            port: None,
            folder: PathBuf::from(TRACY_FOLDER),
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_string())),
                _ => (word.as_str(), None),
            };
            let is_port = matches!(name, "-t" | "--port");
            if !is_port && !matches!(name, "-o" | "--output-folder") {
                tracy.arguments.push(word);
                continue;
            }
            let value = value
                .or_else(|| words.next())
                .filter(|value| !value.is_empty() && !value.starts_with("--"));
            let Some(value) = value else {
                findings.problem(None, format!("--tracy: {name} has no value"));
                return None;
            };
            if !is_port {
                tracy.folder = PathBuf::from(value);
                continue;
            }
            match value.parse::<u16>() {
                Ok(port @ 1..) => tracy.port = Some(port as usize),
                _ => {
                    findings.problem(None, format!("--tracy: {name} {value} is no port: 1 to 65535"));
                    return None;
                }
            }
        }
        Some(tracy)
    }

    /// The folder of a rank, absolute.
    pub(crate) fn folder(&self, rank: usize, caller: &Caller) -> PathBuf {
        caller.directory.join(&self.folder).join(format!("rank{rank}"))
    }

    fn wrap(&self, program: &[String], rank: usize, caller: &Caller) -> Vec<String> {
        let mut words: Vec<String> = ["python3", "-m", "tracy"].map(str::to_string).to_vec();
        words.extend(self.arguments.iter().cloned());
        words.extend(["-o".to_string(), self.folder(rank, caller).display().to_string()]);
        if let Some(port) = self.port {
            words.extend(["-t".to_string(), (port + rank).to_string()]);
        }
        words.extend(program.iter().cloned());
        words
    }
}

/// The words that a rank runs, as they may stand in the command line of MPI's launcher.
pub(crate) fn words(request: &Request, tracy: Option<&Tracy>, rank: usize, caller: &Caller) -> Vec<String> {
    let mut words = request.program.words.clone();
    if let Some(tracy) = tracy {
        words = tracy.wrap(&words, rank, caller);
    }
    if request.debug_gdbserver {
        let script = format!(
            "rank=${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}; port=$(({GDBSERVER_PORT} + rank)); \
             echo \"rank $rank on $(hostname): gdbserver at port $port\"; exec gdbserver \":$port\" \"$@\""
        );
        words = ["sh".to_string(), "-c".to_string(), script, "sh".to_string()]
            .into_iter()
            .chain(words)
            .collect();
    }
    if words
        .iter()
        .skip(1)
        .any(|word| TAKEN_BY_MPIRUN.contains(&word.as_str()))
    {
        // As one word of a shell's command these reach the program.
        let command = format!("exec {}", shell::joined(&words));
        words = vec!["sh".to_string(), "-c".to_string(), command];
    }
    words
}
