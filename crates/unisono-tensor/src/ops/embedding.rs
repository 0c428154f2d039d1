//! Table lookup.

use super::shape::uncut;
use super::{batch_only, same_device};
use crate::Result;
use crate::error::TensorError;
use crate::leaf::WeightGrad;
use crate::tensor::{Dtype, Meta, Tensor};
use unisono_mesh::Placement;
use unisono_runtime::ops::embedding::{Lookup, LookupGrad};
use unisono_runtime::ops::gather::SelectRows;

impl Tensor {
    /// Rows of `self`, a table [entries, width], for integer `ids` [..]: the result is [.., width]. A table that is cut in
    /// its rows (vocabulary-parallel) gives the same: each row is taken from the device that owns it.
    ///
    /// Ids must lie below the number of rows; `u32::MAX` gives zeros.
    ///
    /// # Errors
    /// Shapes, element types or placements that do not fit.
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        let op = "embedding";
        same_device(op, self, ids)?;
        self.complete(op, "the table")?;
        ids.expect_dtype(op, Dtype::U32)?;
        let &[rows, cols] = self.local_shape() else {
            return Err(TensorError::Shape {
                op,
                found: format!("a table of shape {:?}", self.shape()),
                rule: "a table has two dimensions, [entries, width]".into(),
            });
        };
        let device = self.device().clone();
        uncut(op, self, 1)?;
        batch_only(op, ids, self)?;
        let axis = self.meta().axis_of(&device, 0);
        if let Some(axis) = axis
            && ids.placements()[axis.index] != Placement::Replicate
        {
            return Err(TensorError::Placement {
                op,
                axis: device.axis_name(axis.index),
                found: format!("the table is Shard(0) and the ids are {}", ids.placements()[axis.index]),
                rule: format!(
                    "ids must be replicated along the axis that cuts the table: call all_gather(\"{}\", …) on them first",
                    device.axis_name(axis.index)
                ),
            });
        }
        let mut meta = ids.meta().clone();
        let values = self.looked_up();
        meta.dtype = values.dtype();
        meta.local.push(cols);
        meta.units.push(1);
        let found = Tensor::activation(&device, meta.clone())?;
        let runtime = device.runtime();
        runtime.issue(Lookup {
            table: values.buffer(),
            cols,
            axis,
            ids: ids.buffer(),
            to: found.buffer(),
        })?;
        let y = match axis {
            None => found,
            Some(axis) => {
                let y = Tensor::activation(&device, Meta { ..meta })?;
                runtime.issue(SelectRows {
                    axis,
                    shard: rows,
                    ids: ids.buffer(),
                    cols,
                    from: found.buffer(),
                    to: y.buffer(),
                })?;
                y
            }
        };
        let key = self.use_key(op);
        let (table, ids) = (self.clone(), ids.detach());
        Ok(y.record(op, &[self], move |dy| {
            let batch = ids.batch_rows();
            let len = ids.meta().len() / batch.count.max(1);
            let grad = WeightGrad::open(&table, key, &batch, len, batch.count)?;
            table.device().runtime().issue(LookupGrad {
                ids: ids.buffer(),
                dy: dy.buffer(),
                cols,
                rows,
                axis,
                sum: grad.target.sum,
                to: grad.target.buffer,
                slot: grad.target.slot,
            })?;
            Ok(vec![grad.finish()?])
        }))
    }
}
