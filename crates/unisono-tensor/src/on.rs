//! A tensor as a submesh of its devices sees it.

use crate::error::TensorError;
use crate::tensor::Tensor;
use crate::{MeshDevice, Result, Rows};
use std::rc::Rc;
use unisono_mesh::Placement;

impl Tensor {
    /// The same memory, seen by `device`, a mesh that was cut out of the one that this tensor lies on: a parameter placed once serves
    /// all submeshes. It stands outside the graph, as after [`Tensor::detach`].
    ///
    /// Where the tensor is replicated along an axis, any of its devices will do; an axis that it is cut along must be there
    /// whole and in the same order.
    ///
    /// # Errors
    /// [`TensorError::Argument`] for a mesh with other devices, or where a gradient would be lost (detach it first, or use
    /// [`MeshDevice::no_grad`]); [`TensorError::Partial`]; [`TensorError::Placement`] where a part of the tensor would be missing.
    pub fn on(&self, device: &MeshDevice) -> Result<Tensor> {
        let op = "on";
        let home = self.device();
        self.complete(op, "the tensor")?;
        if !home.runtime().same_system(device.runtime()) || !device.view().is_of(home.view()) {
            return Err(TensorError::Argument {
                op,
                what: format!(
                    "the tensor lies on {:?}, and not on all devices of {:?}; cut the submesh out of its mesh",
                    home.view(),
                    device.view()
                ),
            });
        }
        if self.needs_grad() && home.grad_enabled() {
            return Err(TensorError::Argument {
                op,
                what:
                    "the gradient of this tensor would not see its uses on a submesh; detach() it first, or call this \
                       inside no_grad()"
                        .into(),
            });
        }
        let mut meta = self.meta().clone();
        for (index, placement) in self.placements().iter().enumerate() {
            if !placement.is_replicate() && !has_axis(home, device, index)? {
                return Err(TensorError::Placement {
                    op,
                    axis: home.axis_name(index),
                    found: format!("the tensor {:?} is {placement}, and {:?} has not the whole axis", self.shape(), device.view()),
                    rule: "a submesh sees a tensor where all its parts are there: all_gather it first, or take a submesh over \
                           the whole axis"
                        .into(),
                });
            }
        }
        if self.placements().iter().all(|placement| placement.is_replicate()) {
            meta.placements = vec![Placement::Replicate; device.num_axes()];
        }
        // The same axis has another stride there.
        meta.rows = meta.rows.map(|rows| Rows {
            axis: rows
                .axis
                .filter(|axis| axis.index < device.num_axes())
                .map(|axis| device.axis_at(axis.index)),
            ..rows
        });
        Ok(Tensor::view(device, Rc::clone(&self.inner.memory), self.buffer(), meta))
    }
}

/// Whether `part` has axis `index` of `home` whole, with each device at its position there, beside as many other axes.
fn has_axis(home: &MeshDevice, part: &MeshDevice, index: usize) -> Result<bool> {
    if part.num_axes() != home.num_axes() || part.axis_at(index).size != home.axis_at(index).size {
        return Ok(false);
    }
    for (place, device) in part.view().devices().iter().enumerate() {
        let Some(there) = home.view().devices().iter().position(|other| other == device) else {
            return Ok(false);
        };
        if part.mesh().coordinate(place)?.0[index] != home.mesh().coordinate(there)?.0[index] {
            return Ok(false);
        }
    }
    Ok(true)
}
