//! `unisono run`, which is also tt-run: starts a program as several processes under MPI's launcher.

mod banners;
mod end;
mod folder;
mod guard;
mod keyboard;
mod options;
mod process;
mod program;
mod rank;
mod restart;
mod unstarted;

pub use options::RunArgs;

use super::DONE;
use crate::cli::Common;
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::launched::LINE;
use crate::output::{Level, Out};
use crate::ranks::{self, variables};
use clap::{CommandFactory, FromArgMatches, Parser};
use folder::Folder;
use guard::Guard;
use process::Ended;
use program::Child;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};
use unisono_launch::{Caller, Job, Mpirun, drawing, on_path, plan, write_files};
use unisono_runtime::machine::{cores, host_name};

/// Names of MPI's launcher, those that are preferred first.
const LAUNCHERS: [&str; 4] = ["mpirun-ulfm", "mpirun", "mpiexec", "mpiexec.hydra"];

/// See the module.
///
/// # Errors
/// Wrong options or files (nothing was started), no launcher, or a job that ended badly.
pub fn run(args: &RunArgs, context: &Context) -> Result<u8, Failure> {
    let mut child = Child::of(&args.program, args.mesh.as_deref())?;
    // What is asked of the launcher's output holds for the program's.
    let asked = [
        (context.out.is_json(), ["--json", "--json"]),
        (context.out.is_quiet(), ["--quiet", "-q"]),
    ];
    let runs = child.ours && !args.show && !args.dry_run;
    for (_, names) in asked.into_iter().filter(|(is_asked, _)| runs && *is_asked) {
        if !child.words.iter().any(|word| names.contains(&word.as_str())) {
            child.words.push(names[0].to_string());
        }
    }
    launch(args, child, context)
}

/// The program by the name of tt-run: its options directly, and no other commands.
pub fn tt_run() -> ExitCode {
    let given = TtRun::command().version(crate::cli::version()).try_get_matches();
    let parsed = given.and_then(|given| TtRun::from_arg_matches(&given));
    let tt_run = parsed.unwrap_or_else(|error| ranks::refuse(&error, ranks::words_ask_for_json()));
    let started = ranks::started();
    let refused = (started > 1).then(|| twice(started));
    let context = match Context::new(&tt_run.common, refused.is_some()) {
        Ok(context) => context,
        Err(failure) => {
            let failure = refused.unwrap_or(failure);
            ranks::tell_alone(&failure, &Out::new(Level::Error, false, tt_run.common.json, true));
            return failure.code.into();
        }
    };
    if let (Some(failure), Some(ranks)) = (refused, &context.ranks) {
        ranks.farewell(&failure, &context.out);
    }
    let child = Child::named(&tt_run.options.program, tt_run.options.mesh.as_deref());
    match child.and_then(|child| launch(&tt_run.options, child, &context)) {
        Ok(code) => code.into(),
        Err(failure) => {
            context.out.error(&failure);
            failure.code.into()
        }
    }
}

/// Several processes were started as the launcher.
pub fn twice(processes: usize) -> Failure {
    Failure::input(format!(
        "the launcher starts ranks by itself, and {processes} processes were started for it: run it once, without another launcher"
    ))
}

/// What a launcher started this process for beside its job, if it did; the whole of this process's life then.
pub fn helper() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (name, arguments) = arguments.split_first()?;
    match name.to_str()? {
        guard::NAME => Some(guard::stand(arguments)),
        rank::NAME => Some(rank::run(arguments)),
        _ => None,
    }
}

/// Start a program as several processes under MPI's launcher, as tt-run of tt-metal does.
#[derive(Parser)]
#[command(name = "tt-run", max_term_width = 110)]
struct TtRun {
    #[command(flatten)]
    options: RunArgs,
    #[command(flatten)]
    common: Common,
}

fn launch(args: &RunArgs, child: Child, context: &Context) -> Result<u8, Failure> {
    let out = &context.out;
    if args.multihost {
        out.note("--multihost is the default now: leave it away (--bare leaves MPI's network settings as they are)");
    }
    let caller = caller(context);
    let request = args.request(&child)?;
    let job = match plan(&request, &caller) {
        Ok(job) => job,
        Err(errors) => {
            errors.notes.iter().for_each(|note| out.note(note));
            return Err(Failure::input(errors));
        }
    };
    if let Some(list) = &args.log_ranks {
        variables::listed("--log-ranks", list, job.ranks.len())?;
    }
    let mesh = child.check(&job, !args.show && !args.dry_run, context)?;
    job.notes.iter().for_each(|note| out.note(note));
    for file in &job.files {
        out.debug(format!("{} is needed", file.path.display()));
    }
    if args.show {
        out.drawing(&drawing(
            &job,
            mesh.as_ref(),
            &caller,
            out.width(&context.environment.variables),
        ));
        out.json(&described(&job));
        return DONE;
    }
    if !job.files_are_current || args.dry_run {
        write_files(&job.files, &job.folders).map_err(Failure::running)?;
    } else {
        write_files(&[], &job.folders).map_err(Failure::running)?;
    }
    if args.dry_run {
        if !job.mpirun_found {
            out.note("MPI's launcher is not on PATH: the line cannot be run here");
        }
        out.result(job.shell_line());
        out.json(&described(&job));
        return DONE;
    }
    if let Some(refusal) = job.refusal(&caller) {
        return Err(Failure::running(refusal));
    }
    out.debug(job.shell_line());
    attempts(args, child, job, context)
}

/// Starts the job, and again after a bad end where that was asked for.
fn attempts(args: &RunArgs, mut child: Child, mut job: Job, context: &Context) -> Result<u8, Failure> {
    let stops = process::Stops::catch()?;
    let original = child.clone();
    let line = args.resume_line(std::env::args_os()).filter(|_| child.ours);
    for rank in &mut job.ranks {
        let line = line.clone().map(|line| (LINE.to_string(), line));
        rank.environment.extend(line);
    }
    for attempt in 1.. {
        let folder = Folder::new(&job)?;
        let mut guard = Guard::start(&folder);
        let ended = process::run(&job, child.ours, context.out.is_verbose(), &folder, &mut guard, &stops)?;
        let failure = match ended {
            Ended::Well => return Ok(exit::OK),
            Ended::Stopped(signal) => return Ok(exit::SIGNAL + signal),
            Ended::Badly(end) => end,
        };
        let message = failure.message(&job, &folder, child.ours);
        let hint = line.as_ref().and_then(|line| restart::hint(line, &folder, context));
        if failure.code == exit::INPUT && child.ours || attempt > args.max_restarts {
            hint.iter().for_each(|hint| context.out.note(hint));
            return match message {
                Some(message) => Err(Failure {
                    code: failure.code,
                    message,
                }),
                None => Ok(failure.code),
            };
        }
        message.iter().for_each(|message| context.out.warn(message));
        let (words, how) = restart::words(&original, &folder, context);
        context
            .out
            .warn(format!("restart {attempt} of {}: {how}", args.max_restarts));
        child.words = words;
        for rank in &mut job.ranks {
            rank.words = child.words.clone();
        }
    }
    unreachable!("bug in unisono: attempts never end without a result");
}

/// Where this process was started from.
fn caller(context: &Context) -> Caller {
    let mut caller = Caller {
        environment: context.environment.variables.clone(),
        directory: context.environment.working_dir.clone(),
        hostname: host_name(),
        cores: cores(),
        is_root: is_root(),
        mpirun: None,
    };
    let found = LAUNCHERS.iter().find_map(|name| {
        let path = on_path(name, &caller)?;
        let output = Command::new(path).arg("--version").output().ok()?;
        Mpirun::parse(name, &String::from_utf8_lossy(&output.stdout))
    });
    caller.mpirun = found;
    caller
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(not(unix))]
fn is_root() -> bool {
    false
}

/// The job for machines.
fn described(job: &Job) -> serde_json::Value {
    let ranks = job.ranks.iter().map(|rank| {
        json!({
            "rank": rank.rank,
            "host": rank.host,
            "slot": rank.slot,
            "mesh_id": rank.mesh_id,
            "mesh_host_rank": rank.mesh_host_rank,
            "subcontext": rank.subcontext.map(|part| part.id),
            "descriptor": rank.descriptor.as_deref().map(Path::to_string_lossy),
            "environment": rank.environment,
            "program": rank.words,
        })
    });
    json!({
        "command": job.command(&[]),
        "directory": job.directory.to_string_lossy(),
        "unset": job.unset,
        "ranks": ranks.collect::<Vec<_>>(),
    })
}
