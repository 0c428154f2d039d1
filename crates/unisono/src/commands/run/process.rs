//! MPI's launcher as a child process: started in a process group of its own, watched, stopped in order, always reaped.

use super::banners::Banners;
use super::end::End;
use super::folder::{Folder, lives};
use super::guard::Guard;
use super::keyboard::Keyboard;
use super::rank;
use crate::exit::{self, Failure};
use crate::launched::TERMINAL;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use rustix::time::Timespec;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child as Process, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use unisono_launch::{Flavour, Job};
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
/// How long MPI's launcher may take to end the other ranks once one has failed: MPICH's lets them go on, and Open MPI's, which ends them,
/// crashes where it is told to end meanwhile.
const FOLLOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];
/// How long MPI's launcher may live without any rank, at the start and at the end.
const DESERTED: Duration = Duration::from_secs(15);
/// Time between two looks at the processes of the host.
const LOOK: Duration = Duration::from_secs(1);
/// How long standard error may stay open once the launcher has ended: a stray grandchild could hold it.
const DRAIN: Duration = Duration::from_millis(500);

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

/// Starts a job and waits for its end.
///
/// # Errors
/// A launcher that cannot be started.
pub fn run(
    job: &Job,
    ours: bool,
    shows_all: bool,
    folder: &Folder,
    guard: &mut Guard,
    stops: &Stops,
) -> Result<Ended, Failure> {
    let mut variables = folder.variables();
    if ours && !std::io::stdout().is_terminal() {
        // MPI's launcher gives the ranks a terminal even where there is none to see their colours.
        variables.push(("NO_COLOR".to_string(), "1".to_string()));
    }
    let words = of_children(job).command(&variables);
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .envs(folder.of_launcher(job))
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
    guard.watch(process.id());
    let mut watch = Watch {
        keyboard: Keyboard::to(process.stdin.take()),
        process,
        ours,
        ranks: job.ranks.len(),
        folder,
        banners: Banners::new(shows_all),
        partial: Vec::new(),
        shown: 0,
        stop: None,
        gone: None,
        failing: None,
        is_mpich: job.mpirun.flavour == Flavour::Mpich,
        deserted: job.is_here.then(Instant::now),
        looked: Instant::now(),
        is_stuck: false,
        known: Vec::new(),
        has_error: false,
    };
    let status = watch.wait(stops);
    if status.signal().is_some() {
        // Nobody else ends its ranks now.
        folder.kill_ranks();
    }
    if watch.is_stuck {
        return Ok(Ended::Badly(End::of_stuck(folder, watch.has_error)));
    }
    Ok(match (watch.stop, code(status)) {
        (Some(stop), _) => Ended::Stopped(stop.signal),
        (None, exit::OK) => Ended::Well,
        (None, code) => {
            let told = ours && folder.has_error();
            Ended::Badly(End::of(
                job,
                code,
                status.signal(),
                &watch.banners,
                watch.gone,
                folder,
                told,
            ))
        }
    })
}

/// The same job, in which each rank leaves word how it ended.
fn of_children(job: &Job) -> Job {
    let mut job = job.clone();
    for rank in &mut job.ranks {
        rank.words = rank::words(&rank.words);
    }
    job
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
    /// Bytes of it that have been shown.
    shown: usize,
    stop: Option<Stop>,
    gone: Option<usize>,
    /// Where a rank has failed, until when the others are let go on, and how often MPI's launcher has been told to end them.
    failing: Option<(Instant, u8)>,
    /// Whether MPI's launcher is MPICH's.
    is_mpich: bool,
    /// Since when no rank is there, where all belong to this host; when that was looked at; and whether it was for too long.
    deserted: Option<Instant>,
    looked: Instant,
    is_stuck: bool,
    /// Processes of the ranks, when they were last searched for.
    known: Vec<Pid>,
    /// Whether a line that was shown is the error of a rank.
    has_error: bool,
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
                self.look_for_end();
            }
        }
    }

    /// Reads what there is within a tick; false: no more will come.
    fn read(&mut self, pipe: &mut ChildStderr) -> bool {
        let ready = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&TICK));
        if !ready.is_ok_and(|ready| ready > 0) {
            // A question, or a line of dots: its end may come much later. Banners come at once.
            let rest = &self.partial[self.shown..];
            if !self.ours && !self.partial.starts_with(b"-") && !rest.is_empty() {
                show(rest);
                self.shown = self.partial.len();
            }
            return true;
        }
        let mut bytes = [0; 8192];
        let Ok(len @ 1..) = pipe.read(&mut bytes) else {
            return false;
        };
        self.partial.extend_from_slice(&bytes[..len]);
        while let Some(end) = self.partial.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.partial.drain(..=end).collect();
            self.line(&line[..end]);
        }
        true
    }

    fn line(&mut self, line: &[u8]) {
        let shown = std::mem::take(&mut self.shown);
        if shown > 0 {
            show(&[&line[shown..], b"\n"].concat());
            return;
        }
        self.has_error |= line.starts_with(b"error: ");
        let lines = self.banners.line(&String::from_utf8_lossy(line));
        lines.iter().for_each(|line| show(format!("{line}\n").as_bytes()));
    }

    fn flush(&mut self) {
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.line(&rest);
        }
        let lines = self.banners.end();
        lines.iter().for_each(|line| show(format!("{line}\n").as_bytes()));
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
                        self.folder.kill_ranks();
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

    /// Ends the job where a rank has failed, or a host is out of reach, and MPI's launcher does not do it by itself.
    fn look_for_end(&mut self) {
        self.look_for_stuck();
        // MPICH's waits for ranks that never come.
        let is_unstarted = self.is_mpich && !self.banners.reasons.is_empty();
        if !self.is_stuck && !is_unstarted && self.folder.first_end().is_none() {
            return;
        }
        let now = Instant::now();
        let patience = match self.is_stuck {
            true => Duration::ZERO,
            false => FOLLOWS[usize::from(!self.is_mpich)],
        };
        let (until, told) = self.failing.unwrap_or((now + patience, 0));
        self.failing = Some(match now > until {
            false => (until, told),
            true => {
                self.send(if told == 0 { Signal::TERM } else { Signal::KILL });
                (now + FORCED, told + 1)
            }
        });
    }

    /// Notes where all ranks have been gone for long: Open MPI waits for ever for those that die before they have joined.
    fn look_for_stuck(&mut self) {
        if let Some(since) = self.deserted
            && self.looked.elapsed() > LOOK
        {
            self.looked = Instant::now();
            // As long as one of those that are known lives, the whole system need not be searched.
            if !self.known.iter().any(|rank| lives(*rank)) {
                self.known = self.folder.processes();
            }
            match self.known.is_empty() {
                false => self.deserted = Some(self.looked),
                true => self.is_stuck |= since.elapsed() > DESERTED,
            }
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
