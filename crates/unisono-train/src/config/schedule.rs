//! The learning-rate schedule from `training_config.scheduler_type` and `scheduler_config`.

use super::error::Findings;
use super::types::{Phase, SchedulerConfig};
use super::value::Value;
use super::values::Values;
use std::collections::BTreeMap;

/// Which keys of `scheduler_config` a schedule reads.
fn keys_of_schedule(word: &str) -> &'static [&'static str] {
    match word {
        "warmup_hold_decay" => &[
            "scheduler_config.max_lr",
            "scheduler_config.min_lr",
            "scheduler_config.warmup_steps",
            "scheduler_config.hold_steps",
        ],
        "cosine" => &["scheduler_config.min_lr", "scheduler_config.steps"],
        "step" => &["scheduler_config.step_size", "scheduler_config.gamma"],
        "linear" => &[
            "scheduler_config.start_factor",
            "scheduler_config.end_factor",
            "scheduler_config.steps",
        ],
        "sequential" => &["scheduler_config.phases"],
        _ => &[],
    }
}

/// The keys of all schedules.
const SCHEDULE_KEYS: &[&str] = &[
    "scheduler_config.max_lr",
    "scheduler_config.min_lr",
    "scheduler_config.warmup_steps",
    "scheduler_config.hold_steps",
    "scheduler_config.steps",
    "scheduler_config.step_size",
    "scheduler_config.gamma",
    "scheduler_config.start_factor",
    "scheduler_config.end_factor",
    "scheduler_config.phases",
];

/// Reads the schedule; keys that do not belong to it are reported.
pub(super) fn scheduler(values: &Values, findings: &mut Findings) -> SchedulerConfig {
    const TYPE: &str = "training_config.scheduler_type";
    let chosen = values.given(TYPE);
    let implied = keys_of_schedule("warmup_hold_decay")
        .iter()
        .any(|key| values.given(key));
    let word = if !chosen && implied {
        "warmup_hold_decay".to_string()
    } else {
        values.word(TYPE)
    };
    if values.sound(&[TYPE]) {
        for key in SCHEDULE_KEYS
            .iter()
            .filter(|key| values.given(key) && !keys_of_schedule(&word).contains(key))
        {
            let why = match values.place(TYPE) {
                Some(place) => format!("{TYPE} is {word} at {place}"),
                None => format!("{TYPE} is not given, which makes it {word}"),
            };
            findings.problem(
                values.place(key),
                format!("{key} does not belong to the schedule: {why}; remove one"),
            );
        }
    }
    match word.as_str() {
        "warmup_linear" => SchedulerConfig::WarmupLinear,
        "warmup_hold_decay" => {
            let max_lr = values.real("scheduler_config.max_lr");
            if let Some(place) = values.place("training_config.optimizer.lr") {
                let lr = values.real("training_config.optimizer.lr");
                let message = format!(
                    "the optimizer's learning rate {lr:?} is not used: scheduler_config sets the rate, up to \
                     max_lr {max_lr:?}"
                );
                findings.note(Some(place), message);
            }
            SchedulerConfig::WarmupHoldDecay {
                max_lr,
                min_lr: values.real("scheduler_config.min_lr"),
                warmup_steps: values.int("scheduler_config.warmup_steps"),
                hold_steps: values.int("scheduler_config.hold_steps"),
            }
        }
        "cosine" => SchedulerConfig::Cosine {
            min_lr: values.real("scheduler_config.min_lr"),
            steps: values.maybe_int("scheduler_config.steps"),
        },
        "step" => SchedulerConfig::Step {
            step_size: values.int("scheduler_config.step_size"),
            gamma: values.real("scheduler_config.gamma"),
        },
        "linear" => SchedulerConfig::Linear {
            start_factor: values.real("scheduler_config.start_factor"),
            end_factor: values.real("scheduler_config.end_factor"),
            steps: values.maybe_int("scheduler_config.steps"),
        },
        "sequential" => match values.value("scheduler_config.phases") {
            Some(Value::Phases(phases)) => SchedulerConfig::Sequential(phases.iter().map(phase).collect()),
            _ => SchedulerConfig::Sequential(Vec::new()),
        },
        _ => SchedulerConfig::Identity,
    }
}

fn phase(given: &BTreeMap<&'static str, Value>) -> Phase {
    let real = |name: &str, default: f64| match given.get(name) {
        Some(Value::Real(real)) => *real,
        _ => default,
    };
    let int = |name: &str| match given.get(name) {
        Some(Value::Int(int)) => u64::try_from(*int).ok(),
        _ => None,
    };
    let schedule = match given.get("type") {
        Some(Value::Text(word)) if word == "cosine" => SchedulerConfig::Cosine {
            min_lr: real("min_lr", 0.0),
            steps: None,
        },
        Some(Value::Text(word)) if word == "step" => SchedulerConfig::Step {
            step_size: int("step_size").unwrap_or(1000),
            gamma: real("gamma", 0.1),
        },
        Some(Value::Text(word)) if word == "linear" => SchedulerConfig::Linear {
            start_factor: real("start_factor", 1.0),
            end_factor: real("end_factor", 0.0),
            steps: None,
        },
        _ => SchedulerConfig::Identity,
    };
    Phase {
        steps: int("steps"),
        schedule,
    }
}
