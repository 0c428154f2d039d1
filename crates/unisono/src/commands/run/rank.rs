//! A rank of a program that is not unisono: the program runs as a child, and how it ended is left in the launcher's folder.
//!
//! MPI's launchers do not always say which rank ended a job, nor how: Open MPI loses its message often, MPICH has none.

use crate::exit;
use crate::launched::FOLDER;
use crate::signals;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use unisono_runtime::machine::host_name;

/// The first argument by which the program is that of a rank; then come the program and its arguments.
pub const NAME: &str = "--rank-of-run";
/// Other hosts have neither the launcher's folder nor, maybe, unisono: there the program runs as it is.
const SCRIPT: &str = "[ -d \"$UNISONO_RUN_DIR\" ] && [ -x \"$0\" ] && exec \"$0\" --rank-of-run \"$@\"; exec \"$@\"";
/// The file of the first bad end.
const FILE: &str = "first-end";
/// What a shell says of a program that cannot be started.
const NO_PROGRAM: u8 = 127;
/// Where the launchers of MPI write the number of a rank.
const NUMBERS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankEnd {
    /// The rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// Its exit code; 128 and the signal's number, where one ended it.
    pub code: u8,
    /// Whether a signal ended it.
    pub by_signal: bool,
    /// Why it could not be started, where that is so.
    pub unstarted: Option<String>,
}

/// The words by which a rank runs `words` as a child.
pub fn words(words: &[String]) -> Vec<String> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok());
    let Some(program) = program else {
        // Its end will be told as far as MPI's launcher tells it.
        return words.to_vec();
    };
    let before = ["/bin/sh".to_string(), "-c".to_string(), SCRIPT.to_string(), program];
    before.into_iter().chain(words.iter().cloned()).collect()
}

/// Runs the program, and ends as it does.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let [program, arguments @ ..] = arguments else {
        return exit::INPUT.into();
    };
    match child(Command::new(program).args(arguments)) {
        Ok(status) => leave(status),
        Err(error) => {
            let why = format!("{} cannot be started there: {error}", program.to_string_lossy());
            note("start", NO_PROGRAM, &why);
            NO_PROGRAM
        }
    }
    .into()
}

/// Until the program has ended.
fn child(command: &mut Command) -> std::io::Result<ExitStatus> {
    // MPI's launchers send signals to the whole process group, the program too, and this process ends after it.
    signals::outlast()?;
    command.spawn()?.wait()
}

/// Leaves word of an end that is bad; gives the exit code.
fn leave(status: ExitStatus) -> u8 {
    let (code, how) = match (status.code(), status.signal()) {
        (Some(code), _) => (code as u8, "exit"),
        (None, signal) => (exit::SIGNAL + signal.unwrap_or_default() as u8, "signal"),
    };
    if code != exit::OK {
        note(how, code, "");
    }
    code
}

/// Leaves word of a bad end, unless another rank was first.
fn note(how: &str, code: u8, why: &str) {
    let rank = NUMBERS.iter().find_map(|name| std::env::var(name).ok());
    if let (Some(rank), Some(folder)) = (rank, std::env::var_os(FOLDER)) {
        let folder = Path::new(&folder);
        let own = folder.join(format!("{FILE}-{rank}"));
        let text = format!("{rank} {how} {code} {}\n{why}", host_name());
        // The name goes to the first, and never to half a text. What cannot be written is not known then.
        let _ = std::fs::write(&own, text).and_then(|()| std::fs::hard_link(&own, folder.join(FILE)));
    }
}

/// The first bad end that ranks of this host have left word of in a launcher's folder.
pub fn read(folder: &Path) -> Option<RankEnd> {
    let text = std::fs::read_to_string(folder.join(FILE)).ok()?;
    let (first, why) = text.split_once('\n')?;
    let mut words = first.split_whitespace();
    let rank = words.next()?.parse().ok()?;
    let how = words.next()?;
    Some(RankEnd {
        rank,
        by_signal: how == "signal",
        unstarted: (how == "start").then(|| why.to_string()),
        code: words.next()?.parse().ok()?,
        host: words.next()?.to_string(),
    })
}
