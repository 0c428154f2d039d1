//! Two runs compared: identical across meshes, else the first difference with its bits.

mod checkpoint_support;

use checkpoint_support::{Run, SEQUENCES};
use std::fmt::Write;
use std::path::Path;
use unisono_nn::Model;
use unisono_train::checkpoint::{Checkpoints, Keep};
use unisono_train::config::{OptimizerRule, RunConfig, to_yaml};
use unisono_train::diff::{Answers, Report, compare};

type Axes = &'static [(&'static str, usize)];

/// The configuration of a run on a mesh.
fn config(axes: Axes, accumulation: usize) -> RunConfig {
    let mut config = RunConfig::default();
    config.training.batch_size = SEQUENCES / accumulation;
    config.training.gradient_accumulation_steps = accumulation;
    let size = |name: &str| axes.iter().find(|(axis, _)| *axis == name).map_or(1, |(_, size)| *size);
    config.device.mesh_shape = vec![size("dp"), size("tp")];
    config.device.enable_ddp = size("dp") > 1;
    config.device.enable_tp = size("tp") > 1;
    config
}

fn line(step: u64, (loss, norm): (f32, f32), batch: usize) -> String {
    let sequences = step * batch as u64;
    format!(
        "{{\"step\":{step},\"loss\":{loss},\"lr\":0.003,\"grad_norm\":{norm},\"sequences\":{sequences},\"tokens\":{},\
         \"tokens_per_s\":{}}}\n",
        16 * sequences,
        1000 + step
    )
}

/// A run's directory after some steps, with a checkpoint every two. `disturb` changes the model before a step.
fn train(directory: &Path, axes: Axes, accumulation: usize, steps: u64, disturb: &dyn Fn(&Run, u64)) {
    std::fs::create_dir_all(directory).expect("it is made");
    std::fs::write(directory.join("config.yaml"), to_yaml(&config(axes, accumulation))).expect("it is written");
    let mut run = Run::new(axes, accumulation);
    let store = Checkpoints::new(directory.join("checkpoints"));
    let mut metrics = String::new();
    for step in 1..=steps {
        disturb(&run, step);
        metrics += &line(step, run.train(step)[0], SEQUENCES);
        if step % 2 == 0 {
            run.save_to(&store, Keep { last: 9, best: false }).expect("it is saved");
        }
    }
    std::fs::write(directory.join("metrics.jsonl"), metrics).expect("it is written");
}

fn nothing(_: &Run, _: u64) {}

/// The report as text, without the place of the test.
fn text(report: &Report, directory: &Path) -> String {
    report.to_string().replace(&directory.display().to_string(), "HERE")
}

#[test]
fn runs_on_different_meshes_are_identical() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    train(&here.join("a"), &[], 1, 4, &nothing);
    train(&here.join("b"), &[("dp", 2), ("tp", 2)], 2, 6, &nothing);
    let report = compare(&here.join("a"), &here.join("b")).expect("they are compared");
    assert!(report.identical(), "{report}");
    let isa = report.a.isa.clone().unwrap_or_default();
    assert_eq!(
        text(&report, here),
        format!(
            "A: HERE/a: 4 steps of 8 sequences, 1 device, {isa}, checkpoints of steps 2, 4\n\
             B: HERE/b: 6 steps of 8 sequences, 2×2 = 4 devices (dp 2, tp 2), {isa}, checkpoints of steps 2, 4, 6\n\
             Configuration: keys of the layout, which must show in no bit:\n\
             \x20 training_config.batch_size: 8 in A, 4 in B\n\
             \x20 training_config.gradient_accumulation_steps: 1 in A, 2 in B\n\
             \x20 device_config.mesh_shape: [1, 1] in A, [2, 2] in B\n\
             \x20 device_config.enable_ddp: false in A, true in B\n\
             \x20 device_config.enable_tp: false in A, true in B\n\
             Metrics: loss, grad_norm, lr, sequences and tokens of 4 common steps (1 to 4) are equal.\n\
             Checkpoints: all 84 tensors (parameters and optimizer state) of steps 2, 4 are equal.\n\
             Note: A has 4 steps and B has 6: the steps that both have are compared.\n\
             Identical, bit by bit.\n"
        )
    );
    let json = serde_json::to_value(&report).expect("it is data");
    assert_eq!(json["identical"], true);
    assert_eq!(json["checkpoints"]["steps"], serde_json::json!([2, 4]));
}

/// One bit of one value, changed before step 3, on another mesh: the metrics show it at step 3, the checkpoints at 4.
#[test]
fn the_first_difference_is_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    train(&here.join("a"), &[], 1, 6, &nothing);
    train(&here.join("b"), &[("tp", 2)], 1, 6, &|run, step| {
        if step == 3 {
            let tensor = &run.model.parameters()[1].tensor;
            let mut values = tensor.to_vec().expect("values");
            values[5 * 32 + 7] = f32::from_bits(values[5 * 32 + 7].to_bits() ^ 0x40_0000);
            tensor.upload_global(&values).expect("it is copied");
        }
    });
    let report = compare(&here.join("a"), &here.join("b")).expect("they are compared");
    assert!(!report.identical());
    let metric = report.metrics.first.clone().expect("the loss differs");
    assert_eq!((metric.step, metric.quantity), (3, "loss"));
    assert_ne!(metric.a_bits, metric.b_bits);
    assert_eq!(
        u32::from_str_radix(&metric.a_bits, 16).map(f32::from_bits).ok(),
        metric.a.parse().ok()
    );
    assert_eq!(report.metrics.differing, 4);
    assert_eq!(report.checkpoints.steps, [2, 4]);
    let shown = text(&report, here);
    assert!(
        shown.contains("Metrics: the first difference is at step 3: loss is "),
        "{shown}"
    );
    assert!(shown.contains("; 4 of 6 common steps (1 to 6) differ.\n"), "{shown}");
    assert!(
        shown.contains("Checkpoints: the first difference is at step 4: `wte.weight`[0, 0] is "),
        "{shown}"
    );
    assert!(
        shown.contains(" Those of step 2 are equal.\n") && shown.ends_with("Different.\n"),
        "{shown}"
    );
}

/// A value that no metric shows is found in the checkpoint, with its index and both values in hex.
#[test]
fn a_single_value_of_a_checkpoint_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for name in ["a", "b"] {
        train(&here.join(name), &[], 1, 1, &nothing);
    }
    let save = |name: &str, value: f32| {
        let mut run = Run::new(&[], 1);
        run.train(1);
        let tensor = &run.model.parameters()[1].tensor;
        let mut values = tensor.to_vec().expect("values");
        values[5 * 32 + 7] = value;
        tensor.upload_global(&values).expect("it is copied");
        run.save(&here.join(name).join("checkpoints"));
    };
    save("a", 0.5);
    save("b", -0.0);
    let report = compare(&here.join("a"), &here.join("b")).expect("they are compared");
    let shown = text(&report, here);
    assert!(
        shown.contains(
            "Checkpoints: the first difference is at step 1: `wpe.weight`[5, 7] is 0.5 (3f000000) in A and -0 (80000000) in B; 1 \
             of its 512 values and 1 of 84 tensors differ.\n"
        ),
        "{shown}"
    );
    assert!(report.metrics.first.is_none() && !report.identical());
}

#[test]
fn another_batch_is_aligned_by_sequences() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for (name, batch, steps) in [("a", 32, 12), ("b", 64, 6)] {
        let mut config = config(&[], 1);
        config.training.batch_size = batch;
        if let OptimizerRule::AdamW { lr, .. } = &mut config.optimizer.rule {
            *lr = 1e-4;
        }
        let mut metrics = String::new();
        for step in 1..=steps {
            metrics += &line(step, (4.0 - 0.25 * step as f32, 1.0), batch);
        }
        std::fs::create_dir(here.join(name)).expect("it is made");
        std::fs::write(here.join(name).join("config.yaml"), to_yaml(&config)).expect("it is written");
        std::fs::write(here.join(name).join("metrics.jsonl"), metrics).expect("it is written");
    }
    let report = compare(&here.join("a"), &here.join("b")).expect("they are compared");
    assert!(!report.identical());
    let batches = report.batches.as_ref().expect("the batches differ");
    assert_eq!(
        (batches.points.len(), batches.points[5].step_a, batches.points[5].step_b),
        (6, 12, 6)
    );
    assert_eq!(batches.points[5].gap, 1.5);
    let shown = text(&report, here);
    for part in [
        "  training_config.batch_size: 32 in A, 64 in B\n",
        "Batches: 32 sequences a step in A, 64 in B.\n",
        "         384         12          6     1.000000     2.500000  +1.500000\n",
        "Square-root rule: 1.0e-4 for 32 sequences becomes 1.4e-4 for 64; B has 1.0e-4.\n",
    ] {
        assert!(shown.contains(part), "{part:?} in\n{shown}");
    }
}

#[test]
fn half_lines_repeated_steps_and_missing_files_are_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    train(&here.join("a"), &[], 1, 3, &nothing);
    train(&here.join("b"), &[], 1, 3, &nothing);
    // Killed while it wrote line 4, and step 1 written twice: the later line counts.
    let path = here.join("b/metrics.jsonl");
    let good = std::fs::read_to_string(&path).expect("it is there");
    let mut lines = line(1, (9.0, 9.0), SEQUENCES) + &good;
    write!(lines, "{{\"step\":4,\"lo").expect("it is written");
    std::fs::write(&path, lines).expect("it is written");
    let report = compare(&here.join("a"), &here.join("b")).expect("they are compared");
    assert!(report.identical(), "{report}");
    let note = "1 of the 5 lines of HERE/b/metrics.jsonl are no steps and were passed over, the first is line 5";
    assert!(text(&report, here).contains(note), "{report}");

    std::fs::remove_file(&path).expect("it is removed");
    let mut report = compare(&here.join("a"), &here.join("b")).expect("there are checkpoints still");
    assert!(!report.identical(), "{report}");
    let verdict =
        "Metrics: no common step.\nCheckpoints: all 84 tensors (parameters and optimizer state) of step 2 are equal.\n";
    assert!(report.to_string().contains(verdict), "{report}");
    assert!(
        report.to_string().ends_with(
            "\nEqual in what could be compared: the tensors of step 2; missing: a common step of the metrics (A has metrics of steps 1 \
             to 3, B has no metrics).\n"
        ),
        "{report}"
    );
    report.answers.push(Answers {
        prompt: "Once".into(),
        a: "upon".into(),
        b: "more".into(),
    });
    assert!(
        report
            .to_string()
            .contains("Prompt \"Once\"\n  A: \"upon\"\n  B: \"more\"\n"),
        "{report}"
    );

    std::fs::remove_dir_all(here.join("b/checkpoints")).expect("it is removed");
    let error = compare(&here.join("a"), &here.join("b"))
        .expect_err("nothing is left")
        .to_string();
    assert_eq!(
        error,
        "there is nothing to compare: A has metrics of steps 1 to 3 and a checkpoint of step 2, and B has no metrics and no \
         checkpoints; train one of them until they share a step"
    );
    let error = compare(here, &here.join("b")).expect_err("it is no run").to_string();
    assert!(
        error.ends_with("holds no run: it has no config.yaml; name the directory that `unisono train --out` made"),
        "{error}"
    );
    let file = here.join("a/config.yaml");
    let error = compare(&here.join("a"), &file).expect_err("it is a file").to_string();
    assert_eq!(
        error.replace(&here.display().to_string(), "HERE"),
        "HERE/a/config.yaml holds no run: it is a file, and a run is a directory with config.yaml, metrics.jsonl and checkpoints; \
         name the directory that `unisono train --out` made"
    );
}

#[test]
fn a_damaged_checkpoint_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    train(&here.join("a"), &[], 1, 2, &nothing);
    train(&here.join("b"), &[], 1, 2, &nothing);
    let path = here.join("b/checkpoints/step-00000002/model.safetensors");
    let mut bytes = std::fs::read(&path).expect("it is there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("it is written");
    let error = compare(&here.join("a"), &here.join("b"))
        .expect_err("it is damaged")
        .to_string();
    assert!(
        error.contains("step-00000002/model.safetensors is damaged: "),
        "{error}"
    );
    assert!(!error.contains("--resume"), "{error}");
}

#[test]
fn a_damaged_manifest_offers_the_older_checkpoint() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    train(&here.join("a"), &[], 1, 4, &nothing);
    train(&here.join("b"), &[], 1, 4, &nothing);
    let newest = here.join("b/checkpoints/step-00000004");
    let path = newest.join("manifest.json");
    let mut bytes = std::fs::read(&path).expect("it is there");
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).expect("it is written");
    let error = compare(&here.join("a"), &here.join("b"))
        .expect_err("it is damaged")
        .to_string()
        .replace(&here.display().to_string(), "HERE");
    assert!(
        error.starts_with("HERE/b/checkpoints/step-00000004/manifest.json is damaged: "),
        "{error}"
    );
    assert!(
        error.ends_with(
            "; the checkpoint before it, HERE/b/checkpoints/step-00000002, is good: move the directory \
             HERE/b/checkpoints/step-00000004 out of the run to compare what is left"
        ),
        "{error}"
    );
    // What it advises works.
    std::fs::rename(&newest, here.join("elsewhere")).expect("it is moved");
    assert!(
        compare(&here.join("a"), &here.join("b"))
            .expect("they are compared")
            .identical()
    );
}

/// Writes a run of metrics only, of these steps.
fn metrics_only(directory: &Path, steps: &[u64], config: &RunConfig) {
    std::fs::create_dir_all(directory).expect("it is made");
    std::fs::write(directory.join("config.yaml"), to_yaml(config)).expect("it is written");
    let lines: String = steps.iter().map(|step| line(*step, (2.5, 1.0), SEQUENCES)).collect();
    std::fs::write(directory.join("metrics.jsonl"), lines).expect("it is written");
}

/// The verdict claims no more than was compared.
#[test]
fn gaps_and_other_keys_are_not_called_identical() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let steps: Vec<u64> = (1..=20).collect();
    let gappy: Vec<u64> = steps.iter().copied().filter(|step| !(4..=11).contains(step)).collect();
    let mut other = config(&[], 1);
    other.training.seed += 1;
    metrics_only(&here.join("whole"), &steps, &config(&[], 1));
    metrics_only(&here.join("gappy"), &gappy, &config(&[], 1));
    metrics_only(&here.join("other"), &steps, &other);
    metrics_only(&here.join("empty"), &[], &other);
    let of = |a: &str, b: &str| compare(&here.join(a), &here.join(b)).map_err(|error| error.to_string());
    let verdict = |a: &str, b: &str| {
        let report = of(a, b).expect("they are compared");
        (
            report.identical(),
            report.to_string().lines().last().map(str::to_string),
        )
    };
    for (a, b, identical, text) in [
        (
            "whole",
            "whole",
            true,
            "Identical, bit by bit, in their metrics; no tensors were compared.",
        ),
        (
            "gappy",
            "whole",
            false,
            "Equal in what could be compared: the metrics of 12 common steps (1 to 20); missing: the metrics of steps 4 to 11 in A.",
        ),
        (
            "whole",
            "gappy",
            false,
            "Equal in what could be compared: the metrics of 12 common steps (1 to 20); missing: the metrics of steps 4 to 11 in B.",
        ),
        (
            "whole",
            "other",
            false,
            "Equal in what could be compared: the metrics of 20 common steps (1 to 20); missing: checkpoints of one step, to see \
             whether training_config.seed made a difference.",
        ),
    ] {
        assert_eq!(verdict(a, b), (identical, Some(text.to_string())));
    }
    assert_eq!(
        of("whole", "empty").expect_err("nothing to compare"),
        "there is nothing to compare: A has metrics of steps 1 to 20 and no checkpoints, and B has no metrics and no checkpoints (and \
         their configurations differ in training_config.seed); train one of them until they share a step"
    );
    let whole = serde_json::to_value(of("gappy", "whole").expect("they are compared")).expect("it is data");
    assert_eq!(whole["metrics"]["missing_in_a"], serde_json::json!([[4, 11]]));
}

/// Another seed, yet the same bits: that is said, and the key is named.
#[test]
fn identical_runs_of_other_keys_name_the_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    for name in ["a", "b"] {
        train(&here.join(name), &[], 1, 2, &nothing);
    }
    let mut other = config(&[], 1);
    other.training.seed += 1;
    std::fs::write(here.join("b/config.yaml"), to_yaml(&other)).expect("it is written");
    let report = compare(&here.join("a"), &here.join("b")).expect("they are compared");
    assert!(report.identical());
    let text = "\nIdentical, bit by bit, though keys that change the result differ (training_config.seed).\n";
    assert!(report.to_string().ends_with(text), "{report}");
}
