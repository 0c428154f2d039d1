//! `unisono mesh`: what can be done with mesh graph descriptors.

mod check;
mod list;
mod new;
mod show;

use super::{DONE, descriptors};
use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;

/// What `mesh` can do.
#[derive(Subcommand)]
pub enum MeshCommand {
    /// Check descriptors; exit code 2 if one of them is wrong
    Check(check::CheckArgs),
    /// Draw a descriptor: its meshes, hosts, devices and links
    Show(show::ShowArgs),
    /// Write a descriptor of one mesh
    New(new::NewArgs),
    /// List the built-in descriptors, or print one of them
    List(list::ListArgs),
}

/// See the module.
///
/// # Errors
/// A descriptor that cannot be read or is wrong, a file that cannot be written, a mesh that no descriptor can have.
pub fn run(command: &MeshCommand, context: &Context) -> Result<u8, Failure> {
    match command {
        MeshCommand::Check(args) => check::run(args, context),
        MeshCommand::Show(args) => show::run(args, context),
        MeshCommand::New(args) => new::run(args, context),
        MeshCommand::List(args) => list::run(args, context),
    }
}
