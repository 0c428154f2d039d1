//! What the tests of attention share: cases, their slow twin, and calls of the kernels.

pub mod case;
mod fast;
pub mod twin;
