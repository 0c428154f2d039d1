//! What an operation keeps of its input until the backward pass: the values, or a way to make them again.
//!
//! The results of norms and activations are large and cheap, and what they were made from is kept anyway. So a product that needs
//! such an input again in its backward pass keeps no copy of it; the same command on the same values gives the same bits.

use crate::Result;
use crate::tensor::{Meta, Tensor};
use std::rc::Rc;

/// Makes a tensor's values again.
pub(crate) type Remake = Rc<dyn Fn() -> Result<Tensor>>;

/// An input, kept until the backward pass.
pub(crate) enum Saved {
    /// Its values.
    Values(Tensor),
    /// How to make them, and how they lie.
    Recipe(Remake, Meta),
}

impl Saved {
    /// Keeps `x`.
    pub fn of(x: &Tensor) -> Saved {
        match &x.inner.remake {
            Some(remake) => Saved::Recipe(remake.clone(), x.meta().clone()),
            None => Saved::Values(x.detach()),
        }
    }

    /// The values.
    ///
    /// # Errors
    /// Too little memory to make them again.
    pub fn get(&self) -> Result<Tensor> {
        match self {
            Saved::Values(x) => Ok(x.clone()),
            Saved::Recipe(remake, meta) => Ok(remake()?.reinterpret(meta.clone())),
        }
    }
}

impl Tensor {
    /// This tensor, just made, with a recipe by which its values can be made again.
    pub(crate) fn remade_by(mut self, remake: Remake) -> Tensor {
        // A handle that others share keeps its values: right in any case, as a recipe only saves memory.
        if let Some(inner) = Rc::get_mut(&mut self.inner) {
            inner.remake = Some(remake);
        }
        self
    }
}
