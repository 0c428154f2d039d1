//! A copy of a run's tensors in the host's memory: what a checkpoint is written from while the run goes on.

use super::save::{Contents, Keep, Live, Saved};
use super::team::Team;
use super::{Checkpoints, Result, verify_replicas};
use crate::shards::{Asked, Shards};

/// Parameters and optimizer state as they were at one step. Nothing ties it to the devices, so a thread may have it.
pub(super) struct Snapshot {
    contents: Contents,
    tensors: Vec<Shards>,
    team: Team,
}

impl Snapshot {
    /// Compares the replicas and copies every shard once, into `room` as far as that goes: memory of an earlier snapshot.
    /// Files are to have `most_bytes` at most. The copies are asked for all together; the commands that the program issues after this do not reach them.
    ///
    /// # Errors
    /// Replicas that differ, or a failed command.
    pub(super) fn take(live: &Live<'_>, most_bytes: u64, room: Vec<Vec<f32>>) -> Result<Snapshot> {
        verify_replicas(live.parameters, live.optimizer, live.state.step)?;
        let (contents, tensors) = live.contents(most_bytes);
        let mut room = room.into_iter();
        let asked = tensors.into_iter().enumerate();
        // Each process gets what it will write.
        let asked = asked.map(|(index, tensor)| {
            let writer = Some(contents.tensors[index].writer);
            Asked::of(tensor, index, &mut room, writer)
        });
        let asked = asked.collect::<std::result::Result<Vec<_>, _>>()?;
        let tensors = asked.into_iter().map(Asked::wait);
        let tensors = tensors.collect::<std::result::Result<_, _>>()?;
        let team = Team::of(live);
        if let Some(parameter) = live.parameters.first().filter(|_| team.size() > 1) {
            // What other processes write is on its way to them, and while this one looks at files nobody moves it on.
            let synced = parameter.tensor.device().runtime().sync();
            synced.map_err(unisono_tensor::TensorError::from)?;
        }
        Ok(Snapshot {
            contents,
            tensors,
            team,
        })
    }

    /// As [`Checkpoints::save`], from the copy: the same files.
    pub(super) fn write(&self, checkpoints: &Checkpoints, keep: Keep) -> Result<Saved> {
        checkpoints.write(&self.contents, &self.team, keep, &mut |index| {
            Ok(self.tensors[index].whole(&self.contents.tensors[index].row.shape))
        })
    }

    /// Its memory, for the next one.
    pub(super) fn into_room(self) -> Vec<Vec<f32>> {
        self.tensors.into_iter().flat_map(Shards::into_room).collect()
    }
}
