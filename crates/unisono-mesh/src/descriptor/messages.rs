//! Which fields each message has: the schema as code. A field that is not listed is skipped with a warning.

use super::read::{Reader, Words};
use super::report::At;
use super::schema::*;
use super::text::{Field, Item};

const ARCHITECTURES: &Words<Architecture> = &[
    ("INVALID_ARCHITECTURE", 0, None),
    ("WORMHOLE_B0", 1, Some(Architecture::WormholeB0)),
    ("BLACKHOLE", 2, Some(Architecture::Blackhole)),
    // Numbers of our own, far from those that the original may yet give away.
    ("CPU", 1001, Some(Architecture::Cpu)),
    ("CUDA", 1002, Some(Architecture::Cuda)),
];
const DIM_TYPES: &Words<DimType> = &[("LINE", 1, Some(DimType::Line)), ("RING", 2, Some(DimType::Ring))];
const POLICIES: &Words<Policy> = &[
    ("INVALID_POLICY", 0, None),
    ("STRICT", 1, Some(Policy::Strict)),
    ("RELAXED", 2, Some(Policy::Relaxed)),
];
const LAYOUTS: &Words<Layout> = &[
    ("INVALID_TYPE", 0, None),
    ("ALL_TO_ALL", 1, Some(Layout::AllToAll)),
    ("RING", 2, Some(Layout::Ring)),
];
const DIRECTIONS: &Words<()> = &[
    ("INVALID_DIRECTION", 0, None),
    ("N", 1, Some(())),
    ("E", 2, Some(())),
    ("S", 3, Some(())),
    ("W", 4, Some(())),
    ("C", 5, Some(())),
    ("NONE", 6, Some(())),
];

/// Names that older versions or stale documents use, and what to write.
const STALE: &[(&str, &str)] = &[
    ("types", "the field is called dim_types"),
    ("topology", "write graph_topology { layout_type: … channels { … } }"),
    ("id", "write mesh_id, switch_id or graph_id"),
    ("layout", "the field is called layout_type"),
];

/// The fields of a whole descriptor.
pub(crate) fn descriptor(r: &mut Reader, fields: &[Field<'_>]) -> Descriptor {
    let mut d = Descriptor::default();
    for field in fields {
        match known(field) {
            "mesh_descriptors" => r.each(&mut d.meshes, field, |r, item, _, i| {
                r.block(item, "mesh_descriptors", Some(i), |r, fields| {
                    mesh(r, item, fields, false)
                })
            }),
            "switch_descriptors" => r.each(&mut d.switches, field, |r, item, _, i| {
                r.block(item, "switch_descriptors", Some(i), |r, fields| {
                    mesh(r, item, fields, true)
                })
            }),
            "graph_descriptors" => r.each(&mut d.graphs, field, |r, item, _, i| {
                r.block(item, "graph_descriptors", Some(i), |r, fields| graph(r, item, fields))
            }),
            "top_level_instance" => r.set(&mut d.top, field, |r, item, _| {
                node(r, item, "top_level_instance", None)
            }),
            "pinnings" => r.each(&mut d.pinnings, field, |r, item, _, i| {
                r.block(item, "pinnings", Some(i), |r, fields| pinning(r, item, fields))
            }),
            _ => r.unknown(
                field,
                &[
                    "mesh_descriptors",
                    "switch_descriptors",
                    "graph_descriptors",
                    "top_level_instance",
                    "pinnings",
                ],
                &[],
            ),
        }
    }
    d
}

/// The name by which a field is looked up; extensions keep their brackets, so that no field is taken for one.
fn known<'f>(field: &'f Field<'_>) -> &'f str {
    match (field.extension, &*field.name) {
        (false, name) => name,
        (true, "unisono.link") => "[unisono.link]",
        (true, "unisono.device") => "[unisono.device]",
        (true, _) => "",
    }
}

fn mesh(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>], is_switch: bool) -> MeshDescriptor {
    let mut m = MeshDescriptor {
        at: item.at,
        is_switch,
        name: None,
        arch: None,
        device_topology: None,
        dims: Vec::new(),
        dim_types: Vec::new(),
        host_topology: None,
        host_dims: Vec::new(),
        channels: None,
        express_connections: Vec::new(),
        express_links: Vec::new(),
        links: Vec::new(),
        device: None,
    };
    for field in fields {
        match known(field) {
            "name" => r.set(&mut m.name, field, Reader::text),
            "arch" => r.set(&mut m.arch, field, |r, item, name| {
                let value = r.word(item, name, ARCHITECTURES)??;
                Some(At { value, at: item.at })
            }),
            "device_topology" => {
                let (dims, types) = (&mut m.dims, &mut m.dim_types);
                r.set(&mut m.device_topology, field, |r, item, _| {
                    r.block(item, "device_topology", None, |r, fields| {
                        topology(r, fields, dims, Some(types))
                    })?;
                    Some(item.at)
                });
            }
            "host_topology" if !is_switch => {
                let dims = &mut m.host_dims;
                r.set(&mut m.host_topology, field, |r, item, _| {
                    r.block(item, "host_topology", None, |r, fields| topology(r, fields, dims, None))?;
                    Some(item.at)
                });
            }
            "channels" => r.set(&mut m.channels, field, channels),
            "express_connections" => r.each(&mut m.express_connections, field, |r, item, _, i| {
                r.block(item, "express_connections", Some(i), |r, fields| {
                    express_connection(r, item, fields)
                })
            }),
            "express_links" | "skip_links" if !is_switch => r.each(&mut m.express_links, field, |r, item, _, i| {
                r.block(item, "express_links", Some(i), |r, fields| {
                    express_links(r, item, fields)
                })
            }),
            "[unisono.link]" => r.each(&mut m.links, field, |r, item, _, _| super::blocks::link(r, item, true)),
            "[unisono.device]" => r.set(&mut m.device, field, super::blocks::device),
            "host_topology" => r.warn(field.at, &field.name, || {
                "unknown field, skipped; a switch always belongs to one host".to_owned()
            }),
            _ => r.unknown(
                field,
                &[
                    "name",
                    "arch",
                    "device_topology",
                    "host_topology",
                    "channels",
                    "express_connections",
                    "express_links",
                    "[unisono.link]",
                    "[unisono.device]",
                ],
                &[],
            ),
        }
    }
    m
}

fn topology(r: &mut Reader, fields: &[Field<'_>], dims: &mut Vec<At<i32>>, types: Option<&mut Vec<At<DimType>>>) {
    let has_types = types.is_some();
    let mut none = Vec::new();
    let types = types.unwrap_or(&mut none);
    for field in fields {
        match known(field) {
            "dims" => r.each(dims, field, |r, item, name, _| r.int32(item, name)),
            "dim_types" if has_types => r.each(types, field, |r, item, name, _| {
                let value = r.word(item, name, DIM_TYPES)??;
                Some(At { value, at: item.at })
            }),
            _ if has_types => r.unknown(field, &["dims", "dim_types"], STALE),
            _ => r.unknown(field, &["dims"], &[]),
        }
    }
}

fn channels(r: &mut Reader, item: &Item<'_>, _: &str) -> Option<Channels> {
    r.block(item, "channels", None, |r, fields| {
        let (mut count, mut policy) = (None, None);
        for field in fields {
            match known(field) {
                "count" => r.set(&mut count, field, Reader::int32),
                "policy" => r.set(&mut policy, field, |r, item, name| r.word(item, name, POLICIES)),
                _ => r.unknown(field, &["count", "policy"], &[]),
            }
        }
        Channels {
            at: item.at,
            count,
            policy: policy.flatten(),
        }
    })
}

fn express_connection(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>]) -> ExpressConnection {
    let (mut src, mut dst) = (None, None);
    for field in fields {
        match known(field) {
            "src" => r.set(&mut src, field, Reader::int32),
            "dst" => r.set(&mut dst, field, Reader::int32),
            _ => r.unknown(field, &["src", "dst"], &[]),
        }
    }
    ExpressConnection {
        at: item.at,
        src: src.map_or(0, |src| src.value),
        dst: dst.map_or(0, |dst| dst.value),
    }
}

fn express_links(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>]) -> ExpressLinks {
    let (mut dim, mut pattern, mut wrap) = (None, None, None);
    for field in fields {
        match known(field) {
            "dim_idx" => r.set(&mut dim, field, Reader::int32),
            "pattern" => r.set(&mut pattern, field, |r, item, _| {
                r.block(item, "pattern", None, |r, fields| {
                    let (mut start, mut step) = (None, None);
                    for field in fields {
                        match known(field) {
                            "start" => r.set(&mut start, field, Reader::int32),
                            "step" => r.set(&mut step, field, Reader::int32),
                            _ => r.unknown(field, &["start", "step"], &[]),
                        }
                    }
                    (start.map_or(0, |start| start.value), step.map_or(0, |step| step.value))
                })
            }),
            "wrap" => r.set(&mut wrap, field, |r, item, name| r.word(item, name, DIM_TYPES)),
            _ => r.unknown(field, &["dim_idx", "pattern", "wrap"], &[]),
        }
    }
    let (start, step) = pattern.unwrap_or((0, 0));
    ExpressLinks {
        at: item.at,
        dim: dim.map_or(0, |dim| dim.value),
        start,
        step,
        wrap: wrap.flatten(),
    }
}

fn graph(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>]) -> GraphDescriptor {
    let mut g = GraphDescriptor {
        at: item.at,
        name: None,
        kind: None,
        instances: Vec::new(),
        topology: None,
        connections: Vec::new(),
    };
    for field in fields {
        match known(field) {
            "name" => r.set(&mut g.name, field, Reader::text),
            "type" => r.set(&mut g.kind, field, Reader::text),
            "instances" => r.each(&mut g.instances, field, |r, item, _, i| {
                node(r, item, "instances", Some(i))
            }),
            "graph_topology" => r.set(&mut g.topology, field, |r, item, _| {
                r.block(item, "graph_topology", None, |r, fields| {
                    graph_topology(r, item, fields)
                })
            }),
            "connections" => r.each(&mut g.connections, field, |r, item, _, i| {
                r.block(item, "connections", Some(i), |r, fields| connection(r, item, fields))
            }),
            "channels" => r.warn(field.at, "channels", || {
                "unknown field, skipped; the channels of a graph stand in its graph_topology".to_owned()
            }),
            _ => r.unknown(
                field,
                &["name", "type", "instances", "graph_topology", "connections"],
                STALE,
            ),
        }
    }
    g
}

fn graph_topology(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>]) -> GraphTopology {
    let (mut layout, mut lanes, mut z, mut link) = (None, None, None, None);
    for field in fields {
        match known(field) {
            "layout_type" => r.set(&mut layout, field, |r, item, name| r.word(item, name, LAYOUTS)),
            "channels" => r.set(&mut lanes, field, channels),
            "assign_z_direction" => r.set(&mut z, field, Reader::boolean),
            "[unisono.link]" => r.set(&mut link, field, |r, item, _| super::blocks::link(r, item, false)),
            _ => r.unknown(
                field,
                &["layout_type", "channels", "assign_z_direction", "[unisono.link]"],
                STALE,
            ),
        }
    }
    GraphTopology {
        at: item.at,
        layout: layout.flatten(),
        channels: lanes,
        z: z.is_some_and(|z| z.value),
        link,
    }
}

fn connection(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>]) -> Connection {
    let mut nodes = Vec::new();
    let (mut lanes, mut directional, mut z, mut link) = (None, None, None, None);
    // Newer versions read directions and pay no heed to them; so do we.
    let mut directions = Vec::new();
    for field in fields {
        match known(field) {
            "nodes" => r.each(&mut nodes, field, |r, item, _, i| node(r, item, "nodes", Some(i))),
            "channels" => r.set(&mut lanes, field, channels),
            "directional" => r.set(&mut directional, field, Reader::boolean),
            "routing_direction" => r.each(&mut directions, field, |r, item, name, _| {
                r.word(item, name, DIRECTIONS)
            }),
            "assign_z_direction" => r.set(&mut z, field, Reader::boolean),
            "[unisono.link]" => r.set(&mut link, field, |r, item, _| super::blocks::link(r, item, false)),
            _ => r.unknown(
                field,
                &[
                    "nodes",
                    "channels",
                    "directional",
                    "routing_direction",
                    "assign_z_direction",
                    "[unisono.link]",
                ],
                &[],
            ),
        }
    }
    Connection {
        at: item.at,
        nodes,
        channels: lanes,
        directional,
        z: z.is_some_and(|z| z.value),
        link,
    }
}

/// A `NodeRef` in the field `name`.
fn node(r: &mut Reader, item: &Item<'_>, name: &'static str, index: Option<usize>) -> Option<NodeRef> {
    r.block(item, name, index, |r, fields| {
        let mut target: Option<Target> = None;
        for field in fields {
            let kind = match known(field) {
                "mesh" => RefKind::Mesh,
                "switch" => RefKind::Switch,
                "graph" => RefKind::Graph,
                _ => {
                    r.unknown(field, &["mesh", "switch", "graph"], &[]);
                    continue;
                }
            };
            one_of(r, &mut target, field, kind);
        }
        NodeRef { at: item.at, target }
    })
}

/// Reads one of `mesh`, `switch` and `graph`, of which a node has only one.
fn one_of(r: &mut Reader, target: &mut Option<Target>, field: &Field<'_>, kind: RefKind) {
    if let Some(first) = target.as_ref().filter(|first| first.kind != kind) {
        let first = first.kind.name();
        return r.problem(field.at, kind.name(), || {
            format!("stands beside {first:?}; a node is one of mesh, switch and graph")
        });
    }
    r.set(target, field, |r, item, _| {
        r.block(item, kind.name(), None, |r, fields| reference(r, item, fields, kind))
    });
}

fn reference(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>], kind: RefKind) -> Target {
    let (descriptor_field, id_field) = match kind {
        RefKind::Mesh => ("mesh_descriptor", "mesh_id"),
        RefKind::Switch => ("switch_descriptor", "switch_id"),
        RefKind::Graph => ("graph_descriptor", "graph_id"),
    };
    let (mut descriptor, mut id, mut device, mut sub) = (None, None, None, None);
    let mut older: Option<Target> = None;
    for field in fields {
        match known(field) {
            name if name == descriptor_field => r.set(&mut descriptor, field, Reader::text),
            name if name == id_field => r.set(&mut id, field, Reader::int32),
            "device_id" if kind != RefKind::Graph => r.set(&mut device, field, Reader::int32),
            "sub_ref" if kind == RefKind::Graph => r.set(&mut sub, field, |r, item, _| node(r, item, "sub_ref", None)),
            // The first schema had the inner reference here, without `sub_ref`.
            "mesh" if kind == RefKind::Graph => one_of(r, &mut older, field, RefKind::Mesh),
            "graph" if kind == RefKind::Graph => one_of(r, &mut older, field, RefKind::Graph),
            _ if kind == RefKind::Graph => r.unknown(field, &[descriptor_field, id_field, "sub_ref"], STALE),
            _ => r.unknown(field, &[descriptor_field, id_field, "device_id"], STALE),
        }
    }
    if let (None, Some(inner)) = (&sub, older) {
        sub = Some(NodeRef {
            at: inner.at,
            target: Some(inner),
        });
    }
    Target {
        at: item.at,
        kind,
        descriptor: descriptor.map_or_else(String::new, |name| name.value),
        id: id.map_or(0, |id| id.value),
        device,
        sub: sub.map(Box::new),
    }
}

fn pinning(r: &mut Reader, item: &Item<'_>, fields: &[Field<'_>]) -> Pinning {
    let (mut nodes, mut positions) = (Vec::new(), Vec::new());
    for field in fields {
        match known(field) {
            "logical_fabric_node_id" => r.each(&mut nodes, field, |r, item, _, i| {
                pair(
                    r,
                    item,
                    "logical_fabric_node_id",
                    i,
                    ["mesh_id", "mesh_id_regex", "chip_id", "chip_id_regex"],
                )
            }),
            "physical_asic_position" => r.each(&mut positions, field, |r, item, _, i| {
                let names = ["tray_id", "tray_id_regex", "asic_location", "asic_location_regex"];
                pair(r, item, "physical_asic_position", i, names)
            }),
            _ => r.unknown(field, &["logical_fabric_node_id", "physical_asic_position"], &[]),
        }
    }
    Pinning {
        at: item.at,
        nodes,
        positions,
    }
}

fn pair(r: &mut Reader, item: &Item<'_>, name: &'static str, index: usize, names: [&str; 4]) -> Option<PinPair> {
    r.block(item, name, Some(index), |r, fields| {
        let (mut first, mut second) = (PinField::default(), PinField::default());
        for field in fields {
            match names.iter().position(|name| *name == known(field)) {
                Some(0) => r.set(&mut first.number, field, Reader::uint32),
                Some(1) => r.set(&mut first.pattern, field, Reader::text),
                Some(2) => r.set(&mut second.number, field, Reader::uint32),
                Some(_) => r.set(&mut second.pattern, field, Reader::text),
                None => r.unknown(field, &names, &[]),
            }
        }
        PinPair {
            at: item.at,
            first,
            second,
        }
    })
}
