//! Drawings of meshes and of what lies on them; each is rendered plain, in colour or as SVG by [`Drawing`].

use super::DistributedHostTensor;
use crate::tensor::Tensor;
use crate::{MeshDevice, Result};
use unisono_mesh::draw::{self, Cell, Drawing, TensorFacts};
use unisono_mesh::{Distribution, MeshShape, Placement};

/// The mesh with id and coordinate of each device, no wider than `width` characters (`visualize_mesh_device` of TT-NN).
///
/// ```
/// use unisono_tensor::distributed::visualize_mesh_device;
/// use unisono_tensor::{MeshDevice, Options};
/// let device = MeshDevice::open_grid(&[1, 2], Options::default())?;
/// let text = visualize_mesh_device(&device, 80).plain();
/// assert!(text.contains("MeshDevice(rows=1, cols=2)") && text.contains("Dev. ID: 1"), "{text}");
/// # Ok::<(), unisono_tensor::TensorError>(())
/// ```
pub fn visualize_mesh_device(device: &MeshDevice, width: usize) -> Drawing {
    let view = device.view();
    draw::mesh_device(&view.shape(), &cells(&view.ids()), width)
}

/// The system that the mesh was cut out of, with its shape in two lines (`visualize_system_mesh` of TT-NN). All of it belongs to
/// this host.
pub fn visualize_system_mesh(device: &MeshDevice, width: usize) -> Drawing {
    let view = device.view();
    let shape = view.system_shape();
    draw::system_mesh(shape, shape, &cells(view.system_ids()), width)
}

/// Which slice of a tensor each device of its mesh has; equal slices have one colour (`visualize_tensor` of TT-NN).
///
/// # Errors
/// A partial sum.
pub fn visualize_tensor(tensor: &Tensor, width: usize) -> Result<Drawing> {
    let view = tensor.device().view();
    let distribution = tensor.distribution()?;
    let axes = tensor.device().mesh().axes();
    let named = tensor.placements().iter().zip(axes);
    let lines = named
        .map(|(placement, axis)| line(&axis.name, axis.size, placement))
        .collect();
    let facts = facts("device", lines, &distribution, tensor.dtype().name(), &view.ids());
    Ok(draw::tensor(&view.shape(), &facts, width))
}

impl DistributedHostTensor {
    /// Which slice each device of the mesh is to have; see [`visualize_tensor`].
    pub fn visualize(&self, width: usize) -> Drawing {
        let distribution = self.distribution();
        let axes = distribution.placements().iter().zip(distribution.shape().sizes());
        let lines = axes
            .enumerate()
            .map(|(axis, (placement, size))| line(&format!("axis {axis}"), *size, placement))
            .collect();
        let mesh: &MeshShape = distribution.mesh();
        let ids: Vec<usize> = (0..mesh.num_devices()).collect();
        draw::tensor(
            mesh,
            &facts("host", lines, distribution, self.dtype().name(), &ids),
            width,
        )
    }
}

fn line(axis: &str, size: usize, placement: &Placement) -> String {
    let devices = if size == 1 { "device" } else { "devices" };
    format!("{axis} ({size} {devices}): {placement}")
}

fn facts(
    storage: &str,
    placements: Vec<String>,
    distribution: &Distribution,
    dtype: &str,
    ids: &[usize],
) -> TensorFacts {
    let mut slices = vec![None; ids.len()];
    for (place, device) in distribution.devices().iter().enumerate() {
        slices[*device] = Some(distribution.ranges(place));
    }
    TensorFacts {
        storage: storage.to_string(),
        placements,
        shape: distribution.global_shape().to_vec(),
        dtype: dtype.to_string(),
        devices: cells(ids),
        slices,
    }
}

fn cells(ids: &[usize]) -> Vec<Cell> {
    ids.iter().map(|id| Cell::of(*id)).collect()
}
