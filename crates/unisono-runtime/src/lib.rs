//! *When*: devices, buffers, commands, queues, workers, collectives and memory accounting.
//!
//! The host program issues [`Command`]s, plain data that name buffers by id; a command is issued once for the whole mesh and
//! every device carries it out in order. Workers (one a core) take tiles of whatever command is ready on any device.
//! The [`Backend::Null`] accepts the same stream and only accounts for it.

pub mod buffer;
pub mod command;
pub mod error;
pub mod ops;
pub mod place;

pub use buffer::{BufferRef, Kind};
pub use command::{Command, Cost, Op};
pub use error::RuntimeError;
pub use place::Place;
