//! Train and run transformers on a mesh of devices, with the same bits on every mesh.
//!
//! This crate is the front door of the library and holds the command line. [`prelude`] brings what a program of one page
//! needs; the crates below it have the rest:
//!
//! | crate | question it answers |
//! |---|---|
//! | [`mesh`] | *where*: shapes, named axes, placements |
//! | [`kernels`] | *how fast*: kernels in the canonical order, instruction sets |
//! | [`runtime`] | *when*: devices, commands, workers, collectives, memory |
//! | [`tensor`] | *what*: tensors with placements, gradients |
//! | [`nn`] | modules, models, optimizers, schedules |
//! | [`data`] | text in, token batches out; weight files |
//! | [`train`] | configuration, plan, training, checkpoints, generation |
//!
//! A step of linear regression, data parallel over two devices; on one device, or on any other mesh, it gives the same bits:
//!
//! ```
//! use unisono::prelude::*;
//!
//! let device = MeshDevice::open(Mesh::parse("dp=2")?, Options::default())?;
//! let mut table = Parameters::new(&device);
//! let layer = Linear::new(&mut table, "layer", 3, 1, true)?;
//! let parameters = table.finish();
//!
//! let x = device.batch(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0], &[4, 3])?;
//! let y = device.batch(&[1.0, 2.0, 3.0, 6.0], &[4, 1])?;
//! let loss = layer.forward(&x, Activation::None)?.mse_loss(&y, ReduceType::Mean)?;
//! loss.backward()?;
//! let weights: Vec<&Tensor> = parameters.iter().map(|p| &p.tensor).collect();
//! sync_gradients(&weights)?;
//! assert!(weights[0].grad()?.is_some());
//! # Ok::<(), TensorError>(())
//! ```
//!
//! The folder `examples` holds whole programs, from linear regression to a GPT; each runs as a test.

pub use unisono_data as data;
pub use unisono_kernels as kernels;
pub use unisono_mesh as mesh;
pub use unisono_nn as nn;
pub use unisono_runtime as runtime;
pub use unisono_tensor as tensor;
pub use unisono_train as train;

pub mod prelude;
