//! Layers: parameters and a forward pass each.

mod attention;
mod embedding;
mod linear;
mod mlp;
mod norm;
mod projection;
mod residual;

pub use attention::SelfAttention;
pub use embedding::{Embedding, sinusoidal_positions};
pub use linear::{ColumnParallelLinear, Linear, RowParallelLinear};
pub use mlp::Mlp;
pub use norm::{LayerNorm, RmsNorm};
pub use projection::Projection;
pub use residual::Residual;
pub use unisono_kernels::gemm::Activation;
