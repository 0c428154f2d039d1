//! Linear regression and the multilayer perceptron: the smallest models that train on a mesh.

use super::Model;
use crate::Result;
use crate::layers::{Activation, ColumnParallelLinear, Linear, RowParallelLinear};
use crate::parameter::{Parameters, Table};
use unisono_tensor::{Dtype, MeshDevice, Tensor};

/// Everything that defines the model.
#[derive(Clone, Debug, PartialEq)]
pub struct PerceptronConfig {
    /// Features of a sample.
    pub inputs: usize,
    /// Hidden features of each hidden layer; none for linear regression.
    pub hidden: Vec<usize>,
    /// Features of a target.
    pub outputs: usize,
    /// Units that hidden features fall into: tensor parallelism of any degree that divides them gives the same bits.
    pub units: usize,
    /// Biases.
    pub bias: bool,
    /// Between the layers.
    pub activation: Activation,
    /// What activations are: f32 or bf16. Samples, predictions and losses are f32 in both.
    pub dtype: Dtype,
}

enum Layer {
    Whole(Linear),
    Column(ColumnParallelLinear),
    Row(RowParallelLinear),
}

/// `x W + b`, or several such layers with an activation between them. The loss of a sample is its squared error.
///
/// Layers are cut along `tp` in pairs: the first of a pair by columns, the second by rows.
pub struct Perceptron {
    config: PerceptronConfig,
    layers: Vec<Layer>,
    table: Table,
}

impl Perceptron {
    /// A model with fresh parameters, drawn from the device's seed.
    ///
    /// # Errors
    /// A mesh that cannot cut the hidden units evenly, or too little memory.
    pub fn new(device: &MeshDevice, config: PerceptronConfig) -> Result<Perceptron> {
        let c = &config;
        let mut parameters = Parameters::with_dtype(device, c.dtype);
        let p = &mut parameters;
        let mut sizes = vec![c.inputs];
        sizes.extend(&c.hidden);
        sizes.push(c.outputs);
        let count = sizes.len() - 1;
        let mut layers = Vec::new();
        for (i, size) in sizes.windows(2).enumerate() {
            let (name, inputs, outputs) = (format!("layers.{i}"), size[0], size[1]);
            layers.push(match (i % 2, i + 1 == count) {
                (0, true) => Layer::Whole(Linear::new(p, &name, inputs, outputs, c.bias)?),
                (0, false) => Layer::Column(ColumnParallelLinear::uniform(
                    p, &name, inputs, outputs, c.units, c.bias,
                )?),
                _ => Layer::Row(RowParallelLinear::uniform(p, &name, inputs, outputs, c.units, c.bias)?),
            });
        }
        Ok(Perceptron {
            config,
            layers,
            table: parameters.table(),
        })
    }

    /// Samples [batch, inputs] to predictions [batch, outputs].
    ///
    /// # Errors
    /// A shape that does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.to_dtype(self.config.dtype)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let last = i + 1 == self.layers.len();
            let activation = if last { Activation::None } else { self.config.activation };
            x = match layer {
                Layer::Whole(layer) => layer.forward(&x, activation)?,
                Layer::Column(layer) => layer.forward(&x, activation)?,
                Layer::Row(layer) => layer.forward(&x)?.activate(activation)?,
            };
        }
        x.to_dtype(Dtype::F32)
    }
}

impl Model for Perceptron {
    fn table(&self) -> &Table {
        &self.table
    }

    fn losses(&self, inputs: &Tensor, targets: &Tensor, scale: f32) -> Result<Tensor> {
        let error = self.forward(inputs)?.sub(targets)?;
        error.mul(&error)?.sum_dim(1)?.scale_gradient(scale)
    }

    fn set_training(&self, _on: bool) {}
}
