//! Host arrays from and to those of the crate `ndarray`.

use super::{HostElement, HostTensor};
use crate::Result;
use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

impl HostTensor {
    /// The values of an array of `ndarray` in its logical order, whatever its strides.
    ///
    /// # Errors
    /// More elements than can be counted in bytes.
    ///
    /// ```
    /// use ndarray::array;
    /// use unisono_tensor::HostTensor;
    /// let x = array![[1u32, 2, 3], [4, 5, 6]];
    /// let turned = HostTensor::from_ndarray(&x.t())?;
    /// assert_eq!(turned.to_vec::<u32>()?, [1, 4, 2, 5, 3, 6]);
    /// assert_eq!(turned.to_ndarray::<u32>()?, x.t().to_owned().into_dyn());
    /// # Ok::<(), unisono_tensor::TensorError>(())
    /// ```
    pub fn from_ndarray<T, S, D>(array: &ArrayBase<S, D>) -> Result<HostTensor>
    where
        T: HostElement,
        S: Data<Elem = T>,
        D: Dimension,
    {
        match array.as_slice() {
            Some(values) => HostTensor::new(values, array.shape()),
            None => HostTensor::new(&array.iter().copied().collect::<Vec<T>>(), array.shape()),
        }
    }

    /// The values as an array of `ndarray` in row-major order.
    ///
    /// # Errors
    /// Values of another kind, as [`HostTensor::to_vec`].
    pub fn to_ndarray<T: HostElement>(&self) -> Result<ArrayD<T>> {
        let values = self.to_vec::<T>()?;
        Ok(ArrayD::from_shape_vec(IxDyn(self.shape()), values)
            .expect("bug in unisono: a host array has as many values as its shape"))
    }
}
