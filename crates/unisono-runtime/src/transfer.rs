//! Data on its way between the host and the devices.

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
}

impl HostData {
    /// Number of elements for `device`; `None` if there is no array for it.
    pub(crate) fn len(&self, device: usize) -> Option<usize> {
        match self {
            HostData::F32(data) => Some(data.len()),
            HostData::U32(data) => Some(data.len()),
            HostData::F32PerDevice(data) => data.get(device).map(|data| data.len()),
            HostData::U32PerDevice(data) => data.get(device).map(|data| data.len()),
        }
    }

    /// Number of arrays, where there is one a device.
    pub(crate) fn arrays(&self) -> Option<usize> {
        match self {
            HostData::F32(_) | HostData::U32(_) => None,
            HostData::F32PerDevice(data) => Some(data.len()),
            HostData::U32PerDevice(data) => Some(data.len()),
        }
    }
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
