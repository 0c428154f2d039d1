//! MPI, found at run time: one program with and without it.
//!
//! Unisono uses MPI for messages between two processes and nothing else; what is added up, and in which order, is its own. The library
//! is opened when several processes need it (`library.rs`), its functions are bound by hand (`functions.rs`), and messages of any length
//! go through them (`engine.rs`). MPI is asked for `MPI_THREAD_SERIALIZED`; its errors come back as values.

mod engine;
mod functions;
mod library;

pub use library::Found;

use super::{Request, Source, Transport, TransportError, World};
use engine::Engine;
use functions::Functions;
use library::{Family, Loaded};
use std::collections::BTreeMap;

/// An MPI library that has found the processes of the run.
pub struct Mpi {
    engine: Box<dyn Transport>,
}

impl Mpi {
    /// Opens an MPI library and initialises it: the file that `UNISONO_MPI` names, else the library that the launcher speaks for, else
    /// the other of Open MPI and MPICH. `world` is what [`World::find`] found in the same environment; MPI must see the same.
    ///
    /// A process can do this once.
    ///
    /// # Errors
    /// [`TransportError::Absent`] where there is no library, [`TransportError::World`] where MPI cannot see the processes that the launcher
    /// has started, and what the library says.
    pub fn open(environment: &BTreeMap<String, String>, world: &World) -> Result<Self, TransportError> {
        Mpi::within_reach(environment, world)?;
        let loaded = library::first(environment, world.source)?;
        // Open MPI starts a daemon for a process that it believes to be alone, and leaves it behind.
        let slurm = environment.contains_key("SLURM_PROCID");
        if (world.source, loaded.family) == (Source::Pmi, Family::OpenMpi) && world.size > 1 && !slurm {
            return Err(TransportError::World(at_odds(&loaded, world, (0, 1))));
        }
        let mut engine = start(&loaded, environment)?;
        let alone = world.source == Source::Alone;
        if !alone && (engine.rank(), engine.size()) != (world.rank, world.size) {
            let seen = (engine.rank(), engine.size());
            // What is wrong is known; how the library takes its leave adds nothing to it.
            let _ = if seen.1 == 1 { engine.finish() } else { Ok(()) };
            return Err(TransportError::World(at_odds(&loaded, world, seen)));
        }
        Ok(Self { engine })
    }

    /// Whether MPI can see the processes that a launcher has started, as far as is clear before it is initialised. Some libraries end the
    /// program where they see a single one, with words of their own that do not help.
    ///
    /// # Errors
    /// [`TransportError::World`] where it cannot; every process of the run sees it alike.
    pub fn within_reach(environment: &BTreeMap<String, String>, world: &World) -> Result<(), TransportError> {
        unreachable_by_mpi(environment, world).map_or(Ok(()), |why| Err(TransportError::World(why)))
    }

    /// The MPI libraries of this machine, without initialising them, in the order in which they would be taken without a launcher: at
    /// least one.
    ///
    /// # Errors
    /// [`TransportError::Absent`] where there is none.
    pub fn found(environment: &BTreeMap<String, String>) -> Result<Vec<Found>, TransportError> {
        let (mut found, mut reasons) = (Vec::new(), Vec::new());
        for file in library::files(environment, Source::Alone) {
            match library::load(&file, false) {
                Ok(loaded) => found.push(loaded.found),
                Err(reason) => reasons.push(reason),
            }
        }
        if found.is_empty() {
            return Err(TransportError::Absent(library::absent(environment, &reasons)));
        }
        Ok(found)
    }
}

/// How Open MPI divides long messages over TCP, in bytes: an answer to what another process wants to send waits behind a part and not
/// behind the whole of what is sent to it. With the parts of 2 GB that are Open MPI's default the two directions of a line are used in turn.
const TCP_PARTS: (&str, &str) = ("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "524288");

fn start(loaded: &Loaded, environment: &BTreeMap<String, String>) -> Result<Box<dyn Transport>, TransportError> {
    let Loaded { library, family, found } = loaded;
    let name = format!("{} ({})", found.version, found.library);
    let absent = |reason: String| TransportError::Absent(format!("{name} lacks a function: {reason}"));
    // SAFETY (both): the library is of the family, and stays loaded until the process ends.
    Ok(match family {
        Family::OpenMpi => {
            let (name_of_parts, parts) = TCP_PARTS;
            if !environment.contains_key(name_of_parts) {
                // SAFETY: MPI, the only foreign code that reads the environment, is not initialised, and Rust's own readers take a lock.
                unsafe { std::env::set_var(name_of_parts, parts) };
            }
            // SAFETY: see above.
            let functions = unsafe { Functions::open_mpi(library) }.map_err(absent)?;
            Box::new(Engine::start(functions, name)?)
        }
        Family::Mpich => {
            // SAFETY: see above.
            let functions = unsafe { Functions::mpich(library) }.map_err(absent)?;
            Box::new(Engine::start(functions, name)?)
        }
    })
}

/// Why MPI will see a single process.
fn unreachable_by_mpi(environment: &BTreeMap<String, String>, world: &World) -> Option<String> {
    let World { size, source, .. } = *world;
    let has = |start: &str| environment.keys().any(|name| name.starts_with(start));
    // How MPI finds the other processes, whatever has started them.
    let served = has("PMI_") || has("PMIX_") || has("PALS_");
    let advice = match source {
        _ if size == 1 => return None,
        Source::Torch => "use unisono run (it understands --nproc-per-node and --nnodes), mpirun or srun instead",
        _ if served => return None,
        Source::Slurm => {
            "use srun --mpi=pmix (for Open MPI) or --mpi=pmi2 (for MPICH); srun --mpi=list shows what there is"
        }
        Source::Flags => "start the processes with unisono run, mpirun or srun, which tell their ranks by themselves",
        Source::Alone | Source::OpenMpi | Source::Pmi | Source::Pmix => return None,
    };
    Some(format!(
        "{} told this process of {size}, and MPI would see a single one, for it can only find what a launcher for MPI has started: {advice}",
        source.launcher()
    ))
}

/// The launcher says one thing, and the library sees another.
fn at_odds(loaded: &Loaded, world: &World, (rank, size): (usize, usize)) -> String {
    let Found { library, version } = &loaded.found;
    let (mine, other) = match loaded.family {
        Family::OpenMpi => (Family::OpenMpi, Family::Mpich),
        Family::Mpich => (Family::Mpich, Family::OpenMpi),
    };
    let advice = match (world.source, mine) {
        (Source::OpenMpi, Family::Mpich) | (Source::Pmi, Family::OpenMpi) => format!(
            "the launcher and the library belong to two MPIs; set {}={} for the launcher's, or start with mpirun of {}",
            library::VARIABLE,
            other.files()[0],
            mine.name()
        ),
        (Source::Slurm, _) => format!(
            "the library and srun's plugin do not understand each other; try srun --mpi=pmix (for Open MPI) or --mpi=pmi2 (for MPICH), or \
             {}={}",
            library::VARIABLE,
            other.files()[0]
        ),
        _ => format!(
            "use the mpirun that belongs to {}, or name the launcher's library with {}",
            mine.name(),
            library::VARIABLE
        ),
    };
    format!(
        "{} started {} and this is rank {}, but {version} ({library}) sees {size} and rank {rank}: {advice}",
        world.source.launcher(),
        processes(world.size),
        world.rank
    )
}

fn processes(count: usize) -> String {
    match count {
        1 => "1 process".to_string(),
        count => format!("{count} processes"),
    }
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {} on {}", self.rank(), self.size(), self.name())
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.engine.rank()
    }

    fn size(&self) -> usize {
        self.engine.size()
    }

    fn name(&self) -> String {
        self.engine.name()
    }

    unsafe fn send(&mut self, peer: usize, tag: u32, bytes: *const u8, len: usize) -> Result<Request, TransportError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.engine.send(peer, tag, bytes, len) }
    }

    unsafe fn receive(&mut self, peer: usize, tag: u32, bytes: *mut u8, len: usize) -> Result<Request, TransportError> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.engine.receive(peer, tag, bytes, len) }
    }

    fn test(&mut self, request: Request) -> Result<bool, TransportError> {
        self.engine.test(request)
    }

    fn cancel(&mut self, request: Request) -> Result<(), TransportError> {
        self.engine.cancel(request)
    }

    fn abort(&mut self, code: i32) -> ! {
        self.engine.abort(code)
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        self.engine.finish()
    }
}

#[cfg(test)]
mod tests;
