//! Which process of the run this is, as its launcher has told it.
//!
//! Each launcher speaks through variables of its own, and often several speak at once: `mpirun` inside of a Slurm job, a script that sets
//! torch's names from those of Slurm. What is nearest to the program counts, and what contradicts it is refused.

use super::TransportError;
use std::collections::BTreeMap;

/// This process among those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// The number of this process, from 0.
    pub rank: usize,
    /// Processes of the run.
    pub size: usize,
    /// The number of this process among those of its host, where the launcher tells it.
    pub local_rank: Option<usize>,
    /// Processes of the run on this host, where the launcher tells it.
    pub local_size: Option<usize>,
    /// Who says so.
    pub source: Source,
}

/// Who tells a process its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody: it is alone.
    Alone,
    /// The flags `--rank` and `--world-size`.
    Flags,
    /// `mpirun` of Open MPI (`OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE`).
    OpenMpi,
    /// `mpirun` of MPICH or Intel MPI, or Slurm's PMI-2 (`PMI_RANK`, `PMI_SIZE`).
    Pmi,
    /// A PMIx server that is neither of Open MPI nor of Slurm (`PMIX_RANK`; the size is a flag).
    Pmix,
    /// `srun` (`SLURM_PROCID`, `SLURM_NTASKS`).
    Slurm,
    /// `torchrun`, or a script with its names (`RANK`, `WORLD_SIZE`).
    Torch,
}

/// What flags say, where they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// `--rank`.
    pub rank: Option<usize>,
    /// `--world-size`.
    pub size: Option<usize>,
}

type Environment = BTreeMap<String, String>;

/// A source's variables.
struct Names {
    source: Source,
    rank: &'static str,
    /// The first that is set counts.
    size: &'static [&'static str],
    local_rank: &'static str,
    local_size: &'static str,
}

const OPEN_MPI: Names = Names {
    source: Source::OpenMpi,
    rank: "OMPI_COMM_WORLD_RANK",
    size: &["OMPI_COMM_WORLD_SIZE"],
    local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
    local_size: "OMPI_COMM_WORLD_LOCAL_SIZE",
};

const PMI: Names = Names {
    source: Source::Pmi,
    rank: "PMI_RANK",
    size: &["PMI_SIZE"],
    local_rank: "MPI_LOCALRANKID",
    local_size: "MPI_LOCALNRANKS",
};

const SLURM: Names = Names {
    source: Source::Slurm,
    rank: "SLURM_PROCID",
    size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
    local_rank: "SLURM_LOCALID",
    local_size: "",
};

const TORCH: Names = Names {
    source: Source::Torch,
    rank: "RANK",
    size: &["WORLD_SIZE"],
    local_rank: "LOCAL_RANK",
    local_size: "LOCAL_WORLD_SIZE",
};

/// Numbers of Slurm's steps from here on are not steps of tasks, but the job's script, its shell and the like (`slurm.h`).
const SLURM_SPECIAL_STEPS: u64 = 0xffff_fff0;

impl World {
    /// A process without others.
    pub fn alone() -> Self {
        Self {
            rank: 0,
            size: 1,
            local_rank: None,
            local_size: None,
            source: Source::Alone,
        }
    }

    /// Finds the world in the flags and the environment: flags first, then the variables of Open MPI, PMI, Slurm and torch, in this order.
    ///
    /// # Errors
    /// Variables that are no numbers, that are set by halves, or that contradict each other.
    pub fn find(given: Given, environment: &Environment) -> Result<Self, TransportError> {
        let told = told(environment)?;
        let pmix = number(environment, "PMIX_RANK")?;
        if let Some(first) = &told {
            let inner = first.source != Source::Torch;
            if let Some(rank) = pmix.filter(|rank| inner && *rank != first.rank) {
                return Err(contradiction(&first.rank_told(), &format!("PMIX_RANK={rank}")));
            }
        }
        let rank = match (given.rank, &told, pmix) {
            (Some(rank), Some(told), _) if rank != told.rank => {
                return Err(contradiction(&format!("--rank {rank}"), &told.rank_told()));
            }
            (Some(rank), None, Some(pmix)) if rank != pmix => {
                return Err(contradiction(&format!("--rank {rank}"), &format!("PMIX_RANK={pmix}")));
            }
            (given, told, pmix) => given.or(told.as_ref().map(|told| told.rank)).or(pmix),
        };
        let size = match (given.size, &told) {
            (Some(size), Some(told)) if size != told.size => {
                return Err(contradiction(&format!("--world-size {size}"), &told.size_told()));
            }
            (given, told) => given.or(told.as_ref().map(|told| told.size)),
        };
        let (rank, size) = match (rank, size) {
            (None, None) => return Ok(Self::alone()),
            (Some(rank), Some(size)) => (rank, size),
            // A world of one needs no number.
            (None, Some(1)) => (0, 1),
            (None, Some(size)) => {
                return Err(half(
                    &format!("--world-size {size}"),
                    "the number of this process",
                    "--rank",
                ));
            }
            (Some(rank), None) => {
                let told = given
                    .rank
                    .map_or(format!("PMIX_RANK={rank}"), |rank| format!("--rank {rank}"));
                return Err(half(&told, "the number of processes", "--world-size"));
            }
        };
        if size == 0 || rank >= size {
            return Err(out_of_range(&format!("rank {rank} of a world of {size}"), size));
        }
        let source = match &told {
            Some(told) => told.source,
            None if pmix.is_some() => Source::Pmix,
            None => Source::Flags,
        };
        Ok(Self {
            rank,
            size,
            local_rank: told.as_ref().and_then(|told| told.local_rank),
            local_size: told.as_ref().and_then(|told| told.local_size),
            source,
        })
    }
}

impl Source {
    /// Who it is, in words that begin a sentence.
    pub fn launcher(self) -> &'static str {
        match self {
            Self::Alone => "nobody",
            Self::Flags => "the flags --rank and --world-size",
            Self::OpenMpi => "mpirun of Open MPI",
            Self::Pmi => "a launcher that speaks PMI (mpirun of MPICH or Intel MPI, or srun --mpi=pmi2)",
            Self::Pmix => "a PMIx server",
            Self::Slurm => "srun",
            Self::Torch => "torchrun, or a script with its variables RANK and WORLD_SIZE,",
        }
    }
}

/// What a source's variables say.
struct Told {
    source: Source,
    rank: usize,
    size: usize,
    local_rank: Option<usize>,
    local_size: Option<usize>,
    names: (&'static str, &'static str),
}

impl Told {
    fn rank_told(&self) -> String {
        format!("{}={}", self.names.0, self.rank)
    }

    fn size_told(&self) -> String {
        format!("{}={}", self.names.1, self.size)
    }
}

/// What the environment says, with its contradictions refused.
fn told(environment: &Environment) -> Result<Option<Told>, TransportError> {
    let open_mpi = read(environment, &OPEN_MPI)?;
    let pmi = read(environment, &PMI)?;
    let torch = read(environment, &TORCH)?;
    let slurm = slurm(environment)?;
    // torchrun may have been started by srun, and then it is nearer to this process.
    let elastic = torch.is_some() && environment.keys().any(|name| name.starts_with("TORCHELASTIC_"));
    let slurm = slurm.filter(|_| !elastic);
    let mut speak = [open_mpi, pmi, slurm, torch].into_iter().flatten();
    let Some(first) = speak.next() else {
        return Ok(None);
    };
    // A launcher that Slurm's job runs gives its processes Slurm's variables of something else.
    for other in speak.filter(|other| other.source != Source::Slurm) {
        if other.size != first.size {
            return Err(contradiction(&first.size_told(), &other.size_told()));
        }
        if other.rank != first.rank {
            return Err(contradiction(&first.rank_told(), &other.rank_told()));
        }
    }
    Ok(Some(first))
}

fn read(environment: &Environment, names: &Names) -> Result<Option<Told>, TransportError> {
    let rank = number(environment, names.rank)?;
    let set = names.size.iter().find(|name| environment.contains_key(**name));
    let size_name = set.copied().unwrap_or(names.size[0]);
    let (rank, size) = match (rank, number(environment, size_name)?) {
        (None, None) => return Ok(None),
        (Some(rank), Some(size)) => (rank, size),
        (Some(rank), None) => return Err(unset(&format!("{}={rank}", names.rank), size_name)),
        (None, Some(size)) => return Err(unset(&format!("{size_name}={size}"), names.rank)),
    };
    let told = Told {
        source: names.source,
        rank,
        size,
        local_rank: number(environment, names.local_rank)?,
        local_size: number(environment, names.local_size)?,
        names: (names.rank, size_name),
    };
    if rank >= size {
        let both = format!("{} and {}", told.rank_told(), told.size_told());
        return Err(out_of_range(&both, size));
    }
    if let (Some(rank), Some(size)) = (told.local_rank, told.local_size)
        && rank >= size
    {
        let both = format!("{}={rank} and {}={size}", names.local_rank, names.local_size);
        return Err(out_of_range(&both, size));
    }
    if let Some(local) = told.local_size.filter(|local| *local > size) {
        let local = format!("{}={local}", names.local_size);
        return Err(contradiction(&local, &told.size_told()));
    }
    Ok(Some(told))
}

/// Slurm sets the number of tasks also for the script and the shell of a job, which are one process.
fn slurm(environment: &Environment) -> Result<Option<Told>, TransportError> {
    let get = |name: &str| environment.get(name).map(String::as_str);
    let step = get("SLURM_STEP_ID")
        .or(get("SLURM_STEPID"))
        .and_then(|step| step.parse().ok());
    let is_step_of_tasks = step.is_some_and(|step: u64| step < SLURM_SPECIAL_STEPS);
    if !is_step_of_tasks || get(SLURM.rank).is_none() {
        return Ok(None);
    }
    let mut told = read(environment, &SLURM)?;
    if let Some(told) = &mut told {
        let tasks = get("SLURM_STEP_TASKS_PER_NODE").or(get("SLURM_TASKS_PER_NODE"));
        let node = number(environment, "SLURM_NODEID")?;
        told.local_size = tasks.zip(node).and_then(|(tasks, node)| tasks_of_node(tasks, node));
    }
    Ok(told)
}

/// The tasks of a node in Slurm's list, as in `2(x3),1`.
fn tasks_of_node(list: &str, node: usize) -> Option<usize> {
    let mut before = 0;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        if node - before < nodes {
            return tasks.parse().ok();
        }
        before += nodes;
    }
    None
}

fn number(environment: &Environment, name: &str) -> Result<Option<usize>, TransportError> {
    let Some(text) = environment.get(name) else {
        return Ok(None);
    };
    let number = text.trim().parse().map(Some);
    number.map_err(|_| TransportError::World(format!("{name} is {text:?}; a whole number from 0 was expected")))
}

fn contradiction(one: &str, other: &str) -> TransportError {
    TransportError::World(format!(
        "{one} contradicts {other}: two launchers, or one and a script, tell this process different things; use one, and unset the \
         variables of the other"
    ))
}

fn unset(set: &str, other: &str) -> TransportError {
    TransportError::World(format!("{set} is set, and {other} is not; set both or neither"))
}

fn half(set: &str, missing: &str, flag: &str) -> TransportError {
    TransportError::World(format!("{set} is given, and nothing tells {missing}; add {flag}"))
}

fn out_of_range(both: &str, size: usize) -> TransportError {
    let rule = match size {
        0 => "there is at least one process".to_string(),
        1 => "the only rank is 0".to_string(),
        size => format!("ranks are numbers from 0 to {}", size - 1),
    };
    TransportError::World(format!("{both}: {rule}"))
}

#[cfg(test)]
mod tests;
