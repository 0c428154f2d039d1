//! Checks that need only the configuration: each with its place, the numbers and what would work.

use super::error::{Findings, listed};
use super::types::*;
use super::values::Values;

/// Most devices of a mesh.
const MAX_DEVICES: usize = 1 << 16;
/// Most parameters of a model, and most tokens of an optimizer step: beyond them other counts would leave 64 bits.
const MAX_COUNT: f64 = 1e13;
/// Most elements of a head.
const MAX_HEAD_DIM: usize = unisono_kernels::attention::MAX_HEAD_DIM;

/// Reports everything that cannot work whatever the mesh, the data and the machine.
pub(super) fn run(config: &RunConfig, values: &Values, findings: &mut Findings) {
    mesh(config, values, findings);
    match &config.model {
        ModelConfig::Gpt2(gpt) => self::gpt(gpt, &config.training, values, findings),
        ModelConfig::Llama(llama) => self::llama(llama, &config.training, values, findings),
        ModelConfig::Linear(linear) => {
            let parameters = linear.input_features as f64 * linear.output_features as f64;
            size(parameters, "transformer_config.input_features", values, findings);
            let widest = linear.input_features.max(linear.output_features);
            step(&config.training, widest as f64, values, findings);
        }
        ModelConfig::Mlp(mlp) => {
            let widths: Vec<usize> = [mlp.input_features]
                .into_iter()
                .chain(mlp.hidden_features.iter().copied())
                .chain([mlp.output_features])
                .collect();
            let parameters: f64 = widths.windows(2).map(|pair| pair[0] as f64 * pair[1] as f64).sum();
            size(parameters, "transformer_config.hidden_features", values, findings);
            let widest = widths.iter().copied().max().unwrap_or(1);
            step(&config.training, widest as f64, values, findings);
        }
    }
    optimizer(config, values, findings);
    schedule(config, values, findings);
}

fn mesh(config: &RunConfig, values: &Values, findings: &mut Findings) {
    const KEY: &str = "device_config.mesh_shape";
    let devices = config
        .device
        .mesh_shape
        .iter()
        .try_fold(1usize, |all, extent| all.checked_mul(*extent));
    if devices.is_none_or(|devices| devices > MAX_DEVICES) {
        let message = format!(
            "{KEY} {:?} has more than {MAX_DEVICES} devices",
            config.device.mesh_shape
        );
        findings.problem(values.place(KEY), message);
    }
}

fn gpt(gpt: &GptConfig, training: &TrainingConfig, values: &Values, findings: &mut Findings) {
    const HEADS: &str = "transformer_config.num_heads";
    const WIDTH: &str = "transformer_config.embedding_dim";
    let place = |first: &'static str, second: &'static str| values.place(first).or_else(|| values.place(second));
    groups(gpt.num_heads, gpt.num_groups, values, findings);
    if !gpt.embedding_dim.is_multiple_of(gpt.num_heads) && values.sound(&[HEADS, WIDTH]) {
        let message = format!(
            "{WIDTH} {} does not divide by {HEADS} {}: each head has the same width; nearest: num_heads {}, or \
             embedding_dim {}",
            gpt.embedding_dim,
            gpt.num_heads,
            nearest_divisors(gpt.embedding_dim, gpt.num_heads),
            nearest_multiples(gpt.embedding_dim, gpt.num_heads),
        );
        findings.problem(place(HEADS, WIDTH), message);
    }
    if gpt.positional_embedding_type == PositionalEmbedding::Fixed && !gpt.embedding_dim.is_multiple_of(2) {
        let message = format!(
            "{WIDTH} {} is odd: fixed positions are pairs of a sine and a cosine, so use an even number",
            gpt.embedding_dim
        );
        findings.problem(place(WIDTH, "transformer_config.positional_embedding_type"), message);
    }
    let width = gpt.embedding_dim as f64;
    let block = 4.0 * width * width + 2.0 * width * gpt.intermediate_dim as f64;
    let tables = width * (gpt.vocab_size as f64 + gpt.max_sequence_length as f64);
    size(block * gpt.num_blocks as f64 + tables, WIDTH, values, findings);
    let widest = width.max(gpt.intermediate_dim as f64).max(gpt.vocab_size as f64);
    step(training, gpt.max_sequence_length as f64 * widest, values, findings);
}

fn llama(llama: &LlamaConfig, training: &TrainingConfig, values: &Values, findings: &mut Findings) {
    const HEADS: &str = "transformer_config.num_heads";
    const WIDTH: &str = "transformer_config.embedding_dim";
    const HEAD: &str = "transformer_config.head_dim";
    groups(llama.num_heads, llama.num_groups, values, findings);
    let place = values.place(HEADS).or_else(|| values.place(WIDTH));
    if values.maybe_int::<usize>(HEAD).is_none()
        && !llama.embedding_dim.is_multiple_of(llama.num_heads)
        && values.sound(&[HEADS, WIDTH, HEAD])
    {
        let message = format!(
            "{WIDTH} {} does not divide by {HEADS} {}: nearest: num_heads {}, or embedding_dim {}; or give head_dim",
            llama.embedding_dim,
            llama.num_heads,
            nearest_divisors(llama.embedding_dim, llama.num_heads),
            nearest_multiples(llama.embedding_dim, llama.num_heads),
        );
        findings.problem(place, message);
    } else if (!llama.head_dim.is_multiple_of(2) || llama.head_dim > MAX_HEAD_DIM || llama.head_dim == 0)
        && values.sound(&[HEADS, WIDTH, HEAD])
    {
        let message = format!(
            "heads of {} elements: rotary positions turn pairs, and {MAX_HEAD_DIM} is the most, so head_dim must be even and \
             at most {MAX_HEAD_DIM}",
            llama.head_dim
        );
        findings.problem(values.place(HEAD).or(place), message);
    }
    let width = llama.embedding_dim as f64;
    let attention = 2.0 * width * (llama.num_heads + llama.num_groups) as f64 * llama.head_dim as f64;
    let block = attention + 3.0 * width * llama.intermediate_dim as f64;
    let tables = 2.0 * width * llama.vocab_size as f64;
    size(block * llama.num_blocks as f64 + tables, WIDTH, values, findings);
    let widest = width.max(llama.intermediate_dim as f64).max(llama.vocab_size as f64);
    step(training, llama.max_sequence_length as f64 * widest, values, findings);
}

fn groups(num_heads: usize, num_groups: usize, values: &Values, findings: &mut Findings) {
    const HEADS: &str = "transformer_config.num_heads";
    const GROUPS: &str = "transformer_config.num_groups";
    if !num_heads.is_multiple_of(num_groups) && values.sound(&[HEADS, GROUPS]) {
        let message = format!(
            "{HEADS} {num_heads} does not divide by {GROUPS} {num_groups}: each group serves the same number of heads; nearest: \
             num_groups {}",
            nearest_divisors(num_heads, num_groups),
        );
        findings.problem(values.place(GROUPS).or_else(|| values.place(HEADS)), message);
    }
}

/// The numbers of an optimizer step, at the widest place of the model.
fn step(training: &TrainingConfig, a_sequence: f64, values: &Values, findings: &mut Findings) {
    let (batch, accumulation) = (training.batch_size, training.gradient_accumulation_steps);
    let numbers = batch as f64 * accumulation as f64 * a_sequence;
    if numbers > MAX_COUNT * 1e3 {
        let message = format!(
            "training_config.batch_size {batch} × gradient_accumulation_steps {accumulation} makes an optimizer step of \
             about {numbers:.1e} numbers, too many for any machine"
        );
        findings.problem(values.place("training_config.batch_size"), message);
    }
}

fn size(parameters: f64, key: &'static str, values: &Values, findings: &mut Findings) {
    if parameters > MAX_COUNT {
        let message = format!(
            "the model has about {parameters:.1e} parameters; {MAX_COUNT:.0e} is the most: look at {key} and its like"
        );
        findings.problem(values.place(key), message);
    }
}

fn optimizer(config: &RunConfig, values: &Values, findings: &mut Findings) {
    const NESTEROV: &str = "training_config.optimizer.nesterov";
    if let OptimizerRule::Sgd {
        momentum,
        dampening,
        nesterov: true,
        ..
    } = config.optimizer.rule
        && (momentum == 0.0 || dampening != 0.0)
        && values.sound(&[
            "training_config.optimizer.momentum",
            "training_config.optimizer.dampening",
        ])
    {
        let message = format!(
            "{NESTEROV} needs a momentum greater than 0 and dampening 0; momentum is {momentum:?} and dampening \
             {dampening:?}"
        );
        findings.problem(values.place(NESTEROV), message);
    }
}

fn schedule(config: &RunConfig, values: &Values, findings: &mut Findings) {
    const MIN: &str = "scheduler_config.min_lr";
    const MAX: &str = "scheduler_config.max_lr";
    const PHASES: &str = "scheduler_config.phases";
    let lr = config.optimizer.rule.lr();
    match &config.scheduler {
        SchedulerConfig::WarmupHoldDecay {
            max_lr,
            min_lr,
            warmup_steps,
            hold_steps,
        } => {
            if min_lr > max_lr && values.sound(&[MIN, MAX]) {
                let message = format!("{MIN} {min_lr:?} is greater than max_lr {max_lr:?}: swap them");
                findings.problem(values.place(MIN).or_else(|| values.place(MAX)), message);
            }
            let rising = warmup_steps.saturating_add(*hold_steps);
            if let Some(steps) = config.training.max_steps.filter(|steps| *steps <= rising) {
                let message = format!(
                    "the run's {steps} steps end before the schedule decays (warmup_steps {warmup_steps} + \
                     hold_steps {hold_steps})"
                );
                let place = values.place("scheduler_config.hold_steps");
                findings.note(place.or_else(|| values.place("scheduler_config.warmup_steps")), message);
            }
        }
        SchedulerConfig::Cosine { min_lr, .. } if *min_lr > lr && values.sound(&[MIN]) => {
            let message = format!("{MIN} {min_lr:?} is greater than the optimizer's lr {lr:?}, from which it falls");
            findings.problem(values.place(MIN), message);
        }
        SchedulerConfig::Sequential(phases) if values.sound(&[PHASES]) => {
            if phases.is_empty() {
                let message = format!("{PHASES} is empty: scheduler_type: sequential needs at least one phase");
                let place = values
                    .place(PHASES)
                    .or_else(|| values.place("training_config.scheduler_type"));
                findings.problem(place, message);
            }
            let open: Vec<String> = phases
                .iter()
                .enumerate()
                .filter(|(i, phase)| phase.steps.is_none() && i + 1 < phases.len())
                .map(|(i, _)| (i + 1).to_string())
                .collect();
            if !open.is_empty() {
                let message = format!(
                    "{PHASES}: phase {} of {} has no steps: only the last one may leave them out",
                    listed(&open, "and"),
                    phases.len()
                );
                findings.problem(values.place(PHASES), message);
            }
        }
        _ => {}
    }
}

/// The divisors of `whole` around `near`: "4 or 6".
fn nearest_divisors(whole: usize, near: usize) -> String {
    let divides = |d: &usize| whole.is_multiple_of(*d);
    let below = (1..=near.min(whole)).rev().take(1 << 16).find(divides);
    let above = (near..=whole).take(1 << 16).find(divides);
    both(below, above)
}

/// The multiples of `unit` around `near`.
fn nearest_multiples(near: usize, unit: usize) -> String {
    let below = near / unit * unit;
    both((below > 0).then_some(below), Some(below + unit))
}

fn both(below: Option<usize>, above: Option<usize>) -> String {
    let words: Vec<String> = [below, above].into_iter().flatten().map(|n| n.to_string()).collect();
    listed(&words, "or")
}
