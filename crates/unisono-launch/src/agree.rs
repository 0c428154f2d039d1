//! What must agree: the ranks of the bindings with the processes of the descriptor, and with the places of a rankfile.
//! Each disagreement names both places.

use crate::binding::{Binding, Bindings};
use crate::paths;
use crate::rankfile::RankfileText;
use crate::request::Caller;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_mesh::descriptor::{self, Block, Machine};
use unisono_train::config::{Findings, listed};

/// The machines that ranks refer to, by their descriptor's file.
pub(crate) type Machines = BTreeMap<PathBuf, Machine>;

/// Reads every descriptor once. With `skip_mgd_check` one that is not here is left out, and said.
pub(crate) fn machines(
    bindings: &Bindings,
    skip_mgd_check: bool,
    caller: &Caller,
    findings: &mut Findings,
) -> Machines {
    let mut machines = Machines::new();
    let mut seen: Vec<&Path> = Vec::new();
    for path in bindings.ranks.iter().map(|binding| binding.descriptor.as_path()) {
        if seen.contains(&path) {
            continue;
        }
        seen.push(path);
        if skip_mgd_check && !path.is_file() {
            let shown = paths::shown(path, caller);
            let message = format!("{shown} is not on this host: whether the ranks fit it is not checked");
            findings.note(None, message);
            continue;
        }
        match descriptor::load(path) {
            Ok(checked) => {
                machines.insert(path.to_path_buf(), checked.machine);
            }
            Err(error) => findings.problem(None, error.to_string()),
        }
    }
    machines
}

/// Which of its mesh's processes each rank is, in order of rank; `None` where the descriptor is not known, and for a rank
/// on a switch. What does not fit is told.
pub(crate) fn host_ranks(
    bindings: &Bindings,
    machines: &Machines,
    caller: &Caller,
    findings: &mut Findings,
) -> Vec<Option<u32>> {
    let mut found: Vec<Option<u32>> = bindings.ranks.iter().map(|binding| binding.mesh_host_rank).collect();
    let mut contexts: Vec<(Option<usize>, &Path)> = Vec::new();
    for binding in &bindings.ranks {
        let context = (binding.subcontext_id, binding.descriptor.as_path());
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }
    for (subcontext, path) in contexts {
        let Some(machine) = machines.get(path) else { continue };
        let of_context = |binding: &&Binding| binding.subcontext_id == subcontext && binding.descriptor == path;
        let ranks: Vec<&Binding> = bindings.ranks.iter().filter(of_context).collect();
        let context = Context {
            file: &bindings.file,
            descriptor: paths::shown(path, caller),
            machine,
            ranks: &ranks,
        };
        context.check(&mut found, findings);
    }
    found
}

/// The ranks that share a descriptor and a sub-context.
struct Context<'a> {
    file: &'a str,
    descriptor: String,
    machine: &'a Machine,
    ranks: &'a [&'a Binding],
}

impl Context<'_> {
    fn check(&self, found: &mut [Option<u32>], findings: &mut Findings) {
        let is_there = |binding: &Binding| self.machine.blocks.iter().any(|block| block.id == binding.mesh_id);
        for binding in self.ranks.iter().filter(|binding| !is_there(binding)) {
            let ids: Vec<String> = self.machine.blocks.iter().map(|block| block.id.to_string()).collect();
            let message = format!(
                "rank {} has mesh_id {}, and {} describes {}",
                binding.rank,
                binding.mesh_id,
                self.descriptor,
                match ids.as_slice() {
                    [id] => format!("mesh {id} only"),
                    ids => format!("the meshes {}", listed(ids, "and")),
                }
            );
            findings.problem(Some(binding.place.clone()), message);
        }
        for (index, block) in self
            .machine
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| !block.is_switch)
        {
            if self.machine.blocks[..index].iter().any(|other| other.id == block.id) {
                let message = format!(
                    "{} describes two meshes with the id {}, so that mesh_id {} does not say which; give each its own",
                    self.descriptor, block.id, block.id
                );
                findings.problem(None, message);
                continue;
            }
            self.mesh(block, found, findings);
        }
    }

    fn mesh(&self, block: &Block, found: &mut [Option<u32>], findings: &mut Findings) {
        let ranks: Vec<&Binding> = self
            .ranks
            .iter()
            .filter(|binding| binding.mesh_id == block.id)
            .copied()
            .collect();
        let hosts = block.hosts.num_devices();
        let numbers: Vec<String> = ranks.iter().map(|binding| binding.rank.to_string()).collect();
        let bound = match numbers.as_slice() {
            [] => "no rank".to_string(),
            [one] => format!("1 rank ({one})"),
            many => format!("{} ranks ({})", many.len(), listed(many, "and")),
        };
        if ranks.len() != hosts {
            let message = format!(
                "{} has mesh {} over {} (host_topology {}), and {} binds {bound} to it: each process is one rank",
                self.descriptor,
                block.id,
                if hosts == 1 {
                    "1 process".to_string()
                } else {
                    format!("{hosts} processes")
                },
                block.hosts,
                self.file
            );
            findings.problem(ranks.last().map(|binding| binding.place.clone()), message);
            return;
        }
        let given = ranks.iter().filter(|binding| binding.mesh_host_rank.is_some()).count();
        if given == 0 {
            if hosts > 1 {
                let message = format!(
                    "{}: no rank of mesh {} has a mesh_host_rank; its processes are taken in order of rank",
                    self.file, block.id
                );
                findings.note(None, message);
            }
            for (process, binding) in ranks.iter().enumerate() {
                found[binding.rank] = Some(process as u32);
            }
            return;
        }
        for (index, binding) in ranks.iter().enumerate() {
            let place = Some(binding.place.clone());
            match binding.mesh_host_rank {
                None => {
                    let message = format!(
                        "rank {} has no mesh_host_rank, and others of mesh {} have: give it to all of them or to none",
                        binding.rank, block.id
                    );
                    findings.problem(place, message);
                }
                Some(process) if process as usize >= hosts => {
                    let message = format!(
                        "rank {} has mesh_host_rank {process}, and mesh {} in {} has processes 0 to {} (host_topology {})",
                        binding.rank,
                        block.id,
                        self.descriptor,
                        hosts - 1,
                        block.hosts
                    );
                    findings.problem(place, message);
                }
                Some(process) => {
                    let first = ranks[..index]
                        .iter()
                        .find(|other| other.mesh_host_rank == Some(process));
                    if let Some(first) = first {
                        let message = format!(
                            "rank {} has mesh_host_rank {process} of mesh {}, and so has rank {} at {}: a process is \
                             one rank",
                            binding.rank, block.id, first.rank, first.place
                        );
                        findings.problem(place, message);
                    }
                }
            }
        }
    }
}

/// A rankfile must place exactly the ranks of the job; a hostfile must have room for them. Gives each rank its host and
/// slot where they are known.
pub(crate) fn placed(
    file: &RankfileText,
    shown: &str,
    ranks: usize,
    whence: &str,
    oversubscribe: bool,
    findings: &mut Findings,
) -> Vec<Option<(String, Option<String>)>> {
    let mut places = vec![None; ranks];
    if !file.ranks.is_empty() {
        for line in &file.ranks {
            match places.get_mut(line.rank) {
                Some(place) => *place = Some((line.host.clone(), Some(line.slot.clone()))),
                None => {
                    let message = format!(
                        "rank {} is placed here, and {whence} has {ranks} ranks, 0 to {}",
                        line.rank,
                        ranks.saturating_sub(1)
                    );
                    findings.problem(Some(line.place.clone()), message);
                }
            }
        }
        let missing: Vec<String> = (0..ranks)
            .filter(|rank| places[*rank].is_none())
            .map(|rank| rank.to_string())
            .collect();
        if !missing.is_empty() {
            let message = format!(
                "{shown} places no rank {}, and {whence} has {ranks} ranks",
                listed(&missing, "and")
            );
            findings.problem(None, message);
        }
        return places;
    }
    // A host without a number of slots takes as many ranks as it has cores, which only it knows.
    let slots: Option<Vec<usize>> = file.hosts.iter().map(|line| line.slots).collect();
    let Some(slots) = slots.filter(|slots| !slots.is_empty()) else {
        return places;
    };
    let room: usize = slots.iter().sum();
    if room < ranks && !oversubscribe {
        let message =
            format!("{shown} has {room} slots, and {whence} has {ranks} ranks: give more slots, or --oversubscribe");
        findings.problem(None, message);
        return places;
    }
    let mut next = 0;
    for (line, slots) in file.hosts.iter().zip(slots) {
        if next >= ranks {
            findings.note(Some(line.place.clone()), format!("no rank is left for {}", line.host));
        }
        for place in places.iter_mut().skip(next).take(slots) {
            *place = Some((line.host.clone(), None));
        }
        next = next.saturating_add(slots);
    }
    places
}
