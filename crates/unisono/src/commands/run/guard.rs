//! A second process beside the launcher: where the launcher is killed and can end nothing any more, it ends the job.
//!
//! It reads what the launcher tells it: the number of MPI's launcher, then that all is over. An end without that word is the launcher's own.

use super::folder::{Folder, lives};
use super::restart;
use crate::exit::{self, Failure};
use crate::output::{Level, Out};
use crate::runs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::Timespec;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child as Process, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use unisono_train::config::Environment;

/// The first argument by which the program is the guard; then come the launcher's number, its folder and that in shared memory, if there
/// is one.
pub const NAME: &str = "--guard-of-run";
/// What the launcher says last.
const OVER: &str = "over";
/// How long MPI's launcher may take to end its ranks.
const ORDERLY: Duration = Duration::from_secs(5);
/// How long processes that were killed may take to be gone.
const FORCED: Duration = Duration::from_secs(2);

/// The guard as the launcher sees it; without one (a system that has no room for it) the job runs as well.
pub struct Guard(Option<Process>);

impl Guard {
    /// Starts it, before there is anything to guard.
    pub fn start(folder: &Folder) -> Guard {
        let process = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .args([NAME, &std::process::id().to_string()])
                .arg(&folder.path)
                .args(&folder.memory)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                // It holds no folder of the user's, and what ends the launcher's group is not to end it.
                .current_dir("/")
                .process_group(0)
                .spawn()
        });
        Guard(process.ok())
    }

    /// Tells it which process MPI's launcher is.
    pub fn watch(&mut self, mpirun: u32) {
        self.say(&mpirun.to_string());
    }

    fn say(&mut self, line: &str) {
        if let Some(pipe) = self.0.as_mut().and_then(|process| process.stdin.as_mut()) {
            // One that has been killed is missed by nobody yet.
            let _ = writeln!(pipe, "{line}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.say(OVER);
        if let Some(mut process) = self.0.take() {
            // It ends at once, by that word or by the end of the pipe, which `wait` closes.
            let _ = process.wait();
        }
    }
}

/// The guard's whole life.
pub fn stand(arguments: &[OsString]) -> ExitCode {
    let [launcher, path, memory @ ..] = arguments else {
        return exit::INPUT.into();
    };
    let mut mpirun = None;
    for line in std::io::stdin().lines() {
        match line.as_deref() {
            Ok(OVER) => return exit::OK.into(),
            Ok(number) => mpirun = number.parse().ok().and_then(Pid::from_raw),
            Err(_) => break,
        }
    }
    // Both folders go with this.
    let folder = Folder {
        path: PathBuf::from(path),
        memory: memory.first().map(PathBuf::from),
    };
    if let Some(mpirun) = mpirun {
        end(mpirun, &folder);
        let environment = Environment::of_process();
        let run = restart::run(&folder).filter(|run| runs::checkpoints(run, &environment).newest().is_ok());
        let run = run.map(|run| {
            let run = run.display();
            format!("; the run in {run} goes on from its last checkpoint with --resume")
        });
        let message = format!(
            "the launcher (process {}) was killed, and all its ranks were ended for that{}",
            launcher.to_string_lossy(),
            run.unwrap_or_default()
        );
        let out = Out::new(Level::Error, false, false, true);
        out.error(&Failure::running(message));
    }
    exit::FAILED.into()
}

/// Takes what there is in a pipe.
fn empty(pipe: &mut File) {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut bytes = [0; 65_536];
    while poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0) {
        if !pipe.read(&mut bytes).is_ok_and(|len| len > 0) {
            return;
        }
    }
}

/// Ends the job: on all hosts through MPI's launcher, and what is left on this one.
fn end(mpirun: Pid, folder: &Folder) {
    // Nobody reads any more what it and the ranks say, and a write that fails makes Open MPI crash before it has tidied up.
    let open = |fd: u32| File::open(format!("/proc/{}/fd/{fd}", mpirun.as_raw_nonzero())).ok();
    let mut pipes: Vec<File> = [1, 2].into_iter().filter_map(open).collect();
    let mut is_gone = |within: Duration| {
        let start = Instant::now();
        while lives(mpirun) {
            pipes.iter_mut().for_each(empty);
            if start.elapsed() > within {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    };
    // An error means that it has ended.
    let _ = kill_process(mpirun, Signal::TERM);
    if !is_gone(ORDERLY) {
        let _ = kill_process(mpirun, Signal::KILL);
        is_gone(FORCED);
    }
    folder.kill_ranks();
}
