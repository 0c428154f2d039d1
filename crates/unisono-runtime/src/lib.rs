//! *When*: devices, buffers, commands, queues, workers, collectives and memory accounting.
//!
//! The host program issues [`Command`]s, plain data that name buffers by id; a command is issued once for the whole mesh and
//! every device carries it out in order. Workers (one a core) take tiles of whatever command is ready on any device.
//! The [`Backend::Null`] accepts the same stream and only accounts for it.

mod arena;
pub mod buffer;
mod classes;
pub mod command;
pub mod error;
pub mod exchange;
mod handles;
mod host;
mod ledger;
pub mod machine;
pub mod ops;
mod options;
pub mod place;
mod pool;
mod processes;
mod queue;
pub mod report;
mod runtime;
mod sched;
mod span;
pub mod stored;
pub mod task;
mod trace;
mod traffic;
mod transfer;
pub mod transport;
mod view;

pub use buffer::{BufferRef, Dtype, Kind};
pub use command::{Command, Cost, Group, Op};
pub use error::RuntimeError;
pub use handles::{Buffer, Leak, Pending};
pub use options::{Backend, Options};
pub use place::Place;
pub use processes::Processes;
pub use queue::Queue;
pub use report::{MemoryReport, Phase, PhaseReport, Report};
pub use runtime::Runtime;
pub use sched::AirTime;
pub use task::{Recorded, Task, UNDEFINED};
pub use trace::Trace;
pub use traffic::{Pattern, TrafficReport};
pub use transfer::HostData;
