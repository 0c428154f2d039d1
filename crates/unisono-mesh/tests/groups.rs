//! Which devices meet and which links they have, on described machines.

use unisono_mesh::descriptor::{Checked, check};
use unisono_mesh::schedule::{Group, LinkModel, Topology, check_links};

/// A machine of 4 rows and 8 columns whose columns are rings, with two channels.
fn machine(extra: &str) -> Checked {
    let text = format!(
        "mesh_descriptors {{
           name: \"M0\" arch: WORMHOLE_B0
           device_topology {{ dims: [4, 8] dim_types: [RING, LINE] }}  host_topology {{ dims: [1, 1] }}
           channels {{ count: 2 }}
           {extra}
         }}
         top_level_instance {{ mesh {{ mesh_descriptor: \"M0\" mesh_id: 0 }} }}"
    );
    check("box.textproto", text.as_bytes()).expect("a valid descriptor")
}

fn group(mesh: [usize; 2], axis: Option<usize>, asked: Option<Topology>, machine: &Checked) -> Group {
    Group::of(mesh, axis, asked, machine.machine.meshes().next()).expect("it lies on the machine")
}

#[test]
fn the_descriptor_says_which_ends_are_joined() {
    let machine = machine("");
    for (mesh, axis, described) in [
        ([4, 8], Some(0), "a ring of 4 devices"),
        ([4, 8], Some(1), "a line of 8 devices"),
        ([4, 8], None, "a 4×8 grid of 32 devices (columns ring, rows linear)"),
        // Turned by a quarter.
        ([8, 4], Some(1), "a ring of 4 devices"),
        ([8, 4], Some(0), "a line of 8 devices"),
        // A corner: the ends are cut off.
        ([2, 4], Some(0), "a line of 2 devices"),
        ([3, 8], Some(0), "a line of 3 devices"),
        // The whole machine there and back; its last device stands before its first, as the columns are rings.
        ([1, 32], None, "a ring of 32 devices"),
        ([32, 1], Some(0), "a ring of 32 devices"),
        ([1, 31], Some(1), "a line of 31 devices"),
    ] {
        let found = group(mesh, axis, None, &machine);
        assert_eq!(found.fabric.describe(), described, "{mesh:?} {axis:?}");
        assert_eq!(
            found.channels,
            if found.fabric.num_devices() > 1 { Some(2) } else { None }
        );
    }
}

#[test]
fn a_ring_that_there_is_not_is_said() {
    let machine = machine("");
    let row = group([4, 8], Some(1), Some(Topology::Ring), &machine);
    assert_eq!(row.fabric.describe(), "a line of 8 devices");
    assert!(
        row.notes[0].contains("no link joins the ends; the topology is linear"),
        "{:?}",
        row.notes
    );
    let column = group([4, 8], Some(0), Some(Topology::Ring), &machine);
    assert!(
        column.notes.iter().all(|note| !note.contains("ring")),
        "{:?}",
        column.notes
    );
    let cut = group([4, 8], Some(0), Some(Topology::Linear), &machine);
    assert_eq!(cut.fabric.describe(), "a line of 4 devices");
    // Without a machine it is as asked.
    let free = Group::of([1, 4], None, Some(Topology::Linear), None).expect("a mesh");
    assert_eq!(
        (free.fabric.describe().as_str(), free.channels),
        ("a line of 4 devices", None)
    );
}

#[test]
fn costs_are_those_of_the_links_used() {
    let ethernet = group([4, 8], None, None, &machine(""));
    assert_eq!(
        ethernet.model,
        Some(LinkModel {
            bandwidth: 12.5e9,
            latency: 0.0
        })
    );
    assert!(ethernet.notes.iter().any(|note| note.contains("no latency")));
    let blocks = "[unisono.link] { dim: 0 bandwidth_gbps: 40 latency_us: 2 } [unisono.link] { dim: 1 bandwidth_gbps: 10 latency_us: 3 }";
    let machine = machine(blocks);
    let model = |axis| group([4, 8], axis, None, &machine).model.expect("both are given");
    assert_eq!(
        model(Some(0)),
        LinkModel {
            bandwidth: 40e9,
            latency: 2e-6
        }
    );
    assert_eq!(
        model(Some(1)),
        LinkModel {
            bandwidth: 10e9,
            latency: 3e-6
        }
    );
    assert_eq!(
        model(None),
        LinkModel {
            bandwidth: 10e9,
            latency: 3e-6
        }
    );
    let channels = group([4, 8], None, None, &machine)
        .channels
        .expect("a machine has them");
    assert_eq!(
        check_links(3, channels).expect_err("too many").to_string(),
        "num_links is 3, but 2 channels join neighbouring devices; give 1 to 2"
    );
}

#[test]
fn a_mesh_that_the_machine_does_not_hold_is_refused() {
    let machine = machine("");
    let refused = |mesh, axis| {
        let block = machine.machine.meshes().next();
        Group::of(mesh, axis, None, block).expect_err("refused").to_string()
    };
    assert_eq!(
        refused([5, 5], None),
        "a mesh of 5x5 does not lie on M0 of [4, 8]; give one that is no larger, either way round, or 1xN of its devices"
    );
    assert!(refused([1, 33], None).contains("1x33"));
    assert!(refused([4, 8], Some(2)).contains("the cluster axis 2 is neither 0"));
    assert!(refused([0, 8], None).contains("size 0"));
}
