//! Rows of `device_config`, `eval_config` and the sections that are not built yet.

use super::{Choice, Key, Kind, OFF, Range, built, no_meaning, not_built, read, same_as, size};

const ONE_PROCESS: &str = "it counts only with multihost_config.enabled: true, where it is not built yet";
const SOCKETS: &[Choice] = &[built("mpi"), same_as("fabric", "mpi", "processes talk over MPI")];
const NO_CP: &str = "enable_cp is not built yet";

/// See the module.
pub const KEYS: &[Key] = &[
    read(
        "device_config",
        Kind::Path,
        "",
        "A file with device_config, in place of the section itself.",
    ),
    read(
        "device_config.mesh_shape",
        Kind::Ints { min: 1 },
        "[1, 1]",
        "Devices along each axis; any number of axes. Devices are logical: there may be more of them than cores.",
    ),
    read(
        "device_config.enable_ddp",
        Kind::Flag,
        "false",
        "Data parallel. With tensor parallel it takes the first axis.",
    ),
    read(
        "device_config.enable_tp",
        Kind::Flag,
        "false",
        "Tensor parallel. With data parallel it takes the last axis.",
    ),
    read(
        "device_config.mesh_graph_descriptor",
        Kind::Text,
        "",
        "The machine that the mesh must fit on: a mesh graph descriptor's file, or the name of a built-in one (unisono mesh list). \
         The variable TT_MESH_GRAPH_DESC_PATH goes before it. Default: none, and any mesh fits. Unisono's own key.",
    ),
    read(
        "device_config.memory",
        Kind::Memory,
        "",
        "Most bytes that each device may hold: 12GB, 512MiB or a whole number. Default: the machine's memory shared \
         out among the devices. unisono check then plans for devices of that memory, on whatever machine. Unisono's own key.",
    ),
    read(
        "device_config.workers",
        Kind::Int { min: 1, max: 1024 },
        "",
        "Worker threads. Default: one a core. They cannot change a result. Unisono's own key.",
    ),
    not_built(
        "device_config.allow_inexact",
        OFF,
        "a mesh whose sums cannot follow the canonical order (allow_inexact)",
    ),
    no_meaning("device_config.device_ids", "devices are logical and need no ids"),
    not_built("device_config.enable_pp", OFF, "pipeline parallel (enable_pp)"),
    not_built("device_config.enable_cp", OFF, "context parallel (enable_cp)"),
    not_built(
        "device_config.enable_fsdp",
        OFF,
        "fully sharded data parallel (enable_fsdp)",
    ),
    no_meaning("device_config.fsdp_replicate_params", "enable_fsdp is not built yet"),
    no_meaning("device_config.cp_backward", NO_CP),
    no_meaning("device_config.cp_shift_transport", NO_CP),
    no_meaning("device_config.cp_layout", NO_CP),
    no_meaning("device_config.cp_rows_per_block_tiles", NO_CP),
    read(
        "eval_config.temperature",
        Kind::Real(Range::NonNegative),
        "1.0",
        "Divides the logits; below 0.01 the likeliest token is taken. (tt-train's C++ reads 0 as 1.)",
    ),
    read(
        "eval_config.top_k",
        Kind::Int { min: -1, max: 1 << 31 },
        "-1",
        "Only the k likeliest tokens; -1 and 0 mean all.",
    ),
    read(
        "eval_config.top_p",
        Kind::Real(Range::AboveZero),
        "1.0",
        "Only the likeliest tokens up to this probability; 1 means all.",
    ),
    read(
        "eval_config.repetition_penalty",
        Kind::Real(Range::Positive),
        "1.0",
        "Divides positive and multiplies negative logits of tokens that are there already; 1 is off.",
    ),
    read(
        "multihost_config.enabled",
        Kind::Flag,
        "false",
        "Train over several processes, data parallel over the workers. An aggregator and an optimizer process beside them \
         stay idle: every worker does their part.",
    ),
    read(
        "multihost_config.num_workers",
        size(0),
        "0",
        "Workers; with enabled at least 1, and as many processes are needed.",
    ),
    read(
        "multihost_config.socket_type",
        Kind::Choice(SOCKETS),
        "mpi",
        "What processes talk over.",
    ),
    no_meaning("multihost_config.pipeline_parallel_config", ONE_PROCESS),
];
