//! Distributed arrays from shards that exist.

use super::DistributedHostTensor;
use crate::host_tensor::refuse;
use crate::{HostTensor, Result};
use unisono_mesh::{Distribution, MapPlacement, MapperConfig, MeshShape, dim_of};

/// An array whose shards lie on the devices of `mesh` in row-major order, taken as parts of dim 0 over one line of devices (or
/// as one copy, for one shard). [`from_host_shards_as`] takes any other placement.
///
/// # Errors
/// No shard or more than devices, shards of several shapes or kinds, or several shards without dims.
pub fn from_host_shards(shards: &[HostTensor], mesh: &MeshShape) -> Result<DistributedHostTensor> {
    let placement = match shards {
        [_] => MapPlacement::Replicate,
        _ => MapPlacement::Shard(0),
    };
    // The number of shards is checked in words of its own where it is 0.
    let line = MeshShape::new(&[shards.len().max(1)])?;
    from_host_shards_as(shards, &MapperConfig::over(&[placement], line), mesh)
}

/// An array whose shards, one a place of the distribution in row-major order, lie as `mapper` would have dealt them out.
///
/// # Errors
/// What [`Distribution::of`] says, another number of shards than places, shards of several shapes or kinds, or replicas that
/// differ.
pub fn from_host_shards_as(
    shards: &[HostTensor],
    mapper: &MapperConfig,
    mesh: &MeshShape,
) -> Result<DistributedHostTensor> {
    const OP: &str = "from_host_shards";
    let [first, rest @ ..] = shards else {
        return Err(refuse(OP, format!("no shards; give one for each device of {mesh}")));
    };
    if let Some(other) = rest
        .iter()
        .find(|s| s.shape() != first.shape() || s.dtype() != first.dtype())
    {
        return Err(refuse(
            OP,
            format!("shards {first:?} and {other:?}; all shards must be of one shape and kind"),
        ));
    }
    let distribution = Distribution::of(mesh, mapper, &whole_shape(first.shape(), mapper, mesh)?)?;
    if distribution.num_places() != shards.len() {
        return Err(refuse(
            OP,
            format!(
                "{} shards for the distribution {}, which has {} places; give one a place",
                shards.len(),
                distribution.shape(),
                distribution.num_places()
            ),
        ));
    }
    let mut held: Vec<HostTensor> = Vec::with_capacity(shards.len());
    for (place, shard) in shards.iter().enumerate() {
        let source = distribution.source(place);
        if shard != &shards[source] {
            return Err(refuse(
                OP,
                format!("the placements call shards {source} and {place} copies of one part, but their values differ"),
            ));
        }
        let shared = if source < place {
            held[source].clone()
        } else {
            shard.clone()
        };
        held.push(shared);
    }
    Ok(DistributedHostTensor {
        distribution,
        shards: held,
    })
}

/// The shape whose parts by `mapper` have shape `local`. A number of placements that does not fit is left to the distribution.
pub(super) fn whole_shape(local: &[usize], mapper: &MapperConfig, mesh: &MeshShape) -> Result<Vec<usize>> {
    let over = mapper.over.shape(mesh)?;
    let mut whole = local.to_vec();
    for (placement, size) in mapper.placements.iter().zip(over.sizes()) {
        if let MapPlacement::Shard(dim) = placement {
            let dim = dim_of(*dim, local)?;
            whole[dim] = whole[dim].checked_mul(*size).ok_or_else(|| {
                refuse(
                    "from_host_shards",
                    format!("{size} parts of {local:?} are more than can be counted"),
                )
            })?;
        }
    }
    Ok(whole)
}
