//! From trees to a flat table of values: every key looked up, every file that the configuration names read as well.

use super::error::{Findings, Place, listed};
use super::files::{Environment, Finder, read_text};
use super::keys::{self, Class, Key};
use super::value::{self, Value};
use super::values::Values;
use super::yaml::{self, Content, Entry, Node, Origin, shortened};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use unisono_mesh::nearest;

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it was read as: `run`, or the key that named it.
    pub role: String,
    /// Where it lies.
    pub path: PathBuf,
}

/// A value that some place gave to a key.
struct Given {
    key: &'static Key,
    /// The key as it was written.
    name: String,
    /// None: `--set key=null`, the default is asked for.
    value: Option<Value>,
    place: Place,
}

/// Reads trees into values.
pub(super) struct Collector<'a> {
    pub finder: Finder<'a>,
    pub findings: Findings,
    pub sources: Vec<Source>,
    given: Vec<Given>,
    /// Keys without meaning here, with the name and the reason.
    ignored: Vec<(&'static str, Place, String)>,
    broken: BTreeSet<&'static str>,
    /// Keys that a misspelt one may have meant.
    meant: BTreeSet<&'static str>,
}

impl<'a> Collector<'a> {
    pub fn new(environment: &'a Environment, config: Option<PathBuf>) -> Self {
        Self {
            finder: Finder { environment, config },
            findings: Findings::default(),
            sources: Vec::new(),
            given: Vec::new(),
            ignored: Vec::new(),
            broken: BTreeSet::new(),
            meant: BTreeSet::new(),
        }
    }

    /// Reads the run's own file.
    pub fn main(&mut self, text: &str, shown: &str) {
        let before = self.findings.problems.len();
        let Some(root) = yaml::parse(text, &Origin::File(shown), &mut self.findings) else {
            if self.findings.problems.len() == before {
                let message = "the file is empty: a run needs at least training_config (unisono init writes one)";
                self.findings.problem(Some(Place::whole_file(shown)), message);
            }
            return;
        };
        let entries = match root.content {
            Content::Map(entries) => entries,
            _ if root.is_null() => {
                let message = "the file is empty: a run needs at least training_config (unisono init writes one)";
                self.findings.problem(Some(Place::whole_file(shown)), message);
                return;
            }
            _ => {
                let message = format!(
                    "a configuration is a map of sections, as training_config:, found {}",
                    root.shown()
                );
                self.findings.problem(Some(root.place), message);
                return;
            }
        };
        if let Some(message) = kind_of_part(&entries) {
            self.findings.problem(Some(Place::whole_file(shown)), message);
        }
        let prefix = if is_optimizer_file(&entries) {
            "training_config.optimizer"
        } else {
            ""
        };
        self.walk(prefix, &entries);
    }

    /// Takes one `--set key=value`.
    pub fn overriding(&mut self, text: &str) {
        let place = Place::Override(text.into());
        let Some((path, written)) = text.split_once('=') else {
            let message = "an override is written as key=value, for example training_config.max_steps=200";
            self.findings.problem(Some(place), message);
            return;
        };
        let Some(node) = yaml::parse(written, &Origin::Override(text), &mut self.findings).or_else(|| {
            written.trim().is_empty().then(|| Node {
                content: Content::Scalar {
                    text: String::new(),
                    plain: true,
                },
                place: place.clone(),
            })
        }) else {
            return;
        };
        self.entry(path.trim().to_string(), &place, &node);
    }

    /// Reads the files that the keys so far name.
    pub fn named_files(&mut self) {
        self.named_file("training_config.model_config", "model_configs", "transformer_config");
        self.named_file("optimizer_config", "optimizer_configs", "training_config.optimizer");
        self.named_file(
            "training_config.multihost_config",
            "multihost_configs",
            "multihost_config",
        );
        self.named_file("training_config.device_config", "device_configs", "device_config");
        self.named_file("device_config", "device_configs", "device_config");
        self.named_file("lora_config", "lora_configs", "lora_config");
    }

    fn named_file(&mut self, key: &'static str, folder: &str, section: &str) {
        let last = self.given.iter().rev().find(|given| given.key.path == key);
        let Some(Given {
            value: Some(Value::Text(text)),
            place,
            name,
            ..
        }) = last
        else {
            return;
        };
        let (text, place, name) = (text.clone(), place.clone(), name.clone());
        if text.is_empty() {
            return;
        }
        let path = match self.finder.config_file(&text, folder) {
            Ok(path) => path,
            Err(message) => {
                self.broken
                    .extend(keys::all().map(|row| row.path).filter(|row| row.starts_with(section)));
                self.findings.problem(Some(place), format!("{name}: {message}"));
                return;
            }
        };
        let shown = self.finder.environment.shown(&path);
        let Some(text) = read_text(&path, &shown, Some(place.clone()), &mut self.findings) else {
            return;
        };
        self.sources.push(Source {
            role: key.to_string(),
            path,
        });
        let before = self.findings.problems.len();
        let Some(Node {
            content: Content::Map(entries),
            ..
        }) = yaml::parse(&text, &Origin::File(&shown), &mut self.findings)
        else {
            if self.findings.problems.len() == before {
                self.findings
                    .problem(Some(place), format!("{name}: {shown} holds no {section}"));
            }
            return;
        };
        self.section_of_file(&entries, section, &shown, &place, &name);
    }

    /// Reads one section of a named file; the others are another run's business.
    fn section_of_file(&mut self, entries: &[Entry], section: &str, shown: &str, place: &Place, name: &str) {
        let (_, last_word) = keys::split(section);
        let is_it = |entry: &&Entry| {
            entry.key == last_word
                || keys::MOVED_SECTIONS
                    .iter()
                    .any(|(from, to)| *from == entry.key && *to == section)
        };
        match entries.iter().find(is_it) {
            Some(Entry {
                value: Node {
                    content: Content::Map(inner),
                    ..
                },
                ..
            }) => self.walk(section, inner),
            None if section == "training_config.optimizer" => return self.walk(section, entries),
            _ => {
                self.findings
                    .problem(Some(place.clone()), format!("{name}: {shown} holds no {last_word}"));
                return;
            }
        }
        let others: Vec<&str> = entries.iter().filter(|e| !is_it(e)).map(|e| e.key.as_str()).collect();
        if !others.is_empty() {
            let message = format!(
                "{name}: only {last_word} is read from {shown}, not {}",
                listed(&others, "and")
            );
            self.findings.note(Some(place.clone()), message);
        }
    }

    fn walk(&mut self, prefix: &str, entries: &[Entry]) {
        for Entry { key, key_place, value } in entries {
            let path = if prefix.is_empty() {
                key.clone()
            } else {
                format!("{prefix}.{key}")
            };
            if key.contains(['.', '[']) {
                self.unknown(prefix, key, key_place);
            } else {
                self.entry(path, key_place, value);
            }
        }
    }

    fn entry(&mut self, path: String, key_place: &Place, node: &Node) {
        let row = keys::find(&path).filter(|row| !row.path.contains('['));
        if let Content::Map(entries) = &node.content {
            let moved = keys::MOVED_SECTIONS
                .iter()
                .find(|(from, _)| *from == path)
                .map(|(_, to)| (*to).to_string());
            let section = moved.unwrap_or_else(|| path.clone());
            if keys::is_section(&section) {
                return self.walk(&section, entries);
            }
        }
        match row {
            Some(row) => self.take(row, &path, key_place, node),
            None if keys::is_section(&path) && !path.contains('[') => {
                if !node.is_null() {
                    let message = format!("{path} is a section: keys stand below it, found {}", node.shown());
                    self.findings.problem(Some(node.place.clone()), message);
                }
            }
            None => {
                let (section, name) = keys::split(&path);
                self.unknown(section, name, key_place);
            }
        }
    }

    fn take(&mut self, row: &'static Key, name: &str, key_place: &Place, node: &Node) {
        match &row.class {
            Class::Alias(of) => self.take(keys::known(of), name, key_place, node),
            Class::NoMeaning(why) => {
                if !is_off(node, &["false"]) {
                    self.ignored.push((
                        row.path,
                        key_place.clone(),
                        format!("{name} has no meaning here: {why}"),
                    ));
                }
            }
            Class::NotBuilt { off, missing } => {
                if !is_off(node, off) {
                    let instead = match off.first() {
                        Some(off) if !off.is_empty() => format!("remove {name} or set it to {off}"),
                        _ => format!("remove {name}"),
                    };
                    self.findings.problem(
                        Some(key_place.clone()),
                        format!("{missing} is not built yet: {instead}"),
                    );
                }
            }
            Class::Read => {
                let overriding = matches!(node.place, Place::Override(_));
                let value = if node.is_null() && overriding {
                    None
                } else if node.is_null() {
                    if row.default.is_empty() {
                        return;
                    }
                    let message = format!(
                        "{name} has no value; remove the line to have the default, {}",
                        row.default
                    );
                    self.findings.problem(Some(key_place.clone()), message);
                    self.broken.insert(row.path);
                    return;
                } else {
                    let value = value::read(row, name, node, &mut self.findings);
                    if value.is_none() {
                        self.broken.insert(row.path);
                        return;
                    }
                    value
                };
                self.given.push(Given {
                    key: row,
                    name: name.to_string(),
                    value,
                    place: node.place.clone(),
                });
            }
        }
    }

    /// Reports a key that nobody has heard of, with the nearest one.
    fn unknown(&mut self, section: &str, name: &str, place: &Place) {
        let path = if section.is_empty() {
            name.to_string()
        } else {
            format!("{section}.{name}")
        };
        let siblings = || keys::all().filter_map(|row| child(section, row.path));
        let elsewhere = keys::all().find(|row| keys::split(row.path).1 == name && !row.path.contains('['));
        let hint = if self.findings.hopeless() {
            "docs/configuration.md lists all keys".to_string()
        } else if name.contains('.') {
            let (above, below) = keys::split(name);
            format!("write {below} on a line of its own below {above}")
        } else if let Some(near) = nearest(name, siblings()) {
            // Whoever meant that key gave it a value that nobody knows now.
            self.meant.extend(
                keys::all()
                    .map(|row| row.path)
                    .filter(|row| keys::split(row) == (section, near)),
            );
            format!("did you mean {near}?")
        } else if let Some(row) = elsewhere.filter(|row| keys::split(row.path).0 != section) {
            format!("it belongs in {}", keys::split(row.path).0)
        } else if let Some(row) = nearest(name, keys::all().map(|row| keys::split(row.path).1)) {
            let row = keys::all()
                .find(|other| keys::split(other.path).1 == row)
                .map_or(row, |other| other.path);
            format!("did you mean {row}?")
        } else {
            "docs/configuration.md lists all keys".to_string()
        };
        self.findings.problem(
            Some(place.clone()),
            format!("{} is not a key: {hint}", shortened(&path)),
        );
    }

    /// One value a key: overrides before files; two places of one rank must agree.
    pub fn finish(self) -> (Values, Findings, Vec<Source>) {
        let Self {
            mut findings,
            sources,
            given,
            ignored,
            broken,
            meant,
            ..
        } = self;
        let mut values = Values {
            broken,
            meant,
            ..Values::default()
        };
        // Keys of a model that is refused anyway need no further words.
        const MODEL: &str = "transformer_config.model_type";
        let named = given.iter().any(|given| given.key.path == MODEL);
        let foreign = ignored.iter().any(|(path, ..)| keys::FOREIGN.contains(path));
        let refused = values.broken.contains(MODEL) || (!named && foreign);
        for (path, place, message) in ignored {
            if !(refused && path.starts_with("transformer_config.")) {
                findings.note(Some(place.clone()), message);
            }
            values.ignored.insert(path, place);
        }
        let mut grouped: BTreeMap<&'static str, Vec<Given>> = BTreeMap::new();
        for item in given {
            grouped.entry(item.key.path).or_default().push(item);
        }
        for (path, items) in grouped {
            let overridden = items.iter().any(|item| matches!(item.place, Place::Override(_)));
            let mut strong = items
                .into_iter()
                .filter(|i| !overridden || matches!(i.place, Place::Override(_)));
            let Some(first) = strong.next() else { continue };
            for other in strong.filter(|other| other.value != first.value) {
                let shown = |value: &Option<Value>| value.as_ref().map_or("not set".to_string(), Value::to_string);
                let here = if other.name == first.name {
                    "here".to_string()
                } else {
                    format!("here ({})", other.name)
                };
                let there = if first.name == path {
                    String::new()
                } else {
                    format!(" ({})", first.name)
                };
                let message = format!(
                    "{path} is {} {here} and {} at {}{there}: give it once",
                    shown(&other.value),
                    shown(&first.value),
                    first.place,
                );
                findings.problem(Some(other.place), message);
                values.broken.insert(path);
            }
            if let Some(value) = first.value {
                values.map.insert(path, (value, first.place));
            }
        }
        (values, findings, sources)
    }

    /// The configuration's own path, for `sources`.
    pub fn source(&mut self, role: &str, path: &Path) {
        self.sources.push(Source {
            role: role.to_string(),
            path: path.to_path_buf(),
        });
    }
}

/// The word after `section.` in a path below it.
fn child(section: &str, path: &'static str) -> Option<&'static str> {
    let rest = if section.is_empty() {
        path
    } else {
        path.strip_prefix(section)?.strip_prefix('.')?
    };
    rest.split(['.', '[']).next()
}

/// Whether a value switches its key off.
fn is_off(node: &Node, off: &[&str]) -> bool {
    match &node.content {
        _ if node.is_null() => true,
        Content::Map(entries) => entries.is_empty(),
        Content::List(items) => items.is_empty(),
        Content::Scalar { text, .. } => {
            let text = text.trim().to_ascii_lowercase();
            off.contains(&text.as_str()) || (off.contains(&"false") && matches!(text.as_str(), "no" | "off"))
        }
    }
}

/// Whether a file is an optimizer file: nothing but the optimizer's own keys.
fn is_optimizer_file(entries: &[Entry]) -> bool {
    !entries.is_empty()
        && entries
            .iter()
            .all(|entry| keys::find(&format!("training_config.optimizer.{}", entry.key)).is_some())
}

/// What a file without `training_config` is, and what it lacks; `None` if it has one.
fn kind_of_part(entries: &[Entry]) -> Option<String> {
    let has = |name: &str| entries.iter().any(|entry| entry.key == name);
    if has("training_config") {
        return None;
    }
    let (what, how) = if is_optimizer_file(entries) {
        (
            "an optimizer configuration",
            "name it as optimizer_config in a file that has it",
        )
    } else if has("transformer_config") {
        (
            "a model configuration",
            "name it as training_config.model_config in a file that has it",
        )
    } else if has("device_config") {
        (
            "a device configuration",
            "name it as training_config.device_config in a file that has it",
        )
    } else if has("multihost_config") {
        (
            "a multi-host configuration",
            "name it as training_config.multihost_config in a file that has it",
        )
    } else if has("lora_config") || has("eval_config") {
        ("one section only", "copy it into a file that has it")
    } else {
        return Some("training_config is missing: a run needs it (unisono init writes one)".to_string());
    };
    Some(format!("this file is {what}; a run also needs training_config: {how}"))
}
