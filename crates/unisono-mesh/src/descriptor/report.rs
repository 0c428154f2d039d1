//! Where a problem of a descriptor lies and what it is; all problems of one stage make a report.

use std::fmt;

/// The most problems (and the most warnings) that are kept of one file; the rest are counted only, so that a broken
/// file costs bounded memory.
pub const MAX_PROBLEMS: usize = 100;

/// A place in a descriptor's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// Line, counted from 1.
    pub line: u32,
    /// Column in characters, counted from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Something with the place where it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub at: Position,
}

/// One fault, or one warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it lies.
    pub at: Position,
    /// The path of the field, for example `mesh_descriptors[0].channels.count`; empty where the text itself is at fault.
    pub field: String,
    /// What was given, what was expected, what to do.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.at.line, self.at.column)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.text)
    }
}

/// Problems in the order of their finding, at most [`MAX_PROBLEMS`] of them; the rest are counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    list: Vec<Problem>,
    left_off: usize,
}

impl Problems {
    /// Adds a problem. The text is made only where it is kept.
    pub(crate) fn add(&mut self, at: Position, field: impl Into<String>, text: impl FnOnce() -> String) {
        if self.list.len() < MAX_PROBLEMS {
            let problem = Problem {
                at,
                field: field.into(),
                text: text(),
            };
            // The same fault of the same place once more adds nothing.
            if self.list.last() != Some(&problem) {
                self.list.push(problem);
            }
        } else {
            self.left_off += 1;
        }
    }

    /// Adds those of `other`.
    pub(crate) fn append(&mut self, other: Problems) {
        let room = MAX_PROBLEMS - self.list.len();
        self.left_off += other.left_off + other.list.len().saturating_sub(room);
        self.list.extend(other.list.into_iter().take(room));
    }

    /// The problems that were kept.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// How many more there were.
    pub fn left_off(&self) -> usize {
        self.left_off
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are, with those left off.
    pub fn count(&self) -> usize {
        self.list.len() + self.left_off
    }

    /// In the order of the text, each once: a descriptor that stands in a machine twice has its faults once.
    pub(crate) fn sort(&mut self) {
        self.list.sort_by(|a, b| (a.at, &a.field).cmp(&(b.at, &b.field)));
        self.list.dedup();
    }

    /// The problems as a report of `stage`, or `Ok` where there is none. They are listed in the order of the text.
    pub(crate) fn into_result(mut self, file: &str, stage: Stage) -> Result<(), Report> {
        if self.is_empty() {
            return Ok(());
        }
        self.sort();
        Err(Report {
            file: file.to_owned(),
            stage,
            problems: self,
        })
    }
}

/// The stages of a check, in their order. A stage that finds problems lists all of them and ends the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The text is no protobuf text, or a known field has a malformed value.
    Text,
    /// What every descriptor must have.
    Structure,
    /// Names, channels, architectures.
    Names,
    /// Shapes, links, graphs and pinnings by themselves.
    Topology,
    /// What the instances make together: references, ids, connections.
    Population,
    /// What a control plane that knows only mesh graphs of version 1.0 takes; a separate verdict.
    Compatibility,
}

impl Stage {
    /// The stage in words.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Text => "text",
            Stage::Structure => "structure",
            Stage::Names => "names, channels and architectures",
            Stage::Topology => "topology",
            Stage::Population => "instances and connections",
            Stage::Compatibility => "compatibility with mesh graphs 1.0",
        }
    }
}

/// All problems of the first stage that found any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The file as the caller named it.
    pub file: String,
    /// The stage.
    pub stage: Stage,
    /// The problems.
    pub problems: Problems,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.problems.count();
        let noun = if count == 1 { "problem" } else { "problems" };
        write!(
            f,
            "the mesh graph descriptor {} has {count} {noun} ({}):",
            self.file,
            self.stage.name()
        )?;
        for problem in &self.problems.list {
            write!(f, "\n- {}:{problem}", self.file)?;
        }
        if self.problems.left_off > 0 {
            write!(f, "\n- and {} more", self.problems.left_off)?;
        }
        Ok(())
    }
}

impl std::error::Error for Report {}
