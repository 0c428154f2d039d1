//! Where a run's mesh lies on the machine that a descriptor describes.

use crate::config::Loaded;
use unisono_mesh::MeshShape;
use unisono_mesh::descriptor::{NamedBy, Selection, Wish, select};

/// The devices of the named machine that make up the mesh; none where no machine was named, and any mesh fits.
///
/// # Errors
/// A sentence: a descriptor that cannot be read or is wrong, or a machine that cannot hold the mesh.
pub(super) fn selected(loaded: &Loaded) -> Result<Option<Selection>, String> {
    let Some((by, name)) = &loaded.descriptor else {
        return Ok(None);
    };
    let shape = MeshShape::new(&loaded.config.device.mesh_shape).map_err(|error| error.to_string())?;
    let wish = match by {
        NamedBy::Environment => Wish {
            environment: Some(name),
            ..Wish::default()
        },
        _ => Wish {
            configured: Some(name),
            ..Wish::default()
        },
    };
    select(&shape, wish).map(Some).map_err(|error| match by {
        NamedBy::Environment => format!("{}={}: {error}", crate::config::DESCRIPTOR, name),
        _ => error.to_string(),
    })
}

/// The key at which a mesh that does not fit is to be mended; none where the environment names the machine.
pub(super) fn written_at(loaded: &Loaded) -> Option<&'static str> {
    match &loaded.descriptor {
        Some((NamedBy::Environment, _)) => None,
        _ => Some("device_config.mesh_graph_descriptor"),
    }
}
