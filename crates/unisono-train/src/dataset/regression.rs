//! Rows of numbers with a linear law and noise.

use super::{Rows, StepData};
use crate::config::{ModelConfig, RunConfig};
use crate::error::{Result, TrainError};
use unisono_kernels::philox::Stream;

/// Random sites of synthetic rows.
const ROWS_SITE: u32 = 0x4000_0000;

/// Rows of numbers: `y = x W + noise`, drawn by element, so that nothing is stored.
pub struct RegressionData {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) law: Vec<f32>,
    pub(super) noise: f32,
    pub(super) seed: u64,
    /// Samples to train on.
    pub train: u64,
    /// Samples to validate on.
    pub validation: u64,
}

impl RegressionData {
    /// The rows that `config` describes.
    pub(super) fn load(config: &RunConfig) -> Result<RegressionData> {
        let t = &config.training;
        let (inputs, outputs) = match &config.model {
            ModelConfig::Linear(model) => (model.input_features, model.output_features),
            ModelConfig::Mlp(model) => (model.input_features, model.output_features),
            language => panic!("bug in unisono: {language:?} reads no rows of numbers"),
        };
        let stream = Stream {
            seed: t.seed,
            site: ROWS_SITE,
            step: 0,
        };
        let mut law = vec![0.0; inputs * outputs];
        unisono_kernels::random::fill_uniform(&stream, 0, -1.0, 1.0, &mut law);
        let validation = (t.num_samples as f64 * t.validation_fraction) as u64;
        let train = t.num_samples as u64 - validation;
        if train == 0 {
            return Err(TrainError::Refused(format!(
                "training_config.num_samples is {} and validation_fraction {}: no sample is left to train on",
                t.num_samples, t.validation_fraction
            )));
        }
        let noise = t.noise as f32;
        Ok(RegressionData {
            inputs,
            outputs,
            law,
            noise,
            seed: t.seed,
            train,
            validation,
        })
    }

    pub(super) fn clone_law(&self) -> RegressionData {
        RegressionData {
            law: self.law.clone(),
            ..*self
        }
    }

    /// The rows of these samples, filled up with zeros to `count`.
    pub(super) fn rows(&self, samples: &[u64], count: usize) -> StepData {
        let mut x = vec![0.0; count * self.inputs];
        let mut y = vec![0.0; count * self.outputs];
        let rows = Stream {
            seed: self.seed,
            site: ROWS_SITE + 1,
            step: 0,
        };
        let noise = Stream {
            seed: self.seed,
            site: ROWS_SITE + 2,
            step: 0,
        };
        for (i, sample) in samples.iter().enumerate() {
            let x = &mut x[i * self.inputs..(i + 1) * self.inputs];
            unisono_kernels::random::fill_uniform(&rows, sample * self.inputs as u64, -1.0, 1.0, x);
            let y = &mut y[i * self.outputs..(i + 1) * self.outputs];
            unisono_kernels::random::fill_normal(&noise, sample * self.outputs as u64, 0.0, self.noise, y);
            for (j, y) in y.iter_mut().enumerate() {
                for (k, x) in x.iter().enumerate() {
                    *y += x * self.law[k * self.outputs + j];
                }
            }
        }
        StepData {
            inputs: Rows::Numbers(x),
            input_width: self.inputs,
            targets: Rows::Numbers(y),
            target_width: self.outputs,
            num_targets: samples.len() * self.outputs,
        }
    }
}
