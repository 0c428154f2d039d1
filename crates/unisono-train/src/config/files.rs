//! Files: reading them with care, expanding `${VAR}`, and finding what a configuration names by a relative path.

use super::error::{Findings, Place};
use crate::hub::next_variable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest configuration file, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// How many parents of the configuration's folder are searched.
const MAX_PARENTS: usize = 4;

/// What a configuration may depend on beside its files, as a value: so that nothing is read behind the caller's back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Environment variables, for `${VAR}`.
    pub variables: BTreeMap<String, String>,
    /// The working folder, for relative paths.
    pub working_dir: PathBuf,
}

impl Environment {
    /// The variables and the working folder of this process. Variables that are no UTF-8 are left out.
    pub fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            variables,
            working_dir: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        }
    }

    /// A path as it is shown: relative to the working folder where it lies below it.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.working_dir)
            .unwrap_or(path)
            .display()
            .to_string()
    }
}

/// Reads a configuration file; a failure is reported at `asked` (or at the file itself) and gives `None`.
pub fn read_text(path: &Path, shown: &str, asked: Option<Place>, findings: &mut Findings) -> Option<String> {
    // In a message at the file itself its name stands in front already.
    let file = if asked.is_some() { shown } else { "the file" };
    let place = Some(asked.unwrap_or_else(|| Place::whole_file(shown)));
    let mut fail = |message: String| {
        findings.problem(place.clone(), message);
        None
    };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return fail(format!("{file} does not exist"));
        }
        Err(error) => return fail(format!("{file} cannot be opened: {error}")),
    };
    if metadata.is_dir() {
        return fail(format!("{file} is a folder: name the YAML file in it"));
    }
    if !metadata.is_file() {
        return fail(format!("{file} is not a regular file"));
    }
    if metadata.len() > MAX_BYTES {
        return fail(format!(
            "{file} has {} bytes; a configuration has at most {MAX_BYTES}",
            metadata.len()
        ));
    }
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return fail(format!("{file} cannot be read: {error}")),
    };
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return fail(format!("{file} is UTF-16: save it as UTF-8"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text)),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes().iter().take(good).filter(|b| **b == b'\n').count();
            fail(format!(
                "{file} is not UTF-8: byte {good} (line {line}) begins no character"
            ))
        }
    }
}

/// Finds the files that a configuration names.
pub(super) struct Finder<'a> {
    pub environment: &'a Environment,
    /// The configuration file itself, if there is one.
    pub config: Option<PathBuf>,
}

/// A path after expansion.
struct Expanded {
    path: PathBuf,
    /// A variable at its front that is not set and was dropped.
    unset: Option<String>,
}

impl Finder<'_> {
    /// The folders in which relative paths are looked for: the configuration's, its parents, the working folder.
    fn roots(&self) -> Vec<PathBuf> {
        let absolute = self
            .config
            .as_ref()
            .map(|config| self.environment.working_dir.join(config));
        let mut roots: Vec<PathBuf> = absolute
            .iter()
            .flat_map(|config| config.ancestors().skip(1).take(1 + MAX_PARENTS))
            .map(Path::to_path_buf)
            .collect();
        if !roots.contains(&self.environment.working_dir) {
            roots.push(self.environment.working_dir.clone());
        }
        roots
    }

    /// Replaces `${VAR}`, `$VAR` and a leading `~/`. A variable that is not set may only stand at the front; it is dropped
    /// then.
    fn expand(&self, text: &str) -> Result<Expanded, String> {
        let variables = &self.environment.variables;
        let mut out = String::new();
        let mut unset = None;
        let mut rest = text;
        if let (Some(below), Some(home)) = (text.strip_prefix("~/"), variables.get("HOME")) {
            out = format!("{home}/");
            rest = below;
        }
        while let Some((before, Some(name), behind)) = next_variable(rest) {
            out.push_str(before);
            rest = behind;
            if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                // No name: a dollar like any character.
                out.push('$');
                out.push_str(name);
                continue;
            }
            match variables.get(name).filter(|value| !value.is_empty()) {
                Some(value) => out.push_str(value),
                None if out.is_empty() && rest.starts_with('/') => {
                    rest = rest.trim_start_matches('/');
                    unset = Some(name.to_string());
                }
                None => return Err(format!("the environment variable {name} is not set")),
            }
        }
        out.push_str(rest);
        Ok(Expanded {
            path: PathBuf::from(out),
            unset,
        })
    }

    /// A path's text with its variables, for paths that need not exist.
    pub fn expanded(&self, text: &str) -> Result<String, String> {
        let expanded = self.expand(text)?;
        match expanded.unset {
            Some(name) => Err(format!("the environment variable {name} is not set")),
            None => Ok(expanded.path.display().to_string()),
        }
    }

    /// Finds a configuration file that another one names, in any of the three styles of tt-train: a bare name, below
    /// `model_configs/`, or below `configs/model_configs/`. `folder` is `model_configs` or its like.
    pub fn config_file(&self, text: &str, folder: &str) -> Result<PathBuf, String> {
        let Expanded { path, unset } = self.expand(text)?;
        if path.as_os_str().is_empty() {
            return Err("the path is empty".to_string());
        }
        if path.is_absolute() {
            return if path.is_file() {
                Ok(path)
            } else {
                Err(format!("there is no file {}", path.display()))
            };
        }
        let mut tails = vec![path.clone()];
        for front in ["tt-train", "configs"] {
            // The last tail is never missing: the list starts with one.
            if let Some(tail) = tails.last().and_then(|tail| tail.strip_prefix(front).ok()) {
                tails.push(tail.to_path_buf());
            }
        }
        let bare = path.components().count() == 1;
        if bare {
            tails.push(Path::new(folder).join(&path));
        }
        let roots = self.roots();
        let own = self
            .config
            .as_ref()
            .map(|config| self.environment.working_dir.join(config));
        let below = |root: &PathBuf, tail: &PathBuf| {
            ["", "configs", "tt-train/configs"]
                .map(|folder| root.join(folder).join(tail))
                .into_iter()
                .collect::<Vec<_>>()
        };
        // A bare name beside the configuration, then in its own folder anywhere, before any other file of that name.
        let beside: Vec<PathBuf> = if bare {
            roots.iter().take(1).map(|root| root.join(&path)).collect()
        } else {
            vec![]
        };
        let mut order: Vec<&PathBuf> = tails.iter().collect();
        if bare {
            order.reverse();
        }
        let anywhere = order
            .into_iter()
            .flat_map(|tail| roots.iter().flat_map(move |root| below(root, tail)));
        let candidates: Vec<PathBuf> = beside.into_iter().chain(anywhere).collect();
        let is_own = |candidate: &PathBuf| Some(candidate) == own.as_ref();
        if let Some(found) = candidates
            .iter()
            .find(|candidate| candidate.is_file() && !is_own(candidate))
        {
            return Ok(found.clone());
        }
        if candidates.iter().any(is_own) {
            return Err(format!(
                "{} is this configuration itself: name another file",
                path.display()
            ));
        }
        let tails: Vec<String> = tails.iter().map(|tail| tail.display().to_string()).collect();
        let unset = unset.map(|name| format!(" ({name} is not set)")).unwrap_or_default();
        Err(format!(
            "there is no file {}{unset}: looked in the configuration's folder, {MAX_PARENTS} parents, the \
             working folder and \
             their configs/ folders",
            super::error::listed(&tails, "or"),
        ))
    }

    /// Finds a data file and makes its path absolute: from the working folder first, as tt-train does, then as above.
    pub fn data_file(&self, text: &str) -> Result<PathBuf, String> {
        let Expanded { path, unset } = self.expand(text)?;
        let mut roots = self.roots();
        roots.insert(0, self.environment.working_dir.clone());
        let found = roots
            .iter()
            .map(|root| root.join(&path))
            .find(|candidate| candidate.exists());
        match found {
            Some(found) if found.is_dir() => Err(format!(
                "{} is a folder: name a file in it",
                self.environment.shown(&found)
            )),
            Some(found) => Ok(found),
            None => {
                let unset = unset.map(|name| format!(" ({name} is not set)")).unwrap_or_default();
                let searched = if path.is_absolute() {
                    String::new()
                } else {
                    format!(
                        ": looked in the working folder, the configuration's folder and {MAX_PARENTS} parents; \
                         data_path: built-in needs no file"
                    )
                };
                Err(format!("there is no file {}{unset}{searched}", path.display()))
            }
        }
    }

    /// Finds the directory (or file) of a model or a tokenizer: below the working folder and the configuration's, or, for
    /// `org/name`, in the local Hugging Face cache.
    pub fn model(&self, text: &str) -> Result<PathBuf, String> {
        let Expanded { path, unset } = self.expand(text)?;
        let mut roots = self.roots();
        roots.insert(0, self.environment.working_dir.clone());
        let found = roots
            .iter()
            .map(|root| root.join(&path))
            .find(|candidate| candidate.exists());
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(name) = unset {
            return Err(format!("there is no {} ({name} is not set)", path.display()));
        }
        crate::hub::resolve(text, &self.environment.variables).map_err(|error| error.to_string())
    }
}
