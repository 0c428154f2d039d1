//! What can go wrong between processes.

/// Errors of a transport. The messages are complete sentences for the user.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum TransportError {
    /// No engine could be had.
    #[error("{0}")]
    Absent(
        /// What was looked for, and what to install.
        String,
    ),
    /// Two sources tell different things about the processes of this run.
    #[error("{0}")]
    World(
        /// Both sources and what they say.
        String,
    ),
    /// The engine refused a call.
    #[error("{engine} refused {call}: {reason}")]
    Call {
        /// The engine.
        engine: String,
        /// The call, with its numbers.
        call: String,
        /// The engine's words.
        reason: String,
    },
    /// A message was not as long as expected.
    #[error("a message from rank {peer} has {given} bytes, {expected} were expected")]
    Length {
        /// Who sent it.
        peer: usize,
        /// Bytes that came.
        given: usize,
        /// Bytes expected.
        expected: usize,
    },
}
