//! Which process carries which device.

use std::ops::Range;
use std::sync::Arc;
use unisono_mesh::AxisHandle;

/// The processes of a run, and the devices of each. All of them hold the same table and differ in their rank alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    rank: usize,
    size: usize,
    /// The process of each device; empty where there is one process.
    owners: Arc<[u32]>,
}

impl Processes {
    /// One process that carries every device.
    pub fn one() -> Processes {
        Processes {
            rank: 0,
            size: 1,
            owners: Arc::new([]),
        }
    }

    /// Process `rank` of `size`, where `owners` names the process of each device.
    ///
    /// # Panics
    /// If a device belongs to no process, or a process that carries no device asks: a bug in unisono.
    pub fn new(rank: usize, size: usize, owners: &[usize]) -> Processes {
        assert!(
            owners.contains(&rank) && owners.iter().all(|owner| *owner < size),
            "bug in unisono: devices of the processes {owners:?}, seen by process {rank} of {size}"
        );
        // A mesh has at most 2^20 devices, and each process one of them, which fits.
        let owners = match size {
            1 => Arc::new([]) as Arc<[u32]>,
            _ => owners.iter().map(|owner| *owner as u32).collect(),
        };
        Processes { rank, size, owners }
    }

    /// Devices in row-major order, dealt out to `size` processes in runs as equal as can be: the first ones get one more.
    pub fn even(rank: usize, size: usize, devices: usize) -> Processes {
        let owners: Vec<usize> = (0..size)
            .flat_map(|process| std::iter::repeat_n(process, devices / size + usize::from(process < devices % size)))
            .collect();
        Processes::new(rank, size, &owners)
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Processes of the run.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The process that carries a device of the system.
    pub fn of(&self, device: usize) -> usize {
        self.owners.get(device).map_or(0, |owner| *owner as usize)
    }

    /// Whether this process carries a device of the system.
    pub fn is_here(&self, device: usize) -> bool {
        self.owners.get(device).is_none_or(|owner| *owner as usize == self.rank)
    }

    /// The devices of the system that this process carries, of `devices`.
    pub fn here(&self, devices: usize) -> Vec<usize> {
        (0..devices).filter(|device| self.is_here(*device)).collect()
    }
}

/// A process's part of a group: members that stand side by side on the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The process.
    pub(crate) process: usize,
    /// Positions on the axis.
    pub(crate) members: Range<usize>,
}

/// The parts of the group that begins with place `first`, in the order of the axis; `owner` names the process of a place. A process
/// that has two stretches of the axis has two parts.
pub(crate) fn parts(axis: AxisHandle, first: usize, owner: impl Fn(usize) -> usize) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for member in 0..axis.size {
        let process = owner(first + member * axis.stride);
        match parts.last_mut() {
            Some(part) if part.process == process => part.members.end = member + 1,
            _ => parts.push(Part {
                process,
                members: member..member + 1,
            }),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_dealt_out_in_runs() {
        let owners = |size, devices| -> Vec<usize> {
            let processes = Processes::even(0, size, devices);
            (0..devices).map(|device| processes.of(device)).collect()
        };
        assert_eq!(owners(3, 4), [0, 0, 1, 2]);
        assert_eq!(owners(2, 4), [0, 0, 1, 1]);
        assert_eq!(owners(1, 3), [0, 0, 0]);
        assert_eq!(Processes::even(1, 3, 4).here(4), [2]);
        assert_eq!(Processes::one().here(2), [0, 1]);
    }

    #[test]
    fn a_group_falls_into_parts() {
        let axis = AxisHandle {
            index: 0,
            stride: 2,
            size: 4,
        };
        let owners = [0, 0, 0, 1, 1, 1, 1, 1];
        let found = parts(axis, 1, |place| owners[place]);
        let expected = [(0, 0..1), (1, 1..4)].map(|(process, members)| Part { process, members });
        assert_eq!(found, expected);
    }
}
