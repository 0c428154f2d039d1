//! What is printed, and how: the only part of unisono that does.

pub mod differences;
pub mod header;
pub mod numbers;
pub mod progress;
pub mod summary;

use crate::cli::Common;
use crate::exit::Failure;
use serde::Serialize;
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use unisono_mesh::draw::Drawing;

/// How much is said on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What ends the command.
    Error,
    /// What the user should know.
    Warn,
    /// Notes; the default.
    Info,
    /// Details of what is done.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// From `-v`, `-q`, `UNISONO_LOG` and `TT_METAL_LOGGER_LEVEL`, in that order.
    ///
    /// # Errors
    /// A level of `UNISONO_LOG` that there is not.
    pub fn of(common: &Common, variables: &BTreeMap<String, String>) -> Result<Level, String> {
        match (common.verbose, common.quiet) {
            (0, true) => return Ok(Level::Warn),
            (0, false) => {}
            (1, _) => return Ok(Level::Debug),
            _ => return Ok(Level::Trace),
        }
        Level::of_variables(variables)
    }

    /// From `UNISONO_LOG` and `TT_METAL_LOGGER_LEVEL`, in that order.
    ///
    /// # Errors
    /// A level of `UNISONO_LOG` that there is not.
    pub fn of_variables(variables: &BTreeMap<String, String>) -> Result<Level, String> {
        if let Some(name) = variables.get("UNISONO_LOG").filter(|name| !name.is_empty()) {
            return Level::named(name).ok_or_else(|| {
                format!("UNISONO_LOG is `{name}`, which is no level: use error, warn, info, debug or trace")
            });
        }
        // A variable of another program: a level that is unknown here is not an error.
        let foreign = variables.get("TT_METAL_LOGGER_LEVEL");
        Ok(foreign.and_then(|name| Level::named(name)).unwrap_or(Level::Info))
    }

    fn named(name: &str) -> Option<Level> {
        Some(match name.to_ascii_lowercase().as_str() {
            "off" | "fatal" | "critical" | "error" => Level::Error,
            "warn" | "warning" => Level::Warn,
            "info" => Level::Info,
            "debug" => Level::Debug,
            "trace" | "all" => Level::Trace,
            _ => return None,
        })
    }
}

/// Standard output and standard error. What cannot be written is noted, never a panic.
pub struct Out {
    level: Level,
    quiet: bool,
    json: bool,
    color: bool,
    /// Whether another process of the run prints what this one would.
    silent: bool,
    /// Of a process that prints beside the first.
    mark: Option<Mark>,
    failed: RefCell<Option<std::io::Error>>,
}

/// What stands before the lines of a process.
struct Mark {
    text: String,
    /// Whether they go to standard error.
    apart: bool,
    /// A line whose end has not come yet.
    open: RefCell<String>,
}

impl Drop for Out {
    fn drop(&mut self) {
        let is_open = |mark: &Mark| !mark.open.borrow().is_empty();
        if self.mark.as_ref().is_some_and(is_open) {
            self.write("\n");
        }
    }
}

impl Out {
    /// With colours on a terminal, if `color`.
    pub fn new(level: Level, quiet: bool, json: bool, color: bool) -> Out {
        Out {
            level,
            quiet,
            json,
            color,
            silent: false,
            mark: None,
            failed: RefCell::new(None),
        }
    }

    /// The same with nothing but errors: another process prints the rest.
    pub fn silenced(mut self) -> Out {
        (self.silent, self.level, self.quiet) = (true, Level::Error, true);
        self
    }

    /// The same with `[rank N] ` before every line but those of errors, which name their rank. A `result` goes to standard output; otherwise, where
    /// that holds one object for machines, to standard error.
    pub fn of_rank(mut self, rank: usize, result: bool) -> Out {
        let mark = Mark {
            text: format!("[rank {rank}] "),
            apart: self.json && !result,
            open: RefCell::default(),
        };
        // The object itself is read by machines.
        self.mark = (!self.json || mark.apart).then_some(mark);
        self
    }

    /// Whether a bar can be drawn where others print too.
    pub fn draws(&self) -> bool {
        self.mark.is_none()
    }

    /// Whether the result is asked for as JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether only results are asked for.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether details are asked for.
    pub fn is_verbose(&self) -> bool {
        self.level >= Level::Debug
    }

    /// A line that accompanies the result: left out with `--quiet` and `--json`.
    pub fn say(&self, line: impl Display) {
        if !self.quiet && !self.json {
            self.write(&format!("{line}\n"));
        }
    }

    /// A line of the result for people: left out with `--json`.
    pub fn result(&self, line: impl Display) {
        if !self.json {
            self.write(&format!("{line}\n"));
        }
    }

    /// A piece of the result, seen at once.
    pub fn piece(&self, text: &str) {
        if !self.json {
            self.write(text);
        }
    }

    /// The result for machines, if that was asked for.
    pub fn json(&self, value: &impl Serialize) {
        if self.json {
            // Texts, numbers and lists always have a JSON form; what is not finite becomes null.
            let text = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
            self.write(&(text + "\n"));
        }
    }

    /// A warning on standard error.
    pub fn warn(&self, line: impl Display) {
        self.tell(Level::Warn, "33", "warning: ", line);
    }

    /// A note on standard error.
    pub fn note(&self, line: impl Display) {
        self.tell(Level::Info, "36", "note: ", line);
    }

    /// A detail on standard error.
    pub fn debug(&self, line: impl Display) {
        self.tell(Level::Debug, "2", "debug: ", line);
    }

    /// The failure that ends the command, on standard error, each line a problem of its own; or the same for machines, in the place of the
    /// result.
    pub fn error(&self, failure: &Failure) {
        if self.json && !self.is_broken() {
            let problems: Vec<&str> = failure.message.lines().collect();
            let object = json!({"exit_code": failure.code, "errors": problems});
            // Also where another process prints results.
            self.print(&format!("{object}\n"));
            if !self.is_broken() {
                return;
            }
        }
        for line in failure.message.lines() {
            self.tell(Level::Error, "31", "error: ", line);
        }
    }

    /// `text` in bold, on a terminal.
    pub fn bold(&self, text: &str) -> String {
        match self.color && std::io::stdout().is_terminal() {
            true => format!("\x1b[1m{text}\x1b[0m"),
            false => text.to_string(),
        }
    }

    /// A drawing: in colour on a terminal, plain otherwise.
    pub fn drawing(&self, drawing: &Drawing) {
        if !self.json {
            self.write(&match self.color && std::io::stdout().is_terminal() {
                true => drawing.colour(),
                false => drawing.plain(),
            });
        }
    }

    /// Characters that fit in a line: the terminal's, else what the variable `COLUMNS` says, else 100.
    pub fn width(&self, variables: &BTreeMap<String, String>) -> usize {
        let said = || variables.get("COLUMNS").and_then(|columns| columns.trim().parse().ok());
        terminal_width()
            .or_else(said)
            .filter(|width| *width > 0)
            .map_or(100, |width: usize| width.clamp(20, 1000))
    }

    /// Whether nobody can read what is written any more.
    pub fn is_broken(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Whether standard output could be written; a reader that went away early is no failure.
    ///
    /// # Errors
    /// A full disk and the like.
    pub fn outcome(&self) -> Result<(), Failure> {
        match self.failed.borrow().as_ref() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::running(format!("standard output cannot be written: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn tell(&self, level: Level, color: &str, word: &str, line: impl Display) {
        if level > self.level {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        let word = match self.color && stderr.is_terminal() {
            true => format!("\x1b[{color}m{word}\x1b[0m"),
            false => word.to_string(),
        };
        let mark = self.mark.as_ref().filter(|_| level > Level::Error);
        let mark = mark.map_or("", |mark| &mark.text);
        // Where standard error is closed there is nobody to tell.
        let _ = writeln!(stderr, "{mark}{word}{line}");
    }

    fn write(&self, text: &str) {
        if self.silent {
            return;
        }
        let Some(mark) = &self.mark else {
            return self.put(text);
        };
        // Whole lines, or those of several processes would mix.
        let mut open = mark.open.borrow_mut();
        open.push_str(text);
        let Some(end) = open.rfind('\n') else { return };
        let rest = open.split_off(end + 1);
        let lines: String = open
            .split_inclusive('\n')
            .map(|line| format!("{}{line}", mark.text))
            .collect();
        *open = rest;
        match mark.apart {
            // Where standard error is closed there is nobody to tell.
            true => drop(std::io::stderr().lock().write_all(lines.as_bytes())),
            false => self.put(&lines),
        }
    }

    /// Writes to standard output, while somebody reads it.
    fn put(&self, text: &str) {
        if !self.is_broken() {
            self.print(text);
        }
    }

    fn print(&self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            *self.failed.borrow_mut() = Some(error);
        }
    }
}

/// Columns of the terminal that standard output is, if it is one.
#[cfg(unix)]
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Not known on this system.
#[cfg(not(unix))]
fn terminal_width() -> Option<usize> {
    None
}
