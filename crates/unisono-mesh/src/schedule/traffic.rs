//! Steps, messages and bytes of a collective, counted without listing messages.

use super::fabric::Along;
use super::loads::Loads;
use super::{Algorithm, Collective, Fabric, Link, check_links, chunk_bytes};
use crate::MeshError;
use std::collections::BTreeMap;

/// What a collective costs its links.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Steps, one after the other.
    pub steps: u64,
    /// Messages, each counted once however far it goes.
    pub messages: u64,
    /// Bytes over all links, forwarding included.
    pub bytes: u64,
    /// Bytes over the busiest of the parallel links, in its busier direction.
    pub busiest_link_bytes: u64,
    /// Bytes of its own data that others get of the device of which they get most.
    pub own_bytes: u64,
}

/// The same numbers in chunks: they depend on the group and not on the payload, so one count serves many calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Steps.
    pub steps: u64,
    /// Messages.
    pub messages: u64,
    /// Chunks times links.
    pub chunks: u64,
    /// Chunks over the busiest connection in its busier direction.
    pub busiest: u64,
    /// Chunks of own data.
    pub own: u64,
}

impl Count {
    /// Counts a collective over a group.
    ///
    /// # Errors
    /// Those of [`Collective::check`].
    pub fn of(collective: &Collective, fabric: &Fabric, algorithm: Algorithm) -> Result<Self, MeshError> {
        let n = fabric.num_devices();
        collective.check(n, algorithm)?;
        if n == 1 {
            return Ok(Self::default());
        }
        let (chunks, _) = chunk_bytes(collective, fabric, algorithm, 0);
        let loads = Loads::of(collective, fabric, algorithm, chunks);
        let (steps, messages) = steps_and_messages(collective, fabric, algorithm, chunks as u64);
        Ok(Self {
            steps,
            messages,
            chunks: loads.iter().map(|(_, chunks)| chunks).sum(),
            busiest: loads.iter().map(|(_, chunks)| chunks).max().unwrap_or(0),
            own: own(collective, algorithm, n as u64, chunks as u64),
        })
    }

    /// The bytes for chunks of `chunk_bytes` over `num_links` parallel links.
    pub fn traffic(&self, chunk_bytes: u64, num_links: usize) -> Traffic {
        let bytes = |chunks: u64| chunks.saturating_mul(chunk_bytes);
        Traffic {
            steps: self.steps,
            messages: self.messages,
            bytes: bytes(self.chunks),
            busiest_link_bytes: self
                .busiest
                .saturating_mul(chunk_bytes.div_ceil(num_links.max(1) as u64)),
            own_bytes: bytes(self.own),
        }
    }
}

/// What a collective with a payload of `bytes` costs; the numbers of [`Schedule`](super::Schedule) for groups of any size.
///
/// The time grows as the number of devices. Who counts the same group again and again keeps its [`Count`].
///
/// # Errors
/// Those of [`Collective::check`]; [`MeshError::TooManyLinks`] for `num_links` 0.
pub fn traffic(
    collective: &Collective,
    fabric: &Fabric,
    algorithm: Algorithm,
    bytes: u64,
    num_links: usize,
) -> Result<Traffic, MeshError> {
    collective.check(fabric.num_devices(), algorithm)?;
    check_links(num_links, num_links.max(1))?;
    let (_, size) = chunk_bytes(collective, fabric, algorithm, bytes);
    Ok(Count::of(collective, fabric, algorithm)?.traffic(size, num_links))
}

/// Bytes over each connection in each direction, its parallel links together; what carries nothing is left out. For groups
/// of any size.
///
/// # Errors
/// Those of [`Collective::check`].
pub fn link_bytes(
    collective: &Collective,
    fabric: &Fabric,
    algorithm: Algorithm,
    bytes: u64,
) -> Result<BTreeMap<Link, u64>, MeshError> {
    collective.check(fabric.num_devices(), algorithm)?;
    if fabric.num_devices() == 1 {
        return Ok(BTreeMap::new());
    }
    let (chunks, size) = chunk_bytes(collective, fabric, algorithm, bytes);
    let loads = Loads::of(collective, fabric, algorithm, chunks);
    Ok(loads
        .iter()
        .map(|(link, chunks)| (link, chunks.saturating_mul(size)))
        .filter(|(_, bytes)| *bytes > 0)
        .collect())
}

/// Steps and messages of a group of at least two devices.
fn steps_and_messages(collective: &Collective, fabric: &Fabric, algorithm: Algorithm, chunks: u64) -> (u64, u64) {
    let n = fabric.num_devices() as u64;
    let axes = [Along::Rows, Along::Columns].map(|along| {
        let (size, lines) = (fabric.size(along) as u64, fabric.num_lines(along) as u64);
        (size, lines, fabric.wraps(along))
    });
    let along = |size: u64, wraps: bool| if wraps { size / 2 } else { size - 1 };
    let reach = |device| fabric.reach(device) as u64;
    let farthest: u64 = axes.iter().map(|(size, _, wraps)| along(*size, *wraps)).sum();
    let phases = if matches!(collective, Collective::AllReduce(_)) {
        2
    } else {
        1
    };
    let levels = u64::from(n.next_power_of_two().trailing_zeros());
    match (collective, algorithm) {
        (
            Collective::AllGather | Collective::AllBroadcast | Collective::ReduceScatter | Collective::AllReduce(_),
            Algorithm::Canonical,
        ) => {
            let messages: u64 = axes.iter().map(|(size, lines, _)| lines * size * (size - 1)).sum();
            (phases * farthest, phases * messages)
        }
        (Collective::Barrier, _) => {
            let messages = axes
                .iter()
                .map(|(size, lines, wraps)| lines * (size - 1) * if *wraps { *size } else { 2 });
            (farthest, messages.sum())
        }
        (_, Algorithm::Ring) => (phases * (n - 1), phases * n * (n - 1)),
        (_, Algorithm::Tree) => (phases * levels, phases * (n - 1)),
        (_, Algorithm::Server) => (2 * reach(0), 2 * (n - 1)),
        (Collective::Broadcast { root }, Algorithm::Canonical) => (reach(*root) + chunks - 1, chunks * (n - 1)),
        (Collective::Broadcast { root } | Collective::Gather { root } | Collective::Scatter { root }, _) => {
            (reach(*root), n - 1)
        }
        (Collective::PointToPoint { from, to }, _) => {
            let messages = u64::from(from != to);
            (messages, messages)
        }
        (Collective::Shift { by }, _) => match by.rem_euclid(n as isize) {
            0 => (0, 0),
            _ => (1, n),
        },
        _ => (farthest, n * (n - 1)),
    }
}

/// Chunks of own data of the device that has most of it to give.
fn own(collective: &Collective, algorithm: Algorithm, n: u64, chunks: u64) -> u64 {
    match (collective, algorithm) {
        (Collective::AllReduce(_), Algorithm::Canonical | Algorithm::Ring) => 2 * (n - 1),
        (Collective::Broadcast { .. }, _) => chunks * (n - 1),
        (Collective::ReduceScatter, Algorithm::Naive) => n * (n - 1),
        (Collective::Gather { .. }, _) => 1,
        (Collective::PointToPoint { from, to }, _) => u64::from(from != to),
        (Collective::Shift { by }, _) => u64::from(by.rem_euclid(n as isize) != 0),
        _ => n - 1,
    }
}
