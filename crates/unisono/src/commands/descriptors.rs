//! Mesh graph descriptors as the user names them.

use crate::context::Context;
use crate::exit::Failure;
use std::io::Read;
use std::path::Path;
use unisono_data::DataError;
use unisono_data::files::open_regular;
use unisono_mesh::descriptor::{self, Checked, MAX_BYTES};

/// Reads and checks the descriptor that `name` means, and tells its warnings.
///
/// # Errors
/// No such file, or everything that is wrong with it.
pub fn load(name: &str, context: &Context) -> Result<Checked, Failure> {
    let path = Path::new(name);
    let file = open_regular(path).map_err(Failure::input)?;
    let mut text = Vec::new();
    // One byte more, so that the check sees that the file is too long.
    let read = file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| Failure::input(DataError::read(path, &error)))?;
    let checked = descriptor::check(name, &text).map_err(Failure::input)?;
    for warning in checked.warnings.list() {
        context.out.warn(format!("{name}:{warning}"));
    }
    Ok(checked)
}
