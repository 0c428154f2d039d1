//! `bf16_order: tiles` is exact as everything is: the same run on meshes, accumulations, workers and instruction sets, stopped
//! and resumed; and it is another run than that of pairs.

use std::path::Path;
use unisono_kernels::isa::Isa;
use unisono_tensor::{Mesh, MeshDevice, Options};
use unisono_train::TrainError;
use unisono_train::checkpoint::Checkpoints;
use unisono_train::config::{Bf16Order, Environment, Loaded, load_text};
use unisono_train::dataset::Dataset;
use unisono_train::metrics::read_metrics;
use unisono_train::plan::check;
use unisono_train::run::Run;

const STEPS: u64 = 3;

fn loaded(precision: &str, (dp, tp): (usize, usize), accumulation: usize, steps: u64) -> Loaded {
    let yaml = format!(
        "training_config:
  {precision}
  seed: 3
  batch_size: {}
  gradient_accumulation_steps: {accumulation}
  max_steps: {steps}
  eval_every: 0
  model_save_interval: 0
  optimizer: {{type: AdamW, lr: 3e-3}}
transformer_config:
  model_type: gpt2
  num_heads: 4
  embedding_dim: 20
  num_blocks: 1
  max_sequence_length: 12
  weight_tying: enabled
device_config:
  mesh_shape: [{dp}, {tp}]
  enable_ddp: true
  enable_tp: true
",
        12 / accumulation
    );
    load_text("tiles.yaml", &yaml, &[], &Environment::of_process()).unwrap_or_else(|e| panic!("{e}"))
}

/// Trains in `directory`, from its newest checkpoint if it has one.
fn train(loaded: Loaded, options: Options, directory: &Path) -> Result<(), TrainError> {
    let dataset = Dataset::load(&loaded.config);
    let plan = check(&loaded, &dataset).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let device = MeshDevice::open(plan.mesh.clone(), options).expect("devices open");
    let newest = Checkpoints::new(directory.join("checkpoints")).newest().ok();
    let dataset = dataset.expect("the plan has seen the data");
    let (mut run, _) = Run::open(&device, loaded.config, plan, dataset, directory, newest.as_ref())?;
    run.train(&mut [], &|| false).map(|_| ())
}

/// Each step's loss and norm by bits, and the hashes of the last checkpoint's files.
fn outcome(directory: &Path) -> (Vec<(u32, u32)>, Vec<String>) {
    let records = read_metrics(&directory.join("metrics.jsonl")).expect("metrics");
    let checkpoint = Checkpoints::new(directory.join("checkpoints"))
        .newest()
        .expect("a checkpoint");
    let files = &checkpoint.manifest().files;
    (
        records
            .iter()
            .map(|r| (r.loss.expect("a loss").to_bits(), r.grad_norm.to_bits()))
            .collect(),
        files.iter().map(|file| file.blake3.clone()).collect(),
    )
}

const TILES: &str = "dtype: bf16\n  bf16_order: tiles";

fn options(bf16_order: Bf16Order, workers: usize, isa: Isa) -> Options {
    Options {
        bf16_order,
        workers: Some(workers),
        isa: Some(isa),
        ..Options::default()
    }
}

#[test]
fn tiles_are_exact_on_every_layout_and_instruction_set() {
    let base = tempfile::tempdir().expect("a folder");
    let one = options(Bf16Order::Tiles, 2, Isa::detect());
    train(loaded(TILES, (1, 1), 1, STEPS), one.clone(), base.path()).expect("it trains");
    let expected = outcome(base.path());
    assert_eq!(expected.0.len(), STEPS as usize);
    assert!(expected.0[2].0 < expected.0[0].0, "it learns: {:x?}", expected.0);
    let layouts = [
        ((2, 1), 1, 2),
        ((1, 2), 1, 1),
        ((3, 2), 2, 2),
        ((1, 4), 3, 2),
        ((1, 1), 4, 1),
    ];
    // The plain code would take most of the time; the kernels' own tests compare it.
    let mut isas = Isa::available();
    isas.retain(|isa| *isa != Isa::Portable || Isa::detect() == Isa::Portable);
    for (index, (mesh, accumulation, workers)) in layouts.into_iter().enumerate() {
        // Each instruction set has its turn.
        let isa = isas[index % isas.len()];
        let folder = tempfile::tempdir().expect("a folder");
        let opened = options(Bf16Order::Tiles, workers, isa);
        if index == 2 {
            train(loaded(TILES, (1, 1), 1, 2), one.clone(), folder.path()).expect("it trains two steps");
        }
        train(loaded(TILES, mesh, accumulation, STEPS), opened, folder.path()).expect("it trains");
        assert!(
            outcome(folder.path()) == expected,
            "mesh {mesh:?}, accumulation {accumulation}, {} on {workers} workers",
            isa.name()
        );
    }
    // The broken control: the other order gives other bits.
    let pairs = tempfile::tempdir().expect("a folder");
    let opened = options(Bf16Order::Pairs, 2, Isa::detect());
    train(loaded("dtype: bf16", (1, 1), 1, STEPS), opened, pairs.path()).expect("it trains");
    assert_ne!(outcome(pairs.path()), expected);
}

#[test]
fn of_f32_it_says_nothing() {
    let [plain, tiles] = ["dtype: f32", "bf16_order: tiles"].map(|precision| {
        let folder = tempfile::tempdir().expect("a folder");
        train(loaded(precision, (1, 1), 1, 1), Options::default(), folder.path()).expect("it trains");
        outcome(folder.path())
    });
    assert_eq!(plain, tiles);
}

#[test]
fn devices_of_another_order_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = train(loaded(TILES, (1, 1), 1, 1), Options::default(), folder.path()).expect_err("devices of pairs");
    let words = error.to_string();
    assert!(
        words.contains("bf16_order is tiles") && words.contains("opened for pairs"),
        "{words}"
    );
    let device = MeshDevice::open(Mesh::one(), options(Bf16Order::Tiles, 1, Isa::Portable)).expect("a device");
    assert_eq!(device.runtime().bf16_order(), Bf16Order::Tiles);
}
