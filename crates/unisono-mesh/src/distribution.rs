//! How a tensor is dealt out over the devices of a mesh: what a mapper decides before any value moves.
//!
//! The rules are those of TT-NN's mesh mappers. A mapper has one [`MapPlacement`] per axis of the *distribution*: the mesh
//! itself, or another shape laid over it. Cutting happens first; then the pieces are copied along the replicated axes.

use crate::draw::counted;
use crate::{MeshCoordinate, MeshError, MeshShape, Placement};
use std::ops::Range;

/// What happens along one axis of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapPlacement {
    /// The tensor dim is cut into consecutive parts, one for each index of the axis. Negative dims count from the last, -1.
    Shard(isize),
    /// Each index of the axis gets the same.
    Replicate,
}

/// The shape that a distribution or a composition is laid over.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Over {
    /// The mesh as it is.
    #[default]
    Mesh,
    /// All devices of the mesh as one line, in row-major order.
    Line,
    /// Another shape, of at most as many devices (`mesh_shape_override` in TT-NN). Where it fits into the mesh on every axis
    /// it lies on the coordinates from the origin on; otherwise on the first devices in row-major order.
    Shape(MeshShape),
}

impl Over {
    /// The shape that it lays over a mesh.
    ///
    /// # Errors
    /// [`MeshError::Distribution`] for a shape of more devices than the mesh.
    pub fn shape(&self, mesh: &MeshShape) -> Result<MeshShape, MeshError> {
        let shape = match self {
            Over::Mesh => mesh.clone(),
            Over::Line => MeshShape::new(&[mesh.num_devices()])?,
            Over::Shape(shape) => shape.clone(),
        };
        devices_of(&shape, mesh)?;
        Ok(shape)
    }
}

/// Which devices a distribution takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DistributionMode {
    /// The box at the mesh's origin: coordinates are the same in both.
    Submesh,
    /// The first devices of the mesh in row-major order.
    RowMajor,
}

/// How a tensor is to be dealt out: one placement per axis of what it is laid over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MapperConfig {
    /// One placement per axis, outermost first.
    pub placements: Vec<MapPlacement>,
    /// The shape they are for.
    pub over: Over,
}

impl MapperConfig {
    /// One placement per axis of the mesh.
    pub fn new(placements: &[MapPlacement]) -> Self {
        Self {
            placements: placements.to_vec(),
            over: Over::Mesh,
        }
    }

    /// One placement per axis of another shape (`mesh_shape_override`).
    pub fn over(placements: &[MapPlacement], shape: MeshShape) -> Self {
        Self {
            placements: placements.to_vec(),
            over: Over::Shape(shape),
        }
    }

    /// The whole tensor on every device.
    pub fn replicate() -> Self {
        Self {
            placements: vec![MapPlacement::Replicate],
            over: Over::Line,
        }
    }

    /// Dim `dim` cut over all devices of the mesh, taken as one line.
    pub fn shard(dim: isize) -> Self {
        Self {
            placements: vec![MapPlacement::Shard(dim)],
            over: Over::Line,
        }
    }

    /// For a mesh of two axes: the dim that its rows cut and the dim that its columns cut; `None` replicates. The order is
    /// (rows, columns) of the *mesh*: `grid(Some(-1), Some(-2))` lays the last dim along the rows.
    pub fn grid(row_dim: Option<isize>, col_dim: Option<isize>) -> Self {
        let placement = |dim: Option<isize>| dim.map_or(MapPlacement::Replicate, MapPlacement::Shard);
        Self {
            placements: vec![placement(row_dim), placement(col_dim)],
            over: Over::Mesh,
        }
    }
}

/// Where each part of a tensor goes. Its *places* are the indices of the distribution shape in row-major order.
///
/// ```
/// use unisono_mesh::{Distribution, MapperConfig, MeshShape};
/// let mesh = MeshShape::new(&[2, 4])?;
/// let rows = Distribution::of(&mesh, &MapperConfig::shard(0), &[16, 3])?;
/// assert_eq!((rows.num_places(), rows.local_shape()), (8, &[2, 3][..]));
/// assert_eq!(rows.ranges(5), [10..12, 0..3]);
/// # Ok::<(), unisono_mesh::MeshError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    mesh: MeshShape,
    mode: DistributionMode,
    shape: MeshShape,
    devices: Vec<usize>,
    placements: Vec<Placement>,
    global: Vec<usize>,
    local: Vec<usize>,
}

impl Distribution {
    /// The distribution of a tensor of shape `tensor` over a mesh.
    ///
    /// A distribution of one axis may have fewer parts than devices: the last devices then get none, and the shape becomes
    /// the number of parts (3 elements over 4 devices give 3 parts; 6 give 3 parts of 2).
    ///
    /// # Errors
    /// [`MeshError::Distribution`]: a shape of more devices than the mesh, another number of placements than axes, a dim
    /// outside the tensor, a dim cut twice, or parts that would not be of equal size, with the sizes that would work.
    pub fn of(mesh: &MeshShape, config: &MapperConfig, tensor: &[usize]) -> Result<Self, MeshError> {
        let mut shape = config.over.shape(mesh)?;
        let axes = shape.num_axes();
        if config.placements.len() != axes {
            return Err(refuse(format!(
                "the mapper has {} but the distribution shape {shape} has {}; give one placement per axis",
                counted(config.placements.len(), "placement"),
                counted(axes, "axis"),
            )));
        }
        let mut local = tensor.to_vec();
        let mut placements: Vec<Placement> = Vec::with_capacity(axes);
        for (axis, placement) in config.placements.iter().enumerate() {
            let MapPlacement::Shard(given) = placement else {
                placements.push(Placement::Replicate);
                continue;
            };
            let dim = dim_of(*given, tensor)?;
            if let Some(first) = placements.iter().position(|p| *p == Placement::Shard(dim)) {
                return Err(refuse(format!(
                    "dim {dim} of the tensor {tensor:?} is cut along axis {first} and again along axis {axis}; one axis can \
                     cut a dim: replicate along one of them, or cut the dim over all devices as one line"
                )));
            }
            let devices = shape.sizes()[axis];
            let (part, parts) = parts_of(tensor, dim, devices)?;
            if parts < devices {
                if axes > 1 {
                    return Err(refuse(format!(
                        "dim {dim} of the tensor {tensor:?} makes {} of {part}, but axis {axis} of the distribution shape \
                         {shape} has {devices} devices; only a distribution of one axis may leave devices empty{}",
                        counted(parts, "part"),
                        sizes_that_work(tensor[dim], devices),
                    )));
                }
                shape = MeshShape::new(&[parts])?;
            }
            local[dim] = part;
            placements.push(Placement::Shard(dim));
        }
        let (mode, devices) = devices_of(&shape, mesh)?;
        Ok(Self {
            mesh: mesh.clone(),
            mode,
            shape,
            devices,
            placements,
            global: tensor.to_vec(),
            local,
        })
    }

    /// The mesh that it lies on.
    pub fn mesh(&self) -> &MeshShape {
        &self.mesh
    }

    /// Which devices of the mesh it takes.
    pub fn mode(&self) -> DistributionMode {
        self.mode
    }

    /// The distribution shape: that of the places.
    pub fn shape(&self) -> &MeshShape {
        &self.shape
    }

    /// One placement per axis of the distribution shape, with dims counted from 0.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }

    /// The shape of the whole tensor.
    pub fn global_shape(&self) -> &[usize] {
        &self.global
    }

    /// The shape of each part.
    pub fn local_shape(&self) -> &[usize] {
        &self.local
    }

    /// The number of places.
    pub fn num_places(&self) -> usize {
        self.devices.len()
    }

    /// The device of the mesh behind each place.
    pub fn devices(&self) -> &[usize] {
        &self.devices
    }

    /// The coordinate in the mesh behind each place.
    pub fn coordinates(&self) -> Vec<MeshCoordinate> {
        let coordinate = |device: &usize| self.mesh.coordinate(*device);
        self.devices
            .iter()
            .map(|device| coordinate(device).expect("bug in unisono: a distribution lies inside its mesh"))
            .collect()
    }

    /// The first element of a place's part in the whole tensor, by dim.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn start(&self, place: usize) -> Vec<usize> {
        let mut start = vec![0; self.local.len()];
        for (index, placement) in self.index(place).into_iter().zip(&self.placements) {
            if let Placement::Shard(dim) = placement {
                start[*dim] = index * self.local[*dim];
            }
        }
        start
    }

    /// The elements of the whole tensor that a place holds, by dim.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn ranges(&self, place: usize) -> Vec<Range<usize>> {
        let parts = self.start(place).into_iter().zip(&self.local);
        parts.map(|(start, len)| start..start + len).collect()
    }

    /// The first place that holds the same part: index 0 on every replicated axis.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn source(&self, place: usize) -> usize {
        let index = self.index(place).into_iter().zip(&self.placements);
        let strides = self.shape.strides();
        index
            .zip(strides)
            .map(|((index, placement), stride)| if placement.is_replicate() { 0 } else { index * stride })
            .sum()
    }

    fn index(&self, place: usize) -> Vec<usize> {
        assert!(
            place < self.devices.len(),
            "place {place} of a distribution of {}",
            self.devices.len()
        );
        let sizes = self.shape.sizes().iter().zip(self.shape.strides());
        sizes.map(|(size, stride)| place / stride % size).collect()
    }
}

/// The devices of a mesh that a shape is laid on, in the shape's row-major order (`compute_distribution_to_mesh_mapping` in
/// TT-NN).
///
/// # Errors
/// [`MeshError::Distribution`] for a shape of more devices than the mesh.
pub fn devices_of(shape: &MeshShape, mesh: &MeshShape) -> Result<(DistributionMode, Vec<usize>), MeshError> {
    let (given, there) = (shape.num_devices(), mesh.num_devices());
    if given > there {
        return Err(refuse(format!(
            "the shape {shape} has {given} devices but the mesh {mesh} has {there}; give a shape of at most {there} devices"
        )));
    }
    let fits =
        shape.num_axes() == mesh.num_axes() && shape.sizes().iter().zip(mesh.sizes()).all(|(size, room)| size <= room);
    if !fits {
        return Ok((DistributionMode::RowMajor, (0..given).collect()));
    }
    let devices = shape.coordinates().map(|coordinate| mesh.device(&coordinate));
    Ok((DistributionMode::Submesh, devices.collect::<Result<_, _>>()?))
}

/// A dim counted from 0; negative ones count from the last, -1.
///
/// # Errors
/// [`MeshError::Distribution`] for a dim outside the tensor.
pub fn dim_of(dim: isize, tensor: &[usize]) -> Result<usize, MeshError> {
    let rank = tensor.len();
    let from_first = if dim < 0 {
        dim.checked_add_unsigned(rank)
    } else {
        Some(dim)
    };
    match from_first
        .and_then(|dim| usize::try_from(dim).ok())
        .filter(|dim| *dim < rank)
    {
        Some(dim) => Ok(dim),
        None if rank == 0 => Err(refuse(format!(
            "dim {dim} of a tensor without dims; it can only be replicated"
        ))),
        None => Err(refuse(format!(
            "dim {dim} lies outside the tensor {tensor:?}; its dims are 0 to {}, or -{rank} to -1 from the last",
            rank - 1
        ))),
    }
}

/// Size and number of the parts of a dim over `devices` devices.
fn parts_of(tensor: &[usize], dim: usize, devices: usize) -> Result<(usize, usize), MeshError> {
    let size = tensor[dim];
    if size == 0 {
        return Ok((0, devices));
    }
    let part = size.div_ceil(devices);
    if size.is_multiple_of(part) {
        return Ok((part, size / part));
    }
    Err(refuse(format!(
        "dim {dim} of the tensor {tensor:?} over {devices} devices makes parts of {part} with {} left for the last; all parts \
         must be of equal shape{}",
        size % part,
        sizes_that_work(size, devices),
    )))
}

/// A clause with the nearest sizes and the numbers of devices that would do.
fn sizes_that_work(size: usize, devices: usize) -> String {
    let below = size / devices * devices;
    let sizes: Vec<String> = [below, below.saturating_add(devices)]
        .iter()
        .filter(|size| **size > 0)
        .map(usize::to_string)
        .collect();
    let numbers: Vec<usize> = (1..=devices).filter(|n| size.is_multiple_of(*n)).collect();
    let last = numbers.len().saturating_sub(4);
    let numbers: Vec<String> = numbers[last..].iter().map(usize::to_string).collect();
    format!(
        "; over {devices} devices a size of {} works, and {size} works over {} {}",
        sizes.join(" or "),
        numbers.join(", "),
        if numbers == ["1"] { "device" } else { "devices" },
    )
}

pub(crate) fn refuse(what: String) -> MeshError {
    MeshError::Distribution { what }
}
