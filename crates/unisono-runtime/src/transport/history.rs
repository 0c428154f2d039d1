//! The last commands of a program, kept where several processes run it: when two of them find that they run different programs, each has
//! its own version of the first command in which they differ.
//!
//! Only the hash after each command is compared. As a hash takes in all commands before it, the first that differs is the first
//! command that does.

use crate::task::Recorded;
use std::collections::VecDeque;

/// Commands that are kept.
const KEPT: usize = 4096;
/// Bytes of the hashes as they are sent: how many, the number of the first, and the hashes.
pub(super) const LEN: usize = 8 * (KEPT + 2);
/// Characters of a command that are told; some name many buffers.
const SHOWN: usize = 600;

/// See the module. Commands are numbered from 1.
#[derive(Default)]
pub(super) struct History {
    kept: VecDeque<Noted>,
    /// Commands so far.
    count: u64,
}

struct Noted {
    /// The hash of the program up to and with this command.
    hash: u64,
    step: u64,
    what: What,
}

/// What was issued.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are commands, and a box would cost an allocation each"
)]
pub(crate) enum What {
    /// A command.
    Command(Recorded),
    /// A trace of so many commands.
    Replay(usize),
}

/// Where a program parts from another, as one of the two has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// At the command of this number.
    At(u64),
    /// Before the oldest command that both have kept.
    Before(u64),
}

impl History {
    pub(super) fn note(&mut self, hash: u64, step: u64, what: What) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(Noted { hash, step, what });
        self.count += 1;
    }

    /// The step to which a command belongs, if it is still kept.
    pub(super) fn step_of(&self, number: u64) -> Option<u64> {
        self.get(number).map(|noted| noted.step)
    }

    /// The number of the oldest command that is kept.
    fn first(&self) -> u64 {
        self.count + 1 - self.kept.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Noted> {
        let index = number.checked_sub(self.first())?;
        self.kept.get(index as usize)
    }

    /// The hashes for another process.
    pub(super) fn hashes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN);
        let head = [self.kept.len() as u64, self.first()];
        let hashes = self.kept.iter().map(|noted| noted.hash);
        head.into_iter()
            .chain(hashes)
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.resize(LEN, 0);
        bytes
    }

    /// The first command in which this program differs from one with these hashes.
    pub(super) fn part(&self, theirs: &[u8]) -> Parting {
        let mut words = theirs.chunks_exact(8).map(|word| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(word);
            u64::from_le_bytes(bytes)
        });
        let mut head = || words.next().unwrap_or_default();
        let (count, first) = (head().min(KEPT as u64), head());
        let start = self.first().max(first);
        let theirs: Vec<u64> = words.take(count as usize).collect();
        let mut number = start;
        while let (Some(own), Some(other)) = (self.get(number), theirs.get((number - first) as usize)) {
            if own.hash != *other {
                break;
            }
            number += 1;
        }
        match number == start && start > 1 {
            true => Parting::Before(start),
            false => Parting::At(number),
        }
    }

    /// A command in words, and the step at which it was issued.
    pub(super) fn describe(&self, number: u64) -> (String, u64) {
        let Some(noted) = self.get(number) else {
            return ("nothing yet".to_string(), self.kept.back().map_or(0, |last| last.step));
        };
        let text = match &noted.what {
            What::Command(recorded) => recorded.to_string(),
            What::Replay(commands) => format!("a trace of {commands} commands"),
        };
        let shown: String = text.chars().take(SHOWN).collect();
        let cut = if shown.len() < text.len() { "…" } else { "" };
        (format!("`{shown}{cut}`"), noted.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose commands have these hashes.
    fn program(hashes: impl IntoIterator<Item = u64>) -> History {
        let mut history = History::default();
        for hash in hashes {
            history.note(hash, hash / 10, What::Replay(hash as usize));
        }
        history
    }

    #[test]
    fn the_first_difference_is_found() {
        let base = program(1..=20);
        let part = |other: &History| {
            let here = base.part(&other.hashes());
            assert_eq!(other.part(&base.hashes()), here);
            here
        };
        assert_eq!(part(&program((1..8).chain(100..110))), Parting::At(8));
        assert_eq!(part(&program([7])), Parting::At(1));
        assert_eq!(part(&program(1..=15)), Parting::At(16));
        assert_eq!(base.describe(16), ("`a trace of 16 commands`".to_string(), 1));
        assert_eq!(base.describe(21), ("nothing yet".to_string(), 2));
        // A program that has gone on keeps its last commands only.
        let far = KEPT as u64 + 100;
        let (long, other) = (program(1..=far), program((1..=far - 1).chain([7])));
        assert_eq!(long.part(&other.hashes()), Parting::At(far));
        assert_eq!(long.part(&program(2..=far + 1).hashes()), Parting::Before(101));
        assert_eq!(base.part(&long.hashes()), Parting::Before(101));
    }
}
