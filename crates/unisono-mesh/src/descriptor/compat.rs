//! Stage D, a verdict of its own: what a control plane takes that knows mesh graphs of version 1.0.

use super::report::Problems;
use super::schema::{Architecture, Descriptor, Policy};
use super::validate::entries;
use crate::draw::counted;

/// What stands between this descriptor and such a control plane. The descriptor is valid even so.
pub(crate) fn compatibility(d: &Descriptor) -> Problems {
    let mut problems = Problems::default();
    let p = &mut problems;
    for (path, mesh) in entries(d) {
        if mesh.dims.len() != 2 {
            p.add(
                mesh.device_topology.unwrap_or(mesh.at),
                format!("{path}.device_topology.dims"),
                || {
                    format!(
                        "{}; a mesh graph 1.0 has exactly 2",
                        counted(mesh.dims.len(), "dimension")
                    )
                },
            );
        }
        if let Some(express) = mesh.express_connections.first() {
            p.add(express.at, format!("{path}.express_connections"), || {
                format!(
                    "{}; a mesh graph 1.0 has none",
                    counted(mesh.express_connections.len(), "express connection")
                )
            });
        }
        if let Some(arch) = mesh
            .arch
            .filter(|arch| matches!(arch.value, Architecture::Cpu | Architecture::Cuda))
        {
            p.add(arch.at, format!("{path}.arch"), || {
                format!("the original does not know the architecture {}", arch.value.name())
            });
        }
    }
    if d.graphs.len() > 1 {
        p.add(d.graphs[1].at, "graph_descriptors", || {
            format!("{} graph descriptors; a mesh graph 1.0 has at most 1", d.graphs.len())
        });
    }
    for (i, graph) in d.graphs.iter().enumerate() {
        let path = format!("graph_descriptors[{i}]");
        if graph.kind() != "FABRIC" {
            let at = graph.kind.as_ref().map_or(graph.at, |kind| kind.at);
            p.add(at, format!("{path}.type"), || {
                format!("the type {:?}; a mesh graph 1.0 is of type \"FABRIC\"", graph.kind())
            });
        }
        let policy = |c: &super::schema::Connection| {
            c.channels
                .as_ref()
                .and_then(|channels| channels.policy)
                .unwrap_or(Policy::Strict)
        };
        let first = graph.connections.first().map(policy);
        if let Some((c, other)) = graph
            .connections
            .iter()
            .enumerate()
            .find(|(_, c)| Some(policy(c)) != first)
        {
            p.add(other.at, format!("{path}.connections[{c}].channels.policy"), || {
                format!(
                    "{} here and {} in connections[0]; the connections of a mesh graph 1.0 have one policy, STRICT where none is written",
                    policy(other).name(),
                    first.unwrap_or(Policy::Strict).name()
                )
            });
        }
        for (c, connection) in graph.connections.iter().enumerate().filter(|(_, c)| c.nodes.len() != 2) {
            p.add(connection.at, format!("{path}.connections[{c}].nodes"), || {
                format!(
                    "{} nodes; a connection of a mesh graph 1.0 has exactly 2",
                    connection.nodes.len()
                )
            });
        }
    }
    problems.sort();
    problems
}
