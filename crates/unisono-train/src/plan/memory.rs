//! Memory, work and bytes of a run, from the same program on the null backend.

use super::{Carried, MemoryPlan};
use crate::config::RunConfig;
use crate::dataset::{Rows, StepData};
use crate::error::TrainError;
use crate::model::ModelSpec;
use crate::step::{BatchPlan, Trainer, micro_batch};
use crate::votes::Votes;
use unisono_mesh::Mesh;
use unisono_runtime::Processes;
use unisono_tensor::{Kind, MeshDevice, Phase};

/// What the null backend saw of two steps and a validation batch.
pub(super) struct Rehearsal {
    pub(super) memory: MemoryPlan,
    pub(super) num_parameters: usize,
    pub(super) num_trained: usize,
    pub(super) link_bytes: u64,
    pub(super) commands: u64,
}

/// Micro-steps that are rehearsed one by one.
const FEW: usize = 8;

/// Runs the same program on the null backend: exact memory, work and bytes, in a moment.
pub(super) fn rehearse(
    config: &RunConfig,
    spec: &ModelSpec,
    mesh: &Mesh,
    processes: &Processes,
    batch: BatchPlan,
    validation_batch: usize,
    steps: u64,
) -> Result<Rehearsal, TrainError> {
    let device = MeshDevice::rehearsal(mesh.clone(), processes.clone())?;
    let mut trainer = Trainer::new(&device, config, spec, batch, steps)?;
    let num_parameters = trainer.model.as_model().num_parameters();
    let trained = trainer.model.as_model().parameters();
    let num_trained = trained.iter().map(unisono_nn::Parameter::num_elements).sum();
    // Kept as long as a run, as the run does.
    let _votes = Votes::new(&device)?;
    let data = blank(spec, batch.width, batch.effective());
    let total = || device.runtime().report().total();
    let (commands, link_bytes) = if batch.accumulation <= FEW {
        trainer.step(0, &data)?;
        let before = total();
        trainer.step(1, &data)?;
        let after = total();
        (after.commands - before.commands, after.link_bytes - before.link_bytes)
    } else {
        // Every micro-step is like the second, and the peak lies in it; what follows the last one costs as after a few.
        trainer.micro_step(0, &data, 1.0)?;
        let before = total();
        trainer.micro_step(1, &data, 1.0)?;
        let after = total();
        let few = BatchPlan {
            accumulation: FEW,
            ..batch
        };
        let of_few = rehearse(config, spec, mesh, processes, few, validation_batch, steps)?;
        let more = (batch.accumulation - FEW) as u64;
        (
            of_few.commands + more * (after.commands - before.commands),
            of_few.link_bytes + more * (after.link_bytes - before.link_bytes),
        )
    };
    if config.training.validation_fraction > 0.0 || config.training.validation_data_path.is_some() {
        let data = blank(spec, batch.width, validation_batch);
        let rows = unisono_tensor::Rows::whole(validation_batch, device.axis("dp"));
        device.runtime().set_phase(Phase::Evaluation);
        let (inputs, targets) = micro_batch(&device, &data, rows)?;
        device.no_grad(|| trainer.model.as_model().losses(&inputs, &targets, 1.0))?;
    }
    let memory = device.runtime().report().memory;
    let by_kind = Kind::ALL
        .iter()
        .zip(memory.peak_by_kind)
        .map(|(kind, bytes)| (kind.name(), bytes));
    Ok(Rehearsal {
        memory: MemoryPlan {
            peak: memory.peak,
            by_kind: by_kind.filter(|(_, bytes)| *bytes > 0).collect(),
        },
        num_parameters,
        num_trained,
        link_bytes,
        commands,
    })
}

/// A batch of the right shape without contents.
fn blank(spec: &ModelSpec, width: usize, sequences: usize) -> StepData {
    let (values, input_width, target_width) = match spec {
        ModelSpec::Perceptron(c) => (Rows::SomeNumbers, c.inputs, c.outputs),
        ModelSpec::Gpt(_) | ModelSpec::Llama(_) => (Rows::SomeTokens, width, width),
    };
    StepData {
        inputs: values.clone(),
        input_width,
        targets: values,
        target_width,
        num_targets: sequences.saturating_mul(target_width),
    }
}

/// Bytes that a device may hold, where that is known: the machine's, shared out, and what the configuration allows.
fn limit(config: &RunConfig, carried: &Carried) -> Option<u64> {
    let share = carried.memory.map(|bytes| bytes / carried.sharing as u64);
    match (config.device.memory, share) {
        (Some(limit), Some(share)) => Some(limit.min(share)),
        (limit, share) => limit.or(share),
    }
}

/// A sentence where a micro-step is so large that what enters the first layer alone does not fit: nothing is rehearsed then.
pub(super) fn absurd(config: &RunConfig, spec: &ModelSpec, carried: &Carried, batch: BatchPlan) -> Option<String> {
    let limit = limit(config, carried)?;
    let per_sequence = match spec {
        ModelSpec::Gpt(c) => 8 * batch.width as u128 * c.embedding_dim as u128,
        ModelSpec::Llama(c) => 8 * batch.width as u128 * c.embedding_dim as u128,
        ModelSpec::Perceptron(c) => 4 * (c.inputs + c.outputs) as u128,
    };
    let needed = per_sequence * batch.per_device() as u128;
    (needed > u128::from(limit)).then(|| {
        format!(
            "a micro-step of {} sequences on each device needs more than {} for the first layer alone, and {} may be held: lower \
             training_config.batch_size and raise gradient_accumulation_steps by the same factor",
            batch.per_device(),
            mebibytes(u64::try_from(needed).unwrap_or(u64::MAX)),
            mebibytes(limit)
        )
    })
}

/// A sentence where the plan needs more memory than there is, with what would fit.
pub(super) fn memory_problem(
    config: &RunConfig,
    spec: &ModelSpec,
    mesh: &Mesh,
    carried: &Carried,
    batch: BatchPlan,
    validation_batch: usize,
    memory: &MemoryPlan,
) -> Option<String> {
    let limit = limit(config, carried)?;
    let devices = carried.sharing;
    if memory.peak <= limit {
        return None;
    }
    let kinds: Vec<String> = memory
        .by_kind
        .iter()
        .map(|(kind, bytes)| format!("{kind} {}", mebibytes(*bytes)))
        .collect();
    let whose = match config.device.memory {
        Some(given) if given == limit => "device_config.memory allows".to_string(),
        _ => format!(
            "this machine's memory, shared by {devices} device{}, has",
            if devices == 1 { "" } else { "s" }
        ),
    };
    let mut advice = Vec::new();
    let mut recompute = config.clone();
    recompute.model = config.model.with_runner(crate::config::RunnerType::MemoryEfficient);
    for (candidate, word) in [(config, ""), (&recompute, " with runner_type: memory_efficient")] {
        let spec = ModelSpec::of(candidate, spec.vocab_size());
        let smaller = (1..=batch.per_device())
            .rev()
            .filter(|per| batch.per_device().is_multiple_of(*per))
            .find_map(|per| {
                let trial = BatchPlan {
                    batch_size: per * batch.data_parallel,
                    accumulation: batch.effective() / (per * batch.data_parallel),
                    ..batch
                };
                let validation_batch = validation_batch.min(trial.batch_size);
                let rehearsal =
                    rehearse(candidate, &spec, mesh, &carried.processes, trial, validation_batch, 2).ok()?;
                (rehearsal.memory.peak <= limit).then_some((trial, rehearsal.memory.peak))
            });
        if let Some((trial, peak)) = smaller {
            advice.push(format!(
                "batch_size: {} with gradient_accumulation_steps: {}{word} needs {}",
                trial.batch_size,
                trial.accumulation,
                mebibytes(peak)
            ));
        }
    }
    let advice = match advice.is_empty() {
        true => {
            "no batch size of the same effective batch fits: use more tensor-parallel devices or a smaller model".into()
        }
        false => format!(
            "at the same effective batch of {} sequences, {}",
            batch.effective(),
            advice.join("; ")
        ),
    };
    let elsewhere = match config.device.memory {
        Some(_) => "",
        None => "; to plan for another machine, say what a device of it holds (device_config.memory: 12GB)",
    };
    Some(format!(
        "each device needs {} at its peak ({}), and {whose} {}: {advice}{elsewhere}",
        mebibytes(memory.peak),
        kinds.join(", "),
        mebibytes(limit)
    ))
}

/// Bytes as MiB for people.
pub fn mebibytes(bytes: u64) -> String {
    let mib = bytes as f64 / (1 << 20) as f64;
    if mib < 1000.0 {
        format!("{mib:.2} MiB")
    } else {
        format!("{mib:.0} MiB")
    }
}
