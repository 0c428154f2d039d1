//! The topology that a group gets.

use super::Topology;

/// The topology for a line of devices whose ends are `joined` or not, and what is to be said where it is not the one asked
/// for. Asked for none it is a ring where there can be one.
pub fn topology_for(asked: Option<Topology>, joined: bool) -> (Topology, Option<String>) {
    match (asked, joined) {
        (Some(Topology::Linear), _) => (Topology::Linear, None),
        (_, true) => (Topology::Ring, None),
        (None, false) => (Topology::Linear, None),
        (Some(Topology::Ring), false) => (
            Topology::Linear,
            Some("a ring was asked for, but no link joins the ends; the topology is linear".to_owned()),
        ),
    }
}
