//! The plan: everything about a run that can be worked out without running it, or everything that is wrong with it.

mod machine;
mod memory;

pub use memory::mebibytes;

use memory::{absurd, memory_problem, rehearse};

use crate::config::{Loaded, Place, RunConfig};
use crate::dataset::Dataset;
use crate::error::TrainError;
use crate::model::ModelSpec;
use crate::step::BatchPlan;
use serde::Serialize;
use unisono_mesh::descriptor::Selection;
use unisono_mesh::{Mesh, Strategy, assign_axes};
use unisono_runtime::Processes;
use unisono_runtime::machine::memory as memory_of_machine;

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
    /// Where it lies on the machine that a descriptor describes, if one was named.
    pub machine: Option<Selection>,
    /// How sequences are dealt out.
    pub batch: BatchPlan,
    /// The model with its vocabulary.
    pub spec: ModelSpec,
    /// Parameters, each counted once.
    pub num_parameters: usize,
    /// Those among them that are trained.
    pub num_trained: usize,
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

/// What is known of a run's layout before it is rehearsed.
struct Layout {
    mesh: Mesh,
    machine: Option<Selection>,
    batch: BatchPlan,
    spec: ModelSpec,
}

/// Problems of data and layout beside those that a configuration is refused for already: with its keys as far as they could
/// be read, see [`Loaded::sound`].
pub fn further_problems(partial: &Loaded) -> Vec<PlanProblem> {
    const DATA: &[&str] = &[
        "training_config.data_path",
        "training_config.tokenizer_type",
        "training_config.validation_fraction",
        "training_config.num_samples",
        "transformer_config.model_type",
        "transformer_config.max_sequence_length",
        "transformer_config.vocab_size",
    ];
    // What could not be found has been told.
    let training = &partial.config.training;
    let lost = [&training.model_path, &training.tokenizer_path]
        .into_iter()
        .flatten()
        .any(|path| !path.exists());
    let dataset = (!lost && partial.sound(DATA)).then(|| Dataset::load(&partial.config));
    layout(partial, dataset.as_ref()).1
}

/// The layout, and everything that is wrong with it and with the data.
fn layout(loaded: &Loaded, dataset: Option<&Result<Dataset, TrainError>>) -> (Option<Layout>, Vec<PlanProblem>) {
    let config = &loaded.config;
    let mut problems: Vec<PlanProblem> = Vec::new();
    let at = |key: &str, message: String| PlanProblem {
        place: loaded.place(key).cloned(),
        message,
    };
    if let Some(Err(error)) = dataset {
        problems.push(at("training_config.data_path", error.to_string()));
    }
    let data = dataset.and_then(|dataset| dataset.as_ref().ok());
    if let Some((key, message)) = data.and_then(|data| nothing_to_validate(loaded, data)) {
        problems.push(at(key, message));
    }
    let vocab_size = data.and_then(Dataset::vocab_size);
    let spec = ModelSpec::of(config, vocab_size);
    if let (Some(data), Some(model)) = (vocab_size, spec.vocab_size())
        && data > model
    {
        problems.push(at(
            "training_config.tokenizer_path",
            format!(
                "the data's vocabulary has {data} tokens and the model of model_path knows {model}: they do not belong together; use \
                 the model's own tokenizer (remove tokenizer_path)"
            ),
        ));
    }
    if !loaded.sound(&[
        "device_config.mesh_shape",
        "device_config.enable_ddp",
        "device_config.enable_tp",
    ]) {
        return (None, problems);
    }
    let mesh = match mesh_of(config) {
        Ok(mesh) => mesh,
        Err(message) => {
            problems.push(at("device_config.mesh_shape", message));
            return (None, problems);
        }
    };
    let machine = match machine::selected(loaded) {
        Ok(machine) => machine,
        Err(message) => {
            problems.push(PlanProblem {
                place: machine::written_at(loaded).and_then(|key| loaded.place(key)).cloned(),
                message,
            });
            None
        }
    };
    let (dp, tp) = (mesh.axis_size("dp"), mesh.axis_size("tp"));
    let batch = BatchPlan {
        batch_size: config.training.batch_size,
        accumulation: config.training.gradient_accumulation_steps,
        data_parallel: dp,
        width: data.and_then(Dataset::width).unwrap_or(spec.targets_per_sequence()),
    };
    if loaded.sound(&["training_config.batch_size"]) {
        check_batch(&batch, &mut |key, message| problems.push(at(key, message)));
    }
    if loaded.sound(&[
        "transformer_config.model_type",
        "transformer_config.num_heads",
        "transformer_config.num_groups",
        "transformer_config.hidden_features",
    ]) {
        check_units(&spec, tp, &mut |key, message| problems.push(at(key, message)));
    }
    let layout = Layout {
        mesh,
        machine,
        batch,
        spec,
    };
    (Some(layout), problems)
}

/// A validation part without any target, which would have no loss: the key to change, and a sentence.
fn nothing_to_validate(loaded: &Loaded, data: &Dataset) -> Option<(&'static str, String)> {
    let training = &loaded.config.training;
    let what = data.evaluated(training, 1).ok()??.without_targets()?;
    let key = match training.eval_batches {
        Some(_) => "training_config.eval_batches",
        None => "training_config.validation_fraction",
    };
    Some((
        key,
        format!(
            "{what}; give some of them answers or a larger max_sequence_length, raise eval_batches or validation_fraction, name another \
             validation_data_path, or validate on nothing (validation_fraction: 0, and no validation_data_path)"
        ),
    ))
}

/// Who carries the devices of a mesh, and the memory that they have.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The processes of the run.
    pub processes: Processes,
    /// Bytes of this machine's memory, where they count and are known.
    pub memory: Option<u64>,
    /// Devices that share it: at least one.
    pub sharing: usize,
}

impl Carried {
    /// By this process alone.
    pub fn alone(mesh: &Mesh) -> Carried {
        Carried {
            processes: Processes::one(),
            memory: memory_of_machine(),
            sharing: mesh.num_devices(),
        }
    }
}

/// Says who carries a mesh, on the devices that the descriptor has for it.
pub type Carrier<'a> = dyn Fn(&Mesh, Option<&Selection>) -> Carried + 'a;

/// Works out the plan of a run of this process alone, or everything that is wrong with it.
///
/// # Errors
/// All problems of layout, data and memory at once.
pub fn check(loaded: &Loaded, dataset: &Result<Dataset, TrainError>) -> Result<Plan, Vec<PlanProblem>> {
    check_carried(loaded, dataset, &|mesh, _| Carried::alone(mesh))
}

/// The same for a machine that need not be this one: where `device_config.memory` says what a device holds, that alone counts.
///
/// # Errors
/// As [`check`].
pub fn check_elsewhere(loaded: &Loaded, dataset: &Result<Dataset, TrainError>) -> Result<Plan, Vec<PlanProblem>> {
    let here = loaded.config.device.memory.is_none();
    check_carried(loaded, dataset, &|mesh, _| {
        let alone = Carried::alone(mesh);
        Carried {
            memory: alone.memory.filter(|_| here),
            ..alone
        }
    })
}

/// Works out the plan of a run whose mesh is carried as `carrier` says.
///
/// # Errors
/// As [`check`].
pub fn check_carried(
    loaded: &Loaded,
    dataset: &Result<Dataset, TrainError>,
    carrier: &Carrier<'_>,
) -> Result<Plan, Vec<PlanProblem>> {
    let config = &loaded.config;
    let (layout, mut problems) = layout(loaded, Some(dataset));
    let Some(Layout {
        mesh,
        machine,
        batch,
        spec,
    }) = layout.filter(|_| problems.is_empty())
    else {
        return Err(problems);
    };
    let (dp, tp) = (mesh.axis_size("dp"), mesh.axis_size("tp"));
    let at = |key: &str, message: String| PlanProblem {
        place: loaded.place(key).cloned(),
        message,
    };

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
    let carried = carrier(&mesh, machine.as_ref());
    if let Some(message) = absurd(config, &spec, &carried, batch) {
        problems.push(at("training_config.batch_size", message));
        return Err(problems);
    }
    match rehearse(config, &spec, &mesh, &carried.processes, batch, validation_batch, steps) {
        Err(error) => problems.push(at("device_config.mesh_shape", error.to_string())),
        Ok(rehearsal) => {
            if let Some(message) = memory_problem(
                config,
                &spec,
                &mesh,
                &carried,
                batch,
                validation_batch,
                &rehearsal.memory,
            ) {
                problems.push(at("device_config.memory", message));
            }
            if problems.is_empty() {
                let axis = mesh.axis("dp").ok().filter(|axis| axis.size > 1);
                let slots = unisono_tensor::Rows::whole(batch.effective(), axis).slots(batch.per_device());
                return Ok(Plan {
                    exactness: exactness(&spec, batch, slots, tp),
                    num_parameters: rehearsal.num_parameters,
                    num_trained: rehearsal.num_trained,
                    memory: rehearsal.memory,
                    link_bytes_per_step: rehearsal.link_bytes,
                    commands_per_step: rehearsal.commands,
                    flops_per_step: spec.training_flops_per_sequence(batch.width) * batch.effective() as f64,
                    mesh,
                    machine,
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
        let fitting: Vec<String> = (1..=batch_size)
            .filter(|d| batch_size.is_multiple_of(*d))
            .take(12)
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
    let mut heads = |num_heads: usize, num_groups: usize| {
        problem(
            "transformer_config.num_heads",
            format!(
                "tensor parallelism over {tp} devices cuts heads by whole key/value groups, and the model has {num_heads} heads in \
                 {num_groups} groups: degrees that work are {}",
                legal.join(", ")
            ),
        );
    };
    match spec {
        ModelSpec::Gpt(c) => heads(c.num_heads, c.num_groups),
        ModelSpec::Llama(c) => heads(c.num_heads, c.num_groups),
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

/// Degrees that are listed one by one.
const LISTED: usize = 12;

/// The degrees that cut `n` evenly; of many the first ones and the largest.
fn degrees(n: usize) -> String {
    let mut first: Vec<String> = (1..n)
        .filter(|d| n.is_multiple_of(*d))
        .take(LISTED + 1)
        .map(|d| d.to_string())
        .collect();
    if first.len() > LISTED {
        first[LISTED] = "…".into();
    }
    first.push(n.to_string());
    first.join(", ")
}

fn exactness(spec: &ModelSpec, batch: BatchPlan, batch_slots: usize, tp: usize) -> Vec<String> {
    let units = spec.units();
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
    let step = batch.per_device();
    if batch_slots > 1 {
        lines.push(format!(
            "{effective} sequences in shares of {step} are no aligned subtrees: each gradient takes {batch_slots} partial sums on a \
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
