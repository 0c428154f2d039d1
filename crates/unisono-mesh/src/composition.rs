//! How the parts that the devices of a mesh hold are put together: what a composer decides before any value moves.

use crate::distribution::{dim_of, refuse};
use crate::draw::counted;
use crate::{MeshError, MeshShape, Over, devices_of};

/// How parts are put together: for each axis of what it is laid over, the tensor dim along which the parts are joined.
///
/// A replicated axis is joined as well: the result holds its copies one after another. To read one copy, give that axis the
/// size 1 with [`over`](Self::over).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ComposerConfig {
    /// One dim per axis, outermost first. Negative dims count from the last, -1.
    pub dims: Vec<isize>,
    /// The shape they are for.
    pub over: Over,
}

impl ComposerConfig {
    /// One dim per axis of the mesh.
    pub fn new(dims: &[isize]) -> Self {
        Self {
            dims: dims.to_vec(),
            over: Over::Mesh,
        }
    }

    /// One dim per axis of another shape (`mesh_shape_override`).
    pub fn over(dims: &[isize], shape: MeshShape) -> Self {
        Self {
            dims: dims.to_vec(),
            over: Over::Shape(shape),
        }
    }

    /// The parts of all devices joined in `dim`, the devices taken as one line.
    pub fn concat(dim: isize) -> Self {
        Self {
            dims: vec![dim],
            over: Over::Line,
        }
    }

    /// For a mesh of two axes: the dim in which its rows are joined and the dim in which its columns are, in the order (rows,
    /// columns) of the *mesh*.
    pub fn grid(row_dim: isize, col_dim: isize) -> Self {
        Self::new(&[row_dim, col_dim])
    }
}

/// Which parts make up a tensor, and where each begins in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Composition {
    shape: Vec<usize>,
    parts: Vec<(usize, Vec<usize>)>,
}

impl Composition {
    /// The composition of the parts on a mesh, all of shape `local`; `holds` says for each device of the mesh whether it has
    /// one.
    ///
    /// With one axis, devices without a part are left out. With several, every device must have one.
    ///
    /// # Errors
    /// [`MeshError::Distribution`]: a shape of more devices than the mesh, another number of dims than axes, a dim outside the
    /// tensor, two axes of more than one device with the same dim, a missing part, or a result too large to be counted.
    pub fn of(mesh: &MeshShape, config: &ComposerConfig, local: &[usize], holds: &[bool]) -> Result<Self, MeshError> {
        let over = config.over.shape(mesh)?;
        let axes = over.num_axes();
        if config.dims.len() != axes {
            return Err(refuse(format!(
                "the composer has {} but the distribution shape {over} has {}; give one dim per axis",
                counted(config.dims.len(), "dim"),
                counted(axes, "axis"),
            )));
        }
        let mut joined: Vec<Option<usize>> = Vec::with_capacity(axes);
        for (axis, (given, size)) in config.dims.iter().zip(over.sizes()).enumerate() {
            // One device on an axis: its part is taken as it is, in whatever dim.
            let dim = match (*size, local.is_empty()) {
                (1, true) => None,
                (1, false) => dim_of(*given, local).map(|_| None)?,
                _ => Some(dim_of(*given, local)?),
            };
            if let Some(first) = dim.and_then(|_| joined.iter().position(|other| *other == dim)) {
                return Err(refuse(format!(
                    "the composer joins axis {first} and axis {axis} in the same dim {given} of the parts {local:?}; give \
                     each axis a dim of its own, or read one copy of an axis by giving it the size 1"
                )));
            }
            joined.push(dim);
        }
        let (_, devices) = devices_of(&over, mesh)?;
        let present = |device: &usize| holds.get(*device).copied().unwrap_or(false);
        let there = devices.iter().filter(|device| present(device)).count();
        if there == 0 || (axes > 1 && there < devices.len()) {
            return Err(refuse(format!(
                "the composition over {over} needs {} but {there} of its devices hold one; compose over the shape that \
                 the tensor was distributed to",
                counted(devices.len(), "part"),
            )));
        }
        let (mut shape, mut parts) = (local.to_vec(), Vec::with_capacity(there));
        let too_large = || {
            refuse(format!(
                "{there} parts of {local:?} make a tensor larger than memory has bytes"
            ))
        };
        for (dim, size) in joined.iter().zip(over.sizes()) {
            if let Some(dim) = dim {
                let parts = if axes == 1 { there } else { *size };
                shape[*dim] = shape[*dim].checked_mul(parts).ok_or_else(too_large)?;
            }
        }
        let strides = over.strides();
        for (place, device) in devices.iter().filter(|device| present(device)).enumerate() {
            let mut start = vec![0; local.len()];
            for ((dim, size), stride) in joined.iter().zip(over.sizes()).zip(&strides) {
                if let Some(dim) = dim {
                    start[*dim] = place / stride % size * local[*dim];
                }
            }
            parts.push((*device, start));
        }
        Ok(Self { shape, parts })
    }

    /// The shape of the whole.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The device of each part and where the part's first element lies in the whole, by dim.
    pub fn parts(&self) -> &[(usize, Vec<usize>)] {
        &self.parts
    }
}
