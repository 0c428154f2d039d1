//! A tensor in another placement.

use crate::Result;
use crate::collectives::{self, Along};
use crate::tensor::{Dtype, Tensor};
use unisono_mesh::{Layout, Move, Placement, Redistribution};

impl Tensor {
    /// The same values in other placements, one a mesh axis, by the collectives that send least
    /// ([`Tensor::plan_redistribute`] says which). A partial sum is completed in canonical order; everything else is moved. Values
    /// are those of gathering the tensor and dealing it out anew, bit for bit. Gradients flow back the same way.
    ///
    /// ```
    /// use unisono_tensor::{HostTensor, MapperConfig, MeshDevice, Options, Placement};
    /// let device = MeshDevice::open_grid(&[2, 2], Options::default())?;
    /// let x = HostTensor::new(&(0..16).collect::<Vec<u32>>(), &[4, 4])?;
    /// let rows = device.distribute(&x, &MapperConfig::grid(None, Some(0)))?;
    /// let aim = [Placement::Shard(0), Placement::Shard(1)];
    /// assert_eq!(
    ///     rows.plan_redistribute(&aim)?.sentence(device.mesh()),
    ///     "all-to-all along `axis1` (Shard(0) to Shard(1)), then each device keeps its own part of dim 0 along `axis0` \
    ///      (Replicate to Shard(0)); each device sends 16 bytes"
    /// );
    /// assert_eq!(rows.redistribute(&aim)?.to_host()?, x);
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// Another number of placements than axes, a dim outside the tensor, cut along two axes or not a multiple of its devices, or
    /// `Partial` where the tensor is not: a sum has no addends once it is complete.
    pub fn redistribute(&self, placements: &[Placement]) -> Result<Tensor> {
        let mut t = self.clone();
        for step in self.plan_redistribute(placements)?.steps {
            let along = Along::axis(step.axis);
            let cut = |placement: Placement| placement.sharded_dim().unwrap_or(0) as isize;
            t = match step.what {
                Move::AllGather => collectives::all_gather(&t, cut(step.from), along)?,
                Move::Slice => collectives::scatter(&t, cut(step.to), along)?,
                Move::AllToAll => collectives::all_to_all(&t, cut(step.to), cut(step.from), along)?,
                Move::AllReduce => collectives::all_reduce(&t, collectives::Reduction::Sum, along)?,
                Move::ReduceScatter => collectives::reduce_scatter(&t, cut(step.to), along)?,
            };
        }
        Ok(t)
    }

    /// The steps that [`Tensor::redistribute`] would take, with the bytes that each device sends; nothing is issued.
    ///
    /// # Errors
    /// As [`Tensor::redistribute`].
    pub fn plan_redistribute(&self, placements: &[Placement]) -> Result<Redistribution> {
        let slots = self.meta().partial.map_or(1, |partial| partial.slots);
        let layout = Layout {
            shape: &self.shape(),
            placements: self.placements(),
            element: self.meta().complete_dtype().bytes() as u64,
            addends: (slots * Dtype::F32.bytes()) as u64,
        };
        Ok(Redistribution::plan(self.device().mesh(), &layout, placements)?)
    }
}
