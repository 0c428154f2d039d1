//! Places, problems and notes: what `load` says about a configuration, in sentences.

use super::load::Loaded;
use std::fmt;
use std::sync::Arc;

/// Where something was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In a file.
    File {
        /// The file as it is shown: relative to the working folder where it lies below that.
        file: Arc<str>,
        /// The line, from 1; 0 means the file as a whole.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
    },
    /// On the command line: the text after `--set`.
    Override(Arc<str>),
}

impl Place {
    /// A file as a whole.
    pub fn whole_file(file: &str) -> Self {
        Self::File {
            file: file.into(),
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line: 0, .. } => write!(f, "{file}"),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Override(text) => write!(f, "--set {text}"),
        }
    }
}

/// Something wrong with a configuration. Displayed as `file:line:column: sentence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written, if it was.
    pub place: Option<Place>,
    /// A sentence: the key, what was given, the rule and what would work.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Something that the user should know and that stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where it was written, if it was.
    pub place: Option<Place>,
    /// A sentence.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Everything that is wrong with a configuration, one line each.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct ConfigErrors {
    /// The problems, never empty, in the order of the files and lines.
    pub problems: Vec<Problem>,
    /// What else there is to say.
    pub notes: Vec<Note>,
    /// The configuration as far as it could be read, with defaults in place of what could not (see [`Loaded::sound`]), so
    /// that later checks can speak in the same breath. `None` where the file could not be read at all.
    pub partial: Option<Box<Loaded>>,
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Collects problems and notes while a configuration is read.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What is wrong, in the order in which it was found.
    pub problems: Vec<Problem>,
    /// What else there is to say.
    pub notes: Vec<Note>,
}

/// Most problems that are told; a file with more of them is no configuration at all.
const MAX_PROBLEMS: usize = 200;

impl Findings {
    /// Whether so much is wrong already that hints are not worth their time.
    pub fn hopeless(&self) -> bool {
        self.problems.len() > MAX_PROBLEMS
    }

    /// Keeps the first problems and says how many more there are.
    pub fn limit(&mut self) {
        if self.hopeless() {
            let more = self.problems.len() - MAX_PROBLEMS;
            self.problems.truncate(MAX_PROBLEMS);
            self.problem(None, format!("and {more} more problems"));
        }
    }

    /// Adds a problem.
    pub fn problem(&mut self, place: Option<Place>, message: impl Into<String>) {
        self.problems.push(Problem {
            place,
            message: message.into(),
        });
    }

    /// Adds a note, once.
    pub fn note(&mut self, place: Option<Place>, message: impl Into<String>) {
        let note = Note {
            place,
            message: message.into(),
        };
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// `["a", "b", "c"]` as "a, b and c".
pub fn listed<S: AsRef<str>>(words: &[S], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.as_ref().to_string(),
        [first @ .., end] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} {last} {}", first.join(", "), end.as_ref())
        }
    }
}
