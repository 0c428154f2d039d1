//! Two processes that run different programs find out where they part.
//!
//! Who notices sends the hashes of its last commands; the other's watcher looks for the first that differs, and answers with its number
//! and its own version of that command. Both may ask at once.

use super::control::{self, Control, Kind};
use super::error::TransportError;
use super::history::{Parting, What};
use super::line::Line;
use super::link::{Doing, Link};
use super::watch::{Shared, lock};
use std::time::Duration;

/// How long an answer is waited for: a few turns of a watcher.
const PATIENCE: Duration = Duration::from_secs(2);

impl Link {
    /// Keeps what was issued, for the day on which another process has issued something else.
    pub(crate) fn remember(&self, hash: u64, what: What) {
        let step = lock(&self.shared.doing).step;
        lock(&self.shared.history).note(hash, step, what);
    }

    /// Where the program of this process and that of `peer` part, in a sentence that both give alike; `None` where the other does not
    /// answer.
    pub(crate) fn parting_from(&self, peer: usize) -> Option<String> {
        let question = lock(&self.shared.history).hashes();
        let mut answer = Box::new(Control::empty());
        let answered = self.ask(peer, &question, &mut answer);
        if !answered.is_ok_and(|answered| answered) {
            return None;
        }
        let (their_step, number) = answer.doing();
        let ranks = |own: String, theirs: String| match self.rank() < peer {
            true => (own, theirs),
            false => (theirs, own),
        };
        let name = |rank: usize, host: &str| format!("rank {rank} on {host}");
        let (a, b) = ranks(name(self.rank(), self.host()), name(peer, &answer.host()));
        if answer.code() != 0 {
            return Some(format!(
                "{a} and {b} run different programs: they part before command {number}, the oldest that both have kept"
            ));
        }
        let (text, step) = lock(&self.shared.history).describe(number);
        let version = |text: &str, rank: usize, step: u64| format!("{text} on rank {rank} at step {step}");
        let (first, second) = ranks(
            version(&text, self.rank(), step),
            version(&answer.text(), peer, their_step),
        );
        Some(format!(
            "{a} and {b} run different programs: the first difference is command {number}, {first} and {second}"
        ))
    }

    /// Asks, and waits for the answer; whether it has come.
    fn ask(&self, peer: usize, question: &[u8], answer: &mut Control) -> Result<bool, TransportError> {
        let into = answer.bytes_mut();
        // Others may have failed meanwhile; it is this answer that says why.
        let missing = self.settle(
            PATIENCE,
            || Ok(()),
            |open| {
                let mut line = self.line();
                let transport = &mut line.transport;
                // SAFETY: question and answer live until `settle` returns, and nobody touches them before.
                unsafe {
                    open.push((
                        peer,
                        transport.send(peer, control::ASK, question.as_ptr(), question.len())?,
                    ));
                    open.push((
                        peer,
                        transport.receive(peer, control::ANSWER, into.as_mut_ptr(), into.len())?,
                    ));
                }
                Ok(())
            },
        )?;
        Ok(missing.is_none())
    }
}

impl Shared {
    /// Answers who asks where the programs part.
    pub(super) fn answer(&self, line: &mut Line) -> Result<(), TransportError> {
        while let Some((peer, hashes)) = line.question()? {
            let history = lock(&self.history);
            let (code, number) = match history.part(&hashes) {
                Parting::At(number) => (0, number),
                Parting::Before(number) => (1, number),
            };
            let (text, step) = history.describe(number);
            let doing = Doing {
                step,
                commands: number,
                what: "",
            };
            let message = Control::new(Kind::Parting, code, &self.settings.host, doing, &text);
            line.say_as(control::ANSWER, peer, &message)?;
        }
        Ok(())
    }
}
