//! What holds for any configuration and any input: a run's copy loads back as an equal configuration, and nothing panics.

mod config_support;

use config_support::{data, environment};
use proptest::prelude::*;
use unisono_train::config::*;

fn rate() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        1e-12..1.0f64,
        Just(1e-4),
        Just(0.1),
        Just(f64::from(f32::MIN_POSITIVE))
    ]
}

fn size() -> impl Strategy<Value = usize> {
    1..500usize
}

fn schedule() -> impl Strategy<Value = SchedulerConfig> {
    let steps = prop::option::of(1..10_000u64);
    prop_oneof![
        Just(SchedulerConfig::Identity),
        Just(SchedulerConfig::WarmupLinear),
        (1e-6..1.0f64, 0..100u64, 0..100u64).prop_map(|(max_lr, warmup_steps, hold_steps)| {
            SchedulerConfig::WarmupHoldDecay {
                max_lr,
                min_lr: max_lr / 3.0,
                warmup_steps,
                hold_steps,
            }
        }),
        steps
            .clone()
            .prop_map(|steps| SchedulerConfig::Cosine { min_lr: 0.0, steps }),
        (1..10_000u64, 1e-3..2.0f64).prop_map(|(step_size, gamma)| SchedulerConfig::Step { step_size, gamma }),
        (0.0..2.0f64, 0.0..2.0f64, steps).prop_map(|(start_factor, end_factor, steps)| SchedulerConfig::Linear {
            start_factor,
            end_factor,
            steps
        }),
        (prop::collection::vec((1..1000u64, 0.0..2.0f64), 1..4), any::<bool>()).prop_map(|(parts, open)| {
            let mut phases: Vec<Phase> = parts
                .into_iter()
                .map(|(steps, start_factor)| Phase {
                    steps: Some(steps),
                    schedule: SchedulerConfig::Linear {
                        start_factor,
                        end_factor: 1.0,
                        steps: None,
                    },
                })
                .collect();
            phases.push(Phase {
                steps: (!open).then_some(9),
                schedule: SchedulerConfig::Cosine {
                    min_lr: 0.0,
                    steps: None,
                },
            });
            SchedulerConfig::Sequential(phases)
        }),
    ]
}

fn rule() -> impl Strategy<Value = OptimizerRule> {
    prop_oneof![
        (rate(), 0.0..0.999f64, 0.0..0.999f64, rate(), rate()).prop_map(|(lr, beta1, beta2, epsilon, weight_decay)| {
            OptimizerRule::AdamW {
                lr,
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }
        }),
        (rate(), 0.0..2.0f64, 0.0..1.0f64, rate(), any::<bool>()).prop_map(
            |(lr, momentum, dampening, weight_decay, nesterov)| OptimizerRule::Sgd {
                lr,
                momentum: momentum + 0.1,
                dampening: if nesterov { 0.0 } else { dampening },
                weight_decay,
                nesterov
            }
        ),
        Just(OptimizerRule::NoOp),
    ]
}

fn activation() -> impl Strategy<Value = Activation> {
    prop_oneof![
        Just(Activation::GeluTanh),
        Just(Activation::Gelu),
        Just(Activation::Relu),
        Just(Activation::Silu)
    ]
}

fn model() -> impl Strategy<Value = ModelConfig> {
    let gpt = (
        (
            1..5usize,
            1..5usize,
            1..20usize,
            size(),
            0.0..0.99f64,
            1..10usize,
            size(),
            size(),
        ),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), activation()),
    )
        .prop_map(
            |((groups, share, head, intermediate_dim, dropout_prob, num_blocks, vocab_size, t), flags)| {
                ModelConfig::Gpt2(GptConfig {
                    num_heads: groups * share,
                    num_groups: groups,
                    embedding_dim: groups * share * head * 2,
                    intermediate_dim,
                    dropout_prob,
                    num_blocks,
                    vocab_size,
                    max_sequence_length: t,
                    weight_tying: flags.0,
                    positional_embedding_type: if flags.1 {
                        PositionalEmbedding::Fixed
                    } else {
                        PositionalEmbedding::Trainable
                    },
                    runner_type: if flags.2 {
                        RunnerType::MemoryEfficient
                    } else {
                        RunnerType::Default
                    },
                    bias: flags.3,
                    activation: flags.4,
                })
            },
        );
    let llama = (
        (
            1..5usize,
            1..5usize,
            1..20usize,
            size(),
            0.0..0.99f64,
            1..10usize,
            size(),
            size(),
        ),
        (any::<[bool; 6]>(), 1.0..1e6f64, 0..3usize, 1.0..9.0f64),
    )
        .prop_map(
            |(
                (groups, share, half, width, dropout_prob, num_blocks, vocab_size, t),
                (flags, theta, scaling, factor),
            )| {
                ModelConfig::Llama(LlamaConfig {
                    num_heads: groups * share,
                    num_groups: groups,
                    head_dim: 2 * half,
                    embedding_dim: width,
                    intermediate_dim: width + 1,
                    dropout_prob,
                    num_blocks,
                    vocab_size,
                    max_sequence_length: t,
                    weight_tying: flags[0],
                    runner_type: if flags[1] {
                        RunnerType::MemoryEfficient
                    } else {
                        RunnerType::Default
                    },
                    theta,
                    rope_scaling: match scaling {
                        0 => None,
                        1 => Some(RopeScalingConfig::Linear { factor }),
                        _ => Some(RopeScalingConfig::Llama3 {
                            factor,
                            low_freq_factor: 0.5,
                            high_freq_factor: factor * 2.0,
                            original_context_length: t,
                        }),
                    },
                    norm_eps: 1e-6,
                    qkv_bias: flags[2],
                    output_bias: flags[3],
                    mlp_bias: flags[4],
                    qk_norm: flags[5],
                })
            },
        );
    prop_oneof![
        gpt,
        llama,
        (size(), size(), any::<bool>()).prop_map(|(input_features, output_features, bias)| ModelConfig::Linear(
            LinearConfig {
                input_features,
                output_features,
                bias
            }
        )),
        (
            size(),
            prop::collection::vec(size(), 1..4),
            size(),
            any::<bool>(),
            activation()
        )
            .prop_map(
                |(input_features, hidden_features, output_features, bias, activation)| ModelConfig::Mlp(MlpConfig {
                    input_features,
                    hidden_features,
                    output_features,
                    bias,
                    activation
                })
            ),
    ]
}

fn training() -> impl Strategy<Value = TrainingConfig> {
    let text = "\\PC{0,20}|[a-z]{1,8}|true|null|1e3| a |#x|'|\"|\\\\|\n\t|: |- |\u{85}|\u{feff}x";
    (
        (
            text,
            any::<u64>(),
            0..1000u64,
            size(),
            size(),
            1..9u64,
            prop::option::of(1..10_000u64),
            size(),
        ),
        (
            0..3usize,
            0..3usize,
            0.0..0.99f64,
            0..100u64,
            prop::option::of(size()),
            "[a-z /.#:'\"-]{0,12}",
            size(),
        ),
        (
            any::<bool>(),
            any::<bool>(),
            0.1..10.0f64,
            1..100u64,
            0..4usize,
            0..100u64,
            size(),
            0.0..3.0f64,
            any::<bool>(),
        ),
    )
        .prop_map(|(a, b, c)| TrainingConfig {
            dtype: if c.8 { Dtype::Bf16 } else { Dtype::F32 },
            // Of f32 it says nothing, and is not written.
            bf16_order: if c.8 && c.5 % 2 == 1 {
                Bf16Order::Tiles
            } else {
                Bf16Order::Pairs
            },
            project_name: a.0,
            seed: a.1,
            model_save_interval: a.2,
            batch_size: a.3,
            validation_batch_size: a.4,
            num_epochs: a.5,
            max_steps: a.6,
            gradient_accumulation_steps: a.7,
            data_path: [
                DataPath::BuiltIn,
                DataPath::Random,
                DataPath::Path(data().join("README.md")),
            ][b.0]
                .clone(),
            tokenizer_type: match (b.0, b.1) {
                (1, _) => TokenizerType::Pretokenised,
                (0, 2) | (_, 0) => TokenizerType::Char,
                (_, 1) => TokenizerType::Byte,
                _ => TokenizerType::Pretokenised,
            },
            tokenizer_path: None,
            model_path: None,
            validation_data_path: None,
            template: (c.6 % 3 == 0).then(|| "{prompt}: {response}".to_string()),
            validation_samples: c.6,
            validation_fraction: b.2,
            eval_every: b.3,
            eval_batches: b.4,
            checkpoint_dir: b.5,
            keep_last: b.6,
            keep_best: c.0,
            use_clip_grad_norm: c.1,
            clip_grad_norm_max_norm: c.2,
            log_every: c.3,
            progress: [Progress::Auto, Progress::Bar, Progress::Lines, Progress::Off][c.4],
            verify_every: c.5,
            num_samples: c.6,
            noise: c.7,
        })
}

fn run() -> impl Strategy<Value = RunConfig> {
    let device = (
        prop::collection::vec(1..9usize, 1..5),
        any::<[bool; 3]>(),
        prop::option::of(1..1u64 << 50),
        prop::option::of(size()),
    );
    let eval = (0.0..2.0f64, prop::option::of(size()), 0.01..1.0f64, 0.1..2.0f64);
    (training(), rule(), any::<bool>(), schedule(), model(), device, eval).prop_map(
        |(mut training, rule, decay_norms_and_biases, scheduler, model, device, eval)| {
            if model.language().is_none() {
                training.data_path = DataPath::Random;
                training.tokenizer_type = TokenizerType::Pretokenised;
            }
            RunConfig {
                training,
                optimizer: OptimizerConfig {
                    rule,
                    decay_norms_and_biases,
                },
                scheduler,
                model,
                lora: device.1[2].then(|| LoraConfig {
                    adapter_path: None,
                    rank: 4,
                    alpha: 0.5,
                    use_rslora: device.1[0],
                    dropout: 0.25,
                    target_modules: vec!["q_proj".into(), ".*: \\d".into()],
                    trainable_modules: Vec::new(),
                    is_bias_trainable: device.1[1],
                }),
                device: DeviceConfig {
                    mesh_shape: device.0,
                    enable_ddp: device.1[0],
                    enable_tp: device.1[1],
                    mesh_graph_descriptor: device.1[0].then(|| "t3k-2x4".to_string()),
                    memory: device.2,
                    workers: device.3,
                },
                eval: EvalConfig {
                    temperature: eval.0,
                    top_k: eval.1,
                    top_p: eval.2,
                    repetition_penalty: eval.3,
                },
                multihost: device.1[1].then_some(MultihostConfig { num_workers: 3 }),
            }
        },
    )
}

/// Text that looks like a configuration, more or less.
fn scribble() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("training_config".to_string()),
        Just("transformer_config".to_string()),
        Just("batch_size".to_string()),
        Just("optimizer".to_string()),
        Just("scheduler_config".to_string()),
        Just("phases".to_string()),
        Just("mesh_shape".to_string()),
        Just("device_config".to_string()),
        Just("data_path".to_string()),
        Just("model_config".to_string()),
        Just("num_heads".to_string()),
        "[-0-9.eE_+]{1,6}",
        "[:{}\\[\\],&*!|>'\"#%@~<?-]{1,3}",
        "[ \n\t\r]{1,3}",
        "\\PC{1,4}",
    ];
    prop::collection::vec(
        (
            word,
            prop_oneof![Just(""), Just(": "), Just("\n"), Just("\n  "), Just(", ")],
        ),
        0..40,
    )
    .prop_map(|parts| parts.into_iter().map(|(word, end)| word + end).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_runs_copy_loads_back_as_it_was(config in run()) {
        let yaml = to_yaml(&config);
        let back = load_text("copy.yaml", &yaml, &[], &environment(data()));
        let back = back.unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        prop_assert_eq!(&back.config, &config, "{}", yaml);
        prop_assert!(differing_keys(&back.config, &config).is_empty());
    }

    #[test]
    fn no_text_makes_it_panic(text in scribble(), set in scribble()) {
        let _ = load_text("run.yaml", &text, &[], &environment(data()));
        let below = format!("training_config: {{}}\ntransformer_config:\n{text}");
        let _ = load_text("run.yaml", &below, &[set.clone(), format!("training_config.optimizer={set}")], &environment(data()));
        let _ = mesh_overrides(&set);
    }

    #[test]
    fn no_bytes_make_it_panic(text in "\\PC{0,80}|(?s).{0,80}") {
        let _ = load_text("run.yaml", &text, &[], &environment(data()));
    }

    #[test]
    fn numbers_never_panic(number in "[-+]?[0-9_.]{0,12}([eE][-+]?[0-9]{0,5})?") {
        for key in ["training_config.batch_size", "training_config.seed", "training_config.optimizer.lr",
            "transformer_config.embedding_dim", "transformer_config.num_heads", "transformer_config.num_groups",
            "device_config.memory", "device_config.mesh_shape", "eval_config.top_k"] {
            let _ = load_text("run.yaml", "training_config: {}", &[format!("{key}={number}")], &environment(data()));
            let _ = load_text("run.yaml", "training_config: {}", &[format!("{key}=[{number}]")], &environment(data()));
        }
    }
}

/// Inputs of the largest size that is read: each is told within a second or two, even in a debug build on a busy machine.
#[test]
fn large_inputs_are_told_quickly() {
    let many = |part: &str| part.repeat((1 << 20) / part.len());
    let mut keys = String::from("training_config:\n");
    for i in 0..9_000 {
        keys.push_str(&format!("  batch_sise_of_a_long_name_{i}: 1\n"));
    }
    let inputs = [
        keys,
        many("a: "),
        many("- "),
        many("["),
        many("{a: "),
        many("&a "),
        many("a\n"),
        many("a: 1\n"),
        many("- a\n"),
        many("? "),
        many("\""),
        many("#"),
        many("a: &b [x]\n"),
        format!("training_config: {{project_name: {}}}", many("x")),
        format!("training_config: {{batch_size: {}}}", many("9")),
        format!("training_config: {{optimizer: {{lr: 0.{}}}}}", many("9")),
        format!("training_config:\n  {}: 1", "x".repeat(1000)),
    ];
    for text in inputs {
        let start = std::time::Instant::now();
        let result = load_text("run.yaml", &text, &[], &environment(data()));
        let problems = result.err().map_or(0, |errors| errors.problems.len());
        assert!(problems <= 201, "{problems} problems");
        let taken = start.elapsed();
        assert!(
            taken.as_secs() < 5,
            "{taken:?} for {}…",
            text.chars().take(40).collect::<String>()
        );
        println!(
            "{taken:?} for {}",
            text.chars().take(12).collect::<String>().replace('\n', " ")
        );
    }
}
