//! The exact text of every error: reviewing a message is reviewing a diff of `errors.golden`.

mod config_support;

use config_support::{data, environment, golden, verdict};
use std::path::Path;
use unisono_train::config::{load, load_text, mesh_overrides};

/// Name, YAML, overrides.
const CASES: &[(&str, &str, &[&str])] = &[
    ("empty", "", &[]),
    ("only comments", "# nothing\n\n", &[]),
    ("not a map", "- a\n- b\n", &[]),
    ("a word", "training", &[]),
    ("training only", "training_config:\n  batch_size: 4\n", &[]),
    ("empty section", "training_config:\n", &[]),
    ("no training", "device_confg:\n  mesh_shape: [1, 2]\n", &[]),
    ("optimizer file", "type: AdamW\nlr: 3e-4\n", &[]),
    ("eval only", "eval_config: {top_k: 5}\n", &[]),
    ("section is a word", "training_config: yes\n", &[]),
    ("section is a list", "training_config: [1]\n", &[]),
    (
        "unknown keys",
        "training_config:\n  batchsize: 4\n  Batch_Size: 4\n  num_heads: 3\n  xyzzy: 1\n  max_stps: 3\ntrainer: 1\n",
        &[],
    ),
    (
        "dotted key",
        "training_config.batch_size: 4\ntraining_config: {}\n",
        &[],
    ),
    (
        "bracket key",
        "training_config: {}\nscheduler_config:\n  phases[]: {type: linear}\n",
        &[],
    ),
    (
        "wrong types",
        "training_config:\n  batch_size: many\n  max_steps: 1.5\n  seed: -1\n  use_clip_grad_norm: maybe\n  num_epochs: [1]\n  \
         project_name: {a: b}\n  optimizer:\n    lr: fast\n    beta1: 1.0\n    epsilon: .nan\n    weight_decay: -0.1\n    type: AdamWW\n",
        &[],
    ),
    (
        "numbers too large or too small",
        "training_config:\n  num_epochs: 1e18\n  max_steps: 1e999999\n  eval_every: 15e-1\n  optimizer: {lr: 1e-400, weight_decay: 1e-50}\n\
         device_config: {mesh_shape: [1, 1000000000000]}\n",
        &[],
    ),
    (
        "characters of a file of tokens",
        "training_config: {data_path: tokens.bin, tokenizer_type: char}\n",
        &[],
    ),
    (
        "no values",
        "training_config:\n  batch_size:\n  max_steps:\n  optimizer:\n",
        &[],
    ),
    (
        "numbers",
        "training_config:\n  batch_size: 0\n  max_steps: 1e3\n  model_save_interval: 30_000\n  seed: 1__0\n  eval_every: 010\n  \
         log_every: 99999999999999999999\n  num_epochs: 1e30\n  keep_last: 0x10\n  eval_batches: 1:30\n",
        &[],
    ),
    (
        "ranges",
        "training_config: {validation_fraction: 1}\ntransformer_config: {dropout_prob: 1.0}\neval_config: {top_p: 0, top_k: -2, temperature: -1, repetition_penalty: 0}\n",
        &[],
    ),
    (
        "duplicate",
        "training_config:\n  batch_size: 4\n  seed: 1\n  batch_size: 8\ntraining_config:\n  seed: 2\n",
        &[],
    ),
    ("tab", "training_config:\n\tbatch_size: 4\n", &[]),
    ("broken", "training_config:\n  batch_size: [4\n  seed: 1\n", &[]),
    ("broken 2", "training_config: {batch_size: 4\n", &[]),
    ("broken 3", "training_config:\n  data_path: \"abc\n", &[]),
    ("colon", "training_config:\n  data_path: a: b\n", &[]),
    ("two documents", "training_config: {}\n---\ntraining_config: {}\n", &[]),
    ("tag", "training_config:\n  batch_size: !!int 4\n", &[]),
    ("merge", "a: &a {batch_size: 4}\ntraining_config:\n  <<: *a\n", &[]),
    ("unknown alias", "training_config:\n  batch_size: *a\n", &[]),
    ("alias in itself", "training_config: &a\n  batch_size: *a\n", &[]),
    ("list key", "training_config:\n  [1, 2]: 3\n", &[]),
    (
        "bomb",
        "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
         d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
        &[],
    ),
    (
        "not built",
        "training_config:\n  use_kahan_summation: true\n  use_wandb: on\n  grpo_config: {epsilon: 0.2}\n  tokenizer_type: bpe\n  optimizer:\n    \
         type: Muon\n    amsgrad: true\n    stochastic_rounding: yes\n    kahan_summation: true\n\
         transformer_config:\n  model_type: qwen3\n  model_path: a.safetensors\n\
         device_config: {enable_pp: true, enable_cp: true, enable_fsdp: true}\nmultihost_config: {enabled: true}\nlora_config: {r: 8}\n\
         scheduler_config: {beta1_warmup_steps: 10}\n",
        &[],
    ),
    (
        "off values",
        "training_config:\n  use_kahan_summation: false\n  use_wandb: off\n  grpo_config:\n  optimizer: {amsgrad: false, kahan_summation: no}\n\
         transformer_config: {model_path: \"\"}\ndevice_config: {enable_pp: false, enable_cp: False, enable_fsdp: false}\n\
         multihost_config: {enabled: false}\nlora_config: {}\n",
        &[],
    ),
    (
        "without meaning",
        "training_config:\n  use_moreh_adamw: true\n  total_steps: 5\n  optimizer: {type: SGD, beta1: 0.5, ns_steps: 3}\n\
         transformer_config: {model_type: gpt2, theta: 1, experimental: {foo: 1}, embedding_placement: replicated}\n\
         device_config: {device_ids: [0]}\n",
        &[],
    ),
    (
        "two layouts, two rates",
        "training_config:\n  learning_rate: 0.0003\n  optimizer:\n    lr: 0.001\n    eps: 1e-8\n    epsilon: 1e-7\n",
        &[],
    ),
    (
        "two layouts, one rate",
        "training_config:\n  learning_rate: 0.0003\n  optimizer:\n    lr: 3e-4\n",
        &[],
    ),
    ("alias's name", "training_config:\n  learning_rate: fast\n", &[]),
    (
        "no-op and SGD",
        "training_config:\n  use_no_op: true\n  optimizer: {type: SGD}\n",
        &[],
    ),
    (
        "llama without its name",
        "training_config: {}\ntransformer_config: {theta: 500000.0, num_groups: 3}\n",
        &[],
    ),
    (
        "heads",
        "training_config: {}\ntransformer_config: {num_heads: 6, embedding_dim: 128, num_groups: 4}\n",
        &[],
    ),
    (
        "heads 2",
        "training_config: {}\ntransformer_config: {num_heads: 200, embedding_dim: 128}\n",
        &[],
    ),
    (
        "odd fixed",
        "training_config: {}\ntransformer_config: {num_heads: 3, embedding_dim: 9, positional_embedding_type: fixed}\n",
        &[],
    ),
    (
        "not aligned is fine",
        "training_config: {}\ntransformer_config: {num_heads: 5, embedding_dim: 35, max_sequence_length: 100}\n",
        &[],
    ),
    (
        "huge",
        "training_config: {}\ntransformer_config: {num_heads: 1, embedding_dim: 2147483648, num_blocks: 2147483648}\n",
        &[],
    ),
    (
        "huge step",
        "training_config: {batch_size: 2147483648, gradient_accumulation_steps: 2147483648}\n",
        &[],
    ),
    (
        "mesh",
        "training_config: {}\ndevice_config: {mesh_shape: [0, 2], memory: lots}\n",
        &[],
    ),
    ("mesh 2", "training_config: {}\ndevice_config: {mesh_shape: 4}\n", &[]),
    ("mesh 3", "training_config: {}\ndevice_config: {mesh_shape: []}\n", &[]),
    (
        "mesh 4",
        "training_config: {}\ndevice_config: {mesh_shape: [1000, 1000]}\n",
        &[],
    ),
    (
        "mesh 5",
        "training_config: {}\ndevice_config: {mesh_shape: [2147483648, 2147483648, 2147483648]}\n",
        &[],
    ),
    (
        "schedule that is none",
        "training_config: {scheduler_type: warmup_liner}\n",
        &[],
    ),
    (
        "two schedules",
        "training_config:\n  scheduler_type: warmup_linear\nscheduler_config:\n  max_lr: 1e-3\n",
        &[],
    ),
    (
        "keys of no schedule",
        "training_config: {}\nscheduler_config: {gamma: 0.5}\n",
        &[],
    ),
    (
        "rates upside down",
        "training_config: {}\nscheduler_config: {max_lr: 1e-4, min_lr: 1e-3}\n",
        &[],
    ),
    (
        "cosine upwards",
        "training_config: {scheduler_type: cosine, learning_rate: 1e-4}\nscheduler_config: {min_lr: 1e-3}\n",
        &[],
    ),
    (
        "sequential of nothing",
        "training_config: {scheduler_type: sequential}\n",
        &[],
    ),
    (
        "bad phases",
        "training_config: {scheduler_type: sequential}\nscheduler_config:\n  phases: [{type: linear}, {type: cosin, stps: 4}, 5]\n",
        &[],
    ),
    (
        "open phase",
        "training_config: {scheduler_type: sequential}\nscheduler_config:\n  phases: [{type: linear}, {type: cosine}]\n",
        &[],
    ),
    (
        "nesterov",
        "training_config: {optimizer: {type: SGD, nesterov: true}}\n",
        &[],
    ),
    ("bpe", "training_config: {tokenizer_type: bpe}\n", &[]),
    (
        "tokens of a corpus",
        "training_config: {tokenizer_type: pretokenised}\n",
        &[],
    ),
    ("data", "training_config: {data_path: nowhere.txt}\n", &[]),
    (
        "data is a folder",
        "training_config: {data_path: tt_train_configs}\n",
        &[],
    ),
    ("data is empty", "training_config: {data_path: \"\"}\n", &[]),
    (
        "variable",
        "training_config: {data_path: \"a/${NOT_SET}/b\", checkpoint_dir: \"${NOT_SET}/x\"}\n",
        &[],
    ),
    (
        "regression data",
        "training_config: {data_path: built-in}\ntransformer_config: {model_type: linear}\n",
        &[],
    ),
    (
        "model file missing",
        "training_config: {model_config: nowhere.yaml}\n",
        &[],
    ),
    (
        "model file is another kind",
        "training_config: {model_config: tt_train_configs/device_configs/galaxy_tp.yaml}\n",
        &[],
    ),
    (
        "model file beside a section",
        "training_config: {model_config: tt_train_configs/model_configs/gpt2s.yaml}\ntransformer_config: {num_heads: 6}\n",
        &[],
    ),
    (
        "device file",
        "training_config: {device_config: tt_train_configs/device_configs/galaxy_tp.yaml}\n",
        &[],
    ),
    (
        "overrides",
        "training_config: {batch_size: 4}\n",
        &[
            "training_config.batch_size=none",
            "training_config.batch=3",
            "nonsense",
            "training_config.seed=[",
            "training_config.max_steps=1",
            "training_config.max_steps=2",
        ],
    ),
    (
        "override of nothing",
        "training_config: {batch_size: 4}\n",
        &["", "=", "a="],
    ),
    (
        "null override",
        "training_config: {batch_size: none}\n",
        &["training_config.batch_size=null"],
    ),
];

#[test]
fn texts_of_all_errors() {
    let environment = environment(data());
    let mut out = String::new();
    for (name, yaml, overrides) in CASES {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_string()).collect();
        let result = load_text("run.yaml", yaml, &overrides, &environment);
        out.push_str(&format!("== {name}\n{}\n", verdict(&result)));
    }
    for path in ["nowhere.yaml", "tt_train_configs", "", "."] {
        out.push_str(&format!(
            "== file \"{path}\"\n{}\n",
            verdict(&load(Path::new(path), &[], &environment))
        ));
    }
    for mesh in [
        "dp=2,tp=2",
        "tp=4",
        "dp",
        "dp=0",
        "dp=99999999999999999999",
        "dp=4096,tp=4096",
        "xp=2",
        "pp=2",
        "dp=2,dp=2",
        "",
    ] {
        out.push_str(&format!("== --mesh {mesh}\n{:?}\n\n", mesh_overrides(mesh)));
    }
    golden(&data().join("errors.golden"), &out);
}

#[test]
fn files_of_odd_bytes() {
    let folder = std::env::temp_dir().join(format!("unisono-config-errors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let environment = environment(folder.clone());
    let say = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.join(name), bytes).unwrap();
        verdict(&load(Path::new(name), &[], &environment))
    };
    assert_eq!(
        say("utf16.yaml", b"\xff\xfet\0"),
        "error: utf16.yaml: the file is UTF-16: save it as UTF-8\n"
    );
    assert_eq!(
        say("latin1.yaml", b"training_config:\n  project_name: caf\xe9\n"),
        "error: latin1.yaml: the file is not UTF-8: byte 36 (line 2) begins no character\n"
    );
    let note = "note: training_config.data_path is not given: training on the built-in corpus (tt-train's C++ reads \
                data/shakespeare.txt)\n";
    let bom = b"\xef\xbb\xbftraining_config:\r\n  batch_size: 4\r\n";
    assert_eq!(say("bom.yaml", bom), format!("loads\n{note}"));
    let bad = b"\xef\xbb\xbftraining_config:\r\n  batch_size: x\r\n";
    assert_eq!(
        say("bom-bad.yaml", bad),
        "error: bom-bad.yaml:2:15: training_config.batch_size needs a whole number of at least 1, found \"x\"\n"
    );
    let large = vec![b'#'; (1 << 20) + 1];
    assert_eq!(
        say("large.yaml", &large),
        "error: large.yaml: the file has 1048577 bytes; a configuration has at most 1048576\n"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
