//! The tensor: one shard per device, one placement per mesh axis.

use crate::autograd::Node;
use crate::device::MeshDevice;
use crate::error::TensorError;
use crate::leaf::Leaf;
use crate::saved::Remake;
use crate::{Result, Rows};
use std::rc::Rc;
use unisono_mesh::{AxisHandle, Placement};
pub use unisono_runtime::Dtype;
use unisono_runtime::ops::{Region, RegionDim};
use unisono_runtime::{Buffer, BufferRef, Kind};

/// A multidimensional array on the devices of a mesh. A clone is another handle on the same values.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) inner: Rc<Inner>,
}

pub(crate) struct Inner {
    pub device: MeshDevice,
    /// Keeps the memory; views of one buffer share it.
    pub memory: Rc<Buffer>,
    /// The part of the memory that this tensor is.
    pub buffer: BufferRef,
    pub meta: Meta,
    pub node: Option<Rc<Node>>,
    pub leaf: Option<Rc<Leaf>>,
    /// How to make the values again, where that is cheap.
    pub remake: Option<Remake>,
}

/// Everything about a tensor but its values.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meta {
    pub dtype: Dtype,
    /// Shape of each device's shard.
    pub local: Vec<usize>,
    /// One placement a mesh axis.
    pub placements: Vec<Placement>,
    /// Units of each dimension, by which sums over it are grouped.
    pub units: Vec<usize>,
    /// For a partial sum: what is summed. Slots lie `local` elements apart.
    pub partial: Option<PartialSum>,
    /// How dimension 0 lies in the step's batch.
    pub rows: Option<Rows>,
}

/// A sum that still has to be finished over one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartialSum {
    pub axis: AxisHandle,
    /// Units of the whole sum; each position of the axis holds the spans of its equal share.
    pub units: usize,
    pub slots: usize,
    /// What the complete sum is rounded to; the partial one is f32.
    pub dtype: Dtype,
}

impl Meta {
    /// A tensor that every device holds whole.
    pub fn replicated(device: &MeshDevice, dtype: Dtype, shape: &[usize]) -> Meta {
        Meta {
            dtype,
            local: shape.to_vec(),
            placements: vec![Placement::Replicate; device.num_axes()],
            units: vec![1; shape.len()],
            partial: None,
            rows: None,
        }
    }

    /// Shape of the whole tensor.
    pub fn shape(&self, device: &MeshDevice) -> Vec<usize> {
        let mut shape = self.local.clone();
        for (index, placement) in self.placements.iter().enumerate() {
            if let Placement::Shard(dim) = placement {
                shape[*dim] *= device.axis_at(index).size;
            }
        }
        shape
    }

    /// Each device along `axis` keeps its part of `dim`.
    pub fn cut(&mut self, axis: AxisHandle, dim: usize) {
        self.local[dim] /= axis.size;
        self.placements[axis.index] = Placement::Shard(dim);
        if dim == 0 {
            self.rows = None;
        }
    }

    /// Products of the dimensions of a shard before `dim`, and of those from it on.
    pub fn around(&self, dim: usize) -> (usize, usize) {
        let (before, from) = self.local.split_at(dim);
        (before.iter().product(), from.iter().product())
    }

    /// The same placement and batch with another local shape of the same rank.
    pub fn with_local(&self, local: Vec<usize>) -> Meta {
        Meta { local, ..self.clone() }
    }

    /// Elements of one device's shard (of one slot, for a partial sum).
    pub fn len(&self) -> usize {
        self.local.iter().product()
    }

    /// What the elements are once they are complete: the kind that a gradient has.
    pub fn complete_dtype(&self) -> Dtype {
        self.partial.map_or(self.dtype, |partial| partial.dtype)
    }

    /// The axis along which `dim` is cut, if it is.
    pub fn axis_of(&self, device: &MeshDevice, dim: usize) -> Option<AxisHandle> {
        self.placements
            .iter()
            .position(|p| *p == Placement::Shard(dim))
            .map(|index| device.axis_at(index))
    }
}

impl Tensor {
    /// A new tensor with memory of its own and undefined values.
    pub(crate) fn empty(device: &MeshDevice, meta: Meta, kind: Kind) -> Result<Tensor> {
        let slots = meta.partial.map_or(1, |partial| partial.slots);
        let memory = Rc::new(device.runtime().alloc_as(meta.dtype, meta.len() * slots, kind)?);
        let buffer = memory.r();
        Ok(Tensor::view(device, memory, buffer, meta))
    }

    /// An activation with undefined values.
    pub(crate) fn activation(device: &MeshDevice, meta: Meta) -> Result<Tensor> {
        Tensor::empty(device, meta, Kind::Activation)
    }

    /// A tensor in memory that exists.
    pub(crate) fn view(device: &MeshDevice, memory: Rc<Buffer>, buffer: BufferRef, meta: Meta) -> Tensor {
        let inner = Inner {
            device: device.clone(),
            memory,
            buffer,
            meta,
            node: None,
            leaf: None,
            remake: None,
        };
        Tensor { inner: Rc::new(inner) }
    }

    /// The same values under other metadata (same number of elements), without a place in the graph.
    pub(crate) fn reinterpret(&self, meta: Meta) -> Tensor {
        let inner = &self.inner;
        let tensor = Tensor::view(&inner.device, inner.memory.clone(), inner.buffer, meta);
        match &inner.remake {
            Some(remake) => tensor.remade_by(remake.clone()),
            None => tensor,
        }
    }

    /// The same values, cut off from the graph.
    pub fn detach(&self) -> Tensor {
        self.reinterpret(self.inner.meta.clone())
    }

    /// The devices that hold it.
    pub fn device(&self) -> &MeshDevice {
        &self.inner.device
    }

    /// What the elements are.
    pub fn dtype(&self) -> Dtype {
        self.inner.meta.dtype
    }

    /// Shape of one device's shard.
    pub fn local_shape(&self) -> &[usize] {
        &self.inner.meta.local
    }

    /// Shape of the whole tensor: sharded dimensions times the size of their axis.
    pub fn shape(&self) -> Vec<usize> {
        self.inner.meta.shape(self.device())
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.inner.meta.local.len()
    }

    /// How it lies along each mesh axis.
    pub fn placements(&self) -> &[Placement] {
        &self.inner.meta.placements
    }

    /// The buffer that commands use. It must not be used after the last handle on this tensor is dropped.
    pub fn buffer(&self) -> BufferRef {
        self.inner.buffer
    }

    /// Whether a backward pass will reach it.
    pub fn needs_grad(&self) -> bool {
        self.inner.node.is_some() || self.inner.leaf.is_some()
    }

    /// How dimension 0 lies in the step's batch, where it is a batch.
    pub fn rows(&self) -> Option<Rows> {
        self.inner.meta.rows
    }

    pub(crate) fn meta(&self) -> &Meta {
        &self.inner.meta
    }

    /// Last dimension of the shard; 1 for a scalar.
    pub(crate) fn last(&self) -> usize {
        self.inner.meta.local.last().copied().unwrap_or(1)
    }

    /// Rows of the last dimension in the shard.
    pub(crate) fn leading(&self) -> usize {
        self.inner.meta.local[..self.rank().saturating_sub(1)].iter().product()
    }

    /// The batch that a sum over dimension 0 runs over, with what is known of it.
    pub(crate) fn batch_rows(&self) -> Rows {
        let meta = self.meta();
        meta.rows.unwrap_or_else(|| {
            let axis = meta.axis_of(self.device(), 0);
            let local = meta.local.first().copied().unwrap_or(1);
            match axis {
                Some(axis) => Rows::whole(local * axis.size, Some(axis)),
                // A plain tensor: its rows are one unit each, as in a batch of that size.
                None => Rows::whole(local, None),
            }
        })
    }

    /// Fails if a value is still a partial sum.
    pub(crate) fn complete(&self, op: &'static str, what: &str) -> Result<()> {
        match self.meta().partial {
            Some(partial) => Err(TensorError::Partial {
                op,
                what: format!("{what} {:?}", self.shape()),
                axis: self.device().axis_name(partial.axis.index),
                hint: "",
            }),
            None => Ok(()),
        }
    }

    /// Fails if the elements are not of this kind.
    pub(crate) fn expect_dtype(&self, op: &'static str, dtype: Dtype) -> Result<()> {
        if self.dtype() == dtype {
            Ok(())
        } else {
            Err(TensorError::Argument {
                op,
                what: format!(
                    "a tensor of {} was given, {} is needed{}",
                    self.dtype().name(),
                    dtype.name(),
                    if self.dtype().is_float() && dtype.is_float() {
                        ": cast it with to_dtype() first"
                    } else {
                        ""
                    }
                ),
            })
        }
    }

    /// Where the shard lies in the whole tensor, for random numbers keyed by the global element. Dimensions between the
    /// first and the last are taken together, so of them only the outermost may be cut.
    pub(crate) fn region(&self, op: &'static str) -> Result<Region> {
        let meta = self.meta();
        for dim in 2..self.rank().saturating_sub(1) {
            crate::ops::shape::uncut(op, self, dim)?;
        }
        let dim = |index: usize, local: usize| match meta.axis_of(self.device(), index) {
            Some(axis) => RegionDim {
                local,
                global: local * axis.size,
                valid: local * axis.size,
                base: 0,
                step: local,
                axis: Some(axis),
            },
            None => RegionDim::whole(local),
        };
        Ok(match meta.local.as_slice() {
            [] => Region::whole(1),
            [n] if meta.rows.is_none() => Region {
                dims: [RegionDim::whole(1), RegionDim::whole(1), dim(0, *n)],
            },
            [first, rest @ ..] => {
                let (middle, last) = match rest {
                    [] => (1, 1),
                    [middle @ .., last] => (middle.iter().product(), *last),
                };
                let outer = match meta.rows {
                    Some(rows) => RegionDim {
                        local: *first,
                        global: rows.total,
                        valid: rows.total,
                        base: rows.skip,
                        step: rows.per_position(),
                        axis: rows.axis,
                    },
                    None => dim(0, *first),
                };
                let inner = if rest.is_empty() {
                    RegionDim::whole(last)
                } else {
                    dim(meta.local.len() - 1, last)
                };
                let middle = if rest.len() > 1 {
                    dim(1, middle)
                } else {
                    RegionDim::whole(middle)
                };
                Region {
                    dims: [outer, middle, inner],
                }
            }
        })
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let placements: Vec<String> = self.placements().iter().map(Placement::to_string).collect();
        write!(
            f,
            "Tensor({:?}, {:?}, [{}])",
            self.shape(),
            self.dtype(),
            placements.join(", ")
        )
    }
}
