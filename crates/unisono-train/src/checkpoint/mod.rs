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
//! - [`load`] verifies one; [`Checkpoint::restore`] puts it into a live model and optimizer.
//! - [`verify_replicas`] compares copies by hash on the devices.
//! - [`config_digest`] names the part of a configuration that changes the result.

mod digest;
mod error;
mod load;
mod manifest;
mod replicas;
mod restore;
mod save;
mod store;

pub use digest::{config_digest, result_part};
pub use error::CheckpointError;
pub(crate) use error::three;
pub use load::{Checkpoint, load};
pub use manifest::{FORMAT, FileEntry, Holds, Manifest, State, TensorRow};
pub use replicas::verify_replicas;
pub use restore::Restored;
pub(crate) use restore::upload_real;
pub(crate) use save::real_values;
pub use save::{Keep, Saved, Snapshot};
pub use store::{Checkpoints, Cleaned, Found, Listing};

/// Result of everything here that can fail.
pub type Result<T> = std::result::Result<T, CheckpointError>;

/// Calls `see(real, padded, len)` for every run of values that lie side by side both in a tensor of shape `real` and in its
/// padded form, with the run's place in each.
pub(crate) fn for_each_real_run(real: &[usize], padded: &[usize], see: &mut dyn FnMut(usize, usize, usize)) {
    let [leading @ .., last] = real else {
        see(0, 0, 1);
        return;
    };
    for row in 0..leading.iter().product() {
        let (mut rest, mut at, mut stride) = (row, 0, padded[real.len() - 1]);
        for dim in (0..leading.len()).rev() {
            at += rest % real[dim] * stride;
            rest /= real[dim];
            stride *= padded[dim];
        }
        see(row * last, at, *last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_runs_leave_padding_out() {
        let mut runs = Vec::new();
        for_each_real_run(&[2, 3], &[4, 5], &mut |real, padded, len| {
            runs.push((real, padded, len))
        });
        assert_eq!(runs, [(0, 0, 3), (3, 5, 3)]);
        runs.clear();
        for_each_real_run(&[2, 1, 2], &[2, 2, 3], &mut |real, padded, len| {
            runs.push((real, padded, len))
        });
        assert_eq!(runs, [(0, 0, 2), (2, 6, 2)]);
        runs.clear();
        for_each_real_run(&[], &[], &mut |real, padded, len| runs.push((real, padded, len)));
        assert_eq!(runs, [(0, 0, 1)]);
        for_each_real_run(&[0, 3], &[4, 3], &mut |_, _, _| panic!("an empty tensor has no runs"));
    }
}
