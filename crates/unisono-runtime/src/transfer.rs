//! Data on its way between the host and the devices.

use crate::buffer::BufferRef;
use crate::error::RuntimeError;
use crate::stored::Stored;
use std::sync::Arc;

/// Values that an upload copies to the devices. They are shared, not copied, until then.
#[derive(Clone, Debug)]
pub enum HostData {
    /// The same floats on every device.
    F32(Arc<[f32]>),
    /// The same integers on every device.
    U32(Arc<[u32]>),
    /// One array of floats for each device, in the order of device ids.
    F32PerDevice(Vec<Arc<[f32]>>),
    /// One array of integers for each device, in the order of device ids.
    U32PerDevice(Vec<Arc<[u32]>>),
    /// The same elements on every device, as they lie in memory: moved without a look at them.
    Bytes(Arc<[u8]>),
    /// One array of bytes for each device, in the order of device ids.
    BytesPerDevice(Vec<Arc<[u8]>>),
    /// Floats in memory that belongs to someone else, of which each device takes a part.
    Stored(Arc<Stored>),
}

impl HostData {
    /// Checks that there are as many values as `to` has elements for each of `devices` devices.
    pub(crate) fn check(&self, to: BufferRef, devices: usize) -> Result<(), RuntimeError> {
        let len = to.len;
        let bytes = to.bytes() as usize;
        match self {
            HostData::Bytes(data) => check_len(data.len(), bytes),
            HostData::BytesPerDevice(data) => check_arrays(data.iter().map(|data| data.len()), bytes, devices),
            HostData::F32(data) => check_len(data.len(), len),
            HostData::U32(data) => check_len(data.len(), len),
            HostData::F32PerDevice(data) => check_arrays(data.iter().map(|data| data.len()), len, devices),
            HostData::U32PerDevice(data) => check_arrays(data.iter().map(|data| data.len()), len, devices),
            HostData::Stored(stored) => stored.check(len, devices),
        }
    }
}

fn check_arrays(
    mut given: impl ExactSizeIterator<Item = usize>,
    len: usize,
    devices: usize,
) -> Result<(), RuntimeError> {
    if given.len() != devices {
        return Err(RuntimeError::Length {
            what: "arrays to upload, one a device",
            given: given.len(),
            expected: devices,
        });
    }
    given.try_for_each(|given| check_len(given, len))
}

fn check_len(given: usize, expected: usize) -> Result<(), RuntimeError> {
    if given == expected {
        return Ok(());
    }
    Err(RuntimeError::Length {
        what: "values to upload",
        given,
        expected,
    })
}

impl From<Vec<f32>> for HostData {
    fn from(data: Vec<f32>) -> HostData {
        HostData::F32(data.into())
    }
}

impl From<Vec<u32>> for HostData {
    fn from(data: Vec<u32>) -> HostData {
        HostData::U32(data.into())
    }
}

impl From<&[f32]> for HostData {
    fn from(data: &[f32]) -> HostData {
        HostData::F32(data.into())
    }
}

impl From<&[u32]> for HostData {
    fn from(data: &[u32]) -> HostData {
        HostData::U32(data.into())
    }
}
