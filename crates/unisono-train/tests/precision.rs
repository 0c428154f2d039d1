//! bf16 learns what f32 learns: 200 steps of a small GPT end within 1 % of the same loss.

use std::path::PathBuf;
use unisono_tensor::MeshDevice;
use unisono_train::config::{Environment, load_text};
use unisono_train::dataset::Dataset;
use unisono_train::metrics::read_metrics;
use unisono_train::plan::check;
use unisono_train::run::Run;

const STEPS: usize = 200;
/// Steps whose mean loss is compared: a single one says little about a run.
const LAST: usize = 20;

/// Losses by step.
fn losses(dtype: &str) -> Vec<f32> {
    let directory: PathBuf = std::env::temp_dir().join(format!("unisono-precision-{}-{dtype}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let yaml = format!(
        "training_config:
  dtype: {dtype}
  batch_size: 16
  max_steps: {STEPS}
  eval_every: 0
  model_save_interval: 0
  optimizer: {{type: AdamW, lr: 3e-3, beta2: 0.95, weight_decay: 0.1}}
transformer_config:
  model_type: gpt2
  num_heads: 4
  embedding_dim: 64
  num_blocks: 2
  dropout_prob: 0.0
  max_sequence_length: 64
  weight_tying: enabled
"
    );
    let loaded = load_text("precision.yaml", &yaml, &[], &Environment::of_process()).unwrap_or_else(|e| panic!("{e}"));
    let dataset = Dataset::load(&loaded.config);
    let plan = check(&loaded, &dataset).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let device = MeshDevice::one().expect("a device opens");
    let dataset = dataset.expect("the plan has seen the data");
    let (mut run, _) = Run::open(&device, loaded.config, plan, dataset, &directory, None).expect("the run opens");
    run.train(&mut [], &|| false).expect("the run trains");
    let records = read_metrics(&directory.join("metrics.jsonl")).expect("the metrics can be read");
    let _ = std::fs::remove_dir_all(&directory);
    records.iter().map(|record| record.loss.expect("a loss")).collect()
}

#[test]
fn bf16_ends_within_a_hundredth_of_f32() {
    let (f32, bf16) = (losses("f32"), losses("bf16"));
    assert_eq!((f32.len(), bf16.len()), (STEPS, STEPS));
    assert_ne!(f32, bf16, "bf16 rounds");
    let mean = |losses: &[f32]| losses[STEPS - LAST..].iter().sum::<f32>() / LAST as f32;
    let (f32, bf16, first) = (mean(&f32), mean(&bf16), f32[0]);
    assert!(f32 < 0.6 * first, "the model learns: from {first} to {f32}");
    assert!(
        (bf16 / f32 - 1.0).abs() < 0.01,
        "the last {LAST} steps\' losses: {f32} in f32, {bf16} in bf16"
    );
}
