//! A model with its adapters worked in: `W' = W + scale · B A`.
//!
//! The order is that of the operations it is made of. An element of `B A` is a product of [out, rank] and [rank, in], added up
//! over the rank in the canonical order of products; the factor is applied to the finished sum, and then it is added to the
//! weight. Every step is in f32.

use crate::error::{Result, TrainError};
use unisono_nn::Parameter;
use unisono_nn::adapters::Adapters;
use unisono_nn::parameter::Table;
use unisono_tensor::Dtype;

/// The parameters of a model on one device in f32, with its adapters worked into the weights they stand beside; the adapters
/// themselves are gone.
///
/// # Errors
/// A model on several devices or in another dtype, too little memory.
pub fn merged(table: &Table, adapters: &Adapters) -> Result<Vec<Parameter>> {
    let find = |name: &str| {
        let found = table.all().find(|p| p.name == name);
        found.unwrap_or_else(|| panic!("bug in unisono: a model with adapters has no {name}"))
    };
    let mut whole = Vec::new();
    for parameter in table.all().filter(|p| !p.is_adapter()) {
        let layer = parameter.name.strip_suffix(".weight").unwrap_or_default();
        if !adapters.layers.contains(layer) {
            whole.push(parameter.clone());
            continue;
        }
        let device = parameter.tensor.device();
        if device.mesh().num_devices() != 1 || parameter.tensor.dtype() != Dtype::F32 {
            return Err(TrainError::Refused(
                "adapters are worked into weights on one device and in f32: the model is on several or in bf16".into(),
            ));
        }
        let a = find(&format!("{layer}.lora_A.weight"));
        let b = find(&format!("{layer}.lora_B.weight"));
        let tensor = device.no_grad(|| {
            let product = b.tensor.matmul(&a.tensor)?;
            parameter.tensor.add(&product.mul_scalar(adapters.scale())?)
        })?;
        whole.push(Parameter {
            tensor,
            ..parameter.clone()
        });
    }
    Ok(whole)
}
