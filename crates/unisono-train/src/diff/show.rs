//! The report as a text for people.

use super::{
    BatchComparison, CheckpointComparison, KeyDifference, MetricsComparison, Report, Role, Side, TensorDifference,
    result_keys,
};
use crate::checkpoint::three;
use crate::config::two_digits;
use std::fmt::{self, Display, Formatter};

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        side(f, "A", &self.a)?;
        side(f, "B", &self.b)?;
        keys(f, &self.keys)?;
        match &self.batches {
            Some(comparison) => batches(f, comparison)?,
            None => {
                metrics(f, &self.metrics)?;
                checkpoints(f, &self.checkpoints)?;
            }
        }
        for note in &self.notes {
            writeln!(f, "Note: {note}.")?;
        }
        for answer in &self.answers {
            writeln!(f, "Prompt {:?}", answer.prompt)?;
            match answer.a == answer.b {
                true => writeln!(f, "  A and B: {:?}", answer.a)?,
                false => writeln!(f, "  A: {:?}\n  B: {:?}", answer.a, answer.b)?,
            }
        }
        writeln!(f, "{}", verdict(self))
    }
}

/// The last line, which claims no more than was compared.
fn verdict(report: &Report) -> String {
    let tensors = !report.checkpoints.steps.is_empty();
    if report.batches.is_some() {
        return "Different by their batches.".to_string();
    }
    if report.metrics.first.is_some() || report.checkpoints.first.is_some() {
        return "Different.".to_string();
    }
    if !report.identical {
        let MetricsComparison { steps, from, to, .. } = report.metrics;
        let mut compared = Vec::new();
        if steps > 0 {
            compared.push(format!("the metrics of {}", common_steps(steps, from, to)));
        }
        if tensors {
            compared.push(format!("the tensors of {}", of_steps(&report.checkpoints.steps)));
        }
        return format!(
            "Equal in what could be compared: {}; missing: {}.",
            compared.join(" and "),
            report.missing.join("; ")
        );
    }
    let keys = match result_keys(&report.keys) {
        keys if keys.is_empty() => String::new(),
        keys => format!(", though keys that change the result differ ({})", keys.join(", ")),
    };
    match tensors {
        true => format!("Identical, bit by bit{keys}."),
        false => format!("Identical, bit by bit, in their metrics{keys}; no tensors were compared."),
    }
}

/// `the one common step (3)`, `4 common steps (1 to 4)`.
fn common_steps(steps: u64, from: u64, to: u64) -> String {
    match steps {
        1 => format!("the one common step ({from})"),
        _ => format!("{steps} common steps ({from} to {to})"),
    }
}

fn side(f: &mut Formatter<'_>, name: &str, side: &Side) -> fmt::Result {
    let isa = side.isa.as_ref().map_or(String::new(), |isa| format!(", {isa}"));
    let checkpoints = match side.checkpoints.as_slice() {
        [] => "no checkpoints".to_string(),
        steps => format!(
            "{} of {}",
            if steps.len() == 1 { "checkpoint" } else { "checkpoints" },
            of_steps(steps)
        ),
    };
    writeln!(
        f,
        "{name}: {}: {} of {}, {}{isa}, {checkpoints}",
        side.path,
        counted(side.steps, "step"),
        counted(side.effective_batch as u64, "sequence"),
        side.mesh
    )
}

fn keys(f: &mut Formatter<'_>, keys: &[KeyDifference]) -> fmt::Result {
    if keys.is_empty() {
        return writeln!(f, "Configuration: the same.");
    }
    let parts = [
        (Role::Result, "Configuration: keys that change the result:"),
        (
            Role::Layout,
            "Configuration: keys of the layout, which must show in no bit:",
        ),
        (Role::Other, "Configuration: keys that change nothing in a step:"),
    ];
    for (role, title) in parts {
        let of_role: Vec<&KeyDifference> = keys.iter().filter(|key| key.role == role).collect();
        if !of_role.is_empty() {
            writeln!(f, "{title}")?;
        }
        for key in of_role {
            writeln!(f, "  {}: {} in A, {} in B", key.key, key.a, key.b)?;
        }
    }
    Ok(())
}

fn metrics(f: &mut Formatter<'_>, metrics: &MetricsComparison) -> fmt::Result {
    let MetricsComparison { steps, from, to, .. } = metrics;
    let common = common_steps(*steps, *from, *to);
    match &metrics.first {
        None if *steps == 0 => writeln!(f, "Metrics: no common step."),
        None => writeln!(
            f,
            "Metrics: loss, grad_norm, lr, sequences and tokens of {common} are equal."
        ),
        Some(first) => writeln!(
            f,
            "Metrics: the first difference is at step {}: {} is {} ({}) in A and {} ({}) in B; {} of {common} differ.",
            first.step, first.quantity, first.a, first.a_bits, first.b, first.b_bits, metrics.differing
        ),
    }
}

fn checkpoints(f: &mut Formatter<'_>, comparison: &CheckpointComparison) -> fmt::Result {
    let CheckpointComparison { steps, tensors, .. } = comparison;
    match &comparison.first {
        None if steps.is_empty() => writeln!(f, "Checkpoints: no common step."),
        None => writeln!(
            f,
            "Checkpoints: all {tensors} tensors (parameters and optimizer state) of {} are equal.",
            of_steps(steps)
        ),
        Some(TensorDifference::Tables { step, problems }) => {
            writeln!(
                f,
                "Checkpoints: those of step {step} hold different tensors: {}.",
                three(problems)
            )
        }
        Some(TensorDifference::Values {
            step,
            tensor,
            index,
            a,
            b,
            a_bits,
            b_bits,
            differing_values,
            values,
            differing_tensors,
        }) => {
            let before = match &steps[..steps.len().saturating_sub(1)] {
                [] => String::new(),
                equal => format!(" Those of {} are equal.", of_steps(equal)),
            };
            writeln!(
                f,
                "Checkpoints: the first difference is at step {step}: `{tensor}`{index:?} is {a} ({a_bits}) in A and {b} ({b_bits}) \
                 in B; {differing_values} of its {values} values and {differing_tensors} of {tensors} tensors differ.{before}"
            )
        }
    }
}

fn batches(f: &mut Formatter<'_>, comparison: &BatchComparison) -> fmt::Result {
    let BatchComparison { a, b, points, .. } = comparison;
    writeln!(f, "Batches: {a} sequences a step in A, {b} in B.")?;
    if !points.is_empty() {
        writeln!(
            f,
            "{:>12} {:>10} {:>10} {:>12} {:>12} {:>10}",
            "sequences", "step A", "step B", "loss A", "loss B", "B - A"
        )?;
    }
    for p in points {
        writeln!(
            f,
            "{:>12} {:>10} {:>10} {:>12.6} {:>12.6} {:>+10.6}",
            p.sequences, p.step_a, p.step_b, p.loss_a, p.loss_b, p.gap
        )?;
    }
    writeln!(
        f,
        "Square-root rule: {} for {a} sequences becomes {} for {b}; B has {}.",
        two_digits(comparison.lr_a),
        two_digits(comparison.sqrt_rule_lr),
        two_digits(comparison.lr_b)
    )
}

/// `step 5`, `steps 5, 10`.
fn of_steps(steps: &[u64]) -> String {
    format!("{} {}", if steps.len() == 1 { "step" } else { "steps" }, listed(steps))
}

/// `1 step`, `5 steps`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn listed(steps: &[u64]) -> String {
    steps.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
