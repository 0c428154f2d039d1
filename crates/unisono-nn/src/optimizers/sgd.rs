//! Stochastic gradient descent with momentum. Source: Sutskever et al. (2013), in PyTorch's form.

use super::{Optimizer, StateTensor};
use crate::Result;
use crate::parameter::Parameter;
use unisono_runtime::ops::optimizer::{Sgd as Hyper, SgdStep};
use unisono_runtime::{BufferRef, Kind};
use unisono_tensor::Tensor;

/// Hyperparameters that stay the same over a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// Momentum; 0 for none.
    pub momentum: f64,
    /// Dampening of the momentum.
    pub dampening: f64,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's momentum.
    pub nesterov: bool,
    /// Whether norms and biases decay too.
    pub decay_norms_and_biases: bool,
}

/// SGD; momentum buffers exist only where there is momentum.
pub struct Sgd {
    config: SgdConfig,
    momentum: Vec<Tensor>,
}

impl Sgd {
    /// Fresh momentum for each parameter.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(parameters: &[Parameter], config: SgdConfig) -> Result<Sgd> {
        let momentum = match config.momentum == 0.0 {
            true => Vec::new(),
            false => parameters
                .iter()
                .map(|p| p.tensor.zeros_like(Kind::Optimizer))
                .collect::<Result<_>>()?,
        };
        Ok(Sgd { config, momentum })
    }
}

impl Optimizer for Sgd {
    fn step(&mut self, parameters: &[Parameter], lr: f64, step: u64, control: BufferRef) -> Result<()> {
        let c = &self.config;
        for (index, parameter) in parameters.iter().enumerate() {
            let Some(gradient) = parameter.tensor.grad()? else {
                continue;
            };
            let decays = parameter.decay || c.decay_norms_and_biases;
            parameter.tensor.device().runtime().issue(SgdStep {
                hyper: Hyper {
                    lr,
                    momentum: c.momentum,
                    dampening: c.dampening,
                    weight_decay: if decays { c.weight_decay } else { 0.0 },
                    nesterov: c.nesterov,
                    grad_scale: 1.0,
                    first_step: step == 0,
                },
                control: Some(control),
                p: parameter.tensor.buffer(),
                momentum: self.momentum.get(index).map(Tensor::buffer),
                g: gradient.buffer(),
                copy: parameter.tensor.copy_buffer(),
            })?;
        }
        Ok(())
    }

    fn state(&self) -> Vec<StateTensor<'_>> {
        self.momentum
            .iter()
            .enumerate()
            .map(|(parameter, tensor)| StateTensor {
                name: "momentum",
                parameter,
                tensor,
            })
            .collect()
    }
}
