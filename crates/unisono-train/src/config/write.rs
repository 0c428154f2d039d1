//! The resolved configuration as commented YAML, and comparisons of two.

use super::flat::flatten;
use super::keys::{self, SECTIONS};
use super::types::RunConfig;

/// The resolved configuration as commented YAML, which loads back as an equal one. A copy lies beside each run.
pub fn to_yaml(config: &RunConfig) -> String {
    let values = flatten(config);
    let mut out = String::from("# Unisono: a run's resolved configuration, every key with its value.\n");
    for (section, doc) in SECTIONS {
        let inside = || values.iter().filter(|(path, _)| keys::split(path).0 == *section);
        if inside().next().is_none() {
            continue;
        }
        let (outer, name) = keys::split(section);
        let indent = if outer.is_empty() { "" } else { "  " };
        if outer.is_empty() {
            out.push('\n');
        }
        comment(&mut out, indent, doc);
        out.push_str(&format!("{indent}{name}:\n"));
        for (path, value) in inside() {
            let inner = format!("{indent}  ");
            comment(&mut out, &inner, keys::known(path).doc);
            out.push_str(&format!("{inner}{}: {value}\n", keys::split(path).1));
        }
    }
    out
}

/// A comment, broken into lines of at most 100 characters.
fn comment(out: &mut String, indent: &str, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > 96 && !line.is_empty() {
            out.push_str(&format!("{indent}#{line}\n"));
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        out.push_str(&format!("{indent}#{line}\n"));
    }
}

/// Every key of a configuration by its full name, with its value as YAML.
pub fn keys_and_values(config: &RunConfig) -> Vec<(&'static str, String)> {
    let values = flatten(config);
    values
        .into_iter()
        .map(|(path, value)| (path, value.to_string()))
        .collect()
}

/// A key on which two configurations differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key by its full name.
    pub key: &'static str,
    /// Its value in the first configuration, as YAML; `-` where it has none.
    pub a: String,
    /// Its value in the second.
    pub b: String,
}

/// The keys on which two configurations differ, in the order of the table of keys.
pub fn differing_keys(a: &RunConfig, b: &RunConfig) -> Vec<Difference> {
    let (a, b) = (flatten(a), flatten(b));
    let value = |list: &[(&'static str, super::value::Value)], key: &str| {
        list.iter()
            .find(|(path, _)| *path == key)
            .map(|(_, value)| value.clone())
    };
    let shown = |value: Option<super::value::Value>| value.map_or("-".to_string(), |value| value.to_string());
    keys::all()
        .map(|row| (row.path, value(&a, row.path), value(&b, row.path)))
        .filter(|(_, a, b)| a != b)
        .map(|(key, a, b)| Difference {
            key,
            a: shown(a),
            b: shown(b),
        })
        .collect()
}

/// The square-root rule: the learning rate that suits another effective batch, `lr × √(to / from)`.
pub fn sqrt_rule_lr(lr: f64, from_batch: usize, to_batch: usize) -> f64 {
    if from_batch == 0 {
        lr
    } else {
        lr * (to_batch as f64 / from_batch as f64).sqrt()
    }
}

/// A number with two significant digits, as a learning rate is shown: `1.4e-4`.
pub fn two_digits(x: f64) -> String {
    let text = format!("{x:.1e}");
    text.strip_suffix("e0").map(str::to_string).unwrap_or(text)
}
