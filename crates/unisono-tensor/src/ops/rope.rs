//! Rotary position embedding.

use super::same_device;
use super::shape::uncut;
use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Dtype, Tensor};
use unisono_mesh::Placement;
use unisono_runtime::ops::rope::{Rope, Turn};

impl Tensor {
    /// Rotary position embedding in Hugging Face's half layout, of `self` [batch, tokens, heads · head_dim], which may be cut in
    /// its batch or, by whole heads, in its features.
    ///
    /// Elements `i` and `i + head_dim/2` of each head are a pair `(a, b)`, rotated by φ = position · frequencies\[i\] (an f32
    /// product, in radians): `(a cos φ − b sin φ, b cos φ + a sin φ)`. `frequencies` is f32 [head_dim / 2], on every device;
    /// `positions` is u32 [batch, tokens], cut as the batch is, and without it a token's position is its index. No gradient
    /// flows to the frequencies.
    ///
    /// Source: Su et al., *RoFormer: Enhanced transformer with rotary position embedding* (2021).
    ///
    /// # Errors
    /// Shapes, element types or placements that do not fit.
    pub fn rope(&self, head_dim: usize, frequencies: &Tensor, positions: Option<&Tensor>) -> Result<Tensor> {
        let op = "rope";
        self.complete(op, "the input")?;
        self.expect_float(op)?;
        same_device(op, self, frequencies)?;
        frequencies.expect_dtype(op, Dtype::F32)?;
        let &[batch, tokens, width] = self.local_shape() else {
            return Err(heads_wanted(op, self, head_dim));
        };
        if head_dim == 0 || !head_dim.is_multiple_of(2) || !width.is_multiple_of(head_dim) {
            return Err(heads_wanted(op, self, head_dim));
        }
        uncut(op, self, 1)?;
        if frequencies.local_shape() != [head_dim / 2] || !frequencies.placements().iter().all(|p| p.is_replicate()) {
            return Err(TensorError::Shape {
                op,
                found: format!("frequencies {frequencies:?} for heads of {head_dim} elements"),
                rule: format!("there is one frequency a pair, {}, on every device", head_dim / 2),
            });
        }
        if let Some(positions) = positions {
            check_positions(op, self, positions, [batch, tokens])?;
        }
        let turned = {
            let (frequencies, positions) = (frequencies.detach(), positions.map(Tensor::detach));
            move |x: &Tensor, turn: Turn| -> Result<Tensor> {
                let y = Tensor::activation(x.device(), x.meta().clone())?;
                x.device().runtime().issue(Rope {
                    x: x.buffer(),
                    width,
                    frequencies: frequencies.buffer(),
                    positions: positions.as_ref().map(Tensor::buffer),
                    tokens,
                    turn,
                    to: y.buffer(),
                })?;
                Ok(y)
            }
        };
        let y = turned(self, Turn::Forward)?;
        Ok(y.record(op, &[self], move |dy| Ok(vec![Some(turned(dy, Turn::Back)?)])))
    }
}

/// Fails where there is not one position for each token, on the token's device.
fn check_positions(op: &'static str, x: &Tensor, positions: &Tensor, shape: [usize; 2]) -> Result<()> {
    same_device(op, x, positions)?;
    positions.expect_dtype(op, Dtype::U32)?;
    if positions.local_shape() != shape {
        return Err(TensorError::Shape {
            op,
            found: format!("positions of shape {:?} for {:?}", positions.shape(), x.shape()),
            rule: "there is one position for each token, [batch, tokens]".into(),
        });
    }
    for (index, (px, pp)) in x.placements().iter().zip(positions.placements()).enumerate() {
        let wanted = match px {
            Placement::Shard(0) => *px,
            _ => Placement::Replicate,
        };
        if *pp != wanted {
            return Err(TensorError::Placement {
                op,
                axis: x.device().axis_name(index),
                found: format!("the input {:?} is {px} and the positions are {pp}", x.shape()),
                rule: format!("the positions must be {wanted}"),
            });
        }
    }
    Ok(())
}

/// The error where features are no whole heads.
fn heads_wanted(op: &'static str, x: &Tensor, head_dim: usize) -> TensorError {
    TensorError::Shape {
        op,
        found: format!(
            "an input {:?} (a device holds {:?}) with heads of {head_dim} elements",
            x.shape(),
            x.local_shape()
        ),
        rule: "[batch, tokens, features] with whole heads of an even number of elements on each device".into(),
    }
}
