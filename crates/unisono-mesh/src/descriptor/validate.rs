//! Stages A and B of the check: what every descriptor must have, names, channels and architectures.

use super::report::{At, Position, Problems};
use super::schema::*;
use std::collections::HashMap;

/// Types of graphs that the machine itself uses.
const RESERVED: [&str; 3] = ["DEVICE", "MESH", "SWITCH"];

/// Stage A.
pub(crate) fn structure(d: &Descriptor) -> Problems {
    let mut problems = Problems::default();
    let start = Position { line: 1, column: 1 };
    if d.meshes.is_empty() && d.switches.is_empty() {
        problems.add(start, "mesh_descriptors", || {
            "there is neither a mesh nor a switch descriptor; describe at least one mesh".to_owned()
        });
    }
    if d.top.is_none() {
        problems.add(start, "top_level_instance", || {
            "there is no top-level instance; say what the machine is, for example top_level_instance { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } }".to_owned()
        });
    }
    problems
}

/// The meshes and then the switches, each with the path of its entry.
pub(crate) fn entries(d: &Descriptor) -> impl Iterator<Item = (String, &MeshDescriptor)> {
    let meshes = d
        .meshes
        .iter()
        .enumerate()
        .map(|(i, mesh)| (format!("mesh_descriptors[{i}]"), mesh));
    let switches = d
        .switches
        .iter()
        .enumerate()
        .map(|(i, switch)| (format!("switch_descriptors[{i}]"), switch));
    meshes.chain(switches)
}

/// Stage B.
pub(crate) fn names(d: &Descriptor) -> Problems {
    let mut problems = Problems::default();
    let p = &mut problems;
    named(p, "mesh", d.meshes.iter().map(|mesh| (mesh.at, mesh.name.as_ref())));
    named(
        p,
        "switch",
        d.switches.iter().map(|switch| (switch.at, switch.name.as_ref())),
    );
    named(p, "graph", d.graphs.iter().map(|graph| (graph.at, graph.name.as_ref())));
    for (path, mesh) in entries(d) {
        counted(p, mesh.at, &path, mesh.channels.as_ref());
    }
    for (i, graph) in d.graphs.iter().enumerate() {
        graph_names(p, i, graph);
    }
    architectures(p, d);
    problems
}

fn named<'d>(problems: &mut Problems, kind: &str, entries: impl Iterator<Item = (Position, Option<&'d At<String>>)>) {
    let mut seen: HashMap<&str, Position> = HashMap::new();
    for (i, (at, name)) in entries.enumerate() {
        let field = || format!("{kind}_descriptors[{i}].name");
        match name {
            Some(name) if !name.value.is_empty() => {
                if let Some(first) = seen.get(&*name.value) {
                    problems.add(name.at, field(), || {
                        format!("the name {:?} is taken by the {kind} at {first}; names are unique among {kind} descriptors", name.value)
                    });
                } else {
                    seen.insert(&name.value, name.at);
                }
            }
            _ => problems.add(name.map_or(at, |name| name.at), field(), || {
                format!(
                    "{kind} descriptor {} has no name; give it one, for example name: \"M0\"",
                    i + 1
                )
            }),
        }
    }
}

fn counted(problems: &mut Problems, at: Position, path: &str, channels: Option<&Channels>) {
    let count = channels.and_then(|channels| channels.count);
    if count.is_some_and(|count| count.value > 0) {
        return;
    }
    let at = count
        .map(|count| count.at)
        .or(channels.map(|channels| channels.at))
        .unwrap_or(at);
    problems.add(at, format!("{path}.channels.count"), || match count {
        Some(count) => format!("{} channels; a link needs at least 1", count.value),
        None => "no number of channels is given; write channels { count: 1 } or more".to_owned(),
    });
}

fn graph_names(problems: &mut Problems, i: usize, graph: &GraphDescriptor) {
    let path = format!("graph_descriptors[{i}]");
    if let Some(kind) = graph.kind.as_ref().filter(|kind| RESERVED.contains(&&*kind.value)) {
        problems.add(kind.at, format!("{path}.type"), || {
            format!(
                "{:?} is reserved; call the graph something else, for example \"FABRIC\"",
                kind.value
            )
        });
    }
    if let Some(topology) = &graph.topology {
        counted(
            problems,
            topology.at,
            &format!("{path}.graph_topology"),
            topology.channels.as_ref(),
        );
    }
    for (c, connection) in graph.connections.iter().enumerate() {
        counted(
            problems,
            connection.at,
            &format!("{path}.connections[{c}]"),
            connection.channels.as_ref(),
        );
    }
}

fn architectures(problems: &mut Problems, d: &Descriptor) {
    // The first architecture that is given, of a mesh if there is one, is the machine's.
    let first = entries(d).find_map(|(_, mesh)| mesh.arch.map(|arch| (mesh, arch.value)));
    for (path, mesh) in entries(d) {
        let Some(arch) = mesh.arch else {
            problems.add(mesh.at, format!("{path}.arch"), || {
                let words = Architecture::ALL.map(Architecture::name).join(", ");
                format!("no architecture is given; write one of {words}")
            });
            continue;
        };
        if let Some((other, expected)) = first.filter(|(_, expected)| *expected != arch.value) {
            problems.add(arch.at, format!("{path}.arch"), || {
                format!(
                    "{} here, but {} in {:?}; all meshes and switches of a descriptor have one architecture",
                    arch.value.name(),
                    expected.name(),
                    other.name()
                )
            });
        }
        let limit = arch.value.max_dims();
        if mesh.dims.len() > limit {
            problems.add(mesh.dims[limit].at, format!("{path}.device_topology.dims"), || {
                format!(
                    "{} dimensions; {} has at most {limit}",
                    mesh.dims.len(),
                    arch.value.name()
                )
            });
        }
    }
}
