//! Reading tensors on the host. These are the only calls that wait for the devices.

use crate::Result;
use crate::error::TensorError;
use crate::runs::for_each_run;
use crate::tensor::{Dtype, Tensor};
use unisono_runtime::Pending;

impl Tensor {
    /// All values in row-major order, as f32. A cut tensor is put together from its shards; of replicas the first device's is read.
    ///
    /// # Errors
    /// A partial sum, integers, or a failed command.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        self.expect_float("to_vec")?;
        self.assemble(|device| Ok(self.device().runtime().read_f32(self.buffer(), device)?))
    }

    /// All values of a tensor of integers in row-major order.
    ///
    /// # Errors
    /// A partial sum, floats, or a failed command.
    pub fn to_vec_u32(&self) -> Result<Vec<u32>> {
        self.expect_dtype("to_vec_u32", Dtype::U32)?;
        self.assemble(|device| Ok(self.device().runtime().read_u32(self.buffer(), device)?))
    }

    /// The shard of one device.
    ///
    /// # Errors
    /// A device that there is not, or a failed command.
    pub fn to_vec_on(&self, device: usize) -> Result<Vec<f32>> {
        Ok(self.device().runtime().read_f32(self.buffer(), device)?)
    }

    /// The value of a tensor of one element.
    ///
    /// # Errors
    /// More than one element, or a failed command.
    pub fn item(&self) -> Result<f32> {
        match self.to_vec()?.as_slice() {
            [value] => Ok(*value),
            values => Err(TensorError::Argument {
                op: "item",
                what: format!(
                    "a tensor of {} elements; item() reads a single one, to_vec() all",
                    values.len()
                ),
            }),
        }
    }

    /// Asks for the first device's values as they are at this point of the program, without waiting.
    ///
    /// # Errors
    /// A failed command.
    pub fn read_later(&self) -> Result<Pending> {
        Ok(self.device().runtime().read_later(self.buffer(), 0)?)
    }

    fn assemble<T: Copy + Default>(&self, read: impl Fn(usize) -> Result<Vec<T>>) -> Result<Vec<T>> {
        self.complete("to_vec", "the tensor")?;
        if self.placements().iter().all(|p| p.sharded_dim().is_none()) {
            return read(0);
        }
        let shape = self.shape();
        let mut whole = vec![T::default(); shape.iter().product()];
        let mut seen: Vec<Vec<usize>> = Vec::new();
        for device in 0..self.device().mesh().num_devices() {
            let start = self.start(device);
            if seen.contains(&start) {
                continue;
            }
            let shard = read(device)?;
            for_each_run(&shape, self.local_shape(), &start, &mut |at, from, len| {
                whole[at..at + len].copy_from_slice(&shard[from..from + len]);
            });
            seen.push(start);
        }
        Ok(whole)
    }
}
