//! Descriptors by name.

use super::{Checked, check};
use crate::MeshError;
use crate::near::hint;

/// A descriptor that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// Its name, for example `t3k-2x4`.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// The text of a file in `descriptors`.
macro_rules! builtins {
    ($($name:literal),* $(,)?) => {
        [$(Builtin { name: $name, text: include_str!(concat!("../../descriptors/", $name, ".textproto")) }),*]
    };
}

/// All of them, smaller machines first.
pub const BUILTINS: [Builtin; 16] = builtins![
    "n150",
    "p100",
    "p150",
    "n300",
    "p300",
    "gpu-4-nvlink-pairs",
    "t3k-2x4",
    "t3k-1x8",
    "quietbox-2x4",
    "loudbox-1x8",
    "gpu-8-nvlink",
    "galaxy-8x4",
    "galaxy-4x8",
    "galaxy-1x32",
    "dual-galaxy",
    "quad-galaxy",
];

impl Builtin {
    /// The descriptor of this name.
    ///
    /// # Errors
    /// [`MeshError::UnknownDescriptor`], with the names that there are.
    pub fn named(name: &str) -> Result<Builtin, MeshError> {
        let names = || BUILTINS.iter().map(|builtin| builtin.name);
        BUILTINS
            .iter()
            .find(|builtin| builtin.name == name)
            .copied()
            .ok_or_else(|| MeshError::UnknownDescriptor {
                name: super::lex::shortened(name),
                known: names().collect::<Vec<_>>().join(", "),
                hint: hint(name, names()),
            })
    }

    /// What it is, in the words that its text begins with.
    pub fn about(self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("# "));
        lines.collect::<Vec<_>>().join(" ")
    }

    /// The descriptor, checked.
    pub fn checked(self) -> Checked {
        check(self.name, self.text.as_bytes()).expect("bug in unisono: a built-in descriptor has problems")
    }
}

/// A descriptor of `cores` processor cores on `numa_nodes` nodes of memory: a CPU mesh with a row for each node where the
/// cores can be shared evenly, else one row. Counts of 0 are taken as 1.
pub fn cpu_descriptor(numa_nodes: usize, cores: usize) -> String {
    let cores = cores.clamp(1, crate::MAX_DEVICES);
    let rows = if cores.is_multiple_of(numa_nodes.max(1)) {
        numa_nodes.max(1)
    } else {
        1
    };
    format!(
        "# This machine: processor cores that share memory, a row for each NUMA node.\n\
         mesh_descriptors {{\n  name: \"M0\"\n  arch: CPU\n  \
         device_topology {{ dims: [{rows}, {}] }}\n  \
         host_topology {{ dims: [1, 1] }}\n  \
         channels {{ count: 1 policy: STRICT }}\n  \
         [unisono.link] {{ kind: memory }}\n}}\n\n\
         top_level_instance {{ mesh {{ mesh_descriptor: \"M0\" mesh_id: 0 }} }}\n",
        cores / rows
    )
}
