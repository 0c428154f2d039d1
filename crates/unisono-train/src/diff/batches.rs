//! Runs whose optimizer steps hold different numbers of sequences.

use super::effective_batch;
use super::metrics::Line;
use super::run::RunDirectory;
use crate::config::{RunConfig, SchedulerConfig, sqrt_rule_lr};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most points that are shown.
const POINTS: usize = 10;

/// How runs of another effective batch compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchComparison {
    /// Sequences of an optimizer step of the first run.
    pub a: usize,
    /// Of the second.
    pub b: usize,
    /// Losses at numbers of sequences that both have seen, evenly spread up to the last.
    pub points: Vec<Point>,
    /// The first run's base learning rate.
    pub lr_a: f64,
    /// The second's.
    pub lr_b: f64,
    /// What the square-root rule makes of the first run's for the second's batch: `lr × √(batch b / batch a)`.
    pub sqrt_rule_lr: f64,
}

/// The losses at a number of sequences seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Sequences seen.
    pub sequences: u64,
    /// The first run's step there.
    pub step_a: u64,
    /// The second's.
    pub step_b: u64,
    /// The first run's loss.
    pub loss_a: f32,
    /// The second's.
    pub loss_b: f32,
    /// The second's minus the first's.
    pub gap: f64,
}

/// Aligns two runs by sequences seen.
pub(super) fn compare(a: &RunDirectory, b: &RunDirectory) -> BatchComparison {
    let (batch_a, batch_b) = (effective_batch(&a.config), effective_batch(&b.config));
    let lr_a = base_lr(&a.config);
    BatchComparison {
        a: batch_a,
        b: batch_b,
        points: spread(points(&a.metrics, &b.metrics)),
        lr_a,
        lr_b: base_lr(&b.config),
        sqrt_rule_lr: sqrt_rule_lr(lr_a, batch_a, batch_b),
    }
}

fn points(a: &BTreeMap<u64, Line>, b: &BTreeMap<u64, Line>) -> Vec<Point> {
    let by_sequences: BTreeMap<u64, &Line> = b.values().map(|line| (line.sequences, line)).collect();
    a.values()
        .filter_map(|line| {
            let other = by_sequences.get(&line.sequences)?;
            let (loss_a, loss_b) = (line.loss?, other.loss?);
            Some(Point {
                sequences: line.sequences,
                step_a: line.step,
                step_b: other.step,
                loss_a,
                loss_b,
                gap: f64::from(loss_b) - f64::from(loss_a),
            })
        })
        .collect()
}

/// At most [`POINTS`] of the points, evenly spread, the last among them.
fn spread(points: Vec<Point>) -> Vec<Point> {
    let count = points.len();
    let shown = count.min(POINTS);
    (1..=shown).map(|i| points[i * count / shown - 1]).collect()
}

/// The learning rate that the schedule multiplies, or its highest.
fn base_lr(config: &RunConfig) -> f64 {
    match config.scheduler {
        SchedulerConfig::WarmupHoldDecay { max_lr, .. } => max_lr,
        _ => config.optimizer.rule.lr(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(batch: u64, steps: u64) -> BTreeMap<u64, Line> {
        let line = |step: u64| Line {
            step,
            loss: Some(step as f32),
            lr: None,
            grad_norm: None,
            sequences: step * batch,
            tokens: 0,
        };
        (1..=steps).map(|step| (step, line(step))).collect()
    }

    #[test]
    fn points_are_where_both_have_seen_the_same_number() {
        let found = points(&run(4, 9), &run(6, 9));
        let at: Vec<(u64, u64, u64)> = found.iter().map(|p| (p.sequences, p.step_a, p.step_b)).collect();
        assert_eq!(at, [(12, 3, 2), (24, 6, 4), (36, 9, 6)]);
        assert_eq!(found[1].gap, -2.0);
        assert_eq!(
            spread(points(&run(1, 95), &run(1, 95))).last().map(|p| p.sequences),
            Some(95)
        );
        assert_eq!(spread(points(&run(1, 95), &run(1, 95))).len(), POINTS);
        assert!(spread(points(&run(1, 3), &run(5, 3))).is_empty());
    }
}
