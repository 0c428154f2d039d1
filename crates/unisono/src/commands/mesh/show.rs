//! `unisono mesh show`: a descriptor, drawn.

use super::{DONE, descriptors};
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use unisono_data::files::atomic_write;
use unisono_mesh::descriptor::{Block, Machine};
use unisono_mesh::draw;

/// Options of `mesh show`.
#[derive(Args)]
pub struct ShowArgs {
    /// The descriptor: a file, the name of a built-in one, or this-machine
    #[arg(value_name = "FILE|NAME")]
    pub descriptor: String,
    /// Also write the drawing as SVG
    #[arg(long, value_name = "OUT")]
    pub svg: Option<PathBuf>,
}

/// The width of an SVG in characters: room for 16 devices beside each other.
const SVG_WIDTH: usize = 250;

/// See the module.
///
/// # Errors
/// A descriptor that cannot be read or is wrong, a file that cannot be written.
pub fn run(args: &ShowArgs, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    let machine = descriptors::load(&args.descriptor, context)?.machine;
    if let Some(path) = &args.svg {
        let svg = draw::show(&machine, SVG_WIDTH).svg();
        atomic_write(path, |file| file.write_all(svg.as_bytes())).map_err(Failure::from)?;
    }
    out.drawing(&draw::show(&machine, out.width(&context.environment.variables)));
    if let Some(path) = &args.svg {
        out.say(format!("written to {}", path.display()));
    }
    out.json(&described(&machine, args));
    DONE
}

/// The machine in numbers.
fn described(machine: &Machine, args: &ShowArgs) -> Value {
    let of = |block: &Block| {
        json!({
            "name": &*block.name,
            "id": block.id,
            "switch": block.is_switch,
            "arch": block.arch.name(),
            "dims": block.shape.sizes(),
            "dim_types": block.dim_types.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "hosts": block.hosts.sizes(),
            "devices": block.num_devices(),
            "links": block.links.len(),
            "channels": block.channels,
            "policy": block.policy.name(),
            "gbps": block.links.first().and_then(|link| link.gbps()),
        })
    };
    let connections = machine.connections.iter().map(|connection| {
        json!({
            "from": machine.path(connection.a.instance),
            "from_device": connection.a.device,
            "to": machine.path(connection.b.instance),
            "to_device": connection.b.device,
            "channels": connection.channels,
            "policy": connection.policy.name(),
        })
    });
    let links = machine.blocks.iter().flat_map(|block| &block.links);
    json!({
        "descriptor": args.descriptor,
        "devices": machine.num_devices(),
        "hosts": machine.hosts().len(),
        "links": links.clone().count(),
        "channels": links.map(|link| u64::from(link.channels)).sum::<u64>(),
        "meshes": machine.blocks.iter().map(of).collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(),
        "svg": args.svg,
    })
}
