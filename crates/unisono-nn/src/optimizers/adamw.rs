//! AdamW. Source: Loshchilov, Hutter, *Decoupled weight decay regularization* (2019).

use super::{Optimizer, StateTensor};
use crate::Result;
use crate::parameter::Parameter;
use unisono_kernels::math;
use unisono_runtime::ops::optimizer::{AdamW as Hyper, AdamWStep};
use unisono_runtime::{BufferRef, Kind};
use unisono_tensor::Tensor;

/// Hyperparameters that stay the same over a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Whether norms and biases decay too.
    pub decay_norms_and_biases: bool,
}

/// AdamW with first and second moments in f32.
pub struct AdamW {
    config: AdamWConfig,
    moments: Vec<(Tensor, Tensor)>,
}

impl AdamW {
    /// Zero moments for each parameter.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(parameters: &[Parameter], config: AdamWConfig) -> Result<AdamW> {
        let zeros = |p: &Parameter| p.tensor.zeros_like(Kind::Optimizer);
        let moments = parameters
            .iter()
            .map(|p| Ok((zeros(p)?, zeros(p)?)))
            .collect::<Result<_>>()?;
        Ok(AdamW { config, moments })
    }
}

impl Optimizer for AdamW {
    fn step(&mut self, parameters: &[Parameter], lr: f64, step: u64, control: BufferRef) -> Result<()> {
        let c = &self.config;
        let hyper = Hyper {
            lr,
            beta1: c.beta1,
            beta2: c.beta2,
            eps: c.epsilon,
            weight_decay: 0.0,
            bias_correction1: 1.0 - math::powi(c.beta1, step + 1),
            bias_correction2: 1.0 - math::powi(c.beta2, step + 1),
            grad_scale: 1.0,
        };
        for (parameter, (m, v)) in parameters.iter().zip(&self.moments) {
            let Some(gradient) = parameter.tensor.grad()? else {
                continue;
            };
            let decays = parameter.decay || c.decay_norms_and_biases;
            parameter.tensor.device().runtime().issue(AdamWStep {
                hyper: Hyper {
                    weight_decay: if decays { c.weight_decay } else { 0.0 },
                    ..hyper
                },
                control: Some(control),
                p: parameter.tensor.buffer(),
                m: m.buffer(),
                v: v.buffer(),
                g: gradient.buffer(),
                copy: parameter.tensor.copy_buffer(),
            })?;
        }
        Ok(())
    }

    fn state(&self) -> Vec<StateTensor<'_>> {
        self.moments
            .iter()
            .enumerate()
            .flat_map(|(parameter, (m, v))| {
                [
                    StateTensor {
                        name: "exp_avg",
                        parameter,
                        tensor: m,
                    },
                    StateTensor {
                        name: "exp_avg_sq",
                        parameter,
                        tensor: v,
                    },
                ]
            })
            .collect()
    }
}
