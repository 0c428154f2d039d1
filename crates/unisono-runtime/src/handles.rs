//! What a program holds of a runtime: buffers, values on their way to it.

use crate::buffer::{BufferRef, Kind};
use crate::error::RuntimeError;
use crate::runtime::Runtime;
use crate::sched::HostGoal;
use crate::task::Download;
use std::ops::Deref;
use std::time::Instant;

/// Memory that was still in use when a mesh was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// What it was counted as.
    pub kind: Kind,
    /// Number of buffers.
    pub buffers: usize,
    /// Bytes on a device.
    pub bytes: u64,
}

/// Values on their way to the host.
#[derive(Debug)]
#[must_use]
pub struct Pending {
    pub(crate) download: Download,
    pub(crate) goal: HostGoal,
    pub(crate) runtime: Runtime,
}

impl Pending {
    /// Whether [`Pending::wait`] would return at once. With a single worker, which is the caller, this does the work first.
    pub fn is_ready(&self) -> bool {
        self.runtime.host().is_met(self.goal)
    }

    /// Waits, and works, until the values are there; as floats.
    ///
    /// # Errors
    /// [`RuntimeError::CommandFailed`] if a command failed.
    pub fn wait(self) -> Result<Vec<f32>, RuntimeError> {
        Ok(self.wait_for_moment()?.0)
    }

    /// As [`Pending::wait`], with the moment at which the values came: the devices may have been at it long before the host
    /// asked.
    ///
    /// # Errors
    /// As [`Pending::wait`].
    pub fn wait_for_moment(self) -> Result<(Vec<f32>, Instant), RuntimeError> {
        self.runtime.host().wait(self.goal)?;
        let (values, at) = self.download.take();
        Ok((values, at.unwrap_or_else(Instant::now)))
    }

    /// Waits, and works, until the values are there; as integers.
    ///
    /// # Errors
    /// As [`Pending::wait`].
    pub fn wait_u32(self) -> Result<Vec<u32>, RuntimeError> {
        Ok(self.wait()?.into_iter().map(f32::to_bits).collect())
    }
}

/// A piece of every device's memory, given back when dropped (in program order: commands issued before still have it).
pub struct Buffer {
    pub(crate) r: BufferRef,
    pub(crate) kind: Kind,
    pub(crate) runtime: Runtime,
}

impl Buffer {
    /// The name that commands use for it. It must not be used after this buffer is dropped.
    pub fn r(&self) -> BufferRef {
        self.r
    }

    /// What it is counted as.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The runtime that it belongs to.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl Deref for Buffer {
    type Target = BufferRef;

    fn deref(&self) -> &BufferRef {
        &self.r
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.r, self.kind.name())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(mut host) = self.runtime.host_if_free() {
            host.free(self.r);
        }
    }
}
