//! The watch over the other processes: signs of life go out, those of others are heard, and whoever is silent for too long is lost.

use super::control::{Control, Kind};
use super::error::TransportError;
use super::history::History;
use super::line::Line;
use super::link::{Doing, Failure, Settings};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the watcher looks.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// How often a process says that it lives.
const BEAT: Duration = Duration::from_secs(1);
/// Bytes of what is noted down, at least: more than one is longer than another.
const STATUS: usize = 512;
/// A watcher that has not looked for this long was stopped itself, or had no core.
const HELD_UP: Duration = Duration::from_secs(2);

/// What all handles on a link share.
pub(super) struct Shared {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) name: String,
    pub(super) settings: Settings,
    /// The transport and what control messages are on their way: for one thread at a time.
    pub(super) line: Mutex<Line>,
    /// What this process does.
    pub(super) doing: Mutex<Doing>,
    /// What was heard of the others.
    pub(super) heard: Mutex<Vec<Heard>>,
    /// The last commands of this process's program.
    pub(super) history: Mutex<History>,
    /// Whether somebody is lost or has failed.
    pub(super) alarm: AtomicBool,
    pub(super) over: Mutex<bool>,
    pub(super) ends: Condvar,
    pub(super) watcher: Mutex<Option<JoinHandle<()>>>,
}

/// What is known of another process.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) at: Instant,
    pub(super) host: String,
    pub(super) step: u64,
    pub(super) commands: u64,
    pub(super) what: String,
    pub(super) failure: Option<Failure>,
}

impl Shared {
    /// The watcher's life.
    pub(super) fn watch(&self) {
        let mut said: Option<Instant> = None;
        let mut looked = Instant::now();
        let mut over = lock(&self.over);
        while !*over {
            drop(over);
            let gap = looked.elapsed();
            looked = Instant::now();
            if gap > HELD_UP {
                // It could hear nobody: that the others are silent is not known yet.
                lock(&self.heard).iter_mut().for_each(|heard| heard.at += gap);
            }
            let beats = said.is_none_or(|at| at.elapsed() >= BEAT);
            if beats {
                said = Some(Instant::now());
                self.keep_status();
            }
            if self.exchange_words(beats).is_err() || self.lost().is_some() {
                self.alarm.store(true, Ordering::Release);
            }
            over = lock(&self.over);
            if !*over {
                over = match self.ends.wait_timeout(over, LOOK) {
                    Ok((over, _)) => over,
                    Err(poisoned) => poisoned.into_inner().0,
                };
            }
        }
    }

    /// Says that this process lives, if `beats`, and hears the others.
    pub(super) fn exchange_words(&self, beats: bool) -> Result<(), TransportError> {
        let doing = *lock(&self.doing);
        let mut line = lock(&self.line);
        if beats && !line.quiet {
            let message = Control::new(Kind::Beat, 0, &self.settings.host, doing, "");
            for peer in listened(self.rank, self.size) {
                line.say(peer, &message)?;
            }
        }
        self.answer(&mut line)?;
        line.hear(|peer, message| {
            let mut heard = lock(&self.heard);
            let heard = &mut heard[peer];
            heard.at = Instant::now();
            heard.host = message.host();
            let (step, commands) = message.doing();
            // The program's own messages may have told more by now.
            if commands >= heard.commands {
                (heard.step, heard.commands, heard.what) = (step, commands, message.what());
            }
            if message.kind() == Kind::Failure {
                heard.failure = Some(Failure {
                    rank: peer,
                    host: message.host(),
                    code: message.code(),
                    text: message.text(),
                });
                self.alarm.store(true, Ordering::Release);
            }
        })
    }

    /// Notes how far a peer's program was when it sent what has come from it.
    pub(super) fn note_of(&self, peer: usize, commands: u64, what: &str) {
        let step = lock(&self.history).step_of(commands);
        let mut heard = lock(&self.heard);
        let heard = &mut heard[peer];
        if commands >= heard.commands {
            (heard.step, heard.commands) = (step.unwrap_or(heard.step), commands);
            heard.what.clear();
            heard.what.push_str(what);
        }
    }

    /// The first peer that has been silent for too long.
    fn lost(&self) -> Option<usize> {
        let heard = lock(&self.heard);
        listened(self.rank, self.size).find(|peer| heard[*peer].at.elapsed() > self.settings.silence)
    }

    pub(super) fn alarm(&self) -> Result<(), TransportError> {
        let failed = lock(&self.heard).iter().find_map(|heard| heard.failure.clone());
        if let Some(failure) = failed {
            return Err(TransportError::Failed {
                rank: failure.rank,
                host: failure.host,
                code: failure.code,
                text: failure.text,
            });
        }
        let Some(peer) = self.lost() else {
            // It was late, and has been heard of again.
            self.alarm.store(false, Ordering::Release);
            return Ok(());
        };
        let heard = &lock(&self.heard)[peer];
        Err(TransportError::Lost {
            rank: peer,
            host: heard.host.clone(),
            seconds: heard.at.elapsed().as_secs(),
            step: heard.step,
            what: heard.what.clone(),
        })
    }

    /// Notes down what this process does, where somebody asked for it.
    pub(super) fn keep_status(&self) {
        let Some(path) = &self.settings.status else { return };
        let doing = *lock(&self.doing);
        let text = format!(
            "{} {}\nstep {}, {} commands, the last between processes {}\n",
            self.settings.host,
            std::process::id(),
            doing.step,
            doing.commands,
            doing.what
        );
        // In one piece over what is there, so that a reader finds a whole one also where this process is killed meanwhile. It is for
        // people: where it cannot be written they miss it.
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{text:<STATUS$}").as_bytes()));
    }

    pub(super) fn stop(&self) {
        *lock(&self.over) = true;
        self.ends.notify_all();
        if let Some(thread) = lock(&self.watcher).take()
            && thread.thread().id() != std::thread::current().id()
        {
            // It ends by returning.
            let _ = thread.join();
        }
    }
}

/// The peers that a process exchanges signs of life with: rank 0 with all.
pub(super) fn listened(rank: usize, size: usize) -> std::ops::Range<usize> {
    match rank {
        0 => 1..size,
        _ => 0..1,
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
