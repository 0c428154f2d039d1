//! `mesh show` and `topo`, as a user runs them.

mod common;

use common::Sandbox;

/// A ring of four devices on two hosts.
const RING: &str = "\
mesh_descriptors {
  name: 'box' arch: BLACKHOLE
  device_topology { dims: [1, 4] dim_types: [LINE, RING] }
  host_topology { dims: [1, 2] }
  channels { count: 2 }
}
top_level_instance { mesh { mesh_descriptor: 'box' mesh_id: 0 } }
";

#[test]
fn a_descriptor_is_drawn_and_written_as_svg() {
    let s = Sandbox::new();
    s.write("ring.textproto", RING);
    s.run("mesh show ring.textproto --svg ring.svg").ended(0).says(&[
        "1 mesh, 4 devices, 2 hosts",
        "4 links inside of meshes with 8 channels",
        "box (mesh 0): 1×4 BLACKHOLE",
        "⇄ │   (0, 0)   │   (0, 1)   ┃   (0, 2)   │   (0, 3)   │ ⇄",
        "dim 1: RING of 4 (⇄ joins the ends)",
        "host 1: devices 2-3",
        "written to ring.svg",
    ]);
    let svg = s.read("ring.svg");
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains(">D3<") && svg.contains(">host 1<"), "{svg}");
    // Nothing half written stays, and an older file is replaced.
    s.write("ring.svg", "old");
    s.run("mesh show ring.textproto --svg ring.svg -q").ended(0);
    assert_eq!(s.read("ring.svg"), svg);
    let entries = s.names(".");
    assert!(entries.iter().all(|name| !name.contains("tmp")), "{entries:?}");

    let seen = s.run("mesh show ring.textproto --json").ended(0).json();
    assert_eq!(seen["devices"], 4);
    assert_eq!(seen["meshes"][0]["dim_types"], serde_json::json!(["LINE", "RING"]));
    assert_eq!(seen["meshes"][0]["gbps"], 100.0);
    assert_eq!(
        (&seen["links"], &seen["channels"], &seen["hosts"]),
        (&4.into(), &8.into(), &2.into())
    );
}

#[test]
fn the_drawing_keeps_to_the_width() {
    let s = Sandbox::new();
    for (columns, most) in [("40", 40), ("80", 80), ("3", 20), ("many", 100)] {
        let mut command = s.command("mesh show galaxy-8x4");
        let done = Sandbox::finish(command.env("COLUMNS", columns)).ended(0);
        let rows = done.out.lines().filter(|line| line.contains('│'));
        let widest = rows.map(|line| line.chars().count()).max().expect("rows");
        assert!(widest <= most, "{widest} characters at COLUMNS={columns}\n{}", done.out);
        // No colours where no terminal reads.
        assert!(!done.out.contains('\u{1b}'));
    }
}

#[test]
fn built_in_descriptors_and_this_machine_have_names() {
    let s = Sandbox::new();
    s.run("mesh show t3k-2x4")
        .ended(0)
        .says(&["1 mesh, 8 devices, 1 host", "2×4 WORMHOLE_B0"]);
    s.run("mesh show this-machine").ended(0).says(&["CPU", "memory"]);
    s.run("topo gpu-8-nvlink").ended(0).says(&["NV", "Legend:"]);
    s.run("mesh show t3k-2x5").ended(2).tells(&["t3k-2x4", "this-machine"]);
}

#[test]
fn wrong_descriptors_are_told_of() {
    let s = Sandbox::new();
    s.run("mesh show nowhere/none.textproto")
        .ended(2)
        .tells(&["nowhere/none.textproto"]);
    s.write("bad.textproto", &RING.replace("dims: [1, 2]", "dims: [1, 3]"));
    for command in ["mesh show bad.textproto --svg bad.svg", "topo bad.textproto"] {
        s.run(command).ended(2).tells(&["bad.textproto:4:"]);
    }
    assert!(!s.path("bad.svg").exists());
    s.write("ring.textproto", RING);
    s.run("mesh show ring.textproto --svg nowhere/ring.svg")
        .ended(1)
        .tells(&["nowhere/ring.svg"]);
    s.write("odd.textproto", &RING.replace("arch:", "colour: 'red' arch:"));
    s.run("mesh show odd.textproto")
        .ended(0)
        .tells(&["warning: odd.textproto:2:", "colour"]);
}

#[test]
fn topo_shows_this_machine() {
    let s = Sandbox::new();
    s.run("topo")
        .ended(0)
        .says(&["logical processor", "CPU affinity", "Legend:", "the same"]);
    let seen = s.run("topo --json").ended(0).json();
    assert_eq!(seen["codes"][0][0], "X");
    assert!(
        seen["machine"][0].as_str().is_some_and(|line| line.contains("core")),
        "{seen}"
    );
    assert_eq!(
        seen["names"].as_array().map(Vec::len),
        seen["affinity"].as_array().map(Vec::len)
    );
}

#[test]
fn topo_shows_a_described_machine() {
    let s = Sandbox::new();
    s.write("ring.textproto", RING);
    s.run("topo ring.textproto").ended(0).says(&[
        "    D0     D1     D2     D3     Mesh    Host  Coordinate",
        "D0  X      ETH×2  2      ETH×2  box[0]  0     (0, 0)",
        "ETH×2   neighbours, 2 channels: ethernet, 100 GB/s each way (50 a channel)",
    ]);
}
