//! Arrays on the host, of every kind of number that devices hold.
//!
//! ```
//! use unisono_tensor::HostTensor;
//! let x = HostTensor::new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
//! assert_eq!(x.to_string(), "[[1.0, 2.0],\n [3.0, 4.0]]\nshape [2, 2], f32");
//! let file = x.to_npy()?;
//! assert_eq!(HostTensor::from_npy(&file)?, x);
//! # Ok::<(), unisono_tensor::TensorError>(())
//! ```

mod element;
mod nd;
mod npy;
mod print;

pub use element::HostElement;
pub(crate) use print::array as print_array;

use crate::error::TensorError;
use crate::runs::for_each_run;
use crate::{Dtype, Result};
use std::sync::Arc;
use unisono_kernels::element::Bf16;

/// A whole array on the host: kind, shape, and values in row-major order.
///
/// A clone shares the values. Two are equal when kind, shape and every bit of the values are: a NaN equals itself, and −0
/// differs from 0.
#[derive(Clone, PartialEq, Eq)]
pub struct HostTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Little-endian, so that files, shards and uploads are copies of runs whatever the kind.
    bytes: Arc<[u8]>,
}

impl HostTensor {
    /// An array from values in row-major order.
    ///
    /// # Errors
    /// Another number of values than the shape has elements.
    pub fn new<T: HostElement>(values: &[T], shape: &[usize]) -> Result<HostTensor> {
        let elements = num_elements("HostTensor", T::DTYPE, shape)?;
        if elements != values.len() {
            return Err(refuse(
                "HostTensor",
                format!(
                    "{} values for shape {shape:?}, which has {elements} elements",
                    values.len()
                ),
            ));
        }
        Ok(HostTensor {
            dtype: T::DTYPE,
            shape: shape.to_vec(),
            bytes: T::to_bytes(values).into(),
        })
    }

    /// An array from little-endian bytes in row-major order, as files and devices hold it.
    ///
    /// # Errors
    /// Another number of bytes than the shape takes.
    pub fn from_bytes(dtype: Dtype, shape: &[usize], bytes: impl Into<Arc<[u8]>>) -> Result<HostTensor> {
        let bytes = bytes.into();
        let expected = num_elements("HostTensor", dtype, shape)? * dtype.bytes();
        if expected != bytes.len() {
            return Err(refuse(
                "HostTensor",
                format!(
                    "{} bytes for shape {shape:?} of {}, which takes {expected}",
                    bytes.len(),
                    dtype.name()
                ),
            ));
        }
        Ok(HostTensor {
            dtype,
            shape: shape.to_vec(),
            bytes,
        })
    }

    /// What the elements are.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The size of each dim, outermost first; empty for a single value.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.bytes()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The values as little-endian bytes in row-major order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same bytes, shared.
    pub fn shared_bytes(&self) -> Arc<[u8]> {
        Arc::clone(&self.bytes)
    }

    /// Whether both have the same memory, as the replicas of a distribution do.
    pub fn shares_memory(&self, other: &HostTensor) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
    }

    /// The values in row-major order.
    ///
    /// # Errors
    /// Values of another kind: nothing is converted.
    pub fn to_vec<T: HostElement>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            return Err(refuse(
                "to_vec",
                format!(
                    "the array holds {}, but {} was asked for; ask for what it holds, to_f64() converts",
                    self.dtype.name(),
                    T::DTYPE.name()
                ),
            ));
        }
        Ok(T::from_bytes(&self.bytes))
    }

    /// The values as f64, which is exact for every kind, in row-major order.
    pub fn to_f64(&self) -> Vec<f64> {
        fn wide<T: HostElement>(bytes: &[u8]) -> Vec<f64> {
            T::from_bytes(bytes).into_iter().map(T::to_f64).collect()
        }
        let read = match self.dtype {
            Dtype::F32 => wide::<f32>,
            Dtype::Bf16 => wide::<Bf16>,
            Dtype::U32 => wide::<u32>,
            Dtype::I32 => wide::<i32>,
            Dtype::U8 => wide::<u8>,
        };
        read(&self.bytes)
    }

    /// The same numbers in another kind: f32 becomes bf16 by rounding to nearest even, bf16 becomes f32 exactly.
    ///
    /// ```
    /// use unisono_tensor::{Bf16, Dtype, HostTensor};
    /// let x = HostTensor::new(&[1.0f32, 0.1], &[2])?.to_dtype(Dtype::Bf16)?;
    /// assert_eq!(x.to_vec::<Bf16>()?, [Bf16::from_f32(1.0), Bf16::from_f32(0.1)]);
    /// assert_eq!(x.to_dtype(Dtype::F32)?.to_vec::<f32>()?, [1.0, 0.100097656]);
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// Integers, to or from which nothing is converted.
    pub fn to_dtype(&self, dtype: Dtype) -> Result<HostTensor> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        let bytes = match (self.dtype, dtype) {
            (Dtype::F32, Dtype::Bf16) => {
                let values: Vec<Bf16> = f32::from_bytes(&self.bytes).into_iter().map(Bf16::from_f32).collect();
                Bf16::to_bytes(&values)
            }
            (Dtype::Bf16, Dtype::F32) => {
                let values: Vec<f32> = Bf16::from_bytes(&self.bytes).into_iter().map(Bf16::to_f32).collect();
                f32::to_bytes(&values)
            }
            (from, to) => {
                return Err(refuse(
                    "to_dtype",
                    format!(
                        "{} to {}; f32 and bf16 can be cast to each other",
                        from.name(),
                        to.name()
                    ),
                ));
            }
        };
        HostTensor::from_bytes(dtype, &self.shape, bytes)
    }

    /// The same values under another shape.
    ///
    /// # Errors
    /// A shape of another number of elements.
    pub fn reshape(&self, shape: &[usize]) -> Result<HostTensor> {
        if num_elements("reshape", self.dtype, shape)? != self.len() {
            return Err(refuse(
                "reshape",
                format!(
                    "{:?} to {shape:?}, which has another number of elements than {}",
                    self.shape,
                    self.len()
                ),
            ));
        }
        Ok(HostTensor {
            shape: shape.to_vec(),
            ..self.clone()
        })
    }

    /// The box of shape `local` whose first element is at `start`; the whole shares its memory.
    pub(crate) fn part(&self, start: &[usize], local: &[usize]) -> HostTensor {
        if local == self.shape {
            return self.clone();
        }
        let size = self.dtype.bytes();
        let mut bytes = Vec::with_capacity(local.iter().product::<usize>() * size);
        for_each_run(&self.shape, local, start, &mut |at, _, len| {
            bytes.extend_from_slice(&self.bytes[at * size..(at + len) * size]);
        });
        HostTensor {
            dtype: self.dtype,
            shape: local.to_vec(),
            bytes: bytes.into(),
        }
    }

    /// An array of `shape` from parts of one kind and shape, each with the place of its first element; together they must
    /// cover it.
    ///
    /// # Errors
    /// More bytes than the host can give.
    pub(crate) fn joined(shape: &[usize], parts: &[(&HostTensor, &[usize])]) -> Result<HostTensor> {
        let dtype = parts[0].0.dtype;
        if let [(part, _)] = parts
            && part.shape == shape
        {
            return Ok((*part).clone());
        }
        let size = dtype.bytes();
        let total = num_elements("aggregate", dtype, shape)? * size;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(total).map_err(|_| {
            refuse(
                "aggregate",
                format!(
                    "shape {shape:?} of {} takes {total} bytes, more than there are",
                    dtype.name()
                ),
            )
        })?;
        bytes.resize(total, 0);
        for (part, start) in parts {
            for_each_run(shape, &part.shape, start, &mut |at, from, len| {
                bytes[at * size..(at + len) * size].copy_from_slice(&part.bytes[from * size..(from + len) * size]);
            });
        }
        Ok(HostTensor {
            dtype,
            shape: shape.to_vec(),
            bytes: bytes.into(),
        })
    }
}

impl std::fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostTensor({:?}, {})", self.shape, self.dtype.name())
    }
}

/// The elements of a shape, all of whose bytes can be counted.
fn num_elements(op: &'static str, dtype: Dtype, shape: &[usize]) -> Result<usize> {
    let limit = isize::MAX as usize / dtype.bytes();
    // Sizes of zero are left out, so that they hide no overflow of the others: strides are products too.
    let counted = shape.iter().filter(|size| **size > 0);
    match counted.clone().try_fold(1usize, |product, size| {
        product.checked_mul(*size).filter(|p| *p <= limit)
    }) {
        Some(product) => Ok(if counted.count() < shape.len() { 0 } else { product }),
        None => Err(refuse(
            op,
            format!("shape {shape:?} of {} has more bytes than memory", dtype.name()),
        )),
    }
}

pub(crate) fn refuse(op: &'static str, what: String) -> TensorError {
    TensorError::Argument { op, what }
}
