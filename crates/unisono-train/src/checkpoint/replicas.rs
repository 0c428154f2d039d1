//! Whether the devices that should hold the same tensor do.

use super::Result;
use super::error::CheckpointError;
use unisono_nn::{Optimizer, Parameter};
use unisono_runtime::Kind;
use unisono_runtime::ops::digest::Digest;
use unisono_tensor::{Placement, Tensor, TensorError};

/// Compares every parameter and every tensor of the optimizer's state between all devices that should hold the same
/// shard, by hashes taken on the devices. `step` is the number of optimizer steps done, for the message.
///
/// # Errors
/// [`CheckpointError::ReplicasDiffer`] for the first tensor that differs.
pub fn verify_replicas(parameters: &[Parameter], optimizer: &dyn Optimizer, step: u64) -> Result<()> {
    let state = optimizer.state();
    let tensors: Vec<(String, &Tensor)> = parameters
        .iter()
        .map(|p| (format!("the parameter `{}`", p.name), &p.tensor))
        .chain(state.iter().map(|s| {
            let name = &parameters[s.parameter].name;
            (format!("the optimizer's {} of `{name}`", s.name), s.tensor)
        }))
        .collect();
    let Some((_, first)) = tensors.first() else {
        return Ok(());
    };
    let device = first.device();
    let runtime = device.runtime();
    let devices = device.mesh().num_devices();
    if devices == 1 {
        return Ok(());
    }
    let words = |tensor: &Tensor| Digest::words(tensor.local_shape().iter().product());
    let total = tensors.iter().map(|(_, tensor)| words(tensor)).sum();
    let digests = runtime.alloc(total, Kind::Data).map_err(TensorError::from)?;
    let mut at = 0;
    for (_, tensor) in &tensors {
        let to = digests.r().part(at, words(tensor));
        at += to.len;
        let x = tensor.buffer();
        runtime.issue(Digest { x, to }).map_err(TensorError::from)?;
    }
    // Asked for at once, so that the devices are waited for together.
    let pending = (0..devices)
        .map(|device| runtime.read_later(digests.r(), device))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(TensorError::from)?;
    let read = pending
        .into_iter()
        .map(|pending| pending.wait_u32())
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(TensorError::from)?;
    let mut at = 0;
    for (name, tensor) in &tensors {
        let part = at..at + words(tensor);
        at = part.end;
        for device in 1..devices {
            let first = first_holder(tensor, device);
            if read[first][part.clone()] != read[device][part.clone()] {
                return Err(difference(name, tensor, (first, device), step)?);
            }
        }
    }
    Ok(())
}

/// The first device that holds the same shard as `device`: the one at position 0 of every axis that does not cut it.
fn first_holder(tensor: &Tensor, device: usize) -> usize {
    let mesh = tensor.device().mesh();
    let mut first = device;
    for (axis, placement) in mesh.axes().iter().zip(tensor.placements()) {
        if *placement == Placement::Replicate {
            first = mesh.group(first, &axis.name)[0];
        }
    }
    first
}

/// Reads both shards and says where they differ.
fn difference(name: &str, tensor: &Tensor, devices: (usize, usize), step: u64) -> Result<CheckpointError> {
    let (a, b) = (tensor.to_vec_on(devices.0)?, tensor.to_vec_on(devices.1)?);
    let index = a
        .iter()
        .zip(&b)
        .position(|(a, b)| a.to_bits() != b.to_bits())
        .unwrap_or(0);
    Ok(CheckpointError::ReplicasDiffer {
        step,
        tensor: name.to_string(),
        devices,
        index,
        values: (a[index], b[index]),
    })
}
