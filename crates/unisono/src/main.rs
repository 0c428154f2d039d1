//! The command line of unisono.

mod cli;
mod commands;
mod context;
mod exit;
mod machine;
mod output;
mod ranks;
mod runs;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    signals::let_writes_fail();
    let cli = cli::parse();
    commands::run(&cli)
}
