//! Layers, models, optimizers, schedules and gradient clipping.
//!
//! A model does not know the mesh: it is a configuration, a forward pass that looks like the paper, and a table of
//! [`Parameter`]s whose dimensions say into how many units they fall and along which axis they may be cut. On a mesh
//! without that axis the same code runs on whole tensors.

pub mod adapters;
pub mod clip;
pub mod layers;
pub mod models;
pub mod optimizers;
pub mod parameter;
pub mod rope;
pub mod schedule;
pub mod step_loss;

pub use clip::GradientNorm;
pub use models::{LanguageModel, Model};
pub use optimizers::Optimizer;
pub use parameter::{Parameter, Parameters, Regime, Table};
pub use schedule::Schedule;
pub use step_loss::StepLoss;
pub use unisono_tensor::{Result, TensorError};
