//! Messages through the functions of an MPI library.
//!
//! A receive asks whether its message has come (`MPI_Improbe`), looks at the length, and only then gives MPI the bytes to write to. A
//! receive begun beforehand would let MPI judge the length, and the judgement cannot be relied on: Open MPI 4.1.4 writes a message that it
//! copies out of the sender's memory behind the end of a receiver's shorter buffer, and takes the first bytes of a longer message to itself
//! for the whole (`messages.rs` of the tests tries both). So a program that has diverged ends in words. It costs little: large messages are
//! fetched when they are asked for in any case.

use super::functions::{Functions, Status, THREAD_SERIALIZED};
use crate::transport::{MAX_TAG, Request, Transport, TransportError};
use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Bytes of a piece. MPI counts in C's `int`, so a longer message goes in pieces, one after the other with the same tag. Only the last is
/// shorter than a piece, if need be empty; so the receiver sees where a message ends, and messages of different lengths are never mixed.
const PIECE: usize = 1 << 30;

/// Tests until a request that is given up is over; what has not ended by then depends on another process.
const TESTS_TO_CANCEL: usize = 1000;

/// An initialised MPI library.
#[derive(Debug)]
pub struct Engine<H> {
    functions: Functions<H>,
    name: String,
    rank: usize,
    size: usize,
    /// By the number of the request.
    slots: Vec<Slot<H>>,
    /// Slots without a request.
    free: Vec<usize>,
    queues: Vec<Queue>,
    /// By peer and tag, which of the queues.
    queue_of: HashMap<(usize, u32), usize>,
    /// The queues in which a receive waits, in any order.
    active: Vec<usize>,
    /// Which of them is looked at next while something else is tested.
    cursor: usize,
    status: Status,
    finished: bool,
}

/// The receives of one peer and tag whose messages have not come whole, in the order in which they were begun.
#[derive(Debug)]
struct Queue {
    peer: usize,
    tag: u32,
    waiting: VecDeque<usize>,
    /// Where the queue is in the list of active ones, if it is.
    place: usize,
}

/// A place for a request, used again and again together with its memory.
#[derive(Debug)]
struct Slot<H> {
    live: bool,
    peer: usize,
    len: usize,
    /// Of a receive: where the message goes, and the queue.
    receives: Option<(Target, usize)>,
    /// MPI's requests, one a piece.
    pieces: Vec<H>,
    /// Pieces that are over.
    done: usize,
    /// Whether all pieces are there.
    whole: bool,
    /// Bytes of the message that came.
    given: usize,
    /// What came where other bytes were expected.
    scratch: Vec<Vec<u8>>,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug)]
struct Target(*mut u8);

// SAFETY: who began the receive has promised that nobody else touches the bytes until it is over.
unsafe impl Send for Target {}

impl<H: Copy + PartialEq + Send> Engine<H> {
    /// Initialises MPI.
    ///
    /// # Errors
    /// What the library says; a library that cannot be called from several threads.
    pub fn start(functions: Functions<H>, name: String) -> Result<Self, TransportError> {
        let mut engine = Self {
            functions,
            name,
            rank: 0,
            size: 1,
            slots: Vec::new(),
            free: Vec::new(),
            queues: Vec::new(),
            queue_of: HashMap::new(),
            active: Vec::new(),
            cursor: 0,
            status: Status::default(),
            finished: false,
        };
        let f = &engine.functions;
        let mut already = 0;
        // SAFETY: this may be asked at any time.
        engine.check("MPI_Initialized", unsafe { (f.initialized)(&mut already) })?;
        if already != 0 {
            return Err(engine.refused("MPI_Init_thread", "MPI is initialised already in this process"));
        }
        let mut provided = 0;
        let none: *mut c_void = std::ptr::null_mut();
        // SAFETY: MPI is not initialised; the arguments of the program may be left out.
        let result = unsafe { (f.init_thread)(none.cast(), none.cast(), THREAD_SERIALIZED, &mut provided) };
        engine.check("MPI_Init_thread", result)?;
        if provided < THREAD_SERIALIZED {
            let reason = format!(
                "it offers thread support of level {provided}, and unisono needs MPI_THREAD_SERIALIZED, level {THREAD_SERIALIZED}: calls \
                 from several threads, one at a time; install a build with threads"
            );
            let refused = engine.refused("MPI_Init_thread", &reason);
            engine.finalize()?;
            return Err(refused);
        }
        let (mut rank, mut size) = (0, 0);
        // SAFETY: MPI is initialised.
        engine.check("MPI_Comm_set_errhandler", unsafe {
            (f.comm_set_errhandler)(f.world, f.errors_return)
        })?;
        // SAFETY: as above.
        engine.check("MPI_Comm_rank", unsafe { (f.comm_rank)(f.world, &mut rank) })?;
        // SAFETY: as above.
        engine.check("MPI_Comm_size", unsafe { (f.comm_size)(f.world, &mut size) })?;
        // MPI counts processes from 0 in an `int`.
        (engine.rank, engine.size) = (rank as usize, size as usize);
        Ok(engine)
    }

    fn refused(&self, call: &str, reason: &str) -> TransportError {
        TransportError::Call {
            engine: self.name.clone(),
            call: call.into(),
            reason: reason.into(),
        }
    }

    fn check(&self, call: &str, result: c_int) -> Result<(), TransportError> {
        match result {
            0 => Ok(()),
            error => Err(self.refused(call, &self.functions.words(error))),
        }
    }

    fn finalize(&mut self) -> Result<(), TransportError> {
        self.finished = true;
        // SAFETY: MPI is initialised, and nothing is called after this.
        self.check("MPI_Finalize", unsafe { (self.functions.finalize)() })
    }

    /// Takes a place for a request.
    fn begin(&mut self, what: &str, peer: usize, tag: u32, len: usize) -> Result<usize, TransportError> {
        let reason = if self.finished {
            "this process has taken leave".to_string()
        } else if peer >= self.size {
            format!("there are {} processes, numbered from 0", self.size)
        } else if tag > MAX_TAG {
            format!("the largest tag is {MAX_TAG}")
        } else {
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot::new());
                self.slots.len() - 1
            });
            let slot = &mut self.slots[index];
            (slot.live, slot.peer, slot.len, slot.given) = (true, peer, len, 0);
            (slot.receives, slot.whole, slot.done) = (None, false, 0);
            slot.pieces.clear();
            return Ok(index);
        };
        let call = format!("{what} with rank {peer}, tag {tag} and {len} bytes");
        Err(self.refused(&call, &reason))
    }

    /// The slot of a request.
    fn index(&self, request: Request) -> usize {
        let live = self.slots.get(request.0).is_some_and(|slot| slot.live);
        assert!(live, "bug in unisono: {request:?} is not on its way");
        request.0
    }

    fn forget(&mut self, index: usize) {
        self.slots[index].live = false;
        self.slots[index].scratch.clear();
        self.free.push(index);
    }

    /// Takes the next piece that has come for a queue in which a receive waits; whether there was one.
    fn take(&mut self, queue: usize) -> Result<bool, TransportError> {
        let Queue { peer, tag, waiting, .. } = &self.queues[queue];
        let first = *waiting.front().expect("a receive whose message is not whole waits");
        let f = &self.functions;
        let (mut flag, mut message) = (0, f.no_message);
        let (peer, tag) = (*peer as c_int, *tag as c_int);
        // SAFETY: MPI is initialised; rank and tag are in range.
        let result = unsafe { (f.improbe)(peer, tag, f.world, &mut flag, &mut message, &mut self.status) };
        self.check("MPI_Improbe", result)?;
        if flag == 0 {
            return Ok(false);
        }
        let mut count = -1;
        // SAFETY: the status is that of the message, just written.
        self.check("MPI_Get_count", unsafe {
            (f.get_count)(&self.status, f.byte, &mut count)
        })?;
        self.receive_piece(first, count, message)?;
        if self.slots[first].whole {
            self.leave(queue, first);
        }
        Ok(true)
    }

    /// A receive no longer waits in its queue.
    fn leave(&mut self, queue: usize, index: usize) {
        let Queue { waiting, place, .. } = &mut self.queues[queue];
        if waiting.front() == Some(&index) {
            waiting.pop_front();
        } else {
            waiting.retain(|waits| *waits != index);
        }
        if waiting.is_empty() {
            let place = *place;
            self.active.swap_remove(place);
            if let Some(moved) = self.active.get(place) {
                self.queues[*moved].place = place;
            }
        }
    }

    /// Receives the next piece of a message, of `count` bytes.
    fn receive_piece(&mut self, index: usize, count: c_int, mut message: H) -> Result<(), TransportError> {
        let slot = &mut self.slots[index];
        // A piece has at most as many bytes as a piece, so a count that is none comes from another program.
        let bytes = usize::try_from(count).unwrap_or(0);
        let piece = slot.pieces.len();
        let expected = piece < pieces(slot.len) && count == piece_len(slot.len, piece);
        let to = match slot.receives {
            Some((to, _)) if expected => to.0.wrapping_add(piece * PIECE),
            _ => {
                let mut scratch = Vec::new();
                if scratch.try_reserve_exact(bytes).is_err() {
                    let call = format!("a message of {bytes} bytes from rank {}", slot.peer);
                    return Err(self.refused(&call, "no message of this length was expected"));
                }
                slot.scratch.push(scratch);
                slot.scratch.last_mut().expect("it was just added").as_mut_ptr()
            }
        };
        slot.given += bytes;
        slot.whole = bytes != PIECE;
        let f = &self.functions;
        let mut handle = f.no_request;
        // SAFETY: there are `count` bytes: the receive was promised them, or the scratch has them until the request is forgotten.
        let result = unsafe { (f.imrecv)(to.cast(), count, f.byte, &mut message, &mut handle) };
        slot.pieces.push(handle);
        self.check("MPI_Imrecv", result)
    }

    /// Tests the pieces of a request that are not over; whether none is left.
    fn test_pieces(&mut self, index: usize) -> Result<bool, TransportError> {
        let slot = &mut self.slots[index];
        while let Some(handle) = slot.pieces.get_mut(slot.done) {
            let mut flag = 0;
            // SAFETY: MPI is initialised, and the handle is one that it gave and that has not ended.
            let result = unsafe { (self.functions.test)(handle, &mut flag, &mut self.status) };
            if result != 0 {
                let call = format!("MPI_Test of {} bytes with rank {}", slot.len, slot.peer);
                return self.check(&call, result).map(|()| false);
            }
            if flag == 0 {
                return Ok(false);
            }
            slot.done += 1;
        }
        Ok(slot.whole)
    }

    /// As [`Transport::test`], but the request is not forgotten.
    fn advance(&mut self, index: usize) -> Result<bool, TransportError> {
        if let Some((_, queue)) = self.slots[index].receives {
            while !self.slots[index].whole && self.take(queue)? {}
        }
        if self.test_pieces(index)? {
            return Ok(true);
        }
        // While two processes wait for sends to each other, each must also take what the other sends.
        self.cursor = (self.cursor + 1).checked_rem(self.active.len()).unwrap_or(0);
        if let Some(queue) = self.active.get(self.cursor) {
            self.take(*queue)?;
        }
        Ok(false)
    }
}

impl<H> Slot<H> {
    fn new() -> Self {
        Self {
            live: false,
            peer: 0,
            len: 0,
            receives: None,
            pieces: Vec::new(),
            done: 0,
            whole: false,
            given: 0,
            scratch: Vec::new(),
        }
    }
}

/// Pieces of a message of `len` bytes.
fn pieces(len: usize) -> usize {
    len / PIECE + 1
}

/// Bytes of a piece, which fit into C's `int`.
fn piece_len(len: usize, piece: usize) -> c_int {
    (len - piece * PIECE).min(PIECE) as c_int
}

impl<H: Copy + PartialEq + Send> Transport for Engine<H> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    unsafe fn send(&mut self, peer: usize, tag: u32, bytes: *const u8, len: usize) -> Result<Request, TransportError> {
        let index = self.begin("a send", peer, tag, len)?;
        let f = &self.functions;
        let slot = &mut self.slots[index];
        (slot.given, slot.whole) = (len, true);
        for piece in 0..pieces(len) {
            let from: *const c_void = bytes.wrapping_add(piece * PIECE).cast();
            let count = piece_len(len, piece);
            let mut handle = f.no_request;
            // SAFETY: the caller keeps the bytes until the request is over; rank and tag are in range.
            let result = unsafe { (f.isend)(from, count, f.byte, peer as c_int, tag as c_int, f.world, &mut handle) };
            // The pieces before this one are on their way: the place stays theirs, and the run ends with this error.
            if result != 0 {
                let call = format!("a send of {len} bytes to rank {peer} with tag {tag}");
                return self.check(&call, result).map(|()| Request(index));
            }
            slot.pieces.push(handle);
        }
        Ok(Request(index))
    }

    unsafe fn receive(&mut self, peer: usize, tag: u32, bytes: *mut u8, len: usize) -> Result<Request, TransportError> {
        let index = self.begin("a receive", peer, tag, len)?;
        let queue = *self.queue_of.entry((peer, tag)).or_insert_with(|| {
            let (waiting, place) = (VecDeque::new(), 0);
            self.queues.push(Queue {
                peer,
                tag,
                waiting,
                place,
            });
            self.queues.len() - 1
        });
        self.slots[index].receives = Some((Target(bytes), queue));
        let Queue { waiting, place, .. } = &mut self.queues[queue];
        if waiting.is_empty() {
            *place = self.active.len();
            self.active.push(queue);
        }
        waiting.push_back(index);
        Ok(Request(index))
    }

    fn test(&mut self, request: Request) -> Result<bool, TransportError> {
        let index = self.index(request);
        if !self.advance(index)? {
            return Ok(false);
        }
        let Slot { peer, len, given, .. } = self.slots[index];
        self.forget(index);
        if given != len {
            return Err(TransportError::Length {
                peer,
                given,
                expected: len,
            });
        }
        Ok(true)
    }

    /// A receive whose message has not come is given up at once. Any other request is given up if it ends by itself.
    ///
    /// # Errors
    /// What the engine says; a message that another process must first move on. The request is then still on its way.
    fn cancel(&mut self, request: Request) -> Result<(), TransportError> {
        let index = self.index(request);
        let slot = &self.slots[index];
        if let (Some((_, queue)), true) = (slot.receives, slot.pieces.is_empty()) {
            self.leave(queue, index);
            self.forget(index);
            return Ok(());
        }
        for _ in 0..TESTS_TO_CANCEL {
            if self.advance(index)? {
                self.forget(index);
                return Ok(());
            }
        }
        let Slot { peer, len, .. } = self.slots[index];
        let call = format!("to give up a message of {len} bytes with rank {peer}");
        Err(self.refused(&call, &format!("it is on its way, and rank {peer} does not move it on")))
    }

    fn abort(&mut self, code: i32) -> ! {
        if !self.finished {
            // SAFETY: MPI is initialised.
            unsafe { (self.functions.abort)(self.functions.world, code) };
        }
        std::process::exit(code)
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        if self.finished {
            return Ok(());
        }
        let left = self.slots.iter().filter(|slot| slot.live).count();
        if left > 0 {
            return Err(self.refused("MPI_Finalize", &format!("requests are still on their way: {left}")));
        }
        let f = &self.functions;
        let (mut handle, mut flag) = (f.no_request, 0);
        // SAFETY: MPI is initialised.
        self.check("MPI_Ibarrier", unsafe { (f.ibarrier)(f.world, &mut handle) })?;
        // The others may take long, and their work may need this core.
        let mut pause = Duration::from_micros(1);
        loop {
            // SAFETY: as above; the handle is that of the barrier.
            let result = unsafe { (self.functions.test)(&mut handle, &mut flag, &mut self.status) };
            self.check("MPI_Test", result)?;
            if flag != 0 {
                return self.finalize();
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_with_a_piece_that_is_not_full() {
        for (len, expected) in [
            (0, vec![0]),
            (1, vec![1]),
            (PIECE - 1, vec![PIECE - 1]),
            (PIECE, vec![PIECE, 0]),
            (PIECE + 1, vec![PIECE, 1]),
            (5 * PIECE / 2, vec![PIECE, PIECE, PIECE / 2]),
            ((1 << 31) + 5, vec![PIECE, PIECE, 5]),
        ] {
            let told: Vec<usize> = (0..pieces(len)).map(|piece| piece_len(len, piece) as usize).collect();
            assert_eq!(told, expected, "{len} bytes");
        }
    }
}
