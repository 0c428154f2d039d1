//! What a step does by rule: which parameters decay, which masks dropout draws and when, and the learning rate of each step.
//! FAULTS 19, 22, 23, 24, 48.

mod finetune_support;

use finetune_support::Setting;
use unisono_nn::Model;
use unisono_train::metrics::read_metrics;

/// On one device, and on four.
const MESHES: [&[&str]; 2] = [
    &[],
    &[
        "device_config.mesh_shape=[2, 2]",
        "device_config.enable_ddp=true",
        "device_config.enable_tp=true",
    ],
];

/// A model of a family on a text, with the head's weights those of the embedding.
fn text(setting: &Setting, family: &str, characters: usize) -> String {
    let text: String = unisono_data::corpus::stories().chars().take(characters).collect();
    let path = setting.path("text.txt");
    std::fs::write(&path, text).expect("written");
    let model = match family {
        "gpt2" => "num_heads: 2",
        _ => "num_heads: 4, num_groups: 2, intermediate_dim: 32",
    };
    format!(
        "training_config: {{seed: 3, data_path: {}, batch_size: 2, validation_batch_size: 2, use_clip_grad_norm: false}}\n\
         transformer_config: {{model_type: {family}, {model}, embedding_dim: 16, num_blocks: 1, max_sequence_length: 16, \
         weight_tying: enabled}}\n",
        path.display()
    )
}

/// Losses of the steps, by their bits.
fn losses(setting: &Setting, yaml: &str, sets: &[&str], name: &str) -> Vec<u32> {
    setting.train(yaml, sets, name);
    setting.metrics(name).iter().map(|(_, loss, _)| *loss).collect()
}

/// A parameter: its name, the number of its dims, its values.
type Values = Vec<(String, usize, Vec<f32>)>;

fn values(model: &dyn Model) -> Values {
    let parameters = model.parameters().iter();
    let of = |p: &unisono_nn::Parameter| (p.name.clone(), p.spec.dims.len(), p.tensor.to_vec().expect("values"));
    parameters.map(of).collect()
}

/// FAULTS 48: all that decay changes in a step is that matrices and tables are less by `lr · wd · w`, each once.
#[test]
fn decay_is_of_matrices_and_tables_only() {
    const LR: f32 = 0.1;
    const DECAY: f32 = 0.5;
    let setting = Setting::new();
    for family in ["gpt2", "llama"] {
        let yaml = text(&setting, family, 400);
        for (mesh, optimizer) in (0..MESHES.len()).flat_map(|mesh| [(mesh, "AdamW"), (mesh, "SGD")]) {
            let step = |decay: f32| {
                let rule = format!("training_config.optimizer={{type: {optimizer}, lr: {LR}, weight_decay: {decay}}}");
                let sets = [MESHES[mesh], &["training_config.max_steps=1", &rule]].concat();
                let (mut run, _) = setting.open(&yaml, &sets, &format!("{family}-{mesh}-{optimizer}-{decay}"), false);
                let before = values(run.trainer.model.as_model());
                run.train(&mut [], &|| false).expect("it trains");
                (before, values(run.trainer.model.as_model()))
            };
            let ((before, plain), (same, decayed)) = (step(0.0), step(DECAY));
            assert_eq!(before, same);
            let tables = before
                .iter()
                .filter(|(name, _, _)| name.contains("wte") || name.contains("embed") || name.contains("head"));
            let tables: Vec<&String> = tables.map(|(name, _, _)| name).collect();
            assert_eq!(tables.len(), 1, "the tied table is one parameter: {tables:?}");
            let mut flat = 0;
            for ((name, dims, before), ((_, _, plain), (_, _, decayed))) in
                before.iter().zip(plain.iter().zip(&decayed))
            {
                let place = format!("{name} of {family} with {optimizer} on mesh {mesh}");
                assert!(before != plain, "{place} is trained");
                if *dims == 1 {
                    flat += 1;
                    assert_eq!(plain, decayed, "{place} does not decay");
                    continue;
                }
                assert!(before.iter().any(|w| w.abs() > 0.01), "{place} has something to lose");
                for (i, w) in before.iter().enumerate() {
                    let lost = f64::from(plain[i]) - f64::from(decayed[i]);
                    let right = f64::from(LR * DECAY) * f64::from(*w);
                    // Both results are rounded to f32, and are below 1.
                    assert!(
                        (lost - right).abs() < 2e-7,
                        "{place}, element {i}: {lost} and not {right} of {w}"
                    );
                }
            }
            assert!(flat >= 3, "gains and biases are among the parameters");
        }
    }
}

/// FAULTS 22 and 23: masks belong to a step and to a sequence of its batch. All samples are the same window, and nothing is learnt.
#[test]
fn dropout_draws_new_masks_for_each_step_and_sequence() {
    let setting = Setting::new();
    for family in ["gpt2", "llama"] {
        // One window: its inputs, and the target of the last.
        let yaml = text(&setting, family, 17);
        let losses = |dropout: &str, more: &[&str], name: &str| {
            let dropout = format!("transformer_config.dropout_prob={dropout}");
            let sets = [
                dropout.as_str(),
                "training_config.validation_fraction=0",
                "training_config.max_steps=3",
                "training_config.optimizer={type: SGD, lr: 0}",
            ];
            losses(&setting, &yaml, &[&sets, more].concat(), &format!("{family}-{name}"))
        };
        let one = ["training_config.batch_size=1"];
        let (off, off_one) = (losses("0", &[], "off"), losses("0", &one, "off-one"));
        assert!(
            off.iter().chain(&off_one).all(|loss| *loss == off[0]),
            "{off:?} {off_one:?}"
        );
        let (on, on_one) = (losses("0.5", &[], "on"), losses("0.5", &one, "on-one"));
        for losses in [&on, &on_one] {
            let [a, b, c] = losses[..] else { panic!("three steps") };
            assert!(a != b && b != c && a != c, "each step has masks of its own: {losses:?}");
        }
        // Were both sequences masked alike, their mean would be the loss of either.
        assert!(on.iter().zip(&on_one).all(|(two, one)| two != one), "{on:?} {on_one:?}");
        // The masks of a sequence are its own on whichever device and in whichever micro-step it comes.
        let split = ["device_config.mesh_shape=[2]", "device_config.enable_ddp=true"];
        let micro = [
            "training_config.batch_size=1",
            "training_config.gradient_accumulation_steps=2",
        ];
        assert_eq!(losses("0.5", &split, "split"), on);
        assert_eq!(losses("0.5", &micro, "micro"), on);
    }
}

/// FAULTS 24: validation has no dropout, before the first step and behind the last, whichever way activations are kept.
#[test]
fn validation_does_not_depend_on_dropout() {
    let setting = Setting::new();
    for family in ["gpt2", "llama"] {
        let yaml = text(&setting, family, 400);
        let (mut validations, mut trained) = (Vec::new(), Vec::new());
        for dropout in ["0", "0.2", "0.9"] {
            for runner in ["default", "memory_efficient"] {
                let [dropout, runner] = [("dropout_prob", dropout), ("runner_type", runner)]
                    .map(|(key, value)| format!("transformer_config.{key}={value}"));
                let sets = [
                    dropout.as_str(),
                    &runner,
                    "training_config.max_steps=2",
                    "training_config.eval_every=1",
                    "training_config.optimizer={type: SGD, lr: 0}",
                ];
                let name = format!("{family}-{dropout}-{runner}");
                let (run, _) = setting.open(&yaml, &sets, &format!("{name}-open"), false);
                let first = run.evaluate().expect("evaluated").expect("validation data");
                validations.push(first.loss.to_bits());
                validations.extend(setting.train(&yaml, &sets, &name).heard.validations);
                trained.push(setting.metrics(&name)[0].1);
            }
        }
        assert_eq!(validations.len(), 18);
        assert!(
            validations.iter().all(|loss| *loss == validations[0]),
            "{validations:?}"
        );
        // The control: training does depend on it, and not on the runner.
        assert!(
            trained[0] == trained[1] && trained[2] == trained[3] && trained[4] == trained[5],
            "{trained:?}"
        );
        assert!(trained[0] != trained[2] && trained[2] != trained[4], "{trained:?}");
    }
}

/// FAULTS 19: the rate of a step depends on nothing but the step.
#[test]
fn the_learning_rate_counts_optimizer_steps() {
    let setting = Setting::new();
    let yaml = "training_config: {batch_size: 16, max_steps: 20, num_samples: 100, optimizer: {type: SGD, lr: 0.01}}\n\
                transformer_config: {model_type: linear, input_features: 3, output_features: 2}\n";
    let hold = "scheduler_config={max_lr: 0.02, min_lr: 0.001, warmup_steps: 8, hold_steps: 3}";
    let linear = "training_config.scheduler_type=warmup_linear";
    // The step, from 1, where warm-up ends with the highest rate; and the last step's rate.
    for (schedule, ends_at, peak, last) in [(hold, 8, 0.02, Some(0.001)), (linear, 2, 0.01, None)] {
        let mut columns: Vec<Vec<f64>> = Vec::new();
        for (index, (dp, accumulation)) in [(1, 1), (1, 4), (4, 1), (4, 4)].into_iter().enumerate() {
            let sets = [
                format!("device_config.mesh_shape=[{dp}]"),
                "device_config.enable_ddp=true".into(),
                format!("training_config.batch_size={}", 16 / accumulation),
                format!("training_config.gradient_accumulation_steps={accumulation}"),
                schedule.into(),
            ];
            let name = format!("{peak}-{index}");
            setting.train(yaml, &sets.each_ref().map(String::as_str), &name);
            let records = read_metrics(&setting.path(&name).join("metrics.jsonl")).expect("metrics");
            columns.push(records.iter().map(|record| record.lr).collect());
        }
        let rates = &columns[0];
        assert_eq!(rates.len(), 20);
        assert!(columns.iter().all(|column| column == rates), "{columns:?}");
        assert_eq!(rates[ends_at - 1], peak);
        assert!(rates[..ends_at].is_sorted_by(|a, b| a < b), "{rates:?}");
        assert!(
            rates[ends_at - 1..].is_sorted_by(|a, b| a >= b) && rates[19] < peak,
            "{rates:?}"
        );
        assert!(
            last.is_none_or(|last: f64| (rates[19] - last).abs() < 1e-12),
            "{rates:?}"
        );
    }
}
