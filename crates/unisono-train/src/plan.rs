//! The plan: everything about a run that can be worked out without running it, or everything that is wrong with it.

use crate::config::{Loaded, Place, RunConfig};
use crate::dataset::{Dataset, Rows, StepData};
use crate::error::TrainError;
use crate::model::ModelSpec;
use crate::step::{BatchPlan, Trainer, micro_batch};
use serde::Serialize;
use unisono_mesh::{Mesh, Strategy, assign_axes};
use unisono_tensor::{Backend, Kind, MeshDevice, Options, Phase};

/// Which rule ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndRule {
    /// `max_steps`.
    MaxSteps,
    /// `num_epochs`.
    Epochs,
}

/// Memory of one device, known without running: bytes at the peak of a step, by kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Bytes at the peak.
    pub peak: u64,
    /// What the peak consists of.
    pub by_kind: Vec<(&'static str, u64)>,
}

/// A checked run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The mesh with its named axes.
    pub mesh: Mesh,
    /// How sequences are dealt out.
    pub batch: BatchPlan,
    /// The model with its vocabulary.
    pub spec: ModelSpec,
    /// Parameters, each counted once.
    pub num_parameters: usize,
    /// Optimizer steps.
    pub steps: u64,
    /// Which rule says so.
    pub end: EndRule,
    /// First sample that is absent (beyond the last epoch); `u64::MAX` where epochs repeat.
    pub last_sample: u64,
    /// Sequences of a validation batch.
    pub validation_batch: usize,
    /// Memory of each device.
    pub memory: MemoryPlan,
    /// Floating-point operations of an optimizer step over all devices, as the field counts them.
    pub flops_per_step: f64,
    /// Bytes that each device exchanges in an optimizer step.
    pub link_bytes_per_step: u64,
    /// Commands of an optimizer step.
    pub commands_per_step: u64,
    /// What is exact, up to which degree, and what that costs; a sentence each.
    pub exactness: Vec<String>,
}

/// One thing that is wrong with a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanProblem {
    /// Where it was written, if it was.
    pub place: Option<Place>,
    /// A sentence with the numbers and what would work.
    pub message: String,
}

impl std::fmt::Display for PlanProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Works out the plan of a run, or everything that is wrong with it.
///
/// # Errors
/// All problems of layout, data and memory at once.
pub fn check(loaded: &Loaded, dataset: &Result<Dataset, TrainError>) -> Result<Plan, Vec<PlanProblem>> {
    let config = &loaded.config;
    let mut problems: Vec<PlanProblem> = Vec::new();
    let at = |key: &str, message: String| PlanProblem {
        place: loaded.place(key).cloned(),
        message,
    };
    if let Err(error) = dataset {
        problems.push(at("training_config.data_path", error.to_string()));
    }
    let spec = ModelSpec::of(config, dataset.as_ref().ok().and_then(Dataset::vocab_size));
    let mesh = match mesh_of(config) {
        Ok(mesh) => mesh,
        Err(message) => {
            problems.push(at("device_config.mesh_shape", message));
            return Err(problems);
        }
    };
    let (dp, tp) = (mesh.axis_size("dp"), mesh.axis_size("tp"));
    let batch = BatchPlan {
        batch_size: config.training.batch_size,
        accumulation: config.training.gradient_accumulation_steps,
        data_parallel: dp,
    };
    check_batch(&batch, &mut |key, message| problems.push(at(key, message)));
    check_units(&spec, tp, &mut |key, message| problems.push(at(key, message)));
    if !problems.is_empty() {
        return Err(problems);
    }

    let effective = batch.effective() as u64;
    let samples = dataset.as_ref().map_or(effective, Dataset::num_samples);
    let (steps, end, last_sample) = match config.training.max_steps {
        Some(steps) => (steps, EndRule::MaxSteps, u64::MAX),
        None => {
            let total = samples.saturating_mul(config.training.num_epochs);
            (total.div_ceil(effective), EndRule::Epochs, total)
        }
    };
    let validation_batch = config.training.validation_batch_size.div_ceil(dp) * dp;
    match rehearse(config, &spec, &mesh, batch, validation_batch, steps) {
        Err(error) => problems.push(at("device_config.mesh_shape", error.to_string())),
        Ok(rehearsal) => {
            if let Some(message) = memory_problem(config, &spec, &mesh, batch, validation_batch, &rehearsal.memory) {
                problems.push(at("device_config.memory", message));
            }
            if problems.is_empty() {
                return Ok(Plan {
                    exactness: exactness(&spec, batch, tp),
                    num_parameters: rehearsal.num_parameters,
                    memory: rehearsal.memory,
                    link_bytes_per_step: rehearsal.link_bytes,
                    commands_per_step: rehearsal.commands,
                    flops_per_step: spec.training_flops_per_sequence() * batch.effective() as f64,
                    mesh,
                    batch,
                    spec,
                    steps,
                    end,
                    last_sample,
                    validation_batch,
                });
            }
        }
    }
    Err(problems)
}

/// The mesh that the configuration asks for, with its axes named.
///
/// # Errors
/// A sentence that says which axes and strategies do not fit.
pub fn mesh_of(config: &RunConfig) -> Result<Mesh, String> {
    let mut strategies = Vec::new();
    if config.device.enable_ddp {
        strategies.push(Strategy::Dp);
    }
    if config.device.enable_tp {
        strategies.push(Strategy::Tp);
    }
    assign_axes(&config.device.mesh_shape, &strategies).map_err(|error| error.to_string())
}

fn check_batch(batch: &BatchPlan, problem: &mut dyn FnMut(&str, String)) {
    let BatchPlan {
        batch_size,
        data_parallel: dp,
        ..
    } = *batch;
    if batch_size < dp {
        problem(
            "training_config.batch_size",
            format!(
                "batch_size {batch_size} is the total of a micro-step over all devices, and {dp} data-parallel devices need at \
                 least a sequence each: raise it to {dp} or a multiple, or use a mesh with at most {batch_size} of them"
            ),
        );
    } else if !batch_size.is_multiple_of(dp) {
        let below = batch_size / dp * dp;
        let fitting: Vec<String> = (1..=dp)
            .filter(|d| batch_size.is_multiple_of(*d))
            .map(|d| d.to_string())
            .collect();
        problem(
            "training_config.batch_size",
            format!(
                "batch_size {batch_size} is the total over all devices and does not divide over {dp} data-parallel devices: \
                 {below} and {} do, and {batch_size} divides over {}",
                below + dp,
                fitting.join(", ")
            ),
        );
    }
}

fn check_units(spec: &ModelSpec, tp: usize, problem: &mut dyn FnMut(&str, String)) {
    let units = spec.units();
    if units.is_multiple_of(tp) {
        return;
    }
    let legal: Vec<String> = (1..=units)
        .filter(|d| units.is_multiple_of(*d))
        .map(|d| d.to_string())
        .collect();
    match spec {
        ModelSpec::Gpt(c) => problem(
            "transformer_config.num_heads",
            format!(
                "tensor parallelism over {tp} devices cuts heads by whole key/value groups, and the model has {} heads in {} \
                 groups: degrees that work are {}",
                c.num_heads,
                c.num_groups,
                legal.join(", ")
            ),
        ),
        ModelSpec::Perceptron(c) if c.hidden.is_empty() => problem(
            "device_config.enable_tp",
            "linear regression has no hidden features that tensor parallelism could cut: use enable_ddp, or model_type: mlp"
                .into(),
        ),
        ModelSpec::Perceptron(c) => problem(
            "transformer_config.hidden_features",
            format!(
                "tensor parallelism over {tp} devices cuts the hidden features {:?}, which fall into {units} units: degrees \
                 that work are {}",
                c.hidden,
                legal.join(", ")
            ),
        ),
    }
}

fn exactness(spec: &ModelSpec, batch: BatchPlan, tp: usize) -> Vec<String> {
    let units = spec.units();
    let degrees = |n: usize| {
        let all: Vec<String> = (1..=n)
            .filter(|d| n.is_multiple_of(*d))
            .map(|d| d.to_string())
            .collect();
        all.join(", ")
    };
    let effective = batch.effective();
    let mut lines = vec![format!(
        "the loss curve is the same, bit by bit, on any mesh with data-parallel degree {} × accumulation of the same {effective} \
         sequences{}",
        degrees(effective),
        match spec {
            ModelSpec::Perceptron(c) if c.hidden.is_empty() => String::new(),
            _ => format!(" and tensor-parallel degree {}", degrees(units)),
        }
    )];
    let slots = unisono_tensor::Rows {
        total: effective,
        axis: None,
        skip: 0,
        count: effective / batch.data_parallel,
    };
    let tree = unisono_kernels::order::Tree::over_units(effective);
    let share = slots.count;
    let step = batch.per_device();
    let most = (0..batch.data_parallel)
        .map(|i| tree.max_spans(i * share, (i + 1) * share, step))
        .max()
        .unwrap_or(1);
    if most > 1 {
        lines.push(format!(
            "{effective} sequences in shares of {step} are no aligned subtrees: each gradient takes {most} partial sums on a \
             device in place of one"
        ));
    }
    let tree = unisono_kernels::order::Tree::over_units(units);
    let each = units / tp.max(1);
    let most = (0..tp)
        .map(|i| tree.num_spans(i * each, (i + 1) * each))
        .max()
        .unwrap_or(1);
    if most > 1 {
        lines.push(format!(
            "{units} groups over {tp} devices are no aligned subtrees: each tensor-parallel reduction sends {most} partial sums \
             in place of one"
        ));
    }
    lines
}

/// What the null backend saw of two steps and a validation batch.
struct Rehearsal {
    memory: MemoryPlan,
    num_parameters: usize,
    link_bytes: u64,
    commands: u64,
}

/// Runs the same program on the null backend: exact memory, work and bytes, in a moment.
fn rehearse(
    config: &RunConfig,
    spec: &ModelSpec,
    mesh: &Mesh,
    batch: BatchPlan,
    validation_batch: usize,
    steps: u64,
) -> Result<Rehearsal, TrainError> {
    let options = Options {
        backend: Backend::Null,
        ..Options::default()
    };
    let device = MeshDevice::open(mesh.clone(), options)?;
    let mut trainer = Trainer::new(&device, config, spec, batch, steps)?;
    let num_parameters = trainer.model.as_model().num_parameters();
    let data = blank(spec, batch.effective());
    trainer.step(0, &data)?;
    let before = device.runtime().report().total();
    trainer.step(1, &data)?;
    let after = device.runtime().report().total();
    if config.training.validation_fraction > 0.0 {
        let data = blank(spec, validation_batch);
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
        link_bytes: after.link_bytes - before.link_bytes,
        commands: after.commands - before.commands,
    })
}

/// A batch of the right shape without contents.
fn blank(spec: &ModelSpec, sequences: usize) -> StepData {
    match spec {
        ModelSpec::Gpt(c) => {
            let ids = Rows::Tokens(vec![0; sequences * c.max_sequence_length]);
            StepData {
                inputs: ids.clone(),
                input_width: c.max_sequence_length,
                targets: ids,
                target_width: c.max_sequence_length,
                num_targets: sequences * c.max_sequence_length,
            }
        }
        ModelSpec::Perceptron(c) => StepData {
            inputs: Rows::Numbers(vec![0.0; sequences * c.inputs]),
            input_width: c.inputs,
            targets: Rows::Numbers(vec![0.0; sequences * c.outputs]),
            target_width: c.outputs,
            num_targets: sequences * c.outputs,
        },
    }
}

/// A sentence where the plan needs more memory than there is, with what would fit.
fn memory_problem(
    config: &RunConfig,
    spec: &ModelSpec,
    mesh: &Mesh,
    batch: BatchPlan,
    validation_batch: usize,
    memory: &MemoryPlan,
) -> Option<String> {
    let devices = mesh.num_devices() as u64;
    let machine = machine_memory().map(|bytes| bytes / devices);
    let limit = match (config.device.memory, machine) {
        (Some(limit), Some(machine)) => limit.min(machine),
        (Some(limit), None) => limit,
        (None, machine) => machine?,
    };
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
    if let crate::config::ModelConfig::Gpt2(model) = &mut recompute.model {
        model.runner_type = crate::config::RunnerType::MemoryEfficient;
    }
    for (candidate, word) in [(config, ""), (&recompute, " with runner_type: memory_efficient")] {
        let spec = ModelSpec::of(
            candidate,
            match spec {
                ModelSpec::Gpt(c) => Some(c.vocab_size),
                ModelSpec::Perceptron(_) => None,
            },
        );
        let smaller = (1..=batch.per_device())
            .rev()
            .filter(|per| batch.per_device().is_multiple_of(*per))
            .find_map(|per| {
                let trial = BatchPlan {
                    batch_size: per * batch.data_parallel,
                    accumulation: batch.effective() / (per * batch.data_parallel),
                    ..batch
                };
                let rehearsal =
                    rehearse(candidate, &spec, mesh, trial, validation_batch.min(trial.batch_size), 2).ok()?;
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
    Some(format!(
        "each device needs {} at its peak ({}), and {whose} {}: {advice}",
        mebibytes(memory.peak),
        kinds.join(", "),
        mebibytes(limit)
    ))
}

/// Bytes as MiB for people.
pub fn mebibytes(bytes: u64) -> String {
    let mib = bytes as f64 / (1 << 20) as f64;
    if mib < 10.0 {
        format!("{mib:.1} MiB")
    } else {
        format!("{mib:.0} MiB")
    }
}

/// Memory that this process may use: the machine's, or its control group's if that is less.
pub fn machine_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let total = line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024;
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    Some(group.map_or(total, |limit: u64| limit.min(total)))
}
