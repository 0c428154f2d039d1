//! The model's side of generation: sequences in caches, and the logits after their last tokens.

use unisono_nn::LanguageModel;
use unisono_runtime::Pending;
use unisono_tensor::ops::attention::KvCache;
use unisono_tensor::{MeshDevice, Result, Tensor, TensorError};

/// A model with room for some sequences, each at a length of its own.
///
/// A sequence's logits depend on its tokens alone, bit for bit: not on the other sequences, the mesh, or whether its tokens
/// came at once or one by one. Along data-parallel axes every device computes the same.
pub struct Decoder<'a> {
    model: &'a dyn LanguageModel,
    device: MeshDevice,
    caches: Vec<KvCache>,
    capacity: usize,
    /// Tokens that each sequence has in the caches.
    lengths: Vec<usize>,
}

impl<'a> Decoder<'a> {
    /// Room for `sequences` of up to `capacity` tokens.
    ///
    /// # Errors
    /// Too little memory, or more tokens than the model has positions.
    pub fn new(model: &'a dyn LanguageModel, sequences: usize, capacity: usize) -> Result<Decoder<'a>> {
        let positions = model.max_sequence_length();
        if sequences == 0 || capacity == 0 || capacity > positions {
            return Err(TensorError::Argument {
                op: "decoder",
                what: format!(
                    "room for {sequences} sequences of {capacity} tokens; there must be at least one of each, and this model has \
                     positions for {positions} tokens"
                ),
            });
        }
        Ok(Decoder {
            model,
            device: model.device().clone(),
            caches: model.caches(sequences, capacity)?,
            capacity,
            lengths: vec![0; sequences],
        })
    }

    /// Tokens that each sequence has.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Forgets the tokens of sequence `index`.
    pub fn clear(&mut self, index: usize) {
        if let Some(len) = self.lengths.get_mut(index) {
            *len = 0;
        }
    }

    /// Appends tokens to sequence `index`, at most `chunk` of them in one pass. The values to come are the logits after the
    /// last, one an entry of the vocabulary and then padding; the host does not wait.
    ///
    /// # Errors
    /// No tokens, more than there is room for, or a failed command.
    pub fn append(&mut self, index: usize, ids: &[u32], chunk: usize) -> Result<Pending> {
        self.room(index, ids.len())?;
        let device = self.device.clone();
        device.no_grad(|| {
            let caches = self
                .caches
                .iter()
                .map(|cache| cache.sequences(index..index + 1))
                .collect::<Result<Vec<_>>>()?;
            let mut last = None;
            for part in ids.chunks(chunk.max(1)) {
                let at = self.lengths[index];
                let positions: Vec<u32> = (at..at + part.len()).map(|p| p as u32).collect();
                let shape = [1, part.len()];
                let ids = device.tensor_u32(part, &shape)?;
                let positions = device.tensor_u32(&positions, &shape)?;
                last = Some(self.model.forward_cached(&ids, &caches, &positions)?);
                self.lengths[index] += part.len();
            }
            match last {
                Some(features) => self.logits(&features),
                None => Err(no_tokens()),
            }
        })
    }

    /// Appends one token to each of the first sequences, `None` for one that is to stay as it is. The values to come are the
    /// logits after each, a row a sequence.
    ///
    /// # Errors
    /// No tokens, more than there are sequences, one for a sequence that is full, or a failed command.
    pub fn step(&mut self, ids: &[Option<u32>]) -> Result<Pending> {
        if ids.is_empty() {
            return Err(no_tokens());
        }
        for (index, _) in ids.iter().enumerate().filter(|(_, id)| id.is_some()) {
            self.room(index, 1)?;
        }
        let device = self.device.clone();
        device.no_grad(|| {
            let caches = self
                .caches
                .iter()
                .map(|cache| cache.sequences(0..ids.len()))
                .collect::<Result<Vec<_>>>()?;
            // A sequence that stays as it is works on a token behind its last one, which the next real one overwrites.
            let position = |(index, _): (usize, _)| self.lengths[index].min(self.capacity - 1) as u32;
            let positions: Vec<u32> = ids.iter().enumerate().map(position).collect();
            let tokens: Vec<u32> = ids.iter().map(|id| id.unwrap_or(0)).collect();
            let shape = [ids.len(), 1];
            let (tokens, positions) = (
                device.tensor_u32(&tokens, &shape)?,
                device.tensor_u32(&positions, &shape)?,
            );
            let features = self.model.forward_cached(&tokens, &caches, &positions)?;
            for (len, _) in self.lengths.iter_mut().zip(ids).filter(|(_, id)| id.is_some()) {
                *len += 1;
            }
            self.logits(&features)
        })
    }

    /// Logits after each sequence's last token, whole on the first device.
    fn logits(&self, features: &Tensor) -> Result<Pending> {
        let last = match features.local_shape()[1] {
            1 => features.clone(),
            tokens => features.slice(1, tokens - 1..tokens)?,
        };
        self.model.logits(&last)?.all_gather("tp", 2, true)?.read_later()
    }

    /// Fails where sequence `index` has no room for `tokens` more.
    fn room(&self, index: usize, tokens: usize) -> Result<()> {
        let what = match self.lengths.get(index) {
            None => format!("sequence {index} of {}; sequences count from 0", self.lengths.len()),
            Some(len) if len + tokens > self.capacity => format!(
                "{tokens} tokens behind the {len} of sequence {index}; there is room for {}",
                self.capacity
            ),
            Some(_) => return Ok(()),
        };
        Err(TensorError::Argument { op: "decoder", what })
    }
}

fn no_tokens() -> TensorError {
    TensorError::Argument {
        op: "decoder",
        what: "no tokens to append; at least one is needed".into(),
    }
}
