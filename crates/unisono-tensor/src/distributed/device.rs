//! Between the host and the devices: to where a distribution says, and back.

use super::{DistributedHostTensor, aggregate, distribute, one_a_place, own_composer};
use crate::host_tensor::refuse;
use crate::tensor::{Meta, Tensor};
use crate::{HostTensor, MeshDevice, Result};
use unisono_mesh::{ComposerConfig, Distribution, DistributionMode, MapPlacement, MapperConfig, Placement};
use unisono_runtime::{HostData, Kind};

impl DistributedHostTensor {
    /// Copies each shard to its device.
    ///
    /// The tensor lies on `device` itself where the distribution is over that mesh as it is, where every device gets a whole
    /// copy, or where the mesh is a line and the distribution cuts all of it. Otherwise it lies on a view of the mesh: the
    /// box at its origin, or the first devices in row-major order ([`DistributionMode`]); an axis of such a view is called as
    /// that of the mesh where both have as many, else `axis0`, `axis1`, … An axis of one device is replicated.
    ///
    /// ```
    /// use unisono_tensor::distributed::distribute;
    /// use unisono_tensor::{HostTensor, MapperConfig, MeshDevice, Options};
    /// let device = MeshDevice::open_grid(&[2, 2], Options::default())?;
    /// let x = HostTensor::new(&[1u8, 2, 3, 4, 5, 6], &[3, 2])?;
    /// // Three rows over four devices: the last one gets none.
    /// let on_devices = distribute(&x, &MapperConfig::shard(0), &device.view().shape())?.to_device(&device)?;
    /// assert_eq!(on_devices.device().view().ids(), [0, 1, 2]);
    /// assert_eq!(on_devices.to_host()?, x);
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// Another mesh than the array was dealt out over, or too little memory.
    pub fn to_device(&self, device: &MeshDevice) -> Result<Tensor> {
        let distribution = self.distribution();
        let shape = device.view().shape();
        if *distribution.mesh() != shape {
            return Err(refuse(
                "to_device",
                format!(
                    "the array was dealt out over the mesh {} but the device is a mesh {shape}; distribute it over that",
                    distribution.mesh()
                ),
            ));
        }
        let (device, placements) = place(distribution, device)?;
        let meta = meta_of(&device, self.dtype(), self.shape(), &placements);
        let t = Tensor::empty(&device, meta, Kind::Data)?;
        upload(&t, self.shards())?;
        Ok(t)
    }
}

/// The mesh that a distribution's tensor lies on, with a placement for each of its axes.
pub(super) fn place(distribution: &Distribution, device: &MeshDevice) -> Result<(MeshDevice, Vec<Placement>)> {
    let (mesh, over) = (distribution.mesh(), distribution.shape());
    let whole = distribution.num_places() == mesh.num_devices();
    let axes = mesh.num_axes();
    let replicated = distribution.placements().iter().all(|p| p.is_replicate());
    let (view, placements) = match distribution.placements() {
        placements if over == mesh => (None, placements.to_vec()),
        _ if whole && replicated => (None, vec![Placement::Replicate; axes]),
        [placement] if whole && mesh.is_line() => {
            let along = |size: &usize| if *size > 1 { *placement } else { Placement::Replicate };
            (None, mesh.sizes().iter().map(along).collect())
        }
        placements => {
            let view = match distribution.mode() {
                DistributionMode::Submesh => device.view().submesh(over.sizes(), None)?,
                DistributionMode::RowMajor => device.view().first(over.sizes())?,
            };
            (Some(view), placements.to_vec())
        }
    };
    let device = match view {
        Some(view) => device.known_view(view)?,
        None => device.clone(),
    };
    let sizes = device.mesh().axes().iter().map(|axis| axis.size);
    // A mesh without axes has no placements; its shape has one axis all the same.
    let placements = sizes
        .zip(placements)
        .map(|(size, placement)| if size > 1 { placement } else { Placement::Replicate })
        .collect();
    Ok((device, placements))
}

pub(super) fn meta_of(device: &MeshDevice, dtype: crate::Dtype, shape: &[usize], placements: &[Placement]) -> Meta {
    let mut meta = Meta::replicated(device, dtype, shape);
    for (index, placement) in placements.iter().enumerate() {
        if let Placement::Shard(dim) = placement {
            let size = device.axis_at(index).size;
            meta.local[*dim] /= size;
            meta.units[*dim] = size;
        }
    }
    meta.placements = placements.to_vec();
    meta
}

/// One shard a place; one array where all share it.
fn upload(t: &Tensor, shards: &[HostTensor]) -> Result<()> {
    let data = match shards.iter().all(|shard| shard.shares_memory(&shards[0])) {
        true => HostData::Bytes(shards[0].shared_bytes()),
        false => HostData::BytesPerDevice(shards.iter().map(HostTensor::shared_bytes).collect()),
    };
    Ok(t.device().runtime().upload(t.buffer(), data)?)
}

impl MeshDevice {
    /// Copies a host array to this mesh as `mapper` says; see [`DistributedHostTensor::to_device`].
    ///
    /// # Errors
    /// As [`distribute`] and [`DistributedHostTensor::to_device`].
    pub fn distribute(&self, host: &HostTensor, mapper: &MapperConfig) -> Result<Tensor> {
        distribute(host, mapper, &self.view().shape())?.to_device(self)
    }

    /// Copies a host array to this mesh: as the mapper in whose scope this is called says
    /// ([`MeshDevice::with_default_mapper`]), otherwise whole to every device.
    ///
    /// # Errors
    /// As [`MeshDevice::distribute`].
    pub fn from_host(&self, host: &HostTensor) -> Result<Tensor> {
        let mapper = self.default_mapper().unwrap_or_else(MapperConfig::replicate);
        self.distribute(host, &mapper)
    }
}

impl Tensor {
    /// Where each part of the whole tensor lies; the mesh is the tensor's own ([`Tensor::device`]).
    ///
    /// # Errors
    /// A partial sum.
    pub fn distribution(&self) -> Result<Distribution> {
        self.complete("distribution", "the tensor")?;
        let placement = |placement: &Placement| match placement {
            Placement::Shard(dim) => MapPlacement::Shard(*dim as isize),
            _ => MapPlacement::Replicate,
        };
        let mut placements: Vec<MapPlacement> = self.placements().iter().map(placement).collect();
        let mesh = self.device().view().shape();
        // A mesh without axes has a shape of one axis all the same.
        placements.resize(mesh.num_axes(), MapPlacement::Replicate);
        Ok(Distribution::of(&mesh, &MapperConfig::new(&placements), &self.shape())?)
    }

    /// Reads the shards, each part once: replicas share the first's memory.
    ///
    /// # Errors
    /// A partial sum, or a failed command.
    pub fn to_host_shards(&self) -> Result<DistributedHostTensor> {
        let distribution = self.distribution()?;
        let shards = one_a_place(&distribution, |place| self.read_shard(place))?;
        Ok(DistributedHostTensor { distribution, shards })
    }

    /// The shard of the device at a place of the tensor's mesh.
    ///
    /// # Errors
    /// A place that there is not, or a failed command.
    pub fn read_shard(&self, place: usize) -> Result<HostTensor> {
        let bytes = self.device().runtime().read_bytes(self.buffer(), place)?;
        HostTensor::from_bytes(self.dtype(), self.local_shape(), bytes)
    }

    /// The whole tensor on the host: as the composer in whose scope this is called says
    /// ([`MeshDevice::with_default_composer`]), otherwise put together as the placements say.
    ///
    /// # Errors
    /// Copies on several devices without a composer: which of them is meant, or all, is for it to say. A partial sum, or a
    /// failed command.
    pub fn to_host(&self) -> Result<HostTensor> {
        let composer = match self.device().default_composer() {
            Some(composer) => composer,
            None => own_composer(&self.distribution()?)?,
        };
        self.aggregate(&composer)
    }

    /// Reads the shards and puts them together as `composer` says; see [`aggregate`].
    ///
    /// # Errors
    /// As [`aggregate`]; a partial sum, or a failed command.
    pub fn aggregate(&self, composer: &ComposerConfig) -> Result<HostTensor> {
        aggregate(&self.to_host_shards()?, composer)
    }

    /// Copies a host array of this tensor's shape and kind into it, each device its part: new values in the same memory, as
    /// the inputs of a captured trace need them.
    ///
    /// # Errors
    /// Another shape or kind, or a partial sum.
    pub fn copy_from_host(&self, host: &HostTensor) -> Result<()> {
        if host.shape() != self.shape() || host.dtype() != self.dtype() {
            return Err(refuse(
                "copy_from_host",
                format!(
                    "{host:?} into a tensor {:?} of {}; shape and kind must be equal",
                    self.shape(),
                    self.dtype().name()
                ),
            ));
        }
        let distribution = self.distribution()?;
        let shards = one_a_place(&distribution, |place| {
            Ok(host.part(&distribution.start(place), distribution.local_shape()))
        })?;
        upload(self, &shards)?;
        self.renew_copy()
    }
}
