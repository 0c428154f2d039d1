//! Messages between threads of one process, for tests: the guarantees of an engine without one.

use super::{Request, Transport, TransportError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What lies between all of them: for each sender, receiver and tag the messages that nobody has received, oldest first.
type Mail = BTreeMap<(usize, usize, u32), VecDeque<Vec<u8>>>;

/// One process of a world in memory. Each may live on a thread of its own.
///
/// A message is copied when it is sent, so a send is over at once; it stays on its way also where the send is given up.
#[derive(Debug)]
pub struct Memory {
    rank: usize,
    size: usize,
    mail: Arc<Mutex<Mail>>,
    /// By the number of the request; a free place is `None`.
    requests: Vec<Option<State>>,
    /// For each peer and tag the receives that wait, in the order in which they were begun.
    waiting: BTreeMap<(usize, u32), VecDeque<usize>>,
    finished: bool,
}

#[derive(Debug)]
enum State {
    Receiving {
        peer: usize,
        tag: u32,
        to: Target,
        len: usize,
    },
    Over(Result<(), TransportError>),
}

/// Where a message goes.
#[derive(Debug)]
struct Target(*mut u8);

// SAFETY: who began the receive has promised that nobody else touches the bytes until it is over.
unsafe impl Send for Target {}

impl Memory {
    /// A world of `size` processes, in the order of their ranks.
    pub fn world(size: usize) -> Vec<Self> {
        let mail = Arc::new(Mutex::new(Mail::new()));
        (0..size)
            .map(|rank| Self {
                rank,
                size,
                mail: Arc::clone(&mail),
                requests: Vec::new(),
                waiting: BTreeMap::new(),
                finished: false,
            })
            .collect()
    }

    /// The mail; a process that has panicked leaves it whole, since each change to it is one call.
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, call: &str, peer: usize, tag: u32) -> Result<(), TransportError> {
        let reason = if self.finished {
            "this process has taken leave".to_string()
        } else if peer >= self.size {
            format!("there are {} processes, numbered from 0", self.size)
        } else if tag > super::MAX_TAG {
            format!("the largest tag is {}", super::MAX_TAG)
        } else {
            return Ok(());
        };
        Err(TransportError::Call {
            engine: self.name(),
            call: format!("{call} with rank {peer} and tag {tag}"),
            reason,
        })
    }

    fn add(&mut self, state: State) -> usize {
        if let Some(free) = self.requests.iter().position(Option::is_none) {
            self.requests[free] = Some(state);
            return free;
        }
        self.requests.push(Some(state));
        self.requests.len() - 1
    }

    /// Gives messages that have come to the receives that wait for them.
    fn deliver(&mut self, peer: usize, tag: u32) {
        let mail = Arc::clone(&self.mail);
        let mut mail = mail.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(come) = mail.get_mut(&(peer, self.rank, tag)) else {
            return;
        };
        let Some(waiting) = self.waiting.get_mut(&(peer, tag)) else {
            return;
        };
        while !come.is_empty() {
            let Some(index) = waiting.pop_front() else {
                return;
            };
            let Some(State::Receiving { to, len, .. }) = &self.requests[index] else {
                panic!("bug in unisono: request {index} waits and is no receive");
            };
            let bytes = come.pop_front().expect("it is not empty");
            let result = if bytes.len() == *len {
                // SAFETY: `Transport::receive` was promised `len` bytes that nobody else touches until the request is over.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0, bytes.len()) };
                Ok(())
            } else {
                Err(TransportError::Length {
                    peer,
                    given: bytes.len(),
                    expected: *len,
                })
            };
            self.requests[index] = Some(State::Over(result));
        }
    }
}

impl Transport for Memory {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn name(&self) -> String {
        "memory".into()
    }

    unsafe fn send(&mut self, peer: usize, tag: u32, bytes: *const u8, len: usize) -> Result<Request, TransportError> {
        self.check("a send", peer, tag)?;
        let mut copy = vec![0; len];
        // SAFETY: the caller promises `len` bytes at `bytes`; the copy has as many.
        unsafe { std::ptr::copy_nonoverlapping(bytes, copy.as_mut_ptr(), len) };
        let place = (self.rank, peer, tag);
        self.mail().entry(place).or_default().push_back(copy);
        Ok(Request(self.add(State::Over(Ok(())))))
    }

    unsafe fn receive(&mut self, peer: usize, tag: u32, bytes: *mut u8, len: usize) -> Result<Request, TransportError> {
        self.check("a receive", peer, tag)?;
        let to = Target(bytes);
        let index = self.add(State::Receiving { peer, tag, to, len });
        self.waiting.entry((peer, tag)).or_default().push_back(index);
        Ok(Request(index))
    }

    fn test(&mut self, request: Request) -> Result<bool, TransportError> {
        if let Some(Some(State::Receiving { peer, tag, .. })) = self.requests.get(request.0) {
            let (peer, tag) = (*peer, *tag);
            self.deliver(peer, tag);
        }
        let place = self.requests.get_mut(request.0).filter(|place| place.is_some());
        let place = place.unwrap_or_else(|| panic!("bug in unisono: {request:?} is not on its way"));
        match place.take() {
            Some(State::Over(result)) => result.map(|()| true),
            waits => {
                *place = waits;
                Ok(false)
            }
        }
    }

    fn cancel(&mut self, request: Request) -> Result<(), TransportError> {
        let place = self.requests.get_mut(request.0).and_then(Option::take);
        match place.unwrap_or_else(|| panic!("bug in unisono: {request:?} is not on its way")) {
            State::Over(_) => {}
            State::Receiving { peer, tag, .. } => {
                let waiting = self.waiting.entry((peer, tag)).or_default();
                waiting.retain(|index| *index != request.0);
            }
        }
        Ok(())
    }

    /// # Panics
    /// Always: a thread cannot end the others.
    fn abort(&mut self, code: i32) -> ! {
        panic!("rank {} ends the run with exit code {code}", self.rank);
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        self.finished = true;
        Ok(())
    }
}
