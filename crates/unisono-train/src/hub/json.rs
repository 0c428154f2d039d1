//! Typed access to the keys of a `config.json`, with every problem noted under its key.

use super::{HubError, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::io::Read;
use std::path::Path;
use unisono_data::DataError;
use unisono_data::files::open_regular;

/// The largest configuration that is read: a thousand times a usual one.
const MAX_BYTES: u64 = 8 << 20;

/// A JSON object under inspection. Problems are collected, so that all of them are told at once.
pub(crate) struct Keys {
    path: String,
    object: Map<String, Value>,
    problems: RefCell<Vec<String>>,
}

/// The text of a file of at most a few megabytes.
///
/// # Errors
/// Whatever the disk says, a file that is too large, and one that is no UTF-8.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let file = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| DataError::read(path, &error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(HubError::unusable(
            path,
            format!("it has more than {MAX_BYTES} bytes, which is no file of settings"),
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        HubError::unusable(path, format!("it is not UTF-8 text: byte {at} is wrong"))
    })
}

/// The JSON object in a file.
///
/// # Errors
/// As [`read_text`], and whatever is no JSON object.
pub(crate) fn read_object(path: &Path) -> Result<Map<String, Value>> {
    let text = read_text(path)?;
    object_of(&text).map_err(|problem| HubError::unusable(path, problem))
}

fn object_of(text: &str) -> std::result::Result<Map<String, Value>, String> {
    match serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(format!("it holds {}, and a JSON object {{…}} is needed", shown(&other))),
        Err(error) => Err(format!("it is not JSON: {}", unisono_data::json::plain(error))),
    }
}

impl Keys {
    /// The keys of `text`, the contents of the file `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Keys> {
        let object = object_of(text).map_err(|problem| HubError::unusable(path, problem))?;
        Ok(Keys {
            path: path.display().to_string(),
            object,
            problems: RefCell::default(),
        })
    }

    /// Notes a problem.
    pub fn problem(&self, problem: impl Into<String>) {
        self.problems.borrow_mut().push(problem.into());
    }

    /// The value of a key that is there and not null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// The value of a key that is there, null or not.
    pub fn stated(&self, key: &str) -> Option<&Value> {
        self.object.get(key)
    }

    /// A whole number of at least 1 and at most 2³².
    pub fn size(&self, key: &str, default: Option<usize>) -> usize {
        let Some(value) = self.get(key) else {
            return default.unwrap_or_else(|| {
                self.problem(format!("{key} is missing; a whole number is needed"));
                1
            });
        };
        match value.as_u64() {
            Some(size @ 1..=MAX_SIZE) => size as usize,
            _ => {
                self.wrong(key, value, "a whole number from 1 to 4294967296");
                1
            }
        }
    }

    /// The same, where it is there.
    pub fn size_if_given(&self, key: &str) -> Option<usize> {
        self.get(key)?;
        Some(self.size(key, None))
    }

    /// A number above zero that f32 can hold.
    pub fn positive(&self, key: &str, default: f32) -> f32 {
        match self.get(key) {
            None => default,
            Some(value) => self.positive_value(key, value).unwrap_or(default),
        }
    }

    /// The same from a value that was found elsewhere; a problem is noted under `key`.
    pub fn positive_value(&self, key: &str, value: &Value) -> Option<f32> {
        let number = value.as_f64().map(|number| number as f32);
        match number.filter(|number| number.is_finite() && *number > 0.0) {
            Some(number) => Some(number),
            None => {
                self.wrong(key, value, "a number above 0");
                None
            }
        }
    }

    /// A probability below 1.
    pub fn probability(&self, key: &str, default: f32) -> f32 {
        let Some(value) = self.get(key) else { return default };
        match value.as_f64().filter(|p| (0.0..1.0).contains(p)) {
            Some(p) => p as f32,
            None => {
                self.wrong(key, value, "a number from 0 to below 1");
                default
            }
        }
    }

    /// true or false.
    pub fn flag(&self, key: &str, default: bool) -> bool {
        let Some(value) = self.get(key) else { return default };
        value.as_bool().unwrap_or_else(|| {
            self.wrong(key, value, "true or false");
            default
        })
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        let value = self.get(key)?;
        let text = value.as_str();
        if text.is_none() {
            self.wrong(key, value, "a text");
        }
        text
    }

    /// Notes a value of the wrong kind.
    pub fn wrong(&self, key: &str, value: &Value, needed: &str) {
        self.problem(format!("{key} is {}; {needed} is needed", shown(value)));
    }

    /// `value` if there were no problems.
    ///
    /// # Errors
    /// [`HubError::Config`] with all of them.
    pub fn finish<T>(self, value: T) -> Result<T> {
        let problems = self.problems.into_inner();
        match problems.is_empty() {
            true => Ok(value),
            false => Err(HubError::Config {
                path: self.path,
                problems,
            }),
        }
    }
}

/// The largest size of anything: ids and positions are 32-bit numbers.
const MAX_SIZE: u64 = 1 << 32;

/// A value as it stands in the file, cut short.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
