//! The examples, run with small sizes: what they claim about bits and losses is true.

// The mesh examples are programs of their own, and each brings the MLP that they share.
#![allow(clippy::duplicate_mod)]

#[path = "../examples/char_gpt.rs"]
mod char_gpt;
#[path = "../examples/custom_module.rs"]
mod custom_module;
#[path = "../examples/custom_operation.rs"]
mod custom_operation;
#[path = "../examples/linear_regression.rs"]
mod linear_regression;
#[path = "../examples/linear_regression_mesh.rs"]
mod linear_regression_mesh;
#[path = "../examples/mesh_data_parallel.rs"]
mod mesh_data_parallel;
#[path = "../examples/mesh_distribute.rs"]
mod mesh_distribute;
#[path = "../examples/mesh_hybrid.rs"]
mod mesh_hybrid;
#[path = "../examples/mesh_matmul_all_gather.rs"]
mod mesh_matmul_all_gather;
#[path = "../examples/mesh_submeshes.rs"]
mod mesh_submeshes;
#[path = "../examples/mesh_tensor_parallel.rs"]
mod mesh_tensor_parallel;
#[path = "../examples/mesh_tour.rs"]
mod mesh_tour;
#[path = "../examples/mesh_trace.rs"]
mod mesh_trace;
#[path = "../examples/mini_allreduce.rs"]
mod mini_allreduce;
#[path = "../examples/mlp.rs"]
mod mlp;
#[path = "../examples/own_model_and_data.rs"]
mod own_model_and_data;

use unisono::prelude::{MeshDevice, Topology};

#[test]
fn linear_regression_finds_its_law() {
    let device = MeshDevice::one().expect("a device");
    let (losses, weights) = linear_regression::train(&device, 200).expect("it trains");
    assert!(losses[0] > 1.0 && losses[199] < 1e-4, "{} {}", losses[0], losses[199]);
    for (weight, law) in weights.iter().zip([1.0, -2.0, 0.5, 3.0]) {
        assert!((weight - law).abs() < 0.02, "{weights:?}");
    }
}

#[test]
fn linear_regression_is_the_same_on_four_devices() {
    let one = linear_regression_mesh::train("", 20).expect("it trains");
    assert!(one[19] < one[0]);
    for mesh in ["dp=2,tp=2", "tp=4", "dp=4"] {
        assert_eq!(
            one,
            linear_regression_mesh::train(mesh, 20).expect("it trains"),
            "{mesh}"
        );
    }
}

#[test]
fn the_perceptron_is_the_same_data_and_tensor_parallel() {
    let one = mlp::train("dp=1", 60).expect("it trains");
    assert!(one[59] < 0.2 * one[0], "{} {}", one[0], one[59]);
    for mesh in ["dp=2", "tp=4", "dp=2,tp=2", "dp=3"] {
        assert_eq!(one, mlp::train(mesh, 60).expect("it trains"), "{mesh}");
    }
}

#[test]
fn a_module_of_ones_own_is_the_same_on_every_mesh() {
    let one = custom_module::pass("dp=1").expect("it runs");
    assert!(one.iter().all(|values| values.iter().any(|value| *value != 0.0)));
    for mesh in ["tp=2", "tp=4", "dp=2,tp=2"] {
        assert_eq!(one, custom_module::pass(mesh).expect("it runs"), "{mesh}");
    }
}

#[test]
fn an_operation_of_ones_own_has_its_gradient() {
    for mesh in ["dp=1", "dp=2", "dp=4"] {
        let (sum, gradient) = custom_operation::pass(mesh).expect("it runs");
        assert_eq!(sum, 1.0 + 0.25 + 0.0625 + 1.0);
        assert_eq!(gradient, [0.0, -1.0, 0.5, 0.0], "{mesh}");
    }
}

#[test]
fn a_model_of_ones_own_learns_the_same_under_dp() {
    let one = own_model_and_data::train("dp=1", 60).expect("it trains");
    assert!(one[59] < 0.5 * one[0], "{} {}", one[0], one[59]);
    assert_eq!(one, own_model_and_data::train("dp=4", 60).expect("it trains"));
}

#[test]
fn the_character_gpt_trains_and_writes_as_a_program() {
    let small = [
        "training_config.max_steps=6",
        "training_config.batch_size=4",
        "training_config.eval_batches=2",
        "transformer_config.num_blocks=2",
        "transformer_config.embedding_dim=32",
        "transformer_config.max_sequence_length=128",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let (loss, text) = char_gpt::train(&small, &folder.path().join("one")).expect("it trains");
    assert!(loss.is_finite() && text.chars().count() == 100, "{loss} {text:?}");
    let mut two = small.to_vec();
    two.extend(["device_config.enable_ddp=true", "device_config.mesh_shape=[2]"]);
    let same = char_gpt::train(&two, &folder.path().join("two")).expect("it trains");
    assert_eq!((loss, text), same);
}

#[test]
fn a_data_parallel_mlp_is_that_of_one_device() {
    let correlation = mesh_data_parallel::run(&[2, 4, 8], mesh_data_parallel::mlp::SMALL).expect("it runs");
    assert!(correlation > 0.999_999, "{correlation}");
}

#[test]
fn a_tensor_parallel_mlp_is_that_of_one_device_in_both_forms() {
    let correlation = mesh_tensor_parallel::run(&[2, 4, 8], mesh_tensor_parallel::mlp::SMALL).expect("it runs");
    assert!(correlation > 0.999_999, "{correlation}");
}

/// 24 units give the same bits on every number of devices that divides them; a unit a device is another order on three.
#[test]
fn units_keep_the_bits_on_three_devices() {
    let sizes = mesh_tensor_parallel::mlp::Sizes {
        hidden: 48,
        ..mesh_tensor_parallel::mlp::SMALL
    };
    let reduced = |devices, units| mesh_tensor_parallel::reduced(devices, units, sizes).expect("it runs");
    let one = reduced(1, 24);
    for devices in [2, 3, 4, 6, 8] {
        assert_eq!(reduced(devices, 24), one, "{devices} devices");
    }
    assert_ne!(reduced(3, 3), reduced(1, 1));
}

#[test]
fn a_hybrid_mlp_is_that_of_one_device() {
    let meshes = [[2, 2], [2, 4], [4, 2], [8, 4], [1, 8], [8, 1]];
    let correlation = mesh_hybrid::run(&meshes, mesh_hybrid::mlp::SMALL).expect("it runs");
    assert!(correlation > 0.999_999, "{correlation}");
}

#[test]
fn a_product_after_an_all_gather_costs_the_textbook_bytes() {
    let (one, _) = mesh_matmul_all_gather::one().expect("it runs");
    for devices in [2, 4, 8] {
        for topology in [Topology::Linear, Topology::Ring] {
            let (y, bytes) = mesh_matmul_all_gather::product(devices, topology).expect("it runs");
            assert_eq!(y, one, "{devices} {topology:?}");
            // Each of the n parts of 32 × 256 f32 goes over n − 1 links, on a line as on a ring.
            assert_eq!(bytes, 4 * 32 * 256 * (devices as u64 - 1));
        }
    }
}

#[test]
fn four_submeshes_compute_batches_of_their_own() {
    let correlation = mesh_submeshes::run([8, 4], [2, 4], mesh_submeshes::mlp::SMALL).expect("it runs");
    assert!(correlation > 0.999_999, "{correlation}");
}

#[test]
fn a_trace_of_two_submeshes_replays_and_prints_itself() {
    let shown = mesh_trace::run(3, mesh_trace::mlp::SMALL).expect("it runs");
    assert_eq!(shown.trace.lines().count(), 6, "{}", shown.trace);
    assert_eq!(shown.by_device.len(), 8);
    // Two products of 16 rows a device, with a quarter of 64 × 256 weights each, and the activation.
    assert!(
        shown
            .by_device
            .iter()
            .all(|(commands, flops)| *commands == 3 && *flops >= 2 * 2 * 16 * 64 * 64)
    );
    assert!(shown.error.contains("after its release"), "{}", shown.error);
}

#[test]
fn arrays_come_back_from_devices_as_they_went() {
    for x in mesh_distribute::arrays().expect("arrays") {
        let moved = mesh_distribute::there_and_back(&x).unwrap_or_else(|error| panic!("{x:?}: {error}"));
        assert!(moved.contains("each device sends"), "{moved}");
        let (drawing, printed) = mesh_distribute::on_the_host(&x).expect("it is dealt out");
        assert!(
            drawing.contains("[0:2, 0:2]") && drawing.contains("[2:4, 6:8]"),
            "{drawing}"
        );
        assert!(printed.contains("[2:4, 6:8]"), "{printed}");
    }
}

#[test]
fn the_tour_of_the_chapter_holds() {
    let drawn = mesh_tour::run().expect("it runs");
    assert!(drawn.contains("MeshDevice(rows=2, cols=4)"), "{drawn}");
}

#[test]
fn four_clients_of_a_server_have_the_sum_that_one_line_has() {
    let values = mini_allreduce::values();
    let by_hand = mini_allreduce::over_sockets(&values).expect("sockets work");
    assert_eq!(by_hand, mini_allreduce::on_a_mesh(&values).expect("it runs"));
    for sum in by_hand {
        assert_eq!(sum, [10.0, 100.0, 0.0]);
    }
}
