//! Rows of the optimizer and the schedules.

use super::{Choice, Key, Kind, OFF, Range, built, int, later, no_meaning, not_built, read, same_as};

const PHASES: &[Choice] = &[built("identity"), built("cosine"), built("step"), built("linear")];

const OPTIMIZERS: &[Choice] = &[
    built("AdamW"),
    same_as("AdamWFullPrecision", "AdamW", "all state is f32 here"),
    same_as("MorehAdamW", "AdamW", "it is another kernel for the same arithmetic"),
    same_as(
        "AdamWComposite",
        "AdamW",
        "it is the same arithmetic from smaller operations",
    ),
    built("SGD"),
    same_as(
        "SGDComposite",
        "SGD",
        "it is the same arithmetic from smaller operations",
    ),
    built("NoOp"),
    later("Muon"),
    later("MuonComposite"),
    later("MuonWithAuxAdam"),
];

/// See the module.
pub const KEYS: &[Key] = &[
    // The optimizer.
    read(
        "training_config.optimizer.type",
        Kind::Choice(OPTIMIZERS),
        "AdamW",
        "The rule. AdamWFullPrecision, MorehAdamW, AdamWComposite and SGDComposite are the same arithmetic as \
         AdamW and SGD.",
    ),
    read(
        "training_config.optimizer.lr",
        Kind::Real(Range::NonNegative),
        "0.001",
        "Learning rate. (tt-train's README and old flat keys: 3e-4.)",
    ),
    read(
        "training_config.optimizer.beta1",
        Kind::Real(Range::BelowOne),
        "0.9",
        "AdamW: decay of the first moment.",
    ),
    read(
        "training_config.optimizer.beta2",
        Kind::Real(Range::BelowOne),
        "0.999",
        "AdamW: decay of the second moment.",
    ),
    read(
        "training_config.optimizer.epsilon",
        Kind::Real(Range::NonNegative),
        "1e-8",
        "AdamW: added to the root of the second moment.",
    ),
    read(
        "training_config.optimizer.weight_decay",
        Kind::Real(Range::NonNegative),
        "",
        "Weight decay: decoupled for AdamW (default 0.01), added to the gradient for SGD (default 0).",
    ),
    read(
        "training_config.optimizer.momentum",
        Kind::Real(Range::NonNegative),
        "0.0",
        "SGD: momentum.",
    ),
    read(
        "training_config.optimizer.dampening",
        Kind::Real(Range::Unit),
        "0.0",
        "SGD: dampening of the momentum.",
    ),
    read(
        "training_config.optimizer.nesterov",
        Kind::Flag,
        "false",
        "SGD: Nesterov's momentum.",
    ),
    read(
        "training_config.optimizer.decay_norms_and_biases",
        Kind::Flag,
        "false",
        "Whether weight decay also touches norms' gains and all biases. Unisono's own key.",
    ),
    not_built("training_config.optimizer.amsgrad", OFF, "AdamW with amsgrad"),
    not_built(
        "training_config.optimizer.stochastic_rounding",
        OFF,
        "AdamW with stochastic rounding",
    ),
    not_built(
        "training_config.optimizer.kahan_summation",
        OFF,
        "AdamW with Kahan summation",
    ),
    no_meaning("training_config.optimizer.ns_steps", "only Muon has it"),
    // Schedules.
    read(
        "scheduler_config.max_lr",
        Kind::Real(Range::Positive),
        "0.001",
        "warmup_hold_decay: the highest learning rate.",
    ),
    read(
        "scheduler_config.min_lr",
        Kind::Real(Range::NonNegative),
        "0.0",
        "warmup_hold_decay: the last step's learning rate. cosine: the rate that it falls to, which the step behind its last would have.",
    ),
    read(
        "scheduler_config.warmup_steps",
        int(0),
        "100",
        "warmup_hold_decay: steps of the way up.",
    ),
    read(
        "scheduler_config.hold_steps",
        int(0),
        "0",
        "warmup_hold_decay: steps at the top.",
    ),
    read(
        "scheduler_config.steps",
        int(1),
        "",
        "cosine and linear: their length. Default: the whole run.",
    ),
    read(
        "scheduler_config.step_size",
        int(1),
        "1000",
        "step: optimizer steps between two drops.",
    ),
    read(
        "scheduler_config.gamma",
        Kind::Real(Range::Positive),
        "0.1",
        "step: the factor of a drop.",
    ),
    read(
        "scheduler_config.start_factor",
        Kind::Real(Range::NonNegative),
        "1.0",
        "linear: factor at the start.",
    ),
    read(
        "scheduler_config.end_factor",
        Kind::Real(Range::NonNegative),
        "0.0",
        "linear: factor at the end, which the step behind its last would have.",
    ),
    read(
        "scheduler_config.phases",
        Kind::Phases,
        "",
        "sequential: a list of phases.",
    ),
    read(
        "scheduler_config.phases[].type",
        Kind::Choice(PHASES),
        "identity",
        "The phase's schedule.",
    ),
    read(
        "scheduler_config.phases[].steps",
        int(1),
        "",
        "Its length; only the last phase may leave it out, which means the rest of the run.",
    ),
    read(
        "scheduler_config.phases[].min_lr",
        Kind::Real(Range::NonNegative),
        "0.0",
        "cosine: the rate that it falls to, which the step behind its last would have.",
    ),
    read(
        "scheduler_config.phases[].step_size",
        int(1),
        "1000",
        "step: optimizer steps between two drops.",
    ),
    read(
        "scheduler_config.phases[].gamma",
        Kind::Real(Range::Positive),
        "0.1",
        "step: the factor of a drop.",
    ),
    read(
        "scheduler_config.phases[].start_factor",
        Kind::Real(Range::NonNegative),
        "1.0",
        "linear: factor at the start.",
    ),
    read(
        "scheduler_config.phases[].end_factor",
        Kind::Real(Range::NonNegative),
        "0.0",
        "linear: factor at the end, which the step behind its last would have.",
    ),
    not_built("scheduler_config.beta1_warmup_steps", &["0"], "a schedule of beta1"),
    no_meaning(
        "scheduler_config.beta1_start",
        "a schedule of beta1 is not built yet (beta1_warmup_steps: 0 is off)",
    ),
    no_meaning(
        "scheduler_config.beta1_end",
        "a schedule of beta1 is not built yet (beta1_warmup_steps: 0 is off)",
    ),
];
