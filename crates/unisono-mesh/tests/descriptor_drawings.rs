//! Drawings of descriptors, and the matrix of their devices.

use unisono_mesh::descriptor::{Machine, check};
use unisono_mesh::draw::show;
use unisono_mesh::topology::of_descriptor;

fn machine(text: &str) -> Machine {
    check("test", text.as_bytes()).expect("a valid descriptor").machine
}

/// One mesh: sizes, what its dims are, its hosts, and more fields.
fn mesh(dims: &str, types: &str, hosts: &str, more: &str) -> Machine {
    machine(&format!(
        "mesh_descriptors {{ name: 'M0' arch: WORMHOLE_B0 device_topology {{ dims: {dims} dim_types: {types} }}
         host_topology {{ dims: {hosts} }} channels {{ count: 2 policy: STRICT }} {more} }}
         top_level_instance {{ mesh {{ mesh_descriptor: 'M0' mesh_id: 0 }} }}"
    ))
}

/// `count` meshes of 1×2 under one graph with these connections.
fn graph(count: usize, connections: &str) -> Machine {
    let instances: String = (0..count)
        .map(|id| format!("instances {{ mesh {{ mesh_descriptor: 'M0' mesh_id: {id} }} }}\n"))
        .collect();
    machine(&format!(
        "mesh_descriptors {{ name: 'M0' arch: BLACKHOLE device_topology {{ dims: [1, 2] }} host_topology {{ dims: [1, 1] }}
         channels {{ count: 4 policy: RELAXED }} }}
         graph_descriptors {{ name: 'G0' type: 'FABRIC' {instances} {connections} }}
         top_level_instance {{ graph {{ graph_descriptor: 'G0' graph_id: 0 }} }}"
    ))
}

fn node(id: usize, device: Option<usize>) -> String {
    let device = device.map_or_else(String::new, |device| format!("device_id: {device}"));
    format!("nodes {{ mesh {{ mesh_descriptor: 'M0' mesh_id: {id} {device} }} }}")
}

#[test]
fn rings_and_hosts_are_marked() {
    let expected = "\
1 mesh, 8 devices, 2 hosts
12 links inside of meshes with 24 channels

              M0 (mesh 0): 2×4 WORMHOLE_B0
  ┌────────────┬────────────┰────────────┬────────────┐
  │     D0     │     D1     ┃     D2     │     D3     │
⇄ │   (0, 0)   │   (0, 1)   ┃   (0, 2)   │   (0, 3)   │ ⇄
  │   host 0   │   host 0   ┃   host 1   │   host 1   │
  ├────────────┼────────────╂────────────┼────────────┤
  │     D4     │     D5     ┃     D6     │     D7     │
⇄ │   (1, 0)   │   (1, 1)   ┃   (1, 2)   │   (1, 3)   │ ⇄
  │   host 0   │   host 0   ┃   host 1   │   host 1   │
  └────────────┴────────────┸────────────┴────────────┘
  dim 0: LINE of 2, dim 1: RING of 4 (⇄ joins the ends); TORUS_X
  12 links of 2 channels each, STRICT, ethernet, 25 GB/s each way (12.5 a channel)
  2 hosts as 1×2, 4 devices each
    host 0: devices 0-1, 4-5
    host 1: devices 2-3, 6-7
";
    assert_eq!(
        show(&mesh("[2, 4]", "[LINE, RING]", "[1, 2]", ""), 80).plain(),
        expected
    );
    let text = show(&mesh("[3, 3]", "[RING, LINE]", "[3, 1]", ""), 80).plain();
    assert!(!text.contains("⇄") && text.matches('⇅').count() == 7, "{text}");
    assert!(text.contains("┝━━━━━━━━━━━━┿━━━━━━━━━━━━┿━━━━━━━━━━━━┥"), "{text}");
    let line = show(&mesh("[3, 3]", "[LINE, LINE]", "[1, 1]", ""), 80).plain();
    assert!(
        !line.contains(['⇄', '⇅', '┃', '━']) && !line.contains("host 0"),
        "{line}"
    );
    assert!(line.contains("dim 0: LINE of 3, dim 1: LINE of 3; MESH"), "{line}");
}

#[test]
fn narrow_terminals_and_large_meshes_get_less() {
    let narrow = show(&mesh("[8, 32]", "[LINE, RING]", "[1, 4]", ""), 80).plain();
    let table = narrow.lines().filter(|line| line.contains(['│', '┌', '├', '└', '┝']));
    assert!(table.clone().all(|line| line.chars().count() <= 80), "{narrow}");
    assert!(table.clone().any(|line| line.contains('┃')), "{narrow}");
    let large = show(&mesh("[64, 64]", "[RING, RING]", "[8, 8]", ""), 80).plain();
    assert!(
        large.contains("of 4096 devices are drawn, of 64 rows and 64 columns"),
        "{large}"
    );
    assert!(
        large.contains("… and 48 more hosts") && large.lines().count() < 60,
        "{large}"
    );
}

#[test]
fn express_links_pins_and_devices_are_named() {
    let more = "express_connections { src: 0 dst: 4 } express_connections { src: 1 dst: 5 }
        [unisono.device] { memory_gib: 12 peak_tflops: 74 }
        [unisono.link] { kind: nvlink3 bandwidth_gbps: 20 latency_us: 1.5 }";
    let text = show(&mesh("[3, 2]", "[LINE, LINE]", "[1, 1]", more), 80).plain();
    for part in [
        "  7 links of 2 channels each, STRICT, nvlink3, 40 GB/s each way (20 a channel), 1.5 µs\n",
        "  2 express links of 2 channels each, STRICT, nvlink3, 40 GB/s each way (20 a channel), 1.5 µs: 0-4, 1-5\n",
        "  each device: 12 GiB of memory, 74 TFLOP/s at peak\n",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let pinned = machine(
        "mesh_descriptors { name: 'M0' arch: BLACKHOLE device_topology { dims: [4, 8] } host_topology { dims: [1, 1] }
         channels { count: 2 } }
         top_level_instance { mesh { mesh_descriptor: 'M0' mesh_id: 0 } }
         pinnings { logical_fabric_node_id { mesh_id: 0 chip_id: 0 } physical_asic_position { tray_id: 1 asic_location: 2 } }",
    );
    let text = show(&pinned, 80).plain();
    assert!(text.contains("  device 0 pinned to tray 1, location 2\n"), "{text}");
}

#[test]
fn meshes_of_one_descriptor_are_drawn_once_and_connections_listed() {
    let connections = format!(
        "connections {{ {} {} channels {{ count: 3 }} }}
         connections {{ {} {} channels {{ count: 1 }} }}
         connections {{ {} {} channels {{ count: 1 }} }}",
        node(0, None),
        node(1, None),
        node(1, Some(0)),
        node(2, Some(1)),
        node(2, Some(0)),
        node(1, Some(1)),
    );
    let drawing = show(&graph(3, &connections), 80);
    let expected = "\
3 meshes, 6 devices, 3 hosts
3 links inside of meshes with 12 channels, 3 connections between meshes with 5 channels

M0 (meshes 0-2): 1×2 BLACKHOLE
┌────────────┬────────────┐
│     D0     │     D1     │
│   (0, 0)   │   (0, 1)   │
└────────────┴────────────┘
  dim 0: LINE of 1, dim 1: LINE of 2; MESH
  1 link of 4 channels each, RELAXED, ethernet, 200 GB/s each way (50 a channel)

Connections, with their channels:
  M0[0] ── M0[1]  3 channels STRICT, ethernet, 150 GB/s each way (50 a channel)
  M0[1] ── M0[2]  2 × 1 channel STRICT (D0-D1, D1-D0), ethernet, 50 GB/s each way
";
    assert_eq!(drawing.plain(), expected);
    let svg = drawing.svg();
    for part in [">M0[0]<", ">M0[2]<", ">3<", ">2<"] {
        assert!(svg.contains(part), "no {part} in\n{svg}");
    }
    let apart = show(&graph(2, ""), 80).plain();
    assert!(apart.ends_with("Nothing connects the meshes.\n"), "{apart}");
}

#[test]
fn many_meshes_are_counted_and_not_drawn() {
    let all = "graph_topology { layout_type: ALL_TO_ALL channels { count: 2 } }";
    let text = show(&graph(12, all), 80).plain();
    assert!(text.contains("… and 2 more connections"), "{text}");
    let text = show(
        &graph(300, "graph_topology { layout_type: RING channels { count: 2 } }"),
        80,
    )
    .plain();
    assert!(
        text.contains("300 connections between 300 pairs of meshes: too many to be drawn"),
        "{text}"
    );
    assert!(text.lines().count() < 20, "{text}");
}

#[test]
fn the_matrix_has_neighbours_hops_and_a_legend() {
    let expected = "    D0     D1     D2     D3     Mesh   Host  Coordinate
D0  X      ETH×2  ETH×2  2      M0[0]  0     (0, 0)
D1  ETH×2  X      2      ETH×2  M0[0]  1     (0, 1)
D2  ETH×2  2      X      ETH×2  M0[0]  0     (1, 0)
D3  2      ETH×2  ETH×2  X      M0[0]  1     (1, 1)

Legend:
  X       the same
  ETH×2   neighbours, 2 channels: ethernet, 25 GB/s each way (12.5 a channel)
  2, 3 …  links on the shortest way
";
    let matrix = of_descriptor(&mesh("[2, 2]", "[LINE, LINE]", "[1, 2]", ""));
    assert_eq!(matrix.text(80), expected);
    // A ring of 6: its ends are neighbours, and nothing is farther than 3.
    let ring = of_descriptor(&mesh("[1, 6]", "[LINE, RING]", "[1, 1]", ""));
    assert_eq!(ring.codes[0], ["X", "ETH×2", "2", "3", "2", "ETH×2"]);
    let line = of_descriptor(&mesh("[1, 6]", "[LINE, LINE]", "[1, 1]", ""));
    assert_eq!(line.codes[0], ["X", "ETH×2", "2", "3", "4", "5"]);
}

#[test]
fn the_matrix_tells_open_connections_from_exact_ones_and_from_none() {
    let open = format!(
        "connections {{ {} {} channels {{ count: 3 }} }} connections {{ {} {} channels {{ count: 3 }} }}",
        node(0, None),
        node(1, None),
        node(1, None),
        node(2, None)
    );
    let matrix = of_descriptor(&graph(4, &open));
    assert_eq!(matrix.codes[0], ["X", "ETH×4", "M1", "M1", "M2", "M2", "-", "-"]);
    let legend: Vec<&str> = matrix.legend.iter().map(|(code, _)| code.as_str()).collect();
    assert_eq!(legend, ["X", "ETH×4", "M1, M2 …", "-"]);
    let exact = format!(
        "connections {{ {} {} channels {{ count: 1 }} }}",
        node(0, Some(1)),
        node(1, Some(0))
    );
    let matrix = of_descriptor(&graph(2, &exact));
    assert_eq!(matrix.codes[0], ["X", "ETH×4", "2", "3"]);
    assert_eq!(matrix.codes[1], ["ETH×4", "X", "ETH×1", "2"]);
}

#[test]
fn large_machines_have_the_corner_of_their_matrix() {
    let matrix = of_descriptor(&mesh("[64, 64]", "[RING, RING]", "[1, 1]", ""));
    let text = matrix.text(100);
    assert!(text.contains("… 64 of 4096 are shown"), "{text}");
    assert_eq!(matrix.names.len(), 4096);
    assert_eq!(matrix.codes[0][63], "ETH×2", "the ring's end");
}

#[test]
fn every_real_descriptor_is_drawn() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/descriptors/real");
    let mut drawn = 0;
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be listed").path();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let machine = machine(&text);
        for width in [0, 40, 80, 160] {
            let drawing = show(&machine, width);
            let plain = drawing.plain();
            // One cell and its marks are always drawn; sentences are as long as they are.
            let rows = plain
                .lines()
                .filter(|line| line.trim_start().starts_with(['│', '┌', '⇄']));
            for row in rows {
                assert!(
                    row.chars().count() <= width.max(16),
                    "{}: {row}\n{plain}",
                    path.display()
                );
            }
            assert!(width < 40 || plain.lines().count() < 250, "{plain}");
        }
        let svg = show(&machine, 160).svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", path.display());
        let matrix = of_descriptor(&machine);
        assert!(matrix.text(120).contains("Legend:"), "{}", path.display());
        drawn += 1;
    }
    assert_eq!(drawn, 40);
}
