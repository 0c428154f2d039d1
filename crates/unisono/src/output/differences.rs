//! Two configurations side by side: the keys that differ, and what the square-root rule says of the learning rate.

use super::Out;
use serde::Serialize;
use unisono_train::config::{RunConfig, differing_keys, sqrt_rule_lr, two_digits};

/// How two configurations differ.
#[derive(Debug, Serialize)]
pub struct Differences {
    /// Key, value in the first, value in the second.
    pub keys: Vec<(String, String, String)>,
    /// Effective batches.
    pub effective: (usize, usize),
    /// The learning rate that suits the second's batch, going by the first's.
    pub suggested_lr: Option<f64>,
}

impl Differences {
    /// Of two configurations.
    pub fn of(a: &RunConfig, b: &RunConfig) -> Differences {
        let effective = |config: &RunConfig| config.training.batch_size * config.training.gradient_accumulation_steps;
        let (from, to) = (effective(a), effective(b));
        let lr = a.optimizer.rule.lr();
        Differences {
            keys: differing_keys(a, b)
                .into_iter()
                .map(|d| (d.key.to_string(), d.a, d.b))
                .collect(),
            effective: (from, to),
            suggested_lr: (from != to && lr > 0.0).then(|| sqrt_rule_lr(lr, from, to)),
        }
    }

    /// Prints them; `a` and `b` are the names of the two.
    pub fn print(&self, out: &Out, a: &str, b: &str, lr: f64) {
        if self.keys.is_empty() {
            out.result(format!("{a} and {b} have equal configurations"));
            return;
        }
        out.result(format!("keys that differ, {a} → {b}:"));
        let width = self.keys.iter().map(|(key, ..)| key.chars().count()).max().unwrap_or(0);
        for (key, a, b) in &self.keys {
            out.result(format!("  {key:width$}  {a} → {b}"));
        }
        if let Some(suggested) = self.suggested_lr {
            let (from, to) = self.effective;
            out.result(format!(
                "effective batch {from} → {to}: by the square-root rule the learning rate goes {} → {}",
                format_args!("{lr:e}"),
                two_digits(suggested)
            ));
        }
    }
}
