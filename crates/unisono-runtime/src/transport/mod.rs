//! Messages between the processes of one run.
//!
//! The runtime needs no more of a network than this: bytes with a tag go from one process to another, in order for each pair and
//! tag, while both go on computing. Nothing here waits. Calls come from one thread at a time.

pub(crate) mod control;
mod deadline;
mod error;
pub(crate) mod history;
mod line;
mod link;
mod memory;
pub mod mpi;
mod parting;
mod watch;
mod world;

pub use deadline::within;
pub use error::TransportError;
pub use link::{Failure, Link, Settings};
pub use memory::Memory;
pub use mpi::Mpi;
pub use world::{Given, Source, World};

/// A message on its way, as its [`Transport`] numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request(pub usize);

/// The largest tag: what every MPI library must allow.
pub const MAX_TAG: u32 = 32_767;

/// What carries messages.
pub trait Transport: Send {
    /// The number of this process, from 0.
    fn rank(&self) -> usize;

    /// Processes of the run.
    fn size(&self) -> usize;

    /// What carries the messages, with its version.
    fn name(&self) -> String;

    /// Begins to send `len` bytes to `peer`. Messages of one tag between two processes arrive in the order in which they were sent, and
    /// are received in the order in which receives were begun.
    ///
    /// # Errors
    /// What the engine says.
    ///
    /// # Safety
    /// The bytes must stay valid and unchanged until [`Transport::test`] has said that the request is over, or
    /// [`Transport::cancel`] has returned.
    unsafe fn send(&mut self, peer: usize, tag: u32, bytes: *const u8, len: usize) -> Result<Request, TransportError>;

    /// Begins to receive a message of exactly `len` bytes from `peer`.
    ///
    /// # Errors
    /// What the engine says.
    ///
    /// # Safety
    /// The bytes must stay valid, and nobody else may touch them, until [`Transport::test`] has said that the request is over, or
    /// [`Transport::cancel`] has returned.
    unsafe fn receive(&mut self, peer: usize, tag: u32, bytes: *mut u8, len: usize) -> Result<Request, TransportError>;

    /// Moves messages on, and says whether this one is over; a request that is over is forgotten.
    ///
    /// # Errors
    /// A message of another length than was expected: the request is over then too, and forgotten. Or what the engine says.
    fn test(&mut self, request: Request) -> Result<bool, TransportError>;

    /// Gives a request up.
    ///
    /// # Errors
    /// What the engine says.
    fn cancel(&mut self, request: Request) -> Result<(), TransportError>;

    /// Ends every process of the run, this one too, with the exit code `code`.
    fn abort(&mut self, code: i32) -> !;

    /// Takes leave of the others, once all of them do: no message may be on its way.
    ///
    /// # Errors
    /// What the engine says.
    fn finish(&mut self) -> Result<(), TransportError>;
}

/// Whether a message is over, if there is one; one of another length than expected is, too.
pub(crate) fn has_ended(transport: &mut dyn Transport, request: &mut Option<Request>) -> Result<bool, TransportError> {
    let Some(asked) = *request else { return Ok(true) };
    let ended = transport.test(asked);
    if matches!(ended, Ok(true) | Err(TransportError::Length { .. })) {
        *request = None;
    }
    ended
}
