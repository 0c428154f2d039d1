//! The tree of fields to typed values: one value at a time. `messages.rs` knows which fields there are.

use super::lex::shortened;
use super::report::{At, Position, Problems};
use super::text::{Field, Item, Value};
use crate::near::hint;

/// What a text is read into besides the values: problems, warnings, and the path of the field at hand.
#[derive(Default)]
pub(crate) struct Reader {
    pub problems: Problems,
    pub warnings: Problems,
    path: Vec<(&'static str, Option<usize>)>,
}

/// The words of an enum, each with its number and meaning. `None` is the placeholder that stands for "not given".
pub(crate) type Words<T> = [(&'static str, u64, Option<T>)];

impl Reader {
    /// The path of `field` inside the block at hand.
    fn path(&self, field: &str) -> String {
        let mut path = String::new();
        for (name, index) in &self.path {
            path.push_str(name);
            if let Some(index) = index {
                path.push_str(&format!("[{index}]"));
            }
            path.push('.');
        }
        path.push_str(&shortened(field));
        path
    }

    pub(crate) fn problem(&mut self, at: Position, field: &str, text: impl FnOnce() -> String) {
        let path = self.path(field);
        self.problems.add(at, path, text);
    }

    pub(crate) fn warn(&mut self, at: Position, field: &str, text: impl FnOnce() -> String) {
        // A path is only made where it is kept: a file may be nothing but unknown fields.
        let path = if self.warnings.left_off() == 0 {
            self.path(field)
        } else {
            String::new()
        };
        self.warnings.add(at, path, text);
    }

    /// A field that the schema does not have: it is skipped, with the nearest that it has.
    pub(crate) fn unknown(&mut self, field: &Field<'_>, known: &[&str], stale: &[(&str, &str)]) {
        let name = if field.extension {
            format!("[{}]", shortened(&field.name))
        } else {
            shortened(&field.name)
        };
        // Extensions of other makers are theirs, and no slip.
        let ours = !field.extension || field.name.starts_with("unisono.");
        self.warn(field.at, &name, || {
            let advice = match stale.iter().find(|(old, _)| *old == field.name) {
                Some((_, advice)) => format!("; {advice}"),
                None if ours => hint(&name, known.iter().copied()),
                None => String::new(),
            };
            format!("unknown field, skipped{advice}")
        });
    }

    /// The one item of a field that is not repeated.
    fn single<'t, 'a>(&mut self, field: &'t Field<'a>, given: bool) -> Option<&'t Item<'a>> {
        if given {
            self.problem(field.at, &field.name, || {
                "given twice; it may stand once in its block".to_owned()
            });
            return None;
        }
        if field.list {
            self.problem(field.at, &field.name, || "given as a list; it has one value".to_owned());
            return None;
        }
        field.items.first()
    }

    /// Reads a field that is not repeated into its place.
    pub(crate) fn set<T>(
        &mut self,
        slot: &mut Option<T>,
        field: &Field<'_>,
        read: impl FnOnce(&mut Self, &Item<'_>, &str) -> Option<T>,
    ) {
        if let Some(item) = self.single(field, slot.is_some())
            && let Some(value) = read(self, item, &field.name)
        {
            *slot = Some(value);
        }
    }

    /// Reads each item of a repeated field.
    pub(crate) fn each<T>(
        &mut self,
        list: &mut Vec<T>,
        field: &Field<'_>,
        mut read: impl FnMut(&mut Self, &Item<'_>, &str, usize) -> Option<T>,
    ) {
        for item in &field.items {
            let index = list.len();
            if let Some(value) = read(self, item, &field.name, index) {
                list.push(value);
            }
        }
    }

    /// The fields of a block, read with the path one step deeper.
    pub(crate) fn block<T>(
        &mut self,
        item: &Item<'_>,
        name: &'static str,
        index: Option<usize>,
        read: impl FnOnce(&mut Self, &[Field<'_>]) -> T,
    ) -> Option<T> {
        let Value::Block(fields) = &item.value else {
            self.wrong(item, name, "a block in { }");
            return None;
        };
        self.path.push((name, index));
        let value = read(self, fields);
        self.path.pop();
        Some(value)
    }

    /// Tells that an item is no `expected`.
    fn wrong(&mut self, item: &Item<'_>, field: &str, expected: &str) {
        self.wrong_word(item, field, expected, "");
    }

    /// The same with a hint at its end.
    fn wrong_word(&mut self, item: &Item<'_>, field: &str, expected: &str, hint: &str) {
        let found = match &item.value {
            Value::Word(word) => format!("the word {:?}", shortened(word)),
            Value::Whole(minus, value) => format!("{}{value}", if *minus { "-" } else { "" }),
            Value::Real(value) => format!("the number {value}"),
            Value::Text(text) => format!("the string {:?}", shortened(&String::from_utf8_lossy(text))),
            Value::Block(_) => "a block".to_owned(),
        };
        self.problem(item.at, field, || format!("expected {expected}, found {found}{hint}"));
    }

    pub(crate) fn text(&mut self, item: &Item<'_>, field: &str) -> Option<At<String>> {
        let Value::Text(bytes) = &item.value else {
            self.wrong(item, field, "a string in quotes");
            return None;
        };
        match String::from_utf8(bytes.clone()) {
            Ok(value) => Some(At { value, at: item.at }),
            Err(_) => {
                self.problem(item.at, field, || "the string is not UTF-8".to_owned());
                None
            }
        }
    }

    pub(crate) fn int32(&mut self, item: &Item<'_>, field: &str) -> Option<At<i32>> {
        let value = match item.value {
            Value::Whole(minus, value) => {
                let value = i128::from(value);
                i32::try_from(if minus { -value } else { value }).ok()
            }
            _ => None,
        };
        if value.is_none() {
            self.wrong(item, field, "a whole number from -2147483648 to 2147483647");
        }
        value.map(|value| At { value, at: item.at })
    }

    pub(crate) fn uint32(&mut self, item: &Item<'_>, field: &str) -> Option<At<u32>> {
        let value = match item.value {
            Value::Whole(minus, value) if !minus || value == 0 => u32::try_from(value).ok(),
            _ => None,
        };
        if value.is_none() {
            self.wrong(item, field, "a whole number from 0 to 4294967295");
        }
        value.map(|value| At { value, at: item.at })
    }

    /// A finite number above 0.
    pub(crate) fn positive(&mut self, item: &Item<'_>, field: &str) -> Option<f64> {
        let value = match item.value {
            Value::Whole(false, value) => value as f64,
            Value::Real(value) => value,
            _ => f64::NAN,
        };
        if value.is_finite() && value > 0.0 {
            return Some(value);
        }
        self.wrong(item, field, "a number above 0");
        None
    }

    pub(crate) fn boolean(&mut self, item: &Item<'_>, field: &str) -> Option<At<bool>> {
        let value = match item.value {
            Value::Word("true" | "True" | "t") | Value::Whole(false, 1) => true,
            Value::Word("false" | "False" | "f") | Value::Whole(_, 0) => false,
            _ => {
                self.wrong(item, field, "true or false");
                return None;
            }
        };
        Some(At { value, at: item.at })
    }

    /// An enum by its word or number. The outer `None` is a problem that has been told of, the inner one the placeholder.
    pub(crate) fn word<T: Copy>(&mut self, item: &Item<'_>, field: &str, words: &Words<T>) -> Option<Option<T>> {
        let found = match item.value {
            Value::Word(word) => words.iter().find(|(name, ..)| *name == word),
            Value::Whole(false, number) => words.iter().find(|(_, value, _)| *value == number),
            _ => None,
        };
        if let Some((_, _, meaning)) = found {
            return Some(*meaning);
        }
        let real: Vec<&str> = words
            .iter()
            .filter(|word| word.2.is_some())
            .map(|word| word.0)
            .collect();
        let near = match item.value {
            Value::Word(word) => hint(word, real.iter().copied()),
            _ => String::new(),
        };
        let expected = match real.as_slice() {
            [one] => (*one).to_owned(),
            _ => format!("one of {}", real.join(", ")),
        };
        self.wrong_word(item, field, &expected, &near);
        None
    }
}
