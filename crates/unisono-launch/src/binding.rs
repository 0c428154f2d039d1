//! Rank bindings: the YAML file that says which rank has which part of which mesh, and with which environment.

use crate::paths;
use crate::request::Caller;
use crate::shell::is_variable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unisono_train::config::yaml::{self, Content, Entry, Node, Origin, shortened};
use unisono_train::config::{Findings, Place, read_text};

/// Older names of keys, and those that hold now.
const OLD_NAMES: [(&str, &str); 2] = [
    ("host_rank_id", "mesh_host_rank"),
    ("mesh_graph_path", "mesh_graph_desc_path"),
];
/// Older names of variables in `global_env` and `env_overrides`, and those that hold now.
const OLD_VARIABLES: [(&str, &str); 1] = [("TT_METAL_VISIBLE_DEVICES", "TT_VISIBLE_DEVICES")];
/// Keys of the file.
const FILE_KEYS: [&str; 3] = ["rank_bindings", "global_env", "mesh_graph_desc_path"];
/// Keys of a rank.
const RANK_KEYS: [&str; 7] = [
    "rank",
    "mesh_id",
    "mesh_host_rank",
    "env_overrides",
    "subcontext_id",
    "subcontext_size",
    "mesh_graph_desc_path",
];

/// One rank of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its number in the job.
    pub rank: usize,
    /// The mesh that it belongs to, by the descriptor's `mesh_id`.
    pub mesh_id: u32,
    /// Which of that mesh's processes it is, row-major over the grid of hosts; `None` where the file does not say.
    pub mesh_host_rank: Option<u32>,
    /// Variables of this rank alone, in the file's order.
    pub env_overrides: Vec<(String, String)>,
    /// `subcontext_id`, where the file gives one.
    pub subcontext_id: Option<usize>,
    /// `subcontext_size`, where the file gives one.
    pub subcontext_size: Option<usize>,
    /// The descriptor of this rank: its own, otherwise the file's.
    pub descriptor: PathBuf,
    /// Where it was written.
    pub place: Place,
}

/// A file of rank bindings that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bindings {
    /// The file as it is shown.
    pub file: String,
    /// Its ranks, 0 to n − 1 in this order.
    pub ranks: Vec<Binding>,
    /// Variables of all ranks, each with its place.
    pub global_env: Vec<(String, String, Place)>,
    /// The descriptor of the ranks that name none of their own.
    pub descriptor: PathBuf,
}

/// Reads and checks a file. `None`: something is wrong, and `findings` says what.
pub(crate) fn read(path: &Path, skip_mgd_check: bool, caller: &Caller, findings: &mut Findings) -> Option<Bindings> {
    let shown = paths::shown(path, caller);
    let text = read_text(path, &shown, None, findings)?;
    let before = findings.problems.len();
    let root = yaml::parse(&text, &Origin::File(&shown), findings);
    let mut reader = Reader {
        file: shown.clone(),
        skip_mgd_check,
        caller,
        findings,
    };
    let bindings = match root {
        Some(root) => reader.bindings(&root),
        None => {
            if reader.findings.problems.len() == before {
                reader.findings.problem(
                    Some(Place::whole_file(&shown)),
                    "the file is empty: rank_bindings and mesh_graph_desc_path are needed",
                );
            }
            None
        }
    };
    bindings.filter(|_| findings.problems.len() == before)
}

/// Reads with hints; see the module.
struct Reader<'a> {
    file: String,
    skip_mgd_check: bool,
    caller: &'a Caller,
    findings: &'a mut Findings,
}

impl Reader<'_> {
    fn bindings(&mut self, root: &Node) -> Option<Bindings> {
        let keys = self.keys(root, &FILE_KEYS, "a file of rank bindings")?;
        let descriptor_key = keys.get("mesh_graph_desc_path").copied();
        let descriptor = match descriptor_key {
            Some(entry) => self.descriptor(entry),
            None => {
                let place = Place::whole_file(&self.file);
                self.findings.problem(
                    Some(place),
                    "mesh_graph_desc_path is missing: the mesh graph descriptor (.textproto) that the mesh_ids mean",
                );
                None
            }
        };
        let global_env = keys
            .get("global_env")
            .map(|entry| self.environment(entry))
            .unwrap_or_default();
        let mut ranks = Vec::new();
        match keys
            .get("rank_bindings")
            .map(|entry| (&entry.value, &entry.value.content))
        {
            Some((node, Content::List(items))) => {
                if items.is_empty() {
                    self.problem(&node.place, "rank_bindings has no rank: at least one is needed");
                }
                for item in items {
                    ranks.extend(self.rank(item, descriptor.as_deref()));
                }
            }
            Some((node, _)) => {
                let shown = node.shown();
                self.problem(
                    &node.place,
                    format!("rank_bindings is {shown}: a list of ranks is needed (- rank: 0)"),
                );
            }
            None => {
                let place = Place::whole_file(&self.file);
                self.problem(
                    &place,
                    "rank_bindings is missing: the list of ranks (- rank: 0, mesh_id: 0)",
                );
            }
        }
        self.sort(&mut ranks);
        Some(Bindings {
            file: self.file.clone(),
            ranks,
            global_env,
            descriptor: descriptor?,
        })
    }

    /// Sorts ranks; they must be 0 to n − 1, each once.
    fn sort(&mut self, ranks: &mut [Binding]) {
        ranks.sort_by_key(|binding| binding.rank);
        let mut twice = false;
        for pair in ranks.windows(2).filter(|pair| pair[0].rank == pair[1].rank) {
            twice = true;
            let message = format!("rank {} is bound twice: here and at {}", pair[1].rank, pair[0].place);
            self.findings.problem(Some(pair[1].place.clone()), message);
        }
        let gap = ranks.iter().enumerate().find(|(index, binding)| *index != binding.rank);
        if let (Some((index, binding)), false) = (gap, twice) {
            let numbers: Vec<String> = ranks.iter().map(|binding| binding.rank.to_string()).collect();
            let message = format!(
                "the {} ranks must be numbered 0 to {}, and rank {index} is missing: these are {}",
                ranks.len(),
                ranks.len() - 1,
                numbers.join(", ")
            );
            self.findings.problem(Some(binding.place.clone()), message);
        }
    }

    fn rank(&mut self, node: &Node, descriptor: Option<&Path>) -> Option<Binding> {
        let keys = self.keys(node, &RANK_KEYS, "a rank")?;
        let rank = self.required(&keys, "rank", node);
        let mesh_id = self.required(&keys, "mesh_id", node);
        let optional = |reader: &mut Self, key: &str, least: usize| {
            let entry = keys.get(key).filter(|entry| !entry.value.is_null())?;
            reader.number(key, &entry.value, least)
        };
        let mesh_host_rank = optional(self, "mesh_host_rank", 0);
        let subcontext_id = optional(self, "subcontext_id", 0);
        let subcontext_size = optional(self, "subcontext_size", 1);
        let overrides = keys
            .get("env_overrides")
            .map(|entry| self.environment(entry))
            .unwrap_or_default();
        let own = keys.get("mesh_graph_desc_path").copied();
        let own = own.filter(|entry| !matches!(&entry.value.content, Content::Scalar { text, .. } if text.is_empty()));
        let own = own.map(|entry| self.descriptor(entry));
        Some(Binding {
            rank: rank?,
            mesh_id: mesh_id? as u32,
            mesh_host_rank: mesh_host_rank.map(|rank| rank as u32),
            env_overrides: overrides.into_iter().map(|(name, value, _)| (name, value)).collect(),
            subcontext_id,
            subcontext_size,
            descriptor: match own {
                Some(own) => own?,
                // Where the file's is missing that has been said.
                None => descriptor.unwrap_or(Path::new("")).to_path_buf(),
            },
            place: node.place.clone(),
        })
    }

    fn required(&mut self, keys: &BTreeMap<String, &Entry>, key: &str, node: &Node) -> Option<usize> {
        match keys.get(key) {
            Some(entry) => self.number(key, &entry.value, 0),
            None => {
                self.problem(
                    &node.place,
                    format!("{key} is missing: every rank needs rank and mesh_id"),
                );
                None
            }
        }
    }

    fn number(&mut self, key: &str, node: &Node, least: usize) -> Option<usize> {
        let number = match &node.content {
            Content::Scalar { text, .. } => text.parse::<u32>().ok().map(|number| number as usize),
            _ => None,
        };
        let number = number.filter(|number| *number >= least);
        if number.is_none() {
            let shown = node.shown();
            self.problem(
                &node.place,
                format!("{key} is {shown}: a whole number of at least {least} is needed"),
            );
        }
        number
    }

    /// The descriptor that a key names, found; or why not.
    fn descriptor(&mut self, entry: &Entry) -> Option<PathBuf> {
        let node = &entry.value;
        let Content::Scalar { text, .. } = &node.content else {
            let shown = node.shown();
            self.problem(&node.place, format!("{} is {shown}: a path is needed", entry.key));
            return None;
        };
        let is_old = [".yaml", ".yml"]
            .iter()
            .any(|end| text.to_ascii_lowercase().ends_with(end));
        if is_old && !self.skip_mgd_check {
            let stem = text.rsplit_once('.').map_or(text.as_str(), |(stem, _)| stem);
            let message = format!(
                "{text} is a mesh graph descriptor of version 1 (YAML), which is no longer read: name its successor \
                 in version 2, {stem}.textproto (docs/mgd.md; `unisono mesh new` writes one)"
            );
            self.problem(&node.place, message);
            return None;
        }
        let place = Some(&node.place);
        paths::file(
            text,
            "the mesh graph descriptor",
            None,
            self.skip_mgd_check,
            self.caller,
            place,
            self.findings,
        )
    }

    /// A map of variables. Values that are no text are taken as they are written.
    fn environment(&mut self, entry: &Entry) -> Vec<(String, String, Place)> {
        if entry.value.is_null() {
            return Vec::new();
        }
        let Content::Map(entries) = &entry.value.content else {
            let shown = entry.value.shown();
            self.problem(
                &entry.value.place,
                format!("{} is {shown}: a map of variables is needed", entry.key),
            );
            return Vec::new();
        };
        let mut variables: Vec<(String, String, Place)> = Vec::new();
        for variable in entries {
            let (name, place) = (&variable.key, &variable.key_place);
            if !is_variable(name) {
                let message = format!(
                    "\"{}\" cannot be the name of a variable: it is made of letters, digits and _, and no digit comes first",
                    shortened(name)
                );
                self.problem(place, message);
                continue;
            }
            let Some(value) = self.value(name, &variable.value) else {
                continue;
            };
            let new = OLD_VARIABLES.iter().find(|(old, _)| old == name).map(|(_, new)| *new);
            if let Some(new) = new {
                if entries.iter().any(|other| other.key == new) {
                    self.problem(
                        place,
                        format!("{name} is an older name of {new}, which is given as well: remove it"),
                    );
                    continue;
                }
                self.findings
                    .note(Some(place.clone()), format!("{name} is taken as {new}, its name today"));
            }
            variables.push((new.unwrap_or(name).to_string(), value, place.clone()));
        }
        variables
    }

    fn value(&mut self, name: &str, node: &Node) -> Option<String> {
        let Content::Scalar { text, plain } = &node.content else {
            let shown = node.shown();
            self.problem(
                &node.place,
                format!("{name} is {shown}: a variable's value is one text"),
            );
            return None;
        };
        if text.contains('\0') {
            self.problem(
                &node.place,
                format!("{name} holds a character 0, which no variable can"),
            );
            return None;
        }
        if node.is_null() {
            self.findings.note(
                Some(node.place.clone()),
                format!("{name} has no value and is set to the empty text; write \"\" for tt-run"),
            );
            return Some(String::new());
        }
        if *plain && is_no_text(text) {
            self.findings.note(
                Some(node.place.clone()),
                format!(
                    "{name} is taken as the text \"{}\"; tt-run wants the quotes",
                    shortened(text)
                ),
            );
        }
        Some(text.clone())
    }

    /// The keys of a map by their names today; unknown ones are told as a note.
    fn keys<'n>(&mut self, node: &'n Node, known: &[&str], what: &str) -> Option<BTreeMap<String, &'n Entry>> {
        let Content::Map(entries) = &node.content else {
            let shown = node.shown();
            self.problem(&node.place, format!("{what} is a map of keys, not {shown}"));
            return None;
        };
        let mut keys: BTreeMap<String, &Entry> = BTreeMap::new();
        for entry in entries {
            let new = OLD_NAMES
                .iter()
                .find(|(old, new)| *old == entry.key && known.contains(new));
            let name = new.map_or(entry.key.as_str(), |(_, new)| new);
            if !known.contains(&name) {
                let known = known.join(", ");
                let message = format!(
                    "{} is not known and is skipped; {what} has {known}",
                    shortened(&entry.key)
                );
                self.findings.note(Some(entry.key_place.clone()), message);
                continue;
            }
            if let Some((old, new)) = new {
                self.findings.note(
                    Some(entry.key_place.clone()),
                    format!("{old} is taken as {new}, its name today"),
                );
            }
            if let Some(first) = keys.get(name) {
                let message = format!(
                    "{name} is given twice: here as {} and at {}",
                    entry.key, first.key_place
                );
                self.findings.problem(Some(entry.key_place.clone()), message);
            }
            keys.insert(name.to_string(), entry);
        }
        Some(keys)
    }

    fn problem(&mut self, place: &Place, message: impl Into<String>) {
        self.findings.problem(Some(place.clone()), message);
    }
}

/// Whether a bare word is something else than text to YAML 1.1, as which tt-run reads its files.
fn is_no_text(word: &str) -> bool {
    let is_word = ["true", "false", "yes", "no", "on", "off"].contains(&word.to_ascii_lowercase().as_str());
    let bare = word.trim_start_matches(['+', '-']);
    let all = |digits: &str, is_digit: fn(char) -> bool| {
        !digits.is_empty() && digits.chars().all(|c| c == '_' || is_digit(c))
    };
    let based = match (bare.strip_prefix("0x"), bare.strip_prefix("0b")) {
        (Some(digits), _) => all(digits, |c| c.is_ascii_hexdigit()),
        (_, Some(digits)) => all(digits, |c| matches!(c, '0' | '1')),
        // With underscores, or to the base of sixty.
        _ => bare.starts_with(|c: char| c.is_ascii_digit()) && all(bare, |c| c.is_ascii_digit() || c == ':'),
    };
    is_word || based || word.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_no_text;

    #[test]
    fn words_that_tt_run_would_not_take_as_text() {
        for word in [
            "yes", "Off", "007", "1.50", "-1e3", "0x1F", "0b10", "1_000", "1:30", "nan",
        ] {
            assert!(is_no_text(word), "{word}");
        }
        for word in ["", "0x", "0xyz", "1.2.3", "10.0.0.1:80", "eth0", "a", "-", "_1"] {
            assert!(!is_no_text(word), "{word}");
        }
    }
}
