//! How a job begins again after a bad end.

use super::folder::Folder;
use super::program::Child;
use crate::cli::{self, Cli, Command};
use crate::context::Context;
use crate::launched;
use crate::runs;
use clap::FromArgMatches;
use std::path::{Path, PathBuf};

/// The words of the next attempt, and what it does.
pub fn words(child: &Child, folder: &Folder, context: &Context) -> (Vec<String>, String) {
    let again = || (child.words.clone(), "the same command again".to_string());
    if !child.ours {
        return again();
    }
    let words = std::iter::once("unisono".to_string()).chain(child.words[1..].iter().cloned());
    let parsed = cli::command()
        .try_get_matches_from(words)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let Ok(Cli {
        command: Command::Train(args),
        common,
    }) = parsed
    else {
        return again();
    };
    let Some(run) = run(folder) else { return again() };
    let shown = context.environment.shown(&run);
    let has_checkpoint = runs::checkpoints(&run, &context.environment).newest().is_ok();
    let mut next = vec![child.words[0].clone()];
    let flags = [("--quiet", common.quiet), ("--json", common.json)];
    next.extend(
        flags
            .iter()
            .filter(|(_, given)| *given)
            .map(|(flag, _)| flag.to_string()),
    );
    next.extend((0..common.verbose).map(|_| "--verbose".to_string()));
    let run_text = run.display().to_string();
    if has_checkpoint {
        // The run's own configuration holds what the options said.
        next.extend(["train".to_string(), "--resume".to_string(), run_text]);
        return (next, format!("{shown} goes on from its last checkpoint"));
    }
    if args.resume.is_some() {
        return again();
    }
    // Nothing is lost: there is no checkpoint.
    let config = run.join("config.yaml").display().to_string();
    if !Path::new(&config).is_file() {
        return again();
    }
    let words = ["train", "-c", &config, "--out", &run_text, "--fresh"];
    next.extend(words.map(str::to_string));
    (next, format!("{shown} has no checkpoint yet and begins anew"))
}

/// How the user goes on with the run that has ended, if it has a checkpoint; `line` is the line up to the run's folder.
pub fn hint(line: &str, folder: &Folder, context: &Context) -> Option<String> {
    let run = run(folder)?;
    runs::checkpoints(&run, &context.environment).newest().ok()?;
    let shown = PathBuf::from(context.environment.shown(&run));
    Some(format!(
        "go on from the last checkpoint with: {}",
        launched::line_for(line, &shown)
    ))
}

/// The folder of the run, as the ranks told it.
pub fn run(folder: &Folder) -> Option<PathBuf> {
    let text = std::fs::read_to_string(folder.file("run")).ok()?;
    let path = PathBuf::from(text.trim_end_matches('\n'));
    runs::is_run(&path).then_some(path)
}
