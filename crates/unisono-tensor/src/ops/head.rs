//! The language-model head and its loss in one: logits are made, used and dropped a few sequences at a time.

use super::check::check_head;
use super::loss::Work;
use super::{batch_only, check_targets, dim_sum, partial_of, same_device};
use crate::error::TensorError;
use crate::leaf::WeightGrad;
use crate::tensor::{Dtype, Meta, Tensor};
use crate::{Result, Rows};
use unisono_kernels::gemm::Activation;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::ops::cross_entropy::{LogitsGrad, Vocabulary};
use unisono_runtime::ops::matmul::{MatMul, Matrix};
use unisono_runtime::ops::reduce::SegmentSums;
use unisono_runtime::{BufferRef, Phase};

/// Bytes of logits that are held at once by [`Tensor::linear_cross_entropy`].
const LOGITS_BYTES: usize = 64 << 20;

impl Tensor {
    /// The language-model head and its loss in one: logits are `self` [batch, tokens, width] times `head`ᵀ, `head` being
    /// [vocabulary, width] as in an embedding table. Returns the sum of losses of each sequence, `[batch]`.
    ///
    /// Logits are made, used and dropped a few sequences at a time. Where gradients are recorded they are computed on the
    /// way, `scale` (one over the targets of the whole step) included; so the result can only be the root of
    /// [`Tensor::backward`].
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn linear_cross_entropy(
        &self,
        head: &Tensor,
        targets: &Tensor,
        vocabulary: usize,
        scale: f32,
    ) -> Result<Tensor> {
        let op = "linear_cross_entropy";
        same_device(op, self, head)?;
        self.complete(op, "the input")?;
        head.complete(op, "the head")?;
        check_targets(op, self, targets)?;
        let (&[batch, tokens, width], &[rows, head_width]) = (self.local_shape(), head.local_shape()) else {
            return Err(TensorError::Shape {
                op,
                found: format!(
                    "an input of shape {:?} and a head of shape {:?}",
                    self.shape(),
                    head.shape()
                ),
                rule: "the input is [batch, tokens, width], the head [vocabulary, width]".into(),
            });
        };
        if width != head_width {
            return Err(TensorError::Shape {
                op,
                found: format!("an input of width {width} and a head of width {head_width}"),
                rule: "both must be equal".into(),
            });
        }
        let device = self.device().clone();
        check_head(op, self, head)?;
        batch_only(op, self, head)?;
        let axis = head.meta().axis_of(&device, 0);
        let head_sum = dim_sum(op, rows, head.meta().units[0], axis)?;
        let mut meta = self.meta().clone();
        meta.dtype = Dtype::F32;
        meta.local.truncate(1);
        meta.units.truncate(1);
        let losses = Tensor::activation(&device, meta)?;
        let train = device.grad_enabled() && (self.needs_grad() || head.needs_grad());
        let dx = if train {
            Some(Tensor::activation(&device, self.meta().clone())?)
        } else {
            None
        };
        let batch_rows = self.batch_rows();
        let step = (LOGITS_BYTES / 4 / (tokens * rows).max(1)).clamp(1, batch.max(1));
        // The largest divisor of the batch that fits, so that the accumulator always grows by the same amount.
        let step = (1..=step).rev().find(|step| batch.is_multiple_of(*step)).unwrap_or(1);
        let factor = head.factor(op, self.dtype())?;
        let pieces = Pieces {
            x: self,
            head,
            factor: &factor,
            targets,
            vocabulary: Vocabulary {
                size: vocabulary,
                cols: rows,
                axis,
            },
            head_sum,
            tokens,
            width,
            scale,
        };
        let key = head.use_key("linear");
        let mut head_grad = None;
        for from in (0..batch).step_by(step.max(1)) {
            let rows = Rows {
                skip: batch_rows.skip + from,
                count: step,
                ..batch_rows
            };
            let logits = pieces.losses(from, step, &losses)?;
            if let Some(dx) = &dx {
                let phase = device.runtime().phase();
                device.runtime().set_phase(Phase::Backward);
                head_grad = pieces.gradients(from, step, &logits, dx, key, &rows)?;
                device.runtime().set_phase(phase);
            }
        }
        if head_grad.is_some() && step != batch {
            return Err(TensorError::Gradient(
                "the head is made from other tensors and its gradient does not fit in one piece: make it a leaf".into(),
            ));
        }
        Ok(losses.record_node(op, &[self, head], false, true, move |_seed| {
            Ok(vec![dx.clone(), head_grad.clone()])
        }))
    }
}

/// The parts of a fused head that stay the same from piece to piece.
struct Pieces<'a> {
    x: &'a Tensor,
    head: &'a Tensor,
    /// The head's values in the kind of `x`.
    factor: &'a Tensor,
    targets: &'a Tensor,
    vocabulary: Vocabulary,
    head_sum: SumShare,
    tokens: usize,
    width: usize,
    scale: f32,
}

/// Logits of a piece with what their loss left behind.
struct Logits {
    values: Tensor,
    work: Work,
}

impl Pieces<'_> {
    fn part(&self, t: &Tensor, from: usize, count: usize, width: usize) -> BufferRef {
        let sequence = self.tokens * width;
        t.buffer().part(from * sequence, count * sequence)
    }

    /// Logits and losses of `count` sequences.
    fn losses(&self, from: usize, count: usize, losses: &Tensor) -> Result<Logits> {
        let device = self.x.device();
        let m = count * self.tokens;
        let cols = self.vocabulary.cols;
        let values = Tensor::activation(device, Meta::replicated(device, Dtype::F32, &[m, cols]))?;
        device.runtime().issue(MatMul {
            batch: 1,
            m,
            n: cols,
            a: Matrix::rows(self.part(self.x, from, count, self.width), self.width),
            b: Matrix::transposed(self.factor.buffer(), self.width),
            to: values.buffer(),
            to_batch: 0,
            slot: m * cols,
            sum: dim_sum("linear_cross_entropy", self.width, self.head.meta().units[1], None)?,
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
        })?;
        let work = Work::new(m, &self.head_sum, device)?;
        let tokens = Tensor::activation(device, Meta::replicated(device, Dtype::F32, &[m]))?;
        let targets = self.part(self.targets, from, count, 1);
        work.losses(
            device,
            values.buffer(),
            self.vocabulary,
            self.head_sum,
            targets,
            tokens.buffer(),
        )?;
        device.runtime().issue(SegmentSums {
            x: tokens.buffer(),
            tokens: self.tokens,
            to: losses.buffer().part(from, count),
        })?;
        Ok(Logits { values, work })
    }

    /// Turns the logits into their gradient and passes it on to the input and the head.
    fn gradients(
        &self,
        from: usize,
        count: usize,
        logits: &Logits,
        dx: &Tensor,
        key: crate::leaf::UseKey,
        rows: &Rows,
    ) -> Result<Option<Tensor>> {
        let device = self.x.device();
        let runtime = device.runtime();
        let m = count * self.tokens;
        let cols = self.vocabulary.cols;
        // In f32 the gradient takes the logits' place; in bf16 it is rounded for the products that follow.
        let rounded = match self.x.dtype() {
            Dtype::F32 => None,
            dtype => Some(Tensor::activation(device, Meta::replicated(device, dtype, &[m, cols]))?),
        };
        let d_logits = rounded.as_ref().unwrap_or(&logits.values).buffer();
        runtime.issue(LogitsGrad {
            logits: logits.values.buffer(),
            to: d_logits,
            vocabulary: self.vocabulary,
            lse: logits.work.lse.buffer(),
            targets: self.part(self.targets, from, count, 1),
            scale: self.scale,
        })?;
        let partial = partial_of(&self.head_sum);
        let to = self.part(dx, from, count, self.width);
        let slots = partial.map_or(1, |partial| partial.slots);
        let share = match partial {
            None => None,
            Some(_) => Some(Tensor::activation(
                device,
                Meta::replicated(device, Dtype::F32, &[slots, to.len]),
            )?),
        };
        let product = share.as_ref().map_or(to, Tensor::buffer);
        runtime.issue(MatMul {
            batch: 1,
            m,
            n: self.width,
            a: Matrix::rows(d_logits, cols),
            b: Matrix::rows(self.factor.buffer(), self.width),
            to: product,
            to_batch: 0,
            slot: to.len,
            sum: self.head_sum,
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
        })?;
        if let Some(partial) = partial {
            let reduction = Reduction::Sum { units: partial.units };
            let (axis, len) = (partial.axis, to.len);
            runtime.issue(AllReduce {
                axis,
                reduction,
                from: product,
                slot: len,
                len,
                to,
            })?;
        }
        if !self.head.needs_grad() {
            return Ok(None);
        }
        let grad = WeightGrad::open(self.head, key, rows, self.tokens, rows.count)?;
        runtime.issue(MatMul {
            batch: 1,
            m: cols,
            n: self.width,
            a: Matrix::transposed(d_logits, cols),
            b: Matrix::rows(self.part(self.x, from, count, self.width), self.width),
            to: grad.target.buffer,
            to_batch: 0,
            slot: grad.target.slot,
            sum: grad.target.sum,
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
        })?;
        grad.finish()
    }
}
