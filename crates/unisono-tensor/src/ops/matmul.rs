//! Matrix products of activations, batched. Those with a weight are [linear layers](super::linear).

use super::same_device;
use crate::Result;
use crate::error::TensorError;
use crate::tensor::{Meta, Tensor};
pub use unisono_kernels::gemm::Activation;
use unisono_kernels::order::Units;
use unisono_mesh::Placement;
use unisono_runtime::ops::SumShare;
use unisono_runtime::ops::matmul::{MatMul, Matrix};

impl Tensor {
    /// The matrix product over the last two dimensions; leading dimensions must be equal, or `other` is one matrix.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        if other.rank() == 2 {
            return self.linear(other, None, Activation::None);
        }
        let op = "matmul";
        same_device(op, self, other)?;
        self.complete(op, "the left factor")?;
        other.complete(op, "the right factor")?;
        self.expect_float(op)?;
        self.expect_same_dtype(op, other)?;
        let (a, b) = (self.local_shape(), other.local_shape());
        let rank = self.rank();
        if rank < 2 || other.rank() != rank || a[..rank - 2] != b[..rank - 2] || a[rank - 1] != b[rank - 2] {
            return Err(TensorError::Shape {
                op,
                found: format!("{:?} times {:?}", self.shape(), other.shape()),
                rule: "[.., m, k] times [.., k, n] with equal leading dimensions, or [.., k] times one matrix [k, n]"
                    .into(),
            });
        }
        let uncut = |t: &Tensor| {
            t.placements()
                .iter()
                .all(|p| p.sharded_dim().is_none_or(|dim| dim < rank - 2))
        };
        if self.placements() != other.placements() || !uncut(self) {
            let pairs = self.placements().iter().zip(other.placements());
            let cut = |p: &Placement| p.sharded_dim().is_some_and(|dim| dim + 2 >= rank);
            let index = pairs.clone().position(|(p, q)| p != q || cut(p)).unwrap_or(0);
            return Err(TensorError::Placement {
                op,
                axis: self.device().axis_name(index),
                found: format!("the factors are {self:?} and {other:?}"),
                rule: "a batched product needs factors that are placed alike and not cut in the last two dimensions: \
                       all_gather or scatter one of them"
                    .into(),
            });
        }
        let y = batched(self, false, other, false)?;
        let (a, b) = (self.detach(), other.detach());
        Ok(y.record(op, &[self, other], move |dy| {
            Ok(vec![
                Some(batched(dy, false, &b, true)?),
                Some(batched(&a, true, dy, false)?),
            ])
        }))
    }
}

/// Batched product of activations, either factor transposed.
fn batched(a: &Tensor, a_transposed: bool, b: &Tensor, b_transposed: bool) -> Result<Tensor> {
    let rank = a.rank();
    let size = |t: &Tensor, transposed: bool| {
        let (rows, cols) = (t.local_shape()[rank - 2], t.local_shape()[rank - 1]);
        if transposed { (cols, rows) } else { (rows, cols) }
    };
    let ((m, k), (_, n)) = (size(a, a_transposed), size(b, b_transposed));
    let mut local = a.local_shape().to_vec();
    (local[rank - 2], local[rank - 1]) = (m, n);
    let y = Tensor::activation(
        a.device(),
        Meta {
            units: vec![1; rank],
            ..a.meta().with_local(local)
        },
    )?;
    let matrix = |t: &Tensor, transposed: bool| {
        let cols = t.last();
        let matrix = if transposed {
            Matrix::transposed(t.buffer(), cols)
        } else {
            Matrix::rows(t.buffer(), cols)
        };
        Matrix {
            batch: t.local_shape()[rank - 2] * cols,
            ..matrix
        }
    };
    a.device().runtime().issue(MatMul {
        batch: a.local_shape()[..rank - 2].iter().product(),
        m,
        n,
        a: matrix(a, a_transposed),
        b: matrix(b, b_transposed),
        to: y.buffer(),
        to_batch: m * n,
        slot: y.meta().len(),
        sum: SumShare::whole(Units::whole(k)),
        bias: None,
        activation: Activation::None,
        pre: None,
        residual: None,
    })?;
    Ok(y)
}
