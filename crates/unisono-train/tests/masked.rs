//! Batches and validations of which no target is left, and validation losses that are no number. FAULTS 2, 28.

mod finetune_support;

use finetune_support::Setting;
use unisono_train::checkpoint::Checkpoints;
use unisono_train::config::{Environment, load_text};
use unisono_train::dataset::Dataset;
use unisono_train::evaluate::evaluate;
use unisono_train::metrics::read_metrics;
use unisono_train::plan::check;

/// No token stands for the end of a text, so that an empty answer has no target at all.
const BYTE: &str = "training_config.tokenizer_type=byte";

/// Writes as many examples with answers, and after them some with an empty one and some whose question leaves no room for theirs.
fn examples(setting: &Setting, good: usize, empty: usize, long: usize) {
    let question = "long ".repeat(30);
    let lines = (0..good + empty + long).map(|i| {
        let (prompt, response) = match i {
            i if i < good => (format!("q{i}"), format!("a{i}")),
            i if i < good + empty => (format!("q{i}"), String::new()),
            _ => (format!("{question}{i}"), "no room".into()),
        };
        serde_json::json!({"prompt": prompt, "response": response}).to_string() + "\n"
    });
    std::fs::write(&setting.data, lines.collect::<String>()).expect("written");
}

/// A configuration that keeps the end of its only file for validation, and reads bytes.
fn yaml(setting: &Setting) -> String {
    let named = setting.yaml(None);
    let lines = named
        .lines()
        .filter(|line| !line.contains("validation_data_path") && !line.contains("tokenizer_path"));
    lines.map(|line| line.to_string() + "\n").collect()
}

/// The problems that `check` finds.
fn problems(setting: &Setting, sets: &[&str]) -> Vec<String> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
    let loaded = load_text("run.yaml", &yaml(setting), &sets, &Environment::of_process()).expect("it is read");
    let found = check(&loaded, &Dataset::load(&loaded.config)).err().unwrap_or_default();
    found.iter().map(|problem| problem.message.clone()).collect()
}

/// Its loss would be 0, perplexity 1, and the best of all for ever.
#[test]
fn a_validation_without_any_answer_is_refused_before_the_first_step() {
    let setting = Setting::new();
    let fifth = "training_config.validation_fraction=0.2";
    examples(&setting, 8, 1, 1);
    let found = problems(&setting, &[BYTE, fifth]);
    assert_eq!(found.len(), 1, "{found:?}");
    for part in [
        "none of the 2 examples to validate on (from line 9 on) has a token of an answer: 1 have an empty answer, and 1 were cut",
        "validation_fraction: 0",
    ] {
        assert!(found[0].contains(part), "{found:?}");
    }
    // A third example has an answer, but eval_batches leaves it out.
    let mut lines = setting.text("pairs.jsonl");
    lines += "{\"prompt\": \"q\", \"response\": \"a\"}\n";
    std::fs::write(&setting.data, lines).expect("written");
    let three = "training_config.validation_fraction=0.3";
    assert_eq!(problems(&setting, &[BYTE, three]), Vec::<String>::new());
    let cut = [
        BYTE,
        three,
        "training_config.eval_batches=2",
        "training_config.validation_batch_size=1",
    ];
    let found = problems(&setting, &cut);
    assert!(
        found.len() == 1 && found[0].contains("none of the 2 examples"),
        "{found:?}"
    );
    let ran = setting.train(
        &yaml(&setting),
        &[
            &cut[..2],
            &[
                "training_config.eval_batches=1",
                "training_config.validation_batch_size=3",
            ],
        ]
        .concat(),
        "three",
    );
    assert!(ran.summary.validation.expect("validated").loss > 0.0);
    // Whoever evaluates by hand is refused as well.
    let (run, _) = setting.open(&yaml(&setting), &cut[..2], "open", false);
    let validation = run.dataset.validation(1, Some(2)).expect("data").expect("validation");
    let error = evaluate(&run.trainer.device, run.trainer.model.as_model(), &validation, 1).expect_err("no targets");
    assert!(error.to_string().contains("none of the 2 examples"), "{error}");
}

/// The optimizer's step without a loss moves what it remembers to move, and the words say so.
#[test]
fn a_masked_step_is_told_with_what_it_does() {
    let setting = Setting::new();
    examples(&setting, 1, 1, 0);
    fn sets<'a>(optimizer: &'a str, steps: &'a str) -> [&'a str; 7] {
        [
            BYTE,
            "training_config.validation_fraction=0",
            "training_config.batch_size=1",
            "training_config.gradient_accumulation_steps=1",
            "training_config.model_save_interval=1",
            steps,
            optimizer,
        ]
    }
    let plain = "training_config.optimizer={type: SGD, lr: 0.1, momentum: 0}";
    let adam = "training_config.optimizer={type: AdamW, lr: 0.1, weight_decay: 0}";
    for (name, optimizer, moves) in [("sgd", plain, false), ("adamw", adam, true)] {
        let ran = setting.train(&yaml(&setting), &sets(optimizer, "training_config.max_steps=4"), name);
        let records = read_metrics(&setting.path(name).join("metrics.jsonl")).expect("metrics");
        let masked: Vec<u64> = records.iter().filter(|r| r.loss.is_none()).map(|r| r.step).collect();
        assert_eq!(masked.len(), 2, "one step of two has no target: {masked:?}");
        let lines = setting.text(&format!("{name}/metrics.jsonl"));
        assert_eq!(lines.matches("\"loss\":null").count(), 2, "{lines}");
        let told: Vec<&String> = ran
            .heard
            .warnings
            .iter()
            .filter(|text| text.contains("masked"))
            .collect();
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with(&format!("step {}: every target of the batch is masked", masked[0])),
            "{told:?}"
        );
        assert!(
            told[0].contains("earlier gradients") && !told[0].contains("nothing but decay"),
            "{told:?}"
        );
        // The second masked step comes after one that has taught something.
        let step = masked[1];
        let model = |step: u64| {
            let folder = setting.path(&format!("{name}/checkpoints"));
            let found = Checkpoints::new(folder).find().expect("checkpoints").complete;
            let of = found.iter().find(|found| found.step == step).expect("kept");
            std::fs::read(of.path.join("model.safetensors")).expect("read")
        };
        assert_eq!(model(step) != model(step - 1), moves, "{name}");
        // Where the last step is such a one its loss is none, and no 0.
        let last = format!("training_config.max_steps={}", masked[0]);
        let ran = setting.train(&yaml(&setting), &sets(optimizer, &last), &format!("{name}-last"));
        assert_eq!((ran.summary.steps, ran.summary.loss), (masked[0], None));
    }
}

#[test]
fn a_validation_loss_that_is_no_number_is_never_the_best() {
    let setting = Setting::new();
    let yaml = "training_config: {batch_size: 8, max_steps: 1, num_samples: 100}\n\
                transformer_config: {model_type: linear, input_features: 3, output_features: 2}\n";
    let rate = |lr: &str| format!("training_config.optimizer={{type: SGD, lr: {lr}}}");
    let ran = setting.train(yaml, &[&rate("1e30")], "wild");
    assert!(!ran.summary.validation.expect("validated").loss.is_finite());
    let told: Vec<&String> = ran
        .heard
        .warnings
        .iter()
        .filter(|text| text.contains("the validation loss is"))
        .collect();
    assert!(
        told.len() == 1 && told[0].contains("not the best"),
        "{:?}",
        ran.heard.warnings
    );
    let newest = Checkpoints::new(setting.path("wild/checkpoints"))
        .newest()
        .expect("a checkpoint");
    assert!(!newest.manifest().best);
    assert_eq!(newest.manifest().state.best_loss, None);
    // The control: a loss that is a number is the best so far.
    setting.train(yaml, &[&rate("0.01")], "tame");
    let newest = Checkpoints::new(setting.path("tame/checkpoints"))
        .newest()
        .expect("a checkpoint");
    assert!(newest.manifest().best && newest.manifest().state.best_loss.is_some());
}
