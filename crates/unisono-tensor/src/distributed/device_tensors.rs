//! A tensor as one tensor a device, and back.

use super::device::{meta_of, place};
use super::shards::whole_shape;
use crate::host_tensor::refuse;
use crate::tensor::{Meta, Tensor};
use crate::{MeshDevice, Result};
use std::rc::Rc;
use unisono_mesh::{AxisHandle, Distribution, MapperConfig};
use unisono_runtime::ops::gather::TakePart;

/// The shard of each place of the tensor's mesh as a tensor on that device alone. Nothing is copied: the memory is shared.
///
/// ```
/// use unisono_tensor::distributed::{combine_device_tensors, get_device_tensors};
/// use unisono_tensor::{HostTensor, MapperConfig, MeshDevice, Options};
/// let device = MeshDevice::open_grid(&[1, 2], Options::default())?;
/// let x = HostTensor::new(&[1i32, 2, 3, 4], &[4])?;
/// let parts = get_device_tensors(&device.distribute(&x, &MapperConfig::shard(0))?)?;
/// assert_eq!(parts[1].to_host()?.to_vec::<i32>()?, [3, 4]);
/// let again = combine_device_tensors(&parts, &MapperConfig::shard(0), &device)?;
/// assert_eq!(again.to_host()?, x);
/// # Ok::<(), unisono_tensor::TensorError>(())
/// ```
///
/// # Errors
/// A partial sum.
pub fn get_device_tensors(tensor: &Tensor) -> Result<Vec<Tensor>> {
    tensor.complete("get_device_tensors", "the tensor")?;
    let device = tensor.device();
    (0..device.mesh().num_devices())
        .map(|place| {
            let one = device.known_view(device.view().pick(&[place])?)?;
            let meta = Meta::replicated(&one, tensor.dtype(), tensor.local_shape());
            Ok(Tensor::view(
                &one,
                Rc::clone(&tensor.inner.memory),
                tensor.buffer(),
                meta,
            ))
        })
        .collect()
}

/// Tensors on one device each as the shards of one tensor, which lies as `mapper` would have dealt it out over `device`: one a
/// place of the distribution, in row-major order. The values are copied on their devices, unless they are all the parts of one
/// tensor. That copies along a replicated axis are equal is taken on trust.
///
/// # Errors
/// What [`Distribution::of`] says, another number of tensors than places, tensors of several shapes or kinds, on several
/// devices, or on another device than their place, or a partial sum.
pub fn combine_device_tensors(tensors: &[Tensor], mapper: &MapperConfig, device: &MeshDevice) -> Result<Tensor> {
    const OP: &str = "combine_device_tensors";
    let Some(first) = tensors.first() else {
        return Err(refuse(
            OP,
            "no tensors; give one for each place of the distribution".into(),
        ));
    };
    for t in tensors {
        t.complete(OP, "a tensor")?;
        if t.local_shape() != first.local_shape() || t.dtype() != first.dtype() {
            return Err(refuse(
                OP,
                format!("tensors {first:?} and {t:?}; all must be of one shape and kind"),
            ));
        }
    }
    let mesh = device.view().shape();
    let distribution = Distribution::of(&mesh, mapper, &whole_shape(first.local_shape(), mapper, &mesh)?)?;
    if distribution.num_places() != tensors.len() {
        return Err(refuse(
            OP,
            format!(
                "{} tensors for the distribution {}, which has {} places; give one a place",
                tensors.len(),
                distribution.shape(),
                distribution.num_places()
            ),
        ));
    }
    let (target, placements) = place(&distribution, device)?;
    let ids = target.view().ids();
    for (place, t) in tensors.iter().enumerate() {
        let same_system = t.device().runtime().same_system(target.runtime());
        if !same_system || t.device().view().devices() != &target.view().devices()[place..=place] {
            return Err(refuse(
                OP,
                format!(
                    "tensor {place} lies on {}{}, but its place is device {}; give the tensors in the order of the places",
                    t.device().with_ids(),
                    if same_system { "" } else { " that was opened apart" },
                    ids[place]
                ),
            ));
        }
    }
    let meta = meta_of(&target, first.dtype(), distribution.global_shape(), &placements);
    let one_memory = |t: &Tensor| Rc::ptr_eq(&t.inner.memory, &first.inner.memory) && t.buffer() == first.buffer();
    if tensors.iter().all(one_memory) {
        return Ok(Tensor::view(
            &target,
            Rc::clone(&first.inner.memory),
            first.buffer(),
            meta,
        ));
    }
    let whole = Tensor::activation(&target, meta)?;
    for t in tensors {
        // The only part of one: a copy on this device.
        t.device().runtime().issue(TakePart {
            axis: AxisHandle {
                index: 0,
                size: 1,
                stride: 1,
            },
            outer: t.leading(),
            inner: t.last(),
            from: t.buffer(),
            to: whole.buffer(),
        })?;
    }
    Ok(whole)
}
