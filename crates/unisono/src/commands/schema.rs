//! `unisono schema`: the JSON schema of `run.yaml`, for editors.

use super::DONE;
use crate::context::Context;
use crate::exit::Failure;
use unisono_train::config;

/// See the module.
///
/// # Errors
/// None; what cannot be written is told by the caller.
pub fn run(context: &Context) -> Result<u8, Failure> {
    let schema = config::schema();
    context.out.result(format!("{schema:#}"));
    context.out.json(&schema);
    DONE
}
