//! Validation: the loss over held-out data, the same for every mesh and batch size.

use crate::dataset::Validation;
use crate::error::{Result, TrainError};
use crate::shards::Asked;
use crate::step::micro_batch;
use serde::Serialize;
use unisono_nn::Model;
use unisono_tensor::{MeshDevice, Phase, Rows};

/// What an evaluation gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Loss per target: nats per token, or mean squared error.
    pub loss: f64,
    /// Targets that it is the mean over.
    pub targets: usize,
}

impl Evaluation {
    /// `exp(loss)`.
    pub fn perplexity(&self) -> f64 {
        f64::from(unisono_kernels::math::exp(self.loss as f32))
    }

    /// Bits per target.
    pub fn bits(&self) -> f64 {
        self.loss / std::f64::consts::LN_2
    }
}

/// The loss of `model` over validation batches of `sequences` sequences (a multiple of the data-parallel devices). One number
/// a sequence is read, while the next batch runs, and they are summed in the order of the sequences.
///
/// # Errors
/// Data without any target, data that cannot be read, or a failed command.
pub fn evaluate(
    device: &MeshDevice,
    model: &dyn Model,
    validation: &Validation<'_>,
    sequences: usize,
) -> Result<Evaluation> {
    if let Some(what) = validation.without_targets() {
        return Err(TrainError::Refused(what));
    }
    let runtime = device.runtime();
    runtime.set_phase(Phase::Evaluation);
    model.set_training(false);
    let rows = Rows::whole(sequences, device.axis("dp"));
    let (mut sum, mut targets) = (0.0f64, 0);
    let mut add = |(losses, real): (Asked, usize)| -> Result<()> {
        let losses = losses.wait()?;
        let losses = losses.whole(&[sequences]);
        sum += losses[..real].iter().map(|loss| f64::from(*loss)).sum::<f64>();
        Ok(())
    };
    let mut pending = None;
    for index in 0..validation.num_batches() {
        let (data, real) = validation.batch(index)?;
        let losses = device.no_grad(|| {
            let (inputs, wanted) = micro_batch(device, &data, rows)?;
            Ok::<_, TrainError>(model.losses(&inputs, &wanted, 1.0)?)
        })?;
        let losses = Asked::of(&losses, 0, &mut std::iter::empty(), None)?;
        targets += data.num_targets;
        if let Some(before) = pending.replace((losses, real)) {
            add(before)?;
        }
    }
    pending.map_or(Ok(()), add)?;
    model.set_training(true);
    runtime.set_phase(Phase::Other);
    Ok(Evaluation {
        // Of no sequences at all there is none, and 0 would be the best loss of all.
        loss: sum / targets as f64,
        targets,
    })
}
