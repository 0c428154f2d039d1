//! `unisono mesh`: what can be done with mesh graph descriptors.

mod show;

use super::{DONE, descriptors};
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;

/// What `mesh` can do.
#[derive(Subcommand)]
pub enum MeshCommand {
    /// Draw a descriptor: its meshes, hosts, devices and links
    Show(show::ShowArgs),
}

/// See the module.
///
/// # Errors
/// A descriptor that cannot be read or is wrong, a file that cannot be written.
pub fn run(command: &MeshCommand, context: &Context) -> Result<u8, Failure> {
    match command {
        MeshCommand::Show(args) => show::run(args, context),
    }
}
