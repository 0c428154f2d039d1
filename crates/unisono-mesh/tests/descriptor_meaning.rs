//! What descriptors mean: links, rings, hosts, connections, pinnings, rates. Counts of directed links are the original's.

use unisono_mesh::descriptor::{
    Architecture, FabricType, LinkKind, LinkRate, LinkRole, Machine, Origin, Policy, check,
};

fn checked(text: &str) -> unisono_mesh::descriptor::Checked {
    check("a.textproto", text.as_bytes()).unwrap_or_else(|report| panic!("{report}"))
}

/// A machine of one mesh: the inside of `device_topology`, and what else stands in the mesh.
fn mesh(arch: &str, topology: &str, hosts: &str, more: &str) -> Machine {
    let text = format!(
        "mesh_descriptors {{ name: 'M' arch: {arch} device_topology {{ {topology} }} host_topology {{ dims: {hosts} }} channels {{ count: 2 }} {more} }}
         top_level_instance {{ mesh {{ mesh_descriptor: 'M' }} }}"
    );
    checked(&text).machine
}

/// Meshes 0 to `n` − 1 of 1×2 in a graph with this inside.
fn graph(n: usize, inside: &str) -> String {
    let instances: String = (0..n)
        .map(|id| format!("instances {{ mesh {{ mesh_descriptor: 'M' mesh_id: {id} }} }} "))
        .collect();
    format!(
        "mesh_descriptors {{ name: 'M' arch: BLACKHOLE device_topology {{ dims: [1, 2] }} host_topology {{ dims: [1, 1] }} channels {{ count: 2 }} }}
         graph_descriptors {{ name: 'G' type: 'FABRIC' {instances} {inside} }}
         top_level_instance {{ graph {{ graph_descriptor: 'G' graph_id: 0 }} }}"
    )
}

#[test]
fn the_fabric_type_follows_the_types_in_effect() {
    let fabric = |dims: &str, types: &str| {
        mesh("BLACKHOLE", &format!("dims: {dims} dim_types: {types}"), "[1, 1]", "").blocks[0].fabric_type()
    };
    assert_eq!(fabric("[4, 4]", "[LINE, LINE]"), Some(FabricType::Mesh));
    assert_eq!(fabric("[4, 4]", "[LINE, RING]"), Some(FabricType::TorusX));
    assert_eq!(fabric("[4, 4]", "[RING]"), Some(FabricType::TorusY));
    assert_eq!(fabric("[4, 4]", "[RING, RING]"), Some(FabricType::TorusXy));
    assert_eq!(fabric("[2, 4]", "[RING, RING]"), Some(FabricType::TorusX));
    assert_eq!(fabric("[1, 2]", "[RING, RING]"), Some(FabricType::Mesh));
}

#[test]
fn links_inside_of_a_mesh_are_counted_as_the_original_counts_them() {
    // The original's test has RING on the 2 rows, which its oldest version doubles: 24 directed links, of which 6 are
    // those doubles. The newest version takes LINE there, and so do we.
    let express = "express_connections { src: 0 dst: 4 } express_connections { src: 1 dst: 5 }";
    let short = mesh("WORMHOLE_B0", "dims: [2, 3] dim_types: [RING, LINE]", "[1, 1]", express);
    let block = &short.blocks[0];
    assert_eq!(block.num_directed_links(), 24 - 6);
    assert_eq!([0, 1, 2].map(|device| block.degree(device)), [3, 4, 2]);
    // From 3 rows on a ring has links of its own.
    let ring = mesh("WORMHOLE_B0", "dims: [3, 2] dim_types: [RING, LINE]", "[1, 1]", "");
    let block = &ring.blocks[0];
    assert_eq!(block.num_directed_links(), 2 * (6 + 3));
    let wraps: Vec<(usize, usize)> = block
        .links
        .iter()
        .filter(|link| link.role == LinkRole::Wrap)
        .map(|link| (link.a, link.b))
        .collect();
    assert_eq!(wraps, [(4, 0), (5, 1)]);
    // No device is its own neighbour.
    let row = mesh("WORMHOLE_B0", "dims: [1, 4] dim_types: [RING, RING]", "[1, 1]", "");
    assert!(row.blocks[0].links.iter().all(|link| link.a != link.b));
    assert_eq!(row.blocks[0].links.len(), 4);
    // CPU and CUDA meshes may have one or three dimensions.
    assert_eq!(
        mesh("CPU", "dims: [2, 2, 2]", "[1, 1, 1]", "").blocks[0].links.len(),
        12
    );
    assert_eq!(
        mesh("CUDA", "dims: 8 dim_types: RING", "1", "").blocks[0].links.len(),
        8
    );
}

#[test]
fn express_patterns_wrap_where_they_may() {
    let pairs = |inside: &str| {
        let machine = mesh(
            "BLACKHOLE",
            "dims: [8, 1] dim_types: RING",
            "[1, 1]",
            &format!("express_links {{ {inside} }}"),
        );
        let links = machine.blocks[0].links.iter();
        let express = links.filter(|link| link.role == LinkRole::ExpressPattern);
        express.map(|link| (link.a, link.b)).collect::<Vec<_>>()
    };
    assert_eq!(pairs("pattern { start: 2 step: 4 } wrap: LINE"), [(2, 5)]);
    assert_eq!(pairs("pattern { start: 2 step: 4 } wrap: RING"), [(2, 5), (6, 1)]);
    assert_eq!(pairs("pattern { start: 0 step: 3 }"), [(0, 2), (3, 5)]);
    assert_eq!(pairs("pattern { start: 7 step: 4 }"), []);
    assert_eq!(pairs("pattern { start: 1 step: 3 } wrap: RING"), [(1, 3), (4, 6)]);
    let older = mesh(
        "BLACKHOLE",
        "dims: [8, 4]",
        "[1, 1]",
        "skip_links { pattern { start: 2 step: 4 } }",
    );
    assert_eq!(older.blocks[0].links.len(), 52 + 4);
}

#[test]
fn hosts_own_blocks_of_devices_by_rank() {
    let machine = mesh("WORMHOLE_B0", "dims: [4, 4]", "[2, 2]", "");
    let hosts = machine.hosts();
    assert_eq!(hosts[2].offset, [2, 0]);
    assert_eq!(hosts[2].devices, [8, 9, 12, 13]);
    let owners: Vec<usize> = (0..16).map(|device| machine.blocks[0].host_of(device)).collect();
    assert_eq!(owners, [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]);
}

#[test]
fn graph_topologies_stand_for_their_connections() {
    let machine = |n: usize, layout: &str| {
        checked(&graph(
            n,
            &format!("graph_topology {{ layout_type: {layout} channels {{ count: 3 }} }}"),
        ))
        .machine
    };
    assert_eq!(machine(5, "ALL_TO_ALL").num_directed_connections(), 5 * 4);
    let ring = machine(4, "RING");
    assert_eq!(ring.num_directed_connections(), 8);
    assert!((1..5).all(|mesh| ring.connections_of(mesh).count() == 2));
    assert!(
        ring.connections
            .iter()
            .all(|c| c.policy == Policy::Strict && c.channels == 3 && c.origin == Origin::Ring)
    );
    assert_eq!(machine(2, "RING").connections.len(), 2, "both neighbours are the other");
    assert_eq!(machine(1, "RING").connections.len(), 0);
    // Explicit connections stand beside the shorthand and go before it.
    let both = graph(
        3,
        "graph_topology { layout_type: ALL_TO_ALL channels { count: 1 } assign_z_direction: true }
         connections { nodes { mesh { mesh_descriptor: 'M' mesh_id: 2 } } nodes { mesh { mesh_descriptor: 'M' mesh_id: 0 } } channels { count: 7 policy: RELAXED } directional: false }",
    );
    let both = checked(&both).machine;
    let origins: Vec<Origin> = both.connections.iter().map(|c| c.origin).collect();
    assert_eq!(
        origins,
        [Origin::Explicit, Origin::AllToAll, Origin::AllToAll, Origin::AllToAll]
    );
    assert_eq!(
        (
            both.connections[0].policy,
            both.connections[0].channels,
            both.connections[0].z
        ),
        (Policy::Relaxed, 7, false)
    );
    assert!(both.connections[1].z);
}

#[test]
fn connections_reach_into_graphs_and_join_switches_with_meshes() {
    let text = "
        mesh_descriptors { name: 'M' arch: WORMHOLE_B0 device_topology { dims: [1, 2] } host_topology { dims: [1, 1] } channels { count: 1 } }
        switch_descriptors { name: 'S' arch: WORMHOLE_B0 device_topology { dims: [2, 2] } channels { count: 1 } express_connections { src: 0 dst: 3 } }
        graph_descriptors { name: 'P' type: 'POD'
          instances { mesh { mesh_descriptor: 'M' mesh_id: 0 } } instances { switch { switch_descriptor: 'S' switch_id: 1 } }
          connections { nodes { mesh { mesh_descriptor: 'M' mesh_id: 0 } } nodes { switch { switch_descriptor: 'S' switch_id: 1 } } channels { count: 2 } } }
        graph_descriptors { name: 'C' type: 'CLUSTER'
          instances { graph { graph_descriptor: 'P' graph_id: 0 } } instances { graph { graph_descriptor: 'P' graph_id: 1 } }
          connections {
            nodes { graph { graph_descriptor: 'P' graph_id: 0 sub_ref { mesh { mesh_descriptor: 'M' mesh_id: 0 device_id: 1 } } } }
            nodes { graph { graph_descriptor: 'P' graph_id: 1 sub_ref { switch { switch_descriptor: 'S' switch_id: 1 device_id: 2 } } } }
            channels { count: 1 } }
          connections {
            nodes { graph { graph_descriptor: 'P' graph_id: 0 } } nodes { graph { graph_descriptor: 'P' graph_id: 1 } }
            channels { count: 4 } } }
        top_level_instance { graph { graph_descriptor: 'C' graph_id: 9 } }";
    let machine = checked(text).machine;
    let ends: Vec<String> = machine
        .connections
        .iter()
        .map(|c| {
            format!(
                "{} {:?} - {} {:?}",
                machine.path(c.a.instance),
                c.a.device,
                machine.path(c.b.instance),
                c.b.device
            )
        })
        .collect();
    assert_eq!(
        ends,
        [
            "C/P[0]/M[0] Some(1) - C/P[1]/S[1] Some(2)",
            "C/P[0] None - C/P[1] None",
            "C/P[0]/M[0] None - C/P[0]/S[1] None",
            "C/P[1]/M[0] None - C/P[1]/S[1] None",
        ]
    );
    assert_eq!(
        (
            machine.num_devices(),
            machine.num_switch_devices(),
            machine.hosts().len()
        ),
        (4, 8, 2)
    );
    let switch = machine.switches().next().expect("a switch");
    assert_eq!(
        (switch.first_device, switch.policy, switch.links.len()),
        (4, Policy::Strict, 5)
    );
}

#[test]
fn pinnings_are_resolved_mesh_by_mesh() {
    let pins = |text: &str| {
        checked(&graph(2, "").replace("top_level", &format!("{text} top_level")))
            .machine
            .pins
    };
    let position = "physical_asic_position { tray_id: 3 asic_location_regex: '2,4-5' }";
    let all = pins(&format!(
        "pinnings {{ logical_fabric_node_id {{ mesh_id_regex: '[01]' chip_id_regex: '.*' }} {position} }}"
    ));
    assert_eq!(all.len(), 2, "one for each mesh");
    assert_eq!((all[1].block, all[1].devices.as_slice()), (1, &[0, 1][..]));
    assert_eq!(all[0].positions.to_vec(), [(vec![3], vec![2, 4, 5])]);
    // A device twice in one entry is one device; in two entries it is in two groups.
    let node = "logical_fabric_node_id { mesh_id: 1 chip_id: 1 }";
    let twice = pins(&format!(
        "pinnings {{ {node} {node} {position} }} pinnings {{ {node} {position} }}"
    ));
    assert_eq!(twice.iter().map(|pin| pin.devices.len()).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn rates_come_from_blocks_then_kinds_then_the_architecture() {
    let rate = |arch: &str, more: &str| mesh(arch, "dims: [2, 2]", "[1, 1]", more).blocks[0].links.clone();
    assert_eq!(
        rate("WORMHOLE_B0", "")[0].gbps(),
        Some(25.0),
        "two channels of 100 Gbit/s"
    );
    assert_eq!(
        rate("BLACKHOLE", "")[0].gbps(),
        Some(100.0),
        "two channels of 400 Gbit/s"
    );
    assert_eq!(rate("CPU", "")[0].rate.kind, LinkKind::Memory);
    let by_dim = rate(
        "CUDA",
        "[unisono.link] { dim: 1 kind: nvlink3 latency_us: 1.5 } [unisono.link] { kind: 'pcie4x16' }",
    );
    let kinds: Vec<(Option<usize>, LinkKind)> = by_dim.iter().map(|link| (link.dim, link.rate.kind)).collect();
    assert!(kinds.contains(&(Some(0), LinkKind::Pcie4x16)) && kinds.contains(&(Some(1), LinkKind::NvLink3)));
    let explicit = rate("CUDA", "[unisono.link] { kind: nvlink4 bandwidth_gbps: 20 }");
    assert_eq!(
        explicit[0].rate,
        LinkRate {
            kind: LinkKind::NvLink4,
            channel_gbps: Some(20.0),
            latency_us: None
        }
    );
    let switched = rate("CUDA", "[unisono.link] { kind: nvlink4 switched: true }");
    assert_eq!(switched.len(), 6, "every pair");
    let device = mesh(
        "CUDA",
        "dims: 2",
        "1",
        "[unisono.device] { memory_gib: 80 peak_tflops: 989.4 }",
    )
    .blocks[0]
        .device;
    assert_eq!(device.and_then(|device| device.memory_gib), Some(80.0));
    for kind in LinkKind::ALL {
        assert_eq!(
            kind.channel_gbps(Architecture::Cuda).is_none(),
            kind == LinkKind::Memory
        );
    }
}
