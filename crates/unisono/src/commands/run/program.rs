//! What each rank runs: unisono itself or another program, and whether unisono's options fit the ranks.

use crate::cli::{self, Cli, Command};
use crate::commands::together;
use crate::commands::train::Start;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::numbers::counted;
use crate::output::{Level, Out};
use crate::ranks::{self, variables};
use crate::runs;
use clap::FromArgMatches;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use unisono_launch::{Job, Rank};
use unisono_mesh::visible::{TT, UNISONO, Variables, visible};
use unisono_runtime::Processes;
use unisono_runtime::machine::cores;
use unisono_runtime::machine::host_name;
use unisono_tensor::Mesh;
use unisono_train::config::{Environment, Loaded, Place};

/// Roles of tt-train beside the workers: aggregator and optimizer.
const IDLE_ROLES: usize = 2;

/// The program of each rank.
#[derive(Clone)]
pub struct Child {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Whether it is unisono itself.
    pub ours: bool,
    /// Whether its name was looked for among unisono's commands, and is none.
    pub tried: bool,
    /// A mesh that was asked for, for a program or a command that takes none.
    stray_mesh: Option<String>,
}

impl Child {
    /// From the words behind the launcher's options: none is `unisono train`, a command of unisono's is unisono itself.
    ///
    /// # Errors
    /// A program that does not find itself.
    pub fn of(words: &[String], mesh: Option<&str>) -> Result<Child, Failure> {
        let command = cli::command();
        let is_command = |word: &str| command.get_subcommands().any(|known| known.get_name() == word);
        match words.first() {
            None => Child::ours(&["train".to_string()], mesh),
            // Options that are not the launcher's are those of train.
            Some(first) if first.starts_with('-') => {
                let words: Vec<String> = ["train".to_string()].into_iter().chain(words.iter().cloned()).collect();
                Child::ours(&words, mesh)
            }
            Some(first) if is_command(first) => Child::ours(words, mesh),
            Some(_) => Ok(Child {
                tried: true,
                ..Child::named(words, mesh)?
            }),
        }
    }

    /// From a program and its arguments.
    ///
    /// # Errors
    /// Two meshes.
    pub fn named(words: &[String], mesh: Option<&str>) -> Result<Child, Failure> {
        let ours = words
            .first()
            .is_some_and(|word| Path::new(word).file_name().is_some_and(|name| name == "unisono"));
        let child = Child {
            words: words.to_vec(),
            ours,
            tried: false,
            stray_mesh: None,
        };
        child.with(mesh)
    }

    fn ours(words: &[String], mesh: Option<&str>) -> Result<Child, Failure> {
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| Failure::running(format!("the program does not find itself: {error}")))?;
        let program = program.into_os_string().into_string();
        let program =
            program.map_err(|_| Failure::running("the program's own path is no UTF-8, as launching it needs"))?;
        let mut all = vec![program];
        all.extend(words.iter().cloned());
        let child = Child {
            words: all,
            ours: true,
            tried: false,
            stray_mesh: None,
        };
        child.with(mesh)
    }

    /// Passes the launcher's mesh on to a command that takes one.
    fn with(mut self, mesh: Option<&str>) -> Result<Child, Failure> {
        let Some(mesh) = mesh else { return Ok(self) };
        if !self.ours {
            self.stray_mesh = Some(mesh.to_string());
            return Ok(self);
        }
        // Words that cannot be read stay as they are: what is wrong with them is told by `check`.
        let definition = cli::command();
        let Ok(matches) = definition.clone().try_get_matches_from(&self.words) else {
            return Ok(self);
        };
        let (mut command, mut definition) = (&matches, &definition);
        while let Some((name, deeper)) = command.subcommand() {
            // Whatever was read is defined.
            let Some(found) = definition.find_subcommand(name) else {
                break;
            };
            (command, definition) = (deeper, found);
        }
        if !definition.get_arguments().any(|argument| argument.get_id() == "mesh") {
            self.stray_mesh = Some(mesh.to_string());
            return Ok(self);
        }
        match command.try_get_one::<String>("mesh") {
            Ok(Some(own)) if own == mesh => {}
            Ok(Some(own)) => {
                return Err(Failure::input(format!(
                    "two meshes are given: --mesh {mesh} among the launcher's options, and --mesh {own} among those of the program; \
                     give one of them"
                )));
            }
            _ => self.words.extend(["--mesh".to_string(), mesh.to_string()]),
        }
        Ok(self)
    }

    /// Whether unisono's options and configuration are right, and fit the ranks: told here, it is told once. Gives the mesh
    /// of a training run. With `starts` the job is about to start, and its folder must be one that can be written.
    ///
    /// # Errors
    /// Everything that is wrong with them. Help and wrong options end the process as they would without ranks.
    pub fn check(&self, job: &Job, starts: bool, context: &Context) -> Result<Option<Mesh>, Failure> {
        if let (Some(mesh), false) = (&self.stray_mesh, self.ours) {
            return Err(Failure::input(format!(
                "--mesh {mesh} is for unisono's own commands: give your program's options behind its name"
            )));
        }
        if !self.ours {
            return Ok(None);
        }
        let Some(first) = job.ranks.first() else {
            return Ok(None);
        };
        let mut unknown = BTreeSet::new();
        for (index, rank) in job.ranks.iter().enumerate() {
            // Most have the same as the one before.
            let is_new = index == 0 || job.ranks[index - 1].environment != rank.environment;
            if is_new {
                let variables = of_rank(rank, job, context).variables;
                variables::check(&variables, job.ranks.len(), &job.mpirun, is_here(rank))?;
                unknown.extend(variables::unknown(&variables));
            }
        }
        unknown.iter().for_each(|note| context.out.note(note));
        let words = std::iter::once("unisono".to_string()).chain(self.words[1..].iter().cloned());
        let parsed = cli::command()
            .try_get_matches_from(words)
            .and_then(|matches| Cli::from_arg_matches(&matches));
        let cli = parsed.unwrap_or_else(|error| ranks::refuse(&error, context.out.is_json()));
        let args = match &cli.command {
            Command::Train(args) => args,
            Command::Run(_) => return Err(Failure::input("run starts no second run: name the program itself")),
            command => {
                together(command, job.ranks.len())?;
                return match &self.stray_mesh {
                    Some(mesh) => Err(Failure::input(format!(
                        "--mesh {mesh}: `unisono {}` takes no mesh; leave it away",
                        self.words[1..].join(" ")
                    ))),
                    None => Ok(None),
                };
            }
        };
        let quiet = Context {
            out: Out::new(Level::Error, true, false, false),
            environment: of_rank(first, job, context),
            isa: context.isa,
            ranks: None,
        };
        let start = Start::of(args, &quiet)?;
        let loaded = &start.loaded;
        fits(loaded, job)?;
        sees_enough(loaded, job, context)?;
        if starts && job.ranks.iter().any(is_here) {
            runs::check_writable(&start.directory(args, &quiet)?)?;
        }
        Ok(Mesh::grid(&loaded.config.device.mesh_shape).ok())
    }
}

/// Whether the mesh has a device for every rank, and the machine of each rank room for the mesh.
fn fits(loaded: &Loaded, job: &Job) -> Result<(), Failure> {
    let shape = &loaded.config.device.mesh_shape;
    let devices: usize = shape.iter().product();
    if let Some(multihost) = &loaded.config.multihost {
        workers(multihost.num_workers, loaded, job)?;
    }
    let place = match loaded.place("device_config.mesh_shape") {
        Some(place @ Place::File { .. }) => format!(" at {place}"),
        _ => String::new(),
    };
    let mesh = format!("the mesh {shape:?}{place} has {}", counted(devices, "device"));
    // Ranks of different meshes run for themselves.
    let of_mesh = |id| job.ranks.iter().filter(move |rank| rank.mesh_id == id).count();
    let idle = loaded.config.multihost.is_some();
    let crowded = job.ranks.iter().find(|rank| !idle && of_mesh(rank.mesh_id) > devices);
    if let Some(rank) = crowded {
        return Err(Failure::input(format!(
            "{mesh}, and {} gives it {}: each rank owns at least one device",
            job.whence,
            counted(of_mesh(rank.mesh_id), "rank")
        )));
    }
    let mut blocks = job.machines.values().flat_map(|machine| machine.meshes());
    match blocks.find(|block| block.num_devices() < devices) {
        None => Ok(()),
        Some(block) => Err(Failure::input(format!(
            "{mesh}, and mesh {} of {} has {} ({})",
            block.id,
            job.whence,
            counted(block.num_devices(), "device"),
            block.shape
        ))),
    }
}

/// Whether the variables that let ranks see some devices of this host show as many as the mesh takes of it. What a descriptor says, and
/// what other hosts have, ranks see for themselves.
fn sees_enough(loaded: &Loaded, job: &Job, context: &Context) -> Result<(), Failure> {
    let is_described = !job.machines.is_empty() || loaded.config.device.mesh_graph_descriptor.is_some();
    if is_described || !job.ranks.iter().all(is_here) {
        return Ok(());
    }
    let shape = &loaded.config.device.mesh_shape;
    let devices: usize = shape.iter().product();
    let workers = loaded
        .config
        .multihost
        .map_or(job.ranks.len(), |multihost| multihost.num_workers);
    let owners = Processes::even(0, workers, devices);
    let mut shown: BTreeMap<(Option<String>, Option<String>), usize> = BTreeMap::new();
    for device in 0..devices {
        let variables = of_rank(&job.ranks[owners.of(device)], job, context).variables;
        let values = (variables.get(UNISONO).cloned(), variables.get(TT).cloned());
        *shown.entry(values).or_default() += 1;
    }
    let boards: Vec<Vec<usize>> = (0..cores().max(1)).map(|device| vec![device]).collect();
    for ((unisono, tt), taken) in shown {
        let (name, value) = match (&unisono, &tt) {
            (Some(value), _) => (UNISONO, value),
            (None, Some(value)) => (TT, value),
            (None, None) => continue,
        };
        let variables = Variables {
            unisono: unisono.as_deref(),
            tt: tt.as_deref(),
            tt_old: None,
        };
        let visible = visible(variables, &boards, &[]).map_err(Failure::input)?.devices.len();
        if visible < taken {
            return Err(Failure::input(format!(
                "{name} is {value:?}, which shows {visible} of the {} of this host, and {} with the mesh {shape:?} takes {taken} of those: name \
                 more of them there, give each rank its own (env_overrides of rank bindings), unset it, or use a smaller mesh",
                counted(boards.len(), "device"),
                job.whence,
            )));
        }
    }
    Ok(())
}

/// `num_workers` must be the number of ranks; an aggregator and an optimizer beside them are allowed, and idle.
fn workers(workers: usize, loaded: &Loaded, job: &Job) -> Result<(), Failure> {
    let ranks = job.ranks.len();
    if (workers..=workers + IDLE_ROLES).contains(&ranks) {
        return Ok(());
    }
    let place = loaded.place("multihost_config.num_workers");
    let place = place.map(|place| format!(" at {place}")).unwrap_or_default();
    Err(Failure::input(format!(
        "multihost_config.num_workers{place} is {workers}, and {} gives {}: they must be as many (or up to {IDLE_ROLES} \
         more, an aggregator and an optimizer, which stay idle)",
        job.whence,
        counted(ranks, "rank")
    )))
}

/// Whether a rank runs on the launcher's own host, as far as that is known.
fn is_here(rank: &Rank) -> bool {
    rank.host
        .as_ref()
        .is_none_or(|host| host == "localhost" || *host == host_name())
}

/// The environment that a rank will see, as far as it matters to a configuration.
fn of_rank(rank: &Rank, job: &Job, context: &Context) -> Environment {
    let mut environment = context.environment.clone();
    for name in &job.unset {
        environment.variables.remove(name);
    }
    // The descriptor's copy may not have been written yet, and what it holds has been checked.
    let known = rank
        .environment
        .iter()
        .filter(|(name, _)| *name != unisono_train::config::DESCRIPTOR);
    environment
        .variables
        .extend(known.map(|(name, value)| (name.clone(), value.clone())));
    environment
}
