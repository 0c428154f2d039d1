//! tt-run's own files of rank bindings, each with a verdict, and which rank owns what.

use crate::common::{Sandbox, bindings, bound, descriptor, golden, request};
use std::path::Path;
use unisono_launch::Caller;

/// Files, and where they look for their descriptor, with the descriptor of the mesh crate that stands for it.
const FILES: [(&str, &str, &str); 10] = [
    ("2x2_multiprocess", "", ""),
    ("2x4_multiprocess", "", ""),
    (
        "32x4_quad_bh_galaxy",
        "tt_metal/fabric/mesh_graph_descriptors/32x4_quad_bh_galaxy_torus_xy_graph_descriptor.textproto",
        "quad_galaxy_torus_xy",
    ),
    (
        "bh_lbx2_1x16",
        "tests/ttnn/distributed/config/bh_lbx2_1x16_mesh_graph_descriptor.textproto",
        "bh_lbx2_1x16",
    ),
    (
        "galaxy_2rank",
        "configurations/galaxy_2rank/mgd.textproto",
        "galaxy_2rank_two_1x8_rows",
    ),
    (
        "hierarchical_parallel_5loudboxes",
        "configurations/5loudboxes/mgd.textproto",
        "hierarchical_parallel_5loudboxes",
    ),
    (
        "pipeline_parallel_1galaxy_pp4",
        "configurations/1galaxy_pp4/mgd.textproto",
        "pipeline_parallel_1galaxy_pp4",
    ),
    (
        "t3k_2x2_ttswitch",
        "tests/tt_metal/tt_fabric/custom_mesh_descriptors/t3k_2x2_ttswitch_mgd.textproto",
        "t3k_2x2_ttswitch",
    ),
    (
        "t3k_tracy_smoke",
        "tests/ttnn/distributed/config/t3k_2x1x1_mesh_graph_descriptor.textproto",
        "t3k_2x1x1",
    ),
    ("mock_galaxy_single_host_subcontext_a", SUBCONTEXT_MGD, ""),
];
const SUBCONTEXT_MGD: &str = "tests/tt_metal/tt_fabric/custom_mesh_descriptors/bh_galaxy_single_4x4_mesh.textproto";

fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/launch/data/rank_bindings")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A folder with a file of the data and its descriptor.
fn with(name: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("b.yaml", &data(&format!("{name}.yaml")));
    let (_, path, real) = FILES
        .iter()
        .find(|(file, ..)| *file == name)
        .expect("it is in the table");
    if *path == SUBCONTEXT_MGD {
        sandbox.write(path, &descriptor("4, 4", "1, 2"));
    } else if !path.is_empty() {
        let text = format!("../unisono-mesh/tests/descriptors/real/{real}.textproto");
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join(text);
        sandbox.write(path, &std::fs::read_to_string(text).expect("the descriptor"));
    }
    sandbox
}

#[test]
fn every_real_file_has_its_verdict() {
    let mut text = String::new();
    for (name, ..) in FILES {
        let sandbox = with(name);
        text += &format!("== {name}.yaml\n{}", sandbox.tell(&bound(|_| {})));
        let job = unisono_launch::plan(&bound(|_| {}), &sandbox.caller());
        for rank in job.iter().flat_map(|job| &job.ranks) {
            text += &format!(
                "rank {}: mesh {:?} process {:?} devices {:?}\n",
                rank.rank,
                rank.mesh_id.expect("it is bound"),
                rank.mesh_host_rank,
                rank.environment.get("TT_VISIBLE_DEVICES")
            );
        }
        text.push('\n');
    }
    golden("real.golden", &text);
}

#[test]
fn the_real_mapping_joins_its_overlays() {
    let sandbox = with("mock_galaxy_single_host_subcontext_a");
    let name = |part: &str| format!("maps/mock_galaxy_single_host_subcontext_{part}.yaml");
    sandbox.write(
        &name("a_rank_bindings"),
        &data("mock_galaxy_single_host_subcontext_a.yaml"),
    );
    let mapping = "maps/m.yaml".to_string();
    sandbox.write(&mapping, &data("mock_galaxy_single_host_subcontext_mapping.yaml"));
    let request = request(|request| request.rank_bindings_mapping = Some(mapping.clone()));
    // The second overlay is not there; then with one of its own descriptor it is.
    let missing = sandbox.tell(&request);
    assert!(
        missing.contains("maps/m.yaml:3:6: the rank bindings mock_galaxy_single_host_subcontext_b"),
        "{missing}"
    );
    sandbox.write(&name("b_rank_bindings"), &bindings(&["1 0", "0 1"], "two.textproto"));
    sandbox.write(
        "two.textproto",
        "mesh_descriptors { name: \"M\" arch: BLACKHOLE device_topology { dims: [2, 4] } \
         host_topology { dims: [1, 1] } channels { count: 1 } }\n\
         graph_descriptors { name: \"G\" type: \"FABRIC\" instances { mesh { mesh_descriptor: \"M\" mesh_id: 0 } } \
         instances { mesh { mesh_descriptor: \"M\" mesh_id: 1 } } }\n\
         top_level_instance { graph { graph_descriptor: \"G\" graph_id: 0 } }\n",
    );
    let job = sandbox.job(&request);
    let of = |rank: usize, name: &str| job.ranks[rank].environment[name].clone();
    assert_eq!(job.ranks.len(), 4);
    for rank in 0..4 {
        assert_eq!(of(rank, "TT_RUN_SUBCONTEXT_SIZES"), "2,2");
        assert_eq!(of(rank, "TT_RUN_SUBCONTEXT_ID"), (rank / 2).to_string());
    }
    assert!(of(0, "TT_MESH_GRAPH_DESC_PATH").ends_with("bh_galaxy_single_4x4_mesh.textproto"));
    assert!(of(2, "TT_MESH_GRAPH_DESC_PATH").ends_with("/two.textproto"));
    // Sorted by rank inside of the overlay, whatever the order in its file.
    assert_eq!((of(2, "TT_MESH_ID"), of(3, "TT_MESH_ID")), ("1".into(), "0".into()));
}

/// The file's mesh_host_rank, not the order of ranks, says which devices a rank owns.
#[test]
fn mesh_host_rank_decides_which_block_a_rank_owns() {
    let sandbox = Sandbox::new();
    sandbox.write("b.yaml", &bindings(&["0 0 1", "1 0 0"], "mgd.textproto"));
    let job = sandbox.job(&bound(|_| {}));
    assert_eq!(job.ranks[0].environment["TT_MESH_HOST_RANK"], "1");
    assert_eq!(job.ranks[1].environment["TT_MESH_HOST_RANK"], "0");
    let drawing = unisono_launch::drawing(&job, None, &sandbox.caller(), 100).plain();
    let owners: Vec<usize> = drawing
        .lines()
        .filter(|line| line.starts_with('│') && line.contains("rank"))
        .flat_map(|line| line.split('│').filter(|cell| cell.contains("rank")))
        .map(|cell| if cell.contains("rank 0 on node") { 0 } else { 1 })
        .collect();
    assert_eq!(owners, [1, 1, 0, 0], "{drawing}");
}

#[test]
fn values_that_are_no_text_become_text_and_old_names_are_taken() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "b.yaml",
        "rank_bindings:\n\
         - {rank: 0, mesh_id: 0, host_rank_id: 0, env_overrides: {TT_METAL_VISIBLE_DEVICES: 3, G: own}}\n\
         - rank: 1\n  mesh_id: 0\n  host_rank_id: 1\n  device_list: [1]\n  env_overrides:\n    TT_VISIBLE_DEVICES: 0,1\n\
         mesh_graph_path: mgd.textproto\n\
         global_env: {OMPI_ALLOW_RUN_AS_ROOT: 1, FLAG: true, EMPTY: , P: \"${PWD}\", H: 0x1F, G: all, Q: \"7\"}\n",
    );
    let mut caller = sandbox.caller();
    caller.environment.insert("PWD".into(), "/here".into());
    let job = sandbox.job_of(&bound(|_| {}), &caller);
    let of = |rank: usize, name: &str| job.ranks[rank].environment[name].as_str();
    let global = ["OMPI_ALLOW_RUN_AS_ROOT", "FLAG", "EMPTY", "P", "H", "Q"].map(|name| of(1, name));
    assert_eq!(global, ["1", "true", "", "/here", "0x1F", "7"]);
    assert_eq!((of(0, "TT_VISIBLE_DEVICES"), of(1, "TT_VISIBLE_DEVICES")), ("3", "0,1"));
    assert_eq!((of(0, "G"), of(1, "G")), ("own", "all"));
    assert!(!job.ranks[0].environment.contains_key("TT_METAL_VISIBLE_DEVICES"));
    golden("old-names.golden", &sandbox.verdict(&Ok(job)));
}

#[test]
fn paths_are_found_where_tt_run_finds_them() {
    let sandbox = Sandbox::new();
    let text = descriptor("1, 4", "1, 2");
    let descriptor_of = |caller: &Caller, name: &str| {
        sandbox.write("b.yaml", &bindings(&["0 0 0", "1 0 1"], name));
        sandbox.job_of(&bound(|_| {}), caller).ranks[0]
            .descriptor
            .clone()
            .expect("it is bound")
    };
    let mut caller = sandbox.caller();
    assert_eq!(descriptor_of(&caller, "mgd.textproto"), sandbox.path("mgd.textproto"));
    // TT_METAL_HOME comes first, the home folder stands for ~.
    sandbox.write("metal/mgd.textproto", &text);
    let metal = sandbox.path("metal").display().to_string();
    caller.environment.insert("TT_METAL_HOME".into(), metal.clone());
    assert_eq!(
        descriptor_of(&caller, "mgd.textproto"),
        sandbox.path("metal/mgd.textproto")
    );
    caller.environment.insert("HOME".into(), metal);
    assert_eq!(
        descriptor_of(&caller, "~/mgd.textproto"),
        sandbox.path("metal/mgd.textproto")
    );
    let absolute = sandbox.path("mgd.textproto").display().to_string();
    assert_eq!(descriptor_of(&caller, &absolute), sandbox.path("mgd.textproto"));
    // Unchecked it lies below the launch directory, and what it says cannot be compared.
    sandbox.write("b.yaml", &bindings(&["0 7", "1 9 4"], "far.textproto"));
    let job = sandbox.job_of(&bound(|request| request.skip_mgd_check = true), &caller);
    assert_eq!(job.ranks[0].descriptor, Some(sandbox.path("far.textproto")));
    assert!(
        job.notes[0].message.contains("far.textproto is not on this host"),
        "{:?}",
        job.notes
    );
}
