//! Checkpoints: complete or absent, and the same bytes for every mesh.
//!
//! ```text
//! RUN/checkpoints/step-00000100/model.safetensors       (model-00001-of-00003.safetensors … above 1 GiB)
//!                              /optimizer.safetensors
//!                              /manifest.json            sizes, hashes, tensors, state: written last
//!                /latest, /best                          names of directories, for people and scripts
//! ```
//!
//! Every tensor is written whole, without padding, under its name in the model's table, so a checkpoint loads on any mesh.
//! A checkpoint is written in a temporary directory that gets its name when all of it is on the disk: whatever ends the
//! process before, the older checkpoints are good and [`Checkpoints::clean`] removes what lies about. Nothing that is not
//! finite, and no replica that has gone its own way, is ever saved.
//!
//! - [`Checkpoints`]: the directory of a run's checkpoints: [`save`](Checkpoints::save), [`find`](Checkpoints::find),
//!   [`newest`](Checkpoints::newest), [`clean`](Checkpoints::clean), [`rewind`](Checkpoints::rewind).
//! - [`Writer`] writes them behind a run that goes on, from a copy in the host's memory.
//! - [`load`] verifies one, [`load_parameters`] the model's part of it; [`Checkpoint::restore`] puts it into a live model and optimizer.
//! - [`verify_replicas`] compares copies by hash on the devices.
//! - [`config_digest`] names the part of a configuration that changes the result.

mod digest;
mod error;
mod load;
mod manifest;
mod replicas;
mod restore;
mod save;
mod snapshot;
mod store;
mod team;
mod writer;

pub use digest::{config_digest, result_part};
pub use error::CheckpointError;
pub(crate) use error::three;
pub use load::{Checkpoint, load, load_parameters};
pub use manifest::{FORMAT, FileEntry, Holds, Manifest, State, TensorRow};
pub use replicas::verify_replicas;
pub use restore::Restored;
pub use save::{Keep, Live, Saved};
pub use store::{Checkpoints, Cleaned, Found, Listing};
pub use writer::Writer;

/// Result of everything here that can fail.
pub type Result<T> = std::result::Result<T, CheckpointError>;
