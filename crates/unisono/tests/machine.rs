//! A run on a machine that a descriptor describes, and on the devices that a job may see.

mod common;

use common::{Sandbox, TINY};

fn with_mesh(shape: &str, more: &str) -> String {
    format!("{TINY}device_config:\n  mesh_shape: {shape}\n  enable_ddp: true\n{more}")
}

fn sandbox(config: &str) -> Sandbox {
    let s = Sandbox::new();
    s.write("text.txt", &"to be or not to be, that is the question. ".repeat(40));
    s.write("run.yaml", config);
    s
}

/// A descriptor of one mesh.
fn descriptor(shape: &str) -> String {
    format!(
        "mesh_descriptors {{ name: \"M0\" arch: WORMHOLE_B0 device_topology {{ dims: [{shape}] }} \
         host_topology {{ dims: [1, 1] }} channels {{ count: 2 }} }}\n\
         top_level_instance {{ mesh {{ mesh_descriptor: \"M0\" mesh_id: 0 }} }}\n"
    )
}

#[test]
fn a_mesh_that_the_machine_holds_runs_and_gives_the_same_losses() {
    let s = sandbox(&with_mesh("[1, 4]", "  mesh_graph_descriptor: machine.textproto\n"));
    s.write("machine.textproto", &descriptor("2, 4"));
    s.run("train -c run.yaml --out there")
        .ended(0)
        .says(&["on M0 [2, 4] of machine.textproto"]);
    s.run("train -c run.yaml --out here --set device_config.mesh_shape=[1,1] --set device_config.enable_ddp=false")
        .ended(0);
    s.run("diff there here").ended(0);
    // Turned by a quarter, and along the line.
    s.run("check -c run.yaml --set device_config.mesh_shape=[4,1]").ended(0);
    let wide = "--set training_config.batch_size=8 --set device_config.mesh_shape=[1,8]";
    s.run(&format!("check -c run.yaml {wide}")).ended(0);
}

#[test]
fn a_mesh_that_the_machine_cannot_hold_is_refused_with_both_numbers() {
    let s = sandbox(
        &with_mesh("[2, 4]", "  mesh_graph_descriptor: machine.textproto\n").replace("batch_size: 4", "batch_size: 8"),
    );
    s.write("machine.textproto", &descriptor("2, 2"));
    s.run("train -c run.yaml")
        .ended(2)
        .tells(&["run.yaml:", "[2, 4]", "8 devices", "[2, 2]", "4 devices"]);
    assert!(!s.names(".").contains(&"runs".to_string()));
    // A line where a grid is asked for, with the way to mend it.
    s.write("machine.textproto", &descriptor("1, 32"));
    let grid = "--set training_config.batch_size=32 --set device_config.mesh_shape=[4,8]";
    s.run(&format!("check -c run.yaml {grid}"))
        .ended(2)
        .tells(&["[4, 8]", "[1, 32]"]);
    // A descriptor that is wrong is told with its place.
    s.write("machine.textproto", "mesh_descriptors { name: 5 }\n");
    s.run("check -c run.yaml").ended(2).tells(&["machine.textproto:1:"]);
    s.run("check -c run.yaml --set device_config.mesh_graph_descriptor=nowhere.textproto")
        .ended(2)
        .tells(&["nowhere.textproto"]);
}

#[test]
fn where_no_machine_is_named_one_that_would_hold_the_mesh_is_told() {
    let s = sandbox(&with_mesh("[1, 4]", ""));
    s.run("check -c run.yaml")
        .ended(0)
        .says(&["none named: [1, 4] would lie on "]);
    // Any shape runs all the same.
    let many = "--set training_config.batch_size=130 --set device_config.mesh_shape=[1,130]";
    let told = s.run(&format!("check -c run.yaml {many}")).ended(0);
    assert!(!told.out.contains("would lie on"), "{}", told.out);
}

#[test]
fn the_environment_goes_before_the_configuration() {
    let s = sandbox(&with_mesh("[1, 4]", "  mesh_graph_descriptor: small.textproto\n"));
    s.write("small.textproto", &descriptor("1, 2"));
    s.write("large.textproto", &descriptor("2, 2"));
    s.run("check -c run.yaml").ended(2);
    s.run_with("check -c run.yaml", &[("TT_MESH_GRAPH_DESC_PATH", "large.textproto")])
        .ended(0);
    s.run_with("check -c run.yaml", &[("TT_MESH_GRAPH_DESC_PATH", "")])
        .ended(2);
    s.run_with("check -c run.yaml", &[("TT_MESH_GRAPH_DESC_PATH", "nowhere.textproto")])
        .ended(2)
        .tells(&["TT_MESH_GRAPH_DESC_PATH=nowhere.textproto: "]);
}

#[test]
fn a_job_keeps_to_its_visible_devices() {
    let s = sandbox(&with_mesh("[1, 2]", ""));
    let run = |options: &str, value: &str| {
        s.run_with(
            &format!("train -c run.yaml {options}"),
            &[("UNISONO_VISIBLE_DEVICES", value)],
        )
    };
    run("", "0").ended(2).tells(&["needs 2 devices", "1 of"]);
    run("", "").ended(2).tells(&["needs 2 devices", "0 of"]);
    run("", "0,900000")
        .ended(2)
        .tells(&["UNISONO_VISIBLE_DEVICES", "900000"]);
    s.run_with("check -c run.yaml", &[("TT_VISIBLE_DEVICES", "0")])
        .ended(2)
        .tells(&["TT_VISIBLE_DEVICES is \"0\""]);
    let one = "--out one --set device_config.mesh_shape=[1,1] --set device_config.enable_ddp=false";
    run(one, "0").ended(0).says(&["1 worker on 1 core"]);
}

#[test]
fn a_board_of_a_machine_brings_all_its_devices() {
    let s = sandbox(&with_mesh("[1, 2]", ""));
    let on = |machine: &str, visible: &str, options: &str| {
        let variables = [("TT_VISIBLE_DEVICES", visible), ("TT_MESH_GRAPH_DESC_PATH", machine)];
        s.run_with(&format!("check -c run.yaml {options}"), &variables)
    };
    on("n300", "0", "").ended(0);
    on("n300", "1", "").ended(2).tells(&["TT_VISIBLE_DEVICES", "0"]);
    let square = "--set device_config.mesh_shape=[4,1]";
    on("t3k-2x4", "0,1,2,3", square).ended(0);
    on("t3k-2x4", "0,1,2", square)
        .ended(2)
        .tells(&["takes device 3", "hides", "[0, 4, 1, 5, 2, 6]"]);
    on("t3k-2x4", "0", square)
        .ended(2)
        .tells(&["needs 4 devices and 2 of 8 are visible"]);
}
