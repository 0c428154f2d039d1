//! The way to other processes: messages that are on their way, and who looks after them.
//!
//! Nothing waits here. A worker that comes to an exchange hands its messages over and goes on; whoever has nothing to do, and workers
//! between tiles, ask the transport whether they have come. The transport is used by one thread at a time; a second one that wants
//! it does something else.
//!
//! Two processes number the exchanges of each queue between them; the number is the messages' tag. A first message of each exchange says
//! at which place of which program its sender is, so that programs that differ are found where they meet.

use super::state::Job;
use crate::error::RuntimeError;
use crate::exchange::{Exchange, Mark};
use crate::place::Arena;
use crate::transport::control::PROGRAM;
use crate::transport::{Link, Request, Transport, TransportError, has_ended};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// See the module.
pub(super) struct Wire {
    /// Exchanges that have begun and not ended.
    flights: AtomicUsize,
    /// Exchanges that a worker has come to and nobody has handed to the transport yet.
    waiting: Mutex<Vec<Flight>>,
    air: Mutex<Air>,
    link: Link,
}

/// What one thread at a time holds, with the link's line.
struct Air {
    flights: Vec<Flight>,
    /// Exchanges so far, by queue and peer.
    counts: [Vec<u32>; 2],
    /// What exchanges that are over tell of their senders: who, how many commands, and what for.
    heard: Vec<(usize, u64, &'static str)>,
}

/// An exchange that is over.
pub(super) struct Landed {
    /// The entry to end.
    pub(super) job: Job,
    pub(super) outcome: Result<(), RuntimeError>,
}

/// An exchange on its way.
struct Flight {
    job: Job,
    what: &'static str,
    mark: Mark,
    messages: Vec<Moving>,
    /// One for each peer that sends something, and one for each that is sent something.
    marks: Vec<Marked>,
    begun: Instant,
}

/// One message: memory of a device's arena.
struct Moving {
    peer: usize,
    sends: bool,
    base: *mut u8,
    len: usize,
    request: Option<Request>,
}

/// A peer's place in the program, on its way.
struct Marked {
    peer: usize,
    sends: bool,
    /// Boxed, since the transport has its address.
    words: Box<[u64; 2]>,
    request: Option<Request>,
}

// SAFETY: the pointers name memory of arenas, which outlive the workers; the entry that a flight belongs to has not ended, so nobody
// else uses what they name, whichever thread hands it to the transport.
unsafe impl Send for Flight {}

/// How many exchanges of a queue may have a tag of their own at a time.
const TAGS: u32 = 8_192;

impl Wire {
    pub(super) fn new(link: Link) -> Wire {
        let counts = || vec![0; link.size()];
        Wire {
            flights: AtomicUsize::new(0),
            waiting: Mutex::new(Vec::new()),
            air: Mutex::new(Air {
                counts: [counts(), counts()],
                flights: Vec::new(),
                heard: Vec::new(),
            }),
            link,
        }
    }

    /// Whether something is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.flights.load(Ordering::Relaxed) > 0
    }

    /// Begins an exchange; `job` stays open until its messages are over.
    pub(super) fn begin(&self, job: Job, exchange: &Exchange, arenas: &[Arena]) {
        let messages: Vec<Moving> = exchange
            .messages
            .iter()
            .map(|message| {
                let (buffer, arena) = (message.buffer, arenas[message.device]);
                let size = buffer.dtype.bytes();
                assert!(
                    buffer.offset + buffer.len <= 4 / size * arena.len,
                    "bug in unisono: {message:?} lies outside the arena"
                );
                Moving {
                    peer: message.peer,
                    sends: message.sends,
                    // SAFETY: inside the arena, as just checked.
                    base: unsafe { arena.base.cast::<u8>().add(size * buffer.offset) },
                    len: size * buffer.len,
                    request: None,
                }
            })
            .collect();
        let mut marks: Vec<Marked> = Vec::new();
        for message in &messages {
            if !marks
                .iter()
                .any(|known| (known.peer, known.sends) == (message.peer, message.sends))
            {
                marks.push(Marked {
                    peer: message.peer,
                    sends: message.sends,
                    words: Box::new([exchange.mark.commands, exchange.mark.hash]),
                    request: None,
                });
            }
        }
        let flight = Flight {
            job,
            what: exchange.what,
            mark: exchange.mark,
            messages,
            marks,
            begun: Instant::now(),
        };
        self.link.note(exchange.mark.commands, exchange.what);
        // Before anyone can end it.
        self.flights.fetch_add(1, Ordering::SeqCst);
        lock(&self.waiting).push(flight);
    }

    /// Looks after the messages, unless another thread does. Returns an entry whose exchange is over.
    pub(super) fn look(&self) -> Option<Landed> {
        let mut air = match self.air.try_lock() {
            Ok(air) => air,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let mut line = self.link.try_line()?;
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        let mut landed = air.look(line.transport.as_mut(), waiting);
        drop(line);
        for (peer, commands, what) in air.heard.drain(..) {
            self.link.note_of(peer, commands, what);
        }
        if landed.is_none()
            && let Some(error) = self.complaint(&air)
            && let Some(flight) = air.flights.pop()
        {
            air.cancel(self.link.line().transport.as_mut(), &flight);
            landed = Some(Landed {
                job: flight.job,
                outcome: Err(error),
            });
        }
        if landed.is_some() {
            self.flights.fetch_sub(1, Ordering::SeqCst);
        }
        landed
    }

    /// Gives up everything that is on its way; returns an entry to end, until there is none.
    pub(super) fn give_up(&self) -> Option<Job> {
        let mut air = lock(&self.air);
        air.flights.append(&mut lock(&self.waiting));
        let flight = air.flights.pop()?;
        air.cancel(self.link.line().transport.as_mut(), &flight);
        self.flights.fetch_sub(1, Ordering::SeqCst);
        Some(flight.job)
    }

    /// Why it makes no sense to wait on, if it does not.
    fn complaint(&self, air: &Air) -> Option<RuntimeError> {
        if let Err(error) = self.link.check() {
            return Some(error.into());
        }
        let late = |flight: &&Flight| flight.begun.elapsed() > self.link.timeout();
        let flight = air.flights.iter().find(late)?;
        let mut missing: Vec<usize> = flight.missing().collect();
        missing.dedup();
        let who: Vec<String> = missing.into_iter().map(|peer| self.link.describe(peer)).collect();
        let waited = TransportError::Waited {
            who: who.join(" and "),
            what: format!("{} (after {} commands)", flight.what, flight.mark.commands),
            seconds: flight.begun.elapsed().as_secs(),
        };
        Some(waited.into())
    }
}

impl Flight {
    /// Peers that a message is still to come from or to go to.
    fn missing(&self) -> impl Iterator<Item = usize> {
        let open = self.messages.iter().filter(|message| message.request.is_some());
        open.map(|message| message.peer)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Air {
    fn look(&mut self, transport: &mut dyn Transport, waiting: Vec<Flight>) -> Option<Landed> {
        for mut flight in waiting {
            let posted = self.post(transport, &mut flight);
            if let Err(error) = posted {
                self.cancel(transport, &flight);
                return Some(Landed {
                    job: flight.job,
                    outcome: Err(error.into()),
                });
            }
            self.flights.push(flight);
        }
        for index in 0..self.flights.len() {
            let outcome = match is_over(transport, &mut self.flights[index]) {
                Ok(false) => continue,
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            };
            let flight = self.flights.swap_remove(index);
            match &outcome {
                Ok(()) => {
                    let senders = flight.marks.iter().filter(|mark| !mark.sends);
                    let told = senders.map(|mark| (mark.peer, flight.mark.commands, flight.what));
                    self.heard.extend(told);
                }
                Err(_) => self.cancel(transport, &flight),
            }
            return Some(Landed {
                job: flight.job,
                outcome,
            });
        }
        None
    }

    /// Hands the messages of an exchange to the transport.
    fn post(&mut self, transport: &mut dyn Transport, flight: &mut Flight) -> Result<(), TransportError> {
        let counts = &mut self.counts[flight.job.queue];
        let queue = flight.job.queue as u32;
        let mut seen: Vec<(usize, u32)> = Vec::new();
        let mut tag = |peer: usize| -> u32 {
            if let Some((_, tag)) = seen.iter().find(|(known, _)| *known == peer) {
                return *tag;
            }
            let tag = PROGRAM + 2 * (counts[peer] % TAGS) + queue;
            counts[peer] = counts[peer].wrapping_add(1);
            seen.push((peer, tag));
            tag
        };
        for mark in &mut flight.marks {
            let (tag, len) = (tag(mark.peer), size_of::<[u64; 2]>());
            let words = mark.words.as_mut_ptr().cast::<u8>();
            // SAFETY: the words live in a box of the flight, which is kept until the request is over or cancelled, and nobody else
            // touches them.
            mark.request = Some(unsafe {
                match mark.sends {
                    true => transport.send(mark.peer, tag, words, len)?,
                    false => transport.receive(mark.peer, tag, words, len)?,
                }
            });
        }
        for message in &mut flight.messages {
            let tag = tag(message.peer);
            // SAFETY: the memory lies in an arena, which outlives the workers; the entry has declared it, and has not ended until
            // the request is over or cancelled.
            message.request = Some(unsafe {
                match message.sends {
                    true => transport.send(message.peer, tag, message.base, message.len)?,
                    false => transport.receive(message.peer, tag, message.base, message.len)?,
                }
            });
        }
        Ok(())
    }

    fn cancel(&self, transport: &mut dyn Transport, flight: &Flight) {
        let marks = flight.marks.iter().filter_map(|mark| mark.request);
        let messages = flight.messages.iter().filter_map(|message| message.request);
        for request in marks.chain(messages) {
            // The run ends with an error that has been told.
            let _ = transport.cancel(request);
        }
    }
}

/// Whether all messages of an exchange have come and gone.
fn is_over(transport: &mut dyn Transport, flight: &mut Flight) -> Result<bool, RuntimeError> {
    let mut over = true;
    for mark in &mut flight.marks {
        if mark.request.is_none() {
            continue;
        }
        if !has_ended(transport, &mut mark.request)? {
            over = false;
            continue;
        }
        let [commands, hash] = *mark.words;
        if (commands, hash) != (flight.mark.commands, flight.mark.hash) {
            return Err(RuntimeError::Diverged {
                peer: mark.peer,
                what: flight.what.to_string(),
                here: flight.mark.commands,
                there: commands,
            });
        }
    }
    for message in &mut flight.messages {
        // A message of another length is told only where the programs are the same: the mark comes first.
        let unmarked = |mark: &Marked| !mark.sends && mark.peer == message.peer && mark.request.is_some();
        if !message.sends && flight.marks.iter().any(unmarked) {
            over = false;
            continue;
        }
        over &= has_ended(transport, &mut message.request)?;
    }
    Ok(over)
}
