//! Tensors on their way to the host: asked for together, put together when they are there.

use std::borrow::Cow;
use unisono_runtime::{Pending, Processes};
use unisono_tensor::create::ParameterSpec;
use unisono_tensor::runs::for_each_run;
use unisono_tensor::{Tensor, TensorError};

type Result<T> = std::result::Result<T, TensorError>;

/// The shards of a tensor of floats, as they are at one point of the program, on their way to the host.
pub(crate) struct Asked {
    local: Vec<usize>,
    /// Of each different shard its first element in the whole, by dimension.
    starts: Vec<Vec<usize>>,
    pending: Vec<Pending>,
}

/// The same, on the host. Nothing ties them to the devices, so they may go to another thread.
pub(crate) struct Shards {
    local: Vec<usize>,
    starts: Vec<Vec<usize>>,
    values: Vec<Vec<f32>>,
}

impl Asked {
    /// Asks for every shard once, without waiting. Of the devices that hold the same shard, the one asked is the first for
    /// `turn` 0, the next for 1, and so around: they copy different tensors at the same time. Each shard takes a piece of
    /// `room`, memory of the host that is used again; where that ends, memory is fresh. Where several processes run, all call this, and
    /// only `reader` gets the values if one is named.
    ///
    /// # Errors
    /// A failed command.
    pub(crate) fn of(
        tensor: &Tensor,
        turn: usize,
        room: &mut dyn Iterator<Item = Vec<f32>>,
        reader: Option<usize>,
    ) -> Result<Asked> {
        let local = tensor.local_shape().to_vec();
        let mut holders: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
        assert!(
            tensor.placements().iter().all(|placement| !placement.is_partial()),
            "bug in unisono: a partial sum was asked for by the host"
        );
        for device in 0..tensor.device().mesh().num_devices() {
            let start = tensor.start(device);
            match holders.iter_mut().find(|(of, _)| *of == start) {
                Some((_, devices)) => devices.push(device),
                None => holders.push((start, vec![device])),
            }
        }
        let runtime = tensor.device().runtime();
        let mut asked = Asked {
            local,
            starts: Vec::with_capacity(holders.len()),
            pending: Vec::with_capacity(holders.len()),
        };
        for (start, devices) in holders {
            let room = room.next().unwrap_or_default();
            let device = nearest(runtime.processes(), &devices, turn, reader);
            let pending = match reader {
                Some(reader) => runtime.read_later_at(tensor.buffer(), device, reader, room)?,
                None => runtime.read_later_into(tensor.buffer(), device, room)?,
            };
            asked.starts.push(start);
            asked.pending.push(pending);
        }
        Ok(asked)
    }

    /// Waits, and works, until they are there.
    ///
    /// # Errors
    /// A failed command.
    pub(crate) fn wait(self) -> Result<Shards> {
        let values = self
            .pending
            .into_iter()
            .map(Pending::wait)
            .collect::<std::result::Result<_, _>>()?;
        Ok(Shards {
            local: self.local,
            starts: self.starts,
            values,
        })
    }
}

impl Shards {
    /// The tensor of shape `real`, put together row-major; what the shards hold beyond that is padding and left out.
    pub(crate) fn whole(&self, real: &[usize]) -> Cow<'_, [f32]> {
        match self.is_whole(real) {
            true => Cow::Borrowed(&self.values[0]),
            false => Cow::Owned(self.assembled(real)),
        }
    }

    /// The same, without a copy where there is nothing to put together.
    pub(crate) fn into_whole(mut self, real: &[usize]) -> Vec<f32> {
        match self.is_whole(real) {
            true => self.values.swap_remove(0),
            false => self.assembled(real),
        }
    }

    /// The memory, to be used again.
    pub(crate) fn into_room(self) -> Vec<Vec<f32>> {
        self.values
    }

    fn is_whole(&self, real: &[usize]) -> bool {
        self.values.len() == 1 && self.local == real
    }

    fn assembled(&self, real: &[usize]) -> Vec<f32> {
        let mut whole = vec![0.0; real.iter().product()];
        for (start, values) in self.starts.iter().zip(&self.values) {
            for_each_run(real, &self.local, start, &mut |at, from, len| {
                whole[at..at + len].copy_from_slice(&values[from..from + len]);
            });
        }
        whole
    }
}

/// Of the devices that hold the same shard one that the reader carries, where it carries any, in turn.
fn nearest(processes: &Processes, devices: &[usize], turn: usize, reader: Option<usize>) -> usize {
    let near: Vec<usize> = devices
        .iter()
        .copied()
        .filter(|device| reader == Some(processes.of(*device)))
        .collect();
    let among = if near.is_empty() { devices } else { &near[..] };
    among[turn % among.len()]
}

/// Waits for a whole tensor, put together from its shards, without its padding. Where several processes run, all call this, and all
/// but the first get nothing.
///
/// # Errors
/// A failed command.
pub(crate) fn real_values(tensor: &Tensor, spec: &ParameterSpec) -> Result<Vec<f32>> {
    let shards = Asked::of(tensor, 0, &mut std::iter::empty(), Some(0))?.wait()?;
    Ok(match tensor.device().runtime().processes().rank() {
        0 => shards.into_whole(&spec.shape()),
        _ => Vec::new(),
    })
}
