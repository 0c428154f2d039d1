//! The group of devices that a collective of a mesh meets: which links join them, on a described machine or on none.

use super::{Fabric, LinkModel, Topology};
use crate::MeshError;
use crate::descriptor::{Block, DimType};

/// A group and what its links are.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The devices and links.
    pub fabric: Fabric,
    /// Channels of a connection, the most that `num_links` may be; not known without a described machine.
    pub channels: Option<usize>,
    /// Costs of a link, where its bandwidth is known: of the slowest kind that the group uses.
    pub model: Option<LinkModel>,
    /// What is to be said: a topology other than the one asked for, a latency that is not known.
    pub notes: Vec<String>,
}

/// How a mesh of rows and columns lies on a machine, or on none: whether the ends of its columns and of its rows are joined, and
/// along which dimensions of the machine its links run.
struct Lie {
    joined: [bool; 2],
    /// For columns and rows.
    dims: [Vec<usize>; 2],
}

/// The topology for a line of devices whose ends are `joined` or not, and what is to be said where it is not the one asked
/// for. Asked for none it is a ring where there can be one.
pub fn topology_for(asked: Option<Topology>, joined: bool) -> (Topology, Option<String>) {
    match (asked, joined) {
        (Some(Topology::Linear), _) | (None, false) => (Topology::Linear, None),
        (_, true) => (Topology::Ring, None),
        (Some(Topology::Ring), false) => (
            Topology::Linear,
            Some("a ring was asked for, but no link joins the ends; the topology is linear".to_owned()),
        ),
    }
}

impl Group {
    /// The devices of a mesh of `[rows, columns]` that meet in a collective: those of a column (`cluster_axis` 0), of a row (1)
    /// or all. `machine` is the mesh of a descriptor that it lies on; without one the ends are joined as the topology
    /// asks, and nothing is known of the links.
    ///
    /// On a machine the mesh is the machine's, or it turned by a quarter, or a corner of either; a mesh of one row or column
    /// that fits neither way runs along the machine's rows, there and back.
    ///
    /// # Errors
    /// [`MeshError::ZeroAxis`] or [`MeshError::TooManyDevices`] for the mesh, [`MeshError::ClusterAxis`] for an axis other
    /// than 0 and 1, [`MeshError::NotOnMachine`] where the machine does not hold the mesh.
    pub fn of(
        mesh: [usize; 2],
        cluster_axis: Option<usize>,
        asked: Option<Topology>,
        machine: Option<&Block>,
    ) -> Result<Self, MeshError> {
        let [rows, cols] = mesh;
        Fabric::grid(mesh, [Topology::Linear; 2])?;
        let lie = match machine {
            Some(machine) => lie(mesh, machine)?,
            None => Lie {
                joined: [true; 2],
                dims: [vec![], vec![]],
            },
        };
        let mut notes: Vec<String> = Vec::new();
        let mut topology = |axis: usize, size: usize| {
            // Two devices are joined once either way.
            let (topology, note) = topology_for(asked, lie.joined[axis] || size <= 2);
            notes.extend(note.filter(|note| !notes.contains(note)));
            topology
        };
        let (fabric, axes) = match cluster_axis {
            Some(0) => (Fabric::line(rows, topology(0, rows))?, vec![0]),
            Some(1) => (Fabric::line(cols, topology(1, cols))?, vec![1]),
            Some(axis) => {
                return Err(MeshError::ClusterAxis { axis });
            }
            None => (Fabric::grid(mesh, [topology(0, rows), topology(1, cols)])?, vec![0, 1]),
        };
        let dims: Vec<usize> = axes
            .into_iter()
            .flat_map(|axis| lie.dims[axis].iter().copied())
            .collect();
        let links = machine.map(|machine| {
            let used = |dim: Option<usize>| dim.is_some_and(|dim| dims.contains(&dim));
            machine.links.iter().filter(|link| used(link.dim)).collect::<Vec<_>>()
        });
        let channels = links
            .as_ref()
            .and_then(|links| links.iter().map(|link| link.channels as usize).min());
        let model = links.as_ref().and_then(|links| {
            let rates: Option<Vec<f64>> = links.iter().map(|link| link.rate.channel_gbps).collect();
            let bandwidth = rates?.into_iter().reduce(f64::min)? * 1e9;
            let latency = links.iter().filter_map(|link| link.rate.latency_us).reduce(f64::max);
            if latency.is_none() {
                notes.push("the descriptor gives no latency; it is taken as 0".to_owned());
            }
            Some(LinkModel {
                bandwidth,
                latency: latency.unwrap_or(0.0) * 1e-6,
            })
        });
        Ok(Self {
            fabric,
            channels,
            model,
            notes,
        })
    }
}

/// Lays a mesh on a machine.
fn lie(mesh: [usize; 2], machine: &Block) -> Result<Lie, MeshError> {
    // A machine of one dimension is a row.
    let refused = || MeshError::NotOnMachine {
        mesh: format!("{}x{}", mesh[0], mesh[1]),
        machine: machine.name.to_string(),
        shape: machine.shape.to_string(),
    };
    let (sizes, dim_of) = match *machine.shape.sizes() {
        [devices] => ([1, devices], [None, Some(0)]),
        [rows, cols] => ([rows, cols], [Some(0), Some(1)]),
        _ => return Err(refused()),
    };
    let rings = dim_of.map(|dim| dim.is_some_and(|dim| machine.dim_types[dim] == DimType::Ring));
    for [down, across] in [[0, 1], [1, 0]] {
        if mesh[0] <= sizes[down] && mesh[1] <= sizes[across] {
            return Ok(Lie {
                joined: [
                    rings[down] && mesh[0] == sizes[down],
                    rings[across] && mesh[1] == sizes[across],
                ],
                dims: [down, across].map(|dim| dim_of[dim].into_iter().collect()),
            });
        }
    }
    let [rows, cols] = sizes;
    let devices = mesh[0] * mesh[1];
    if mesh.contains(&1) && devices <= rows * cols {
        // The last device stands below the first one when the rows are even, next to it where there are two or a ring.
        let joined = devices == rows * cols && rows.is_multiple_of(2) && (rows == 2 || rings[0]);
        let axis = usize::from(mesh[0] == 1);
        let mut lie = Lie {
            joined: [false; 2],
            dims: [vec![], vec![]],
        };
        lie.joined[axis] = joined;
        lie.dims[axis] = vec![0, 1];
        return Ok(lie);
    }
    Err(refused())
}
