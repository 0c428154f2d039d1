//! Models: a configuration, a forward pass, a table of parameters.

pub mod gpt;
pub mod llama;
pub mod regression;

use crate::Result;
use crate::parameter::{Parameter, Table};
use std::rc::Rc;
use unisono_tensor::ops::attention::{AttentionSpec, KvCache, Places};
use unisono_tensor::{Dtype, MeshDevice, Tensor};

pub use gpt::{Gpt, GptConfig, Positions};
pub use llama::{Llama, LlamaConfig};
pub use regression::{Perceptron, PerceptronConfig};

/// What the training loop asks of a model.
pub trait Model {
    /// The table of parameters, in an order that depends on the configuration only.
    fn table(&self) -> &Table;

    /// The loss of each sequence (sample) of a micro-batch, summed over its targets: `[batch]`. `backward()` on it gives the
    /// gradients of `scale` times the sum of all of them.
    ///
    /// # Errors
    /// Shapes that do not fit.
    fn losses(&self, inputs: &Tensor, targets: &Tensor, scale: f32) -> Result<Tensor>;

    /// Whether dropout is on.
    fn set_training(&self, on: bool);

    /// The parameters that are trained.
    fn parameters(&self) -> &[Parameter] {
        &self.table().trainable
    }

    /// Number of parameters, each counted once.
    fn num_parameters(&self) -> usize {
        self.table().all().map(Parameter::num_elements).sum()
    }
}

/// What generation asks of a model.
pub trait LanguageModel: Model {
    /// The devices that it is on.
    fn device(&self) -> &MeshDevice;

    /// Entries of the vocabulary.
    fn vocab_size(&self) -> usize;

    /// Longest sequence.
    fn max_sequence_length(&self) -> usize;

    /// Token ids [batch, tokens] to features [batch, tokens, width] after the last norm.
    ///
    /// # Errors
    /// More tokens than the model has positions.
    fn forward(&self, ids: &Tensor) -> Result<Tensor>;

    /// Features [batch, 1, width] of each sequence's last token, behind the last norm, as new tokens `ids` [batch, tokens] go
    /// through the model. `positions` [batch, tokens] say where they stand in their sequences: each sequence's follow each
    /// other, and the caches hold all tokens before them. No gradients flow through.
    ///
    /// # Errors
    /// A shape that does not fit.
    fn forward_cached(&self, ids: &Tensor, caches: &[KvCache], positions: &Tensor) -> Result<Tensor>;

    /// Caches for `batch` sequences (on each device) of up to `capacity` tokens, one a block.
    ///
    /// # Errors
    /// Too little memory.
    fn caches(&self, batch: usize, capacity: usize) -> Result<Vec<KvCache>>;

    /// Features [.., width] to logits [.., vocabulary] in f32, cut along `tp`, padding at the end.
    ///
    /// # Errors
    /// A shape that does not fit, or recorded gradients.
    fn logits(&self, features: &Tensor) -> Result<Tensor>;
}

/// For each of `blocks` blocks which of the tokens at `positions` [batch, tokens] ask: all, and behind the last block, whose
/// other features nobody would read, each sequence's last one.
fn places_of(positions: &Tensor, blocks: usize) -> Result<impl Iterator<Item = Rc<Places>>> {
    let all = Rc::new(Places::all(positions)?);
    let last = Rc::new(all.last()?);
    Ok((1..=blocks).map(move |block| if block < blocks { all.clone() } else { last.clone() }))
}

/// A cache for each of `blocks` blocks, with a device's share of the groups of `spec`; see [`LanguageModel::caches`].
fn caches_of(
    device: &MeshDevice,
    spec: &AttentionSpec,
    blocks: usize,
    (batch, capacity): (usize, usize),
    dtype: Dtype,
) -> Result<Vec<KvCache>> {
    let groups = spec.num_groups / device.mesh().axis_size("tp");
    (0..blocks)
        .map(|_| KvCache::new(device, spec, groups, batch, capacity, dtype))
        .collect()
}
