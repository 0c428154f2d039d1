//! Linear layers: whole, cut by columns, cut by rows. Weights are [in, out].

use super::{Activation, Residual};
use crate::Result;
use crate::parameter::{Parameters, cut, whole};
use unisono_tensor::Tensor;

/// How a layer's weight begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum WeightInit {
    /// N(0, std), bias zero.
    Normal(f32),
    /// Uniform in ±1/√in, bias too: the modules' own default, as in PyTorch and tt-train.
    Uniform,
}

/// `activation(x W + b)` with a weight that every device holds whole.
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Linear {
    /// A layer named `name`, from `inputs` to `outputs`, uniform in ±1/√inputs at first.
    ///
    /// # Errors
    /// Too little memory.
    pub fn new(p: &mut Parameters, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        let weight = p.uniform(
            &format!("{name}.weight"),
            vec![whole(inputs), whole(outputs)],
            bound,
            true,
        )?;
        let bias = match bias {
            true => Some(p.uniform(&format!("{name}.bias"), vec![whole(outputs)], bound, false)?),
            false => None,
        };
        Ok(Linear { weight, bias })
    }

    /// [.., inputs] to [.., outputs].
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        x.linear(&self.weight, self.bias.as_ref(), activation)
    }
}

/// A linear layer whose outputs may be cut along `tp`: it takes a replicated input and gives cut outputs.
pub struct ColumnParallelLinear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl ColumnParallelLinear {
    /// A layer whose `outputs` fall into `units` units; weights N(0, 0.02).
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn new(
        p: &mut Parameters,
        name: &str,
        inputs: usize,
        outputs: usize,
        units: usize,
        bias: bool,
    ) -> Result<Self> {
        Self::with_init(p, name, (inputs, outputs, units), bias, WeightInit::Normal(0.02))
    }

    /// A layer that begins uniform in ±1/√inputs, as [`Linear`] does.
    ///
    /// # Errors
    /// As [`ColumnParallelLinear::new`].
    pub fn uniform(
        p: &mut Parameters,
        name: &str,
        inputs: usize,
        outputs: usize,
        units: usize,
        bias: bool,
    ) -> Result<Self> {
        Self::with_init(p, name, (inputs, outputs, units), bias, WeightInit::Uniform)
    }

    fn with_init(
        p: &mut Parameters,
        name: &str,
        (inputs, outputs, units): (usize, usize, usize),
        bias: bool,
        init: WeightInit,
    ) -> Result<Self> {
        let dims = vec![whole(inputs), cut(outputs, units)];
        let weight = add_weight(p, name, dims, inputs, init)?;
        let bias = if bias {
            Some(add_bias(p, name, cut(outputs, units), inputs, init)?)
        } else {
            None
        };
        Ok(ColumnParallelLinear { weight, bias })
    }

    /// [.., inputs], replicated, to [.., outputs], cut.
    ///
    /// # Errors
    /// A shape or placement that does not fit.
    pub fn forward(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        x.broadcast("tp")?.linear(&self.weight, self.bias.as_ref(), activation)
    }
}

/// A linear layer whose inputs may be cut along `tp`: each device multiplies its part, the sum is completed, and only then
/// the bias is added, once.
pub struct RowParallelLinear {
    weight: Tensor,
    bias: Option<Tensor>,
}

impl RowParallelLinear {
    /// A layer whose `inputs` fall into `units` units; weights N(0, 0.02).
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn new(
        p: &mut Parameters,
        name: &str,
        inputs: usize,
        outputs: usize,
        units: usize,
        bias: bool,
    ) -> Result<Self> {
        Self::with_init(p, name, (inputs, outputs, units), bias, WeightInit::Normal(0.02))
    }

    /// A layer that begins uniform in ±1/√inputs, as [`Linear`] does.
    ///
    /// # Errors
    /// As [`RowParallelLinear::new`].
    pub fn uniform(
        p: &mut Parameters,
        name: &str,
        inputs: usize,
        outputs: usize,
        units: usize,
        bias: bool,
    ) -> Result<Self> {
        Self::with_init(p, name, (inputs, outputs, units), bias, WeightInit::Uniform)
    }

    fn with_init(
        p: &mut Parameters,
        name: &str,
        (inputs, outputs, units): (usize, usize, usize),
        bias: bool,
        init: WeightInit,
    ) -> Result<Self> {
        let dims = vec![cut(inputs, units), whole(outputs)];
        let weight = add_weight(p, name, dims, inputs, init)?;
        let bias = if bias {
            Some(add_bias(p, name, whole(outputs), inputs, init)?)
        } else {
            None
        };
        Ok(RowParallelLinear { weight, bias })
    }

    /// [.., inputs], cut, to [.., outputs], replicated.
    ///
    /// # Errors
    /// A shape or placement that does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if x.device().axis("tp").is_none() {
            return x.linear(&self.weight, self.bias.as_ref(), Activation::None);
        }
        let sum = x.linear(&self.weight, None, Activation::None)?;
        match &self.bias {
            // Complete and with its bias, it is rounded once, as it is on one device.
            Some(bias) => sum.all_reduce_f32("tp")?.add(bias)?.to_dtype(x.dtype()),
            None => sum.all_reduce("tp"),
        }
    }

    /// [`RowParallelLinear::forward`], added to the residual.
    ///
    /// # Errors
    /// A shape or placement that does not fit.
    pub fn forward_onto(&self, x: &Tensor, residual: &Residual) -> Result<Tensor> {
        match residual.of_a_product() {
            Some(residual) => x.linear_onto(&self.weight, self.bias.as_ref(), residual),
            None => residual.plus(&self.forward(x)?),
        }
    }
}

type Dims = Vec<unisono_tensor::create::ParameterDim>;

fn add_weight(p: &mut Parameters, name: &str, dims: Dims, inputs: usize, init: WeightInit) -> Result<Tensor> {
    let name = format!("{name}.weight");
    match init {
        WeightInit::Normal(std) => p.normal(&name, dims, std),
        WeightInit::Uniform => p.uniform(&name, dims, 1.0 / (inputs.max(1) as f32).sqrt(), true),
    }
}

fn add_bias(
    p: &mut Parameters,
    name: &str,
    dim: unisono_tensor::create::ParameterDim,
    inputs: usize,
    init: WeightInit,
) -> Result<Tensor> {
    let name = format!("{name}.bias");
    match init {
        WeightInit::Normal(_) => p.zeros(&name, vec![dim]),
        WeightInit::Uniform => p.uniform(&name, vec![dim], 1.0 / (inputs.max(1) as f32).sqrt(), false),
    }
}
