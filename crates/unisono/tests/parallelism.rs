//! `unisono explain`: its texts, its errors, and the pages that show its output.

mod common;

use common::Sandbox;
use std::path::{Path, PathBuf};
use std::process::Command;
use unisono_kernels::order::Tree;
use unisono_mesh::schedule::CanonicalTree;

const PAGES: [&str; 2] = ["data-parallel.md", "tensor-parallel.md"];

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/parallelism")
        .join(name)
}

/// What the program prints.
fn output(command: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_unisono"))
        .args(command.split_whitespace())
        .output()
        .expect("the program runs");
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Every block of the pages is what its command prints; `UNISONO_BLESS=1` writes them anew.
#[test]
fn the_pages_show_what_the_program_prints() {
    let bless = std::env::var_os("UNISONO_BLESS").is_some();
    let mut blocks = 0;
    for name in PAGES {
        let text = std::fs::read_to_string(page(name)).expect("a page");
        let mut renewed = String::new();
        let mut parts = text.split("<!-- unisono ");
        renewed += parts.next().unwrap_or_default();
        for part in parts {
            let (command, rest) = part.split_once(" -->\n```text\n").expect("a block follows its command");
            let (_, after) = rest.split_once("```\n").expect("the block ends");
            renewed += &format!("<!-- unisono {command} -->\n```text\n{}```\n{after}", output(command));
            blocks += 1;
        }
        if bless {
            std::fs::write(page(name), &renewed).expect("the page can be written");
        }
        assert!(
            bless || text == renewed,
            "{name} shows another output than there is; UNISONO_BLESS=1 writes it anew"
        );
    }
    assert!(blocks >= 5, "{blocks} blocks");
}

/// The table of the index: bytes at the busiest link in payloads.
#[test]
fn the_index_has_the_right_factors() {
    let text = std::fs::read_to_string(page("README.md")).expect("the index");
    for n in [2, 4, 8, 16] {
        let factor = |options: &str| {
            let json = output(&format!(
                "explain all-reduce --mesh 1x{n} --bytes 16MiB {options} --json"
            ));
            let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let busiest = json["busiest_link_bytes"].as_f64().expect("a number");
            // Halves are rounded up, as in the table.
            format!("{:.2} B", busiest / f64::from(1 << 24) + 1e-9)
        };
        let cells = [
            "",
            "--algorithm ring",
            "--topology linear",
            "--algorithm ring --topology linear",
        ]
        .map(factor);
        let row = format!("| {n} | {} |", cells.join(" | "));
        assert!(text.contains(&row), "the index has no row {row}");
    }
}

/// The tree of the schedules, which know no numbers, is the one that sums are taken by.
#[test]
fn schedules_and_kernels_have_one_order() {
    for count in 1..=96 {
        let (kernels, mesh) = (Tree::over_units(count), CanonicalTree::over(count));
        for start in 0..count {
            for end in start..=count {
                let spans: Vec<_> = kernels.spans(start, end).collect();
                assert_eq!(spans, mesh.spans(start..end), "{start}..{end} of {count}");
            }
        }
    }
}

#[test]
fn every_collective_is_explained() {
    let s = Sandbox::new();
    for name in [
        "all-gather",
        "reduce-scatter",
        "all-reduce",
        "broadcast",
        "all-broadcast",
        "all-to-all",
        "gather",
        "scatter",
        "point-to-point",
        "shift",
        "barrier",
    ] {
        for mesh in ["1x4", "4x1", "2x3", "1x16"] {
            s.run(&format!("explain {name} --mesh {mesh} --topology linear"))
                .ended(0)
                .says(&[name, "step 1 of "]);
        }
        s.run(&format!("explain {name} --mesh 8x32"))
            .ended(0)
            .says(&["256 devices", "here are the sums"]);
        s.run(&format!("explain {name} --mesh 1x4 --cluster-axis 0"))
            .ended(0)
            .says(&["One device: nothing to do."]);
    }
    s.run("explain all-reduce --mesh 1x4 --reduction max --bytes 1.5KiB")
        .ended(0)
        .says(&["all-reduce (max)", "1.5 KiB"]);
    s.run("explain shift --mesh 1x4 --by -1")
        .ended(0)
        .says(&["shift by -1"]);
    s.run("explain broadcast --mesh 1x4 --root 2")
        .ended(0)
        .says(&["from device 2"]);
}

const MACHINE: &str = "
mesh_descriptors {
  name: \"box\" arch: WORMHOLE_B0
  device_topology { dims: [2, 4] dim_types: [LINE, LINE] }
  host_topology { dims: [1, 1] }
  channels { count: 2 }
}
top_level_instance { mesh { mesh_descriptor: \"box\" mesh_id: 0 } }
";

#[test]
fn a_descriptor_gives_topology_channels_and_times() {
    let s = Sandbox::new();
    s.write("box.textproto", MACHINE);
    let described = "explain all-gather --mesh-graph-descriptor box.textproto";
    s.run(described)
        .ended(0)
        .says(&["a 2×4 grid of 8 devices (columns linear, rows linear)", "time", "µs"])
        .tells(&["no latency"]);
    s.run(&format!("{described} --cluster-axis 1 --topology ring --links 2"))
        .ended(0)
        .says(&["on a line of 4 devices", "each of 2 parallel ones"])
        .tells(&["note: a ring was asked for, but no link joins the ends"]);
    s.run(&format!("{described} --links 3"))
        .ended(2)
        .tells(&["num_links is 3, but 2 channels join neighbouring devices"]);
    s.run(&format!("{described} --mesh 3x3"))
        .ended(2)
        .tells(&["3x3 does not lie on box of [2, 4]"]);
    s.run("explain all-gather --mesh-graph-descriptor absent.textproto")
        .ended(2)
        .tells(&["absent.textproto cannot be read"]);
    s.run("explain all-gather --mesh-graph-descriptor t3k-2x4 --cluster-axis 1")
        .ended(0)
        .says(&["of 4 devices"]);
    s.write("bad.textproto", "mesh_descriptors {");
    s.run("explain all-gather --mesh-graph-descriptor bad.textproto")
        .ended(2)
        .tells(&["bad.textproto:1:"]);
}

#[test]
fn what_cannot_be_explained_is_refused_in_words() {
    let s = Sandbox::new();
    for (command, words) in [
        ("explain all-reduce", "--mesh"),
        ("explain all-redduce --mesh 1x4", "all-reduce"),
        (
            "explain all-reduce --mesh 4",
            "rows and columns are needed, for example 1x4",
        ),
        ("explain all-reduce --mesh 0x4", "size 0"),
        (
            "explain all-reduce --mesh 1x99999999",
            "--mesh has 99999999 devices; up to 4096 are explained",
        ),
        (
            "explain all-to-all --mesh 1x4 --algorithm tree",
            "all-to-all has no tree algorithm; it has canonical",
        ),
        (
            "explain gather --mesh 1x4 --root 4",
            "gather names device 4 of a group whose devices are 0 to 3",
        ),
        ("explain all-reduce --mesh 1x4 --cluster-axis 2", "the cluster axis 2"),
        ("explain all-reduce --mesh 1x4 --links 0", "num_links is 0"),
        (
            "explain all-reduce --mesh 1x4 --bytes many",
            "a number of bytes is needed",
        ),
        ("explain all-reduce --mesh 1x4 --bytes 99999999GiB", "at most"),
    ] {
        s.run(command).ended(2).tells(&[words]);
    }
}

#[test]
fn json_has_the_steps() {
    let json: serde_json::Value =
        serde_json::from_str(&output("explain all-reduce --mesh 1x4 --bytes 4MiB --json")).expect("JSON");
    assert_eq!(json["steps"], 4);
    assert_eq!(json["messages"], 24);
    assert_eq!(json["own_bytes"], 6 << 20);
    assert_eq!(json["busiest_link_bytes"], 3 << 20);
    assert_eq!(json["canonical"], true);
    let first = &json["schedule"][0]["sends"][0];
    assert_eq!(
        (&first["from"], &first["to"], &first["bytes"]),
        (&0.into(), &1.into(), &(1 << 20).into())
    );
    assert_eq!(first["parts"][0]["combines"][0], 0);
}
