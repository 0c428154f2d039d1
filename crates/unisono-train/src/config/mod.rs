//! The configuration of a run: from YAML (tt-train's keys and a few of unisono's own) to plain typed structs.
//!
//! [`load`] reads a file, the files that it names and the overrides of a command line. It answers with a
//! [`RunConfig`], or with everything that is wrong at once, each in a sentence with its file, line and column. One
//! table of keys (`keys`) drives the reader, the hints, [`schema`] and [`reference_markdown`].
//!
//! The way of a value: `yaml` (a tree with places) → `collect` (keys looked up, `value` read, files merged) → `build`
//! (typed, defaults that depend on others) → `check` (numbers that must fit each other). And back: `flat` → `write`.
//!
//! Keys fall in three classes: never heard of (an error with the nearest key), known elsewhere and without meaning
//! here (one note), known and not built yet (accepted at its off value, otherwise refused).

mod build;
mod check;
mod collect;
mod device;
mod error;
mod files;
mod flat;
mod keys;
mod load;
mod lora;
mod mesh_flag;
mod model;
mod presets;
mod reference;
mod schedule;
mod types;
mod value;
mod values;
mod write;
pub mod yaml;

pub use collect::Source;
pub use device::{DeviceConfig, MultihostConfig};
pub use error::{ConfigErrors, Findings, Note, Place, Problem, listed};
pub use files::{Environment, read_text};
pub use load::{DESCRIPTOR, Loaded, load, load_saved, load_text};
pub use mesh_flag::mesh_overrides;
pub use presets::{PRESETS, preset};
pub use reference::{reference_markdown, schema};
pub use types::*;
pub use write::{Difference, differing_keys, keys_and_values, sqrt_rule_lr, to_yaml, two_digits};
