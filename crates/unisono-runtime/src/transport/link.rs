//! The processes of a run, joined: a transport that is shared, signs of life, and words for those who end.
//!
//! Rank 0 and every other process tell each other once a second that they live and what they do. One that says nothing for
//! [`Settings::silence`] is lost, and whoever looks for messages gets an error that names it. A process that fails says so to rank
//! 0, which speaks for all.

use super::control::{self, Control, Kind};
use super::error::TransportError;
use super::history::History;
use super::line::Line;
use super::watch::{Heard, LOOK, Shared, listened, lock};
use super::{Request, Transport, has_ended};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How a link is to be set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this host, for messages.
    pub host: String,
    /// How long a process that lives is waited for.
    pub timeout: Duration,
    /// How long a process may give no sign of life.
    pub silence: Duration,
    /// A file in which this process keeps what it last did, for whoever started it.
    pub status: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            host: "this host".to_string(),
            timeout: Duration::from_secs(120),
            silence: Duration::from_secs(10),
            status: None,
        }
    }
}

/// See the module. A clone is another handle on the same link.
#[derive(Clone)]
pub struct Link {
    pub(super) shared: Arc<Shared>,
    /// Ends the watcher with the last handle.
    _handle: Arc<Handle>,
}

struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.stop();
        lock(&self.0.line).leave();
    }
}

/// What a process does, in a form that costs little to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    /// The optimizer step or request.
    pub step: u64,
    /// Commands issued.
    pub commands: u64,
    /// The last command that met other processes.
    pub what: &'static str,
}

/// Words of a process that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub rank: usize,
    /// Where it runs.
    pub host: String,
    /// Its exit code.
    pub code: i32,
    /// What it has to say.
    pub text: String,
}

impl Link {
    /// Joins the processes of a transport.
    ///
    /// # Errors
    /// What the transport says, or no thread to be had.
    pub fn start(transport: Box<dyn Transport>, settings: Settings) -> Result<Link, TransportError> {
        let (rank, size) = (transport.rank(), transport.size());
        let unheard = Heard {
            at: Instant::now(),
            host: "a host not heard of yet".to_string(),
            step: 0,
            commands: 0,
            what: String::new(),
            failure: None,
        };
        let mut line = Line {
            transport,
            coming: Vec::new(),
            going: Vec::new(),
            asked: Vec::new(),
            quiet: false,
        };
        for peer in listened(rank, size) {
            line.listen(peer)?;
        }
        for peer in (0..size).filter(|peer| *peer != rank) {
            line.listen_for_questions(peer)?;
        }
        let shared = Arc::new(Shared {
            rank,
            size,
            name: line.transport.name(),
            settings,
            line: Mutex::new(line),
            doing: Mutex::new(Doing::default()),
            heard: Mutex::new(vec![unheard; size]),
            history: Mutex::new(History::default()),
            alarm: AtomicBool::new(false),
            over: Mutex::new(false),
            ends: Condvar::new(),
            watcher: Mutex::new(None),
        });
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("unisono link".to_string())
            .spawn(move || watched.watch())
            .map_err(|error| TransportError::Absent(format!("no thread to watch the other processes: {error}")))?;
        *lock(&shared.watcher) = Some(thread);
        Ok(Link {
            _handle: Arc::new(Handle(Arc::clone(&shared))),
            shared,
        })
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Processes of the run.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// What carries the messages, with its version.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The name of this host.
    pub fn host(&self) -> &str {
        &self.shared.settings.host
    }

    /// How long a process that lives is waited for.
    pub fn timeout(&self) -> Duration {
        self.shared.settings.timeout
    }

    /// Notes what this process does, for the others and for messages.
    pub fn note(&self, commands: u64, what: &'static str) {
        let mut doing = lock(&self.shared.doing);
        doing.commands = commands;
        doing.what = what;
    }

    /// Notes how far another process's program was when it sent what has come from it: the same program as this one's.
    pub(crate) fn note_of(&self, peer: usize, commands: u64, what: &str) {
        self.shared.note_of(peer, commands, what);
    }

    /// Notes the step that this process is at.
    pub fn note_step(&self, step: u64) {
        lock(&self.shared.doing).step = step;
        // Whoever finds this process dead finds the step at which it died.
        self.shared.keep_status();
    }

    /// What another process is and was last heard to do, in words. Only rank 0 hears of all.
    pub fn describe(&self, rank: usize) -> String {
        let heard = &lock(&self.shared.heard)[rank];
        if heard.what.is_empty() {
            return format!("rank {rank} on {}", heard.host);
        }
        format!(
            "rank {rank} on {} (last heard {:.1} s ago, at step {}, after {} commands, the last between processes {})",
            heard.host,
            heard.at.elapsed().as_secs_f64(),
            heard.step,
            heard.commands,
            heard.what
        )
    }

    /// The line, unless another thread has it.
    pub(crate) fn try_line(&self) -> Option<MutexGuard<'_, Line>> {
        match self.shared.line.try_lock() {
            Ok(line) => Some(line),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The line.
    pub(crate) fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.shared.line)
    }

    /// An error if another process is lost or has failed.
    ///
    /// # Errors
    /// [`TransportError::Lost`], [`TransportError::Failed`].
    pub fn check(&self) -> Result<(), TransportError> {
        match self.shared.alarm.load(Ordering::Acquire) {
            true => self.shared.alarm(),
            false => Ok(()),
        }
    }

    /// Brings together what every process gives, in the order of ranks; waits for all, at most for `patience`.
    ///
    /// # Errors
    /// A process that does not come, is lost or has failed.
    pub fn gather(&self, what: &'static str, own: &[u8], patience: Duration) -> Result<Vec<Vec<u8>>, TransportError> {
        lock(&self.shared.doing).what = what;
        let lengths = self.round(what, &(own.len() as u64).to_le_bytes(), &vec![8; self.size()], patience)?;
        let lengths: Vec<usize> = lengths
            .iter()
            .map(|bytes| <[u8; 8]>::try_from(&bytes[..]).map_or(0, |bytes| u64::from_le_bytes(bytes) as usize))
            .collect();
        self.round(what, own, &lengths, patience)
    }

    /// One round of [`Link::gather`], with messages of known lengths.
    fn round(
        &self,
        what: &'static str,
        own: &[u8],
        lengths: &[usize],
        patience: Duration,
    ) -> Result<Vec<Vec<u8>>, TransportError> {
        let mut all: Vec<Vec<u8>> = lengths.iter().map(|len| vec![0; *len]).collect();
        all[self.rank()] = own.to_vec();
        let missing = self.settle(
            patience,
            || self.check(),
            |open| {
                for peer in (0..self.size()).filter(|peer| *peer != self.rank()) {
                    let mut line = self.line();
                    let into = &mut all[peer];
                    // SAFETY: `own` and `all` live until `settle` returns, and nobody touches them before.
                    unsafe {
                        let transport = &mut line.transport;
                        open.push((peer, transport.send(peer, control::GATHER, own.as_ptr(), own.len())?));
                        open.push((
                            peer,
                            transport.receive(peer, control::GATHER, into.as_mut_ptr(), into.len())?,
                        ));
                    }
                }
                Ok(())
            },
        )?;
        match missing {
            None => Ok(all),
            Some(peer) => Err(TransportError::Waited {
                who: self.describe(peer),
                what: what.to_string(),
                seconds: patience.as_secs(),
            }),
        }
    }

    /// Waits until all requests that `post` begins are over, each with its peer, and as long as `check` allows; returns a peer that is
    /// still waited for after `patience`. However it ends, nothing is on its way any more: the memory of the requests need only
    /// live until then.
    pub(super) fn settle(
        &self,
        patience: Duration,
        check: impl Fn() -> Result<(), TransportError>,
        post: impl FnOnce(&mut Vec<(usize, Request)>) -> Result<(), TransportError>,
    ) -> Result<Option<usize>, TransportError> {
        let start = Instant::now();
        let mut open = Vec::new();
        let result = post(&mut open).and_then(|()| {
            let mut pause = Duration::from_micros(10);
            while let Some((peer, request)) = open.last().copied() {
                check()?;
                let mut asked = Some(request);
                let ended = has_ended(self.line().transport.as_mut(), &mut asked);
                if asked.is_none() {
                    open.pop();
                }
                if ended? {
                    continue;
                }
                if start.elapsed() > patience {
                    return Ok(Some(peer));
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
            }
            Ok(None)
        });
        for (_, request) in open {
            // The error to tell is the first.
            let _ = self.line().transport.cancel(request);
        }
        result
    }

    /// Tells rank 0 that this process fails, which then ends the run; rank 0 tells all others.
    pub fn tell_failure(&self, code: i32, text: &str) {
        let shared = &self.shared;
        let message = Control::new(Kind::Failure, code, &shared.settings.host, *lock(&shared.doing), text);
        let mut line = self.line();
        for peer in listened(shared.rank, shared.size) {
            // Who cannot be told is lost, or ends by itself.
            let _ = line.say(peer, &message);
        }
    }

    /// What other processes have said when they failed, after waiting a little for more of it.
    pub fn failures(&self, wait: Duration) -> Vec<Failure> {
        let start = Instant::now();
        loop {
            let told: Vec<Failure> = lock(&self.shared.heard)
                .iter()
                .filter_map(|heard| heard.failure.clone())
                .collect();
            if start.elapsed() >= wait || told.len() + 1 >= self.size() {
                return told;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Ends every process of the run with the exit code `code`.
    pub fn abort(&self, code: i32) -> ! {
        self.shared.stop();
        self.line().transport.abort(code)
    }

    /// Takes leave, once all processes do.
    ///
    /// # Errors
    /// As [`Link::check`], and what the transport says.
    pub fn finish(&self) -> Result<(), TransportError> {
        // Others may have something to do for as long as they like; they live meanwhile.
        self.gather("the end of the run", &[], Duration::MAX)?;
        // From here on nobody gives signs of life, and those on their way arrive before anyone stops listening: a message that nobody takes
        // would be left to the transport for ever.
        self.line().quiet = true;
        while !self.line().has_said_all() {
            self.check()?;
            self.shared.exchange_words(false)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.gather("the end of the run", &[], self.timeout())?;
        self.shared.stop();
        let mut line = self.line();
        line.leave();
        line.transport.finish()
    }
}
