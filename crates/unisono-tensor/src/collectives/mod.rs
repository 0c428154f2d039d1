//! Collectives on the shards of a tensor, for programs that speak of a mesh by its axes.
//!
//! The methods of [`Tensor`] (`all_reduce`, `all_gather`, …) belong to modules: they complete what placements say is incomplete, and
//! refuse everything else. The functions here do what one tells them to do with whatever each device holds: an [`all_reduce`] of a
//! cut tensor adds its shards. Sums are in the canonical order of [`unisono_kernels::order`], so which links carry what cannot
//! change a bit. Placements of the result are updated; a dim may be counted from the end (`-1` is the last).
//!
//! [`Along`] says which devices meet: those along one axis, or all. Where they are but one there is nothing to do, and a note
//! says so once ([`MeshDevice::take_notes`]).
//!
//! ```
//! use unisono_tensor::collectives::{Along, Reduction, all_gather, all_reduce, shift};
//! use unisono_tensor::{MeshDevice, Options};
//! let mesh = MeshDevice::open_grid(&[1, 4], Options::default())?;
//! let x = mesh.sharded(&[1.0, 2.0, 3.0, 4.0], &[4], &[("axis1", 0)])?;
//! assert_eq!(all_reduce(&x, Reduction::Sum, Along::axis(1))?.to_vec()?, [10.0]);
//! assert_eq!(shift(&x, 1, Along::axis(1))?.to_vec()?, [4.0, 1.0, 2.0, 3.0]);
//! assert_eq!(all_gather(&x, 0, Along::ALL)?.to_vec_on(2)?, [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), unisono_tensor::TensorError>(())
//! ```

mod messages;
mod moves;
mod sums;

pub use messages::{receive, send};
pub use moves::{
    all_broadcast, all_gather, all_to_all, barrier, broadcast, gather, point_to_point, scatter, scatter_from, shift,
};
pub use sums::{Gradient, Reduction, all_reduce, all_reduce_with, reduce_scatter};
pub use unisono_mesh::schedule::Topology;

use crate::error::TensorError;
use crate::tensor::{Meta, Tensor};
use crate::{MeshDevice, Result};
use unisono_mesh::schedule::{check_links, topology_for};
use unisono_mesh::{AxisHandle, Placement};
use unisono_runtime::{Command, Pattern};

/// Which devices meet in a collective, and over which links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Along {
    /// The mesh axis, outermost 0 (`cluster_axis`); all devices, row-major, where it is `None`. Axis 0 of a mesh of two axes runs
    /// down its columns: devices that share a column meet.
    pub axis: Option<usize>,
    /// Parallel links between neighbours that share what is carried.
    pub num_links: usize,
    /// How the devices are joined. By default as the mesh is; a ring where its ends are not joined becomes a line.
    pub topology: Option<Topology>,
}

impl Along {
    /// All devices, row-major, over one link.
    pub const ALL: Along = Along {
        axis: None,
        num_links: 1,
        topology: None,
    };

    /// The devices along one axis, over one link.
    pub const fn axis(axis: usize) -> Along {
        Along {
            axis: Some(axis),
            ..Along::ALL
        }
    }

    /// The group on a mesh; `None`, noted once, where it is a single device.
    fn group(self, op: &'static str, device: &MeshDevice) -> Result<Option<AxisHandle>> {
        let mesh = device.mesh();
        let group = match self.axis {
            Some(axis) => mesh.axis_at(axis)?,
            None => mesh.all(),
        };
        check_links(self.num_links, device.channels().unwrap_or(usize::MAX))?;
        if group.size == 1 {
            let along = match self.axis {
                Some(axis) => format!("axis {axis} of the mesh {}", mesh.shape()),
                None => format!("the mesh {}", mesh.shape()),
            };
            device.note(format!("{op}: {along} has one device, so there is nothing to do"));
            return Ok(None);
        }
        Ok(Some(group))
    }

    /// Issues a command, counted as carried over these links.
    fn issue(self, op: &'static str, device: &MeshDevice, command: impl Into<Command>) -> Result<()> {
        self.over(op, device, || Ok(device.runtime().issue(command)?))
    }

    /// Runs `body`; what it issues is counted as carried over these links.
    fn over<T>(self, op: &'static str, device: &MeshDevice, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let links = device.links();
        let is_known = links.channels.is_some();
        let joined = match self.axis {
            Some(axis) => links.rings.get(axis).copied().unwrap_or(!is_known),
            None => !is_known || links.rings.iter().all(|ring| *ring),
        };
        // Where nothing is known of the links, a ring is walked only if it is asked for.
        let asked = self.topology.or((!is_known).then_some(Topology::Linear));
        let (topology, refused) = topology_for(asked, joined);
        if refused.is_some() {
            device.note(format!(
                "{op}: the ends are not joined, so the ring is walked as a line"
            ));
        }
        let runtime = device.runtime();
        let before = runtime.set_pattern(Pattern {
            topology,
            num_links: self.num_links,
        });
        let done = body();
        runtime.set_pattern(before);
        done
    }
}

/// The dim that `dim` means for a tensor: from the end where it is negative.
fn normal(op: &'static str, t: &Tensor, dim: isize) -> Result<usize> {
    let rank = t.rank() as isize;
    let normal = if dim < 0 { dim + rank } else { dim };
    if (0..rank).contains(&normal) {
        return Ok(normal as usize);
    }
    Err(TensorError::Argument {
        op,
        what: format!(
            "dim {dim} of a tensor of shape {:?}; dims are 0 to {} or, from the end, -1 to -{rank}",
            t.shape(),
            rank - 1
        ),
    })
}

/// Indices of the mesh axes that a group spans.
fn spanned(device: &MeshDevice, group: AxisHandle) -> Vec<usize> {
    let axes = device.mesh().axes();
    match group.index < axes.len() {
        true => vec![group.index],
        false => (0..axes.len()).filter(|axis| axes[*axis].size > 1).collect(),
    }
}

/// The metadata of a result that lies along the group as `placement` says.
fn relabelled(t: &Tensor, group: AxisHandle, placement: Placement) -> Meta {
    let mut meta = t.meta().clone();
    for axis in spanned(t.device(), group) {
        if meta.placements[axis] == Placement::Shard(0) {
            meta.rows = None;
        }
        meta.placements[axis] = placement;
    }
    meta.partial = None;
    meta
}

/// Fails where the values of a partial sum would be taken for complete ones.
fn complete(op: &'static str, t: &Tensor) -> Result<()> {
    t.complete(op, "the tensor")
}

/// Fails where a group spans two axes and one is needed.
fn one_axis(op: &'static str, device: &MeshDevice, group: AxisHandle) -> Result<usize> {
    match spanned(device, group).as_slice() {
        [axis] => Ok(*axis),
        axes => Err(TensorError::Argument {
            op,
            what: format!(
                "all devices of the mesh {}, which lie along {} axes; a dim is cut along one axis: name it, or reshape the mesh to a line",
                device.mesh().shape(),
                axes.len()
            ),
        }),
    }
}
