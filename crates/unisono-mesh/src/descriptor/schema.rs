//! The descriptor's messages as types. Every field of the newest schema is here; `None` is a field that is not written.
//! Positions are kept where a problem may have to name them.

use super::extension::{DeviceBlock, LinkBlock};
use super::report::{At, Position};

/// A whole mesh graph descriptor (message `MeshGraphDescriptor`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Descriptor {
    /// `mesh_descriptors`, in the order of the text.
    pub meshes: Vec<MeshDescriptor>,
    /// `switch_descriptors`.
    pub switches: Vec<MeshDescriptor>,
    /// `graph_descriptors`.
    pub graphs: Vec<GraphDescriptor>,
    /// `top_level_instance`.
    pub top: Option<NodeRef>,
    /// `pinnings`.
    pub pinnings: Vec<Pinning>,
}

/// A kind of device. The text format's words are those of [`name`](Self::name).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// `WORMHOLE_B0`.
    WormholeB0,
    /// `BLACKHOLE`.
    Blackhole,
    /// `CPU`, which the original does not know.
    Cpu,
    /// `CUDA`, which the original does not know.
    Cuda,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Architecture; 4] = [
        Architecture::WormholeB0,
        Architecture::Blackhole,
        Architecture::Cpu,
        Architecture::Cuda,
    ];

    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::WormholeB0 => "WORMHOLE_B0",
            Architecture::Blackhole => "BLACKHOLE",
            Architecture::Cpu => "CPU",
            Architecture::Cuda => "CUDA",
        }
    }

    /// The most dimensions that a mesh of this architecture may have.
    pub fn max_dims(self) -> usize {
        match self {
            Architecture::WormholeB0 => 2,
            Architecture::Blackhole | Architecture::Cpu | Architecture::Cuda => 3,
        }
    }
}

/// Whether the ends of a dimension are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DimType {
    /// Open ends.
    Line,
    /// The last device is the first one's neighbour.
    Ring,
}

impl DimType {
    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            DimType::Line => "LINE",
            DimType::Ring => "RING",
        }
    }
}

/// What happens where a link has fewer channels than described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The machine is refused.
    Strict,
    /// It is taken as long as one channel is there.
    Relaxed,
}

impl Policy {
    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Strict => "STRICT",
            Policy::Relaxed => "RELAXED",
        }
    }
}

/// `channels`.
#[derive(Debug, Clone, PartialEq)]
pub struct Channels {
    /// Where the block stands.
    pub at: Position,
    /// `count`: lanes per link.
    pub count: Option<At<i32>>,
    /// `policy`.
    pub policy: Option<Policy>,
}

/// A `mesh_descriptors` or `switch_descriptors` entry: they differ in that a switch has no `host_topology`.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshDescriptor {
    /// Where the block stands.
    pub at: Position,
    /// True for a switch.
    pub is_switch: bool,
    /// `name`.
    pub name: Option<At<String>>,
    /// `arch`; `INVALID_ARCHITECTURE` reads as not given.
    pub arch: Option<At<Architecture>>,
    /// Where `device_topology` stands.
    pub device_topology: Option<Position>,
    /// `device_topology.dims`.
    pub dims: Vec<At<i32>>,
    /// `device_topology.dim_types`.
    pub dim_types: Vec<At<DimType>>,
    /// Where `host_topology` stands.
    pub host_topology: Option<Position>,
    /// `host_topology.dims`.
    pub host_dims: Vec<At<i32>>,
    /// `channels`.
    pub channels: Option<Channels>,
    /// `express_connections`: pairs of row-major device ids.
    pub express_connections: Vec<ExpressConnection>,
    /// `express_links`, for a while called `skip_links`.
    pub express_links: Vec<ExpressLinks>,
    /// The extension `[unisono.link]`, once for all dimensions or once for each.
    pub links: Vec<LinkBlock>,
    /// The extension `[unisono.device]`.
    pub device: Option<DeviceBlock>,
}

impl MeshDescriptor {
    /// The entry's name, empty where it has none.
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| &name.value)
    }
}

/// An additional link between two devices of a mesh.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpressConnection {
    /// Where the block stands.
    pub at: Position,
    /// `src`.
    pub src: i32,
    /// `dst`.
    pub dst: i32,
}

/// Additional links along one dimension, repeated over the others.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpressLinks {
    /// Where the block stands.
    pub at: Position,
    /// `dim_idx`.
    pub dim: i32,
    /// `pattern.start`.
    pub start: i32,
    /// `pattern.step`.
    pub step: i32,
    /// `wrap`: whether a block may go over the end of the dimension. Not given, it may not.
    pub wrap: Option<DimType>,
}

/// A `graph_descriptors` entry.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphDescriptor {
    /// Where the block stands.
    pub at: Position,
    /// `name`.
    pub name: Option<At<String>>,
    /// `type`.
    pub kind: Option<At<String>>,
    /// `instances`.
    pub instances: Vec<NodeRef>,
    /// `graph_topology`.
    pub topology: Option<GraphTopology>,
    /// `connections`.
    pub connections: Vec<Connection>,
}

impl GraphDescriptor {
    /// The entry's name, empty where it has none.
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("", |name| &name.value)
    }

    /// The entry's type, empty where it has none.
    pub fn kind(&self) -> &str {
        self.kind.as_ref().map_or("", |kind| &kind.value)
    }
}

/// How the shorthand `graph_topology` connects the children of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Every child with every other.
    AllToAll,
    /// Each child with the next, the last with the first.
    Ring,
}

/// `graph_topology`.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphTopology {
    /// Where the block stands.
    pub at: Position,
    /// `layout_type`; `INVALID_TYPE` reads as not given.
    pub layout: Option<Layout>,
    /// `channels`.
    pub channels: Option<Channels>,
    /// `assign_z_direction`.
    pub z: bool,
    /// The extension `[unisono.link]`.
    pub link: Option<LinkBlock>,
}

/// What a reference points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefKind {
    /// `mesh`.
    Mesh,
    /// `switch`.
    Switch,
    /// `graph`.
    Graph,
}

impl RefKind {
    /// The field's name.
    pub fn name(self) -> &'static str {
        match self {
            RefKind::Mesh => "mesh",
            RefKind::Switch => "switch",
            RefKind::Graph => "graph",
        }
    }
}

/// `NodeRef`: a mesh, a switch, a graph, or something inside of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRef {
    /// Where the block stands.
    pub at: Position,
    /// What it names; `None` where it has neither `mesh` nor `switch` nor `graph`.
    pub target: Option<Target>,
}

/// The inside of a [`NodeRef`].
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Where the block stands.
    pub at: Position,
    /// Which of the three.
    pub kind: RefKind,
    /// `mesh_descriptor`, `switch_descriptor` or `graph_descriptor`.
    pub descriptor: String,
    /// `mesh_id`, `switch_id` or `graph_id`.
    pub id: i32,
    /// `device_id`, of meshes and switches.
    pub device: Option<At<i32>>,
    /// `sub_ref`, of graphs.
    pub sub: Option<Box<NodeRef>>,
}

/// A `connections` entry of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// Where the block stands.
    pub at: Position,
    /// `nodes`.
    pub nodes: Vec<NodeRef>,
    /// `channels`.
    pub channels: Option<Channels>,
    /// `directional`.
    pub directional: Option<At<bool>>,
    /// `assign_z_direction`.
    pub z: bool,
    /// The extension `[unisono.link]`.
    pub link: Option<LinkBlock>,
}

/// A `pinnings` entry: any of the nodes may take any of the positions, one to one.
#[derive(Debug, Clone, PartialEq)]
pub struct Pinning {
    /// Where the block stands.
    pub at: Position,
    /// `logical_fabric_node_id`.
    pub nodes: Vec<PinPair>,
    /// `physical_asic_position`.
    pub positions: Vec<PinPair>,
}

/// Two numbers or patterns: mesh and chip, or tray and location.
#[derive(Debug, Clone, PartialEq)]
pub struct PinPair {
    /// Where the block stands.
    pub at: Position,
    /// `mesh_id`, or `tray_id`.
    pub first: PinField,
    /// `chip_id`, or `asic_location`.
    pub second: PinField,
}

/// A number or its `_regex` twin.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PinField {
    /// The number.
    pub number: Option<At<u32>>,
    /// The pattern.
    pub pattern: Option<At<String>>,
}
