//! The flat table of what was given, with typed access and the defaults of the table of keys.

use super::error::{Findings, Place};
use super::keys;
use super::value::{self, Value};
use super::yaml::{self, Origin};
use std::collections::{BTreeMap, BTreeSet};

/// Every key that was given, with its one value.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub map: BTreeMap<&'static str, (Value, Place)>,
    /// Keys whose value could not be read: checks that need them are left out.
    pub broken: BTreeSet<&'static str>,
    /// Keys that a misspelt one may have meant: nobody knows their value.
    pub meant: BTreeSet<&'static str>,
    /// Keys without meaning here that were met.
    pub ignored: BTreeMap<&'static str, Place>,
}

impl Values {
    /// Where a key was given, if it was.
    pub fn place(&self, path: &'static str) -> Option<Place> {
        self.map.get(path).map(|(_, place)| place.clone())
    }

    /// Whether a key was given, rightly or wrongly.
    pub fn given(&self, path: &'static str) -> bool {
        self.map.contains_key(path) || self.broken.contains(path)
    }

    /// Where a key without meaning here was met.
    pub fn ignored(&self, path: &str) -> Option<Place> {
        self.ignored.get(path).cloned()
    }

    /// Whether all of these keys could be read: otherwise a check of them would only confuse.
    pub fn sound(&self, paths: &[&str]) -> bool {
        !paths.iter().any(|path| self.broken.contains(path))
    }

    /// All places, for later sentences about the same keys.
    pub fn places(&self) -> BTreeMap<String, Place> {
        self.map
            .iter()
            .map(|(path, (_, place))| ((*path).to_string(), place.clone()))
            .collect()
    }

    /// A key's value, or its default; `None` where it has neither.
    pub fn value(&self, path: &'static str) -> Option<Value> {
        match self.map.get(path) {
            Some((value, _)) => Some(value.clone()),
            None => default_of(path),
        }
    }

    /// A flag.
    pub fn flag(&self, path: &'static str) -> bool {
        matches!(self.value(path), Some(Value::Flag(true)))
    }

    /// A whole number, if there is one.
    pub fn maybe_int<N: TryFrom<i128>>(&self, path: &'static str) -> Option<N> {
        match self.value(path) {
            Some(Value::Int(int)) => N::try_from(int).ok(),
            _ => None,
        }
    }

    /// A whole number that has a default.
    pub fn int<N: TryFrom<i128>>(&self, path: &'static str) -> N {
        self.maybe_int(path)
            .unwrap_or_else(|| panic!("bug in unisono: {path} has no whole number as its default"))
    }

    /// A number, if there is one.
    pub fn maybe_real(&self, path: &'static str) -> Option<f64> {
        match self.value(path) {
            Some(Value::Real(real)) => Some(real),
            _ => None,
        }
    }

    /// A number that has a default.
    pub fn real(&self, path: &'static str) -> f64 {
        self.maybe_real(path)
            .unwrap_or_else(|| panic!("bug in unisono: {path} has no number as its default"))
    }

    /// A text, if there is one.
    pub fn text(&self, path: &'static str) -> Option<String> {
        match self.value(path) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A text that has a default.
    pub fn word(&self, path: &'static str) -> String {
        self.text(path)
            .unwrap_or_else(|| panic!("bug in unisono: {path} has no word as its default"))
    }

    /// A list that has a default.
    pub fn sizes(&self, path: &'static str) -> Vec<usize> {
        match self.value(path) {
            Some(Value::Ints(ints)) => ints.into_iter().filter_map(|int| usize::try_from(int).ok()).collect(),
            _ => panic!("bug in unisono: {path} has no list as its default"),
        }
    }

    /// A list of texts that has a default.
    pub fn texts(&self, path: &'static str) -> Vec<String> {
        match self.value(path) {
            Some(Value::Texts(texts)) => texts,
            _ => panic!("bug in unisono: {path} has no list of texts as its default"),
        }
    }
}

/// A key's default, if it has one.
pub(super) fn default_of(path: &'static str) -> Option<Value> {
    let row = keys::known(path);
    if row.default.is_empty() {
        return None;
    }
    let mut findings = Findings::default();
    let node = yaml::parse(row.default, &Origin::Table, &mut findings);
    let value = node.and_then(|node| value::read(row, path, &node, &mut findings));
    Some(value.unwrap_or_else(|| panic!("bug in unisono: the default of {path} cannot be read: {findings:?}")))
}
