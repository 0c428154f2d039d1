//! Rows of `training_config` itself.

use super::{Choice, Key, Kind, OFF, Range, alias, built, int, no_meaning, not_built, read, size, spelling};

const TOKENIZERS: &[Choice] = &[
    built("char"),
    built("byte"),
    built("pretokenised"),
    spelling("pretokenized", "pretokenised"),
    built("bpe"),
];

const SCHEDULERS: &[Choice] = &[
    built("identity"),
    built("warmup_linear"),
    built("warmup_hold_decay"),
    built("cosine"),
    built("step"),
    built("linear"),
    built("sequential"),
];

const DTYPES: &[Choice] = &[
    built("f32"),
    built("bf16"),
    spelling("float32", "f32"),
    spelling("bfloat16", "bf16"),
];

const BF16_ORDERS: &[Choice] = &[built("pairs"), built("tiles")];

const PROGRESS: &[Choice] = &[built("auto"), built("bar"), built("lines"), built("off")];

/// See the module.
pub const KEYS: &[Key] = &[
    read(
        "training_config.project_name",
        Kind::Text,
        "tt_train_nano_gpt",
        "Name of the run for trackers.",
    ),
    read(
        "training_config.seed",
        Kind::Int {
            min: 0,
            max: u64::MAX as i128,
        },
        "5489",
        "Seed of initialisation, dropout and shuffling. (tt-train's Python package: 42.)",
    ),
    read(
        "training_config.model_save_interval",
        int(0),
        "500",
        "Optimizer steps between checkpoints; 0 writes only the last one.",
    ),
    read(
        "training_config.batch_size",
        size(1),
        "64",
        "Sequences of one micro-step over all devices together. The effective batch is this times \
         gradient_accumulation_steps, on any mesh.",
    ),
    read(
        "training_config.validation_batch_size",
        size(1),
        "",
        "Sequences of one validation batch over all devices. Default: half of batch_size, at least 1.",
    ),
    read(
        "training_config.num_epochs",
        int(1),
        "1",
        "Passes over the data (windows of stride 1, as tt-train counts). It rules only where max_steps is not given.",
    ),
    read(
        "training_config.max_steps",
        int(1),
        "",
        "Optimizer steps. It rules where given: epochs repeat until then. Default: 1000 where num_epochs is not given \
         either, otherwise none. (tt-train's C++: 5000.)",
    ),
    read(
        "training_config.gradient_accumulation_steps",
        size(1),
        "1",
        "Micro-steps in one optimizer step.",
    ),
    read(
        "training_config.data_path",
        Kind::Path,
        "built-in",
        "A file of text, of tokens, or of examples to answer (.jsonl: one object a line with prompt and response, \
         prompt and completion, instruction, input and output, or messages); `built-in` is the corpus that the program makes itself, `random` draws random \
         tokens (rows for the linear and mlp models). (tt-train's C++: data/shakespeare.txt.)",
    ),
    read(
        "training_config.tokenizer_type",
        Kind::Choice(TOKENIZERS),
        "",
        "char: one token a character. byte: one token a byte. bpe: by tokenizer_path. pretokenised: data_path holds \
         tokens. Default: pretokenised for a file of tokens (.yaml, .yml, .csv, .bin, .idx), bpe where tokenizer_path or \
         model_path is given, otherwise char. (tt-train's Python package: bpe.)",
    ),
    read(
        "training_config.tokenizer_path",
        Kind::Path,
        "",
        "A tokenizer.json, its directory, or org/name in the local Hugging Face cache. Default: that of model_path.",
    ),
    read(
        "training_config.validation_data_path",
        Kind::Path,
        "",
        "A file of examples to validate on (.jsonl), in place of a share of data_path. Unisono's own key.",
    ),
    read(
        "training_config.template",
        Kind::Text,
        "",
        "How an example becomes text: question-answer (### Question: … ### Answer: …), alpaca, plain, chat (the tokenizer's \
         chat template), or a text with {prompt} and {response}. Default: chat for messages, otherwise question-answer. \
         Unisono's own key.",
    ),
    read(
        "training_config.validation_samples",
        size(0),
        "3",
        "Answers that are written to validation.txt at each validation, of examples (.jsonl). Unisono's own key.",
    ),
    read(
        "training_config.validation_fraction",
        Kind::Real(Range::BelowOne),
        "0.1",
        "Share of the data kept for validation, from its end; 0 turns validation off. Unisono's own key.",
    ),
    read(
        "training_config.dtype",
        Kind::Choice(DTYPES),
        "f32",
        "What activations are and products multiply: f32, or bf16 (half the memory for activations, about twice the speed \
         where the CPU has AVX512-BF16). Weights, sums, gradients of weights, norms, softmax, loss and optimizer state are \
         f32 in both. Unisono's own key.",
    ),
    read(
        "training_config.bf16_order",
        Kind::Choice(BF16_ORDERS),
        "pairs",
        "In which order products of bf16 add up: pairs, as AVX512-BF16 adds, or tiles, as AMX adds. Each gives the same bits on \
         every CPU; the two differ in their last bits. tiles is for CPUs with AMX; others emulate it; one with AVX512-BF16 is slower so. \
         Attention's products are always in pairs. Without effect for f32. Unisono's own key.",
    ),
    read(
        "training_config.eval_every",
        int(0),
        "200",
        "Optimizer steps between validations; 0 validates only at the end.",
    ),
    read(
        "training_config.eval_batches",
        size(1),
        "",
        "Validation batches per validation. Default: the whole split. Unisono's own key.",
    ),
    read(
        "training_config.checkpoint_dir",
        Kind::Path,
        "checkpoints",
        "Folder for checkpoints, relative to the run's folder.",
    ),
    read(
        "training_config.keep_last",
        size(1),
        "3",
        "How many of the newest checkpoints are kept. Unisono's own key.",
    ),
    read(
        "training_config.keep_best",
        Kind::Flag,
        "true",
        "Whether the checkpoint with the lowest validation loss is kept as well. Unisono's own key.",
    ),
    read(
        "training_config.use_clip_grad_norm",
        Kind::Flag,
        "false",
        "Whether the gradient is clipped by its global norm.",
    ),
    read(
        "training_config.clip_grad_norm_max_norm",
        Kind::Real(Range::Positive),
        "1.0",
        "The norm that the gradient is clipped to, where use_clip_grad_norm is true.",
    ),
    read(
        "training_config.log_every",
        int(1),
        "10",
        "Optimizer steps between printed lines where there is no progress bar. Unisono's own key.",
    ),
    read(
        "training_config.progress",
        Kind::Choice(PROGRESS),
        "auto",
        "auto: a bar on a terminal, lines otherwise. bar, lines, off. Unisono's own key.",
    ),
    read(
        "training_config.verify_every",
        int(0),
        "0",
        "Optimizer steps between comparisons of the copies of replicated tensors; 0 compares only at checkpoints. \
         Unisono's own key.",
    ),
    read(
        "training_config.num_samples",
        size(1),
        "10000",
        "Rows drawn for the linear and mlp models with data_path: random. Unisono's own key.",
    ),
    read(
        "training_config.noise",
        Kind::Real(Range::NonNegative),
        "0.1",
        "Standard deviation of the noise on those rows' targets. Unisono's own key.",
    ),
    read(
        "training_config.scheduler_type",
        Kind::Choice(SCHEDULERS),
        "identity",
        "identity: constant. warmup_linear: up over the first tenth, then down to 1 %, which the step behind the last \
         would have. warmup_hold_decay: by scheduler_config's max_lr, min_lr, warmup_steps and hold_steps, and chosen by \
         them where this key is not given. cosine, step, linear, sequential: by their keys in scheduler_config.",
    ),
    read(
        "training_config.model_config",
        Kind::Path,
        "",
        "The file with transformer_config. Looked for below the configuration's folder, its parents and the working \
         folder, as it stands and in configs/ and model_configs/.",
    ),
    read(
        "training_config.multihost_config",
        Kind::Path,
        "",
        "The file with multihost_config.",
    ),
    read(
        "optimizer_config",
        Kind::Path,
        "",
        "A file with the keys of training_config.optimizer.",
    ),
    alias(
        "training_config.optimizer_config",
        "optimizer_config",
        "An older place of it.",
    ),
    read(
        "training_config.device_config",
        Kind::Path,
        "",
        "A file with device_config.",
    ),
    // Older names and places.
    alias(
        "training_config.learning_rate",
        "training_config.optimizer.lr",
        "The flat key of older files.",
    ),
    alias(
        "training_config.weight_decay",
        "training_config.optimizer.weight_decay",
        "The flat key of older files.",
    ),
    alias(
        "training_config.beta1",
        "training_config.optimizer.beta1",
        "The flat key of older files.",
    ),
    alias(
        "training_config.beta2",
        "training_config.optimizer.beta2",
        "The flat key of older files.",
    ),
    alias(
        "training_config.eps",
        "training_config.optimizer.epsilon",
        "The flat key of older files.",
    ),
    alias(
        "training_config.decay_norms_and_biases",
        "training_config.optimizer.decay_norms_and_biases",
        "Beside the flat keys.",
    ),
    alias(
        "training_config.model_type",
        "transformer_config.model_type",
        "The place of older files.",
    ),
    alias(
        "training_config.model_path",
        "transformer_config.model_path",
        "The place of older files.",
    ),
    alias(
        "training_config.validation_frequency",
        "training_config.eval_every",
        "The fine-tuning lesson's name.",
    ),
    alias(
        "training_config.checkpoint_frequency",
        "training_config.model_save_interval",
        "The lesson's name.",
    ),
    alias(
        "training_config.optimizer.learning_rate",
        "training_config.optimizer.lr",
        "PyTorch users' name.",
    ),
    alias(
        "training_config.optimizer.eps",
        "training_config.optimizer.epsilon",
        "PyTorch's name.",
    ),
    alias(
        "training_config.optimizer.use_kahan_summation",
        "training_config.optimizer.kahan_summation",
        "The optimizer files' name.",
    ),
    // Read, and turned into the optimizer's type.
    read(
        "training_config.use_no_op",
        Kind::Flag,
        "false",
        "Older files: true means optimizer type NoOp.",
    ),
    no_meaning(
        "training_config.use_moreh_adamw",
        "it picks another kernel for the same arithmetic",
    ),
    no_meaning("training_config.total_steps", "a schedule is as long as the run"),
    no_meaning(
        "training_config.save_strategy",
        "checkpoints are written each model_save_interval steps",
    ),
    no_meaning(
        "training_config.log_level",
        "the log's level is set by -v, --quiet or UNISONO_LOG",
    ),
    no_meaning("training_config.wandb_project", "use_wandb is not built yet"),
    no_meaning("training_config.wandb_run_name", "use_wandb is not built yet"),
    not_built("training_config.use_wandb", OFF, "Weights & Biases as a tracker"),
    not_built("training_config.use_kahan_summation", OFF, "AdamW with Kahan summation"),
    not_built(
        "training_config.grpo_config",
        &[],
        "GRPO (reinforcement learning from groups of answers)",
    ),
];
