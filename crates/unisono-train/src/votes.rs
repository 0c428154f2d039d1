//! What processes decide together: whether the run stops.

use crate::error::Result;
use std::sync::Arc;
use unisono_runtime::ops::all_reduce::{AllReduce, Reduction};
use unisono_runtime::{Buffer, HostData, Kind, Pending};
use unisono_tensor::{MeshDevice, TensorError};

/// A signal may reach one process a step before another, and all must stop after the same step. So each gives its vote at each step,
/// and what counts is what they gave at the step before, which has arrived by then.
pub(crate) struct Votes {
    device: MeshDevice,
    /// One number; none where one process decides alone.
    ballot: Option<Buffer>,
    last: Option<Pending>,
}

impl Votes {
    /// No votes yet.
    ///
    /// # Errors
    /// Too little memory.
    pub(crate) fn new(device: &MeshDevice) -> Result<Votes> {
        let runtime = device.runtime();
        let ballot = match runtime.processes().size() {
            1 => None,
            _ => Some(runtime.alloc(1, Kind::Data).map_err(TensorError::from)?),
        };
        Ok(Votes {
            device: device.clone(),
            ballot,
            last: None,
        })
    }

    /// Gives this process's vote, and says whether the run stops.
    ///
    /// # Errors
    /// A failed command.
    pub(crate) fn count(&mut self, stop: bool) -> Result<bool> {
        let Some(ballot) = &self.ballot else {
            return Ok(stop);
        };
        Ok(vote(&self.device, ballot, &mut self.last, stop).map_err(TensorError::from)?)
    }
}

fn vote(
    device: &MeshDevice,
    ballot: &Buffer,
    last: &mut Option<Pending>,
    stop: bool,
) -> std::result::Result<bool, unisono_runtime::RuntimeError> {
    let runtime = device.runtime();
    let own: Arc<[f32]> = Arc::new([f32::from(u8::from(stop))]);
    runtime.upload(ballot.r(), HostData::F32(own))?;
    let all = runtime.mesh().all();
    runtime.issue_transfer(AllReduce {
        axis: all,
        reduction: Reduction::Max,
        from: ballot.r(),
        slot: 1,
        len: 1,
        to: ballot.r(),
    })?;
    let asked = runtime.read_later(ballot.r(), 0)?;
    match last.replace(asked) {
        Some(last) => Ok(last.wait()?[0] > 0.0),
        None => Ok(false),
    }
}
