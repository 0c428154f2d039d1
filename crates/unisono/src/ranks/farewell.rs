//! How the processes of a run end: together, with one message.

use super::{Ranks, give_way};
use crate::exit::Failure;
use crate::launched::{ERROR, FOLDER};
use crate::output::Out;
use std::path::Path;
use std::time::Duration;
use unisono_runtime::transport::TransportError;

/// How long the first process waits for what others have to say, when it fails.
const LISTEN: Duration = Duration::from_millis(500);
/// How much later each process speaks than the one before it, where the first is lost: they notice it up to a sign of life apart.
const TURN: Duration = Duration::from_secs(3);
/// How long another process waits for the first to end the run.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the launcher gets to find out by itself that a host is out of reach, before anything more is sent that way. What is sent to
/// such a host holds the launcher up until TCP gives up, a quarter of an hour; its own probes end the run on both sides at once
/// (`docs/clusters.md` has the settings, which `unisono run` makes by itself).
const PROBES: Duration = Duration::from_secs(7);

/// Prints a message, and leaves word for the launcher that it has been printed: it then adds nothing.
pub fn tell_first(failure: &Failure, out: &Out) {
    out.error(failure);
    if let Some(folder) = std::env::var_os(FOLDER) {
        // Where it cannot be left, the message comes twice.
        let _ = std::fs::write(Path::new(&folder).join(ERROR), &failure.message);
    }
}

/// The same before the processes have joined: what all of them see, the first tells, and the others only where nobody has.
pub fn tell_alone(failure: &Failure, out: &Out) {
    let is_told = || std::env::var_os(FOLDER).is_some_and(|folder| Path::new(&folder).join(ERROR).exists());
    if !give_way() || !is_told() {
        tell_first(failure, out);
    }
}

impl Ranks {
    /// Takes leave with all others; an error of one of them counts.
    ///
    /// # Errors
    /// Another process that has failed meanwhile, or is lost.
    pub fn finish(&self) -> Result<(), Failure> {
        Ok(self.link.finish()?)
    }

    /// Ends all processes because this one has failed, or has heard that another has. The first process tells what happened, once.
    /// Does not return.
    pub fn farewell(&self, failure: &Failure, out: &Out) -> ! {
        let code = i32::from(failure.code);
        let heard = self.link.check().err();
        // What this process has to say may be no more than what it has heard.
        let is_echo = heard
            .as_ref()
            .is_some_and(|heard| failure.message.contains(&heard.to_string()));
        let speaks = match &heard {
            // Of the processes that miss the first, the second speaks first.
            Some(TransportError::Lost { rank: 0, .. }) => {
                // What it prints goes to the first one's host.
                std::thread::sleep(self.probes(0) + TURN * self.rank().saturating_sub(1) as u32);
                true
            }
            _ => self.rank() == 0,
        };
        if !speaks {
            if !is_echo {
                self.link.tell_failure(code, &failure.message);
            }
            std::thread::sleep(PATIENCE);
            // The first does not hear.
            self.tell(&[format!("{}: {}", self.name(self.rank()), failure.message)], code, out);
        }
        let told = self.link.failures(if is_echo { Duration::ZERO } else { LISTEN });
        let worst = told.iter().map(|other| other.code).max();
        if !is_echo || told.is_empty() {
            // One thing at a time: what others found beside it is found again.
            self.tell(
                std::slice::from_ref(&failure.message),
                worst.unwrap_or(code).max(code),
                out,
            );
        }
        let mut lines: Vec<String> = Vec::new();
        for other in told {
            // What two processes see they tell in the same words; what follows may depend on the process, such as the last checkpoint.
            let begins = |text: &str| text.split(';').next().unwrap_or_default().to_string();
            let begin = begins(&other.text);
            if !lines.iter().any(|line| begins(line).ends_with(&begin)) {
                lines.push(format!("rank {} on {}: {}", other.rank, other.host, other.text));
            }
        }
        self.tell(&lines, worst.unwrap_or(code), out)
    }

    /// How long to leave the end to the launcher where `rank` is lost: not at all on one host, which is in reach.
    fn probes(&self, rank: usize) -> Duration {
        match self.said[rank].host == self.said[self.rank()].host {
            true => Duration::ZERO,
            false => PROBES,
        }
    }

    /// Prints the message, leaves word that it has been printed, and ends the run.
    fn tell(&self, lines: &[String], code: i32, out: &Out) -> ! {
        let failure = Failure {
            code: u8::try_from(code).unwrap_or(crate::exit::FAILED),
            message: lines.join("\n"),
        };
        tell_first(&failure, out);
        if let (0, Err(TransportError::Lost { rank, .. })) = (self.rank(), self.link.check()) {
            std::thread::sleep(self.probes(rank));
        }
        self.link.abort(code)
    }
}
