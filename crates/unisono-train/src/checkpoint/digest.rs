//! The part of a configuration that changes the result.

use crate::config::{DataPath, RunConfig, RunnerType, SchedulerConfig, TrainingConfig};
use std::path::PathBuf;
use unisono_data::files::hash_bytes;
use unisono_kernels::bf16_order::Bf16Order;
use unisono_tensor::Dtype;

/// BLAKE3 of [`result_part`]: two runs with equal digests and equal data give equal bits at every step that both reach.
pub fn config_digest(config: &RunConfig) -> String {
    // Plain structs of numbers and texts always have a JSON form.
    let json = serde_json::to_string(&result_part(config)).expect("bug in unisono: a configuration has no JSON form");
    hash_bytes(json.as_bytes())
}

/// A configuration with everything set to one value that does not change a single bit of the training: mesh, workers,
/// how the effective batch is cut into micro-steps, recomputation, what is saved, shown and evaluated when. The data file's
/// name goes too (its contents have a digest of their own), and the run's length where the schedule does not depend on it.
pub fn result_part(config: &RunConfig) -> RunConfig {
    let default = RunConfig::default();
    let t = &config.training;
    let by_length = depends_on_length(&config.scheduler);
    RunConfig {
        training: TrainingConfig {
            seed: t.seed,
            batch_size: t.batch_size.saturating_mul(t.gradient_accumulation_steps),
            gradient_accumulation_steps: 1,
            max_steps: t.max_steps.filter(|_| by_length),
            // Where epochs rule, they also say which sequences of the last step are there.
            num_epochs: if t.max_steps.is_none() { t.num_epochs } else { 1 },
            data_path: match &t.data_path {
                DataPath::Path(_) => DataPath::Path(PathBuf::new()),
                other => other.clone(),
            },
            tokenizer_type: t.tokenizer_type,
            template: t.template.clone(),
            validation_fraction: t.validation_fraction,
            dtype: t.dtype,
            // Products of f32 have one order only.
            bf16_order: match t.dtype {
                Dtype::Bf16 => t.bf16_order,
                _ => Bf16Order::default(),
            },
            use_clip_grad_norm: t.use_clip_grad_norm,
            clip_grad_norm_max_norm: if t.use_clip_grad_norm {
                t.clip_grad_norm_max_norm
            } else {
                1.0
            },
            num_samples: t.num_samples,
            noise: t.noise,
            ..default.training
        },
        optimizer: config.optimizer.clone(),
        scheduler: config.scheduler.clone(),
        model: config.model.with_runner(RunnerType::Default),
        lora: config.lora.clone(),
        device: default.device,
        eval: default.eval,
        multihost: None,
    }
}

/// Whether the learning rate of a step depends on how many steps the run has.
fn depends_on_length(scheduler: &SchedulerConfig) -> bool {
    match scheduler {
        SchedulerConfig::Identity | SchedulerConfig::Step { .. } => false,
        SchedulerConfig::WarmupLinear | SchedulerConfig::WarmupHoldDecay { .. } => true,
        SchedulerConfig::Cosine { steps, .. } | SchedulerConfig::Linear { steps, .. } => steps.is_none(),
        SchedulerConfig::Sequential(phases) => {
            // A cosine or line is as long as its phase; only the last may be as long as the rest of the run.
            phases
                .iter()
                .any(|phase| phase.steps.is_none() && depends_on_length(&phase.schedule))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut RunConfig)) -> String {
        let mut config = RunConfig::default();
        change(&mut config);
        config_digest(&config)
    }

    #[test]
    fn layout_and_bookkeeping_do_not_show() {
        let plain = with(|_| ());
        assert_eq!(plain, with(|c| c.device.mesh_shape = vec![2, 4]));
        assert_eq!(plain, with(|c| c.training.keep_last = 9));
        assert_eq!(plain, with(|c| c.eval.temperature = 0.5));
        assert_eq!(plain, with(|c| c.training.max_steps = Some(77)));
        assert_eq!(
            plain,
            with(|c| c.training.bf16_order = Bf16Order::Tiles),
            "of an f32 run"
        );
        assert_eq!(
            plain,
            with(|c| {
                c.training.batch_size /= 4;
                c.training.gradient_accumulation_steps *= 4;
            })
        );
    }

    #[test]
    fn what_changes_the_result_shows() {
        let plain = with(|_| ());
        assert_ne!(plain, with(|c| c.training.seed += 1));
        assert_ne!(plain, with(|c| c.training.batch_size *= 2));
        assert_ne!(
            plain,
            with(|c| c.training.use_clip_grad_norm = !c.training.use_clip_grad_norm)
        );
        assert_ne!(plain, with(|c| c.scheduler = SchedulerConfig::WarmupLinear));
        let bf16 = |order| {
            with(|c| {
                c.training.dtype = Dtype::Bf16;
                c.training.bf16_order = order;
            })
        };
        assert_ne!(bf16(Bf16Order::Pairs), bf16(Bf16Order::Tiles));
        let long = |steps| {
            with(|c| {
                c.scheduler = SchedulerConfig::WarmupLinear;
                c.training.max_steps = Some(steps);
            })
        };
        assert_ne!(long(100), long(200), "the schedule stretches over the run");
    }
}
