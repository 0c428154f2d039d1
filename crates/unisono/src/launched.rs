//! What the launcher and its ranks tell each other: a folder of the launcher's, named by a variable.

use std::path::{Path, PathBuf};
use unisono_launch::quoted;
use unisono_train::config::Environment;

/// The variable that names the folder of a launched job. Each rank of the same host may write files there: `rank-N`
/// (a line `host pid`, a line with what it last did), `error` once it has said what went wrong, `run` (the folder of the
/// training run). The launcher leaves `terminal` where it passes on what is typed at one.
pub const FOLDER: &str = "UNISONO_RUN_DIR";

/// The variable with the line by which the user goes on with a run, up to the run's folder.
pub const LINE: &str = "UNISONO_RUN_LINE";

/// See [`FOLDER`].
pub const ERROR: &str = "error";

/// See [`FOLDER`].
pub const TERMINAL: &str = "terminal";

/// The name by which the program is tt-run.
const TT_RUN: &str = "tt-run";

/// Whether the program was started by the name of tt-run.
pub fn is_tt_run() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|path| path.file_stem().is_some_and(|stem| stem == TT_RUN))
}

/// The file `name` of the launcher's folder, in a launched rank whose host has that folder.
pub fn file(name: &str, environment: &Environment) -> Option<PathBuf> {
    let folder = environment.variables.get(FOLDER).map(Path::new)?;
    folder.is_dir().then(|| folder.join(name))
}

/// Whether the launcher passes on what its user types at a terminal.
pub fn has_terminal(environment: &Environment) -> bool {
    file(TERMINAL, environment).is_some_and(|file| file.exists())
}

/// The line by which the user goes on with the run in a folder, for a shell.
pub fn resume_line(directory: &Path, environment: &Environment) -> String {
    let told = environment.variables.get(LINE).map(String::as_str);
    line_for(told.unwrap_or("unisono train --resume"), directory)
}

/// The same, from its beginning.
pub fn line_for(begin: &str, directory: &Path) -> String {
    format!("{begin} {}", quoted(&directory.display().to_string()))
}

/// Tells the launcher which run it can go on with.
pub fn tell_run(directory: &Path, environment: &Environment) {
    if let Some(file) = file("run", environment) {
        let directory = environment.working_dir.join(directory);
        // Without it a restart begins anew.
        let _ = std::fs::write(file, directory.as_os_str().as_encoded_bytes());
    }
}
