//! A schedule and what can be counted in it.

use super::build::build;
use super::simulate::origin;
use super::{Algorithm, CanonicalTree, Collective, Fabric, Link, LinkModel};
use crate::MeshError;
use std::collections::BTreeMap;
use std::ops::Range;

/// The largest group whose messages are listed one by one.
pub const MAX_LISTED: usize = 64;

/// A collective over a group, message by message.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// What is done.
    pub collective: Collective,
    /// How.
    pub algorithm: Algorithm,
    /// The devices and their links.
    pub fabric: Fabric,
    /// Payload in bytes; what it is of says [`Collective::payload`].
    pub bytes: u64,
    /// Parallel links between neighbours, at least 1.
    pub num_links: usize,
    /// Number of chunks that there are.
    pub chunks: usize,
    /// Bytes of each chunk.
    pub chunk_bytes: u64,
    /// What is sent, step after step.
    pub steps: Vec<Step>,
}

/// Messages that are under way at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What the step does, in a word or two.
    pub what: &'static str,
    /// The messages, in order of sender and receiver.
    pub sends: Vec<Send>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Send {
    /// Who sends it.
    pub from: usize,
    /// Who gets it.
    pub to: usize,
    /// The devices that pass it on between the two; they keep nothing of it.
    pub via: Vec<usize>,
    /// What it holds, each part of one chunk's size.
    pub parts: Vec<Part>,
}

/// One chunk's worth of data: moved data, a partial sum or a finished one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which chunk.
    pub chunk: usize,
    /// The devices whose values are combined in it, as ascending ranges; empty for data that is only moved.
    pub combines: Vec<Range<usize>>,
}

impl Part {
    /// Data that is only moved.
    pub fn moved(chunk: usize) -> Self {
        Self {
            chunk,
            combines: Vec::new(),
        }
    }

    /// True for moved data and for what combines all `n` devices.
    pub fn is_finished(&self, n: usize) -> bool {
        self.combines.is_empty() || is_whole(&self.combines, n)
    }
}

/// True for the one range of all `n` devices.
pub(super) fn is_whole(ranges: &[Range<usize>], n: usize) -> bool {
    matches!(ranges, [range] if *range == (0..n))
}

impl Send {
    /// True when the receiver has something to combine: a partial sum (or maximum) came, not a finished value.
    pub fn reduces(&self, n: usize) -> bool {
        self.parts.iter().any(|part| !part.is_finished(n))
    }

    /// Links that it passes.
    pub fn hops(&self) -> usize {
        self.via.len() + 1
    }

    /// The links that it passes, in order.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        let ends = || std::iter::once(self.from).chain(self.via.iter().copied());
        ends()
            .zip(self.via.iter().copied().chain([self.to]))
            .map(|(from, to)| Link { from, to })
    }
}

/// Number of chunks that a collective of `n` devices cuts its data into, and the bytes of each for a payload of `bytes`.
///
/// Chunks of equal size; where the bytes do not divide, rounded up to whole bytes. The collective's devices are those of the
/// group; [`Collective::check`] says whether they are.
pub fn chunk_bytes(collective: &Collective, fabric: &Fabric, algorithm: Algorithm, bytes: u64) -> (usize, u64) {
    let n = fabric.num_devices();
    let part = |count: usize| bytes.div_ceil(count as u64);
    match (collective, algorithm) {
        (Collective::AllReduce(_), Algorithm::Tree | Algorithm::Server | Algorithm::Naive) => (1, bytes),
        (Collective::Broadcast { root }, Algorithm::Canonical) if fabric.reach(*root) > 1 => (n, part(n)),
        (Collective::Broadcast { .. } | Collective::PointToPoint { .. }, _) => (1, bytes),
        (Collective::AllBroadcast | Collective::Shift { .. }, _) => (n, bytes),
        (Collective::AllToAll, _) => (n * n, part(n)),
        (Collective::Barrier, _) => (n, 0),
        _ => (n, part(n)),
    }
}

impl Schedule {
    /// The messages of a collective with a payload of `bytes` over `num_links` parallel links. A group of one device has no
    /// steps.
    ///
    /// # Errors
    /// Those of [`Collective::check`]; [`MeshError::TooManyToList`] above [`MAX_LISTED`] devices;
    /// [`MeshError::TooManyLinks`] for `num_links` 0.
    pub fn new(
        collective: Collective,
        fabric: &Fabric,
        algorithm: Algorithm,
        bytes: u64,
        num_links: usize,
    ) -> Result<Self, MeshError> {
        let n = fabric.num_devices();
        collective.check(n, algorithm)?;
        super::check_links(num_links, num_links.max(1))?;
        if n > MAX_LISTED {
            return Err(MeshError::TooManyToList {
                devices: n,
                limit: MAX_LISTED,
            });
        }
        let (chunks, size) = chunk_bytes(&collective, fabric, algorithm, bytes);
        let mut steps = if n == 1 {
            Vec::new()
        } else {
            build(&collective, fabric, algorithm, chunks)
        };
        steps.retain(|step| !step.sends.is_empty());
        for step in &mut steps {
            step.sends.sort_by_key(|send| (send.from, send.to));
        }
        Ok(Self {
            collective,
            algorithm,
            fabric: fabric.clone(),
            bytes,
            num_links,
            chunks,
            chunk_bytes: size,
            steps,
        })
    }

    /// Devices of the group.
    pub fn num_devices(&self) -> usize {
        self.fabric.num_devices()
    }

    /// Number of steps.
    pub fn num_steps(&self) -> usize {
        self.steps.len()
    }

    /// Number of messages, each counted once however far it goes.
    pub fn messages(&self) -> u64 {
        self.sends().count() as u64
    }

    /// Bytes of a message.
    pub fn bytes_of(&self, send: &Send) -> u64 {
        self.chunk_bytes.saturating_mul(send.parts.len() as u64)
    }

    /// Bytes over all links, forwarding included.
    pub fn bytes_total(&self) -> u64 {
        self.sends()
            .map(|send| self.bytes_of(send).saturating_mul(send.hops() as u64))
            .fold(0, u64::saturating_add)
    }

    /// Bytes over each connection in each direction, its parallel links together. Connections that carry nothing are left out.
    pub fn link_bytes(&self) -> BTreeMap<Link, u64> {
        let mut loads = BTreeMap::new();
        for send in self.sends() {
            for link in send.links() {
                *loads.entry(link).or_insert(0) += self.bytes_of(send);
            }
        }
        loads.retain(|_, bytes| *bytes > 0);
        loads
    }

    /// The connection that carries most, and the bytes over each of its parallel links in that direction.
    pub fn busiest_link(&self) -> Option<(Link, u64)> {
        self.busiest(self.sends())
    }

    /// Bytes of `device`'s own data that others get; the [module](crate::schedule) says what counts.
    pub fn own_bytes(&self, device: usize) -> u64 {
        let n = self.num_devices();
        let own = |send: &Send, part: &Part| {
            if part.is_finished(n) {
                origin(&self.collective, self.algorithm, n, part.chunk) == Some(device)
            } else {
                send.from == device && part.combines.iter().any(|range| range.contains(&device))
            }
        };
        let parts: usize = self
            .sends()
            .map(|send| send.parts.iter().filter(|part| own(send, part)).count())
            .sum();
        self.chunk_bytes.saturating_mul(parts as u64)
    }

    /// Bytes that devices put on links for others: on the way of a route, or of data that began elsewhere.
    pub fn bytes_forwarded(&self) -> u64 {
        let n = self.num_devices();
        let begins = |send: &Send, part: &Part| {
            if part.is_finished(n) {
                origin(&self.collective, self.algorithm, n, part.chunk).is_none_or(|first| first == send.from)
            } else {
                part.combines.iter().any(|range| range.contains(&send.from))
            }
        };
        let first: usize = self
            .sends()
            .map(|send| send.parts.iter().filter(|part| begins(send, part)).count())
            .sum();
        self.bytes_total() - self.chunk_bytes.saturating_mul(first as u64)
    }

    /// True when every partial sum that is sent is one that the canonical order holds, so that all devices end with the bits
    /// of a single one. Collectives that add nothing are.
    pub fn is_canonical(&self) -> bool {
        if !self.collective.reduction().is_some_and(|reduction| reduction.is_sum()) {
            return true;
        }
        let tree = CanonicalTree::over(self.num_devices());
        self.sends()
            .flat_map(|send| &send.parts)
            .all(|part| matches!(part.combines.as_slice(), [run] if tree.is_span(run)))
    }

    /// Seconds that it takes when the steps go one after the other: for each the latency of its longest route and the
    /// bytes at its busiest link.
    pub fn time(&self, model: &LinkModel) -> f64 {
        self.steps
            .iter()
            .map(|step| {
                let hops = step.sends.iter().map(Send::hops).max().unwrap_or(0);
                let bytes = self.busiest(step.sends.iter()).map_or(0, |(_, bytes)| bytes);
                hops as f64 * model.latency + bytes as f64 / model.bandwidth
            })
            .sum()
    }

    fn sends(&self) -> impl Iterator<Item = &Send> {
        self.steps.iter().flat_map(|step| &step.sends)
    }

    fn busiest<'a>(&self, sends: impl Iterator<Item = &'a Send>) -> Option<(Link, u64)> {
        let mut parts: BTreeMap<Link, u64> = BTreeMap::new();
        for send in sends {
            for link in send.links() {
                *parts.entry(link).or_insert(0) += send.parts.len() as u64;
            }
        }
        // Of several equally busy ones the first.
        let (link, most) = parts.into_iter().rev().max_by_key(|(_, parts)| *parts)?;
        Some((
            link,
            most.saturating_mul(self.chunk_bytes.div_ceil(self.num_links as u64)),
        ))
    }
}
