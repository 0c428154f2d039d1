//! Forty descriptors of the original's repository: each has its verdict and its meaning.
//!
//! The files in `descriptors/real` are theirs without their comments.

mod common;

use common::{real, real_names};
use unisono_mesh::descriptor::{Block, Checked, FabricType, LinkRole, Policy, check};

/// One line for each mesh and switch, then the connections: what the table below holds.
fn meaning(checked: &Checked) -> String {
    let machine = &checked.machine;
    let arch = |block: &Block| match block.arch.name() {
        "WORMHOLE_B0" => "WH",
        "BLACKHOLE" => "BH",
        other => other,
    };
    let mut parts: Vec<(String, usize)> = Vec::new();
    for block in &machine.blocks {
        let dims: Vec<String> = block.shape.sizes().iter().map(usize::to_string).collect();
        let hosts: Vec<String> = block.hosts.sizes().iter().map(usize::to_string).collect();
        let text = format!(
            "{}{} {} {} hosts {} {} ch {} links {}",
            if block.is_switch { "switch " } else { "" },
            arch(block),
            dims.join("x"),
            block.fabric_type().map_or("?", FabricType::name),
            hosts.join("x"),
            block.channels,
            block.policy.name(),
            block.links.len(),
        );
        match parts.last_mut() {
            Some((last, times)) if *last == text => *times += 1,
            _ => parts.push((text, 1)),
        }
    }
    let mut lines: Vec<String> = parts
        .into_iter()
        .map(|(text, times)| if times == 1 { text } else { format!("{times} × {text}") })
        .collect();
    if !machine.connections.is_empty() {
        let channels: u32 = machine.connections.iter().map(|c| c.channels).sum();
        let strict = machine
            .connections
            .iter()
            .filter(|c| c.policy == Policy::Strict)
            .count();
        lines.push(format!(
            "{} connections, {channels} ch, {strict} strict",
            machine.connections.len()
        ));
    }
    if !machine.pins.is_empty() {
        lines.push(format!("{} pin", machine.pins.len()));
    }
    lines.push(
        if checked.compatibility.is_empty() {
            "compat"
        } else {
            "NOT compat"
        }
        .to_owned(),
    );
    lines.join("; ")
}

/// What each file describes: architecture, shape, fabric, hosts, channels and links (each pair of devices once) of the
/// meshes, connections between them, pinnings, and whether the control plane takes it.
#[rustfmt::skip]
const MEANINGS: [(&str, &str); 40] = [
    ("16_n300_lb_closetbox", "16 × WH 2x4 MESH hosts 1x1 2 ch STRICT links 10; 30 connections, 60 ch, 30 strict; compat"),
    ("bh_galaxy_single_4x4_subtorus", "BH 4x4 TORUS_XY hosts 1x1 2 ch RELAXED links 32; compat"),
    ("bh_galaxy_split_4x4_2x4_3_mesh", "BH 4x4 MESH hosts 1x1 2 ch RELAXED links 24; 2 × BH 2x4 MESH hosts 1x1 2 ch RELAXED links 10; 3 connections, 32 ch, 0 strict; compat"),
    ("bh_galaxy_tp8_ddp4", "BH 4x8 MESH hosts 1x1 2 ch STRICT links 52; 1 pin; compat"),
    ("bh_glx_split_4x2", "48 × BH 4x2 MESH hosts 1x1 2 ch RELAXED links 10; 48 connections, 312 ch, 48 strict; compat"),
    ("bh_lb_2x4_dual_rank", "BH 2x4 TORUS_X hosts 1x2 2 ch RELAXED links 12; compat"),
    ("bh_lbx2_1x16", "BH 1x16 MESH hosts 1x2 2 ch RELAXED links 15; compat"),
    ("bh_qb_4x4_strict_invalid", "BH 4x4 TORUS_XY hosts 2x2 3 ch STRICT links 32; compat"),
    ("disconnected_sc36_quads_2bigmesh", "2 × BH 4x32 MESH hosts 1x16 2 ch RELAXED links 220; 1 connections, 2 ch, 0 strict; compat"),
    ("dual_4x16_blitz_test", "BH 4x16 TORUS_Y hosts 1x8 2 ch RELAXED links 124; BH 4x16 TORUS_Y hosts 2x16 2 ch RELAXED links 124; 1 connections, 4 ch, 1 strict; compat"),
    ("dual_galaxy", "WH 8x8 MESH hosts 1x2 1 ch RELAXED links 112; compat"),
    ("dual_t3k", "WH 1x16 MESH hosts 1x2 2 ch RELAXED links 15; compat"),
    ("dual_t3k_strict_connection", "2 × WH 2x4 MESH hosts 1x1 2 ch STRICT links 10; 4 connections, 4 ch, 4 strict; compat"),
    ("express_links_8x4", "BH 8x4 TORUS_XY hosts 1x1 2 ch RELAXED links 68; compat"),
    ("fabric_minimal_example_2loudboxes", "2 × BH 1x32 MESH hosts 1x1 2 ch STRICT links 31; 1 connections, 2 ch, 1 strict; compat"),
    ("galaxy_1x32", "WH 1x32 MESH hosts 1x1 4 ch RELAXED links 31; compat"),
    ("galaxy_2rank_two_1x8_rows", "2 × BH 1x8 MESH hosts 1x1 2 ch RELAXED links 7; 1 connections, 8 ch, 1 strict; compat"),
    ("hierarchical_parallel_5loudboxes", "5 × WH 1x8 MESH hosts 1x1 2 ch STRICT links 7; 7 connections, 14 ch, 7 strict; compat"),
    ("mgd2_syntax_check", "3 × WH 8x4 MESH hosts 1x1 4 ch RELAXED links 52; WH 8x4 TORUS_X hosts 1x1 4 ch RELAXED links 64; WH 8x4 MESH hosts 1x2 4 ch RELAXED links 52; 5 connections, 12 ch, 0 strict; NOT compat"),
    ("n300", "WH 1x2 MESH hosts 1x1 2 ch RELAXED links 1; compat"),
    ("pipeline_parallel_1galaxy_pp4", "4 × BH 1x8 MESH hosts 1x1 2 ch RELAXED links 7; 4 connections, 32 ch, 4 strict; compat"),
    ("pipeline_parallel_4galaxy_pp4", "4 × BH 1x32 MESH hosts 1x1 2 ch RELAXED links 31; 4 connections, 16 ch, 0 strict; compat"),
    ("quad_galaxy_torus_xy", "WH 16x8 TORUS_XY hosts 2x2 2 ch RELAXED links 256; compat"),
    ("single_bh_galaxy_4x4x2_z", "4 × BH 2x4 MESH hosts 1x1 2 ch STRICT links 10; 4 connections, 32 ch, 0 strict; compat"),
    ("single_bh_galaxy_torus_xy", "BH 8x4 TORUS_XY hosts 1x1 2 ch STRICT links 64; 1 pin; compat"),
    ("single_galaxy", "WH 8x4 MESH hosts 1x1 4 ch RELAXED links 52; compat"),
    ("t3k", "WH 4x2 MESH hosts 1x1 2 ch RELAXED links 10; compat"),
    ("t3k_1x8", "WH 1x8 MESH hosts 1x1 2 ch STRICT links 7; compat"),
    ("t3k_2x1x1", "2 × WH 1x1 MESH hosts 1x1 2 ch RELAXED links 0; compat"),
    ("t3k_2x2", "2 × WH 2x2 MESH hosts 1x1 2 ch STRICT links 4; 2 connections, 4 ch, 0 strict; compat"),
    ("t3k_2x2_ttswitch", "WH 2x2 MESH hosts 1x1 2 ch STRICT links 4; switch WH 2x2 MESH hosts 1x1 2 ch STRICT links 4; 1 connections, 2 ch, 1 strict; compat"),
    ("tg", "4 × WH 1x1 MESH hosts 1x1 4 ch RELAXED links 0; WH 4x8 MESH hosts 1x1 4 ch RELAXED links 52; 4 connections, 8 ch, 4 strict; compat"),
    ("tt_train_bh_2_2_line_line", "BH 2x2 MESH hosts 1x1 2 ch RELAXED links 4; compat"),
    ("tt_train_bh_8_1_ring_ring", "BH 8x1 TORUS_Y hosts 1x1 2 ch STRICT links 8; compat"),
    ("tt_train_bh_galaxy_1_2_line_line", "BH 1x2 MESH hosts 1x1 2 ch STRICT links 1; compat"),
    ("tt_train_bh_galaxy_4_8_torus_x", "BH 4x8 TORUS_Y hosts 1x1 2 ch STRICT links 60; 1 pin; compat"),
    ("tt_train_bh_galaxy_8_4_ring_ring", "BH 8x4 TORUS_XY hosts 1x1 2 ch RELAXED links 64; 1 pin; compat"),
    ("tt_train_bh_galaxy_ddp32", "BH 32x1 TORUS_Y hosts 1x1 2 ch STRICT links 32; 1 pin; compat"),
    ("tt_train_bh_galaxy_tp4_ddp8", "BH 8x4 MESH hosts 1x1 2 ch STRICT links 52; 1 pin; compat"),
    ("tt_train_bh_qb_1_4_ring_ring", "BH 1x4 TORUS_X hosts 1x1 4 ch RELAXED links 4; compat"),
];

#[test]
fn every_real_descriptor_has_its_verdict_and_meaning() {
    let names: Vec<&str> = MEANINGS.iter().map(|(name, _)| *name).collect();
    assert_eq!(real_names(), names, "the table has every file");
    for (name, expected) in MEANINGS {
        let checked = check(name, &real(name)).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(meaning(&checked), expected, "{name}");
        let short_rings = ["tt_train_bh_8_1_ring_ring", "tt_train_bh_qb_1_4_ring_ring"].contains(&name);
        assert_eq!(
            checked.warnings.count(),
            usize::from(short_rings),
            "{name}: {:?}",
            checked.warnings
        );
    }
}

/// The connections of a file as pairs of mesh ids.
fn edges(name: &str) -> Vec<(u32, u32)> {
    let checked = check(name, &real(name)).unwrap_or_else(|report| panic!("{report}"));
    let id = |end: unisono_mesh::descriptor::Endpoint| checked.machine.instances[end.instance].id;
    let mut edges: Vec<(u32, u32)> = checked
        .machine
        .connections
        .iter()
        .map(|c| (id(c.a).min(id(c.b)), id(c.a).max(id(c.b))))
        .collect();
    edges.sort_unstable();
    edges
}

#[test]
fn connections_join_the_meshes_that_they_name() {
    assert_eq!(edges("bh_galaxy_split_4x4_2x4_3_mesh"), [(0, 1), (0, 2), (1, 2)]);
    assert_eq!(edges("tg"), [(0, 4), (1, 4), (2, 4), (3, 4)]);
    assert_eq!(
        edges("hierarchical_parallel_5loudboxes"),
        [(0, 2), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
    );
    assert_eq!(edges("single_bh_galaxy_4x4x2_z"), [(0, 1), (0, 3), (1, 2), (2, 3)]);
    let mut ring: Vec<(u32, u32)> = (0..47).map(|i| (i, i + 1)).chain([(0, 47)]).collect();
    ring.sort_unstable();
    assert_eq!(edges("bh_glx_split_4x2"), ring);
    let mut cliques: Vec<(u32, u32)> = (0..4)
        .flat_map(|quad| (0..4).flat_map(move |i| (i + 1..4).map(move |j| (4 * quad + i, 4 * quad + j))))
        .chain([(0, 8), (2, 5), (3, 12), (4, 11), (7, 15), (10, 13)])
        .collect();
    cliques.sort_unstable();
    assert_eq!(edges("16_n300_lb_closetbox"), cliques);
}

#[test]
fn exact_devices_hosts_pins_and_directions_are_kept() {
    let checked = |name: &str| check(name, &real(name)).unwrap_or_else(|report| panic!("{report}"));
    let strict = checked("dual_t3k_strict_connection").machine;
    let devices: Vec<_> = strict.connections.iter().map(|c| (c.a.device, c.b.device)).collect();
    assert_eq!(devices, [1, 2, 5, 6].map(|d| (Some(d), Some(d))));
    let hosts = checked("bh_lb_2x4_dual_rank").machine.hosts();
    assert_eq!(hosts.len(), 2);
    assert_eq!(
        (hosts[0].offset.as_slice(), hosts[1].offset.as_slice()),
        (&[0, 0][..], &[0, 2][..])
    );
    assert_eq!(hosts[1].devices, [2, 3, 6, 7]);
    let blitz = checked("dual_4x16_blitz_test").machine;
    assert_eq!(blitz.hosts().len(), 40);
    let pins = checked("bh_galaxy_tp8_ddp4").machine.pins;
    assert_eq!(pins[0].devices, [0]);
    assert_eq!(pins[0].positions.to_vec(), [(vec![1], vec![1])]);
    assert!(
        checked("single_bh_galaxy_4x4x2_z")
            .machine
            .connections
            .iter()
            .all(|c| c.z)
    );
    assert!(!checked("tg").machine.connections.iter().any(|c| c.z));
    assert_eq!(checked("tg").machine.num_devices(), 36);
}

#[test]
fn express_links_join_rows_2_and_5() {
    let checked = check("express", &real("express_links_8x4")).unwrap_or_else(|report| panic!("{report}"));
    let links = &checked.machine.blocks[0].links;
    let express: Vec<(usize, usize)> = links
        .iter()
        .filter(|link| link.role == LinkRole::ExpressPattern)
        .map(|link| (link.a, link.b))
        .collect();
    assert_eq!(express, [(8, 20), (9, 21), (10, 22), (11, 23)]);
}

#[test]
fn the_hierarchy_of_the_syntax_check_is_a_cluster_of_two_pods() {
    let checked = check("syntax", &real("mgd2_syntax_check")).unwrap_or_else(|report| panic!("{report}"));
    let machine = &checked.machine;
    assert_eq!(machine.count_of_type("POD"), 2);
    assert_eq!(machine.count_of_type("MESH"), 5);
    assert_eq!(machine.count_of_type("DEVICE"), 160);
    assert_eq!(machine.count_of_type("RACK"), 0);
    let paths: Vec<String> = machine.meshes().map(|mesh| machine.path(mesh.instance)).collect();
    assert_eq!(
        paths,
        [
            "G2/G1[0]/M2[0]",
            "G2/G1[0]/M3[1]",
            "G2/G1[0]/M4[2]",
            "G2/G0[1]/M0[0]",
            "G2/G0[1]/M1[1]"
        ]
    );
    let reasons: Vec<&str> = checked
        .compatibility
        .list()
        .iter()
        .map(|problem| &*problem.field)
        .collect();
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    assert!(reasons.iter().any(|field| field.ends_with("express_connections")));
    assert!(reasons.contains(&"graph_descriptors"));
    assert_eq!(reasons.iter().filter(|field| field.ends_with(".type")).count(), 3);
}
