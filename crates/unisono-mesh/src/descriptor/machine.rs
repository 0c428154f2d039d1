//! What a descriptor describes: meshes and switches with their devices, hosts and links, and how they are connected.

use super::extension::{DeviceBlock, LinkRate};
use super::schema::{Architecture, DimType, Policy, RefKind};
use crate::MeshShape;
use std::sync::Arc;

/// A populated descriptor.
///
/// Device ids are global: first those of all meshes in the order of their instances, then those of the switches. Inside
/// a mesh they are row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Every mesh, switch and graph, parents before their children; the first is the top-level instance.
    pub instances: Vec<Instance>,
    /// The meshes and then the switches.
    pub blocks: Vec<Block>,
    /// What joins meshes, switches and graphs.
    pub connections: Vec<Connection>,
    /// Which devices may take which physical positions.
    pub pins: Vec<Pin>,
}

/// A node of the hierarchy.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Mesh, switch or graph.
    pub kind: RefKind,
    /// The name of its descriptor.
    pub descriptor: Arc<str>,
    /// `MESH`, `SWITCH`, or the type of the graph.
    pub label: Arc<str>,
    /// `mesh_id`, `switch_id` or `graph_id`, which is unique among the children of one graph.
    pub id: u32,
    /// The graph that holds it: an index into [`Machine::instances`].
    pub parent: Option<usize>,
    /// Indices of its children.
    pub children: Vec<usize>,
    /// Its mesh or switch: an index into [`Machine::blocks`].
    pub block: Option<usize>,
}

/// Which dimensions of a two-dimensional mesh are closed to rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FabricType {
    /// Neither.
    Mesh,
    /// Dimension 1: east and west.
    TorusX,
    /// Dimension 0: north and south.
    TorusY,
    /// Both.
    TorusXy,
}

impl FabricType {
    /// The original's word.
    pub fn name(self) -> &'static str {
        match self {
            FabricType::Mesh => "MESH",
            FabricType::TorusX => "TORUS_X",
            FabricType::TorusY => "TORUS_Y",
            FabricType::TorusXy => "TORUS_XY",
        }
    }
}

/// A mesh or a switch of the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Its place in [`Machine::instances`].
    pub instance: usize,
    /// True for a switch.
    pub is_switch: bool,
    /// The name of its descriptor.
    pub name: Arc<str>,
    /// `mesh_id` or `switch_id`.
    pub id: u32,
    /// What its devices are.
    pub arch: Architecture,
    /// The devices along each dimension.
    pub shape: MeshShape,
    /// The dimension types in effect: RING below 3 devices is LINE.
    pub dim_types: Vec<DimType>,
    /// The hosts along each dimension; they divide the shape. Of a switch, all 1.
    pub hosts: MeshShape,
    /// Channels of a link.
    pub channels: u32,
    /// What happens where a link has fewer.
    pub policy: Policy,
    /// The global id of its first device.
    pub first_device: usize,
    /// Its links, each pair of devices once, in row-major order of the first device; then express and switched ones.
    pub links: Vec<Link>,
    /// Memory and peak of each device, where they are given.
    pub device: Option<DeviceBlock>,
}

/// Why a link is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkRole {
    /// Neighbours along a dimension.
    Neighbour,
    /// The last and the first device of a ring.
    Wrap,
    /// An express connection between two named devices.
    Express,
    /// An express link of a pattern, in direction Z.
    ExpressPattern,
    /// Two devices on one switch that are no neighbours.
    Switched,
}

/// A link between two devices of one mesh; it carries both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// One end: a device of the block, counted from 0.
    pub a: usize,
    /// The other end.
    pub b: usize,
    /// The dimension along which it lies, if it does.
    pub dim: Option<usize>,
    /// Why it is there.
    pub role: LinkRole,
    /// Its channels.
    pub channels: u32,
    /// Kind, rate and latency.
    pub rate: LinkRate,
}

impl Link {
    /// GB/s in one direction over all channels, where it is known.
    pub fn gbps(&self) -> Option<f64> {
        self.rate.channel_gbps.map(|rate| rate * f64::from(self.channels))
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The mesh, switch or graph: an index into [`Machine::instances`].
    pub instance: usize,
    /// A device of that mesh, counted from 0; `None` leaves open which.
    pub device: Option<usize>,
}

/// What a connection comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// `connections`.
    Explicit,
    /// `graph_topology` with `ALL_TO_ALL`.
    AllToAll,
    /// `graph_topology` with `RING`.
    Ring,
}

/// A connection between two children of a graph; it carries both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Connection {
    /// The graph that describes it: an index into [`Machine::instances`].
    pub graph: usize,
    /// One end.
    pub a: Endpoint,
    /// The other end.
    pub b: Endpoint,
    /// Its channels: those of the pair of devices, or in all where no device is named.
    pub channels: u32,
    /// What happens where there are fewer.
    pub policy: Policy,
    /// `assign_z_direction`.
    pub z: bool,
    /// What it comes from.
    pub origin: Origin,
    /// Kind, rate and latency.
    pub rate: LinkRate,
}

/// A pinning, resolved for one mesh: its devices and the trays and locations that they may take, one to one.
#[derive(Debug, Clone, PartialEq)]
pub struct Pin {
    /// The mesh: an index into [`Machine::blocks`].
    pub block: usize,
    /// Devices of that mesh, counted from 0, ascending.
    pub devices: Vec<usize>,
    /// For each position of the entry the trays and the locations that it allows, ascending.
    pub positions: Arc<[(Vec<u32>, Vec<u32>)]>,
}

/// A process of a mesh and the devices that it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its mesh: an index into [`Machine::blocks`].
    pub block: usize,
    /// `mesh_host_rank`: row-major over the grid of hosts.
    pub rank: usize,
    /// The first coordinate of its devices.
    pub offset: Vec<usize>,
    /// The extent of its devices along each dimension.
    pub shape: Vec<usize>,
    /// Its devices, counted from 0 inside the mesh, row-major.
    pub devices: Vec<usize>,
}

impl Block {
    /// The number of devices.
    pub fn num_devices(&self) -> usize {
        self.shape.num_devices()
    }

    /// Which dimensions are rings; `None` where the mesh does not have two.
    pub fn fabric_type(&self) -> Option<FabricType> {
        match self.dim_types.as_slice() {
            [DimType::Line, DimType::Line] => Some(FabricType::Mesh),
            [DimType::Line, DimType::Ring] => Some(FabricType::TorusX),
            [DimType::Ring, DimType::Line] => Some(FabricType::TorusY),
            [DimType::Ring, DimType::Ring] => Some(FabricType::TorusXy),
            _ => None,
        }
    }

    /// Links that have `device` (counted from 0 inside the mesh) at an end.
    pub fn degree(&self, device: usize) -> usize {
        self.links
            .iter()
            .filter(|link| link.a == device || link.b == device)
            .count()
    }

    /// Links counted once a direction, as the original does.
    pub fn num_directed_links(&self) -> usize {
        2 * self.links.len()
    }

    /// The devices of one host along each dimension.
    pub fn host_extent(&self) -> Vec<usize> {
        self.shape
            .sizes()
            .iter()
            .zip(self.hosts.sizes())
            .map(|(size, hosts)| size / hosts)
            .collect()
    }

    /// The host (row-major over the grid of hosts) that owns `device`, counted from 0 inside the mesh.
    pub fn host_of(&self, device: usize) -> usize {
        let strides = self.shape.strides();
        let extent = self.host_extent();
        let axes = self
            .shape
            .sizes()
            .iter()
            .zip(&strides)
            .zip(&extent)
            .zip(self.hosts.sizes());
        axes.fold(0, |rank, (((size, stride), extent), hosts)| {
            rank * hosts + device / stride % size / extent
        })
    }
}

impl Machine {
    /// The meshes, without switches.
    pub fn meshes(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| !block.is_switch)
    }

    /// The switches.
    pub fn switches(&self) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(|block| block.is_switch)
    }

    /// The number of devices of all meshes.
    pub fn num_devices(&self) -> usize {
        self.meshes().map(Block::num_devices).sum()
    }

    /// The number of chips of all switches.
    pub fn num_switch_devices(&self) -> usize {
        self.switches().map(Block::num_devices).sum()
    }

    /// How many instances have the type `label`: `MESH`, `SWITCH`, `DEVICE` (of meshes and switches), or that of a graph.
    pub fn count_of_type(&self, label: &str) -> usize {
        if label == "DEVICE" {
            return self.num_devices() + self.num_switch_devices();
        }
        self.instances
            .iter()
            .filter(|instance| &*instance.label == label)
            .count()
    }

    /// Connections counted once a direction, as the original does.
    pub fn num_directed_connections(&self) -> usize {
        2 * self.connections.len()
    }

    /// Connections that have this instance, or a device of it, at an end.
    pub fn connections_of(&self, instance: usize) -> impl Iterator<Item = &Connection> {
        self.connections
            .iter()
            .filter(move |connection| connection.a.instance == instance || connection.b.instance == instance)
    }

    /// The way from the top-level instance to this one, for example `G2/G0[1]/M1[1]`.
    pub fn path(&self, instance: usize) -> String {
        let mut parts = Vec::new();
        let mut at = Some(instance);
        while let Some(index) = at {
            let instance = &self.instances[index];
            parts.push(match instance.parent {
                Some(_) => format!("{}[{}]", instance.descriptor, instance.id),
                None => instance.descriptor.to_string(),
            });
            at = instance.parent;
        }
        parts.reverse();
        parts.join("/")
    }

    /// Every process, in the order of the meshes and of the ranks.
    pub fn hosts(&self) -> Vec<Host> {
        let meshes = self.blocks.iter().enumerate().filter(|(_, block)| !block.is_switch);
        meshes.flat_map(|(index, block)| block_hosts(index, block)).collect()
    }
}

fn block_hosts(index: usize, block: &Block) -> Vec<Host> {
    let shape = block.host_extent();
    let mut hosts: Vec<Host> = block
        .hosts
        .coordinates()
        .enumerate()
        .map(|(rank, host)| Host {
            block: index,
            rank,
            offset: host.0.iter().zip(&shape).map(|(host, extent)| host * extent).collect(),
            shape: shape.clone(),
            devices: Vec::new(),
        })
        .collect();
    // Device by device, so that each host's are in row-major order.
    for device in 0..block.num_devices() {
        hosts[block.host_of(device)].devices.push(device);
    }
    hosts
}
