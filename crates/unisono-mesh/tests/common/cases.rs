//! A wrong descriptor for every rule of the format. `$M` stands for a right mesh, `$N` for a second one, `$S` for a right
//! switch, `$T` for a top-level mesh and `$G` for a top-level graph.

/// The rule, and a text that breaks it.
#[rustfmt::skip]
pub const CASES: &[(&str, &str)] = &[
    // Text.
    ("a block is not closed", "$M\ntop_level_instance { mesh { mesh_descriptor: \"M0\" mesh_id: 0"),
    ("a block is closed by the other bracket", "$M\ntop_level_instance < mesh { mesh_descriptor: \"M0\" } }"),
    ("a bracket closes nothing", "$M\n$T\n}"),
    ("a field without ':'", "$M\n$T\nmesh_descriptors { name \"M1\" }"),
    ("a value that is none", "$M\n$T\nmesh_descriptors { name: }"),
    ("a character that is no part of the format", "$M\n$T\n@"),
    ("a string that is not closed", "$M\n$T\nmesh_descriptors { name: \"M1 }"),
    ("an unknown escape", "$M\n$T\nmesh_descriptors { name: \"M\\q\" }"),
    ("a number that is none", "$M\n$T\nmesh_descriptors { channels { count: 12ab } }"),
    ("a list that is not closed", "$M\n$T\nmesh_descriptors { device_topology { dims: [2, 4 } }"),
    ("blocks nested too deep", "$M\n$T\n$DEEP"),
    ("an unknown word of an enum", "$M\n$T\nmesh_descriptors { arch: WORMHOLE }"),
    ("a dimension type that is none", "$M\n$T\nmesh_descriptors { device_topology { dims: [4] dim_types: [RIGN] } }"),
    ("a string for a number", "$M\n$T\nmesh_descriptors { channels { count: \"2\" } }"),
    ("a number for a string", "$M\n$T\nmesh_descriptors { name: 5 }"),
    ("a number that is too large", "$M\n$T\nmesh_descriptors { channels { count: 2147483648 } }"),
    ("a negative number without a sign in its type", "$M\n$T\npinnings { logical_fabric_node_id { mesh_id: -1 } }"),
    ("a word for true or false", "$M\n$T\ngraph_descriptors { connections { directional: yes } }"),
    ("a value for a block", "$M\n$T\nmesh_descriptors { channels: 4 }"),
    ("a field given twice", "$M\n$T\n$T"),
    ("a list for a field with one value", "$M\n$T\nmesh_descriptors { name: [\"A\", \"B\"] }"),
    ("a node that is two things", "$M\ntop_level_instance { mesh { mesh_descriptor: \"M0\" } graph { graph_descriptor: \"G0\" } }"),
    ("a kind of link that is none", "$M\n$T\nmesh_descriptors { [unisono.link] { kind: nvlink5 } }"),
    ("a bandwidth that is none", "$M\n$T\nmesh_descriptors { [unisono.link] { bandwidth_gbps: -3 } }"),
    // Stage A.
    ("no meshes", "$T"),
    ("no top-level instance", "$M"),
    // Stage B.
    ("a mesh without a name", "mesh_descriptors { arch: WORMHOLE_B0 channels { count: 1 } }\n$T"),
    ("a switch without a name", "$M\nswitch_descriptors { name: '' arch: WORMHOLE_B0 channels { count: 1 } }\n$T"),
    ("a graph without a name", "$M\ngraph_descriptors { type: \"FABRIC\" }\n$T"),
    ("two meshes of one name", "$M\n$M\n$T"),
    ("two switches of one name", "$M\n$S\n$S\n$T"),
    ("two graphs of one name", "$M\ngraph_descriptors { name: \"G0\" }\ngraph_descriptors { name: \"G0\" }\n$T"),
    ("a reserved graph type", "$M\ngraph_descriptors { name: \"G0\" type: \"SWITCH\" }\n$T"),
    ("a mesh without channels", "mesh_descriptors { name: \"M0\" arch: WORMHOLE_B0 }\n$T"),
    ("a switch of 0 channels", "$M\nswitch_descriptors { name: \"S0\" arch: WORMHOLE_B0 channels { count: 0 } }\n$T"),
    ("a graph topology of 0 channels", "$M\ngraph_descriptors { name: \"G0\" graph_topology { layout_type: RING channels { count: 0 } } }\n$T"),
    ("a graph topology without channels", "$M\ngraph_descriptors { name: \"G0\" graph_topology { layout_type: RING } channels { count: 2 } }\n$T"),
    ("a connection of -1 channels", "$M\ngraph_descriptors { name: \"G0\" connections { channels { count: -1 } } }\n$T"),
    ("meshes of two architectures", "$M\nmesh_descriptors { name: \"M1\" arch: BLACKHOLE channels { count: 1 } }\n$T"),
    ("a switch of another architecture", "$M\nswitch_descriptors { name: \"S0\" arch: BLACKHOLE channels { count: 1 } }\n$T"),
    ("no architecture", "mesh_descriptors { name: \"M0\" arch: INVALID_ARCHITECTURE channels { count: 1 } }\n$T"),
    ("three dimensions of WORMHOLE_B0", "mesh_descriptors { name: \"M0\" arch: WORMHOLE_B0 device_topology { dims: [2, 2, 2] } channels { count: 1 } }\n$T"),
    ("four dimensions of BLACKHOLE", "mesh_descriptors { name: \"M0\" arch: BLACKHOLE device_topology { dims: [2, 2, 2, 2] } channels { count: 1 } }\n$T"),
    // Stage C.
    ("no dimensions", "mesh_descriptors { name: \"M0\" arch: CPU host_topology { dims: 1 } channels { count: 1 } }\n$T"),
    ("a dimension of 0 devices", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [0, 4] } host_topology { dims: [1, 1] } channels { count: 1 } }\n$T"),
    ("a dimension of -1 devices", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [-1, 4] } host_topology { dims: [1, 1] } channels { count: 1 } }\n$T"),
    ("more types than dimensions", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [2, 4] dim_types: [LINE, LINE, RING] } host_topology { dims: [1, 1] } channels { count: 1 } }\n$T"),
    ("no host topology", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [2, 4] } channels { count: 1 } }\n$T"),
    ("hosts of other dimensions", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [2, 4] } host_topology { dims: [2] } channels { count: 1 } }\n$T"),
    ("devices that hosts cannot share", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [4, 3] } host_topology { dims: [2, 2] } channels { count: 1 } }\n$T"),
    ("a dimension of 0 hosts", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [4, 3] } host_topology { dims: [0, 1] } channels { count: 1 } }\n$T"),
    ("too many devices", "mesh_descriptors { name: \"M0\" arch: CPU device_topology { dims: [65536, 65536] } host_topology { dims: [1, 1] } channels { count: 1 } }\n$T"),
    ("an express connection outside of the mesh", "mesh_descriptors { name: \"M0\" arch: WORMHOLE_B0 device_topology { dims: [2, 4] } host_topology { dims: [1, 1] } channels { count: 1 } express_connections { src: 8 dst: -1 } }\n$T"),
    ("an express connection outside of a switch", "$M\nswitch_descriptors { name: \"S0\" arch: WORMHOLE_B0 device_topology { dims: [2, 2] } channels { count: 1 } express_connections { src: 0 dst: 4 } }\n$T"),
    ("a switch of 0 devices", "$M\nswitch_descriptors { name: \"S0\" arch: WORMHOLE_B0 device_topology { dims: [2, 0] } channels { count: 1 } }\n$T"),
    ("express links of an unknown dimension", "mesh_descriptors { name: \"M0\" arch: BLACKHOLE device_topology { dims: [8, 4] } host_topology { dims: [1, 1] } channels { count: 1 } express_links { dim_idx: 2 pattern { start: 2 step: 4 } } }\n$T"),
    ("express links from an unknown row", "mesh_descriptors { name: \"M0\" arch: BLACKHOLE device_topology { dims: [8, 4] } host_topology { dims: [1, 1] } channels { count: 1 } express_links { dim_idx: 0 pattern { start: 8 step: 4 } } }\n$T"),
    ("express links over single rows", "mesh_descriptors { name: \"M0\" arch: BLACKHOLE device_topology { dims: [8, 4] } host_topology { dims: [1, 1] } channels { count: 1 } express_links { dim_idx: 0 pattern { start: 0 step: 1 } } }\n$T"),
    ("two patterns of express links that end on one row", "mesh_descriptors { name: \"M0\" arch: BLACKHOLE device_topology { dims: [8, 4] } host_topology { dims: [1, 1] } channels { count: 1 } express_links { pattern { start: 2 step: 4 } wrap: LINE } express_links { pattern { start: 0 step: 3 } wrap: LINE } }\n$T"),
    ("a link block of an unknown dimension", "mesh_descriptors { name: \"M0\" arch: CUDA device_topology { dims: [1, 8] } host_topology { dims: [1, 1] } channels { count: 1 } [unisono.link] { dim: 2 kind: nvlink4 } }\n$T"),
    ("two link blocks of one dimension", "mesh_descriptors { name: \"M0\" arch: CUDA device_topology { dims: [1, 8] } host_topology { dims: [1, 1] } channels { count: 1 } [unisono.link] { kind: nvlink4 } [unisono.link] { kind: pcie5x16 } }\n$T"),
    ("a switch of too many devices in one mesh", "mesh_descriptors { name: \"M0\" arch: CUDA device_topology { dims: [32, 32] } host_topology { dims: [1, 1] } channels { count: 1 } [unisono.link] { kind: nvlink4 switched: true } }\n$T"),
    ("a graph without instances", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" }\n$T"),
    ("a graph without a type", "$M\ngraph_descriptors { name: \"G0\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } }\n$T"),
    ("a connection of one node", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" } } connections { nodes { mesh { mesh_descriptor: \"M0\" } } channels { count: 1 } } }\n$T"),
    ("a pinning without a device", "$M\n$T\npinnings { physical_asic_position { tray_id: 1 } }"),
    ("a pinning without a position", "$M\n$T\npinnings { logical_fabric_node_id { chip_id: 1 } }"),
    ("patterns beside plain numbers", "$M\n$T\npinnings { logical_fabric_node_id { mesh_id: 0 } logical_fabric_node_id { chip_id_regex: \"1-2\" } physical_asic_position { tray_id: 1 } }"),
    ("a number beside its pattern", "$M\n$T\npinnings { logical_fabric_node_id { chip_id: 1 chip_id_regex: \"1\" } physical_asic_position { tray_id: 1 } }"),
    ("an empty pattern", "$M\n$T\npinnings { logical_fabric_node_id { chip_id_regex: \"\" } physical_asic_position { tray_id: 1 } }"),
    ("a range without its end", "$M\n$T\npinnings { logical_fabric_node_id { chip_id_regex: \"1-\" } physical_asic_position { tray_id: 1 } }"),
    ("an inverted range", "$M\n$T\npinnings { logical_fabric_node_id { chip_id_regex: \"6-4\" } physical_asic_position { tray_id: 1 } }"),
    ("a bad regular expression", "$M\n$T\npinnings { logical_fabric_node_id { chip_id: 0 } physical_asic_position { tray_id_regex: \"[1-\" } }"),
    // Population.
    ("a top-level instance of an unknown mesh", "$M\ntop_level_instance { mesh { mesh_descriptor: \"M1\" mesh_id: 0 } }"),
    ("a top-level instance of nothing", "$M\ntop_level_instance { }"),
    ("an instance of an unknown switch", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { switch { switch_descriptor: \"SW\" switch_id: 0 } } }\n$G"),
    ("an instance of an unknown graph", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { graph { graph_descriptor: \"POD\" graph_id: 0 } } }\n$G"),
    ("a negative id", "$M\ntop_level_instance { mesh { mesh_descriptor: \"M0\" mesh_id: -1 } }"),
    ("a graph inside of its own type", "$M\ngraph_descriptors { name: \"G0\" type: \"POD\" instances { graph { graph_descriptor: \"G1\" graph_id: 0 } } }\ngraph_descriptors { name: \"G1\" type: \"POD\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } }\n$G"),
    ("graphs of different types in one graph", "$M\ngraph_descriptors { name: \"G0\" type: \"CLUSTER\" instances { graph { graph_descriptor: \"G1\" graph_id: 0 } } instances { graph { graph_descriptor: \"G2\" graph_id: 1 } } }\ngraph_descriptors { name: \"G1\" type: \"POD\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } }\ngraph_descriptors { name: \"G2\" type: \"RACK\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } }\n$G"),
    ("an id given twice", "$M\n$S\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } instances { switch { switch_descriptor: \"S0\" switch_id: 1 } } }\n$G"),
    ("a mesh of one dimension", "mesh_descriptors { name: \"M0\" arch: WORMHOLE_B0 device_topology { dims: [8] } host_topology { dims: [1] } channels { count: 1 } }\n$T"),
    ("a BLACKHOLE mesh of three dimensions", "mesh_descriptors { name: \"M0\" arch: BLACKHOLE device_topology { dims: [2, 2, 2] } host_topology { dims: [1, 1, 1] } channels { count: 1 } }\n$T"),
    ("a connection with an id that the graph does not have", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } channels { count: 1 } } }\n$G"),
    ("a connection with another descriptor than the instance", "$M\n$N\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } instances { mesh { mesh_descriptor: \"M1\" mesh_id: 1 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } channels { count: 1 } } }\n$G"),
    ("a connection with a device that the mesh does not have", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } instances { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 device_id: 8 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 device_id: 0 } } channels { count: 1 } } }\n$G"),
    ("a connection of a device with a mesh", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } instances { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 device_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } channels { count: 1 } } }\n$G"),
    ("a connection through a graph that does not hold the mesh", "$M\ngraph_descriptors { name: \"G1\" type: \"POD\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } }\ngraph_descriptors { name: \"G0\" type: \"CLUSTER\" instances { graph { graph_descriptor: \"G1\" graph_id: 0 } } instances { graph { graph_descriptor: \"G1\" graph_id: 1 } } connections { nodes { graph { graph_descriptor: \"G1\" graph_id: 0 sub_ref { mesh { mesh_descriptor: \"M0\" mesh_id: 5 } } } } nodes { graph { graph_descriptor: \"G1\" graph_id: 1 sub_ref { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } } } channels { count: 1 } } }\n$G"),
    ("a connection in one direction", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } instances { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } channels { count: 1 } directional: true } }\n$G"),
    ("a graph topology without a layout", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } graph_topology { layout_type: INVALID_TYPE channels { count: 1 } } }\n$G"),
    ("a pinning of a device that the machine does not have", "$M\n$T\npinnings { logical_fabric_node_id { mesh_id: 0 chip_id: 8 } physical_asic_position { tray_id: 1 asic_location: 1 } }"),
    ("a pinning to no position", "$M\n$T\npinnings { logical_fabric_node_id { mesh_id: 0 chip_id: 0 } physical_asic_position { tray_id: 256 asic_location: 1 } }"),
];

/// Valid descriptors that the control plane refuses, each for another reason.
#[rustfmt::skip]
pub const INCOMPATIBLE: &[(&str, &str)] = &[
    ("express connections", "mesh_descriptors { name: \"M0\" arch: WORMHOLE_B0 device_topology { dims: [2, 4] } host_topology { dims: [1, 1] } channels { count: 1 } express_connections { src: 0 dst: 3 } }\n$T"),
    ("dimensions other than two", "mesh_descriptors { name: \"M0\" arch: CUDA device_topology { dims: [8] } host_topology { dims: [1] } channels { count: 1 } }\n$T"),
    ("two graphs", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" } } }\ngraph_descriptors { name: \"G1\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" } } }\n$G"),
    ("a graph that is no FABRIC", "$M\ngraph_descriptors { name: \"G0\" type: \"POD\" instances { mesh { mesh_descriptor: \"M0\" } } }\n$G"),
    ("a connection of three nodes", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } instances { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } instances { mesh { mesh_descriptor: \"M0\" mesh_id: 2 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 2 } } channels { count: 1 } } }\n$G"),
    ("connections of two policies", "$M\ngraph_descriptors { name: \"G0\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } instances { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } channels { count: 1 } } connections { nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } } nodes { mesh { mesh_descriptor: \"M0\" mesh_id: 1 } } channels { count: 1 policy: RELAXED } } }\n$G"),
];

/// A case's text with its abbreviations written out.
pub fn text(case: &str) -> String {
    let mesh = |name: &str| {
        format!(
            "mesh_descriptors {{ name: \"{name}\" arch: WORMHOLE_B0 device_topology {{ dims: [2, 4] }} host_topology {{ dims: [1, 1] }} channels {{ count: 1 }} }}"
        )
    };
    case.replace("$M", &mesh("M0"))
        .replace("$N", &mesh("M1"))
        .replace("$S", "switch_descriptors { name: \"S0\" arch: WORMHOLE_B0 device_topology { dims: [2, 2] } channels { count: 1 } }")
        .replace("$T", "top_level_instance { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } }")
        .replace("$G", "top_level_instance { graph { graph_descriptor: \"G0\" graph_id: 0 } }")
        .replace("$DEEP", &"a {".repeat(200))
}
