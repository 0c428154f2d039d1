//! From the name of a model to its directory: a path, or `org/name` in Hugging Face's local cache.

use super::{HubError, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The directory (or file) that `name` means. `variables` are those of the environment.
///
/// A path that exists is taken as it is, after `~`, `$VAR` and `${VAR}`. Otherwise `org/name` or `org/name@revision` is looked up in
/// the cache that Hugging Face's programs share: `HF_HUB_CACHE`, else `HF_HOME/hub`, else `~/.cache/huggingface/hub`. Nothing is
/// downloaded.
///
/// # Errors
/// [`HubError::Name`]: a variable that is not set, a path that does not exist, a model that is not in the cache (with the command
/// that would download it).
pub fn resolve(name: &str, variables: &BTreeMap<String, String>) -> Result<PathBuf> {
    let expanded = expand(name, variables)?;
    if expanded.is_empty() {
        return Err(HubError::Name(
            "the name of the model is empty: a directory, or org/name of a model in Hugging Face's cache, is needed"
                .into(),
        ));
    }
    let path = PathBuf::from(&expanded);
    if path.exists() {
        return Ok(path);
    }
    match Repository::of(&expanded) {
        Some(repository) => repository.find(variables),
        None => Err(HubError::Name(format!(
            "{expanded} does not exist{}: name a directory, or a model in Hugging Face's cache as org/name",
            meant(name, &expanded)
        ))),
    }
}

/// Says what a path was written as, where that differs.
fn meant(name: &str, expanded: &str) -> String {
    match name == expanded {
        true => String::new(),
        false => format!(" (written as {name})"),
    }
}

/// `~` at the beginning, `$VAR` and `${VAR}` anywhere.
///
/// # Errors
/// [`HubError::Name`]: a variable that is not set, a brace that is not closed.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    let value = |variable: &str| {
        variables.get(variable).ok_or_else(|| {
            HubError::Name(format!(
                "{text} names the environment variable {variable}, which is not set"
            ))
        })
    };
    let mut out = String::new();
    let mut rest = text;
    if text == "~" || text.starts_with("~/") {
        out += value("HOME")?;
        rest = &text[1..];
    }
    while let Some((before, variable, behind)) = next_variable(rest) {
        out += before;
        rest = behind;
        match variable {
            None => return Err(HubError::Name(format!("{text} has a ${{ without its }}"))),
            // A dollar sign that begins no name is one.
            Some("") => out.push('$'),
            Some(variable) => out += value(variable)?,
        }
    }
    Ok(out + rest)
}

/// The first `$VAR` or `${VAR}` of a text: what stands before it, its name (none where a brace is not closed) and what stands
/// behind.
pub(crate) fn next_variable(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let (before, after) = text.split_once('$')?;
    let (name, behind) = match after.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some((name, behind)) => (Some(name), behind),
            None => (None, after),
        },
        None => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (name, behind) = after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len()));
            (Some(name), behind)
        }
    };
    Some((before, name, behind))
}

/// `org/name@revision`.
struct Repository<'a> {
    org: &'a str,
    name: &'a str,
    revision: Option<&'a str>,
}

impl<'a> Repository<'a> {
    /// The repository that a text names, if it looks like one.
    fn of(text: &'a str) -> Option<Repository<'a>> {
        let (id, revision) = match text.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (text, None),
        };
        let (org, name) = id.split_once('/')?;
        let is_name = |part: &str| {
            let mut characters = part.chars();
            characters.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
                && characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        };
        // A revision may be a branch with slashes, never a way out of the cache.
        let is_revision = |revision: &str| revision.split('/').all(is_name);
        (is_name(org) && is_name(name) && revision.is_none_or(is_revision)).then_some(Repository {
            org,
            name,
            revision,
        })
    }

    fn find(&self, variables: &BTreeMap<String, String>) -> Result<PathBuf> {
        let cache = cache(variables)?;
        let folder = cache.join(format!("models--{}--{}", self.org, self.name));
        let snapshots = folder.join("snapshots");
        let wanted = self.revision.unwrap_or("main");
        let named = folder.join("refs").join(wanted);
        let commit = match std::fs::read_to_string(&named) {
            // The contents are a directory's name, whoever wrote them.
            Ok(commit) => Path::new(commit.trim()).file_name().map(PathBuf::from),
            Err(_) => self.revision.map(PathBuf::from),
        };
        if let Some(snapshot) = commit.map(|commit| snapshots.join(commit)).filter(|path| path.is_dir()) {
            return Ok(snapshot);
        }
        let (org, name) = (self.org, self.name);
        let revision = self
            .revision
            .map(|revision| format!(" --revision {revision}"))
            .unwrap_or_default();
        let missing = match folder.is_dir() {
            true => format!("has {org}/{name}, but no complete revision {wanted} of it"),
            false => format!("does not have {org}/{name}"),
        };
        Err(HubError::Name(format!(
            "no directory {org}/{name} exists, and Hugging Face's cache {} {missing}: download it with `hf download \
             {org}/{name}{revision}`, or give the path of a directory",
            cache.display()
        )))
    }
}

/// Where Hugging Face's programs keep what they download.
fn cache(variables: &BTreeMap<String, String>) -> Result<PathBuf> {
    let set = |variable: &str| variables.get(variable).filter(|value| !value.is_empty());
    if let Some(cache) = set("HF_HUB_CACHE") {
        return Ok(PathBuf::from(expand(cache, variables)?));
    }
    if let Some(home) = set("HF_HOME") {
        return Ok(Path::new(&expand(home, variables)?).join("hub"));
    }
    match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(cache), _) => Ok(Path::new(cache).join("huggingface/hub")),
        (None, Some(home)) => Ok(Path::new(home).join(".cache/huggingface/hub")),
        (None, None) => Err(HubError::Name(
            "neither HF_HOME nor HOME is set, so Hugging Face's cache cannot be found: give the path of a directory"
                .into(),
        )),
    }
}
