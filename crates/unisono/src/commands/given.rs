//! Options that would count for nothing, or that say a key a second time: refused, never passed over in silence.

use crate::cli::{Changes, ModelArgs, SamplingArgs};
use crate::exit::Failure;
use std::path::Path;

/// Refuses an option and a `--set` of the same key.
///
/// # Errors
/// Both, by name.
pub fn once(changes: &Changes, option: &str, key: &str) -> Result<(), Failure> {
    let same = |set: &&String| set.split('=').next().is_some_and(|set| set.trim() == key);
    match changes.set.iter().find(same) {
        None => Ok(()),
        Some(set) => Err(Failure::input(format!(
            "{option} and --set {set} contradict each other: both say {key}; give one of them"
        ))),
    }
}

/// Refuses what is for models in Hugging Face's files, where a run is named.
///
/// # Errors
/// Such an option.
pub fn model(args: &ModelArgs) -> Result<(), Failure> {
    let Some(run) = args.run.as_deref().map(Path::display) else {
        return Ok(());
    };
    if let Some(adapter) = &args.adapter {
        return Err(Failure::input(format!(
            "--adapter {adapter} is for --model, and a run has its own weights, adapters among them: leave it out, or write the run's \
             model with `unisono export --run {run} --format hf --out DIR` and give --model DIR --adapter {adapter}"
        )));
    }
    if let Some(order) = args.precision.bf16_order {
        return Err(Failure::input(format!(
            "--bf16-order is for --model, and a run multiplies in its own training_config.bf16_order: \
             --set training_config.bf16_order={} changes that for {run}",
            order.name()
        )));
    }
    if args.precision.dtype.is_some() {
        return Err(Failure::input(format!(
            "--dtype is for --model, and a run multiplies in its own training_config.dtype: --set training_config.dtype=bf16 (or f32) \
             changes that for {run}"
        )));
    }
    Ok(())
}

/// Refuses options of sampling that a `--set` says too.
///
/// # Errors
/// Both, by name.
pub fn sampling(changes: &Changes, args: &SamplingArgs) -> Result<(), Failure> {
    let options = [
        ("--temperature", "eval_config.temperature", args.temperature.is_some()),
        ("--top-k", "eval_config.top_k", args.top_k.is_some()),
        ("--top-p", "eval_config.top_p", args.top_p.is_some()),
        (
            "--repetition-penalty",
            "eval_config.repetition_penalty",
            args.repetition_penalty.is_some(),
        ),
        ("--seed", "training_config.seed", args.seed.is_some()),
    ];
    let mut given = options.into_iter().filter(|(.., given)| *given);
    given.try_for_each(|(option, key, _)| once(changes, option, key))
}
