//! The processes of this run, as the command line sees them: joined at the start, compared, and ended together.
//!
//! Every process runs the same command. The first prints; the others are silent but for their errors. What ends one ends all, and is
//! told once.

mod farewell;
mod owners;
mod panics;
pub mod variables;

pub use farewell::tell_alone;
pub use panics::caught;

use crate::exit::Failure;
use crate::output::{Level, Out};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use unisono_data::files::hash_file;
use unisono_mesh::visible::{TT, UNISONO, core_shares};
use unisono_runtime::machine;
use unisono_runtime::transport::{Given, Link, Mpi, Settings, World, within};
use unisono_train::config::Environment;

/// See the module.
pub struct Ranks {
    link: Link,
    /// What each process has said of itself, by rank.
    said: Vec<Said>,
    /// The first so many processes carry devices.
    carriers: Cell<usize>,
    /// Whether each process has a mesh of its own (a `mesh_id`), and so a run of its own.
    apart: bool,
}

/// What a process says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Said {
    host: String,
    /// Processors that it may use.
    cpus: Vec<usize>,
    /// The variable that lets it see some devices only, and its value: it keeps to their cores.
    sees: Option<(String, String)>,
    mesh_id: Option<usize>,
    mesh_host_rank: Option<usize>,
    version: String,
    /// BLAKE3 of the program.
    build: String,
}

impl Ranks {
    /// Joins the processes of this run; `None` where this one is alone. With `json` even a process that waits in vain says so as JSON.
    ///
    /// # Errors
    /// No MPI, launcher and MPI at odds, processes that do not come.
    pub fn join(environment: &Environment, json: bool) -> Result<Option<Ranks>, Failure> {
        let variables = &environment.variables;
        let world = World::find(Given::default(), variables).map_err(Failure::input)?;
        if world.size == 1 {
            return Ok(None);
        }
        let said = Said::of_this(variables)?;
        let settings = Settings {
            host: said.host.clone(),
            timeout: variables::timeout(variables)?,
            silence: variables::silence(variables)?,
            status: variables
                .get("UNISONO_RUN_DIR")
                .map(|folder| Path::new(folder).join(format!("rank-{}", world.rank))),
        };
        let late = || {
            let failure = Failure::running(format!(
                "rank {} on {}: after {} s MPI has not brought the {} processes of this run together: one of them has not started, or \
                 has ended before it joined; UNISONO_TIMEOUT (--timeout) gives it longer",
                world.rank,
                said.host,
                settings.timeout.as_secs(),
                world.size
            ));
            tell_alone(&failure, &Out::new(Level::Error, false, json, true));
            std::process::exit(i32::from(failure.code))
        };
        if let Err(error) = Mpi::within_reach(variables, &world) {
            // All see it alike, and the first tells it: srun does not end one process because of another.
            return match is_first() {
                true => Err(Failure::input(error)),
                false => std::process::exit(i32::from(crate::exit::INPUT)),
            };
        }
        let mpi = within(settings.timeout, late, || Mpi::open(variables, &world)).map_err(Failure::input)?;
        let link = Link::start(Box::new(mpi), settings).map_err(Failure::running)?;
        let said = gather(&link, "the start", &said).unwrap_or_else(|failure| {
            tell_alone(&failure, &Out::new(Level::Error, false, json, true));
            link.abort(i32::from(failure.code))
        });
        let apart = are_apart(&said);
        let carriers = said.len();
        let ranks = Ranks {
            link,
            said,
            carriers: Cell::new(carriers),
            apart,
        };
        ranks.keep_to_own_cores();
        Ok(Some(ranks))
    }

    /// Whether all processes run one and the same program.
    ///
    /// # Errors
    /// Other versions or builds; every process gets the same words.
    pub fn are_one_program(&self) -> Result<(), Failure> {
        let facts = |what: fn(&Said) -> &String| self.said.iter().map(|said| what(said).clone()).collect();
        let versions = self.compare("versions of unisono", facts(|said| &said.version));
        // The last word of a version is the instruction set.
        let without_isa = |said: &Said| said.version.rsplit_once(' ').map(|(rest, _)| rest.to_string());
        let only_isa = self.said.iter().map(without_isa).collect::<BTreeSet<_>>().len() == 1;
        versions.map_err(|mut failure| {
            if only_isa {
                failure.message += " (only the instruction sets differ: give all processes one that each host has, UNISONO_ISA=avx2 or \
                                    UNISONO_ISA=portable; results do not depend on it)";
            }
            failure
        })?;
        self.compare("builds of unisono (BLAKE3 of the program)", facts(|said| &said.build))
    }

    /// How the processes talk.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Whether each process has a mesh, and a run, of its own.
    pub fn are_apart(&self) -> bool {
        self.apart
    }

    /// The number of this process.
    pub fn rank(&self) -> usize {
        self.link.rank()
    }

    /// Processes of the run.
    pub fn size(&self) -> usize {
        self.link.size()
    }

    /// Processes of the run on the host of this one.
    pub fn on_this_host(&self) -> usize {
        let own = &self.said[self.rank()].host;
        self.said.iter().filter(|said| said.host == *own).count()
    }

    /// Cores of all hosts that the processes may use, each counted once.
    pub fn cores(&self) -> usize {
        let mut all: Vec<(&str, usize)> = self
            .said
            .iter()
            .flat_map(|said| said.cpus.iter().map(|cpu| (said.host.as_str(), *cpu)))
            .collect();
        all.sort_unstable();
        all.dedup();
        all.len().max(1)
    }

    /// The processes that carry one mesh and their hosts, in words; nothing where each has its own.
    pub fn describe(&self) -> Option<String> {
        if self.apart {
            return None;
        }
        let carriers = self.carriers.get();
        let mut hosts: Vec<(&str, usize)> = Vec::new();
        for said in &self.said[..carriers] {
            match hosts.iter_mut().find(|(host, _)| *host == said.host) {
                Some((_, count)) => *count += 1,
                None => hosts.push((&said.host, 1)),
            }
        }
        let hosts: Vec<String> = hosts.iter().map(|(host, count)| format!("{count} on {host}")).collect();
        let engine = self.link.name();
        Some(format!("{carriers} processes over {engine}: {}", hosts.join(", ")))
    }

    /// Compares what each process has, by name: all must have the same.
    ///
    /// # Errors
    /// The first difference, with the ranks; every process gets the same words.
    pub fn agree(&self, facts: Vec<(String, String)>) -> Result<(), Failure> {
        if self.apart {
            return Ok(());
        }
        let all = gather(&self.link, "the comparison of what they run", &facts)?;
        // What one has and another has not, differs too.
        let mut seen = BTreeSet::new();
        for (name, _) in all.iter().flatten().filter(|(name, _)| seen.insert(name)) {
            let of =
                |facts: &Vec<(String, String)>| facts.iter().find(|fact| fact.0 == *name).map(|fact| fact.1.clone());
            let values = all.iter().map(|facts| of(facts).unwrap_or_else(|| "none".to_string()));
            self.compare(name, values.collect())?;
        }
        Ok(())
    }

    /// Compares the arguments, for commands that have no configuration to compare: seeds, lengths and orders of sums are said there.
    ///
    /// # Errors
    /// As [`Ranks::agree`].
    pub fn agree_on_arguments(&self) -> Result<(), Failure> {
        let arguments: Vec<String> = std::env::args_os()
            .skip(1)
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        self.agree(vec![("arguments".to_string(), format!("`{}`", arguments.join(" ")))])
    }

    /// The largest of what the processes have, element by element.
    ///
    /// # Errors
    /// Processes that do not come.
    pub fn largest(&self, own: &[f64]) -> Result<Vec<f64>, Failure> {
        let all: Vec<Vec<f64>> = gather(&self.link, "the end of a measurement", &own.to_vec())?;
        let largest = |index: usize| all.iter().map(|each| each[index]).fold(0.0, f64::max);
        Ok((0..own.len()).map(largest).collect())
    }

    /// What the first process has; the others' own is not looked at.
    ///
    /// # Errors
    /// Processes that do not come.
    pub fn of_first<T: Serialize + serde::de::DeserializeOwned>(
        &self,
        what: &'static str,
        own: &T,
    ) -> Result<T, Failure> {
        let mut all = gather(&self.link, what, own)?;
        Ok(all.swap_remove(self.speaker()))
    }

    /// What the user says to the first process, who may take any time, as long as all processes live.
    ///
    /// # Errors
    /// Processes that are lost.
    pub fn of_user<T: Serialize + serde::de::DeserializeOwned>(
        &self,
        what: &'static str,
        own: &T,
    ) -> Result<T, Failure> {
        let mut all = gather_within(&self.link, what, own, Duration::MAX)?;
        Ok(all.swap_remove(self.speaker()))
    }

    /// The process whose choice counts for this one.
    fn speaker(&self) -> usize {
        if self.apart { self.rank() } else { 0 }
    }

    /// The folder that the first process has chosen.
    ///
    /// # Errors
    /// Processes that do not come.
    pub fn folder_of_first(&self, own: &Path) -> Result<PathBuf, Failure> {
        self.of_first("the choice of a folder", &own.to_path_buf())
    }

    /// Waits for all processes.
    ///
    /// # Errors
    /// Processes that do not come, or have failed.
    pub fn come_together(&self, what: &'static str) -> Result<(), Failure> {
        gather(&self.link, what, &()).map(|_: Vec<()>| ())
    }

    fn compare(&self, name: &str, values: Vec<String>) -> Result<(), Failure> {
        let mut by_value: BTreeMap<&String, Vec<usize>> = BTreeMap::new();
        for (rank, value) in values.iter().enumerate() {
            by_value.entry(value).or_default().push(rank);
        }
        if by_value.len() < 2 {
            return Ok(());
        }
        let mut sides: Vec<(&String, Vec<usize>)> = by_value.into_iter().collect();
        sides.sort_by_key(|(_, ranks)| ranks[0]);
        let sides: Vec<String> = sides
            .iter()
            .map(|(value, ranks)| {
                let who: Vec<String> = ranks.iter().map(|rank| self.name(*rank)).collect();
                format!("{value} on {}", who.join(", "))
            })
            .collect();
        Err(Failure::input(format!(
            "the processes of this run have different {name}: {}; all must run the same",
            sides.join("; ")
        )))
    }

    /// `rank 2 (host)`.
    pub fn name(&self, rank: usize) -> String {
        format!("rank {rank} ({})", self.said[rank].host)
    }

    /// Processes of one host that may use the same cores share them out: each keeps to its own. One that is to keep to the cores of
    /// some devices does that by itself.
    fn keep_to_own_cores(&self) {
        let own = &self.said[self.rank()];
        if own.sees.is_some() || own.cpus.is_empty() {
            return;
        }
        let rivals: Vec<usize> = (0..self.size())
            .filter(|rank| {
                let other = &self.said[*rank];
                other.sees.is_none() && other.host == own.host && other.cpus == own.cpus
            })
            .collect();
        let place = rivals.iter().position(|rank| *rank == self.rank()).unwrap_or(0);
        let shares = core_shares(&own.cpus, rivals.len(), &[place]);
        machine::restrict(&shares.cores.concat());
    }
}

/// Whether every process has a mesh of its own.
fn are_apart(said: &[Said]) -> bool {
    let mut ids: Vec<Option<usize>> = said.iter().map(|said| said.mesh_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.len() == said.len() && ids.iter().all(Option::is_some)
}

impl Said {
    fn of_this(variables: &BTreeMap<String, String>) -> Result<Said, Failure> {
        let build = std::env::current_exe()
            .ok()
            .and_then(|path| hash_file(&path).ok())
            .map_or_else(|| "unknown".to_string(), |digest| digest.blake3[..12].to_string());
        Ok(Said {
            host: machine::host_name(),
            cpus: machine::allowed_cpus(),
            sees: [UNISONO, TT]
                .iter()
                .find_map(|name| Some((name.to_string(), variables.get(*name)?.clone()))),
            mesh_id: variables::number(variables, "TT_MESH_ID")?,
            mesh_host_rank: variables::number(variables, "TT_MESH_HOST_RANK")?,
            version: crate::cli::version().to_string(),
            build,
        })
    }
}

/// How long another process than the first waits before it tells what goes wrong before they have joined: what all of them see, the
/// first tells, and its launcher ends the others meanwhile.
const GIVE_WAY: Duration = Duration::from_secs(3);

/// The number of processes that a launcher says it has started; 1 where nobody says so that can be understood.
pub fn started() -> usize {
    World::find(Given::default(), &Environment::of_process().variables).map_or(1, |world| world.size)
}

/// Lets the first process of the run speak, if this is another; whether it is.
fn give_way() -> bool {
    let gives_way = !is_first();
    if gives_way {
        std::thread::sleep(GIVE_WAY);
    }
    gives_way
}

/// Whether this is the first process of the run, as far as a look at the launchers' variables tells.
fn is_first() -> bool {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"];
    let rank = names.iter().find_map(|name| std::env::var(name).ok());
    rank.is_none_or(|rank| rank.trim() == "0")
}

/// Whether this process's command line asks for JSON, even if it cannot be parsed.
pub fn words_ask_for_json() -> bool {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    words.any(|word| word == "--json")
}

/// Ends this process because of a command line that is none: the first tells it, with `json` as the result.
pub fn refuse(error: &clap::Error, json: bool) -> ! {
    if !is_first() {
        match error.use_stderr() {
            true => {
                give_way();
            }
            // Help is wanted once.
            false => std::process::exit(error.exit_code()),
        }
    }
    if error.use_stderr() && json {
        let text = error.render().to_string();
        // Behind the first empty line is the usage.
        let sentence = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
        let problem = sentence.collect::<Vec<&str>>().join(" ");
        let problem = problem.trim_start_matches("error: ");
        Out::new(Level::Error, false, true, false).error(&Failure::input(problem));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

fn gather<T: Serialize + serde::de::DeserializeOwned>(
    link: &Link,
    what: &'static str,
    own: &T,
) -> Result<Vec<T>, Failure> {
    gather_within(link, what, own, link.timeout())
}

fn gather_within<T: Serialize + serde::de::DeserializeOwned>(
    link: &Link,
    what: &'static str,
    own: &T,
    patience: Duration,
) -> Result<Vec<T>, Failure> {
    // Texts, numbers and lists always have a JSON form.
    let own = serde_json::to_vec(own).unwrap_or_default();
    let all = link.gather(what, &own, patience)?;
    all.iter()
        .enumerate()
        .map(|(rank, bytes)| {
            serde_json::from_slice(bytes).map_err(|_| {
                Failure::input(format!(
                    "rank {rank} speaks another language at {what}: it must run the same version of unisono ({})",
                    crate::cli::version()
                ))
            })
        })
        .collect()
}
