//! `unisono completions`: what a shell needs to complete options.

use super::DONE;
use crate::cli;
use crate::context::Context;
use crate::exit::Failure;
use clap_complete::{Shell, generate};

/// See the module.
///
/// # Errors
/// None; what cannot be written is told by the caller.
pub fn run(shell: Shell, context: &Context) -> Result<u8, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut cli::command(), "unisono", &mut script);
    let script = String::from_utf8_lossy(&script);
    context.out.piece(&script);
    context.out.json(&script);
    DONE
}
