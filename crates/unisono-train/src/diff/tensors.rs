//! Checkpoints of common steps, tensor by tensor.

use super::Result;
use super::run::{RunDirectory, steps};
use crate::checkpoint::{Checkpoint, Holds, TensorRow, load};
use serde::Serialize;

/// How the checkpoints compare.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CheckpointComparison {
    /// Common steps whose checkpoints were compared, up to the first that differs.
    pub steps: Vec<u64>,
    /// Tensors of a checkpoint, parameters and optimizer state.
    pub tensors: usize,
    /// The first difference.
    pub first: Option<TensorDifference>,
}

/// Two checkpoints of one step that are not the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum TensorDifference {
    /// Values of a tensor.
    Values {
        /// The step.
        step: u64,
        /// The first tensor that differs, in the order of the model's table.
        tensor: String,
        /// The first element that differs, by dimension.
        index: Vec<usize>,
        /// Its value in the first run.
        a: f32,
        /// Its value in the second.
        b: f32,
        /// The bits of the first, in hex.
        a_bits: String,
        /// The bits of the second.
        b_bits: String,
        /// Elements of the tensor that differ.
        differing_values: usize,
        /// Elements of the tensor.
        values: usize,
        /// Tensors of the step that differ.
        differing_tensors: usize,
    },
    /// Tensors that only one run has, or has in another shape.
    Tables {
        /// The step.
        step: u64,
        /// Each as a clause.
        problems: Vec<String>,
    },
}

/// Compares the checkpoints of common steps, oldest first, until one differs.
pub(super) fn compare(a: &RunDirectory, b: &RunDirectory, notes: &mut Vec<String>) -> Result<CheckpointComparison> {
    let mut comparison = CheckpointComparison::default();
    for found in &a.checkpoints {
        let Some(other) = b.checkpoints.iter().find(|other| other.step == found.step) else {
            continue;
        };
        let (x, y) = (load(&found.path)?, load(&other.path)?);
        comparison.steps.push(found.step);
        comparison.tensors = x.manifest().tensors.len();
        comparison.first = first_difference(found.step, &x, &y)?;
        if comparison.first.is_some() {
            break;
        }
    }
    if comparison.steps.is_empty() && !(a.checkpoints.is_empty() && b.checkpoints.is_empty()) {
        let of = |run: &RunDirectory| match run.checkpoints.is_empty() {
            true => "none".to_string(),
            false => format!("those of step {}", steps(&run.checkpoints)),
        };
        notes.push(format!(
            "they share no checkpoint of one step: A has {}, B has {}",
            of(a),
            of(b)
        ));
    }
    Ok(comparison)
}

fn first_difference(step: u64, a: &Checkpoint, b: &Checkpoint) -> Result<Option<TensorDifference>> {
    let (rows, others) = (&a.manifest().tensors, &b.manifest().tensors);
    let problems: Vec<String> = tables(rows, b, "B").chain(tables(others, a, "A")).collect();
    if !problems.is_empty() {
        return Ok(Some(TensorDifference::Tables { step, problems }));
    }
    // Files of one hash are equal, and both have been read against their hashes.
    let files = |checkpoint: &Checkpoint| -> Vec<(Holds, String)> {
        let files = checkpoint.manifest().files.iter();
        files.map(|file| (file.holds, file.blake3.clone())).collect()
    };
    if files(a) == files(b) {
        return Ok(None);
    }
    let mut differing = Vec::new();
    for row in rows {
        if a.bytes(row.kind, &row.name)? != b.bytes(row.kind, &row.name)? {
            differing.push(row);
        }
    }
    let Some(row) = differing.first() else {
        return Ok(None);
    };
    let (x, y) = (a.values(row.kind, &row.name)?, b.values(row.kind, &row.name)?);
    let places = || (0..x.len()).filter(|i| x[*i].to_bits() != y[*i].to_bits());
    let at = places().next().unwrap_or(0);
    Ok(Some(TensorDifference::Values {
        step,
        tensor: row.name.clone(),
        index: index(at, &row.shape),
        a: x[at],
        b: y[at],
        a_bits: format!("{:08x}", x[at].to_bits()),
        b_bits: format!("{:08x}", y[at].to_bits()),
        differing_values: places().count(),
        values: x.len(),
        differing_tensors: differing.len(),
    }))
}

/// The rows that the other checkpoint does not have; other shapes are told once.
fn tables(rows: &[TensorRow], other: &Checkpoint, name: &str) -> impl Iterator<Item = String> {
    rows.iter().filter_map(move |row| match other.row(row.kind, &row.name) {
        None => Some(format!("{name} has no tensor `{}`", row.name)),
        Some(found) if found.shape != row.shape && name == "B" => Some(format!(
            "`{}` has shape {:?} in A and {:?} in B",
            row.name, row.shape, found.shape
        )),
        Some(_) => None,
    })
}

/// The index by dimension of an element of a row-major tensor.
fn index(at: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = at;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|len| {
            let position = rest % len.max(&1);
            rest /= len.max(&1);
            position
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    #[test]
    fn index_by_dimension() {
        assert_eq!(super::index(17, &[2, 3, 4]), [1, 1, 1]);
        assert_eq!(super::index(3, &[5]), [3]);
        assert!(super::index(0, &[]).is_empty());
    }
}
