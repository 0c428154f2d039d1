//! One optimizer step, top to bottom: batch, forward, backward, reduce, clip, update.

use crate::adapters::adapters;
use crate::config::RunConfig;
use crate::dataset::{Rows as Values, StepData};
use crate::error::Result;
use crate::model::{LiveModel, ModelSpec, optimizer, schedule};
use std::rc::Rc;
use unisono_nn::{GradientNorm, Optimizer, Regime, Schedule, StepLoss};
use unisono_runtime::Pending;
use unisono_tensor::{Dtype, MeshDevice, Phase, Rows, Tensor, sync_gradients};

/// How the sequences of an optimizer step are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// Sequences of a micro-step over all devices together.
    pub batch_size: usize,
    /// Micro-steps of an optimizer step.
    pub accumulation: usize,
    /// Devices that share the batch.
    pub data_parallel: usize,
    /// Targets of a sequence (sample) of the widest batch.
    pub width: usize,
}

impl BatchPlan {
    /// Sequences of an optimizer step: batch size times accumulation.
    pub fn effective(&self) -> usize {
        self.batch_size * self.accumulation
    }

    /// Sequences of a micro-step on one device.
    pub fn per_device(&self) -> usize {
        self.batch_size / self.data_parallel
    }
}

/// Everything that a step needs: the model and what updates it.
pub struct Trainer {
    /// The devices.
    pub device: MeshDevice,
    /// The model.
    pub model: LiveModel,
    /// Its optimizer.
    pub optimizer: Box<dyn Optimizer>,
    norm: GradientNorm,
    loss: StepLoss,
    schedule: Schedule,
    base_lr: f64,
    batch: BatchPlan,
}

/// What a step gave, on its way to the host.
pub struct StepResult {
    /// Optimizer step, counted from 0.
    pub step: u64,
    /// Learning rate.
    pub lr: f64,
    /// `[norm, scale, go, loss]`.
    pub control: Option<Pending>,
}

impl Trainer {
    /// A model with fresh parameters and its optimizer, for a run of `total_steps`.
    ///
    /// # Errors
    /// A mesh that cannot cut the model evenly, or too little memory.
    pub fn new(
        device: &MeshDevice,
        config: &RunConfig,
        spec: &ModelSpec,
        batch: BatchPlan,
        total_steps: u64,
    ) -> Result<Trainer> {
        device.set_seed(config.training.seed);
        device.runtime().set_phase(Phase::Setup);
        let model = spec.build(device, &regime(config, spec)?)?;
        let parameters = model.as_model().parameters();
        let clip = config
            .training
            .use_clip_grad_norm
            .then_some(config.training.clip_grad_norm_max_norm as f32);
        Ok(Trainer {
            device: device.clone(),
            optimizer: optimizer(&config.optimizer, parameters)?,
            norm: GradientNorm::new(device, parameters.len(), clip)?,
            loss: StepLoss::new(device, Rows::whole(batch.effective(), device.axis("dp")))?,
            schedule: schedule(&config.scheduler, total_steps),
            base_lr: config.optimizer.rule.lr(),
            model,
            batch,
        })
    }

    /// Issues optimizer step `step` (from 0) on `data`, the sequences of the whole step. Nothing waits for the devices.
    ///
    /// # Errors
    /// An earlier command that failed.
    pub fn step(&mut self, step: u64, data: &StepData) -> Result<StepResult> {
        let device = &self.device;
        let runtime = device.runtime();
        let model = self.model.as_model();
        let parameters = model.parameters();
        // One over the targets of the whole step, known before its first forward pass; a step without any adds nothing.
        let scale = if data.num_targets == 0 {
            0.0
        } else {
            1.0 / data.num_targets as f32
        };
        device.set_step(step as u32);
        model.set_training(true);
        parameters.iter().for_each(|parameter| parameter.tensor.zero_grad());

        for micro_step in 0..self.batch.accumulation {
            self.micro_step(micro_step, data, scale)?;
        }

        runtime.set_phase(Phase::Communication);
        let weights: Vec<&Tensor> = parameters.iter().map(|parameter| &parameter.tensor).collect();
        sync_gradients(&weights)?;
        let loss = self.loss.total(scale)?;

        runtime.set_phase(Phase::Optimizer);
        self.norm.measure(parameters, loss)?;
        let lr = self.schedule.lr(self.base_lr, step);
        self.optimizer.step(parameters, lr, step, self.norm.control())?;
        // On the null backend there is nothing to read.
        let control = runtime.read_later(self.norm.control(), 0).ok();
        runtime.set_phase(Phase::Other);
        Ok(StepResult { step, lr, control })
    }

    /// Issues one micro-step: its batch, the forward and the backward pass.
    ///
    /// # Errors
    /// An earlier command that failed.
    pub(crate) fn micro_step(&self, micro_step: usize, data: &StepData, scale: f32) -> Result<()> {
        let runtime = self.device.runtime();
        runtime.set_phase(Phase::Data);
        let rows = self.rows(micro_step);
        let (inputs, targets) = micro_batch(&self.device, data, rows)?;

        runtime.set_phase(Phase::Forward);
        let losses = self.model.as_model().losses(&inputs, &targets, scale)?;
        self.loss.put(&losses, &rows)?;

        runtime.set_phase(Phase::Backward);
        losses.backward()?;
        Ok(())
    }

    /// The learning rate of a step.
    pub fn lr(&self, step: u64) -> f64 {
        self.schedule.lr(self.base_lr, step)
    }

    /// The share of the step's batch that each device holds in a micro-step.
    fn rows(&self, micro_step: usize) -> Rows {
        let count = self.batch.per_device();
        Rows {
            total: self.batch.effective(),
            axis: self.device.axis("dp"),
            skip: micro_step * count,
            count,
        }
    }
}

/// Inputs and targets of one micro-batch, device after device: each owns consecutive sequences of the step's batch.
pub(crate) fn micro_batch(device: &MeshDevice, data: &StepData, rows: Rows) -> Result<(Tensor, Tensor)> {
    let positions = rows.axis.map_or(1, |axis| axis.size);
    let place = |values: &Values, width: usize| -> Result<Tensor> {
        let shape = [positions * rows.count, width];
        let ranges = (0..positions).map(|i| {
            let from = i * rows.per_position() + rows.skip;
            from * width..(from + rows.count) * width
        });
        Ok(match values {
            Values::Tokens(ids) => {
                let own: Vec<u32> = ranges.flat_map(|range| ids[range].iter().copied()).collect();
                device.micro_batch_u32(&own, &shape, rows)?
            }
            Values::Numbers(numbers) => {
                let own: Vec<f32> = ranges.flat_map(|range| numbers[range].iter().copied()).collect();
                device.micro_batch(&own, &shape, rows)?
            }
            Values::SomeTokens => device.empty_micro_batch(Dtype::U32, &shape, rows)?,
            Values::SomeNumbers => device.empty_micro_batch(Dtype::F32, &shape, rows)?,
        })
    };
    Ok((
        place(&data.inputs, data.input_width)?,
        place(&data.targets, data.target_width)?,
    ))
}

/// What becomes of the parameters of a model that `config` trains.
///
/// # Errors
/// Adapters beside layers that there are not.
pub fn regime(config: &RunConfig, spec: &ModelSpec) -> Result<Regime> {
    Ok(Regime {
        frozen: false,
        adapters: match &config.lora {
            Some(lora) => Some(Rc::new(adapters(lora, spec)?)),
            None => None,
        },
        values_come_later: config.training.model_path.is_some(),
    })
}
