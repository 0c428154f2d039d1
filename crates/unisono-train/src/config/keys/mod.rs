//! The table of keys: one row a YAML key, with its type, default, class and meaning.
//!
//! Everything that has to know the keys works from this table: the reader, the hints at the nearest key, the JSON
//! schema and `docs/configuration.md`. A new key is one row here, one field in `types` and one line each in `build`
//! and `flat`.

mod lora;
mod model;
mod optimizer;
mod sections;
mod training;

pub(super) use model::{FOREIGN, OF_LLAMA};

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Sections and name, with dots: `training_config.batch_size`.
    pub path: &'static str,
    /// What may stand there.
    pub kind: Kind,
    /// What holds where it is not given, as YAML; empty where it depends on other keys or there is none.
    pub default: &'static str,
    /// What becomes of it.
    pub class: Class,
    /// What it means, in a sentence or two.
    pub doc: &'static str,
}

/// What becomes of a key.
#[derive(Debug)]
pub(super) enum Class {
    /// It is read.
    Read,
    /// Another name of a key that is read.
    Alias(&'static str),
    /// Known elsewhere and without meaning here: one note with this reason.
    NoMeaning(&'static str),
    /// Known and not built yet: accepted at one of these values, otherwise refused.
    NotBuilt {
        /// Values that switch it off.
        off: &'static [&'static str],
        /// What is missing: "… is not built yet".
        missing: &'static str,
    },
}

/// What may stand at a key.
#[derive(Debug)]
pub(super) enum Kind {
    /// true or false.
    Flag,
    /// true or false, also written enabled or disabled.
    Enabled,
    /// A whole number from `min` to `max`.
    Int { min: i128, max: i128 },
    /// A number.
    Real(Range),
    /// Text.
    Text,
    /// A path; `${VAR}` is expanded.
    Path,
    /// One of these words.
    Choice(&'static [Choice]),
    /// A list of whole numbers of at least this much.
    Ints { min: i128 },
    /// A list of texts; one text alone is a list of one.
    Texts,
    /// Bytes: `12GB`, `512MiB` or a whole number.
    Memory,
    /// The phases of a sequential schedule; their keys are rows `….phases[].key`.
    Phases,
    /// Anything; not looked into.
    Any,
}

/// Which numbers a `Kind::Real` takes; all are finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// Greater than 0.
    Positive,
    /// 0 or greater.
    NonNegative,
    /// From 0 to 1, both included.
    Unit,
    /// From 0 up to but not including 1.
    BelowOne,
    /// Greater than 0, up to and including 1.
    AboveZero,
}

impl Range {
    /// Whether a number lies in the range.
    pub fn holds(self, x: f64) -> bool {
        x.is_finite()
            && match self {
                Self::Positive => x > 0.0,
                Self::NonNegative => x >= 0.0,
                Self::Unit => (0.0..=1.0).contains(&x),
                Self::BelowOne => (0.0..1.0).contains(&x),
                Self::AboveZero => x > 0.0 && x <= 1.0,
            }
    }

    /// The range in words: "a number …".
    pub fn words(self) -> &'static str {
        match self {
            Self::Positive => "a number greater than 0",
            Self::NonNegative => "a number of at least 0",
            Self::Unit => "a number from 0 to 1",
            Self::BelowOne => "a number from 0 to below 1",
            Self::AboveZero => "a number greater than 0 and at most 1",
        }
    }
}

/// One word of a `Kind::Choice`.
#[derive(Debug)]
pub(super) struct Choice {
    /// The word.
    pub word: &'static str,
    /// What becomes of it.
    pub becomes: Becomes,
}

/// What becomes of a word.
#[derive(Debug)]
pub(super) enum Becomes {
    /// It is taken as it stands.
    Built,
    /// It means another word, for this reason, which is noted.
    SameAs(&'static str, &'static str),
    /// It means another word; nothing needs saying.
    Spelling(&'static str),
    /// It is refused: "… is not built yet".
    NotBuilt,
}

const fn built(word: &'static str) -> Choice {
    Choice {
        word,
        becomes: Becomes::Built,
    }
}

const fn spelling(word: &'static str, of: &'static str) -> Choice {
    Choice {
        word,
        becomes: Becomes::Spelling(of),
    }
}

const fn same_as(word: &'static str, other: &'static str, why: &'static str) -> Choice {
    Choice {
        word,
        becomes: Becomes::SameAs(other, why),
    }
}

const fn later(word: &'static str) -> Choice {
    Choice {
        word,
        becomes: Becomes::NotBuilt,
    }
}

/// A row for a key that is read.
const fn read(path: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key {
        path,
        kind,
        default,
        class: Class::Read,
        doc,
    }
}

/// A row for another name of a key.
const fn alias(path: &'static str, of: &'static str, doc: &'static str) -> Key {
    Key {
        path,
        kind: Kind::Any,
        default: "",
        class: Class::Alias(of),
        doc,
    }
}

/// A row for a key that has no meaning here.
const fn no_meaning(path: &'static str, why: &'static str) -> Key {
    Key {
        path,
        kind: Kind::Any,
        default: "",
        class: Class::NoMeaning(why),
        doc: "",
    }
}

/// A row for a key that is not built yet.
const fn not_built(path: &'static str, off: &'static [&'static str], missing: &'static str) -> Key {
    Key {
        path,
        kind: Kind::Any,
        default: "",
        class: Class::NotBuilt { off, missing },
        doc: "",
    }
}

/// A count of steps: more than any run has, few enough that sums of them stay in 64 bits.
const fn int(min: i128) -> Kind {
    Kind::Int { min, max: 1 << 40 }
}

/// Any count that is used as a size: enough for every machine, small enough that products stay in 64 bits.
const fn size(min: i128) -> Kind {
    Kind::Int { min, max: 1 << 31 }
}

/// What a flag looks like when it is off.
const OFF: &[&str] = &["false"];

/// Sections that stand elsewhere in some files, and the section that they mean.
pub(super) const MOVED_SECTIONS: &[(&str, &str)] = &[
    ("training_config.transformer_config", "transformer_config"),
    ("training_config.scheduler_config", "scheduler_config"),
    ("optimizer", "training_config.optimizer"),
    ("optimizer_config", "training_config.optimizer"),
    ("training_config.optimizer_config", "training_config.optimizer"),
];

/// Sections, in the order in which they are written, each with its heading.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("training_config", "Batches, steps, data, checkpoints."),
    ("training_config.optimizer", "The update rule."),
    (
        "scheduler_config",
        "Numbers of the learning-rate schedule that `training_config.scheduler_type` names.",
    ),
    ("scheduler_config.phases[]", "One phase of a sequential schedule."),
    (
        "transformer_config",
        "The model; usually in a file of its own, named by `training_config.model_config`.",
    ),
    (
        "transformer_config.rope_scaling",
        "llama: how rotary positions are stretched for sequences longer than those of the first training.",
    ),
    (
        "lora_config",
        "Low-rank adapters: where this section is, the model's own weights stay as they are.",
    ),
    ("device_config", "The mesh of devices and what it may use."),
    ("eval_config", "How samples are drawn."),
    (
        "multihost_config",
        "Training over several processes, in tt-train's way; most runs need none of it (docs/launcher.md).",
    ),
];

/// All rows.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    training::KEYS
        .iter()
        .chain(optimizer::KEYS)
        .chain(model::KEYS)
        .chain(lora::KEYS)
        .chain(sections::KEYS)
}

/// The row of a path.
pub(super) fn find(path: &str) -> Option<&'static Key> {
    all().find(|key| key.path == path)
}

/// The row of a path that the program itself names.
pub(super) fn known(path: &str) -> &'static Key {
    find(path).unwrap_or_else(|| panic!("bug in unisono: the table of keys has no {path}"))
}

/// Whether keys lie below this path.
pub(super) fn is_section(path: &str) -> bool {
    all().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The section and the name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}
