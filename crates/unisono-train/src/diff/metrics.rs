//! `metrics.jsonl`, line by line.

use super::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use unisono_data::DataError;
use unisono_data::files::open_regular;

/// What of a line does not depend on time and machine. What is `null` (no loss where every target is masked) is absent.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Line {
    pub step: u64,
    pub loss: Option<f32>,
    pub lr: Option<f64>,
    pub grad_norm: Option<f32>,
    pub sequences: u64,
    pub tokens: u64,
}

/// How the metrics compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetricsComparison {
    /// Steps that both runs have.
    pub steps: u64,
    /// The first of them.
    pub from: u64,
    /// The last of them.
    pub to: u64,
    /// The first difference.
    pub first: Option<MetricDifference>,
    /// Steps that differ in anything.
    pub differing: u64,
    /// Steps that the first run's metrics lack between the first and the last step that both could have, as spans from
    /// a step to a step.
    pub missing_in_a: Vec<(u64, u64)>,
    /// Steps that the second's lack there.
    pub missing_in_b: Vec<(u64, u64)>,
}

/// A quantity of a step that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricDifference {
    /// The step.
    pub step: u64,
    /// `sequences`, `tokens`, `loss`, `grad_norm` or `lr`.
    pub quantity: &'static str,
    /// Its value in the first run.
    pub a: String,
    /// Its value in the second.
    pub b: String,
    /// The bits of the first, in hex.
    pub a_bits: String,
    /// The bits of the second.
    pub b_bits: String,
}

/// Reads the lines by step, a later line of a step in place of an earlier one, and says what was passed over.
pub(super) fn read(path: &Path) -> Result<(BTreeMap<u64, Line>, Vec<String>)> {
    let failed = |error: std::io::Error| DataError::read(path, &error);
    let (mut lines, mut notes) = (BTreeMap::new(), Vec::new());
    if !path.exists() {
        notes.push(format!("{} is not there", path.display()));
        return Ok((lines, notes));
    }
    let mut reader = BufReader::new(open_regular(path)?);
    let (mut text, mut number, mut bad) = (Vec::new(), 0u64, Vec::new());
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text).map_err(failed)? == 0 {
            break;
        }
        number += 1;
        match serde_json::from_slice::<Line>(&text) {
            Ok(line) => {
                lines.insert(line.step, line);
            }
            Err(_) if text.trim_ascii().is_empty() => {}
            Err(_) => bad.push(number),
        }
    }
    if let Some(first) = bad.first() {
        notes.push(format!(
            "{} of the {number} lines of {} are no steps and were passed over, the first is line {first}",
            bad.len(),
            path.display()
        ));
    }
    Ok((lines, notes))
}

/// Compares the steps that both have.
pub(super) fn compare(a: &BTreeMap<u64, Line>, b: &BTreeMap<u64, Line>) -> MetricsComparison {
    let mut comparison = MetricsComparison::default();
    for (step, line) in a {
        let Some(other) = b.get(step) else { continue };
        if comparison.steps == 0 {
            comparison.from = *step;
        }
        comparison.to = *step;
        comparison.steps += 1;
        if let Some(difference) = first_difference(line, other) {
            comparison.differing += 1;
            comparison.first.get_or_insert(difference);
        }
    }
    if let (Some(a_range), Some(b_range)) = (range(a), range(b)) {
        let common = (a_range.0.max(b_range.0), a_range.1.min(b_range.1));
        comparison.missing_in_a = gaps(a, common);
        comparison.missing_in_b = gaps(b, common);
    }
    comparison
}

/// The first and the last step.
fn range(lines: &BTreeMap<u64, Line>) -> Option<(u64, u64)> {
    Some((*lines.first_key_value()?.0, *lines.last_key_value()?.0))
}

/// The steps from one to another that are not there, as spans.
fn gaps(lines: &BTreeMap<u64, Line>, (from, to): (u64, u64)) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    if from > to {
        return gaps;
    }
    let mut next = from;
    for step in lines.range(from..=to).map(|(step, _)| *step) {
        if step > next {
            gaps.push((next, step - 1));
        }
        next = step.saturating_add(1);
    }
    // After the very last step there is none, and `next` stays on it.
    if next <= to && !lines.contains_key(&to) {
        gaps.push((next, to));
    }
    gaps
}

/// `step 3`, `steps 3 to 5`, `steps 3, 5 to 8`; the first three spans, and how many more there are.
pub(super) fn spans(spans: &[(u64, u64)]) -> String {
    let shown: Vec<String> = spans
        .iter()
        .take(3)
        .map(|(from, to)| match from == to {
            true => from.to_string(),
            false => format!("{from} to {to}"),
        })
        .collect();
    let more = match spans.len().saturating_sub(3) {
        0 => String::new(),
        more => format!(" and {more} more such spans"),
    };
    let word = match spans {
        [(from, to)] if from == to => "step",
        _ => "steps",
    };
    format!("{word} {}{more}", shown.join(", "))
}

fn first_difference(a: &Line, b: &Line) -> Option<MetricDifference> {
    let of = |quantity, (x, x_bits): (String, String), (y, y_bits): (String, String)| {
        (x_bits != y_bits).then_some(MetricDifference {
            step: a.step,
            quantity,
            a: x,
            b: y,
            a_bits: x_bits,
            b_bits: y_bits,
        })
    };
    let integer = |x: u64| (x.to_string(), format!("{x:x}"));
    let absent = || ("none".to_string(), "-".to_string());
    let single = |x: Option<f32>| x.map_or_else(absent, |x| (x.to_string(), format!("{:08x}", x.to_bits())));
    let double = |x: Option<f64>| x.map_or_else(absent, |x| (x.to_string(), format!("{:016x}", x.to_bits())));
    of("sequences", integer(a.sequences), integer(b.sequences))
        .or_else(|| of("tokens", integer(a.tokens), integer(b.tokens)))
        .or_else(|| of("loss", single(a.loss), single(b.loss)))
        .or_else(|| of("grad_norm", single(a.grad_norm), single(b.grad_norm)))
        .or_else(|| of("lr", double(a.lr), double(b.lr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(steps: &[u64]) -> BTreeMap<u64, Line> {
        let line = |step: u64| Line {
            step,
            loss: Some(1.0),
            lr: None,
            grad_norm: None,
            sequences: step,
            tokens: step,
        };
        steps.iter().map(|step| (*step, line(*step))).collect()
    }

    #[test]
    fn gaps_are_found_at_both_ends_and_without_counting_through_them() {
        for (a, b, in_a, in_b) in [
            (&[1, 2, 3, 4][..], &[1, 2, 3, 4, 5, 6][..], &[][..], &[][..]),
            (&[1, 2, 6], &[1, 2, 3, 4, 5, 6], &[(3, 5)], &[]),
            (&[1, 9], &[3, 5], &[(3, 5)], &[(4, 4)]),
            (
                &[1, u64::MAX],
                &[1, u64::MAX],
                &[(2, u64::MAX - 1)],
                &[(2, u64::MAX - 1)],
            ),
            (&[1, 2], &[5, 6], &[], &[]),
            (&[], &[5, 6], &[], &[]),
        ] {
            let comparison = compare(&lines(a), &lines(b));
            assert_eq!(
                (&comparison.missing_in_a[..], &comparison.missing_in_b[..]),
                (in_a, in_b)
            );
        }
        assert_eq!(spans(&[(3, 3)]), "step 3");
        assert_eq!(
            spans(&[(3, 5), (7, 7), (9, 9), (11, 11)]),
            "steps 3 to 5, 7, 9 and 1 more such spans"
        );
    }
}
