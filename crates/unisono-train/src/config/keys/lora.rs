//! Rows of `lora_config`.

use super::{Key, Kind, Range, alias, read, size};

/// See the module.
pub const KEYS: &[Key] = &[
    read(
        "lora_config",
        Kind::Path,
        "",
        "A file with lora_config, in place of the section itself.",
    ),
    read(
        "lora_config.adapter_path",
        Kind::Path,
        "",
        "The directory of an adapter in PEFT's format to start from, or org/name in Hugging Face's cache. It says rank, alpha, \
         use_rslora and which layers; dropout is the run's own.",
    ),
    read(
        "lora_config.rank",
        size(1),
        "8",
        "Inner dimension of the adapters. (tt-train's sample file: 128.)",
    ),
    read(
        "lora_config.alpha",
        Kind::Real(Range::Positive),
        "16.0",
        "The adapters' product is multiplied by alpha / rank.",
    ),
    read(
        "lora_config.use_rslora",
        Kind::Flag,
        "false",
        "Whether it is multiplied by alpha / √rank instead.",
    ),
    read(
        "lora_config.dropout",
        Kind::Real(Range::BelowOne),
        "0.0",
        "Probability of dropout of the adapters' input.",
    ),
    read(
        "lora_config.target_modules",
        Kind::Texts,
        "[]",
        "Linear layers that get adapters: names (q_proj, self_attn.q_proj, tt-train's q_linear), full names, or regular \
         expressions of full names. Default: all of them.",
    ),
    read(
        "lora_config.trainable_modules",
        Kind::Texts,
        "[]",
        "Parameters of the model that are trained as well: names or regular expressions, as above.",
    ),
    read(
        "lora_config.is_bias_trainable",
        Kind::Flag,
        "false",
        "Whether biases of the model are trained as well.",
    ),
    alias("training_config.lora_config", "lora_config", "An older place of it."),
    alias("lora_config.r", "lora_config.rank", "PEFT's name."),
    alias("lora_config.lora_alpha", "lora_config.alpha", "PEFT's name."),
    alias("lora_config.lora_dropout", "lora_config.dropout", "PEFT's name."),
];
