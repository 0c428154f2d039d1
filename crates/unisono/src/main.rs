//! The command line of unisono.

mod cli;
mod commands;
mod context;
mod exit;
mod launched;
mod machine;
mod output;
mod ranks;
mod runs;
mod signals;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = commands::helper() {
        return code;
    }
    signals::let_writes_fail();
    if launched::is_tt_run() {
        return commands::tt_run();
    }
    let cli = cli::parse();
    commands::run(&cli)
}
