//! From options to a checked plan: what `train`, `check` and the commands on trained models begin with.

use super::given;
use super::system::System;
use crate::cli::Changes;
use crate::context::Context;
use crate::exit::Failure;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;
use unisono_mesh::MeshView;
use unisono_mesh::descriptor::Selection;
use unisono_runtime::{Options, Processes, RuntimeError, machine};
use unisono_tensor::{Mesh, MeshDevice, TensorError};
use unisono_train::config::{self, ConfigErrors, Loaded, Place, RunConfig};
use unisono_train::dataset::Dataset;
use unisono_train::plan::{self, Carried, PlanProblem};
use unisono_train::{Plan, TrainError};

/// What `train` runs without a file.
const DEFAULT: &str = "char-gpt";

/// The overrides that the options stand for, in the order in which they hold.
///
/// # Errors
/// Options that contradict each other, or a mesh that is none.
pub fn overrides(changes: &Changes, verify: Option<u64>) -> Result<Vec<String>, Failure> {
    overrides_with(changes, verify, &[])
}

/// The same with options that name a file each: option, key, file.
///
/// # Errors
/// As [`overrides`].
pub fn overrides_with(
    changes: &Changes,
    verify: Option<u64>,
    files: &[(&str, &str, Option<&String>)],
) -> Result<Vec<String>, Failure> {
    let mut overrides = changes.set.clone();
    let mut add = |option: &str, texts: Vec<String>| -> Result<(), Failure> {
        for text in texts {
            let key = text.split('=').next().unwrap_or_default();
            given::once(changes, option, key)?;
            overrides.push(text);
        }
        Ok(())
    };
    if let Some(mesh) = &changes.mesh {
        let texts = config::mesh_overrides(mesh).map_err(Failure::input)?;
        add(&format!("--mesh {mesh}"), texts)?;
    }
    if let Some(workers) = changes.workers {
        add(
            &format!("--workers {workers}"),
            vec![format!("device_config.workers={workers}")],
        )?;
    }
    for (option, key, file) in files {
        if let Some(file) = file {
            // In quotes a path means itself, whatever characters it has.
            let quoted = serde_json::Value::from(file.as_str());
            add(&format!("{option} {file}"), vec![format!("{key}={quoted}")])?;
        }
    }
    if let Some(steps) = verify {
        add(
            &format!("--verify {steps}"),
            vec![format!("training_config.verify_every={steps}")],
        )?;
    }
    Ok(overrides)
}

/// Loads a configuration file, or the default preset.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(file: Option<&Path>, overrides: &[String], context: &Context) -> Result<Loaded, ConfigErrors> {
    match file {
        Some(file) => config::load(file, overrides, &context.environment),
        None => {
            // The presets come with the program, and a test loads each.
            let text = config::preset(DEFAULT).unwrap_or_default();
            config::load_text(DEFAULT, text, overrides, &context.environment)
        }
    }
}

/// Loads the configuration that a run was started with.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_saved(directory: &Path, overrides: &[String], context: &Context) -> Result<Loaded, Failure> {
    let loaded = config::load_saved(&directory.join("config.yaml"), overrides, &context.environment);
    loaded.map_err(|errors| refused(&errors, context))
}

/// Writes a file that is not there yet, whole or not at all.
///
/// # Errors
/// A file of that name, or what the system says.
pub fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let shown = path.display();
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| {
            let result = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
            if result.is_err() {
                // A file that was new a moment ago: nobody misses its beginning.
                let _ = std::fs::remove_file(path);
            }
            result
        });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::input(format!(
            "{shown} exists already and is left as it is; name another file"
        )),
        _ => Failure::running(format!("{shown} cannot be written: {error}")),
    })
}

/// Prints what the loader has to say beside errors.
pub fn tell_notes(loaded: &Loaded, context: &Context) {
    for note in &loaded.notes {
        context.out.note(note);
    }
}

/// A configuration's errors as a failure, with those that data and layout have as well; its notes are told.
pub fn refused(errors: &ConfigErrors, context: &Context) -> Failure {
    for note in &errors.notes {
        context.out.note(note);
    }
    let further = errors
        .partial
        .as_deref()
        .map(plan::further_problems)
        .unwrap_or_default();
    // What is wrong already needs no second word.
    let is_new = |place: &Option<Place>| place.is_none() || errors.problems.iter().all(|known| known.place != *place);
    let further = further.iter().filter(|problem| is_new(&problem.place));
    let lines: Vec<String> = [errors.to_string()]
        .into_iter()
        .chain(further.map(ToString::to_string))
        .collect();
    Failure::input(lines.join("\n"))
}

/// Loads the data and works out the plan of a run of this process and those beside it.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn plan(loaded: &Loaded, context: &Context) -> Result<(Plan, Dataset), Failure> {
    planned(loaded, &|loaded, dataset| {
        plan::check_carried(loaded, dataset, &|mesh, machine| carried(mesh, machine, context))
    })
}

/// Who carries a mesh; what keeps the processes from it is found where it is opened.
fn carried(mesh: &Mesh, machine: Option<&Selection>, context: &Context) -> Carried {
    let alone = Carried::alone(mesh);
    let Some(ranks) = context.ranks.as_ref().filter(|ranks| !ranks.is_idle()) else {
        return alone;
    };
    let processes = ranks.processes(mesh, machine).unwrap_or_else(|_| Processes::one());
    Carried {
        sharing: ranks.on_this_host() * processes.here(mesh.num_devices()).len(),
        processes,
        ..alone
    }
}

/// The same for a machine that need not be this one, see [`plan::check_elsewhere`].
///
/// # Errors
/// As [`plan()`].
pub fn plan_elsewhere(loaded: &Loaded) -> Result<(Plan, Dataset), Failure> {
    planned(loaded, &plan::check_elsewhere)
}

type Check<'a> = dyn Fn(&Loaded, &Result<Dataset, TrainError>) -> Result<Plan, Vec<PlanProblem>> + 'a;

fn planned(loaded: &Loaded, check: &Check<'_>) -> Result<(Plan, Dataset), Failure> {
    let dataset = Dataset::load(&loaded.config);
    match check(loaded, &dataset) {
        Ok(plan) => Ok((plan, dataset?)),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(Failure::input(lines.join("\n")))
        }
    }
}

/// Opens the devices of a system as the configuration asks.
///
/// # Errors
/// Too little memory or threads.
pub fn open(system: System, config: &RunConfig, context: &Context) -> Result<MeshDevice, Failure> {
    let options = Options {
        workers: config.device.workers,
        memory_limit: config.device.memory,
        isa: Some(context.isa),
        bf16_order: config.training.bf16_order,
        ..Options::default()
    };
    let device = opened(system.view, system.processes, options, context)?;
    device.set_links(system.links);
    Ok(device)
}

/// Opens devices of this process alone.
///
/// # Errors
/// Too little memory or threads.
pub fn alone(mesh: Mesh, options: Options) -> Result<MeshDevice, Failure> {
    MeshDevice::open(mesh, options).map_err(not_opened)
}

/// Opens devices; where the system refuses, what would help is said.
///
/// # Errors
/// Too little memory or threads.
pub fn opened(
    view: MeshView,
    processes: Processes,
    mut options: Options,
    context: &Context,
) -> Result<MeshDevice, Failure> {
    let device = match &context.ranks {
        Some(ranks) => {
            // Cores and memory of a host are for all its processes; the plan counts alike.
            let (here, on_host) = (processes.here(view.num_devices()).len(), ranks.on_this_host());
            let share = (machine::host_cores() / on_host).max(1);
            options.workers = options.workers.or(Some(share.min(machine::cores())));
            let share = |bytes: u64| bytes / (on_host * here) as u64;
            options.memory_limit = options.memory_limit.or(machine::memory().map(share));
            match ranks.are_apart() {
                true => MeshDevice::open_system(view, options),
                false => MeshDevice::open_between(view, options, processes, ranks.link().clone()),
            }
        }
        None => MeshDevice::open_system(view, options),
    };
    device.map_err(not_opened)
}

fn not_opened(error: TensorError) -> Failure {
    match error {
        TensorError::Runtime(RuntimeError::NoAddressSpace { .. }) => Failure::running(format!(
            "{error}; a limit on memory takes less (`unisono check` says what a run needs): \
             --set device_config.memory=1GiB"
        )),
        error => error.into(),
    }
}

/// Worker threads that the configuration asks for.
pub fn workers(config: &RunConfig) -> usize {
    config.device.workers.unwrap_or_else(machine::cores)
}
