//! Population, second half: connections between the children of graphs, and pinnings.

use super::extension::{LinkBlock, LinkRate};
use super::machine::{Block, Connection, Endpoint, Origin, Pin};
use super::pinning::Matcher;
use super::populate::{Builder, Source, channel_count};
use super::schema::{self, Architecture, Channels, Layout, NodeRef, PinPair, Policy, RefKind};
use std::sync::Arc;

/// Patterns times numbers that they are tried on, at most.
const MAX_TRIALS: usize = 1 << 20;

/// What stands at the end of a connection: only equals may be joined.
#[derive(PartialEq)]
enum End {
    Device,
    /// A mesh or a switch.
    Block,
    Graph(Arc<str>),
}

impl End {
    fn name(&self) -> String {
        match self {
            End::Device => "a device".to_owned(),
            End::Block => "a mesh or switch".to_owned(),
            End::Graph(label) => format!("a graph of type {label:?}"),
        }
    }
}

/// The connections of every graph, the explicit ones first.
pub(crate) fn connections(b: &mut Builder<'_>) -> Vec<Connection> {
    let mut made = Vec::new();
    for graph in 0..b.instances.len() {
        let Source::Graph(index) = b.sources[graph] else {
            continue;
        };
        let descriptor = &b.descriptor.graphs[index];
        for (c, connection) in descriptor.connections.iter().enumerate() {
            explicit(b, &mut made, graph, index, c, connection);
            if b.full {
                return made;
            }
        }
        if let Some(topology) = &descriptor.topology {
            shorthand(b, &mut made, graph, index, topology);
        }
    }
    made
}

/// What all connections of one entry share.
fn common(b: &Builder<'_>, graph: usize, channels: Option<&Channels>, link: Option<&LinkBlock>) -> Connection {
    let arch = b
        .descriptor
        .meshes
        .iter()
        .chain(&b.descriptor.switches)
        .find_map(|mesh| mesh.arch);
    let nowhere = Endpoint {
        instance: graph,
        device: None,
    };
    Connection {
        graph,
        a: nowhere,
        b: nowhere,
        channels: channel_count(channels),
        policy: channels.and_then(|channels| channels.policy).unwrap_or(Policy::Strict),
        z: false,
        origin: Origin::Explicit,
        rate: LinkRate::new(arch.map_or(Architecture::WormholeB0, |arch| arch.value), link),
    }
}

fn explicit(
    b: &mut Builder<'_>,
    made: &mut Vec<Connection>,
    graph: usize,
    index: usize,
    c: usize,
    connection: &schema::Connection,
) {
    let path = || format!("graph_descriptors[{index}].connections[{c}]");
    if let Some(directional) = connection.directional.filter(|directional| directional.value) {
        b.problems.add(directional.at, path() + ".directional", || {
            "a connection in one direction is not supported; leave directional out or write false".to_owned()
        });
    }
    let mut ends: Vec<(Endpoint, End)> = Vec::new();
    for (n, node) in connection.nodes.iter().enumerate() {
        let Some(end) = endpoint(b, graph, node, &|| format!("{}.nodes[{n}]", path())) else {
            continue;
        };
        if let Some((_, first)) = ends.first().filter(|(_, first)| *first != end.1) {
            let (first, second) = (first.name(), end.1.name());
            b.problems.add(node.at, path(), || {
                format!(
                    "it joins {first} with {second}; both ends are of one kind, where meshes and switches count as one"
                )
            });
        }
        ends.push(end);
    }
    let pairs = ends.len().saturating_mul(ends.len()) / 2;
    if pairs > b.links_left {
        b.stop(connection.at, path(), too_many);
        return;
    }
    b.links_left -= pairs;
    let shared = Connection {
        z: connection.z,
        ..common(b, graph, connection.channels.as_ref(), connection.link.as_ref())
    };
    for (i, (first, _)) in ends.iter().enumerate() {
        for (second, _) in &ends[i + 1..] {
            if first == second {
                b.warnings
                    .add(connection.at, path(), || "it joins a node with itself".to_owned());
            }
            made.push(Connection {
                a: *first,
                b: *second,
                ..shared
            });
        }
    }
}

fn too_many() -> String {
    format!(
        "the machine has more than {} links and connections",
        super::populate::MAX_LINKS
    )
}

/// The instance or device that a node of a connection names.
fn endpoint(b: &mut Builder<'_>, graph: usize, node: &NodeRef, path: &dyn Fn() -> String) -> Option<(Endpoint, End)> {
    let (mut within, mut node) = (graph, node);
    loop {
        let Some(target) = &node.target else {
            b.problems.add(node.at, path(), || {
                "the node is neither a mesh nor a switch nor a graph".to_owned()
            });
            return None;
        };
        let name = b.instances[within].descriptor.clone();
        let Some(child) = b.children[within].get(&target.id).copied() else {
            let mut ids: Vec<i32> = b.children[within].keys().copied().collect();
            ids.sort_unstable();
            b.problems.add(target.at, path(), || {
                let shown: Vec<String> = ids.iter().take(16).map(i32::to_string).collect();
                let more = if ids.len() > 16 { ", …" } else { "" };
                let ids = if shown.is_empty() {
                    "none".to_owned()
                } else {
                    shown.join(", ")
                };
                format!(
                    "the graph {name:?} has no {} with id {}; its ids are {ids}{more}",
                    target.kind.name(),
                    target.id
                )
            });
            return None;
        };
        let instance = &b.instances[child];
        if instance.kind != target.kind || *instance.descriptor != *target.descriptor {
            let (kind, descriptor) = (instance.kind.name(), instance.descriptor.clone());
            b.problems.add(target.at, path(), || {
                format!(
                    "the id {} in the graph {name:?} is the {kind} {descriptor:?}, not the {} {:?}",
                    target.id,
                    target.kind.name(),
                    target.descriptor
                )
            });
            return None;
        }
        if let Some(sub) = &target.sub {
            (within, node) = (child, sub);
            continue;
        }
        let end = |device| Endpoint {
            instance: child,
            device,
        };
        if target.kind == RefKind::Graph {
            return Some((end(None), End::Graph(instance.label.clone())));
        }
        let Some(device) = target.device else {
            return Some((end(None), End::Block));
        };
        let mesh = match b.sources[child] {
            Source::Mesh(i) => &b.descriptor.meshes[i],
            Source::Switch(i) => &b.descriptor.switches[i],
            Source::Graph(_) => unreachable!("bug in unisono: a mesh made from a graph"),
        };
        let devices: usize = mesh
            .dims
            .iter()
            .map(|dim| usize::try_from(dim.value).unwrap_or(0))
            .product();
        return match usize::try_from(device.value).ok().filter(|device| *device < devices) {
            Some(device) => Some((end(Some(device)), End::Device)),
            None => {
                b.problems.add(device.at, path() + ".device_id", || {
                    format!(
                        "device {} is not in the {} {:?}, whose devices are 0 to {}",
                        device.value,
                        target.kind.name(),
                        target.descriptor,
                        devices.saturating_sub(1)
                    )
                });
                None
            }
        };
    }
}

/// The connections that a `graph_topology` stands for. Children are taken in the order of their ids.
fn shorthand(
    b: &mut Builder<'_>,
    made: &mut Vec<Connection>,
    graph: usize,
    index: usize,
    topology: &schema::GraphTopology,
) {
    let path = || format!("graph_descriptors[{index}].graph_topology");
    let Some(layout) = topology.layout else {
        b.problems.add(topology.at, path() + ".layout_type", || {
            "no layout is given; write layout_type: ALL_TO_ALL or RING".to_owned()
        });
        return;
    };
    let mut children = b.instances[graph].children.clone();
    children.sort_by_key(|child| b.instances[*child].id);
    let n = children.len();
    let pairs: Vec<(usize, usize)> = match layout {
        Layout::Ring if n < 2 => Vec::new(),
        Layout::Ring => (0..n).map(|i| (i, (i + 1) % n)).collect(),
        Layout::AllToAll if n.saturating_mul(n) / 2 > b.links_left => {
            b.stop(topology.at, path(), too_many);
            return;
        }
        Layout::AllToAll => (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect(),
    };
    if pairs.len() > b.links_left {
        b.stop(topology.at, path(), too_many);
        return;
    }
    b.links_left -= pairs.len();
    let shared = Connection {
        z: topology.z,
        origin: match layout {
            Layout::AllToAll => Origin::AllToAll,
            Layout::Ring => Origin::Ring,
        },
        ..common(b, graph, topology.channels.as_ref(), topology.link.as_ref())
    };
    let end = |i: usize| Endpoint {
        instance: children[i],
        device: None,
    };
    made.extend(pairs.into_iter().map(|(i, j)| Connection {
        a: end(i),
        b: end(j),
        ..shared
    }));
}

/// The pinnings of the descriptor, one for each mesh that an entry speaks of.
pub(crate) fn pins(b: &mut Builder<'_>, blocks: &[Block]) -> Vec<Pin> {
    let mut made = Vec::new();
    let mut trials = 0usize;
    let devices: usize = blocks.iter().map(Block::num_devices).sum();
    for (i, pin) in b.descriptor.pinnings.iter().enumerate() {
        let path = |side: &str| format!("pinnings[{i}].{side}");
        // A plain number is looked up, a pattern is tried on all.
        let tried = |pair: &PinPair| match pair.second.pattern {
            Some(_) => blocks.len() + devices,
            None => blocks.len(),
        };
        trials += pin.nodes.iter().map(tried).sum::<usize>() + pin.positions.len() * 512;
        if trials > MAX_TRIALS {
            b.problems.add(pin.at, format!("pinnings[{i}]"), || {
                format!("there are more pinnings than can be tried on {devices} devices; use fewer and wider ones")
            });
            return made;
        }
        let positions: Arc<[(Vec<u32>, Vec<u32>)]> = pin.positions.iter().map(|pair| both(pair, 256)).collect();
        for (n, pair) in pin.positions.iter().enumerate() {
            if positions[n].0.is_empty() || positions[n].1.is_empty() {
                b.problems.add(pair.at, path("physical_asic_position"), || {
                    format!(
                        "no position has {}; trays and locations are 0 to 255",
                        named(pair, ["tray_id", "asic_location"])
                    )
                });
            }
        }
        // Devices by mesh, so that an entry stands once for each mesh.
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
        for pair in &pin.nodes {
            let (Ok(mesh), Ok(chip)) = (Matcher::new(&pair.first), Matcher::new(&pair.second)) else {
                continue; // an earlier stage has told of it
            };
            let mut any = false;
            for (index, block) in blocks
                .iter()
                .enumerate()
                .filter(|(_, block)| !block.is_switch && mesh.allows(block.id))
            {
                let before = chosen[index].len();
                match &chip {
                    Matcher::Number(only) => chosen[index].extend(
                        usize::try_from(*only)
                            .ok()
                            .filter(|device| *device < block.num_devices()),
                    ),
                    pattern => chosen[index].extend(
                        (0..block.num_devices())
                            .filter(|device| u32::try_from(*device).is_ok_and(|device| pattern.allows(device))),
                    ),
                }
                any |= chosen[index].len() > before;
            }
            if !any {
                b.problems.add(pair.at, path("logical_fabric_node_id"), || {
                    format!(
                        "no mesh of the machine has a device with {}",
                        named(pair, ["mesh_id", "chip_id"])
                    )
                });
            }
        }
        for (block, mut devices) in chosen
            .into_iter()
            .enumerate()
            .filter(|(_, devices)| !devices.is_empty())
        {
            devices.sort_unstable();
            devices.dedup();
            made.push(Pin {
                block,
                devices,
                positions: positions.clone(),
            });
        }
    }
    made
}

/// The numbers below `limit` that the two fields of a pair allow.
fn both(pair: &PinPair, limit: u32) -> (Vec<u32>, Vec<u32>) {
    let allowed = |field| match Matcher::new(field) {
        Ok(matcher) => (0..limit).filter(|number| matcher.allows(*number)).collect(),
        Err(_) => Vec::new(), // an earlier stage has told of it
    };
    (allowed(&pair.first), allowed(&pair.second))
}

/// A pair as it is written.
fn named(pair: &PinPair, names: [&str; 2]) -> String {
    let one = |field: &schema::PinField, name: &str| match &field.pattern {
        Some(pattern) => format!("{name} {:?}", super::lex::shortened(&pattern.value)),
        None => format!("{name} {}", field.number.map_or(0, |number| number.value)),
    };
    format!("{} and {}", one(&pair.first, names[0]), one(&pair.second, names[1]))
}
