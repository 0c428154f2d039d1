//! Host arrays dealt out over a mesh, before they are on devices or after.
//!
//! ```
//! use unisono_tensor::distributed::{aggregate, distribute};
//! use unisono_tensor::{ComposerConfig, HostTensor, MapperConfig, MeshShape};
//! let x = HostTensor::new(&(0..16).collect::<Vec<i32>>(), &[4, 4])?;
//! let mesh = MeshShape::new(&[2, 2])?;
//! // Rows of the mesh cut dim 0, its columns dim 1.
//! let parts = distribute(&x, &MapperConfig::grid(Some(0), Some(1)), &mesh)?;
//! assert_eq!(parts.shards()[3].to_vec::<i32>()?, [10, 11, 14, 15]);
//! assert_eq!(parts.to_host()?, x);
//! // Joining the same parts as one line stacks them.
//! assert_eq!(aggregate(&parts, &ComposerConfig::concat(0))?.shape(), [8, 2]);
//! # Ok::<(), unisono_tensor::TensorError>(())
//! ```

mod default;
mod device;
mod device_tensors;
mod print;
mod shards;
mod visual;

pub(crate) use default::Defaults;
pub use device_tensors::{combine_device_tensors, get_device_tensors};
pub use shards::{from_host_shards, from_host_shards_as};
pub use visual::{visualize_mesh_device, visualize_system_mesh, visualize_tensor};

use crate::error::TensorError;
use crate::{HostTensor, Result};
use unisono_mesh::{ComposerConfig, Composition, Distribution, MapperConfig, MeshShape};

/// A host array dealt out over the devices of a mesh: one shard a place, replicas sharing their memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistributedHostTensor {
    distribution: Distribution,
    /// One a place of the distribution.
    shards: Vec<HostTensor>,
}

/// Deals an array out as `mapper` says, on the host: first it is cut, then replicas are handed out, which share the memory of
/// the first.
///
/// # Errors
/// What [`Distribution::of`] says: shapes, ranks, and parts of unequal size.
pub fn distribute(host: &HostTensor, mapper: &MapperConfig, mesh: &MeshShape) -> Result<DistributedHostTensor> {
    let distribution = Distribution::of(mesh, mapper, host.shape())?;
    let shards = one_a_place(&distribution, |place| {
        Ok(host.part(&distribution.start(place), distribution.local_shape()))
    })?;
    Ok(DistributedHostTensor { distribution, shards })
}

/// An array a place: made for the first place that holds a part, the same memory for its copies.
fn one_a_place(
    distribution: &Distribution,
    mut make: impl FnMut(usize) -> Result<HostTensor>,
) -> Result<Vec<HostTensor>> {
    let mut shards: Vec<HostTensor> = Vec::with_capacity(distribution.num_places());
    for place in 0..distribution.num_places() {
        // A source is never behind its copies, so it is there already.
        let source = distribution.source(place);
        shards.push(match source < place {
            true => shards[source].clone(),
            false => make(place)?,
        });
    }
    Ok(shards)
}

/// Puts the shards together as `composer` says. A replicated axis is joined like any other, so its copies stand one after
/// another in the result.
///
/// # Errors
/// What [`Composition::of`] says, or more bytes than the host can give.
pub fn aggregate(tensor: &DistributedHostTensor, composer: &ComposerConfig) -> Result<HostTensor> {
    let distribution = &tensor.distribution;
    let mut place_of = vec![None; distribution.mesh().num_devices()];
    for (place, device) in distribution.devices().iter().enumerate() {
        place_of[*device] = Some(place);
    }
    let holds: Vec<bool> = place_of.iter().map(Option::is_some).collect();
    let composition = Composition::of(distribution.mesh(), composer, distribution.local_shape(), &holds)?;
    let parts: Vec<(&HostTensor, &[usize])> = composition
        .parts()
        .iter()
        .filter_map(|(device, start)| Some((&tensor.shards[place_of[*device]?], start.as_slice())))
        .collect();
    HostTensor::joined(composition.shape(), &parts)
}

impl DistributedHostTensor {
    /// Which part goes where.
    pub fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// The shards, one a place of the distribution.
    pub fn shards(&self) -> &[HostTensor] {
        &self.shards
    }

    /// Shape of the whole array.
    pub fn shape(&self) -> &[usize] {
        self.distribution.global_shape()
    }

    /// What the elements are.
    pub fn dtype(&self) -> crate::Dtype {
        // A distribution has at least one place.
        self.shards[0].dtype()
    }

    /// The whole array, put together as its placements say.
    ///
    /// # Errors
    /// Copies on several devices: which of them is meant, or all, is for a composer to say.
    pub fn to_host(&self) -> Result<HostTensor> {
        let composer = own_composer(&self.distribution)?;
        aggregate(self, &composer)
    }
}

/// The composer that undoes a distribution without copies.
pub(crate) fn own_composer(distribution: &Distribution) -> Result<ComposerConfig> {
    let sizes = distribution.shape().sizes();
    let dims: Vec<Option<usize>> = distribution.placements().iter().map(|p| p.sharded_dim()).collect();
    let written = |dims: &[Option<usize>]| -> Vec<isize> { dims.iter().map(|dim| dim.unwrap_or(0) as isize).collect() };
    let Some(axis) = (0..sizes.len()).find(|axis| sizes[*axis] > 1 && dims[*axis].is_none()) else {
        return Ok(ComposerConfig::over(&written(&dims), distribution.shape().clone()));
    };
    let one: Vec<usize> = sizes
        .iter()
        .zip(&dims)
        .map(|(size, dim)| if dim.is_none() { 1 } else { *size })
        .collect();
    Err(TensorError::Argument {
        op: "to_host",
        what: format!(
            "along axis {axis} of the distribution {sizes:?} each of {} devices holds a copy; give aggregate() a composer: \
             ComposerConfig::over(&{:?}, MeshShape::new(&{one:?})?) reads one copy, ComposerConfig::concat(0) joins the \
             parts of all devices in dim 0",
            sizes[axis],
            written(&dims),
        ),
    })
}
