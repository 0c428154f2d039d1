//! Folders of runs: which one a new run takes, what may be deleted there, and which run `latest` is.

use crate::exit::Failure;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use unisono_runtime::machine::host_name;
use unisono_train::checkpoint::Checkpoints;
use unisono_train::config::{Environment, load_saved};

/// Where runs lie unless said otherwise.
const RUNS: &str = "runs";
/// Where a run keeps its checkpoints unless its configuration says otherwise.
const CHECKPOINTS: &str = "checkpoints";
/// A run's own files beside its checkpoints.
const FILES: [&str; 7] = [
    "config.yaml",
    "metrics.jsonl",
    "tokenizer.json",
    "validations.jsonl",
    "validation.txt",
    "training_curves.png",
    "training_curves.svg",
];

/// Whether a folder holds a run.
pub fn is_run(directory: &Path) -> bool {
    ["config.yaml", "metrics.jsonl"]
        .iter()
        .any(|name| directory.join(name).is_file())
        || directory.join(CHECKPOINTS).is_dir()
}

fn is_free(directory: &Path) -> bool {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !directory.exists(),
    }
}

/// The folder of a new run, and whether an older run in it is to be deleted first.
///
/// # Errors
/// A folder in which another process trains, or that holds a run already, or something else.
pub fn choose(
    project_name: &str,
    out: Option<&Path>,
    fresh: bool,
    environment: &Environment,
) -> Result<PathBuf, Failure> {
    let Some(out) = out else {
        let first = Path::new(RUNS).join(folder_name(project_name));
        return Ok(match fresh {
            true => first,
            false => next_free(&first),
        });
    };
    if out.as_os_str().is_empty() {
        return Err(Failure::input("--out is empty: name a folder for the run"));
    }
    if out.exists() && !out.is_dir() {
        return Err(Failure::input(format!(
            "--out {}: this is a file; name a folder for the run",
            out.display()
        )));
    }
    if is_free(out) || (fresh && is_run(out)) {
        return Ok(out.to_owned());
    }
    if is_taken(out) {
        return Err(in_use(out));
    }
    let is_resumable = || {
        checkpoints(out, environment)
            .find()
            .is_ok_and(|listing| !listing.complete.is_empty())
    };
    Err(Failure::input(match is_run(out) {
        true if !is_resumable() => format!(
            "{0} holds a run that has no complete checkpoint yet: begin it anew (--out {0} --fresh), or choose another --out",
            out.display()
        ),
        true => format!(
            "{0} holds a run already: go on with it (--resume {0}), replace it (--out {0} --fresh), or choose another --out",
            out.display()
        ),
        false => format!(
            "{} is not empty and holds no run of unisono: nothing in it is touched; choose another --out",
            out.display()
        ),
    }))
}

fn next_free(first: &Path) -> PathBuf {
    numbered(first)
        .find(|path| is_free(path))
        .unwrap_or_else(|| first.to_owned())
}

/// `first`, `first-2`, `first-3` and so on.
fn numbered(first: &Path) -> impl Iterator<Item = PathBuf> {
    let name = first
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let further = (2u64..).map(move |i| format!("{name}-{i}"));
    std::iter::once(first.to_owned()).chain(further.map(|name| first.with_file_name(name)))
}

/// A project's name as a folder's name: no separators, nothing that climbs.
fn folder_name(project_name: &str) -> String {
    let name: String = project_name
        .chars()
        .map(|c| match c {
            c if c.is_alphanumeric() => c,
            '-' | '_' | '.' => c,
            _ => '-',
        })
        .collect();
    match name.trim_matches('.') {
        "" => "run".into(),
        name => name.into(),
    }
}

/// Deletes the run in a folder: its configuration, metrics, tokenizer and checkpoints, and nothing else.
///
/// # Errors
/// A folder that holds something that is no run, or what cannot be deleted.
pub fn clear(directory: &Path, environment: &Environment) -> Result<(), Failure> {
    if is_free(directory) {
        return Ok(());
    }
    if !is_run(directory) {
        return Err(Failure::input(format!(
            "{} is not empty and holds no run of unisono: --fresh deletes runs only; choose another --out",
            directory.display()
        )));
    }
    let cannot =
        |path: &Path, error: std::io::Error| Failure::running(format!("{} cannot be deleted: {error}", path.display()));
    let store = checkpoints(directory, environment);
    // The names go before the files, checkpoint by checkpoint, so that an interrupted deletion leaves whole ones.
    if let Ok(listing) = store.find() {
        for found in listing.complete {
            std::fs::remove_dir_all(&found.path).map_err(|error| cannot(&found.path, error))?;
        }
    }
    if let Ok(entries) = std::fs::read_dir(store.directory()) {
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let ours = name.starts_with("step-") || name.starts_with(".unisono-tmp-");
            let path = entry.path();
            if ours && path.is_dir() {
                std::fs::remove_dir_all(&path).map_err(|error| cannot(&path, error))?;
            } else if ours || name == "latest" || name == "best" {
                std::fs::remove_file(&path).map_err(|error| cannot(&path, error))?;
            }
        }
        // Not empty if somebody else keeps something there: then it stays.
        let _ = std::fs::remove_dir(store.directory());
    }
    let model = directory.join("final_model");
    let is_ours =
        |name: &str| std::fs::read_to_string(model.join(name)).is_ok_and(|text| text.contains("\"unisono_version\""));
    if is_ours("config.json") || is_ours("adapter_config.json") {
        std::fs::remove_dir_all(&model).map_err(|error| cannot(&model, error))?;
    }
    for name in FILES {
        let path = directory.join(name);
        if path.is_file() {
            std::fs::remove_file(&path).map_err(|error| cannot(&path, error))?;
        }
    }
    Ok(())
}

/// Keeps other processes from training in the same folder, as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _folder: Option<File>,
}

/// Makes and takes the folder of a new run that was given no name: the first one from `first` on that is free and that no
/// other process takes.
///
/// # Errors
/// A folder that cannot be made.
pub fn take_next(first: &Path) -> Result<(PathBuf, Lock), Failure> {
    for directory in numbered(first).filter(|path| is_free(path)) {
        if let Some(lock) = try_take(&directory)? {
            // Whoever had it may have filled it in the meantime.
            if is_free(&directory) {
                return Ok((directory, lock));
            }
        }
    }
    Err(Failure::running(format!("no folder like {} is free", first.display())))
}

/// Whether a run could make its folder and write into it: tried, and nothing stays.
///
/// # Errors
/// What the system says.
pub fn check_writable(directory: &Path) -> Result<(), Failure> {
    let is_there = directory.exists();
    // The nearest folder that there is; a file in its place is refused below.
    let existing = directory
        .ancestors()
        .find(|path| path.exists() && !path.as_os_str().is_empty());
    let name = format!(".unisono-tmp-{}-{}", host_name(), std::process::id());
    let trial = existing.unwrap_or(Path::new(".")).join(name);
    // Removed even where only half of it worked.
    let tried = std::fs::create_dir(&trial);
    let removed = std::fs::remove_dir(&trial);
    tried.and(removed).map_err(|error| {
        Failure::running(match is_there {
            true => format!(
                "nothing can be written into the run's folder {}: {error}; choose another --out",
                directory.display()
            ),
            false => cannot_make(directory, &error),
        })
    })
}

fn cannot_make(directory: &Path, error: &std::io::Error) -> String {
    format!(
        "the run's folder {} cannot be made: {error}; choose another --out",
        directory.display()
    )
}

/// Makes the folder of a run and takes it.
///
/// # Errors
/// Another process that trains there, or a folder that cannot be made.
pub fn take(directory: &Path) -> Result<Lock, Failure> {
    try_take(directory)?.ok_or_else(|| in_use(directory))
}

/// What is told where another process has the folder.
pub fn in_use(directory: &Path) -> Failure {
    Failure::input(format!(
        "another process trains in {}: wait for its end, or choose another --out",
        directory.display()
    ))
}

/// Whether another process has the folder. The look is shared, so that several processes that look at a time do not see each other.
pub fn is_taken(directory: &Path) -> bool {
    let folder = File::open(directory);
    folder.is_ok_and(|folder| matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The same; nothing where another process has it.
fn try_take(directory: &Path) -> Result<Option<Lock>, Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::running(cannot_make(directory, &error)))?;
    // Where folders cannot be opened or locked there is no such protection, and nothing else is lost.
    let Ok(folder) = File::open(directory) else {
        return Ok(Some(Lock { _folder: None }));
    };
    Ok(match folder.try_lock() {
        Err(TryLockError::WouldBlock) => None,
        _ => Some(Lock { _folder: Some(folder) }),
    })
}

/// Where a run keeps its checkpoints.
pub fn checkpoints(directory: &Path, environment: &Environment) -> Checkpoints {
    let name = match load_saved(&directory.join("config.yaml"), &[], environment) {
        Ok(loaded) => loaded.config.training.checkpoint_dir,
        Err(_) => CHECKPOINTS.into(),
    };
    Checkpoints::new(directory.join(name))
}

/// A run that was named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its folder.
    pub directory: PathBuf,
    /// The checkpoint, where that was named and not the run.
    pub checkpoint: Option<PathBuf>,
}

/// Finds the run that `name` means: a folder, one of its checkpoints, or `latest`.
///
/// # Errors
/// A name that is none of these.
pub fn find(name: &Path, environment: &Environment) -> Result<Named, Failure> {
    if name == Path::new("latest") && !name.is_dir() {
        return latest(environment);
    }
    if name.join("config.yaml").is_file() {
        return Ok(Named {
            directory: name.to_owned(),
            checkpoint: None,
        });
    }
    let is_checkpoint = name
        .file_name()
        .is_some_and(|last| last.to_string_lossy().starts_with("step-"));
    if is_checkpoint {
        let run = name.ancestors().skip(1).find(|path| path.join("config.yaml").is_file());
        if let Some(directory) = run {
            return Ok(Named {
                directory: directory.to_owned(),
                checkpoint: Some(name.to_owned()),
            });
        }
    }
    let what = match (name.exists(), name.is_dir()) {
        (false, _) => "there is no such folder",
        (true, false) => "it is a file",
        (true, true) if name.join("config.json").is_file() => {
            "it has no config.yaml, so it is no run's folder, but a model in Hugging Face's files, which generate, chat and eval take as --model"
        }
        (true, true) => "it has no config.yaml, so it is no run's folder",
    };
    let known = known();
    Err(Failure::input(format!(
        "{}: {what}; name a run's folder, one of its checkpoints (RUN/checkpoints/step-…), or `latest` for the newest in \
         {RUNS}/{known}",
        name.display()
    )))
}

/// ` (runs/ holds a, b)`, or nothing where there are none.
pub fn known() -> String {
    match known_runs().as_slice() {
        [] => String::new(),
        known => format!(" ({RUNS}/ holds {})", known.join(", ")),
    }
}

fn known_runs() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(RUNS) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("config.yaml").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    if names.len() > 8 {
        let more = names.len() - 7;
        names.truncate(7);
        names.push(format!("and {more} more"));
    }
    names
}

/// The run whose newest checkpoint was written last.
fn latest(environment: &Environment) -> Result<Named, Failure> {
    let mut newest: Option<(SystemTime, PathBuf)> = None;
    for entry in std::fs::read_dir(RUNS).into_iter().flatten().flatten() {
        let directory = entry.path();
        if !directory.join("config.yaml").is_file() {
            continue;
        }
        let Ok(listing) = checkpoints(&directory, environment).find() else {
            continue;
        };
        let written = listing
            .complete
            .iter()
            .filter_map(|found| found.path.join("manifest.json").metadata().ok()?.modified().ok())
            .max();
        if let Some(written) = written
            && newest.as_ref().is_none_or(|(best, _)| written > *best)
        {
            newest = Some((written, directory));
        }
    }
    match newest {
        Some((_, directory)) => Ok(Named {
            directory,
            checkpoint: None,
        }),
        None => Err(Failure::input(format!(
            "latest: no run in {RUNS}/ has a complete checkpoint; name a run's folder"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_projects_stay_in_their_folder() {
        for (name, folder) in [
            ("char-gpt", "char-gpt"),
            ("../../etc", "-..-etc"),
            ("a/b c", "a-b-c"),
            ("..", "run"),
            ("", "run"),
            ("größe_1.2", "größe_1.2"),
        ] {
            assert_eq!(folder_name(name), folder, "{name}");
        }
    }
}
