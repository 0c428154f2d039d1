//! MPI's launcher as a child process: started in a process group of its own, watched, stopped in order, always reaped.

use super::banners::{Banners, Cause};
use super::folder::Folder;
use super::keyboard::Keyboard;
use crate::exit::{self, Failure};
use crate::launched::TERMINAL;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::time::Timespec;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child as Process, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use unisono_launch::Job;
use unisono_runtime::machine::host_name;

pub use crate::signals::Stops;

/// Time between two looks at signals and the child's end.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// How long ranks may take to stop in order.
const ORDERLY: Duration = Duration::from_secs(30);
/// How long MPI's launcher may take to end its ranks.
const FORCED: Duration = Duration::from_secs(10);
/// How long standard error may stay open once the launcher has ended: a stray grandchild could hold it.
const DRAIN: Duration = Duration::from_millis(500);

/// Exit codes that stand for a signal; MPI's launchers have larger ones of their own.
const SIGNALS: std::ops::RangeInclusive<u8> = exit::SIGNAL + 1..=exit::SIGNAL + 64;

/// Most ranks of a host whose processes are looked at.
const MAX_LOOKED_AT: usize = 64;

/// How a job ended.
pub enum Ended {
    /// Every rank ended with 0.
    Well,
    /// After a signal to the launcher.
    Stopped(u8),
    /// Otherwise.
    Badly(End),
}

/// A bad end.
pub struct End {
    /// The exit code.
    pub code: u8,
    cause: Option<Cause>,
    /// The rank of this host that was seen to end first.
    gone: Option<usize>,
    /// The signal that ended MPI's launcher itself.
    launcher: Option<i32>,
}

/// Starts a job and waits for its end.
///
/// # Errors
/// A launcher that cannot be started.
pub fn run(job: &Job, ours: bool, folder: &Folder, stops: &Stops) -> Result<Ended, Failure> {
    let mut variables = folder.variables();
    if ours && !std::io::stdout().is_terminal() {
        // MPI's launcher gives the ranks a terminal even where there is none to see their colours.
        variables.push(("NO_COLOR".to_string(), "1".to_string()));
    }
    let words = job.command(&variables);
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(&job.directory)
        .stderr(Stdio::piped())
        // MPI's launcher ends the job where it cannot write; a reader that has gone is no reason for that.
        .stdout(Stdio::piped())
        // A terminal's Ctrl-C reaches this process only, which then stops the ranks in order.
        .process_group(0);
    let is_terminal = std::io::stdin().is_terminal();
    if is_terminal {
        command.stdin(Stdio::piped());
        // Without it the ranks do not prompt.
        let _ = std::fs::write(folder.file(TERMINAL), "");
    }
    for name in &job.unset {
        command.env_remove(name);
    }
    let mut process = command
        .spawn()
        .map_err(|error| Failure::running(format!("{} cannot be started: {error}", words[0])))?;
    let mut watch = Watch {
        keyboard: Keyboard::to(process.stdin.take()),
        process,
        ours,
        ranks: job.ranks.len(),
        folder,
        banners: Banners::default(),
        partial: Vec::new(),
        stop: None,
        gone: None,
    };
    let status = watch.wait(stops);
    if status.signal().is_some() {
        // Nobody else ends its ranks now.
        watch.kill_ranks();
    }
    Ok(match (watch.stop, code(status)) {
        (Some(stop), _) => Ended::Stopped(stop.signal),
        (None, exit::OK) => Ended::Well,
        (None, code) => Ended::Badly(End {
            code,
            cause: watch.banners.cause,
            gone: watch.gone,
            launcher: status.signal(),
        }),
    })
}

/// The exit code of a status, as shells count.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => exit::SIGNAL + signal.unwrap_or_default() as u8,
    }
}

/// How far a stop has come.
struct Stop {
    signal: u8,
    /// 0: asked in order; 1: SIGTERM; 2: SIGKILL.
    stage: u8,
    until: Instant,
}

struct Watch<'a> {
    process: Process,
    keyboard: Keyboard,
    ours: bool,
    ranks: usize,
    folder: &'a Folder,
    banners: Banners,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    stop: Option<Stop>,
    gone: Option<usize>,
}

impl Watch<'_> {
    /// Until the child has ended and been reaped.
    fn wait(&mut self, stops: &Stops) -> ExitStatus {
        let mut stderr = self.process.stderr.take();
        let mut stdout = self.process.stdout.take();
        let mut ended: Option<(ExitStatus, Instant)> = None;
        loop {
            if let Some(pipe) = &mut stderr {
                if !self.read(pipe) {
                    stderr = None;
                }
            } else if ended.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            if stdout.as_mut().is_some_and(|pipe| !pass_on(pipe)) {
                stdout = None;
            }
            self.keyboard.pass_on();
            if ended.is_none() {
                // An error here would mean that somebody else has reaped it.
                if let Ok(Some(status)) = self.process.try_wait() {
                    ended = Some((status, Instant::now()));
                }
            }
            if let Some((status, since)) = &ended {
                if (stderr.is_none() && stdout.is_none()) || since.elapsed() > DRAIN {
                    self.flush();
                    return *status;
                }
            } else {
                self.signals(stops.take());
                self.look_for_gone();
            }
        }
    }

    /// Reads what there is within a tick; false: no more will come.
    fn read(&mut self, pipe: &mut ChildStderr) -> bool {
        let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&TICK));
        if !ready.is_ok_and(|ready| ready > 0) {
            return true;
        }
        let mut bytes = [0; 8192];
        let Ok(len @ 1..) = pipe.read(&mut bytes) else {
            return false;
        };
        let bytes = &bytes[..len];
        if !self.ours {
            show(bytes);
        }
        self.partial.extend_from_slice(bytes);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.line(&line[..end]);
        }
        true
    }

    fn line(&mut self, line: &[u8]) {
        let lines = self.banners.line(&String::from_utf8_lossy(line));
        if self.ours {
            lines.iter().for_each(|line| show(format!("{line}\n").as_bytes()));
        }
    }

    fn flush(&mut self) {
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.line(&rest);
        }
        let lines = self.banners.end();
        if self.ours {
            lines.iter().for_each(|line| show(format!("{line}\n").as_bytes()));
        }
    }

    /// Takes the next step of a stop, where a signal has come or time is up.
    fn signals(&mut self, signal: Option<u8>) {
        let now = Instant::now();
        match (&mut self.stop, signal) {
            (None, Some(signal)) => {
                // unisono's ranks write a checkpoint first; what another program makes of SIGUSR1 nobody knows.
                let orderly = if self.ours { Signal::USR1 } else { Signal::INT };
                self.stop = Some(Stop {
                    signal,
                    stage: 0,
                    until: now + ORDERLY,
                });
                self.send(orderly);
            }
            (Some(stop), signal) if signal.is_some() || now > stop.until => {
                stop.stage += 1;
                stop.until = now + FORCED;
                match stop.stage {
                    1 => self.send(Signal::TERM),
                    _ => {
                        self.kill_ranks();
                        self.send(Signal::KILL);
                    }
                }
            }
            _ => {}
        }
    }

    fn send(&self, signal: Signal) {
        // It has not been reaped, so that the number is still its own.
        if let Some(pid) = Pid::from_raw(self.process.id() as i32) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Notes the first rank of this host whose process is no longer there: Open MPI does not always say which it was.
    fn look_for_gone(&mut self) {
        if !self.ours || self.gone.is_some() {
            return;
        }
        let here = host_name();
        let is_gone = |rank: &usize| {
            let word = self.folder.word(*rank).filter(|word| word.host == here && word.pid > 1);
            let pid = word.and_then(|word| Pid::from_raw(word.pid));
            pid.is_some_and(|pid| test_kill_process(pid).is_err())
        };
        self.gone = (0..self.ranks.min(MAX_LOOKED_AT)).find(is_gone);
    }

    /// Ends ranks of this host that MPI's launcher would leave behind.
    fn kill_ranks(&self) {
        let here = host_name();
        let words = (0..self.ranks).filter_map(|rank| self.folder.word(rank));
        for word in words.filter(|word| word.host == here && word.pid > 1) {
            if let Some(pid) = Pid::from_raw(word.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Passes on what there is of standard output; false: no more will come. Where nobody reads it any more it is lost.
fn pass_on(pipe: &mut ChildStdout) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&now));
        if !ready.is_ok_and(|ready| ready > 0) {
            return true;
        }
        let mut bytes = [0; 65_536];
        let Ok(len @ 1..) = pipe.read(&mut bytes) else {
            return false;
        };
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(&bytes[..len]).and_then(|()| stdout.flush());
    }
}

/// Writes to standard error; a reader that has gone is no reason to end the ranks.
fn show(bytes: &[u8]) {
    let _ = std::io::stderr().write_all(bytes);
}

impl End {
    /// Which rank ended how, in one sentence; `None` where a rank has said it.
    pub fn message(&self, job: &Job, folder: &Folder, ours: bool) -> Option<String> {
        if ours && folder.has_error() {
            return None;
        }
        let launcher = &job.mpirun.program;
        if let Some(signal) = self.launcher {
            return Some(format!(
                "{launcher} was ended by signal {signal}, and its ranks with it"
            ));
        }
        let host = |rank: usize| {
            let host = folder.word(rank).map(|word| word.host);
            let host = host.or_else(|| job.ranks.get(rank)?.host.clone());
            host.map(|host| format!(" on {host}")).unwrap_or_default()
        };
        let (rank, mut message) = match &self.cause {
            Some(Cause::Exit { rank, code }) => {
                (rank, format!("rank {rank}{} ended with exit code {code}", host(*rank)))
            }
            Some(Cause::Signal { rank, host, signal }) => {
                (rank, format!("rank {rank} on {host} was ended by signal {signal}"))
            }
            Some(Cause::Early { rank, host }) => (
                rank,
                format!("rank {rank} on {host} ended before the others, without a word to them"),
            ),
            None => {
                let how = match self.code {
                    code if SIGNALS.contains(&code) => format!("was ended by signal {}", code - exit::SIGNAL),
                    code => format!("ended with exit code {code}"),
                };
                match &self.gone {
                    Some(rank) => (rank, format!("rank {rank}{} {how}", host(*rank))),
                    None => {
                        return Some(match SIGNALS.contains(&self.code) {
                            true => format!("a rank {how}; {launcher} does not say which, and ended the others too"),
                            false => format!("{launcher} {how} and does not say which rank, if one, was the cause"),
                        });
                    }
                }
            }
        };
        let last = folder.word(*rank).map(|word| word.last).filter(|last| !last.is_empty());
        if let Some(last) = last {
            message += &format!("; the last that it did: {last}");
        }
        Some(format!("{message}; this ended the other ranks too"))
    }
}
