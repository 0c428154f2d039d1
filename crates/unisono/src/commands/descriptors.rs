//! Mesh graph descriptors as the user names them: a file, a built-in one, or this machine.

use crate::context::Context;
use crate::exit::Failure;
use crate::machine;
use std::path::Path;
use unisono_data::files::open_regular;
use unisono_mesh::MeshError;
use unisono_mesh::cpu_topology::{CpuTopology, SYSTEM};
use unisono_mesh::descriptor::{self, Checked};
use unisono_runtime::machine::cores;

/// The name of the descriptor that is made of this machine's cores and NUMA nodes.
pub const THIS_MACHINE: &str = "this-machine";

/// Reads and checks the descriptor that `name` means, and tells its warnings.
///
/// # Errors
/// As [`open`].
pub fn load(name: &str, context: &Context) -> Result<Checked, Failure> {
    let checked = open(name).map_err(Failure::input)?;
    for warning in checked.warnings.list() {
        context.out.warn(format!("{name}:{warning}"));
    }
    Ok(checked)
}

/// Reads and checks the descriptor that `name` means.
///
/// # Errors
/// Neither a file nor a name, or everything that is wrong with the file.
pub fn open(name: &str) -> Result<Checked, MeshError> {
    let path = Path::new(name);
    if path.exists() {
        // A pipe would be waited for.
        if let Err(error) = open_regular(path) {
            return Err(MeshError::UnreadableDescriptor {
                file: name.to_string(),
                reason: error.to_string(),
            });
        }
    } else if name == THIS_MACHINE {
        return Ok(this_machine());
    }
    descriptor::open(name).map_err(|error| match error {
        MeshError::UnknownDescriptor { name, known, hint } => MeshError::UnknownDescriptor {
            name,
            known: format!("{known}, {THIS_MACHINE}"),
            hint,
        },
        error => error,
    })
}

/// This machine as a descriptor: a CPU mesh of its cores, a row for each NUMA node.
pub fn this_machine() -> Checked {
    let text = this_machine_text();
    descriptor::check(THIS_MACHINE, text.as_bytes()).expect("bug in unisono: its own descriptor has problems")
}

/// The text of that descriptor.
pub fn this_machine_text() -> String {
    let cpus = processors();
    descriptor::cpu_descriptor(cpus.nodes.len(), cpus.cores().len())
}

/// The processors that this process may use.
pub fn processors() -> CpuTopology {
    let system = Path::new(SYSTEM);
    let cpus = CpuTopology::read(system, &machine::allowed_processors());
    if !cpus.processors.is_empty() {
        return cpus;
    }
    // A system that says nothing of its processors still has some.
    CpuTopology::read(system, &(0..cores()).collect::<Vec<_>>())
}
