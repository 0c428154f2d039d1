//! Loading: from a file, a text or a run's own copy to the typed configuration, or to everything that is wrong with
//! it.

use super::build;
use super::check;
use super::collect::{Collector, Source};
use super::error::{ConfigErrors, Note, Place};
use super::files::{Environment, read_text};
use super::types::RunConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The variable that names the machine's descriptor.
pub const DESCRIPTOR: &str = "TT_MESH_GRAPH_DESC_PATH";

/// A configuration that was loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: RunConfig,
    /// What else there is to say: keys without meaning here, names taken as others.
    pub notes: Vec<Note>,
    /// The files that it came from, the run's own first.
    pub sources: Vec<Source>,
    /// The machine's descriptor as the environment names it ([`DESCRIPTOR`]), before what the configuration says.
    pub descriptor: Option<String>,
    places: BTreeMap<String, Place>,
    /// Keys whose value could not be read, or may stand under a misspelt name.
    broken: BTreeSet<&'static str>,
}

impl Loaded {
    /// Where a key was written, if it was: for later sentences about it. The key by its full name,
    /// `training_config.batch_size`.
    pub fn place(&self, key: &str) -> Option<&Place> {
        self.places.get(key)
    }

    /// Whether all of these keys could be read, or were not there: otherwise a sentence about their values, which are the
    /// defaults, would only confuse. False in [`ConfigErrors::partial`] only.
    pub fn sound(&self, keys: &[&str]) -> bool {
        !keys.iter().any(|key| self.broken.contains(key))
    }
}

/// Loads a run's configuration from a YAML file and the files that it names. Overrides are texts `key=value`, the key
/// by its full name, the value in YAML; they replace what the files say.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(path: &Path, overrides: &[String], environment: &Environment) -> Result<Loaded, ConfigErrors> {
    load_file(path, overrides, environment, true)
}

/// As [`load`], but data files need not exist: for a finished run, which is to generate or to be compared.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_saved(path: &Path, overrides: &[String], environment: &Environment) -> Result<Loaded, ConfigErrors> {
    load_file(path, overrides, environment, false)
}

/// Loads a configuration from a text, for example a [`preset`](super::preset), that is called `name` in messages.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_text(
    name: &str,
    text: &str,
    overrides: &[String],
    environment: &Environment,
) -> Result<Loaded, ConfigErrors> {
    let mut collector = Collector::new(environment, None);
    collector.main(text.strip_prefix('\u{feff}').unwrap_or(text), name);
    finish(collector, overrides, true)
}

fn load_file(
    path: &Path,
    overrides: &[String],
    environment: &Environment,
    check_files: bool,
) -> Result<Loaded, ConfigErrors> {
    let mut collector = Collector::new(environment, Some(path.to_path_buf()));
    let shown = path.display().to_string();
    let absolute = environment.working_dir.join(path);
    if path.as_os_str().is_empty() {
        collector
            .findings
            .problem(None, "the name of the configuration file is empty");
    } else if let Some(text) = read_text(&absolute, &shown, None, &mut collector.findings) {
        collector.source("run", &absolute);
        collector.main(&text, &shown);
    }
    finish(collector, overrides, check_files)
}

fn finish(mut collector: Collector<'_>, overrides: &[String], check_files: bool) -> Result<Loaded, ConfigErrors> {
    for text in overrides {
        collector.overriding(text);
    }
    collector.named_files();
    let finder_environment = collector.finder.environment;
    let finder = super::files::Finder {
        environment: finder_environment,
        config: collector.finder.config.clone(),
    };
    let (values, mut findings, sources) = collector.finish();
    let config = build::run_config(&values, &finder, check_files, &mut findings);
    check::run(&config, &values, &mut findings);
    let from_a_file = |(_, place): &(_, Place)| matches!(place, Place::File { .. });
    let was_read = values.map.values().any(from_a_file);
    let descriptor = finder_environment.variables.get(DESCRIPTOR);
    let mut loaded = Loaded {
        config,
        descriptor: descriptor.filter(|path| !path.is_empty()).cloned(),
        notes: Vec::new(),
        sources,
        places: values.places(),
        broken: values.broken.union(&values.meant).copied().collect(),
    };
    if findings.problems.is_empty() {
        loaded.notes = findings.notes;
        return Ok(loaded);
    }
    let sources = &loaded.sources;
    let order = |place: &Option<Place>| match place {
        Some(Place::File { file, line, column }) => {
            let rank = sources
                .iter()
                .position(|source| finder_environment.shown(&source.path) == **file);
            (rank.unwrap_or(0), *line, *column)
        }
        Some(Place::Override(_)) => (usize::MAX - 1, 0, 0),
        None => (usize::MAX, 0, 0),
    };
    findings.problems.sort_by_key(|problem| order(&problem.place));
    findings.problems.dedup();
    findings.limit();
    // Beside refusals: no words on defaults, nor on what depends on the thing refused.
    findings
        .notes
        .retain(|note| note.place.is_some() && !note.message.ends_with("is not built yet"));
    Err(ConfigErrors {
        problems: findings.problems,
        notes: findings.notes,
        partial: was_read.then(|| Box::new(loaded)),
    })
}

impl Default for RunConfig {
    /// The configuration of a file that says nothing.
    fn default() -> Self {
        let environment = Environment {
            variables: BTreeMap::new(),
            working_dir: ".".into(),
        };
        match load_text("default", "training_config: {}", &[], &environment) {
            Ok(loaded) => loaded.config,
            Err(errors) => panic!("bug in unisono: the defaults are refused: {errors}"),
        }
    }
}
