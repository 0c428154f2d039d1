//! A rank of a program that is not unisono: the program runs as a child, and how it ended is left in the launcher's folder.
//!
//! MPI's launchers do not always say which rank ended a job, nor how: Open MPI loses its message often, MPICH has none.

use crate::exit;
use crate::launched::FOLDER;
use crate::signals;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::net::UnixStream;
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
    // What ends the job reaches all of the process group, the program too, and this process ends after it.
    signals::outlast()?;
    let of = |signal: i32| -> std::io::Result<UnixStream> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal, write)?;
        Ok(read)
    };
    let mut ends = of(SIGCHLD)?;
    // What a user sends to all ranks through MPI's launcher reaches this process only.
    let mut passed = [(Signal::USR1, of(SIGUSR1)?), (Signal::USR2, of(SIGUSR2)?)];
    let mut child = command.spawn()?;
    let mut bytes = [0; 64];
    loop {
        // An error: a signal came meanwhile, and is in its pipe.
        let _ = poll(
            &mut [
                PollFd::new(&ends, PollFlags::IN),
                PollFd::new(&passed[0].1, PollFlags::IN),
                PollFd::new(&passed[1].1, PollFlags::IN),
            ],
            None,
        );
        for (signal, pipe) in &mut passed {
            if pipe.read(&mut bytes).is_ok_and(|len| len > 0)
                && let Some(pid) = Pid::from_raw(child.id() as i32)
            {
                // It has not been reaped, so that the number is still its own.
                let _ = kill_process(pid, *signal);
            }
        }
        // How often it ended is not counted: the pipe is only emptied.
        let _ = ends.read(&mut bytes);
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
    }
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
