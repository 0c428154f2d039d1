//! Models: a configuration, a forward pass, a table of parameters.

pub mod gpt;
pub mod regression;

use crate::Result;
use crate::parameter::Parameter;
use unisono_tensor::Tensor;

pub use gpt::{Gpt, GptConfig, Positions};
pub use regression::{Perceptron, PerceptronConfig};

/// What the training loop asks of a model.
pub trait Model {
    /// The table of parameters, in an order that depends on the configuration only.
    fn parameters(&self) -> &[Parameter];

    /// The loss of each sequence (sample) of a micro-batch, summed over its targets: `[batch]`. `backward()` on it gives the
    /// gradients of `scale` times the sum of all of them.
    ///
    /// # Errors
    /// Shapes that do not fit.
    fn losses(&self, inputs: &Tensor, targets: &Tensor, scale: f32) -> Result<Tensor>;

    /// Whether dropout is on.
    fn set_training(&self, on: bool);

    /// Number of parameters, each counted once.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Parameter::num_elements).sum()
    }
}
