//! What can go wrong below the tensors.

use crate::transport::TransportError;
use unisono_mesh::MeshError;

/// Errors of the runtime. The messages are complete sentences for the user.
#[derive(Debug, Clone, thiserror::Error, PartialEq)]
pub enum RuntimeError {
    /// The device's memory limit would be exceeded.
    #[error(
        "a device would need {needed} bytes, {limit} are allowed: {asked} more bytes for {what} do not fit beside the {used} in use"
    )]
    OutOfMemory {
        /// Bytes in use plus bytes asked for.
        needed: u64,
        /// The limit of one device, bytes.
        limit: u64,
        /// Bytes asked for.
        asked: u64,
        /// Bytes in use.
        used: u64,
        /// What the memory was for.
        what: &'static str,
    },
    /// The operating system gave no memory.
    #[error("the system refused {bytes} bytes of address space for {devices} devices: {reason}")]
    NoAddressSpace {
        /// Bytes asked for.
        bytes: u64,
        /// Devices in the mesh.
        devices: usize,
        /// The system's words.
        reason: String,
    },
    /// A setting that cannot be met.
    #[error("{0}")]
    Setting(String),
    /// A worker thread could not be started.
    #[error("could not start worker thread {index}: {reason}")]
    NoThread {
        /// Which worker.
        index: usize,
        /// The system's words.
        reason: String,
    },
    /// A command failed on a device; everything after it is void.
    #[error("command {command} failed on device {device}: {reason}")]
    CommandFailed {
        /// The command in its printed form.
        command: String,
        /// Logical device.
        device: usize,
        /// What was caught.
        reason: String,
    },
    /// A value was asked from the null backend.
    #[error("the null backend computes nothing, so there is no value to read")]
    NoValues,
    /// A command for devices that have been given back.
    #[error("the mesh {0} has been closed; open it again")]
    Closed(
        /// The mesh in words.
        String,
    ),
    /// A capture or a replay that cannot be.
    #[error("{0}")]
    Trace(
        /// What was done, and what to do.
        String,
    ),
    /// A buffer used where not all devices hold it.
    #[error("{0}")]
    Misplaced(
        /// The command, the buffer and both meshes, and what to do.
        String,
    ),
    /// Messages between processes failed.
    #[error(transparent)]
    Transport(
        /// What failed.
        #[from]
        TransportError,
    ),
    /// Another process runs another program.
    #[error(
        "this process and rank {peer} run different programs: at {what}, {here} commands were issued here and {there} there, and they are \
         not the same"
    )]
    Diverged {
        /// The other process.
        peer: usize,
        /// The command at which they met.
        what: String,
        /// Commands issued by this process.
        here: u64,
        /// Commands issued by the other.
        there: u64,
    },
    /// Another process runs another program, and both have said where they part.
    #[error("{0}")]
    Parted(
        /// The first difference, in both versions.
        String,
    ),
    /// A mesh that cannot be cut out of another.
    #[error(transparent)]
    Mesh(
        /// What is wrong with it.
        #[from]
        MeshError,
    ),
    /// A device that the mesh does not have.
    #[error("device {device} does not exist: the mesh has {devices}, numbered from 0")]
    NoDevice {
        /// What was asked for.
        device: usize,
        /// Devices in the mesh.
        devices: usize,
    },
    /// A buffer or data of another length than needed.
    #[error("{what}: {given} elements given, {expected} expected")]
    Length {
        /// What was being done.
        what: &'static str,
        /// Elements given.
        given: usize,
        /// Elements expected.
        expected: usize,
    },
}
