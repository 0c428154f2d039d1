//! Mesh graph descriptors, version 2.0: files in protobuf text format that say what a machine is made of.
//!
//! [`check`] reads a text and gives a [`Checked`]: the [`Descriptor`] as it is written, the [`Machine`] that it
//! describes, warnings, and what keeps a control plane of the original from taking it. All problems of the first stage
//! that finds any come together in a [`Report`]. The format, its defaults, its errors and our extension blocks are
//! described in `docs/mgd.md`.
//!
//! ```
//! let text = r#"
//!     mesh_descriptors {
//!       name: "M0" arch: WORMHOLE_B0
//!       device_topology { dims: [2, 4] }  host_topology { dims: [1, 2] }
//!       channels { count: 2 }
//!     }
//!     top_level_instance { mesh { mesh_descriptor: "M0" mesh_id: 0 } }
//! "#;
//! let checked = unisono_mesh::descriptor::check("box.textproto", text.as_bytes())?;
//! assert_eq!(checked.machine.num_devices(), 8);
//! assert_eq!(checked.machine.hosts()[1].devices, [2, 3, 6, 7]);
//! # Ok::<(), unisono_mesh::descriptor::Report>(())
//! ```

mod blocks;
mod builtin;
mod compat;
mod connect;
mod express;
mod extension;
mod lex;
mod links;
mod machine;
mod messages;
mod pinning;
mod populate;
mod read;
mod regex;
mod report;
mod schema;
mod select;
mod text;
mod topology;
mod validate;
mod write;

pub use builtin::{BUILTINS, Builtin, cpu_descriptor};
pub use extension::{DeviceBlock, LinkBlock, LinkKind, LinkRate};
pub use machine::{Block, Connection, Endpoint, FabricType, Host, Instance, Link, LinkRole, Machine, Origin, Pin};
pub use report::{At, MAX_PROBLEMS, Position, Problem, Problems, Report, Stage};
pub use schema::{
    Architecture, Channels, Connection as ConnectionEntry, Descriptor, DimType, ExpressConnection, ExpressLinks,
    GraphDescriptor, GraphTopology, Layout, MeshDescriptor, NodeRef, PinField, PinPair, Pinning, Policy, RefKind,
    Target,
};
pub use select::{Fit, NamedBy, Selection, Wish, hold, load, open, select};
pub use text::MAX_BYTES;
pub use write::{NewMesh, parse_sizes};

/// A descriptor that has passed every stage.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The file as the caller named it.
    pub file: String,
    /// What is written.
    pub descriptor: Descriptor,
    /// What it describes.
    pub machine: Machine,
    /// What was skipped or taken otherwise than it is written.
    pub warnings: Problems,
    /// What a control plane that knows only mesh graphs of version 1.0 refuses; empty where it takes the descriptor.
    pub compatibility: Problems,
}

/// Reads and checks a descriptor. `file` stands in the messages only.
///
/// # Errors
/// All problems of the first stage that finds any.
pub fn check(file: &str, text: &[u8]) -> Result<Checked, Report> {
    let mut reader = read::Reader::default();
    let fields = text::parse(text, &mut reader.problems);
    let descriptor = messages::descriptor(&mut reader, &fields);
    drop(fields);
    let mut warnings = reader.warnings;
    reader.problems.into_result(file, Stage::Text)?;
    validate::structure(&descriptor).into_result(file, Stage::Structure)?;
    validate::names(&descriptor).into_result(file, Stage::Names)?;
    let (problems, of_topology) = topology::topology(&descriptor);
    problems.into_result(file, Stage::Topology)?;
    let (machine, of_population) = populate::populate(&descriptor);
    let machine = match machine {
        Ok(machine) => machine,
        Err(problems) => {
            problems.into_result(file, Stage::Population)?;
            unreachable!("bug in unisono: a population without machine and without problems");
        }
    };
    warnings.append(of_topology);
    warnings.append(of_population);
    warnings.sort();
    let compatibility = compat::compatibility(&descriptor);
    Ok(Checked {
        file: file.to_owned(),
        descriptor,
        machine,
        warnings,
        compatibility,
    })
}
