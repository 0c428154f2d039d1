//! Linear regression and the multilayer perceptron: the smallest models that train on a mesh.

use super::Model;
use crate::Result;
use crate::layers::{Activation, ColumnParallelLinear, Linear, RowParallelLinear};
use crate::parameter::{Parameter, Parameters};
use unisono_tensor::{MeshDevice, Tensor};

/// Everything that defines the model.
#[derive(Clone, Debug, PartialEq)]
pub struct PerceptronConfig {
    /// Features of a sample.
    pub inputs: usize,
    /// Hidden features; 0 for linear regression.
    pub hidden: usize,
    /// Features of a target.
    pub outputs: usize,
    /// Units that hidden features fall into: tensor parallelism of any degree that divides them gives the same bits.
    pub units: usize,
    /// Biases.
    pub bias: bool,
    /// Between the layers.
    pub activation: Activation,
}

enum Layers {
    One(Linear),
    Two(ColumnParallelLinear, RowParallelLinear),
}

/// `x W + b`, or two such layers with an activation between them. The loss of a sample is its squared error.
pub struct Perceptron {
    config: PerceptronConfig,
    layers: Layers,
    parameters: Vec<Parameter>,
}

impl Perceptron {
    /// A model with fresh parameters, drawn from the device's seed.
    ///
    /// # Errors
    /// A mesh that cannot cut the hidden units evenly, or too little memory.
    pub fn new(device: &MeshDevice, config: PerceptronConfig) -> Result<Perceptron> {
        let c = &config;
        let mut p = Parameters::new(device);
        let layers = match c.hidden {
            0 => Layers::One(Linear::new(&mut p, "linear", c.inputs, c.outputs, c.bias)?),
            hidden => Layers::Two(
                ColumnParallelLinear::uniform(&mut p, "fc1", c.inputs, hidden, c.units, c.bias)?,
                RowParallelLinear::uniform(&mut p, "fc2", hidden, c.outputs, c.units, c.bias)?,
            ),
        };
        Ok(Perceptron {
            config,
            layers,
            parameters: p.finish(),
        })
    }

    /// Samples [batch, inputs] to predictions [batch, outputs].
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.layers {
            Layers::One(layer) => layer.forward(x, Activation::None),
            Layers::Two(first, second) => second.forward(&first.forward(x, self.config.activation)?),
        }
    }
}

impl Model for Perceptron {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn losses(&self, inputs: &Tensor, targets: &Tensor, scale: f32) -> Result<Tensor> {
        let error = self.forward(inputs)?.sub(targets)?;
        error.mul(&error)?.sum_dim(1)?.scale_gradient(scale)
    }

    fn set_training(&self, _on: bool) {}
}
