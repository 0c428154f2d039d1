//! Where relative paths are looked for.

use crate::request::Caller;
use std::path::{Path, PathBuf};
use unisono_train::config::{Findings, Place};

/// The folders in which relative paths are looked for, in this order: `TT_METAL_HOME` where it is set, the launch directory.
fn roots(caller: &Caller) -> Vec<PathBuf> {
    let home = caller.variable("TT_METAL_HOME").map(|home| caller.directory.join(home));
    let mut roots: Vec<PathBuf> = home.into_iter().collect();
    if !roots.contains(&caller.directory) {
        roots.push(caller.directory.clone());
    }
    roots
}

/// `~` and `~/…` with `HOME` put in.
fn expanded(path: &str, caller: &Caller) -> PathBuf {
    let rest = match path {
        "~" => Some(""),
        _ => path.strip_prefix("~/"),
    };
    match (rest, caller.variable("HOME")) {
        (Some(rest), Some(home)) => Path::new(home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// Finds the file that `path` names; where there is none, `what` and the places searched are told at `place`.
///
/// `first` is a folder that is searched before the usual ones. With `unchecked` nothing is looked for: a relative path then
/// starts at the launch directory.
pub(crate) fn file(
    path: &str,
    what: &str,
    first: Option<&Path>,
    unchecked: bool,
    caller: &Caller,
    place: Option<&Place>,
    findings: &mut Findings,
) -> Option<PathBuf> {
    let expanded = expanded(path, caller);
    if unchecked {
        return Some(caller.directory.join(expanded));
    }
    let mut places: Vec<PathBuf> = Vec::new();
    let folders = first.map(Path::to_path_buf).into_iter().chain(roots(caller));
    for candidate in folders.map(|folder| plain(&folder.join(&expanded))) {
        // An absolute path is the same below every folder.
        if !places.contains(&candidate) {
            places.push(candidate);
        }
    }
    if let Some(found) = places.iter().find(|path| path.is_file()) {
        return Some(found.clone());
    }
    let folder = places.iter().find(|path| path.is_dir());
    let why = match folder {
        Some(folder) => format!("{} is a folder: name the file in it", folder.display()),
        None => {
            let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
            format!("there is no such file; looked for {}", places.join(", "))
        }
    };
    let path = if path.is_empty() { "\"\"" } else { path };
    findings.problem(place.cloned(), format!("{what} {path}: {why}"));
    None
}

/// A path without `.` and, where that is sure to mean the same, `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

/// A path as messages show it: relative to the launch directory where it lies below that.
pub(crate) fn shown(path: &Path, caller: &Caller) -> String {
    let below = path.strip_prefix(&caller.directory).unwrap_or(path);
    let shown = below.display().to_string();
    if shown.is_empty() { ".".to_string() } else { shown }
}

/// The way from the launch directory to a file, `..` included.
pub(crate) fn relative(path: &Path, caller: &Caller) -> PathBuf {
    let (path, from) = (plain(path), plain(&caller.directory));
    let shared = path
        .components()
        .zip(from.components())
        .take_while(|(a, b)| a == b)
        .count();
    let up = from.components().skip(shared).map(|_| Path::new(".."));
    let down: PathBuf = path.components().skip(shared).collect();
    up.map(Path::to_path_buf).chain([down]).collect()
}
