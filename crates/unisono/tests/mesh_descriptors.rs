//! `mesh check`, `mesh new` and `mesh list`, as a user runs them.

mod common;

use common::Sandbox;

const WRONG: &str = "\
mesh_descriptors {
  name: \"M0\" arch: WORMHOLE_B0
  device_topology { dims: [4, 3] }
  host_topology { dims: [2, 2] }
  channels { count: 1 }
  express_connections { src: 0 dst: 12 }
}
top_level_instance { mesh { mesh_descriptor: \"M0\" } }
";

#[test]
fn every_descriptor_is_checked_and_one_wrong_one_is_exit_code_2() {
    let s = Sandbox::new();
    s.write("wrong.textproto", WRONG);
    s.run("mesh check n300 dual-galaxy").ended(0).says(&[
        "n300: ok: 1 mesh, 2 devices, 1 host, 1 link; the control plane takes it",
        "dual-galaxy: ok: ",
    ]);
    s.run("mesh check wrong.textproto n300")
        .ended(2)
        .says(&["n300: ok"])
        .tells(&[
            "the mesh graph descriptor wrong.textproto has 2 problems (topology)",
            "wrong.textproto:4:29: mesh_descriptors[0].host_topology.dims: dimension 1 has 3 devices",
            "wrong.textproto:6:23: mesh_descriptors[0].express_connections[0].dst: device 12 is not in [4, 3]",
        ]);
    s.run("mesh check nowhere.textproto")
        .ended(2)
        .tells(&["nowhere.textproto cannot be read"]);
    s.run("mesh check .").ended(2);
    s.run("mesh check").ended(2);
    // A GPU server is right, and nothing for the original's control plane.
    s.run("mesh check gpu-8-nvlink").ended(0).says(&[
        "the control plane refuses it for 1 reason",
        "does not know the architecture CUDA",
    ]);
    let seen = s.run("mesh check n300 wrong.textproto --json").ended(2).json();
    assert_eq!(
        (&seen["exit_code"], &seen["descriptors"][0]["devices"]),
        (&2.into(), &2.into())
    );
    let problem = &seen["descriptors"][1]["problems"][0];
    assert_eq!((&problem["line"], &problem["column"]), (&4.into(), &29.into()));
    assert_eq!(problem["field"], "mesh_descriptors[0].host_topology.dims");
}

#[test]
fn new_descriptors_are_written_and_pass() {
    let s = Sandbox::new();
    let text = s
        .run("mesh new --shape 4x8 --ring 1 --hosts 1x2 --arch wormhole_b0 --channels 4")
        .ended(0)
        .out;
    s.write("made.textproto", &text);
    s.run("mesh check made.textproto")
        .ended(0)
        .says(&["1 mesh, 32 devices, 2 hosts, 56 links"]);
    s.run("mesh new --shape 2x4 -o two.textproto")
        .ended(0)
        .says(&["wrote two.textproto"]);
    s.run("mesh check two.textproto").ended(0);
    s.run("mesh new --shape 2x4 -o two.textproto")
        .ended(2)
        .tells(&["exists already"]);
    s.run("mesh new --shape 4x8 --hosts 1x3")
        .ended(2)
        .tells(&["8 devices, which 3 hosts cannot share evenly"]);
    s.run("mesh new --shape 2x4 --ring 0")
        .ended(2)
        .tells(&["too few for a ring"]);
    s.run("mesh new --shape 4by8").ended(2).tells(&["4x8"]);
    s.run("mesh new --shape 2x2 --arch tpu")
        .ended(2)
        .tells(&["WORMHOLE_B0, BLACKHOLE, CPU, CUDA"]);
}

#[test]
fn built_in_descriptors_are_listed_and_printed() {
    let s = Sandbox::new();
    s.run("mesh list")
        .ended(0)
        .says(&["t3k-2x4", "galaxy-1x32", "gpu-4-nvlink-pairs", "this-machine", "1×32"]);
    let names = s.run("mesh list --json").ended(0).json();
    assert!(names.as_array().is_some_and(|names| names.len() == 17));
    let text = s.run("mesh list n300").ended(0).out;
    s.write("mine.textproto", &text);
    s.run("mesh check mine.textproto this-machine")
        .ended(0)
        .says(&["mine.textproto: ok: 1 mesh, 2 devices"]);
    s.run("mesh list n30").ended(2).tells(&["did you mean \"n300\"?"]);
}
