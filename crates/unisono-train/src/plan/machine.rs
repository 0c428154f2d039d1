//! Where a run's mesh lies on the machine that a descriptor describes.

use crate::config::{DESCRIPTOR, Loaded};
use unisono_mesh::MeshShape;
use unisono_mesh::descriptor::{Selection, Wish, select};

/// The devices of the named machine that make up the mesh; none where no machine was named, and any mesh fits.
///
/// # Errors
/// A sentence: a descriptor that cannot be read or is wrong, or a machine that cannot hold the mesh.
pub(super) fn selected(loaded: &Loaded) -> Result<Option<Selection>, String> {
    let device = &loaded.config.device;
    let wish = Wish {
        environment: loaded.descriptor.as_deref(),
        configured: device.mesh_graph_descriptor.as_deref(),
        ..Wish::default()
    };
    if wish.environment.or(wish.configured).is_none() {
        return Ok(None);
    }
    let shape = MeshShape::new(&device.mesh_shape).map_err(|error| error.to_string())?;
    select(&shape, wish).map(Some).map_err(|error| match wish.environment {
        Some(name) => format!("{DESCRIPTOR}={name}: {error}"),
        None => error.to_string(),
    })
}

/// The key at which a mesh that does not fit is to be mended; none where the environment names the machine.
pub(super) fn written_at(loaded: &Loaded) -> Option<&'static str> {
    match loaded.descriptor {
        Some(_) => None,
        None => Some("device_config.mesh_graph_descriptor"),
    }
}
