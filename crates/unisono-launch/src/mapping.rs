//! Several files of rank bindings as one job, each a sub-context (`--rank-bindings-mapping`).

use crate::binding::{self, Bindings};
use crate::paths;
use crate::request::Caller;
use std::path::Path;
use unisono_train::config::yaml::{self, Content, Node, Origin, shortened};
use unisono_train::config::{Findings, Place, read_text};

/// The one key of the file.
const KEY: &str = "subcontext_id_to_rank_bindings";

/// Reads a mapping and the files that it names, and joins them: ranks of a later file follow those of the earlier ones.
/// `None`: something is wrong, and `findings` says what.
pub(crate) fn read(path: &Path, skip_mgd_check: bool, caller: &Caller, findings: &mut Findings) -> Option<Bindings> {
    let shown = paths::shown(path, caller);
    let text = read_text(path, &shown, None, findings)?;
    let before = findings.problems.len();
    let files = yaml::parse(&text, &Origin::File(&shown), findings).map(|root| files(&root, &shown, findings));
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut parts = Vec::new();
    for (name, place) in files.unwrap_or_default() {
        let what = "the rank bindings";
        let found = paths::file(&name, what, Some(folder), false, caller, Some(&place), findings);
        let read = found.and_then(|file| binding::read(&file, skip_mgd_check, caller, findings));
        parts.extend(read);
    }
    if findings.problems.len() > before {
        return None;
    }
    if parts.is_empty() {
        findings.problem(
            Some(Place::whole_file(&shown)),
            format!("{KEY} is missing: a map from 0, 1, … to files of rank bindings"),
        );
        return None;
    }
    let merged = merged(shown, parts, findings);
    Some(merged).filter(|_| findings.problems.len() == before)
}

/// The files by their ids, which must be 0, 1, 2, … in this order.
fn files(root: &Node, shown: &str, findings: &mut Findings) -> Vec<(String, Place)> {
    let Content::Map(entries) = &root.content else {
        findings.problem(
            Some(root.place.clone()),
            format!(
                "{} is no mapping: {KEY} is needed, a map from 0, 1, … to files of rank bindings",
                root.shown()
            ),
        );
        return Vec::new();
    };
    for entry in entries.iter().filter(|entry| entry.key != KEY) {
        let message = format!(
            "{} is not known and is skipped; a mapping has {KEY}",
            shortened(&entry.key)
        );
        findings.note(Some(entry.key_place.clone()), message);
    }
    let Some(entry) = entries.iter().find(|entry| entry.key == KEY) else {
        findings.problem(
            Some(Place::whole_file(shown)),
            format!("{KEY} is missing: a map from 0, 1, … to files of rank bindings"),
        );
        return Vec::new();
    };
    let Content::Map(overlays) = &entry.value.content else {
        let message = format!(
            "{KEY} is {}: a map from 0, 1, … to files is needed",
            entry.value.shown()
        );
        findings.problem(Some(entry.value.place.clone()), message);
        return Vec::new();
    };
    if overlays.is_empty() {
        findings.problem(
            Some(entry.value.place.clone()),
            format!("{KEY} names no file: at least one is needed"),
        );
    }
    let mut files = Vec::new();
    for (index, overlay) in overlays.iter().enumerate() {
        if overlay.key.parse() != Ok(index) {
            findings.problem(
                Some(overlay.key_place.clone()),
                format!(
                    "the sub-context \"{}\" stands where {index} must: ids are 0, 1, 2, … in this order",
                    shortened(&overlay.key)
                ),
            );
            continue;
        }
        match &overlay.value.content {
            Content::Scalar { text, .. } if !overlay.value.is_null() => {
                files.push((text.clone(), overlay.value.place.clone()));
            }
            _ => {
                let message = format!("sub-context {index} is {}: a path is needed", overlay.value.shown());
                findings.problem(Some(overlay.value.place.clone()), message);
            }
        }
    }
    files
}

fn merged(file: String, parts: Vec<Bindings>, findings: &mut Findings) -> Bindings {
    let sizes: Vec<usize> = parts.iter().map(|part| part.ranks.len()).collect();
    let mut whole = Bindings {
        file,
        ranks: Vec::new(),
        global_env: Vec::new(),
        // Every rank has its own.
        descriptor: parts[0].descriptor.clone(),
    };
    for (id, part) in parts.into_iter().enumerate() {
        let shift = whole.ranks.len();
        for mut binding in part.ranks {
            binding.rank += shift;
            binding.subcontext_id = Some(id);
            binding.subcontext_size = Some(sizes[id]);
            whole.ranks.push(binding);
        }
        for (name, value, place) in part.global_env {
            match whole.global_env.iter().find(|(other, ..)| *other == name) {
                None => whole.global_env.push((name, value, place)),
                Some((_, other, _)) if *other == value => {}
                Some((_, other, first)) => {
                    let message = format!(
                        "{name} is \"{}\" here and \"{}\" at {first}: all sub-contexts share global_env, so give one \
                         value, or use env_overrides",
                        shortened(&value),
                        shortened(other)
                    );
                    findings.problem(Some(place), message);
                }
            }
        }
    }
    let sizes: Vec<String> = sizes.iter().map(usize::to_string).collect();
    let place = Place::whole_file(&whole.file);
    whole
        .global_env
        .push(("TT_RUN_SUBCONTEXT_SIZES".to_string(), sizes.join(","), place));
    whole
}
