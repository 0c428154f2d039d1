//! Losses.
//!
//! A loss is Σ/N with N the number of targets of the whole optimizer step, so that micro-batches add up to it. The
//! vocabulary may be cut over devices; its logits then never meet in one place.

use super::{check_targets, dim_sum, partial_of, whole_last};
use crate::Result;
use crate::tensor::{Dtype, Meta, Tensor};
use unisono_mesh::AxisHandle;
use unisono_runtime::BufferRef;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::cross_entropy::{LogitsGrad, LogitsMax, LogitsSum, TokenLoss, Vocabulary};
use unisono_runtime::ops::elementwise::{Binary, Combine, Operand};
use unisono_runtime::ops::gather::SelectRows;
use unisono_runtime::ops::nll::Nll;
use unisono_runtime::ops::reduce::Move;

/// What is made of the losses of single targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceType {
    /// Σ/N, N being all targets of the optimizer step (masked ones too; see [`ReduceType::MeanOver`]).
    Mean,
    /// Σ/N for the N given: the unmasked targets of the whole optimizer step.
    MeanOver(usize),
    /// Σ.
    Sum,
    /// Every target's own loss, 0 where masked.
    None,
}

impl ReduceType {
    fn apply(self, losses: Tensor) -> Result<Tensor> {
        match self {
            ReduceType::Mean => losses.mean(),
            ReduceType::MeanOver(n) => losses.sum()?.mul_scalar(1.0 / n.max(1) as f32),
            ReduceType::Sum => losses.sum(),
            ReduceType::None => Ok(losses),
        }
    }
}

impl Tensor {
    /// Mean squared error against `target`.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn mse_loss(&self, target: &Tensor, reduce: ReduceType) -> Result<Tensor> {
        let difference = self.sub(target)?;
        reduce.apply(difference.mul(&difference)?)
    }

    /// Cross-entropy of logits [.., vocabulary] with target ids [..]; `u32::MAX` masks a target. `vocabulary` is the number
    /// of real entries: stored columns beyond it are padding. The last dimension may be cut over devices.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn cross_entropy(&self, targets: &Tensor, vocabulary: usize, reduce: ReduceType) -> Result<Tensor> {
        let op = "cross_entropy";
        self.complete(op, "the logits")?;
        self.expect_dtype(op, Dtype::F32)?;
        check_targets(op, self, targets)?;
        let device = self.device().clone();
        let axis = self.meta().axis_of(&device, self.rank() - 1);
        let lie = Vocabulary {
            size: vocabulary,
            cols: self.last(),
            axis,
        };
        let sum = dim_sum(op, self.last(), self.meta().units[self.rank() - 1], axis)?;
        let mut meta = targets.meta().clone();
        meta.dtype = Dtype::F32;
        let losses = Tensor::activation(&device, meta)?;
        let work = Work::new(self.leading(), &sum, &device)?;
        work.losses(&device, self.buffer(), lie, sum, targets.buffer(), losses.buffer())?;
        let (logits, targets) = (self.detach(), targets.detach());
        let losses = losses.record(op, &[self], move |d_loss| {
            let dx = Tensor::activation(logits.device(), logits.meta().clone())?;
            let runtime = dx.device().runtime();
            runtime.issue(Move {
                from: logits.buffer(),
                to: dx.buffer(),
            })?;
            runtime.issue(LogitsGrad {
                logits: dx.buffer(),
                to: dx.buffer(),
                vocabulary: lie,
                lse: work.lse.buffer(),
                targets: targets.buffer(),
                scale: 1.0,
            })?;
            // Each row times the gradient of its loss.
            let cols = logits.last();
            let columns = dx.device().no_grad(|| {
                let mut local = d_loss.local_shape().to_vec();
                local.push(1);
                let mut meta = d_loss.meta().with_local(local);
                meta.units.push(1);
                let mut full = d_loss.local_shape().to_vec();
                full.push(cols);
                crate::ops::shape::expand(&d_loss.reinterpret(meta), &full)
            })?;
            let b = Operand::Buffer(columns.buffer());
            runtime.issue(Combine {
                f: Binary::Mul,
                a: dx.buffer(),
                b,
                swapped: false,
                to: dx.buffer(),
            })?;
            Ok(vec![Some(dx)])
        });
        reduce.apply(losses)
    }

    /// Negative log-likelihood of target ids [..] under log-probabilities [.., classes].
    ///
    /// # Errors
    /// Shapes or placements that do not fit, or a cut last dimension.
    pub fn nll_loss(&self, targets: &Tensor, reduce: ReduceType) -> Result<Tensor> {
        let op = "nll_loss";
        self.complete(op, "the log-probabilities")?;
        self.expect_dtype(op, Dtype::F32)?;
        check_targets(op, self, targets)?;
        whole_last(op, self)?;
        let mut meta = targets.meta().clone();
        meta.dtype = Dtype::F32;
        let losses = Tensor::activation(self.device(), meta)?;
        let cols = self.last();
        self.device().runtime().issue(Nll {
            log_probs: self.buffer(),
            cols,
            targets: targets.buffer(),
            loss: losses.buffer(),
            backward: false,
        })?;
        let (template, targets) = (self.meta().clone(), targets.detach());
        let losses = losses.record(op, &[self], move |d_loss| {
            let dx = Tensor::activation(d_loss.device(), template.clone())?;
            d_loss.device().runtime().issue(Nll {
                log_probs: dx.buffer(),
                cols,
                targets: targets.buffer(),
                loss: d_loss.buffer(),
                backward: true,
            })?;
            Ok(vec![Some(dx)])
        });
        reduce.apply(losses)
    }
}

/// One value a row each: maxima, sums, target logits and log-sums.
pub(super) struct Work {
    max: Tensor,
    sums: Tensor,
    target_logits: Tensor,
    pub lse: Tensor,
}

impl Work {
    pub fn new(rows: usize, sum: &SumShare, device: &crate::MeshDevice) -> Result<Work> {
        let slots = partial_of(sum).map_or(1, |partial| partial.slots);
        let vector = |len: usize| Tensor::activation(device, Meta::replicated(device, Dtype::F32, &[len]));
        Ok(Work {
            max: vector(rows)?,
            sums: vector(slots * rows)?,
            target_logits: vector(rows)?,
            lse: vector(rows)?,
        })
    }

    /// Issues the commands that turn logits into losses.
    pub fn losses(
        &self,
        device: &crate::MeshDevice,
        logits: BufferRef,
        vocabulary: Vocabulary,
        sum: SumShare,
        targets: BufferRef,
        losses: BufferRef,
    ) -> Result<()> {
        let runtime = device.runtime();
        let rows = self.max.meta().len();
        runtime.issue(LogitsMax {
            logits,
            vocabulary,
            max: self.max.buffer(),
        })?;
        if let Some(axis) = vocabulary.axis {
            runtime.issue(AllReduce {
                axis,
                reduction: Reduction::Max,
                from: self.max.buffer(),
                slot: rows,
                len: rows,
                to: self.max.buffer(),
            })?;
        }
        runtime.issue(LogitsSum {
            logits,
            vocabulary,
            max: self.max.buffer(),
            targets,
            sum,
            sums: self.sums.buffer(),
            target_logits: self.target_logits.buffer(),
        })?;
        let mut target_logits = self.target_logits.buffer();
        let selected;
        if let Some(axis) = vocabulary.axis {
            self.finish(device, axis, sum, rows)?;
            selected = Tensor::activation(device, Meta::replicated(device, Dtype::F32, &[rows]))?;
            runtime.issue(SelectRows {
                axis,
                shard: vocabulary.cols,
                ids: targets,
                cols: 1,
                from: target_logits,
                to: selected.buffer(),
            })?;
            target_logits = selected.buffer();
        }
        runtime.issue(TokenLoss {
            max: self.max.buffer(),
            sum: self.sums.buffer(),
            target_logits,
            targets,
            lse: self.lse.buffer(),
            loss: losses,
        })?;
        Ok(())
    }

    fn finish(&self, device: &crate::MeshDevice, axis: AxisHandle, sum: SumShare, rows: usize) -> Result<()> {
        device.runtime().issue(AllReduce {
            axis,
            reduction: Reduction::Sum { units: sum.units.count },
            from: self.sums.buffer(),
            slot: rows,
            len: rows,
            to: self.sums.buffer().part(0, rows),
        })?;
        Ok(())
    }
}
