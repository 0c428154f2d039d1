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
    /// A process gives no sign of life.
    #[error(
        "rank {rank} on {host} has given no sign of life for {seconds} s; it was last heard at step {step}, in {what}"
    )]
    Lost {
        /// Which.
        rank: usize,
        /// Where it runs.
        host: String,
        /// For how long.
        seconds: u64,
        /// The step at which it was last heard.
        step: u64,
        /// The last command between processes that it was heard to do.
        what: String,
    },
    /// Another process has failed, and has said why.
    #[error("rank {rank} on {host}: {text}")]
    Failed {
        /// Which.
        rank: usize,
        /// Where it runs.
        host: String,
        /// Its exit code.
        code: i32,
        /// Its words.
        text: String,
    },
    /// A process lives and does not come.
    #[error("waited {seconds} s for {who} at {what}; --timeout gives it longer")]
    Waited {
        /// Which process, in words.
        who: String,
        /// Where the processes were to meet.
        what: String,
        /// For how long it was waited.
        seconds: u64,
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
