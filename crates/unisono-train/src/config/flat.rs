//! From the typed configuration back to a flat list of keys: what `to_yaml` writes and `differing_keys` compares.

use super::device::DeviceConfig;
use super::types::*;
use super::value::Value;
use std::collections::BTreeMap;

/// The keys that say all of a configuration, with their values; keys that another choice makes meaningless are left
/// out.
pub(super) fn flatten(config: &RunConfig) -> Vec<(&'static str, Value)> {
    let mut out = Vec::new();
    training(&config.training, &mut out);
    optimizer(&config.optimizer, &mut out);
    scheduler(&config.scheduler, &mut out);
    model(&config.model, &mut out);
    lora(config.lora.as_ref(), &mut out);
    device(&config.device, &mut out);
    eval(&config.eval, &mut out);
    if let Some(multihost) = &config.multihost {
        out.push(("multihost_config.enabled", Value::Flag(true)));
        out.push(("multihost_config.num_workers", size(multihost.num_workers)));
    }
    out
}

/// The keys that say all of a model.
pub(super) fn of_model(model: &ModelConfig) -> Vec<(&'static str, Value)> {
    let mut out = Vec::new();
    self::model(model, &mut out);
    out
}

type Out = Vec<(&'static str, Value)>;

fn int(value: impl TryInto<i128>) -> Value {
    // usize and u64 always fit.
    Value::Int(value.try_into().unwrap_or_default())
}

fn text(value: &str) -> Value {
    Value::Text(value.to_string())
}

fn training(t: &TrainingConfig, out: &mut Out) {
    out.push(("training_config.project_name", text(&t.project_name)));
    out.push(("training_config.seed", int(t.seed)));
    out.push(("training_config.model_save_interval", int(t.model_save_interval)));
    out.push(("training_config.batch_size", size(t.batch_size)));
    out.push(("training_config.validation_batch_size", size(t.validation_batch_size)));
    out.push(("training_config.num_epochs", int(t.num_epochs)));
    if let Some(steps) = t.max_steps {
        out.push(("training_config.max_steps", int(steps)));
    }
    out.push((
        "training_config.gradient_accumulation_steps",
        size(t.gradient_accumulation_steps),
    ));
    let data = match &t.data_path {
        DataPath::BuiltIn => text("built-in"),
        DataPath::Random => text("random"),
        DataPath::Path(path) => Value::Text(path.to_string_lossy().into_owned()),
    };
    out.push(("training_config.data_path", data));
    let tokenizer = match t.tokenizer_type {
        TokenizerType::Char => "char",
        TokenizerType::Byte => "byte",
        TokenizerType::Bpe => "bpe",
        TokenizerType::Pretokenised => "pretokenised",
    };
    out.push(("training_config.tokenizer_type", text(tokenizer)));
    for (key, path) in [
        ("training_config.tokenizer_path", &t.tokenizer_path),
        ("training_config.validation_data_path", &t.validation_data_path),
        ("transformer_config.model_path", &t.model_path),
    ] {
        if let Some(path) = path {
            out.push((key, Value::Text(path.to_string_lossy().into_owned())));
        }
    }
    if let Some(template) = &t.template {
        out.push(("training_config.template", text(template)));
    }
    out.push(("training_config.validation_samples", size(t.validation_samples)));
    out.push((
        "training_config.validation_fraction",
        Value::Real(t.validation_fraction),
    ));
    out.push(("training_config.dtype", text(t.dtype.name())));
    if t.dtype == Dtype::Bf16 {
        out.push(("training_config.bf16_order", text(t.bf16_order.name())));
    }
    out.push(("training_config.eval_every", int(t.eval_every)));
    if let Some(batches) = t.eval_batches {
        out.push(("training_config.eval_batches", size(batches)));
    }
    out.push(("training_config.checkpoint_dir", text(&t.checkpoint_dir)));
    out.push(("training_config.keep_last", size(t.keep_last)));
    out.push(("training_config.keep_best", Value::Flag(t.keep_best)));
    out.push(("training_config.use_clip_grad_norm", Value::Flag(t.use_clip_grad_norm)));
    out.push((
        "training_config.clip_grad_norm_max_norm",
        Value::Real(t.clip_grad_norm_max_norm),
    ));
    out.push(("training_config.log_every", int(t.log_every)));
    let progress = match t.progress {
        Progress::Auto => "auto",
        Progress::Bar => "bar",
        Progress::Lines => "lines",
        Progress::Off => "off",
    };
    out.push(("training_config.progress", text(progress)));
    out.push(("training_config.verify_every", int(t.verify_every)));
    out.push(("training_config.num_samples", size(t.num_samples)));
    out.push(("training_config.noise", Value::Real(t.noise)));
}

fn size(value: usize) -> Value {
    int(value as u64)
}

fn optimizer(optimizer: &OptimizerConfig, out: &mut Out) {
    match &optimizer.rule {
        OptimizerRule::AdamW {
            lr,
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } => {
            out.push(("training_config.optimizer.type", text("AdamW")));
            out.push(("training_config.optimizer.lr", Value::Real(*lr)));
            out.push(("training_config.optimizer.beta1", Value::Real(*beta1)));
            out.push(("training_config.optimizer.beta2", Value::Real(*beta2)));
            out.push(("training_config.optimizer.epsilon", Value::Real(*epsilon)));
            out.push(("training_config.optimizer.weight_decay", Value::Real(*weight_decay)));
        }
        OptimizerRule::Sgd {
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
        } => {
            out.push(("training_config.optimizer.type", text("SGD")));
            out.push(("training_config.optimizer.lr", Value::Real(*lr)));
            out.push(("training_config.optimizer.momentum", Value::Real(*momentum)));
            out.push(("training_config.optimizer.dampening", Value::Real(*dampening)));
            out.push(("training_config.optimizer.weight_decay", Value::Real(*weight_decay)));
            out.push(("training_config.optimizer.nesterov", Value::Flag(*nesterov)));
        }
        OptimizerRule::NoOp => out.push(("training_config.optimizer.type", text("NoOp"))),
    }
    let decay = Value::Flag(optimizer.decay_norms_and_biases);
    out.push(("training_config.optimizer.decay_norms_and_biases", decay));
}

/// A schedule's word and its keys.
fn schedule(schedule: &SchedulerConfig) -> (&'static str, Vec<(&'static str, Value)>) {
    match schedule {
        SchedulerConfig::Identity => ("identity", vec![]),
        SchedulerConfig::WarmupLinear => ("warmup_linear", vec![]),
        SchedulerConfig::WarmupHoldDecay {
            max_lr,
            min_lr,
            warmup_steps,
            hold_steps,
        } => (
            "warmup_hold_decay",
            vec![
                ("scheduler_config.max_lr", Value::Real(*max_lr)),
                ("scheduler_config.min_lr", Value::Real(*min_lr)),
                ("scheduler_config.warmup_steps", int(*warmup_steps)),
                ("scheduler_config.hold_steps", int(*hold_steps)),
            ],
        ),
        SchedulerConfig::Cosine { min_lr, steps } => (
            "cosine",
            [("scheduler_config.min_lr", Value::Real(*min_lr))]
                .into_iter()
                .chain(steps.map(|steps| ("scheduler_config.steps", int(steps))))
                .collect(),
        ),
        SchedulerConfig::Step { step_size, gamma } => (
            "step",
            vec![
                ("scheduler_config.step_size", int(*step_size)),
                ("scheduler_config.gamma", Value::Real(*gamma)),
            ],
        ),
        SchedulerConfig::Linear {
            start_factor,
            end_factor,
            steps,
        } => (
            "linear",
            [
                ("scheduler_config.start_factor", Value::Real(*start_factor)),
                ("scheduler_config.end_factor", Value::Real(*end_factor)),
            ]
            .into_iter()
            .chain(steps.map(|steps| ("scheduler_config.steps", int(steps))))
            .collect(),
        ),
        SchedulerConfig::Sequential(phases) => (
            "sequential",
            vec![(
                "scheduler_config.phases",
                Value::Phases(phases.iter().map(phase).collect()),
            )],
        ),
    }
}

fn phase(phase: &Phase) -> BTreeMap<&'static str, Value> {
    let (word, keys) = schedule(&phase.schedule);
    let mut out: BTreeMap<&'static str, Value> = keys
        .into_iter()
        .map(|(path, value)| (path.strip_prefix("scheduler_config.").unwrap_or(path), value))
        .collect();
    out.insert("type", text(word));
    if let Some(steps) = phase.steps {
        out.insert("steps", int(steps));
    }
    out
}

fn scheduler(scheduler: &SchedulerConfig, out: &mut Out) {
    let (word, keys) = schedule(scheduler);
    out.push(("training_config.scheduler_type", text(word)));
    out.extend(keys);
}

fn activation(activation: Activation) -> Value {
    text(match activation {
        Activation::GeluTanh => "gelu_tanh",
        Activation::Gelu => "gelu",
        Activation::Relu => "relu",
        Activation::Silu => "silu",
    })
}

fn model(model: &ModelConfig, out: &mut Out) {
    match model {
        ModelConfig::Gpt2(g) => {
            out.push(("transformer_config.model_type", text("gpt2")));
            out.push(("transformer_config.num_heads", size(g.num_heads)));
            out.push(("transformer_config.num_groups", size(g.num_groups)));
            out.push(("transformer_config.embedding_dim", size(g.embedding_dim)));
            out.push(("transformer_config.intermediate_dim", size(g.intermediate_dim)));
            out.push(("transformer_config.dropout_prob", Value::Real(g.dropout_prob)));
            out.push(("transformer_config.num_blocks", size(g.num_blocks)));
            out.push(("transformer_config.vocab_size", size(g.vocab_size)));
            out.push(("transformer_config.max_sequence_length", size(g.max_sequence_length)));
            out.push(("transformer_config.weight_tying", Value::Flag(g.weight_tying)));
            let positions = match g.positional_embedding_type {
                PositionalEmbedding::Trainable => "trainable",
                PositionalEmbedding::Fixed => "fixed",
            };
            out.push(("transformer_config.positional_embedding_type", text(positions)));
            out.push(("transformer_config.runner_type", runner(g.runner_type)));
            out.push(("transformer_config.bias", Value::Flag(g.bias)));
            out.push(("transformer_config.activation", activation(g.activation)));
        }
        ModelConfig::Llama(l) => llama(l, out),
        ModelConfig::Linear(l) => {
            out.push(("transformer_config.model_type", text("linear")));
            out.push(("transformer_config.input_features", size(l.input_features)));
            out.push(("transformer_config.output_features", size(l.output_features)));
            out.push(("transformer_config.bias", Value::Flag(l.bias)));
        }
        ModelConfig::Mlp(m) => {
            out.push(("transformer_config.model_type", text("mlp")));
            out.push(("transformer_config.input_features", size(m.input_features)));
            let hidden = m.hidden_features.iter().map(|width| *width as i128).collect();
            out.push(("transformer_config.hidden_features", Value::Ints(hidden)));
            out.push(("transformer_config.output_features", size(m.output_features)));
            out.push(("transformer_config.bias", Value::Flag(m.bias)));
            out.push(("transformer_config.activation", activation(m.activation)));
        }
    }
}

fn runner(runner: RunnerType) -> Value {
    text(match runner {
        RunnerType::Default => "default",
        RunnerType::MemoryEfficient => "memory_efficient",
    })
}

fn llama(l: &LlamaConfig, out: &mut Out) {
    out.push(("transformer_config.model_type", text("llama")));
    for (key, value) in [
        ("transformer_config.num_heads", l.num_heads),
        ("transformer_config.num_groups", l.num_groups),
        ("transformer_config.head_dim", l.head_dim),
        ("transformer_config.embedding_dim", l.embedding_dim),
        ("transformer_config.intermediate_dim", l.intermediate_dim),
        ("transformer_config.num_blocks", l.num_blocks),
        ("transformer_config.vocab_size", l.vocab_size),
        ("transformer_config.max_sequence_length", l.max_sequence_length),
    ] {
        out.push((key, size(value)));
    }
    for (key, value) in [
        ("transformer_config.dropout_prob", l.dropout_prob),
        ("transformer_config.theta", l.theta),
        ("transformer_config.norm_eps", l.norm_eps),
    ] {
        out.push((key, Value::Real(value)));
    }
    for (key, value) in [
        ("transformer_config.weight_tying", l.weight_tying),
        ("transformer_config.qkv_bias", l.qkv_bias),
        ("transformer_config.output_bias", l.output_bias),
        ("transformer_config.mlp_bias", l.mlp_bias),
        ("transformer_config.qk_norm", l.qk_norm),
    ] {
        out.push((key, Value::Flag(value)));
    }
    out.push(("transformer_config.runner_type", runner(l.runner_type)));
    match l.rope_scaling {
        None => {}
        Some(RopeScalingConfig::Linear { factor }) => {
            out.push(("transformer_config.rope_scaling.type", text("linear")));
            out.push(("transformer_config.rope_scaling.scaling_factor", Value::Real(factor)));
        }
        Some(RopeScalingConfig::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context_length,
        }) => {
            out.push(("transformer_config.rope_scaling.type", text("llama3")));
            for (key, value) in [
                ("transformer_config.rope_scaling.scaling_factor", factor),
                ("transformer_config.rope_scaling.low_freq_factor", low_freq_factor),
                ("transformer_config.rope_scaling.high_freq_factor", high_freq_factor),
            ] {
                out.push((key, Value::Real(value)));
            }
            let key = "transformer_config.rope_scaling.original_context_length";
            out.push((key, size(original_context_length)));
        }
    }
}

fn lora(lora: Option<&LoraConfig>, out: &mut Out) {
    let Some(l) = lora else { return };
    if let Some(path) = &l.adapter_path {
        out.push((
            "lora_config.adapter_path",
            Value::Text(path.to_string_lossy().into_owned()),
        ));
    }
    out.push(("lora_config.rank", size(l.rank)));
    out.push(("lora_config.alpha", Value::Real(l.alpha)));
    out.push(("lora_config.use_rslora", Value::Flag(l.use_rslora)));
    out.push(("lora_config.dropout", Value::Real(l.dropout)));
    out.push(("lora_config.target_modules", Value::Texts(l.target_modules.clone())));
    let also = Value::Texts(l.trainable_modules.clone());
    out.push(("lora_config.trainable_modules", also));
    out.push(("lora_config.is_bias_trainable", Value::Flag(l.is_bias_trainable)));
}

fn device(d: &DeviceConfig, out: &mut Out) {
    let shape = d.mesh_shape.iter().map(|extent| *extent as i128).collect();
    out.push(("device_config.mesh_shape", Value::Ints(shape)));
    out.push(("device_config.enable_ddp", Value::Flag(d.enable_ddp)));
    out.push(("device_config.enable_tp", Value::Flag(d.enable_tp)));
    if let Some(descriptor) = &d.mesh_graph_descriptor {
        out.push(("device_config.mesh_graph_descriptor", Value::Text(descriptor.clone())));
    }
    if let Some(memory) = d.memory {
        out.push(("device_config.memory", int(memory)));
    }
    if let Some(workers) = d.workers {
        out.push(("device_config.workers", size(workers)));
    }
}

fn eval(e: &EvalConfig, out: &mut Out) {
    out.push(("eval_config.temperature", Value::Real(e.temperature)));
    out.push(("eval_config.top_k", e.top_k.map_or(Value::Int(-1), size)));
    out.push(("eval_config.top_p", Value::Real(e.top_p)));
    out.push(("eval_config.repetition_penalty", Value::Real(e.repetition_penalty)));
}
