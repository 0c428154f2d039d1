//! Elementwise operations, with broadcasting.

use super::{batch_only, same_device};
use crate::Result;
use crate::error::TensorError;
use crate::leaf::{UseKey, WeightGrad};
use crate::ops::shape::{expand, sum_to};
use crate::tensor::Tensor;
use unisono_mesh::Placement;
use unisono_runtime::ops::elementwise::{Binary, Combine, Map, MapGrad, Operand, Unary};
use unisono_runtime::ops::fill::Fill;
use unisono_runtime::ops::reduce::ColumnSums;

impl Tensor {
    /// `self + other`, the smaller one broadcast.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn add(&self, other: &Tensor) -> Result<Tensor> {
        binary("add", Binary::Add, self, other)
    }

    /// `self` [batch, tokens, width] plus the first `tokens` rows of a table [entries, width]: positions. The table's gradient is
    /// a sum over the batch like any weight's, so micro-batches add up to it whatever their length.
    ///
    /// # Errors
    /// More tokens than the table has rows, or shapes or placements that do not fit.
    pub fn add_rows(&self, table: &Tensor) -> Result<Tensor> {
        let op = "add_rows";
        same_device(op, self, table)?;
        self.complete(op, "the tensor")?;
        table.complete(op, "the table")?;
        check_placements(op, self, table)?;
        let (&[_, tokens, width], &[rows, table_width]) = (self.local_shape(), table.local_shape()) else {
            return Err(too_few_rows(self, table));
        };
        if width != table_width || tokens > rows {
            return Err(too_few_rows(self, table));
        }
        let used = tokens * width;
        let y = Tensor::activation(self.device(), self.meta().clone())?;
        self.device().runtime().issue(Combine {
            f: Binary::Add,
            a: self.buffer(),
            b: Operand::Buffer(table.factor(op, self.dtype())?.buffer().part(0, used)),
            swapped: false,
            to: y.buffer(),
        })?;
        let (key, batch) = (table.use_key(op), self.batch_rows());
        let (leading, wants_grad, table) = (self.meta().len() / used.max(1), self.needs_grad(), table.clone());
        Ok(y.record(op, &[self, &table.clone()], move |dy| {
            let dx = wants_grad.then(|| dy.clone());
            if !table.needs_grad() {
                return Ok(vec![dx, None]);
            }
            let grad = WeightGrad::open(&table, key, &batch, leading / batch.count.max(1), batch.count)?;
            let (runtime, to) = (dy.device().runtime(), grad.target.buffer);
            if used < grad.target.slot && batch.skip == 0 {
                // Rows that no token uses have no gradient.
                runtime.issue(Fill { to, value: 0.0 })?;
            }
            runtime.issue(ColumnSums {
                x: dy.buffer(),
                cols: used,
                sum: grad.target.sum,
                to,
                slot: grad.target.slot,
            })?;
            Ok(vec![dx, grad.finish()?])
        }))
    }

    /// `self − other`, the smaller one broadcast.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn sub(&self, other: &Tensor) -> Result<Tensor> {
        binary("sub", Binary::Sub, self, other)
    }

    /// `self · other`, element by element, the smaller one broadcast.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn mul(&self, other: &Tensor) -> Result<Tensor> {
        binary("mul", Binary::Mul, self, other)
    }

    /// `self / other`, element by element, the smaller one broadcast.
    ///
    /// # Errors
    /// Shapes or placements that do not fit.
    pub fn div(&self, other: &Tensor) -> Result<Tensor> {
        binary("div", Binary::Div, self, other)
    }

    /// `self + value`.
    ///
    /// # Errors
    /// A partial sum.
    pub fn add_scalar(&self, value: f32) -> Result<Tensor> {
        let y = with_value("add_scalar", Binary::Add, self, value)?;
        Ok(y.record("add_scalar", &[self], |dy| Ok(vec![Some(dy.clone())])))
    }

    /// `self · value`.
    ///
    /// # Errors
    /// A partial sum.
    pub fn mul_scalar(&self, value: f32) -> Result<Tensor> {
        let y = with_value("mul_scalar", Binary::Mul, self, value)?;
        Ok(y.record("mul_scalar", &[self], move |dy| {
            Ok(vec![Some(with_value("mul_scalar", Binary::Mul, dy, value)?)])
        }))
    }

    /// The same values; their gradient is multiplied by `value` on the way back.
    ///
    /// # Errors
    /// A partial sum.
    pub fn scale_gradient(&self, value: f32) -> Result<Tensor> {
        self.complete("scale_gradient", "the tensor")?;
        Ok(self.detach().record("scale_gradient", &[self], move |dy| {
            Ok(vec![Some(with_value("scale_gradient", Binary::Mul, dy, value)?)])
        }))
    }

    /// Any of the elementwise functions.
    ///
    /// # Errors
    /// A partial sum.
    pub fn map(&self, f: Unary) -> Result<Tensor> {
        self.complete("map", "the tensor")?;
        self.expect_float("map")?;
        let y = Tensor::activation(self.device(), self.meta().clone())?;
        self.device().runtime().issue(Map {
            f,
            x: self.buffer(),
            to: y.buffer(),
        })?;
        let x = self.detach();
        Ok(y.record("map", &[self], move |dy| {
            let dx = Tensor::activation(dy.device(), x.meta().clone())?;
            dy.device().runtime().issue(MapGrad {
                f,
                x: x.buffer(),
                dy: dy.buffer(),
                to: dx.buffer(),
            })?;
            Ok(vec![Some(dx)])
        }))
    }

    /// `max(self, 0)`.
    ///
    /// # Errors
    /// A partial sum.
    pub fn relu(&self) -> Result<Tensor> {
        self.map(Unary::Relu)
    }

    /// GELU, by the error function; [`Unary::GeluTanh`] is the approximation.
    ///
    /// # Errors
    /// A partial sum.
    pub fn gelu(&self) -> Result<Tensor> {
        self.map(Unary::Gelu)
    }

    /// `self · sigmoid(self)`.
    ///
    /// # Errors
    /// A partial sum.
    pub fn silu(&self) -> Result<Tensor> {
        self.map(Unary::Silu)
    }
}

/// `f(x, value)`, outside the graph.
pub(crate) fn with_value(op: &'static str, f: Binary, x: &Tensor, value: f32) -> Result<Tensor> {
    x.complete(op, "the tensor")?;
    let y = Tensor::activation(x.device(), x.meta().clone())?;
    let b = Operand::Value(value);
    x.device().runtime().issue(Combine {
        f,
        a: x.buffer(),
        b,
        swapped: false,
        to: y.buffer(),
    })?;
    Ok(y)
}

fn binary(op: &'static str, f: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    same_device(op, a, b)?;
    a.complete(op, "the left operand")?;
    b.complete(op, "the right operand")?;
    a.expect_float(op)?;
    a.expect_same_dtype(op, b)?;
    let size = |t: &Tensor| (t.rank(), t.meta().len());
    let (large, small) = if size(a) >= size(b) { (a, b) } else { (b, a) };
    check_placements(op, large, small)?;
    if small.local_shape() != large.local_shape() && !is_suffix(small, large) {
        // Leading dimensions of 1 are repeated like missing ones.
        let ones = small.local_shape().iter().take_while(|n| **n == 1).count();
        if ones > 0 && large.local_shape().ends_with(&small.local_shape()[ones..]) {
            let less = small.reshape(&small.local_shape()[ones..])?;
            return if std::ptr::eq(small, b) {
                binary(op, f, a, &less)
            } else {
                binary(op, f, &less, b)
            };
        }
        // Neither covers the other: bring both to the common shape, then it is the simple case.
        let shape = common_shape(op, a, b)?;
        return binary(op, f, &expand(a, &shape)?, &expand(b, &shape)?);
    }
    if small.local_shape() != large.local_shape() {
        batch_only(op, large, small)?;
    }
    let swapped = std::ptr::eq(large, b);
    let y = Tensor::activation(a.device(), large.meta().clone())?;
    let command = Combine {
        f,
        a: large.buffer(),
        b: Operand::Buffer(small.buffer()),
        swapped,
        to: y.buffer(),
    };
    a.device().runtime().issue(command)?;
    let key = if small.local_shape() == large.local_shape() {
        None
    } else {
        Some(small.use_key(op))
    };
    if key.is_none() && matches!(f, Binary::Add | Binary::Sub) {
        // Nothing of the operands is needed: a residual stream keeps none of its terms.
        return Ok(y.record(op, &[a, b], move |dy| {
            let db = match f {
                Binary::Add => dy.clone(),
                _ => with_value(op, Binary::Mul, dy, -1.0)?,
            };
            Ok(vec![Some(dy.clone()), Some(db)])
        }));
    }
    let saved = (a.clone(), b.clone());
    Ok(y.record(op, &[a, b], move |dy| {
        let (a, b) = &saved;
        let gradient = |wanted: &Tensor, full: Tensor| -> Result<Option<Tensor>> {
            if wanted.local_shape() == full.local_shape() {
                return Ok(Some(full));
            }
            suffix_grad(wanted, &full, key.unwrap_or((op, 0)))
        };
        let da = if !a.needs_grad() {
            None
        } else {
            let full = match f {
                Binary::Add | Binary::Sub => dy.clone(),
                Binary::Mul => spread(Binary::Mul, dy, b)?,
                Binary::Div => spread(Binary::Div, dy, b)?,
                Binary::Max | Binary::Min => return Err(no_gradient(op)),
            };
            gradient(a, full)?
        };
        let db = if !b.needs_grad() {
            None
        } else {
            let full = match f {
                Binary::Add => dy.clone(),
                Binary::Sub => with_value(op, Binary::Mul, dy, -1.0)?,
                Binary::Mul => spread(Binary::Mul, dy, a)?,
                // d(a/b)/db = −(a/b)/b.
                Binary::Div => {
                    let over_b = spread(Binary::Div, &spread(Binary::Mul, dy, a)?, b)?;
                    with_value(op, Binary::Mul, &spread(Binary::Div, &over_b, b)?, -1.0)?
                }
                Binary::Max | Binary::Min => return Err(no_gradient(op)),
            };
            gradient(b, full)?
        };
        Ok(vec![da, db])
    }))
}

fn too_few_rows(x: &Tensor, table: &Tensor) -> TensorError {
    TensorError::Shape {
        op: "add_rows",
        found: format!("{:?} and a table of shape {:?}", x.shape(), table.shape()),
        rule: "the tensor is [batch, tokens, width], the table [entries, width], and there are no more tokens than entries".into(),
    }
}

fn no_gradient(op: &str) -> TensorError {
    TensorError::Gradient(format!("{op} has no gradient"))
}

/// `f(x, small)` where `small` may be a suffix of `x`.
fn spread(f: Binary, x: &Tensor, small: &Tensor) -> Result<Tensor> {
    let y = Tensor::activation(x.device(), x.meta().clone())?;
    let operand = Operand::Buffer(small.buffer());
    x.device().runtime().issue(Combine {
        f,
        a: x.buffer(),
        b: operand,
        swapped: false,
        to: y.buffer(),
    })?;
    Ok(y)
}

/// The gradient of a tensor that was broadcast over leading dimensions: the sum over them.
fn suffix_grad(wanted: &Tensor, full: &Tensor, key: UseKey) -> Result<Option<Tensor>> {
    let size = wanted.meta().len();
    let rows = full.batch_rows();
    let leading = full.meta().len() / size.max(1);
    let len = leading / rows.count.max(1);
    if rows.count * len != leading {
        return Ok(Some(sum_to(full, wanted)?));
    }
    let grad = WeightGrad::open(wanted, key, &rows, len, rows.count)?;
    full.device().runtime().issue(ColumnSums {
        x: full.buffer(),
        cols: size,
        sum: grad.target.sum,
        to: grad.target.buffer,
        slot: grad.target.slot,
    })?;
    grad.finish()
}

/// Whether `small` repeats over leading dimensions of `large`.
fn is_suffix(small: &Tensor, large: &Tensor) -> bool {
    large.local_shape().ends_with(small.local_shape()) && small.meta().len() > 0
}

/// The shape that both broadcast to.
fn common_shape(op: &'static str, a: &Tensor, b: &Tensor) -> Result<Vec<usize>> {
    let rank = a.rank().max(b.rank());
    let dim = |t: &Tensor, i: usize| {
        let missing = rank - t.rank();
        if i < missing { 1 } else { t.local_shape()[i - missing] }
    };
    (0..rank)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            (x, y) => Err(TensorError::Shape {
                op,
                found: format!("{:?} and {:?}", a.shape(), b.shape()),
                rule: format!("counted from the last, dimensions must be equal or 1, and {x} meets {y}"),
            }),
        })
        .collect()
}

/// Both operands must lie alike along every axis, dimensions counted from the last; a dimension that the smaller one does
/// not have may be cut.
fn check_placements(op: &'static str, large: &Tensor, small: &Tensor) -> Result<()> {
    let missing = large.rank() - small.rank();
    for (index, (pl, ps)) in large.placements().iter().zip(small.placements()).enumerate() {
        let fits = match (pl, ps) {
            (Placement::Replicate, Placement::Replicate) => true,
            (Placement::Shard(dim), Placement::Shard(other)) => *dim == other + missing,
            (Placement::Shard(dim), Placement::Replicate) => *dim < missing || small.local_shape()[dim - missing] == 1,
            _ => false,
        };
        if !fits {
            return Err(TensorError::Placement {
                op,
                axis: large.device().axis_name(index),
                found: format!(
                    "one operand {:?} is {pl} and the other {:?} is {ps}",
                    large.shape(),
                    small.shape()
                ),
                rule: "both must lie alike; all_gather or scatter one of them".into(),
            });
        }
    }
    Ok(())
}
