//! Views: a mesh laid over devices of a machine, and the meshes that are cut out of it.

use crate::shape::row_major_strides;
use crate::{Mesh, MeshCoordinate, MeshError, MeshShape};
use std::fmt;
use std::sync::Arc;

/// A mesh with the device that stands at each of its places.
///
/// The *system* is the grid that was opened first; its devices are numbered row-major. A view is a mesh whose places, row-major
/// again, are filled by some of these devices, each at most once. Programs on a view speak of places; which devices these are is
/// known here and below.
#[derive(Clone, PartialEq, Eq)]
pub struct MeshView {
    system: Arc<System>,
    mesh: Mesh,
    /// The system's device at each place.
    devices: Vec<usize>,
    /// Where a grid is asked for again when the view is reshaped: a coordinate of the system.
    offset: Vec<usize>,
}

#[derive(PartialEq, Eq)]
struct System {
    shape: MeshShape,
    /// What each device is called outside, row-major.
    ids: Vec<usize>,
}

impl MeshView {
    /// A whole system: device `i` stands at place `i` and is called `i`.
    pub fn whole(mesh: Mesh) -> MeshView {
        let ids = (0..mesh.num_devices()).collect();
        MeshView::of_ids(mesh, ids)
    }

    /// A whole system whose devices are called `ids`, row-major.
    ///
    /// # Errors
    /// [`MeshError::Ids`] unless there is one id a device, each once.
    pub fn with_ids(mesh: Mesh, ids: Vec<usize>) -> Result<MeshView, MeshError> {
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if ids.len() != mesh.num_devices() || sorted.len() != ids.len() {
            return Err(MeshError::Ids {
                ids: format!("{ids:?}"),
                mesh: mesh.shape().to_string(),
                devices: mesh.num_devices(),
            });
        }
        Ok(MeshView::of_ids(mesh, ids))
    }

    fn of_ids(mesh: Mesh, ids: Vec<usize>) -> MeshView {
        let shape = mesh.shape();
        MeshView {
            devices: (0..ids.len()).collect(),
            offset: vec![0; shape.num_axes()],
            system: Arc::new(System { shape, ids }),
            mesh,
        }
    }

    /// The mesh; its places are row-major.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The shape of the mesh; `[1]` for a mesh without axes.
    pub fn shape(&self) -> MeshShape {
        self.mesh.shape()
    }

    /// The shape of the system that the devices belong to.
    pub fn system_shape(&self) -> &MeshShape {
        &self.system.shape
    }

    /// What the system's devices are called, row-major.
    pub fn system_ids(&self) -> &[usize] {
        &self.system.ids
    }

    /// Number of devices.
    pub fn num_devices(&self) -> usize {
        self.devices.len()
    }

    /// The system's device at each place, row-major.
    pub fn devices(&self) -> &[usize] {
        &self.devices
    }

    /// What the device at each place is called, row-major.
    pub fn ids(&self) -> Vec<usize> {
        self.devices.iter().map(|device| self.system.ids[*device]).collect()
    }

    /// What the device at a coordinate is called.
    ///
    /// # Errors
    /// [`MeshError::CoordinateAxes`] or [`MeshError::CoordinateOutside`].
    pub fn id(&self, coordinate: &MeshCoordinate) -> Result<usize, MeshError> {
        Ok(self.system.ids[self.devices[self.shape().device(coordinate)?]])
    }

    /// Whether both are views of one system and all devices here are among those there.
    pub fn is_of(&self, other: &MeshView) -> bool {
        if !Arc::ptr_eq(&self.system, &other.system) {
            return false;
        }
        let mut there = vec![false; self.system.ids.len()];
        for device in &other.devices {
            there[*device] = true;
        }
        self.devices.iter().all(|device| there[*device])
    }

    /// Whether it is all of the system in the system's order.
    pub fn is_whole(&self) -> bool {
        self.devices.len() == self.system.ids.len() && self.devices.iter().enumerate().all(|(i, device)| i == *device)
    }

    /// The box of `shape` whose first place is `offset` (by default the first of this mesh). Submeshes may overlap: they share
    /// the devices. The axes keep their names.
    ///
    /// # Errors
    /// [`MeshError::Submesh`]: a shape or offset of another number of axes, a size of 0, or a box that sticks out.
    pub fn submesh(&self, shape: &[usize], offset: Option<&[usize]>) -> Result<MeshView, MeshError> {
        let parent = self.shape();
        let origin = vec![0; parent.num_axes()];
        let offset = offset.unwrap_or(&origin);
        let refuse = |problem: String| MeshError::Submesh {
            shape: format!("{shape:?}"),
            offset: format!("{offset:?}"),
            mesh: parent.to_string(),
            problem,
        };
        if shape.len() != parent.num_axes() || offset.len() != parent.num_axes() {
            return Err(refuse(format!(
                "it has {} sizes and {} offsets; this mesh has {} axes, give one of each for each",
                shape.len(),
                offset.len(),
                parent.num_axes()
            )));
        }
        for (axis, ((size, first), whole)) in shape.iter().zip(offset).zip(parent.sizes()).enumerate() {
            if *size == 0 {
                return Err(refuse(format!("axis {axis} has size 0; every axis needs at least 1")));
            }
            if first.checked_add(*size).is_none_or(|end| end > *whole) {
                return Err(refuse(format!(
                    "axis {axis} has {whole} devices; {size} from {first} on are too many: a size of {size} allows offsets up to {}",
                    whole.saturating_sub(*size)
                )));
            }
        }
        let strides = row_major_strides(parent.sizes());
        let devices = MeshShape::new(shape)?
            .coordinates()
            .map(|at| {
                let place: usize =
                    at.0.iter()
                        .zip(offset)
                        .zip(&strides)
                        .map(|((index, first), stride)| (index + first) * stride)
                        .sum();
                self.devices[place]
            })
            .collect();
        Ok(self.made(self.named_as_here(shape)?, devices))
    }

    /// All boxes of `shape` that tile this mesh, row-major over the boxes.
    ///
    /// # Errors
    /// As [`MeshView::submesh`], and [`MeshError::Submesh`] where a size does not divide that of its axis.
    pub fn submeshes(&self, shape: &[usize]) -> Result<Vec<MeshView>, MeshError> {
        let parent = self.shape();
        let first = self.submesh(shape, None)?;
        if let Some(axis) = (0..shape.len()).find(|axis| !parent.sizes()[*axis].is_multiple_of(shape[*axis])) {
            let size = parent.sizes()[axis];
            let fitting: Vec<usize> = (1..=size).filter(|n| size.is_multiple_of(*n)).collect();
            return Err(MeshError::Submesh {
                shape: format!("{shape:?}"),
                offset: format!("{:?}", vec![0; shape.len()]),
                mesh: parent.to_string(),
                problem: format!(
                    "axis {axis} has {size} devices, which tiles of {} do not fill; {fitting:?} do",
                    shape[axis]
                ),
            });
        }
        let blocks: Vec<usize> = parent.sizes().iter().zip(shape).map(|(all, one)| all / one).collect();
        let mut views = Vec::with_capacity(blocks.iter().product());
        for block in MeshShape::new(&blocks)?.coordinates() {
            let offset: Vec<usize> = block.0.iter().zip(shape).map(|(index, size)| index * size).collect();
            views.push(self.submesh(shape, Some(&offset))?);
        }
        drop(first);
        Ok(views)
    }

    /// The devices of these places as a line, in this order: a mesh of one axis called `axis0`.
    ///
    /// # Errors
    /// [`MeshError::DeviceOutside`] for a place that there is not, [`MeshError::Ids`] for one named twice.
    pub fn pick(&self, places: &[usize]) -> Result<MeshView, MeshError> {
        let shape = self.shape();
        for (i, place) in places.iter().enumerate() {
            shape.coordinate(*place)?;
            if places[..i].contains(place) {
                return Err(MeshError::Ids {
                    ids: format!("{places:?}"),
                    mesh: shape.to_string(),
                    devices: places.len(),
                });
            }
        }
        let devices = places.iter().map(|place| self.devices[*place]).collect();
        Ok(self.made(Mesh::grid(&[places.len()])?, devices))
    }

    /// The first devices, row-major, as a mesh of another shape.
    ///
    /// # Errors
    /// [`MeshError::Reshape`] where the shape needs more devices than there are.
    pub fn first(&self, shape: &[usize]) -> Result<MeshView, MeshError> {
        let wanted = MeshShape::new(shape)?.num_devices();
        if wanted > self.num_devices() {
            return Err(self.cannot_reshape(shape, format!("it needs {wanted} of them")));
        }
        Ok(self.made(self.named_as_here(shape)?, self.devices[..wanted].to_vec()))
    }

    /// The same devices in another shape.
    ///
    /// A *line* (at most one axis above 1) takes them along the zig-zag of this mesh, so that neighbours on the line are neighbours
    /// on the grid. A *grid* is laid over the system anew, at this mesh's offset, turned by a quarter where only that fits; all
    /// devices that it takes must be among these. So the order of the devices may change, and a tensor that was placed before
    /// stays where it is.
    ///
    /// # Errors
    /// [`MeshError::Reshape`].
    pub fn reshape(&self, shape: &[usize]) -> Result<MeshView, MeshError> {
        let wanted = MeshShape::new(shape)?;
        if wanted.num_devices() != self.num_devices() {
            return Err(self.cannot_reshape(shape, format!("it has {} places", wanted.num_devices())));
        }
        if wanted == self.shape() {
            return Ok(self.clone());
        }
        let devices = if wanted.is_line() {
            let zigzag = self.shape().zigzag();
            zigzag.into_iter().map(|place| self.devices[place]).collect()
        } else {
            let devices = self.system.shape.place(&wanted, Some(&self.offset))?;
            if let Some(foreign) = devices.iter().find(|device| !self.devices.contains(device)) {
                return Err(self.cannot_reshape(
                    shape,
                    format!(
                        "at offset {:?} of the system {} it would take device {}, which is not one of these",
                        self.offset, self.system.shape, self.system.ids[*foreign]
                    ),
                ));
            }
            devices
        };
        let mut view = self.made(self.named_as_here(shape)?, devices);
        view.offset.clone_from(&self.offset);
        Ok(view)
    }

    /// Places along the zig-zag: the first row left to right, the second right to left, and so on.
    pub fn line_order(&self) -> Vec<usize> {
        self.shape().zigzag()
    }

    /// Places around the edge of a two-dimensional mesh, clockwise from the first: neighbours in this list, and its ends, are
    /// neighbours on the grid. Inner places are not in it.
    ///
    /// # Errors
    /// [`MeshError::NoRing`] for a mesh that is not two-dimensional.
    pub fn ring_order(&self) -> Result<Vec<usize>, MeshError> {
        self.shape().ring()
    }

    /// A mesh of this shape with the names of this one's axes where it has as many.
    fn named_as_here(&self, shape: &[usize]) -> Result<Mesh, MeshError> {
        let axes = self.mesh.axes();
        if axes.len() != shape.len() {
            return Mesh::grid(shape);
        }
        let named: Vec<(&str, usize)> = axes
            .iter()
            .zip(shape)
            .map(|(axis, size)| (axis.name.as_str(), *size))
            .collect();
        Mesh::new(&named)
    }

    fn made(&self, mesh: Mesh, devices: Vec<usize>) -> MeshView {
        let strides = self.system.shape.strides();
        let offset = strides
            .iter()
            .zip(self.system.shape.sizes())
            .map(|(stride, size)| devices[0] / stride % size)
            .collect();
        MeshView {
            system: Arc::clone(&self.system),
            mesh,
            devices,
            offset,
        }
    }

    fn cannot_reshape(&self, shape: &[usize], problem: String) -> MeshError {
        MeshError::Reshape {
            shape: format!("{shape:?}"),
            mesh: self.shape().to_string(),
            devices: self.num_devices(),
            problem,
        }
    }
}

impl fmt::Debug for MeshView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on devices {:?}", self.mesh.describe(), self.ids())
    }
}
