//! Which process carries which devices of a mesh.

use super::Ranks;
use crate::exit::Failure;
use unisono_mesh::Mesh;
use unisono_mesh::descriptor::Selection;
use unisono_runtime::Processes;

impl Ranks {
    /// Lets the first `workers` processes carry the mesh, as `multihost_config.num_workers` asks; an aggregator and an optimizer behind
    /// them, as tt-train's tiers have, are left idle: their number is returned.
    ///
    /// # Errors
    /// Any other number of processes.
    pub fn limit(&self, workers: usize) -> Result<usize, Failure> {
        let size = self.size();
        match size.checked_sub(workers) {
            Some(idle @ 0..=2) => {
                self.carriers.set(workers);
                Ok(idle)
            }
            _ => Err(Failure::input(format!(
                "multihost_config.num_workers is {workers}, and {size} processes were started: start {workers} (or {} and {} with tt-train's \
                 aggregator and optimizer, which stay idle), or change num_workers",
                workers + 1,
                workers + 2
            ))),
        }
    }

    /// Whether this process carries nothing and only waits for the end.
    pub fn is_idle(&self) -> bool {
        self.rank() >= self.carriers.get()
    }

    /// Deals the devices of a mesh out to the processes: by the blocks of the machine's hosts where a descriptor names several, in the order
    /// of `TT_MESH_HOST_RANK` where that is set, else in runs as equal as can be.
    ///
    /// # Errors
    /// Fewer devices than processes, or processes that do not agree with the descriptor.
    pub fn processes(&self, mesh: &Mesh, machine: Option<&Selection>) -> Result<Processes, Failure> {
        if self.apart {
            return Ok(Processes::one());
        }
        let (size, devices) = (self.carriers.get(), mesh.num_devices());
        if devices < size {
            return Err(Failure::input(format!(
                "the mesh has {}, and {size} processes were started to carry it: start {devices}, or give the mesh at \
                 least {size} devices (--mesh)",
                mesh.describe()
            )));
        }
        let order = self.order()?;
        let hosts = machine.map_or(1, |selection| {
            selection.checked.machine.blocks[selection.block].hosts.num_devices()
        });
        let by_host = |selection: &Selection| -> Vec<usize> {
            let block = &selection.checked.machine.blocks[selection.block];
            let local = |device: &usize| device - block.first_device;
            selection
                .devices
                .iter()
                .map(|device| block.host_of(local(device)))
                .collect()
        };
        let owners: Vec<usize> = match machine {
            Some(selection) if hosts > 1 => {
                if hosts != size {
                    return Err(Failure::input(format!(
                        "{size} processes were started, and the host_topology of {} has {hosts} hosts: start {hosts}, or name a descriptor \
                         with {size}",
                        selection.checked.file
                    )));
                }
                by_host(selection).into_iter().map(|host| order[host]).collect()
            }
            _ => {
                let even = Processes::even(0, size, devices);
                (0..devices).map(|device| order[even.of(device)]).collect()
            }
        };
        if let Some(idle) = (0..size).find(|rank| !owners.contains(rank)) {
            return Err(Failure::input(format!(
                "{} would carry no device of the mesh of {}, which lies on other hosts of the descriptor: choose a mesh that takes in all of \
                 them",
                self.name(idle),
                mesh.describe()
            )));
        }
        Ok(Processes::new(self.rank(), size, &owners))
    }

    /// How many devices the processes carry that have this one's host and see the same of its devices: those of lower rank, and all.
    pub fn that_share(&self, processes: &Processes, devices: usize) -> (usize, usize) {
        let own = &self.said[self.rank()];
        let shares = |rank: usize| {
            let other = &self.said[rank];
            other.host == own.host && other.sees == own.sees
        };
        let owners: Vec<usize> = (0..devices).map(|device| processes.of(device)).collect();
        let of_sharing = owners.iter().filter(|rank| shares(**rank));
        let before = of_sharing.clone().filter(|rank| **rank < self.rank()).count();
        (before, of_sharing.count())
    }

    /// The ranks in the order in which their hosts stand in the mesh.
    fn order(&self) -> Result<Vec<usize>, Failure> {
        let said = &self.said[..self.carriers.get()];
        let ids: Vec<Option<usize>> = said.iter().map(|said| said.mesh_id).collect();
        if let Some(rank) = (1..said.len()).find(|rank| ids[*rank] != ids[0]) {
            let id = |rank: usize| ids[rank].map_or("none".to_string(), |id| id.to_string());
            return Err(Failure::input(format!(
                "{} has mesh_id {} and {} has {}: the processes of a run carry one mesh together, so all have the same mesh_id; programs \
                 of your own may use a mesh each",
                self.name(0),
                id(0),
                self.name(rank),
                id(rank)
            )));
        }
        let mut order: Vec<usize> = (0..said.len()).collect();
        let given: Vec<Option<usize>> = said.iter().map(|said| said.mesh_host_rank).collect();
        if given.iter().all(Option::is_none) {
            return Ok(order);
        }
        order.sort_by_key(|rank| given[*rank]);
        let is_dense = order
            .iter()
            .enumerate()
            .all(|(place, rank)| given[*rank] == Some(place));
        match is_dense {
            true => Ok(order),
            false => {
                let all: Vec<String> = given
                    .iter()
                    .map(|rank| rank.map_or("none".to_string(), |rank| rank.to_string()))
                    .collect();
                Err(Failure::input(format!(
                    "the mesh_host_ranks of ranks 0 to {} are {}; each of 0 to {} is needed once",
                    said.len() - 1,
                    all.join(", "),
                    said.len() - 1
                )))
            }
        }
    }
}
