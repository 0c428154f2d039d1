//! The commands, one a file.

mod bench;
mod chat;
mod check;
mod completions;
mod data;
mod descriptors;
mod devices;
mod diff;
mod eval;
mod explain;
mod export;
mod generate;
mod given;
mod init;
mod inspect;
mod lora;
mod mesh;
mod precision;
mod request_line;
mod requests;
mod run;
mod sample;
mod schema;
mod setup;
mod system;
mod tokenizer;
mod topo;
mod train;
mod trained;
mod writer;

pub use explain::ExplainArgs;
pub use export::ExportArgs;
pub use lora::LoraCommand;
pub use mesh::MeshCommand;
pub use precision::{PrecisionArgs, order as bf16_order};
pub use run::{RunArgs, helper, tt_run};
pub use topo::TopoArgs;
pub use train::LessonArgs;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::{Level, Out};
use crate::ranks;
use std::process::ExitCode;

/// Runs a command; what goes wrong is told, and the exit code says so.
pub fn run(cli: &Cli) -> ExitCode {
    let refused = together(&cli.command, ranks::started()).err();
    // Even processes that only take leave do so together: then one of them says why.
    let joins = refused.is_some() || together(&cli.command, 2).is_ok();
    let mut common = cli.common;
    common.json |= matches!(&cli.command, Command::Run(args) if args.asks_for_json());
    let context = match Context::new(&common, joins) {
        Ok(context) => context,
        Err(failure) => {
            let failure = refused.unwrap_or(failure);
            ranks::tell_alone(&failure, &Out::new(Level::Error, false, common.json, true));
            return failure.code.into();
        }
    };
    if let (Some(failure), Some(ranks)) = (refused, &context.ranks) {
        ranks.farewell(&failure, &context.out);
    }
    let result = match &context.ranks {
        Some(_) => ranks::caught(|| command(cli, &context)),
        None => command(cli, &context),
    };
    let result = result.and_then(|code| match context.out.outcome() {
        // What a run says about itself is not its result: that lies in its folder.
        Err(failure) if matches!(cli.command, Command::Train(_)) && !context.out.is_json() => {
            context.out.warn(failure.message);
            Ok(code)
        }
        outcome => outcome.map(|()| code),
    });
    let result = match &context.ranks {
        Some(ranks) => result
            .and_then(|code| ranks.finish().map(|()| code))
            .unwrap_or_else(|failure| ranks.farewell(&failure, &context.out)),
        None => return ended(result, &context),
    };
    result.into()
}

/// Whether several processes do a command together. All others are for one: each of the processes would do the whole of it, over the
/// same files.
///
/// # Errors
/// A command that is for one process, where `processes` were started.
pub fn together(command: &Command, processes: usize) -> Result<(), Failure> {
    let name = match command {
        Command::Train(_) | Command::Generate(_) | Command::Chat(_) | Command::Eval(_) => return Ok(()),
        Command::Bench(args) if args.filter.as_deref() == Some(bench::COLLECTIVES) => return Ok(()),
        _ if processes == 1 => return Ok(()),
        Command::Run(_) => return Err(run::twice(processes)),
        Command::Check(_) => "check",
        Command::Init(_) => "init",
        Command::Lora { .. } => "lora",
        Command::Devices => "devices",
        Command::Mesh { .. } => "mesh",
        Command::Topo(_) => "topo",
        Command::Schema => "schema",
        Command::Tokenizer { .. } => "tokenizer",
        Command::Data { .. } => "data",
        Command::Completions { .. } => "completions",
        Command::Diff(_) => "diff",
        Command::Export(_) => "export",
        Command::Inspect(_) => "inspect",
        Command::Explain(_) => "explain",
        Command::Bench(_) => "bench",
    };
    Err(Failure::input(format!(
        "`unisono {name}` is for one process, and {processes} were asked for: run it by itself, without a launcher. Several processes \
         carry train, generate, chat, eval and `bench collectives`"
    )))
}

/// The command itself.
fn command(cli: &Cli, context: &Context) -> Result<u8, Failure> {
    match &cli.command {
        Command::Train(args) => train::run(args, context),
        Command::Run(args) => run::run(args, context),
        Command::Check(args) => check::run(args, context),
        Command::Init(args) => init::run(args, context),
        Command::Lora { command } => lora::run(command, context),
        Command::Devices => devices::run(context),
        Command::Mesh { command } => mesh::run(command, context),
        Command::Topo(args) => topo::run(args, context),
        Command::Schema => schema::run(context),
        Command::Tokenizer { command } => tokenizer::run(command, context),
        Command::Data { command } => data::run(command, context),
        Command::Completions { shell } => completions::run(*shell, context),
        Command::Generate(args) => generate::run(args, context),
        Command::Chat(args) => chat::run(args, context),
        Command::Eval(args) => eval::run(args, context),
        Command::Diff(args) => diff::run(args, context),
        Command::Export(args) => export::run(args, context),
        Command::Inspect(args) => inspect::run(args, context),
        Command::Explain(args) => explain::run(args, context),
        Command::Bench(args) => bench::run(args, context),
    }
}

/// Tells what went wrong, if something did; the exit code says so.
fn ended(result: Result<u8, Failure>, context: &Context) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            context.out.error(&failure);
            failure.code.into()
        }
    }
}

/// All is well.
pub const DONE: Result<u8, Failure> = Ok(exit::OK);
