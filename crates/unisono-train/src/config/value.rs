//! Values of keys: read from YAML by a key's kind, and written back.

use super::error::{Findings, Place, listed};
use super::keys::{Becomes, Choice, Key, Kind};
use super::yaml::{Content, Node, counted, shortened};
use std::collections::BTreeMap;
use unisono_mesh::nearest;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Flag(bool),
    Int(i128),
    Real(f64),
    Text(String),
    Ints(Vec<i128>),
    Texts(Vec<String>),
    /// Phases of a schedule: each a map from the last word of a key's path.
    Phases(Vec<BTreeMap<&'static str, Value>>),
}

/// A value as the YAML that reads back as it.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Int(int) => write!(f, "{int}"),
            // {:?} is the shortest text that reads back as the same number.
            Self::Real(real) => write!(f, "{real:?}"),
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Ints(ints) => write!(f, "{ints:?}"),
            Self::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                write!(f, "[{}]", texts.join(", "))
            }
            Self::Phases(phases) => {
                let phases: Vec<String> = phases
                    .iter()
                    .map(|phase| {
                        let pairs: Vec<String> = phase.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                        format!("{{{}}}", pairs.join(", "))
                    })
                    .collect();
                write!(f, "[{}]", phases.join(", "))
            }
        }
    }
}

/// Text as YAML: bare where it cannot be mistaken, otherwise in double quotes.
fn quoted(text: &str) -> String {
    let bare = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
        );
    if bare {
        return text.to_string();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Reads the value of a key that was written as `name`; a failure is reported and gives `None`.
pub(super) fn read(key: &Key, name: &str, node: &Node, findings: &mut Findings) -> Option<Value> {
    match &key.kind {
        Kind::Phases => return read_phases(key, name, node, findings),
        Kind::Ints { min } => return read_ints(key, name, *min, node, findings),
        Kind::Texts => return read_texts(name, node, findings),
        _ => {}
    }
    let Content::Scalar { text, plain } = &node.content else {
        let message = format!("{} needs {}, found {}", name, wanted(&key.kind), node.shown());
        findings.problem(Some(node.place.clone()), message);
        return None;
    };
    match scalar(&key.kind, text, *plain) {
        Ok(value) => Some(value),
        Err(Refusal::Kind) => {
            let message = format!("{} needs {}, found {}", name, wanted(&key.kind), node.shown());
            findings.problem(Some(node.place.clone()), message);
            None
        }
        Err(Refusal::Why(why)) => {
            findings.problem(Some(node.place.clone()), format!("{name}: {why}"));
            None
        }
        Err(Refusal::Choice(choices)) => choose(key, name, choices, text.trim(), &node.place, findings),
    }
}

/// Why a scalar is not a value.
enum Refusal {
    /// It is not of the kind.
    Kind,
    /// For this reason.
    Why(String),
    /// It is a word to be looked up.
    Choice(&'static [Choice]),
}

fn scalar(kind: &Kind, written: &str, plain: bool) -> Result<Value, Refusal> {
    let text = written.trim();
    match kind {
        Kind::Flag => flag(text).map(Value::Flag).ok_or(Refusal::Kind),
        Kind::Enabled => match text.to_ascii_lowercase().as_str() {
            "enabled" => Ok(Value::Flag(true)),
            "disabled" => Ok(Value::Flag(false)),
            _ => flag(text).map(Value::Flag).ok_or(Refusal::Kind),
        },
        Kind::Int { min, max } => {
            if plain && leading_zero(text) {
                let bare = text.trim_start_matches(['0', '+', '-', '_']);
                return Err(Refusal::Why(format!(
                    "{text} means another number to YAML 1.1 (octal) than to YAML 1.2; write {}",
                    if bare.is_empty() { "0" } else { bare }
                )));
            }
            let int = int(text).ok_or(Refusal::Kind)?;
            if int > *max {
                return Err(Refusal::Why(format!(
                    "{} is too large; the most is {max}",
                    shortened(text)
                )));
            }
            if int >= *min {
                Ok(Value::Int(int))
            } else {
                Err(Refusal::Kind)
            }
        }
        Kind::Real(range) => {
            let real = real(text).ok_or(Refusal::Kind)?;
            let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
            // Numbers are f32 where they are used.
            if real as f32 == 0.0 && mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
                return Err(Refusal::Why(format!(
                    "{} is too small to be told from 0; write 0 if that is meant",
                    shortened(text)
                )));
            }
            // -0.0 would be a second zero that compares equal and prints otherwise.
            if range.holds(real) {
                Ok(Value::Real(real + 0.0))
            } else {
                Err(Refusal::Kind)
            }
        }
        Kind::Text | Kind::Path => {
            if written.contains('\0') {
                return Err(Refusal::Why("the text holds a NUL character".to_string()));
            }
            Ok(Value::Text(written.to_string()))
        }
        Kind::Choice(choices) => Err(Refusal::Choice(choices)),
        Kind::Memory => memory(text).map(Value::Int).ok_or(Refusal::Kind),
        Kind::Ints { .. } | Kind::Texts | Kind::Phases | Kind::Any => Ok(Value::Text(text.to_string())),
    }
}

/// What a kind wants, in words.
pub(super) fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::Flag => "true or false".to_string(),
        Kind::Enabled => "enabled or disabled (or true or false)".to_string(),
        Kind::Int { min, .. } => format!("a whole number of at least {min}"),
        Kind::Real(range) => range.words().to_string(),
        Kind::Text => "text".to_string(),
        Kind::Path => "a path".to_string(),
        Kind::Choice(choices) => format!("one of {}", listed(&words(choices), "or")),
        Kind::Ints { min } => format!("a list of whole numbers of at least {min}, as [1, 2]"),
        Kind::Texts => "a list of texts, as [q_proj, v_proj]".to_string(),
        Kind::Memory => "an amount of memory, as 12GB, 512MiB or a whole number of bytes".to_string(),
        Kind::Phases => "a list of phases, as [{type: linear, steps: 100}, {type: cosine}]".to_string(),
        Kind::Any => "a value".to_string(),
    }
}

/// The words of a choice that can be taken.
pub(super) fn words(choices: &[Choice]) -> Vec<&'static str> {
    choices
        .iter()
        .filter(|c| matches!(c.becomes, Becomes::Built | Becomes::SameAs(..)))
        .map(|c| c.word)
        .collect()
}

fn choose(
    key: &Key,
    name: &str,
    choices: &[Choice],
    text: &str,
    place: &Place,
    findings: &mut Findings,
) -> Option<Value> {
    let place = Some(place.clone());
    let Some(choice) = choices.iter().find(|c| c.word == text) else {
        let near = nearest(text, choices.iter().map(|c| c.word)).map(|w| format!("; did you mean {w}?"));
        let message = format!(
            "{} needs {}, found \"{}\"{}",
            name,
            wanted(&key.kind),
            shortened(text),
            near.unwrap_or_default()
        );
        findings.problem(place, message);
        return None;
    };
    match &choice.becomes {
        Becomes::Built => Some(Value::Text(text.to_string())),
        Becomes::Spelling(word) => Some(Value::Text(word.to_string())),
        Becomes::SameAs(word, why) => {
            findings.note(place, format!("{name}: {text} is taken as {word}: {why}"));
            Some(Value::Text(word.to_string()))
        }
        Becomes::NotBuilt => {
            let message = format!(
                "{name}: {text} is not built yet; choose {}",
                listed(&words(choices), "or")
            );
            findings.problem(place, message);
            None
        }
    }
}

/// The largest number in a list of them.
const MOST_IN_LIST: i128 = 1 << 31;

fn read_ints(key: &Key, name: &str, min: i128, node: &Node, findings: &mut Findings) -> Option<Value> {
    let Content::List(items) = &node.content else {
        let message = format!("{} needs {}, found {}", name, wanted(&key.kind), node.shown());
        findings.problem(Some(node.place.clone()), message);
        return None;
    };
    let mut ints = Vec::new();
    let mut good = !items.is_empty();
    if items.is_empty() {
        findings.problem(
            Some(node.place.clone()),
            format!("{} needs at least one number, found []", name),
        );
    }
    for item in items {
        let int = match &item.content {
            Content::Scalar { text, .. } => int(text.trim()).filter(|i| *i >= min),
            _ => None,
        };
        match int {
            Some(int) if int > MOST_IN_LIST => {
                let shown = item.shown();
                let message = format!(
                    "{name}: {} is too large; the most is {MOST_IN_LIST}",
                    shown.trim_matches('"')
                );
                findings.problem(Some(item.place.clone()), message);
                good = false;
            }
            Some(int) => ints.push(int),
            None => {
                let message = format!("{} needs {}, found {} in it", name, wanted(&key.kind), item.shown());
                findings.problem(Some(item.place.clone()), message);
                good = false;
            }
        }
    }
    good.then_some(Value::Ints(ints))
}

fn read_texts(name: &str, node: &Node, findings: &mut Findings) -> Option<Value> {
    let items = match &node.content {
        Content::List(items) => items.iter().collect(),
        _ => vec![node],
    };
    let mut texts = Vec::new();
    for item in items {
        match &item.content {
            Content::Scalar { text, .. } if !text.is_empty() && !text.contains('\0') => texts.push(text.clone()),
            _ => {
                let message = format!("{name} needs {}, found {} in it", wanted(&Kind::Texts), item.shown());
                findings.problem(Some(item.place.clone()), message);
                return None;
            }
        }
    }
    Some(Value::Texts(texts))
}

fn read_phases(key: &Key, name: &str, node: &Node, findings: &mut Findings) -> Option<Value> {
    let Content::List(items) = &node.content else {
        let message = format!("{} needs {}, found {}", name, wanted(&key.kind), node.shown());
        findings.problem(Some(node.place.clone()), message);
        return None;
    };
    if items.len() > 1000 {
        let message = format!("{} has {}; 1000 are enough", name, counted(items.len(), "phase"));
        findings.problem(Some(node.place.clone()), message);
        return None;
    }
    let before = findings.problems.len();
    let mut phases = Vec::new();
    for item in items {
        let mut phase = BTreeMap::new();
        let Content::Map(entries) = &item.content else {
            let message = format!(
                "{}: each phase is a map, as {{type: linear, steps: 100}}, found {}",
                name,
                item.shown()
            );
            findings.problem(Some(item.place.clone()), message);
            continue;
        };
        for entry in entries {
            let prefix = format!("{}[].", key.path);
            let rows = || super::keys::all().filter(|row| row.path.starts_with(&prefix));
            match rows().find(|row| row.path[prefix.len()..] == entry.key) {
                Some(row) if !entry.value.is_null() => {
                    if let Some(value) = read(row, row.path, &entry.value, findings) {
                        phase.insert(&row.path[prefix.len()..], value);
                    }
                }
                Some(_) => {}
                None => {
                    let names: Vec<&str> = rows().map(|row| &row.path[prefix.len()..]).collect();
                    let message = format!(
                        "{}: a phase has no key {}; it has {}",
                        name,
                        shortened(&entry.key),
                        listed(&names, "and")
                    );
                    findings.problem(Some(entry.key_place.clone()), message);
                }
            }
        }
        phases.push(phase);
    }
    (findings.problems.len() == before).then_some(Value::Phases(phases))
}

/// YAML 1.1 and 1.2 booleans, in any case.
fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// `010`: eight or ten?
fn leading_zero(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Removes the underscores between digits (`30_000`); `None` where one stands elsewhere.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |i: Option<usize>| i.and_then(|i| bytes.get(i)).is_some_and(u8::is_ascii_digit);
    let fine = |(i, b): (usize, &u8)| *b != b'_' || (digit(i.checked_sub(1)) && digit(Some(i + 1)));
    bytes.iter().enumerate().all(fine).then(|| text.replace('_', ""))
}

/// `3`, `1e-4`, `1E-4`, `1.e-4`, `.0001`, `30_000`.
fn real(text: &str) -> Option<f64> {
    let text = without_underscores(text)?;
    let form = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    (form && text.bytes().any(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `3`, `30_000`, `1e3`, `5000.0`: a whole number in any form. One beyond an `i128` is its end, which is too large for everything.
fn int(text: &str) -> Option<i128> {
    let plain = without_underscores(text)?;
    real(text)?;
    let (sign, magnitude) = match plain.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (mantissa, exponent) = magnitude.split_once(['e', 'E']).unwrap_or((magnitude, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // The number is `kept` · 10^zeros.
    let kept = digits.trim_end_matches('0');
    let dropped = digits.len() - kept.len();
    let zeros = exponent
        .parse::<i64>()
        .ok()?
        .checked_add(dropped as i64 - fraction.len() as i64)?;
    let zeros = usize::try_from(zeros).ok()?;
    // 38 digits fit.
    match kept.len().saturating_add(zeros) {
        0..=38 => Some(sign * format!("{kept}{}", "0".repeat(zeros)).parse::<i128>().ok()?),
        _ => Some(sign * i128::MAX),
    }
}

/// `12GB`, `1.5 GiB`, `4096`: bytes.
fn memory(text: &str) -> Option<i128> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let unit: f64 = match text[split..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = (real(text[..split].trim())? * unit).round();
    (1.0..=9_007_199_254_740_992.0)
        .contains(&bytes)
        .then_some(bytes as i128)
}
