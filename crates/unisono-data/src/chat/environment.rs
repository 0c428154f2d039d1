//! Jinja as `transformers` sets it up for chat templates: blocks trimmed, no escaping, Python's methods of strings and lists, and the
//! functions `raise_exception`, `strftime_now` and `tojson`.
//!
//! A template comes with a model from elsewhere, so it is held short: steps, what it writes and what it stores by blocks are counted, and
//! filters refuse to make much of little. (Not bounded is a variable that a template joins to itself again and again with `~`; the engine has no
//! place to count that.)

use minijinja::value::{Kwargs, Object, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Steps after which a template is stopped. A message takes some hundreds in the longest templates in use.
pub(super) const MOST_STEPS: u64 = 2_000_000;
/// Longest text that a template may write, in bytes.
pub const MOST_OUTPUT: usize = 256 << 20;
/// Most elements that a filter takes at once.
const MOST_ELEMENTS: usize = 1_000_000;

/// A time in seconds since 1970 (UTC).
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(pub(super) u64);

impl Clock {
    /// 26 July 2024.
    pub(super) const FIXED: Clock = Clock(1_721_952_000);
}

/// An environment without templates.
pub(super) fn new(clock: Clock) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(MOST_STEPS));
    environment.set_unknown_method_callback(method);
    environment.set_formatter(format);
    environment.add_filter("tojson", tojson);
    environment.add_filter("join", |list: Value, by: Option<String>| {
        join(&list, &by.unwrap_or_default())
    });
    environment.add_filter("list", list);
    environment.add_filter("replace", |text: String, from: String, to: String| {
        replace(&text, &from, &to, usize::MAX)
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(refused(message))
    });
    set_clock(&mut environment, clock);
    environment
}

/// Sets what `strftime_now` says.
pub(super) fn set_clock(environment: &mut Environment<'static>, clock: Clock) {
    environment.add_function("strftime_now", move |format: String| strftime(&format, clock));
}

/// The template without the tags `{% generation %}` and `{% endgeneration %}`, by which `transformers` lets a template mark the assistant's
/// part: they write nothing. The marks that trim blanks stay.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut rest = source;
    let mut text = String::with_capacity(source.len());
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        text.push_str(before);
        // `{%}` begins a tag and does not end it.
        let Some(end) = tag[2..].find("%}").map(|end| end + 2) else {
            rest = tag;
            break;
        };
        let inside = &tag[2..end];
        let marks: &[char] = &['-', '+'];
        match inside.trim_matches(marks).trim() {
            word @ ("generation" | "endgeneration") => {
                let with = if word == "generation" { " if true " } else { " endif " };
                text.push_str("{%");
                text.push_str(&inside.replace(word, with));
                text.push_str("%}");
            }
            _ => text.push_str(&tag[..end + 2]),
        }
        rest = &tag[end + 2..];
    }
    text + rest
}

/// Collects what a template writes, up to [`MOST_OUTPUT`].
#[derive(Default)]
pub(super) struct Limited {
    bytes: Vec<u8>,
}

impl Limited {
    /// The text written.
    pub(super) fn text(self) -> String {
        // The engine writes strings only, so nothing is lost.
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

impl io::Write for Limited {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + data.len() > MOST_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes of values written in one rendering, into blocks too.
#[derive(Debug, Default)]
struct Written(AtomicUsize);

impl Object for Written {}

/// Writes a value as Python would.
fn format(out: &mut Output, state: &State, value: &Value) -> Result<(), Error> {
    let written = state.get_or_set_temp_object("unisono-written", Written::default);
    let text = match value.as_str() {
        Some(text) => text,
        None => match value.kind() {
            ValueKind::Undefined => "",
            ValueKind::None => "None",
            ValueKind::Bool if value.is_true() => "True",
            ValueKind::Bool => "False",
            _ => &value.to_string(),
        },
    };
    if written.0.fetch_add(text.len(), Ordering::Relaxed) + text.len() > MOST_OUTPUT {
        return Err(refused(too_long()));
    }
    out.write_str(text).map_err(|_| Error::from(ErrorKind::WriteFailure))
}

/// Python's methods; those that could run on without end for one step are looked at first.
fn method(state: &State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), method, args) {
        (Some(text), "replace", [from, to, rest @ ..]) => {
            let (Some(from), Some(to)) = (from.as_str(), to.as_str()) else {
                return Err(refused("replace takes two texts"));
            };
            let most = rest.first().and_then(Value::as_usize).unwrap_or(usize::MAX);
            replace(text, from, to, most).map(Value::from)
        }
        (Some(text), "join", [list]) => join(list, text).map(Value::from),
        (Some(text), "count", [what]) if what.as_str() == Some("") => Ok(Value::from(text.chars().count() + 1)),
        _ => unknown_method_callback(state, value, method, args),
    }
}

fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn too_long() -> String {
    format!("it makes a text of more than {MOST_OUTPUT} bytes")
}

fn replace(text: &str, from: &str, to: &str, most: usize) -> Result<String, Error> {
    let found = text.matches(from).take(most).count();
    if to.len().saturating_mul(found) > MOST_OUTPUT {
        return Err(refused(too_long()));
    }
    Ok(text.replacen(from, to, most))
}

fn join(list: &Value, by: &str) -> Result<String, Error> {
    let mut text = String::new();
    for (index, value) in elements(list)?.into_iter().enumerate() {
        if index > 0 {
            text.push_str(by);
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{value}");
        if text.len() > MOST_OUTPUT {
            return Err(refused(too_long()));
        }
    }
    Ok(text)
}

fn list(value: Value) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => Ok(text.chars().map(String::from).map(Value::from).collect()),
        None => elements(&value).map(Value::from),
    }
}

fn elements(list: &Value) -> Result<Vec<Value>, Error> {
    let elements: Vec<Value> = list.try_iter()?.take(MOST_ELEMENTS + 1).collect();
    match elements.len() > MOST_ELEMENTS {
        true => Err(refused(format!("a list has more than {MOST_ELEMENTS} elements"))),
        false => Ok(elements),
    }
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`.
fn tojson(value: Value, indent: Option<usize>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = kwargs.get::<Option<usize>>("indent")?.or(indent);
    // Texts are written as they are in any case, which is what templates ask for.
    let _: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let mut bytes = Vec::new();
    let result = match indent {
        Some(indent) => {
            let blanks = vec![b' '; indent.min(16)];
            value.serialize(&mut Serializer::with_formatter(
                &mut bytes,
                PrettyFormatter::with_indent(&blanks),
            ))
        }
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced)),
    };
    result.map_err(|error| refused(format!("a value has no JSON form: {error}")))?;
    // The serialiser writes UTF-8 only.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// JSON on one line, with a blank after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// A time written out, in UTC; the directives that dates and times in templates use.
fn strftime(format: &str, Clock(seconds): Clock) -> Result<String, Error> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let days = seconds / 86_400;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    // Howard Hinnant, "chrono-compatible low-level date algorithms", days to civil: years begin in March.
    let (era, of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + 400 * era + u64::from(month <= 2);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[(days % 7) as usize]);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let directive = characters.next();
        let written = match directive {
            Some('d') => write!(text, "{day:02}"),
            Some('e') => write!(text, "{day:2}"),
            Some('m') => write!(text, "{month:02}"),
            Some('y') => write!(text, "{:02}", year % 100),
            Some('Y') => write!(text, "{year}"),
            Some('B') => write!(text, "{month_name}"),
            Some('b') => write!(text, "{}", &month_name[..3]),
            Some('A') => write!(text, "{day_name}"),
            Some('a') => write!(text, "{}", &day_name[..3]),
            Some('H') => write!(text, "{hour:02}"),
            Some('I') => write!(text, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(text, "{minute:02}"),
            Some('S') => write!(text, "{second:02}"),
            Some('F') => write!(text, "{year}-{month:02}-{day:02}"),
            Some('T') => write!(text, "{hour:02}:{minute:02}:{second:02}"),
            Some('%') => write!(text, "%"),
            other => {
                let other = other.map_or(String::new(), String::from);
                return Err(refused(format!("strftime_now does not know the directive %{other}")));
            }
        };
        // Writing to a string does not fail.
        let _ = written;
    }
    Ok(text)
}
