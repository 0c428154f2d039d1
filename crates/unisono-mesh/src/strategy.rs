//! Which axis of a configured `mesh_shape` serves which kind of parallelism.

use crate::{Mesh, MeshError, MeshShape};

/// A kind of parallelism that takes a mesh axis, in the order in which they take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Strategy {
    /// Data parallel: each device on the axis has other sequences of the batch.
    Dp,
    /// Pipeline parallel: each device on the axis has other layers.
    Pp,
    /// Tensor parallel: each device on the axis has a shard of every layer.
    Tp,
}

impl Strategy {
    /// The name of its axis: `dp`, `pp` or `tp`.
    pub fn axis_name(self) -> &'static str {
        match self {
            Strategy::Dp => "dp",
            Strategy::Pp => "pp",
            Strategy::Tp => "tp",
        }
    }

    /// The key of `device_config` that enables it.
    pub fn config_key(self) -> &'static str {
        match self {
            Strategy::Dp => "enable_ddp",
            Strategy::Pp => "enable_pp",
            Strategy::Tp => "enable_tp",
        }
    }
}

/// The logical mesh of a configured shape and the enabled strategies (their order and repeats do not matter).
///
/// - As many strategies as axes: they take the axes in the order dp, pp, tp; `[8, 4]` with dp and tp is dp 8, tp 4, and
///   `[1, 8]` is dp 1, tp 8.
/// - Fewer strategies: axes of size 1 are left out first; `[1, 32]` with tp is tp 32.
/// - A single strategy takes all axes that are left, row-major; `[2, 4]` with dp is dp 8.
/// - No strategy: one device.
///
/// The configured shape is kept as [`Mesh::physical_shape`].
///
/// # Errors
/// [`MeshError::NoStrategy`] for several devices without a strategy, [`MeshError::AxesDoNotMatch`] for what still does not
/// match, and what [`MeshShape::new`] refuses.
pub fn assign_axes(shape: &[usize], strategies: &[Strategy]) -> Result<Mesh, MeshError> {
    let physical = MeshShape::new(shape)?;
    let mut strategies = strategies.to_vec();
    strategies.sort();
    strategies.dedup();

    let sizes = match strategies.len() {
        0 if physical.num_devices() == 1 => Vec::new(),
        0 => {
            return Err(MeshError::NoStrategy {
                mesh: physical.to_string(),
                devices: physical.num_devices(),
            });
        }
        n if n == shape.len() => shape.to_vec(),
        1 => vec![physical.num_devices()],
        n => without_ones(shape, n).ok_or_else(|| mismatch(&physical, &strategies))?,
    };
    let axes: Vec<(&str, usize)> = strategies
        .iter()
        .map(|strategy| strategy.axis_name())
        .zip(sizes)
        .collect();
    Mesh::with_physical_shape(&axes, shape)
}

/// `shape` with axes of size 1 left out until `num` axes remain, where there is just one such result.
fn without_ones(shape: &[usize], num: usize) -> Option<Vec<usize>> {
    let ones = shape.iter().filter(|size| **size == 1).count();
    let leave_out = shape.len().checked_sub(num).filter(|count| *count <= ones)?;
    // Which ones are left out matters only when larger axes stand between them.
    let first_one = shape.iter().position(|size| *size == 1)?;
    let in_one_run = shape[first_one..].iter().take_while(|size| **size == 1).count() == ones;
    if leave_out < ones && !in_one_run {
        return None;
    }
    let mut left = leave_out;
    Some(
        shape
            .iter()
            .copied()
            .filter(|size| {
                let leave = *size == 1 && left > 0;
                left -= usize::from(leave);
                !leave
            })
            .collect(),
    )
}

fn mismatch(shape: &MeshShape, strategies: &[Strategy]) -> MeshError {
    let (num, axes) = (strategies.len(), shape.num_axes());
    let larger = shape.sizes().iter().filter(|size| **size > 1).count();
    let names: Vec<&str> = strategies.iter().map(|strategy| strategy.axis_name()).collect();
    let keys: Vec<&str> = strategies.iter().map(|strategy| strategy.config_key()).collect();
    let rule = if larger > num {
        "each strategy takes one axis".to_string()
    } else if axes < num {
        "each strategy needs an axis of its own (it may have size 1)".to_string()
    } else {
        "which axes of size 1 to leave out is not clear".to_string()
    };
    let examples: Vec<String> = examples(shape.num_devices(), num)
        .iter()
        .map(|sizes| {
            let pairs: Vec<String> = names
                .iter()
                .zip(sizes)
                .map(|(name, size)| format!("{name} {size}"))
                .collect();
            format!("{sizes:?} ({})", pairs.join(", "))
        })
        .collect();
    let axes = match (axes, larger) {
        (1, _) => "1 axis".to_string(),
        (_, larger) if larger > num => format!("{larger} axes larger than 1"),
        (axes, _) => format!("{axes} axes"),
    };
    MeshError::AxesDoNotMatch {
        mesh: shape.to_string(),
        problem: format!(
            "{axes} but {num} strategies are enabled ({}), and {rule}",
            keys.join(", ")
        ),
        mend: format!(
            "use mesh_shape: {}, or enable only one strategy, which takes all {} devices",
            examples.join(" or "),
            shape.num_devices()
        ),
    }
}

/// Two shapes of `num` axes that have this many devices: the most even split and all on the first axis.
fn examples(devices: usize, num: usize) -> Vec<Vec<usize>> {
    let mut even = Vec::new();
    let mut left = devices;
    for axes_left in (1..=num).rev() {
        let size = if axes_left == 1 {
            left
        } else {
            // The smallest divisor not below the root: the outer axis gets the larger share.
            (1..=left)
                .find(|d| left.is_multiple_of(*d) && d.saturating_pow(axes_left as u32) >= left)
                .unwrap_or(left)
        };
        even.push(size);
        left /= size;
    }
    let mut first = vec![1; num];
    first[0] = devices;
    if even == first { vec![even] } else { vec![even, first] }
}
