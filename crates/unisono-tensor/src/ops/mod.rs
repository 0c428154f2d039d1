//! The operations on tensors, one family a file: each checks placements, issues commands and says how gradients flow.

pub mod attention;
mod check;
pub mod comm;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
mod head;
mod head_norm;
pub mod kv_cache;
pub mod linear;
pub mod logits;
pub mod loss;
pub mod matmul;
pub mod norm;
pub mod redistribute;
pub mod reduce;
mod rope;
pub mod shape;
pub mod softmax;
mod swiglu;

pub(crate) use check::{batch_only, check_residual, check_targets, whole_last};

use crate::error::TensorError;
use crate::tensor::{Dtype, PartialSum, Tensor};
use unisono_kernels::order::{Tree, Units};
use unisono_mesh::AxisHandle;
use unisono_runtime::ops::SumShare;

/// The share of a sum over a dimension of `local` elements a device that is cut along `axis` into `units` units.
pub(crate) fn dim_sum(
    op: &'static str,
    local: usize,
    units: usize,
    axis: Option<AxisHandle>,
) -> Result<SumShare, TensorError> {
    let positions = axis.map_or(1, |axis| axis.size);
    let global = local * positions;
    let units = if units == 1 && positions > 1 { positions } else { units };
    if !units.is_multiple_of(positions) || !global.is_multiple_of(units) {
        return Err(TensorError::Argument {
            op,
            what: format!(
                "a dimension of {global} in {units} units cannot be cut evenly over {positions} devices; the number of units \
                 must be a multiple of the devices"
            ),
        });
    }
    let per_position = units / positions;
    let units = Units {
        count: units,
        len: global / units,
    };
    Ok(SumShare {
        units,
        axis,
        per_position,
        skip: 0,
        count: per_position,
    })
}

/// The partial sum that a share leaves on each device, `None` where it is complete.
pub(crate) fn partial_of(sum: &SumShare) -> Option<PartialSum> {
    let axis = sum.axis?;
    let tree = Tree::over_units(sum.units.count);
    let each = sum.per_position;
    let slots = (0..axis.size)
        .map(|i| tree.num_spans(i * each, (i + 1) * each))
        .max()
        .unwrap_or(1);
    Some(PartialSum {
        axis,
        units: sum.units.count,
        slots,
        dtype: Dtype::F32,
    })
}

/// Fails where two tensors live on different devices.
pub(crate) fn same_device(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(), TensorError> {
    if a.device().same(b.device()) {
        Ok(())
    } else {
        Err(TensorError::Argument {
            op,
            what: format!(
                "the tensors live on two meshes{}, {} and {}; both must be on one",
                match a.device().runtime().same_system(b.device().runtime()) {
                    true => "",
                    false => " that were opened apart",
                },
                a.device().with_ids(),
                b.device().with_ids()
            ),
        })
    }
}
