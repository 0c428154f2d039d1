//! Twenty steps of fine-tuning on masked answers follow PyTorch's losses, for each family.

mod hub_support;

use hub_support::reference;
use std::collections::BTreeMap;
use unisono_data::IGNORE;
use unisono_tensor::{Mesh, MeshDevice, Options};
use unisono_train::config::{Environment, load_text};
use unisono_train::dataset::{Rows, StepData};
use unisono_train::model::ModelSpec;
use unisono_train::start::load_base;
use unisono_train::step::{BatchPlan, Trainer};

const SEQUENCES: usize = 8;
const WIDTH: usize = 48;

/// The batch of `reference/finetune.py`.
fn batch() -> StepData {
    let (mut inputs, mut targets) = (vec![0; SEQUENCES * WIDTH], vec![IGNORE; SEQUENCES * WIDTH]);
    let mut num_targets = 0;
    for s in 0..SEQUENCES {
        let ids: Vec<u32> = (0..20 + 4 * s)
            .map(|i| ((5 * i * i + 3 * i * s + 13 * s + 1) % 97) as u32)
            .collect();
        inputs[s * WIDTH..][..ids.len() - 1].copy_from_slice(&ids[..ids.len() - 1]);
        for position in 6 + s..ids.len() {
            targets[s * WIDTH + position - 1] = ids[position];
            num_targets += 1;
        }
    }
    StepData {
        inputs: Rows::Tokens(inputs),
        input_width: WIDTH,
        targets: Rows::Tokens(targets),
        target_width: WIDTH,
        num_targets,
    }
}

/// The losses of twenty steps from the model in `directory`, on a mesh.
fn losses(directory: &std::path::Path, axes: &[(&str, usize)], accumulation: usize) -> Vec<f32> {
    let yaml = format!(
        "training_config: {{model_path: \"{}\", data_path: random, batch_size: {}, gradient_accumulation_steps: {accumulation}, \
         max_steps: 20, optimizer: {{type: AdamW, lr: 1e-3, weight_decay: 0.1}}}}\ntransformer_config: {{dropout_prob: 0.0}}",
        directory.display(),
        SEQUENCES / accumulation
    );
    let environment = Environment {
        variables: BTreeMap::new(),
        working_dir: directory.to_owned(),
    };
    let config = load_text("test", &yaml, &[], &environment)
        .expect("a configuration")
        .config;
    let spec = ModelSpec::of(&config, None);
    let device = MeshDevice::open(Mesh::new(axes).expect("a mesh"), Options::default()).expect("devices");
    let plan = BatchPlan {
        batch_size: SEQUENCES / accumulation,
        accumulation,
        data_parallel: device.mesh().axis_size("dp"),
        width: WIDTH,
    };
    let mut trainer = Trainer::new(&device, &config, &spec, plan, 20).expect("a trainer");
    load_base(&trainer.model, &config, &spec).expect("weights");
    let data = batch();
    (0..20)
        .map(|step| {
            let result = trainer.step(step, &data).expect("a step");
            let control = result
                .control
                .expect("a backend that computes")
                .wait()
                .expect("numbers");
            control[3]
        })
        .collect()
}

#[test]
fn twenty_steps_follow_pytorch() {
    let expected: BTreeMap<String, Vec<f32>> =
        serde_json::from_str(include_str!("reference/finetune.json")).expect("the reference is JSON");
    for family in reference().families {
        let directory = tempfile::tempdir().expect("a directory");
        family.write(directory.path());
        let found = losses(directory.path(), &[], 1);
        let expected = &expected[&family.name];
        assert!(expected[19] < 0.9 * expected[0], "{}: nothing is learnt", family.name);
        for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
            assert!(
                (found - expected).abs() < 1e-3,
                "{} step {step}: {found} {expected}",
                family.name
            );
        }
        let bits = |losses: Vec<f32>| losses.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(
            bits(losses(directory.path(), &[("dp", 2), ("tp", 2)], 2)),
            bits(found),
            "{} on four devices",
            family.name
        );
    }
}
