//! A linear layer with its weight as PyTorch stores it, [out, in], cut along `tp` by outputs or by inputs, with or without a
//! low-rank adapter.

use super::Residual;
use crate::Result;
use crate::adapters::{Adapter, Cut};
use crate::parameter::{Parameters, cut, whole};
use unisono_tensor::Tensor;

/// `x Wᵀ + b`.
pub struct Projection {
    weight: Tensor,
    bias: Option<Tensor>,
    cut: Cut,
    adapter: Option<Adapter>,
}

impl Projection {
    /// The layer `name` of weight [outputs, inputs], N(0, `std`) at first. `site` is that of an adapter's dropout.
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn new(
        p: &mut Parameters,
        name: &str,
        (outputs, inputs): (usize, usize),
        cut_by: Cut,
        bias: bool,
        std: f32,
        site: u32,
    ) -> Result<Projection> {
        let (outputs_dim, inputs_dim) = match cut_by {
            Cut::Outputs(units) => (cut(outputs, units), whole(inputs)),
            Cut::Inputs(units) => (whole(outputs), cut(inputs, units)),
        };
        let weight = p.normal(&format!("{name}.weight"), vec![outputs_dim, inputs_dim], std)?;
        let bias = match bias {
            true => Some(p.zeros(&format!("{name}.bias"), vec![outputs_dim])?),
            false => None,
        };
        let adapter = match p.adapters_of(name) {
            Some(adapters) => Some(Adapter::new(p, name, (outputs, inputs), cut_by, &adapters, site)?),
            None => None,
        };
        Ok(Projection {
            weight,
            bias,
            cut: cut_by,
            adapter,
        })
    }

    /// [.., in] to [.., out]. Cut by outputs it takes a replicated input and gives a cut one; cut by inputs the other way
    /// round, and the bias is added once. `training` says whether an adapter's dropout is on.
    ///
    /// # Errors
    /// A shape or placement that does not fit.
    pub fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        let y = self.product(x)?;
        match &self.adapter {
            Some(adapter) => y.add(&adapter.forward(x, training)?),
            None => Ok(y),
        }
    }

    /// [`Projection::forward`] of a layer that is cut by inputs, added to the residual.
    ///
    /// # Errors
    /// A shape or placement that does not fit.
    pub fn forward_onto(&self, x: &Tensor, training: bool, residual: &Residual) -> Result<Tensor> {
        match residual.of_a_product() {
            Some(residual) if self.adapter.is_none() => {
                x.linear_transposed_onto(&self.weight, self.bias.as_ref(), residual)
            }
            _ => residual.plus(&self.forward(x, training)?),
        }
    }

    fn product(&self, x: &Tensor) -> Result<Tensor> {
        let bias = self.bias.as_ref();
        if matches!(self.cut, Cut::Outputs(_)) {
            return x.broadcast("tp")?.linear_transposed(&self.weight, bias);
        }
        if x.device().axis("tp").is_none() {
            return x.linear_transposed(&self.weight, bias);
        }
        let sum = x.linear_transposed(&self.weight, None)?;
        match bias {
            // Complete and with its bias, it is rounded once, as it is on one device.
            Some(bias) => sum.all_reduce_f32("tp")?.add(bias)?.to_dtype(x.dtype()),
            None => sum.all_reduce("tp"),
        }
    }
}
