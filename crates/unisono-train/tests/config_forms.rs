//! The many ways to write one configuration, and what comes back when it is written.

mod config_support;

use config_support::{data, environment};
use std::path::Path;
use unisono_train::config::*;

fn load_yaml(yaml: &str) -> Loaded {
    load_text("run.yaml", yaml, &[], &environment(data())).unwrap()
}

#[test]
fn numbers_in_every_form() {
    for form in [
        "1e-4", "1E-4", "1.e-4", ".0001", "\"1e-4\"", "'0.0001'", "0.000_1", "+1e-4", "10e-5",
    ] {
        let loaded = load_yaml(&format!("training_config: {{learning_rate: {form}}}"));
        assert_eq!(loaded.config.optimizer.rule.lr(), 1e-4, "{form}");
    }
    for form in ["1000", "1e3", "1E3", "1_000", "1000.0", "\"1000\"", "1.0e+3", "+1000"] {
        let loaded = load_yaml(&format!("training_config: {{max_steps: {form}}}"));
        assert_eq!(loaded.config.training.max_steps, Some(1000), "{form}");
    }
    // Exact beyond what a float holds.
    for (form, seed) in [
        ("9007199254740993.0", 9_007_199_254_740_993),
        ("1e18", 10u64.pow(18)),
        ("12.5e1", 125),
        ("0e99", 0),
    ] {
        let loaded = load_yaml(&format!("training_config: {{seed: {form}}}"));
        assert_eq!(loaded.config.training.seed, seed, "{form}");
    }
    let loaded = load_yaml("training_config: {seed: 18446744073709551615}");
    assert_eq!(loaded.config.training.seed, u64::MAX);
    for (form, bytes) in [
        ("12GB", 12_000_000_000),
        ("512MiB", 1 << 29),
        ("1.5 GiB", 3 << 29),
        ("4096", 4096),
        ("2k", 2000),
    ] {
        let loaded = load_yaml(&format!("training_config: {{}}\ndevice_config: {{memory: {form}}}"));
        assert_eq!(loaded.config.device.memory, Some(bytes), "{form}");
    }
    for form in ["true", "True", "yes", "on", "\"true\"", "enabled", "\"enabled\""] {
        let loaded = load_yaml(&format!(
            "training_config: {{}}\ntransformer_config: {{weight_tying: {form}}}"
        ));
        assert!(
            matches!(
                loaded.config.model,
                ModelConfig::Gpt2(GptConfig { weight_tying: true, .. })
            ),
            "{form}"
        );
    }
}

#[test]
fn old_and_new_layout_are_the_same() {
    // FAULTS 40: a blank before the colon, no dot in 1e-4, a comment after a quoted string, flat keys beside a schedule.
    let old = "training_config:\n  project_name: \"x\" # comment\n  model_type: gpt2\n  learning_rate : 1e-4\n  weight_decay: 0.1\n  \
               beta1: 0.9\n  beta2: 0.95\n  eps: 1e-9\n  use_moreh_adamw: true\n  max_steps: 2000\n\
               scheduler_config:\n  max_lr : 1e-4\n  min_lr : 3e-5\n  warmup_steps : 20\n  hold_steps : 1000\n\
               eval_config: {temperature: 0.0, top_k: 50}\n";
    let new = "training_config:\n  project_name: x\n  max_steps: 2000\n  scheduler_type: warmup_hold_decay\n  optimizer:\n    \
               type: MorehAdamW\n    lr: 0.0001\n    weight_decay: 0.1\n    beta1: 0.9\n    beta2: 0.95\n    epsilon: 1.0e-9\n\
               transformer_config: {model_type: gpt2}\n\
               scheduler_config: {max_lr: 0.0001, min_lr: 0.00003, warmup_steps: 20, hold_steps: 1000}\n\
               eval_config: {temperature: 0, top_k: 50}\n";
    let (old, new) = (load_yaml(old), load_yaml(new));
    assert_eq!(old.config, new.config);
    assert_eq!(differing_keys(&old.config, &new.config), vec![]);
    assert_eq!(
        old.place("training_config.optimizer.lr").unwrap().to_string(),
        "run.yaml:4:19",
        "a place is found under the key's own name"
    );
}

#[test]
fn steps_and_epochs() {
    let steps = |yaml: &str| {
        let training = load_yaml(yaml).config.training;
        (training.max_steps, training.num_epochs)
    };
    assert_eq!(steps("training_config: {}"), (Some(1000), 1));
    assert_eq!(steps("training_config: {num_epochs: 3}"), (None, 3));
    assert_eq!(steps("training_config: {num_epochs: 3, max_steps: 7}"), (Some(7), 3));
    assert_eq!(steps("training_config: {max_steps: 7}"), (Some(7), 1));
    assert_eq!(steps("training_config: {max_steps: }"), (Some(1000), 1));
}

#[test]
fn defaults_that_depend_on_others() {
    let config = RunConfig::default();
    assert_eq!(config.training.validation_batch_size, 32);
    assert_eq!(config.optimizer.rule.lr(), 1e-3);
    assert_eq!(config.device.mesh_shape, [1, 1]);
    assert_eq!(config.eval.top_k, None);
    let ModelConfig::Gpt2(gpt) = config.model else {
        panic!("the default is a GPT")
    };
    assert_eq!(
        (gpt.num_groups, gpt.intermediate_dim, gpt.max_sequence_length),
        (6, 1536, 128)
    );
    let sgd = load_yaml("training_config: {batch_size: 1, optimizer: {type: SGD}}").config;
    assert!(matches!(
        sgd.optimizer.rule,
        OptimizerRule::Sgd { weight_decay: 0.0, .. }
    ));
    assert_eq!(sgd.training.validation_batch_size, 1);
    let linear = load_yaml("training_config: {}\ntransformer_config: {model_type: linear}").config;
    assert_eq!(linear.training.data_path, DataPath::Random);
}

#[test]
fn workers_that_do_not_count_are_told() {
    let notes = |multihost: &str| {
        let loaded = load_yaml(&format!(
            "training_config: {{data_path: built-in}}\nmultihost_config: {multihost}"
        ));
        assert_eq!(loaded.config.multihost, None);
        let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        notes
    };
    let told = notes("{enabled: false, num_workers: 4}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("run.yaml:2:49: multihost_config.num_workers is 4 and does not count, since multihost_config.enabled is false"),
        "{told:?}"
    );
    assert!(notes("{num_workers: 4}")[0].contains("enabled is not given (and false)"));
    assert_eq!(notes("{enabled: false, num_workers: 1}"), Vec::<String>::new());
}

#[test]
fn overrides_replace_what_files_say() {
    let yaml = "training_config: {batch_size: 4, learning_rate: 0.1, max_steps: 5}";
    let overrides = [
        "training_config.batch_size=8",
        "training_config.optimizer.lr=1e-2",
        "training_config.max_steps=null",
        "device_config.mesh_shape=[2, 2]",
        "eval_config={top_k: 3}",
    ]
    .map(str::to_string);
    let loaded = load_text("run.yaml", yaml, &overrides, &environment(data())).unwrap();
    assert_eq!(loaded.config.training.batch_size, 8);
    assert_eq!(loaded.config.optimizer.rule.lr(), 1e-2);
    assert_eq!(loaded.config.training.max_steps, Some(1000));
    assert_eq!(loaded.config.device.mesh_shape, [2, 2]);
    assert_eq!(loaded.config.eval.top_k, Some(3));
    let place = loaded.place("training_config.batch_size").unwrap().to_string();
    assert_eq!(place, "--set training_config.batch_size=8");
    let mesh = mesh_overrides("tp=2,dp=4").unwrap();
    let loaded = load_text("run.yaml", yaml, &mesh, &environment(data())).unwrap();
    assert_eq!(loaded.config.device.mesh_shape, [4, 2]);
    assert!(loaded.config.device.enable_ddp && loaded.config.device.enable_tp);
}

#[test]
fn model_files_in_three_styles_and_by_variable() {
    let root = data().join("tt_train_configs");
    let folder = std::env::temp_dir().join(format!("unisono-config-styles-{}", std::process::id()));
    let configs = folder.join("tt-train/configs");
    std::fs::create_dir_all(configs.join("training_configs")).unwrap();
    std::fs::create_dir_all(configs.join("model_configs")).unwrap();
    std::fs::create_dir_all(configs.join("optimizer_configs")).unwrap();
    std::fs::copy(
        root.join("model_configs/gpt2s.yaml"),
        configs.join("model_configs/gpt2s.yaml"),
    )
    .unwrap();
    std::fs::write(configs.join("optimizer_configs/sgd.yaml"), "type: SGD\nlr: 0.5\n").unwrap();
    let variable = "TT_METAL_RUNTIME_ROOT";
    for style in [
        "gpt2s.yaml".to_string(),
        "model_configs/gpt2s.yaml".to_string(),
        "configs/model_configs/gpt2s.yaml".to_string(),
        "tt-train/configs/model_configs/gpt2s.yaml".to_string(),
        "../model_configs/gpt2s.yaml".to_string(),
        format!("${{{variable}}}/tt-train/configs/model_configs/gpt2s.yaml"),
        configs.join("model_configs/gpt2s.yaml").display().to_string(),
    ] {
        let file = configs.join("training_configs/run.yaml");
        let yaml = format!(
            "training_config:\n  model_config: {style}\noptimizer_config: configs/optimizer_configs/sgd.yaml\n"
        );
        std::fs::write(&file, yaml).unwrap();
        for (working_dir, path) in [
            (folder.clone(), "tt-train/configs/training_configs/run.yaml"),
            (std::env::temp_dir(), file.to_str().unwrap()),
        ] {
            for set in [false, true] {
                let mut environment = environment(working_dir.clone());
                if set {
                    environment
                        .variables
                        .insert(variable.to_string(), folder.display().to_string());
                }
                let loaded = load(Path::new(path), &[], &environment).unwrap_or_else(|e| panic!("{style}: {e}"));
                let ModelConfig::Gpt2(gpt) = loaded.config.model else {
                    panic!("{style}")
                };
                assert_eq!(gpt.embedding_dim, 768, "{style}");
                assert_eq!(loaded.config.optimizer.rule.lr(), 0.5);
                assert_eq!(loaded.sources.len(), 3);
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_saved_run_needs_no_data() {
    let folder = std::env::temp_dir().join(format!("unisono-config-saved-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("text.txt"), "some text").unwrap();
    std::fs::write(folder.join("run.yaml"), "training_config: {data_path: text.txt}").unwrap();
    let environment = environment(folder.clone());
    let loaded = load(Path::new("run.yaml"), &[], &environment).unwrap();
    assert_eq!(
        loaded.config.training.data_path,
        DataPath::Path(folder.join("text.txt"))
    );
    std::fs::write(folder.join("saved.yaml"), to_yaml(&loaded.config)).unwrap();
    let back = load(Path::new("saved.yaml"), &[], &environment).unwrap();
    assert_eq!(back.config, loaded.config);
    std::fs::remove_file(folder.join("text.txt")).unwrap();
    assert!(load(Path::new("saved.yaml"), &[], &environment).is_err());
    assert_eq!(
        load_saved(Path::new("saved.yaml"), &[], &environment).unwrap().config,
        loaded.config
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn differences_and_the_square_root_rule() {
    let a = load_yaml("training_config: {batch_size: 32}").config;
    let b = load_yaml("training_config: {batch_size: 64, num_epochs: 2}\ntransformer_config: {num_heads: 3}").config;
    let shown: Vec<String> = differing_keys(&a, &b)
        .iter()
        .map(|d| format!("{} {} {}", d.key, d.a, d.b))
        .collect();
    assert_eq!(
        shown,
        [
            "training_config.batch_size 32 64",
            "training_config.validation_batch_size 16 32",
            "training_config.num_epochs 1 2",
            "training_config.max_steps 1000 -",
            "transformer_config.num_heads 6 3",
            "transformer_config.num_groups 6 3",
        ]
    );
    assert_eq!(two_digits(sqrt_rule_lr(1e-4, 32, 64)), "1.4e-4");
    assert_eq!(two_digits(1.0), "1.0");
    assert_eq!(sqrt_rule_lr(1e-4, 0, 64), 1e-4);
}
