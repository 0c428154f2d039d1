//! `metrics.jsonl`, line by line.

use super::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use unisono_data::DataError;

/// What of a line does not depend on time and machine. A number that is none (NaN) reads as absent.
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
    let mut reader = BufReader::new(std::fs::File::open(path).map_err(failed)?);
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
    comparison
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
    let absent = || ("not a number".to_string(), "-".to_string());
    let single = |x: Option<f32>| x.map_or_else(absent, |x| (x.to_string(), format!("{:08x}", x.to_bits())));
    let double = |x: Option<f64>| x.map_or_else(absent, |x| (x.to_string(), format!("{:016x}", x.to_bits())));
    of("sequences", integer(a.sequences), integer(b.sequences))
        .or_else(|| of("tokens", integer(a.tokens), integer(b.tokens)))
        .or_else(|| of("loss", single(a.loss), single(b.loss)))
        .or_else(|| of("grad_norm", single(a.grad_norm), single(b.grad_norm)))
        .or_else(|| of("lr", double(a.lr), double(b.lr)))
}
