//! *What*: tensors with placements, the operations on them, and automatic differentiation.
//!
//! A [`Tensor`] is one shard per device of a mesh and one [`Placement`] per mesh axis. Operations check placements and
//! issue commands; they never communicate by themselves: [`Tensor::all_reduce`] and its kin are called by whoever writes
//! the module, and an illegal use of a partial sum is an error that names what to call.
//!
//! ```
//! use unisono_tensor::MeshDevice;
//! let device = MeshDevice::one()?;
//! let x = device.tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2])?.requires_grad()?;
//! let loss = x.mul(&x)?.sum()?;
//! loss.backward()?;
//! assert_eq!(loss.item()?, 30.0);
//! assert_eq!(x.grad()?.expect("x takes part in the loss").to_vec()?, [2.0, 4.0, 6.0, 8.0]);
//! # Ok::<(), unisono_tensor::TensorError>(())
//! ```

pub mod autograd;
pub mod collectives;
pub mod create;
pub mod custom;
pub mod device;
pub mod distributed;
pub mod error;
pub mod host;
pub mod host_tensor;
pub mod leaf;
mod on;
pub mod ops;
pub mod pcc;
pub mod precision;
pub mod recompute;
pub mod rows;
pub mod runs;
mod saved;
pub mod stored;
pub mod tensor;

pub use device::{Links, MeshDevice};
pub use distributed::DistributedHostTensor;
pub use error::TensorError;
pub use host_tensor::{HostElement, HostTensor};
pub use leaf::sync_gradients;
pub use ops::loss::ReduceType;
pub use pcc::{assert_with_pcc, pcc};
pub use rows::Rows;
pub use tensor::{Dtype, Tensor};
pub use unisono_kernels::element::Bf16;
pub use unisono_mesh::{
    ComposerConfig, Distribution, MapPlacement, MapperConfig, Mesh, MeshCoordinate, MeshShape, MeshView, Over,
    Placement,
};
pub use unisono_runtime::ops::elementwise::{Binary, Unary};
pub use unisono_runtime::{Backend, Kind, Leak, Options, Phase, Runtime, Trace};

/// Result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, TensorError>;
