//! The examples, run with small sizes: what they claim about bits and losses is true.

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
#[path = "../examples/mlp.rs"]
mod mlp;
#[path = "../examples/own_model_and_data.rs"]
mod own_model_and_data;

use unisono::prelude::MeshDevice;

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
