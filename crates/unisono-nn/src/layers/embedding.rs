//! Token embeddings and fixed positions.

use crate::Result;
use crate::parameter::{Parameters, cut, whole};
use unisono_kernels::math;
use unisono_tensor::{MeshDevice, Tensor};

/// A table of vectors, whose rows may be cut along `tp` (vocabulary-parallel).
pub struct Embedding {
    /// The table, [entries, width].
    pub weight: Tensor,
}

impl Embedding {
    /// A table of `entries` rows in `units` units; N(0, 0.02).
    ///
    /// # Errors
    /// Units that the mesh does not divide, or too little memory.
    pub fn new(p: &mut Parameters, name: &str, entries: usize, width: usize, units: usize) -> Result<Embedding> {
        let weight = p.normal(&format!("{name}.weight"), vec![cut(entries, units), whole(width)], 0.02)?;
        Ok(Embedding { weight })
    }

    /// Ids [..] to vectors [.., width], replicated along `tp`.
    ///
    /// # Errors
    /// A shape or element type that does not fit.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.weight.embedding(ids)
    }
}

/// Positions that are not learned: sine at even and cosine at odd elements, wavelengths from 2π to 10000 · 2π.
///
/// Source: Vaswani et al., *Attention is all you need* (2017), section 3.5.
///
/// # Errors
/// Too little memory.
pub fn sinusoidal_positions(device: &MeshDevice, tokens: usize, width: usize) -> Result<Tensor> {
    let mut values = Vec::with_capacity(tokens * width);
    for position in 0..tokens {
        for i in 0..width {
            let exponent = (i / 2 * 2) as f32 / width as f32;
            let angle = position as f32 / math::powf(10_000.0, exponent);
            values.push(if i % 2 == 0 { math::sin(angle) } else { math::cos(angle) });
        }
    }
    device.tensor(&values, &[tokens, width])
}
