//! Stage C of the check: shapes, express links, graphs and pinnings, each by itself.

use super::express;
use super::pinning;
use super::report::{At, Problems};
use super::schema::*;
use super::validate::entries;
use crate::MAX_DEVICES;
use crate::draw::counted;

/// The most devices that a switched mesh may have: it gets a link for each pair.
pub(crate) const MAX_SWITCHED: usize = 256;

/// Stage C: its problems and its warnings.
pub(crate) fn topology(d: &Descriptor) -> (Problems, Problems) {
    let (mut problems, mut warnings) = (Problems::default(), Problems::default());
    for (path, mesh) in entries(d) {
        mesh_topology(&mut problems, &mut warnings, &path, mesh);
    }
    for (i, graph) in d.graphs.iter().enumerate() {
        graph_topology(&mut problems, i, graph);
    }
    for (i, pin) in d.pinnings.iter().enumerate() {
        pinning::check(&mut problems, i, pin);
    }
    (problems, warnings)
}

/// Dims as a text.
fn list(dims: &[At<i32>]) -> String {
    let sizes: Vec<String> = dims.iter().map(|dim| dim.value.to_string()).collect();
    format!("[{}]", sizes.join(", "))
}

fn mesh_topology(problems: &mut Problems, warnings: &mut Problems, path: &str, mesh: &MeshDescriptor) {
    let dims_path = || format!("{path}.device_topology.dims");
    let at = mesh.device_topology.unwrap_or(mesh.at);
    if mesh.dims.is_empty() {
        problems.add(at, dims_path(), || {
            "no dimensions are given; write for example device_topology { dims: [2, 4] }".to_owned()
        });
    }
    for dim in mesh.dims.iter().filter(|dim| dim.value <= 0) {
        problems.add(dim.at, dims_path(), || {
            format!("a dimension of {} devices; every dimension has at least 1", dim.value)
        });
    }
    if mesh.dim_types.len() > mesh.dims.len() {
        problems.add(
            mesh.dim_types[mesh.dims.len()].at,
            format!("{path}.device_topology.dim_types"),
            || {
                format!(
                    "{} types for the {} dimensions {}; give at most one LINE or RING a dimension",
                    mesh.dim_types.len(),
                    mesh.dims.len(),
                    list(&mesh.dims)
                )
            },
        );
    }
    if !mesh.is_switch {
        host_topology(problems, path, mesh);
    }
    rings(warnings, path, mesh);
    if mesh.dims.is_empty() || mesh.dims.iter().any(|dim| dim.value <= 0) {
        return; // what follows counts devices
    }
    let devices = mesh.dims.iter().try_fold(1usize, |volume, dim| {
        volume
            .checked_mul(usize::try_from(dim.value).ok()?)
            .filter(|volume| *volume <= MAX_DEVICES)
    });
    let Some(devices) = devices else {
        return problems.add(mesh.dims[0].at, dims_path(), || {
            format!(
                "{} has more than {MAX_DEVICES} devices, the most that unisono drives",
                list(&mesh.dims)
            )
        });
    };
    express_connections(problems, warnings, path, mesh, devices);
    express::check(problems, warnings, path, mesh);
    link_blocks(problems, path, mesh, devices);
}

fn host_topology(problems: &mut Problems, path: &str, mesh: &MeshDescriptor) {
    let field = || format!("{path}.host_topology.dims");
    let at = mesh.host_topology.unwrap_or(mesh.at);
    if mesh.host_topology.is_none() || mesh.host_dims.is_empty() {
        let ones = vec!["1"; mesh.dims.len().max(1)].join(", ");
        return problems.add(at, field(), || {
            format!("the grid of hosts is not given; write host_topology {{ dims: [{ones}] }} for one host")
        });
    }
    if mesh.host_dims.len() != mesh.dims.len() {
        return problems.add(mesh.host_dims[0].at, field(), || {
            format!(
                "the hosts {} have {} and the devices {} have {}; give as many of each",
                list(&mesh.host_dims),
                counted(mesh.host_dims.len(), "dimension"),
                list(&mesh.dims),
                mesh.dims.len()
            )
        });
    }
    for (axis, (host, device)) in mesh.host_dims.iter().zip(&mesh.dims).enumerate() {
        if host.value <= 0 {
            problems.add(host.at, field(), || {
                format!(
                    "{} hosts along dimension {axis}; every dimension has at least 1",
                    host.value
                )
            });
        } else if device.value > 0 && device.value % host.value != 0 {
            problems.add(host.at, field(), || {
                format!(
                    "dimension {axis} has {} devices, which {} hosts cannot share evenly; the devices {} must be divisible by the hosts {}",
                    device.value,
                    host.value,
                    list(&mesh.dims),
                    list(&mesh.host_dims)
                )
            });
        }
    }
}

/// Warns of rings that are too short to have a wrap link.
fn rings(warnings: &mut Problems, path: &str, mesh: &MeshDescriptor) {
    for (axis, (kind, dim)) in mesh.dim_types.iter().zip(&mesh.dims).enumerate() {
        if kind.value == DimType::Ring && (1..3).contains(&dim.value) {
            warnings.add(kind.at, format!("{path}.device_topology.dim_types"), || {
                format!(
                    "RING on dimension {axis} of {} is taken as LINE: a ring has a link of its own from 3 devices on",
                    dim.value
                )
            });
        }
    }
}

fn express_connections(
    problems: &mut Problems,
    warnings: &mut Problems,
    path: &str,
    mesh: &MeshDescriptor,
    devices: usize,
) {
    for (i, express) in mesh.express_connections.iter().enumerate() {
        for (end, device) in [("src", express.src), ("dst", express.dst)] {
            if !usize::try_from(device).is_ok_and(|device| device < devices) {
                problems.add(express.at, format!("{path}.express_connections[{i}].{end}"), || {
                    format!(
                        "device {device} is not in {}, whose devices are 0 to {}",
                        list(&mesh.dims),
                        devices - 1
                    )
                });
            }
        }
        if express.src == express.dst {
            warnings.add(express.at, format!("{path}.express_connections[{i}]"), || {
                format!("device {} is joined with itself, which makes no link", express.src)
            });
        }
    }
}

fn link_blocks(problems: &mut Problems, path: &str, mesh: &MeshDescriptor, devices: usize) {
    let field = || format!("{path}.[unisono.link]");
    for (i, block) in mesh.links.iter().enumerate() {
        if let Some(dim) = block.dim.filter(|dim| *dim as usize >= mesh.dims.len()) {
            problems.add(block.at, field(), || {
                format!(
                    "there is no dimension {dim}: {} has {}, counted from 0",
                    list(&mesh.dims),
                    counted(mesh.dims.len(), "dimension")
                )
            });
        }
        // Few dimensions, so that a block is the second of its dimension soon.
        if let Some(first) = mesh.links[..i.min(8)].iter().find(|first| first.dim == block.dim) {
            problems.add(block.at, field(), || {
                let of = block
                    .dim
                    .map_or("all dimensions".to_owned(), |dim| format!("dimension {dim}"));
                format!("a second block for {of}; the first is at {}", first.at)
            });
        }
        if block.switched && devices > MAX_SWITCHED {
            problems.add(block.at, field(), || {
                format!("{devices} devices on one switch; at most {MAX_SWITCHED} get a link for each pair")
            });
        }
    }
}

fn graph_topology(problems: &mut Problems, i: usize, graph: &GraphDescriptor) {
    let path = format!("graph_descriptors[{i}]");
    if graph.instances.is_empty() {
        problems.add(graph.at, format!("{path}.instances"), || {
            format!("the graph {:?} has no instances; it needs at least 1", graph.name())
        });
    }
    if graph.kind().is_empty() {
        problems.add(graph.at, format!("{path}.type"), || {
            format!(
                "the graph {:?} has no type; write for example type: \"FABRIC\"",
                graph.name()
            )
        });
    }
    for (c, connection) in graph.connections.iter().enumerate().filter(|(_, c)| c.nodes.len() < 2) {
        problems.add(connection.at, format!("{path}.connections[{c}].nodes"), || {
            format!(
                "the connection has {} of the 2 nodes that it joins",
                connection.nodes.len()
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Position;

    #[test]
    fn dims_are_written_as_the_format_writes_them() {
        let at = Position::default();
        assert_eq!(list(&[At { value: 4, at }, At { value: -1, at }]), "[4, -1]");
    }
}
