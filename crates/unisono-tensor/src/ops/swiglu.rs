//! The gated activation of Llama's MLP.

use super::same_device;
use crate::Result;
use crate::error::TensorError;
use crate::tensor::Tensor;
use std::rc::Rc;
use unisono_runtime::ops::swiglu::{Swiglu, SwigluGrad};

impl Tensor {
    /// `silu(self) · up`, element by element, rounded once. Both lie alike, in any placement but a partial sum.
    ///
    /// What a product needs of the result in its backward pass is made again from the two arguments, which are kept anyway.
    ///
    /// # Errors
    /// Shapes, placements or kinds that differ.
    pub fn swiglu(&self, up: &Tensor) -> Result<Tensor> {
        let op = "swiglu";
        same_device(op, self, up)?;
        self.complete(op, "the gate")?;
        up.complete(op, "what is gated")?;
        self.expect_float(op)?;
        self.expect_same_dtype(op, up)?;
        if self.local_shape() != up.local_shape() {
            return Err(TensorError::Shape {
                op,
                found: format!("a gate {:?} for {:?}", self.shape(), up.shape()),
                rule: "both must have the same shape".into(),
            });
        }
        let pairs = self.placements().iter().zip(up.placements());
        if let Some((index, (gate, up))) = pairs.enumerate().find(|(_, (gate, up))| gate != up) {
            return Err(TensorError::Placement {
                op,
                axis: self.device().axis_name(index),
                found: format!("the gate is {gate} and what it gates {up}"),
                rule: "both must lie alike; all_gather or scatter one of them".into(),
            });
        }
        let forward = {
            let (gate, up) = (self.detach(), up.detach());
            move || {
                let y = Tensor::activation(gate.device(), gate.meta().clone())?;
                gate.device().runtime().issue(Swiglu {
                    gate: gate.buffer(),
                    up: up.buffer(),
                    to: y.buffer(),
                })?;
                Ok(y)
            }
        };
        let mut y = forward()?;
        if self.device().grad_enabled() && (self.needs_grad() || up.needs_grad()) {
            y = y.remade_by(Rc::new(forward));
        }
        let (gate_saved, up_saved) = (self.detach(), up.detach());
        Ok(y.record(op, &[self, up], move |dy| {
            let d_gate = Tensor::activation(dy.device(), gate_saved.meta().clone())?;
            let d_up = Tensor::activation(dy.device(), up_saved.meta().clone())?;
            dy.device().runtime().issue(SwigluGrad {
                gate: gate_saved.buffer(),
                up: up_saved.buffer(),
                dy: dy.buffer(),
                d_gate: d_gate.buffer(),
                d_up: d_up.buffer(),
            })?;
            Ok(vec![Some(d_gate), Some(d_up)])
        }))
    }
}
