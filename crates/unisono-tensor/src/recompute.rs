//! Activation recomputation: a block's intermediate values are dropped and computed again in the backward pass.
//!
//! Source: Chen, Xu, Zhang, Guestrin, *Training deep nets with sublinear memory cost* (2016).

use crate::Result;
use crate::tensor::Tensor;
use std::rc::Rc;

/// What is run again: a function of one tensor.
pub type Block = dyn Fn(&Tensor) -> Result<Tensor>;

/// Runs `block` on `x` and keeps only `x`; the backward pass runs it again. Dropout draws the same mask both times, since it
/// is keyed by step and element.
///
/// # Errors
/// What the block says.
pub fn recompute(x: &Tensor, block: Rc<Block>) -> Result<Tensor> {
    let device = x.device().clone();
    if !device.grad_enabled() {
        return block(x);
    }
    let uses = device.uses();
    let y = device.rehearse(|| block(&x.detach()))?;
    if !x.needs_grad() {
        // Nothing before the block wants a gradient, but its parameters may: record it as usual.
        device.set_uses(uses);
        return block(x);
    }
    let input = x.detach();
    Ok(y.record("recompute", &[x], move |dy| {
        let device = input.device().clone();
        let outer = device.uses();
        device.set_uses(uses.clone());
        let leaf = input.clone().requires_grad()?;
        let y = device.with_grad(true, || block(&leaf))?;
        y.backward_with(dy)?;
        device.set_uses(outer);
        Ok(vec![leaf.take_grad()])
    }))
}
