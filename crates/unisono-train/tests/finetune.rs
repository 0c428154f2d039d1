//! Runs on examples, whole and with adapters, and what they leave in their folders. FAULTS 2, 3, 24, 25, 49, 50.

mod finetune_support;

use finetune_support::{Heard, PAIRS, Setting, answers};
use unisono_data::Weights;
use unisono_train::checkpoint::Checkpoints;
use unisono_train::config::{Environment, load_text};
use unisono_train::hub;
use unisono_train::metrics::read_metrics;
use unisono_train::plan::EndRule;
use unisono_train::run::{Ending, Run};

const LORA: &str = "lora_config: {rank: 4, alpha: 8.0, dropout: 0.1, target_modules: [q_proj, v_proj, down_proj]}\n";

#[test]
fn adapters_train_to_the_same_bits_on_every_layout() {
    let setting = Setting::new();
    let base = setting.base();
    for dtype in ["f32", "bf16"] {
        let yaml = setting.yaml(Some(&base)) + LORA;
        let dtype = format!("training_config.dtype={dtype}");
        let layouts: [(&str, &[&str]); 4] = [
            ("plain", &[]),
            ("dp", &["device_config.mesh_shape=[2]", "device_config.enable_ddp=true"]),
            ("tp", &["device_config.mesh_shape=[2]", "device_config.enable_tp=true"]),
            (
                "both",
                &[
                    "device_config.mesh_shape=[2, 2]",
                    "device_config.enable_ddp=true",
                    "device_config.enable_tp=true",
                    "training_config.batch_size=2",
                    "training_config.gradient_accumulation_steps=4",
                ],
            ),
        ];
        let mut expected = None;
        for (name, sets) in layouts {
            let name = format!("{name}-{}", dtype.len());
            let sets: Vec<&str> = sets.iter().copied().chain([dtype.as_str()]).collect();
            let ran = setting.train(&yaml, &sets, &name);
            assert_eq!(ran.heard.warnings, Vec::<String>::new());
            let mut files = setting.files(&name);
            assert!(files.contains_key("adapter_model.safetensors"), "{files:?}");
            // The state of a checkpoint says nothing of the layout, its name for the model's path does.
            files.retain(|name, _| name.ends_with(".safetensors") || name.starts_with("adapter"));
            let seen = (
                setting.metrics(&name),
                ran.heard.validations,
                setting.text(&format!("{name}/validation.txt")),
                files,
            );
            assert_eq!(seen.0.len(), 6);
            assert_eq!(&seen, expected.get_or_insert_with(|| seen.clone()), "{name}");
        }
        // The control: dropout of adapters is on, so another seed gives other bits.
        let other = format!("{}-seed", dtype.len());
        setting.train(&yaml, &[&dtype, "training_config.seed=8"], &other);
        assert_ne!(setting.metrics(&other), expected.expect("runs").0);
    }
}

#[test]
fn frozen_weights_stay_as_they_were_and_take_no_gradients() {
    let setting = Setting::new();
    let base = setting.base();
    let whole = setting.yaml(Some(&base));
    let (run, _) = setting.open(&whole, &[], "whole", false);
    let kind = |run: &Run, kind: &str| {
        run.plan
            .memory
            .by_kind
            .iter()
            .find(|(name, _)| *name == kind)
            .map(|(_, b)| *b)
    };
    let (whole_gradients, all) = (kind(&run, "gradients"), run.plan.num_trained);
    let (mut run, _) = setting.open(&(whole + LORA), &[], "lora", false);
    let table = run.trainer.model.as_model().table();
    let adapters: usize = table.trainable.iter().map(|p| p.num_elements()).sum();
    assert!(table.trainable.iter().all(|p| p.is_adapter()) && !table.frozen.is_empty());
    assert_eq!(
        (run.plan.num_trained, all),
        (adapters, table.frozen.iter().map(|p| p.num_elements()).sum())
    );
    // One slot of f32 each, and what the allocator rounds up.
    let gradients = kind(&run, "gradients").expect("gradients");
    let least = 4 * adapters as u64;
    assert!(
        gradients >= least && gradients < least + 256 * table.trainable.len() as u64,
        "{gradients} for {least}"
    );
    assert!(whole_gradients.expect("gradients") > 5 * gradients);
    assert!(table.frozen.iter().all(|p| p.tensor.grad().expect("asked").is_none()));
    run.train(&mut [], &|| false).expect("it trains");
    let files = Weights::open(&base.join("model.safetensors")).expect("weights");
    let table = run.trainer.model.as_model().table();
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for p in &table.frozen {
        let there = files.read_f32(&p.name).expect("values");
        let here = p.tensor.to_vec().expect("values");
        assert_eq!(bits(&here[..there.len()]), bits(&there), "{}", p.name);
    }
    let moved = |p: &&unisono_nn::Parameter| p.tensor.to_vec().expect("values").iter().any(|x| *x != 0.0);
    assert!(
        table
            .trainable
            .iter()
            .filter(|p| p.name.contains("lora_B"))
            .all(|p| moved(&p))
    );
}

#[test]
fn a_resumed_run_leaves_what_the_straight_one_leaves() {
    let setting = Setting::new();
    let base = setting.base();
    let yaml = setting.yaml(Some(&base)) + LORA;
    setting.train(&yaml, &[], "straight");
    // Stopped behind step 4: the checkpoint of that step is there, and the run goes on from it on another mesh.
    let stopped = setting.train_until(&yaml, &[], "resumed", false, 4);
    assert_eq!((stopped.summary.ending, stopped.summary.steps), (Ending::Stopped, 4));
    assert!(!setting.path("resumed/final_model").exists(), "it is not at its end");
    assert!(stopped.summary.final_model.is_none() && stopped.summary.curves.is_empty());
    // Behind it the run had come to step 6 once, and crashed.
    for file in ["validation.txt", "validations.jsonl"] {
        let straight = setting.text(&format!("straight/{file}"));
        std::fs::write(setting.path("resumed").join(file), straight + "step 9\n").expect("written");
    }
    let tp = ["device_config.mesh_shape=[2]", "device_config.enable_tp=true"];
    let resumed = setting.train_until(&yaml, &tp, "resumed", true, u64::MAX);
    assert_eq!(resumed.notes, Vec::<String>::new());
    assert_eq!(resumed.heard.warnings, Vec::<String>::new());
    assert_eq!(setting.metrics("resumed"), setting.metrics("straight"));
    for file in ["validation.txt", "validations.jsonl"] {
        let [a, b] = ["straight", "resumed"].map(|run| setting.text(&format!("{run}/{file}")));
        assert_eq!(a, b, "{file}");
    }
    let steps: Vec<u64> = answers(&setting.text("resumed/validation.txt"))
        .iter()
        .map(|(step, _)| *step)
        .collect();
    assert_eq!(steps, [3, 6]);
    let adapters = ["straight", "resumed"]
        .map(|run| std::fs::read(setting.path(run).join("final_model/adapter_model.safetensors")).expect("there"));
    assert!(adapters[0] == adapters[1]);
}

#[test]
fn answers_do_not_shift_the_training() {
    let setting = Setting::new();
    let yaml = setting.yaml(None);
    let dropout = "transformer_config.dropout_prob=0.2";
    setting.train(&yaml, &[dropout, "eval_config.temperature=1.0"], "asked");
    setting.train(&yaml, &[dropout, "training_config.validation_samples=0"], "silent");
    setting.train(
        &yaml,
        &[
            dropout,
            "training_config.validation_samples=0",
            "training_config.eval_every=0",
        ],
        "never",
    );
    assert_eq!(setting.metrics("asked"), setting.metrics("silent"));
    assert_eq!(setting.metrics("asked"), setting.metrics("never"));
    assert_eq!(answers(&setting.text("asked/validation.txt")).len(), 2);
    assert!(!setting.path("silent/validation.txt").exists());
}

/// FAULTS 25: the tokenizer's padding is its end of text, and the model learns to stop all the same.
#[test]
fn a_model_learns_the_answers_and_where_they_end() {
    let setting = Setting::new();
    let sets = [
        "training_config.max_steps=60",
        "training_config.eval_every=60",
        "training_config.validation_samples=8",
    ];
    let ran = setting.train(&setting.yaml(None), &sets, "learns");
    assert!(ran.summary.loss.expect("a loss") < 0.05, "{:?}", ran.summary.loss);
    let said = answers(&setting.text("learns/validation.txt"));
    assert_eq!(said.len(), 1);
    let expected: Vec<(String, String, String)> = PAIRS
        .iter()
        .map(|(question, answer)| ((*question).into(), (*answer).into(), (*answer).into()))
        .collect();
    assert_eq!(said[0], (60, expected));
    // What it leaves is a model with its tokenizer, as the run trained it.
    let model = setting.path("learns/final_model");
    let described = hub::read_config(&model).expect("a model");
    assert_eq!(described.ids.eos.len(), 1);
    assert!(unisono_data::Tokenizer::load(&model).is_ok());
    let (run, _) = setting.open(&setting.yaml(Some(&model)), &[], "again", false);
    let evaluation = run.evaluate().expect("it evaluates").expect("there is validation data");
    assert_eq!(Some(evaluation.loss.to_bits()), ran.heard.validations.last().copied());
}

/// FAULTS 2: steps whose every target is masked have no loss and a gradient of zero, and later steps train.
#[test]
fn examples_without_an_answer_do_no_harm() {
    let setting = Setting::new();
    let long = "long ".repeat(200);
    let lines: Vec<String> = (0..6)
        .map(|i| match i {
            0 => serde_json::json!({"prompt": "red", "response": "stop"}),
            _ => serde_json::json!({"prompt": format!("{long}{i}"), "response": "no room"}),
        })
        .map(|line| line.to_string())
        .collect();
    std::fs::write(&setting.data, lines.join("\n")).expect("written");
    let sets = [
        "training_config.batch_size=1",
        "training_config.gradient_accumulation_steps=1",
        "training_config.max_steps=18",
    ];
    // In two sessions: lines without a loss are lines of steps like others, and stay.
    setting.train_until(&setting.yaml(None), &sets, "masked", false, 9);
    let ran = setting.train_until(&setting.yaml(None), &sets, "masked", true, u64::MAX);
    assert!(
        ran.notes.iter().any(|note| note.contains("no token of an answer left")),
        "{:?}",
        ran.notes
    );
    assert!(
        ran.heard
            .warnings
            .iter()
            .any(|text| text.contains("every target of the batch is masked"))
    );
    let records = read_metrics(&setting.path("masked/metrics.jsonl")).expect("metrics");
    assert_eq!(records.len(), 18);
    assert!(
        records
            .iter()
            .all(|r| r.grad_norm.is_finite() && r.loss.is_none() == (r.grad_norm == 0.0))
    );
    assert_eq!(ran.summary.loss, records[17].loss);
    let trained: Vec<f32> = records.iter().filter_map(|r| r.loss).collect();
    assert_eq!(trained.len(), 3, "one step in six has targets");
    assert!(trained[2] < trained[0], "{trained:?}");
    let said = answers(&setting.text("masked/validation.txt"));
    assert!(said[0].1[1].1.contains("no room behind the question"), "{said:?}");
}

/// FAULTS 49: what cannot be written is told once, and the run goes on to its end.
#[test]
fn files_that_cannot_be_written_end_no_run() {
    let setting = Setting::new();
    let folder = setting.path("blocked");
    for name in ["validation.txt", "training_curves.svg", "final_model"] {
        std::fs::create_dir_all(folder.join(name)).expect("made");
    }
    std::fs::write(folder.join("final_model/notes.txt"), "mine").expect("written");
    std::fs::create_dir_all(folder.join("training_curves.svg/full")).expect("made");
    let ran = setting.train(&setting.yaml(None), &[], "blocked");
    assert_eq!(ran.summary.steps, 6);
    assert!(
        ran.notes.iter().any(|note| note.contains("validation.txt")),
        "{:?}",
        ran.notes
    );
    for part in ["final_model was not written", "training_curves were not drawn"] {
        assert_eq!(
            ran.heard.warnings.iter().filter(|text| text.contains(part)).count(),
            1,
            "{:?}",
            ran.heard.warnings
        );
    }
    assert_eq!(ran.heard.warnings.len(), 2, "{:?}", ran.heard.warnings);
    assert_eq!(setting.text("blocked/final_model/notes.txt"), "mine");
}

/// FAULTS 49: metrics that are deleted while the run goes on are told once, with all that follows from it.
#[test]
fn metrics_that_are_deleted_end_no_run() {
    let setting = Setting::new();
    let (mut run, _) = setting.open(&setting.yaml(None), &[], "deleted", false);
    let mut heard = Heard::default();
    let metrics = setting.path("deleted/metrics.jsonl");
    let steps = std::cell::Cell::new(0);
    let stop = || {
        steps.set(steps.get() + 1);
        if steps.get() == 3 {
            std::fs::remove_file(&metrics).expect("it was there");
        }
        false
    };
    let summary = run.train(&mut [&mut heard], &stop).expect("it trains");
    assert_eq!((summary.steps, summary.ending), (6, Ending::Done(EndRule::MaxSteps)));
    assert!(summary.loss.is_some() && summary.final_model.is_some() && summary.curves.is_empty());
    assert_eq!(heard.warnings.len(), 1, "{:?}", heard.warnings);
    for part in ["metrics.jsonl was deleted", "no curves", "the run goes on without it"] {
        assert!(heard.warnings[0].contains(part), "{:?}", heard.warnings);
    }
    assert!(!metrics.exists());
}

#[test]
fn curves_are_pictures_and_the_same_for_the_same_run() {
    let setting = Setting::new();
    let yaml = setting.yaml(None);
    let ran = setting.train(&yaml, &[], "a");
    setting.train(
        &yaml,
        &["device_config.mesh_shape=[2]", "device_config.enable_ddp=true"],
        "b",
    );
    assert_eq!(ran.summary.curves.len(), 2);
    let [a, b] = ["a", "b"].map(|run| std::fs::read(setting.path(run).join("training_curves.png")).expect("there"));
    assert!(
        a.starts_with(b"\x89PNG\r\n\x1a\n") && a.len() < 200_000,
        "{} bytes",
        a.len()
    );
    assert!(a == b, "losses are equal, so are the pictures");
    let svg = setting.text("a/training_curves.svg");
    for word in ["Loss", "Learning rate", "Gradient norm", "<circle", "polyline"] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn a_run_starts_from_an_adapter() {
    let setting = Setting::new();
    let base = setting.base();
    let yaml = setting.yaml(Some(&base));
    setting.train(&(yaml.clone() + LORA), &[], "first");
    let adapter = setting.path("first/final_model");
    let again = format!("{yaml}lora_config: {{adapter_path: {}}}\n", adapter.display());
    let none = "training_config.optimizer={type: NoOp}";
    setting.train(&again, &["training_config.max_steps=1", none], "second");
    let files = ["first", "second"].map(|run| setting.path(run).join("final_model"));
    let [a, b] = files
        .each_ref()
        .map(|files| std::fs::read(files.join("adapter_model.safetensors")).expect("there"));
    assert!(a == b, "nothing was updated");
    let [a, b] = files
        .each_ref()
        .map(|files| std::fs::read_to_string(files.join("adapter_config.json")).expect("there"));
    assert_eq!(a, b);
    // Its run goes on without the adapter's directory.
    let text = setting.text("second/config.yaml");
    assert!(text.contains("adapter_path") && text.contains("rank: 4"), "{text}");
    // Keys that the adapter decides must agree with it.
    let error = load_text(
        "run.yaml",
        &again,
        &["lora_config.rank=5".into()],
        &Environment::of_process(),
    );
    let error = error.map(drop).expect_err("5 is not 4").to_string();
    assert!(
        error.contains("lora_config.rank is 5 here and 4 in the adapter"),
        "{error}"
    );
    let wrong = format!("{yaml}lora_config: {{adapter_path: {}}}\n", base.display());
    let error = load_text("run.yaml", &wrong, &[], &Environment::of_process())
        .map(drop)
        .expect_err("no adapter");
    assert!(error.to_string().contains("a whole model and no adapter"), "{error}");
}

#[test]
fn a_checkpoint_of_adapters_runs_again() {
    let setting = Setting::new();
    let base = setting.base();
    let ran = setting.train(&(setting.yaml(Some(&base)) + LORA), &[], "lora");
    let (run, _) = setting.open(&(setting.yaml(Some(&base)) + LORA), &[], "other", false);
    let newest = Checkpoints::new(setting.path("lora/checkpoints"))
        .newest()
        .expect("a checkpoint");
    let model = unisono_train::start::trained_model(&run.trainer.device, &run.config, &run.plan.spec, &newest)
        .expect("it loads");
    let validation = run.dataset.validation(4, None).expect("data").expect("validation");
    let evaluation =
        unisono_train::evaluate::evaluate(&run.trainer.device, model.as_model(), &validation, 4).expect("it evaluates");
    assert_eq!(Some(evaluation.loss.to_bits()), ran.heard.validations.last().copied());
}
