//! Where a run takes place: its devices, and the processes that carry them.

use serde::Serialize;

/// The mesh and what it may use (`device_config`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceConfig {
    /// Devices along each axis. Default `[1, 1]`.
    pub mesh_shape: Vec<usize>,
    /// Data parallel. Default false.
    pub enable_ddp: bool,
    /// Tensor parallel. Default false.
    pub enable_tp: bool,
    /// The descriptor of the machine, a file or a name; none means that any mesh fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mesh_graph_descriptor: Option<String>,
    /// Most bytes that the run may take on this machine; none means what the machine has.
    pub memory: Option<u64>,
    /// Worker threads; none means one a core.
    pub workers: Option<usize>,
}

/// Training over several processes as tt-train describes it (`multihost_config` with `enabled: true`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MultihostConfig {
    /// Processes that train, at least 1; an aggregator and an optimizer beside them stay idle.
    pub num_workers: usize,
}
