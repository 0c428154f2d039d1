//! The keys on which two configurations differ, and whether that may show in the result.

use super::effective_batch;
use crate::checkpoint::result_part;
use crate::config::{RunConfig, differing_keys};
use serde::Serialize;

/// What a key is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It changes the result.
    Result,
    /// Where and how the same result is computed: mesh, workers, micro-steps, recomputation. It must show in no bit.
    Layout,
    /// What is saved, shown, evaluated and named, and how long the run is.
    Other,
}

/// A key on which two configurations differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyDifference {
    /// Its full name.
    pub key: &'static str,
    /// Its value in the first run, as YAML.
    pub a: String,
    /// Its value in the second.
    pub b: String,
    /// What it is about.
    pub role: Role,
}

/// The differences, those that change the result first.
pub(super) fn differences(a: &RunConfig, b: &RunConfig) -> Vec<KeyDifference> {
    let of_result = differing_keys(&result_part(a), &result_part(b));
    let same_batch = effective_batch(a) == effective_batch(b);
    let mut differences: Vec<KeyDifference> = differing_keys(a, b)
        .into_iter()
        .map(|difference| KeyDifference {
            key: difference.key,
            role: match difference.key {
                // Only their product counts.
                "training_config.batch_size" | "training_config.gradient_accumulation_steps" => match same_batch {
                    true => Role::Layout,
                    false => Role::Result,
                },
                "transformer_config.runner_type" => Role::Layout,
                key if key.starts_with("device_config.") => Role::Layout,
                key if of_result.iter().any(|d| d.key == key) => Role::Result,
                _ => Role::Other,
            },
            a: difference.a,
            b: difference.b,
        })
        .collect();
    differences.sort_by_key(|difference| difference.role as u8);
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_know_whether_they_may_show() {
        let a = RunConfig::default();
        let mut b = a.clone();
        b.device.mesh_shape = vec![1, 2];
        b.device.enable_tp = true;
        b.training.gradient_accumulation_steps = 4;
        b.training.batch_size = a.training.batch_size / 4;
        b.training.log_every += 1;
        b.training.seed += 1;
        let roles = |a: &RunConfig, b: &RunConfig| -> Vec<(&str, Role)> {
            differences(a, b).iter().map(|d| (d.key, d.role)).collect()
        };
        assert_eq!(
            roles(&a, &b),
            [
                ("training_config.seed", Role::Result),
                ("training_config.batch_size", Role::Layout),
                ("training_config.gradient_accumulation_steps", Role::Layout),
                ("device_config.mesh_shape", Role::Layout),
                ("device_config.enable_tp", Role::Layout),
                ("training_config.log_every", Role::Other),
            ]
        );
        b.training.batch_size *= 2;
        assert_eq!(roles(&a, &b)[0], ("training_config.seed", Role::Result));
        assert_eq!(roles(&a, &b)[1], ("training_config.batch_size", Role::Result));
        assert!(differences(&a, &a).is_empty());
    }
}
