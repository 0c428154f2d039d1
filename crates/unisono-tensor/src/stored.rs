//! Parameters from memory that belongs to someone else, as a mapped file of weights.

use crate::Result;
use crate::create::ParameterSpec;
use crate::error::TensorError;
use crate::tensor::Tensor;
use std::sync::Arc;
use unisono_runtime::HostData;
use unisono_runtime::stored::{Run, SharedBytes, Stored, StoredDtype, StoredPart};

/// A whole tensor in shared memory, row-major, without padding.
#[derive(Clone)]
pub struct StoredTensor {
    /// The memory.
    pub bytes: SharedBytes,
    /// Byte of the first number.
    pub start: usize,
    /// What the numbers are.
    pub dtype: StoredDtype,
    /// Where the order of its columns differs: which of its columns go where, in ascending order of the places here. Empty
    /// where it does not.
    pub columns: Vec<Run>,
}

impl Tensor {
    /// Copies a tensor of `spec`'s shape from shared memory to the shards: each device reads its own part, converted to what
    /// the elements are; padding becomes zero. A copy that is kept in another kind is renewed.
    ///
    /// # Errors
    /// More than two dimensions, a cut that the runs cannot follow, or too few bytes.
    pub fn upload_stored(&self, spec: &ParameterSpec, stored: &StoredTensor) -> Result<()> {
        let (shape, local) = (spec.shape(), self.local_shape());
        let (rows, width, local_rows, cols) = match (&shape[..], local) {
            (&[width], &[cols]) => (1, width, 1, cols),
            (&[rows, width], &[local_rows, cols]) => (rows, width, local_rows, cols),
            _ => {
                return Err(TensorError::Argument {
                    op: "upload_stored",
                    what: format!("a tensor of shape {shape:?}; one and two dimensions are built"),
                });
            }
        };
        let identity = [Run {
            to: 0,
            from: 0,
            len: width,
        }];
        let columns = match stored.columns.is_empty() {
            true => &identity[..],
            false => &stored.columns[..],
        };
        let mut made: Vec<(Vec<usize>, Arc<StoredPart>)> = Vec::new();
        let parts = (0..self.device().mesh().num_devices())
            .map(|device| {
                let start = self.start(device);
                if let Some((_, part)) = made.iter().find(|(at, _)| *at == start) {
                    return part.clone();
                }
                let (first_row, first_col) = match start[..] {
                    [row, col] => (row, col),
                    [col] => (0, col),
                    _ => (0, 0),
                };
                let part = Arc::new(StoredPart {
                    first_row,
                    rows: rows.saturating_sub(first_row).min(local_rows),
                    runs: within(columns, first_col, cols),
                });
                made.push((start, part.clone()));
                part
            })
            .collect();
        let data = HostData::Stored(Arc::new(Stored {
            bytes: stored.bytes.clone(),
            start: stored.start,
            dtype: stored.dtype,
            stride: width,
            cols,
            parts,
        }));
        self.device().runtime().upload(self.buffer(), data)?;
        self.renew_copy()
    }
}

/// The parts of `runs` that lie in the columns `first..first + cols`, counted from there.
fn within(runs: &[Run], first: usize, cols: usize) -> Vec<Run> {
    let end = first + cols;
    runs.iter()
        .filter(|run| run.to < end && run.to + run.len > first)
        .map(|run| {
            let start = run.to.max(first);
            Run {
                to: start - first,
                from: run.from + (start - run.to),
                len: (run.to + run.len).min(end) - start,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::{Init, ParameterDim};
    use crate::{Dtype, Mesh, MeshDevice, Options};

    /// [5, 6] with both dimensions cut, padded (5 rows in 2 units become 6) and its columns in another order.
    #[test]
    fn every_mesh_reads_its_part() {
        let values: Vec<f32> = (0..30).map(|i| i as f32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let swapped = vec![Run { to: 0, from: 4, len: 2 }, Run { to: 2, from: 0, len: 4 }];
        let dim = |len, units, axis| ParameterDim { len, units, axis };
        for (columns, order) in [(Vec::new(), [0, 1, 2, 3, 4, 5]), (swapped, [4, 5, 0, 1, 2, 3])] {
            let stored = StoredTensor {
                bytes: Arc::new(bytes.clone()),
                start: 0,
                dtype: StoredDtype::F32,
                columns,
            };
            for axes in [&[][..], &[("tp", 2)], &[("dp", 2), ("tp", 2)]] {
                for cut in [0, 1] {
                    let device =
                        MeshDevice::open(Mesh::new(axes).expect("a mesh"), Options::default()).expect("devices");
                    let axis = |dim: usize| (dim == cut).then_some("tp");
                    let spec = ParameterSpec {
                        dims: vec![dim(5, 2, axis(0)), dim(6, 2, axis(1))],
                        init: Init::Later,
                    };
                    let t = device.parameter("w", &spec).expect("a parameter");
                    t.keep_copy(Dtype::Bf16).expect("a copy");
                    t.upload_stored(&spec, &stored).expect("it is copied");
                    let mut expected: Vec<f32> =
                        (0..5).flat_map(|row| order.map(|col| values[6 * row + col])).collect();
                    expected.resize(36, 0.0);
                    assert_eq!(t.to_vec().expect("values"), expected, "{axes:?} {cut}");
                    let copy = t.looked_up();
                    assert_eq!((copy.dtype(), copy.to_vec().expect("values")), (Dtype::Bf16, expected));
                }
            }
        }
    }
}
