//! The freedoms of protobuf text format, and what broken files do: an error with its place, never a panic or a hang.

mod common;

use common::{real, real_names};
use unisono_mesh::descriptor::{Machine, Stage, check};

const PLAIN: &str = r#"
mesh_descriptors {
  name: "M0#1"
  arch: WORMHOLE_B0
  device_topology { dims: [4, 8] dim_types: [LINE, RING] }
  host_topology { dims: [1, 2] }
  channels { count: 2 policy: STRICT }
}
pinnings {
  logical_fabric_node_id { mesh_id: 0 chip_id: 0 }
  physical_asic_position { tray_id: 1 asic_location: 1 }
}
top_level_instance { mesh { mesh_descriptor: "M0#1" mesh_id: 0 } }
"#;

fn machine(text: &str) -> Machine {
    check("a.textproto", text.as_bytes())
        .unwrap_or_else(|report| panic!("{report}\n{text}"))
        .machine
}

#[test]
fn spellings_of_one_descriptor_give_one_machine() {
    let expected = machine(PLAIN);
    let spellings = [
        PLAIN
            .replace("dims: [4, 8]", "dims: 4 dims: 8")
            .replace("[LINE, RING]", "LINE dim_types: RING"),
        PLAIN
            .replace("topology {", "topology: {")
            .replace("channels {", "channels: {"),
        PLAIN.replace('{', "<").replace('}', ">"),
        PLAIN.replace('"', "'"),
        PLAIN
            .replace("[4, 8] ", "[ 4,8 ], ")
            .replace("count: 2 ", "count: 2; ")
            .replace("WORMHOLE_B0", "WORMHOLE_B0,"),
        PLAIN.replace('\n', " # a comment with \"quotes\" { and brackets\r\n"),
        format!("\u{feff}# Überschrift\n{PLAIN}"),
        PLAIN.replace('\n', "\r\n"),
        PLAIN.replace('\n', " "),
        PLAIN
            .replace("[4, 8]", "[0x4, 010]")
            .replace("\"M0#1\"", "\"M\" '0' \"\\x23\\061\""),
        PLAIN
            .replace("WORMHOLE_B0", "1")
            .replace("[LINE, RING]", "[1, 2]")
            .replace("mesh_descriptors {", "mesh_descriptors: [{")
            .replace("policy: STRICT }\n}", "policy: STRICT }\n}]"),
        // Optional sections in any order.
        {
            let (head, top) = PLAIN.split_at(PLAIN.find("top_level").expect("it is there"));
            format!("{top}{head}")
        },
        PLAIN.replace(
            "arch:",
            "[some.extension/v1] { deep < list: [{a: 1}, {b: \"x\" 'y'}] f: 1.5e-3f > } vendor { x: -nan } arch:",
        ),
    ];
    for spelling in spellings {
        assert_eq!(machine(&spelling), expected, "{spelling}");
    }
}

#[test]
fn the_first_schemas_references_without_sub_ref_are_read() {
    let text = r#"
mesh_descriptors { name: "M" arch: BLACKHOLE device_topology { dims: [1, 2] } host_topology { dims: [1, 1] } channels { count: 1 } }
graph_descriptors { name: "P" type: "POD" instances { mesh { mesh_descriptor: "M" mesh_id: 0 } } }
graph_descriptors { name: "C" type: "CLUSTER"
  instances { graph { graph_descriptor: "P" graph_id: 0 } }
  instances { graph { graph_descriptor: "P" graph_id: 1 } }
  connections {
    nodes { graph { graph_descriptor: "P" graph_id: 0 sub_ref { mesh { mesh_descriptor: "M" mesh_id: 0 device_id: 1 } } } }
    nodes { graph { graph_descriptor: "P" graph_id: 1 sub_ref { mesh { mesh_descriptor: "M" mesh_id: 0 device_id: 0 } } } }
    channels { count: 1 }
  }
}
top_level_instance { graph { graph_descriptor: "C" graph_id: 0 } }
"#;
    let newer = machine(text);
    assert_eq!(newer.connections.len(), 1);
    assert_eq!(
        (newer.connections[0].a.device, newer.connections[0].b.device),
        (Some(1), Some(0))
    );
    assert_eq!(newer.path(newer.connections[0].b.instance), "C/P[1]/M[0]");
    let older = text
        .replace("sub_ref { mesh {", "mesh {")
        .replace("} } } }\n    nodes", "} } }\n    nodes")
        .replace("} } } }\n    channels", "} } }\n    channels");
    assert_eq!(machine(&older), newer);
}

#[test]
fn a_fault_has_its_line_and_column() {
    let at = |text: &str| {
        let report = check("a.textproto", text.as_bytes()).expect_err("it is wrong");
        assert_eq!(report.stage, Stage::Text, "{report}");
        report
            .problems
            .list()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        at("mesh_descriptors {\n  name: \"M0\"\n"),
        ["3:1: the text ends inside the block that opens at line 1, column 18; expected '}'"]
    );
    // Columns count characters, and reading goes on behind a fault.
    assert_eq!(
        at("# ü\nx: 'äöü' name \"M\"\nmesh_descriptors { arch: \"é\" }\n}\n"),
        [
            "2:15: expected ':' or a block after \"name\", found a string",
            "3:26: mesh_descriptors[0].arch: expected one of WORMHOLE_B0, BLACKHOLE, CPU, CUDA, found the string \"é\"",
            "4:1: '}' closes nothing: no block is open here",
        ]
    );
}

#[test]
fn every_real_descriptor_cut_at_every_byte_is_an_error_with_its_place_or_whole() {
    for name in real_names() {
        let text = real(&name);
        let end = text.iter().rposition(|byte| *byte == b'}').expect("a block") + 1;
        for cut in 0..end {
            let report = check(&name, &text[..cut]).expect_err("a part is no descriptor");
            let first = &report.problems.list()[0];
            assert!(first.at.line > 0 && first.at.column > 0 && !first.text.is_empty());
        }
        assert!(check(&name, &text[..end]).is_ok());
    }
}

/// Marsaglia's xorshift64: the mutations are the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

const PIECES: [&str; 24] = [
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    ":",
    ",",
    ";",
    "\"",
    "'",
    "-",
    "#",
    "\n",
    "0",
    "-1",
    "99999999999",
    "1e309",
    "RING",
    "STRICT",
    "[unisono.link] {",
    "dims: [2, 2, 2]",
    "\\",
    "\u{ff}",
];

fn mutate(texts: &[Vec<u8>], rounds: usize, seed: u64) -> [usize; 2] {
    let mut random = Random(seed);
    let mut counts = [0, 0];
    for _ in 0..rounds {
        let mut text = texts[random.below(texts.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(text.len() + 1);
            let to = (at + random.below(12)).min(text.len());
            match random.below(5) {
                0 => drop(text.drain(at..to)),
                1 => drop(text.splice(at..at, PIECES[random.below(PIECES.len())].bytes())),
                2 if at < text.len() => text[at] = random.below(256) as u8,
                3 => {
                    let piece = text[at..to].to_vec();
                    let other = random.below(text.len() + 1);
                    drop(text.splice(other..other, piece));
                }
                _ => drop(text.splice(at..to, PIECES[random.below(PIECES.len())].bytes())),
            }
        }
        match check("mutated", &text) {
            Ok(checked) => {
                counts[0] += 1;
                assert!(checked.machine.num_devices() + checked.machine.num_switch_devices() > 0);
            }
            Err(report) => {
                counts[1] += 1;
                assert!(!report.problems.is_empty() && !report.to_string().is_empty());
            }
        }
    }
    counts
}

#[test]
fn mutated_descriptors_are_answered_without_a_panic() {
    // The small ones, so that a quick test reaches many.
    let texts: Vec<Vec<u8>> = real_names()
        .iter()
        .map(|name| real(name))
        .filter(|text| text.len() < 900)
        .collect();
    let [accepted, refused] = mutate(&texts, 20_000, 0x9e37_79b9_7f4a_7c15);
    assert!(
        accepted > 200 && refused > 5_000,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
#[ignore = "100,000 mutations of all descriptors take some seconds"]
fn a_hundred_thousand_mutated_descriptors() {
    let texts: Vec<Vec<u8>> = real_names().iter().map(|name| real(name)).collect();
    let [accepted, refused] = mutate(&texts, 100_000, 0x0123_4567_89ab_cdef);
    assert!(
        accepted > 1_000 && refused > 30_000,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn hostile_texts_are_refused_within_bounds() {
    let refuse = |text: String| {
        check("hostile", text.as_bytes())
            .expect_err("it is refused")
            .to_string()
    };
    assert!(refuse("a {".repeat(1_000_000)).contains("nested more than 100 deep"));
    assert!(refuse("[".repeat(1_000_000)).contains("expected the name of an extension"));
    assert!(refuse("\"".repeat(200_000)).contains("a field"));
    assert!(refuse("x: 1 ".repeat(200_000)).contains("neither a mesh nor a switch"));
    assert!(refuse(format!("a: {}", "9".repeat(1_000_000))).contains("neither a mesh nor a switch"));
    assert!(refuse(" ".repeat((4 << 20) + 1)).contains("at most 4194304"));
    let mesh = "mesh_descriptors { name: \"M\" arch: CPU device_topology { dims: [256, 256] } host_topology { dims: [1, 1] } channels { count: 1 } }\n";
    // Graphs that hold the next one twice: 2⁴⁰ meshes.
    let mut tower = mesh.to_owned();
    for level in 0..40 {
        let child = match level {
            39 => "mesh { mesh_descriptor: \"M\" mesh_id".to_owned(),
            _ => format!("graph {{ graph_descriptor: \"G{}\" graph_id", level + 1),
        };
        tower += &format!(
            "graph_descriptors {{ name: \"G{level}\" type: \"T{level}\" instances {{ {child}: 0 }} }} instances {{ {child}: 1 }} }} }}\n"
        );
    }
    tower += "top_level_instance { graph { graph_descriptor: \"G0\" graph_id: 0 } }";
    assert!(refuse(tower.clone()).contains("more than 65536 devices"));
    assert!(refuse(tower.replace("[256, 256]", "[1, 1]")).contains("more than 65536 instances"));
    // As many pinnings as fit, each a pattern over all devices.
    let pin = "pinnings { logical_fabric_node_id { chip_id_regex: '(1|2)*3?' } physical_asic_position { tray_id_regex: '.*' asic_location_regex: '.*' } }\n";
    let pins = mesh.to_owned() + &pin.repeat(25_000) + "top_level_instance { mesh { mesh_descriptor: \"M\" } }";
    assert!(refuse(pins).contains("more pinnings than can be tried"));
}

#[test]
fn many_express_patterns_on_a_long_line_take_bounded_time() {
    let pattern = "express_links { pattern { step: 2 } }\n".repeat(50_000);
    let text = format!(
        "mesh_descriptors {{ name: \"M\" arch: BLACKHOLE device_topology {{ dims: [65536, 1] }} host_topology {{ dims: [1, 1] }} channels {{ count: 1 }}\n{pattern} }}
         top_level_instance {{ mesh {{ mesh_descriptor: \"M\" }} }}"
    );
    let report = check("hostile", text.as_bytes())
        .expect_err("rows are taken twice")
        .to_string();
    assert!(
        report.contains("make more than 65536 blocks") || report.contains("has one express link"),
        "{report}"
    );
    let one = text.replace(&pattern, "express_links { pattern { step: 2 } }");
    let checked = check("long", one.as_bytes()).unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(checked.machine.blocks[0].links.len(), 65_535 + 32_768);
}
