//! What devices hold: at first, after a step, and whether a schedule does what its collective promises.

use super::build::shifted;
use super::messages::is_whole;
use super::{Algorithm, Collective, Part, Schedule, Send};
use std::collections::BTreeMap;
use std::ops::Range;

/// What one device holds: for each chunk the devices whose values it has, as pieces that were received or are its own. Moved
/// data is one piece of the whole group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// By chunk; each piece is a list of ascending ranges of devices.
    pub chunks: BTreeMap<usize, Vec<Vec<Range<usize>>>>,
}

impl Holdings {
    /// The chunks held whole: moved data, and values that combine all `n` devices (combined already or not).
    pub fn finished(&self, n: usize) -> Vec<usize> {
        self.chunks
            .iter()
            .filter(|(_, pieces)| covered(pieces) == n)
            .map(|(chunk, _)| *chunk)
            .collect()
    }

    /// The part can be made of what is here: pieces that lie within it make it up.
    fn can_make(&self, combines: &[Range<usize>], chunk: usize) -> bool {
        self.chunks.get(&chunk).is_some_and(|pieces| {
            let within: Vec<Vec<Range<usize>>> = pieces
                .iter()
                .filter(|piece| piece.iter().cloned().flatten().all(|device| contains(combines, device)))
                .cloned()
                .collect();
            covered(&within) == combines.iter().map(ExactSizeIterator::len).sum::<usize>()
        })
    }
}

fn contains(ranges: &[Range<usize>], device: usize) -> bool {
    ranges.iter().any(|range| range.contains(&device))
}

/// Devices in all pieces together; the pieces never overlap.
fn covered(pieces: &[Vec<Range<usize>>]) -> usize {
    pieces.iter().flatten().map(ExactSizeIterator::len).sum()
}

/// The device that holds a chunk first, as data to be moved or as a finished value; `None` where all finish it.
pub(super) fn origin(collective: &Collective, algorithm: Algorithm, n: usize, chunk: usize) -> Option<usize> {
    match collective {
        Collective::AllReduce(_) => match algorithm {
            Algorithm::Naive => None,
            Algorithm::Tree | Algorithm::Server => Some(0),
            Algorithm::Canonical | Algorithm::Ring => Some(chunk),
        },
        Collective::Broadcast { root } | Collective::Scatter { root } => Some(*root),
        Collective::AllToAll => Some(chunk / n),
        Collective::PointToPoint { from, .. } => Some(*from),
        _ => Some(chunk),
    }
}

impl Schedule {
    /// What each device holds before the first step.
    pub fn holds_first(&self) -> Vec<Holdings> {
        let n = self.num_devices();
        let mut holds = vec![Holdings::default(); n];
        for chunk in 0..self.chunks {
            if self.collective.reduction().is_some() {
                for (device, held) in holds.iter_mut().enumerate() {
                    held.chunks.insert(chunk, vec![vec![device..device + 1]]);
                }
            } else if let Some(first) = origin(&self.collective, self.algorithm, n, chunk) {
                holds[first].chunks.insert(chunk, vec![vec![0..n]]);
            }
        }
        holds
    }

    /// The chunks that a device must hold whole in the end.
    pub fn goal(&self, device: usize) -> Vec<usize> {
        let n = self.num_devices();
        match self.collective {
            Collective::ReduceScatter | Collective::Scatter { .. } => vec![device],
            Collective::AllToAll => (0..n).map(|from| from * n + device).collect(),
            Collective::Gather { root } if root != device => vec![],
            Collective::PointToPoint { to, .. } if to != device => vec![],
            Collective::Shift { by } => vec![shifted(device, by.wrapping_neg(), n)],
            _ => (0..self.chunks).collect(),
        }
    }

    /// What each device holds after the first `steps` steps.
    ///
    /// # Panics
    /// Where a message holds what its sender has not: a bug in unisono, found by [`check`](Self::check).
    pub fn holds_after(&self, steps: usize) -> Vec<Holdings> {
        self.run(steps)
            .unwrap_or_else(|problem| panic!("bug in unisono: {problem}"))
    }

    /// Carries the schedule out on sets of devices and checks it: every message goes over links that there are, from a device that
    /// holds what it sends, nothing is combined twice, and in the end every device has what the collective promises.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        let n = self.num_devices();
        let holds = self.run(self.steps.len())?;
        for (device, held) in holds.iter().enumerate() {
            let finished = held.finished(n);
            if let Some(chunk) = self.goal(device).into_iter().find(|chunk| !finished.contains(chunk)) {
                return Err(format!("device {device} ends without the whole of chunk {chunk}"));
            }
        }
        Ok(())
    }

    fn run(&self, steps: usize) -> Result<Vec<Holdings>, String> {
        let mut holds = self.holds_first();
        for step in 0..steps.min(self.steps.len()) {
            self.advance(&mut holds, step)?;
        }
        Ok(holds)
    }

    /// Carries one step out.
    pub(super) fn advance(&self, holds: &mut [Holdings], step: usize) -> Result<(), String> {
        let n = self.num_devices();
        let whole: Vec<Range<usize>> = std::iter::once(0..n).collect();
        // All messages of a step leave before one arrives.
        let sends = &self.steps[step].sends;
        for send in sends {
            if let Some(link) = send.links().find(|link| !self.fabric.joined(*link)) {
                let (from, to) = (link.from, link.to);
                return Err(format!("{}: no link joins {from} and {to}", named(step, send)));
            }
            for Part { chunk, combines } in &send.parts {
                let combines = if combines.is_empty() { &whole } else { combines };
                if !holds[send.from].can_make(combines, *chunk) {
                    let (who, from) = (named(step, send), send.from);
                    return Err(format!(
                        "{who}: {from} does not hold its part {combines:?} of chunk {chunk}"
                    ));
                }
            }
        }
        for send in sends {
            for Part { chunk, combines } in &send.parts {
                let combines = if combines.is_empty() { &whole } else { combines };
                let pieces = holds[send.to].chunks.entry(*chunk).or_default();
                if is_whole(combines, n) {
                    *pieces = vec![combines.clone()];
                } else if pieces
                    .iter()
                    .flatten()
                    .cloned()
                    .flatten()
                    .any(|device| contains(combines, device))
                {
                    let (who, to) = (named(step, send), send.to);
                    return Err(format!(
                        "{who}: {to} holds values of chunk {chunk} already that come with {combines:?}"
                    ));
                } else {
                    pieces.push(combines.clone());
                }
            }
        }
        Ok(())
    }
}

fn named(step: usize, send: &Send) -> String {
    format!("step {}, the message from {} to {}", step + 1, send.from, send.to)
}
