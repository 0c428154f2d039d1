//! Collective schedules as data: who sends which chunk to whom over which link, step by step.
//!
//! A [`Schedule`] lists every message of a [`Collective`] over the devices of a [`Fabric`]; [`traffic`] and [`link_bytes`]
//! count the same without listing, for groups of any size. Nothing is computed or sent here: the runtime counts with it and
//! `unisono explain` prints it.
//!
//! # What is counted
//!
//! The payload is cut into *chunks* of equal size; where the bytes do not divide, a chunk is rounded up to whole bytes. A
//! message goes to a neighbour, or over the devices of a *route* to one farther away, and costs every link of it. A link is
//! full duplex: its two directions are counted apart. `num_links` parallel links share each chunk. A step is over when its
//! messages have arrived, and costs the latency of the longest route and the time of its busiest link.
//!
//! A device's *own data* is what it brings: its addends, alone or within a partial sum that it sends, and the chunks that
//! it held or finished first, counted once for each device that gets them, whoever passes them on. In an all-reduce that is
//! 2(n−1)/n of the payload for each device: n−1 chunks of addends for the others, and the finished chunk for n−1 others.
//! *Forwarded* is what devices put on a link that began elsewhere.
//!
//! # Numbers of the canonical algorithm
//!
//! In chunks of B/n, for n devices; *busiest* is the busiest link in one direction.
//!
//! | collective | line: steps, busiest | ring of n ≥ 3: steps, busiest | bytes in all |
//! |---|---|---|---|
//! | all-gather, all-broadcast¹ | n−1, n−1 | ⌊n/2⌋, ⌊n/2⌋ | n(n−1) |
//! | reduce-scatter² | n−1, n−1 | ⌊n/2⌋, ⌊n/2⌋ | n(n−1) |
//! | all-reduce, max or min | 2(n−1), n | 2⌊n/2⌋, n−1 | 2n(n−1) |
//! | broadcast³ | r+n−1, n | r+n−1, n | n(n−1) |
//! | gather, scatter | r, r | r, r | sum of the distances to the root |
//! | all-to-all | n−1, ⌊n/2⌋⌈n/2⌉ | ⌊n/2⌋, ⌈n²/8⌉ | n(n²−1)/3; on a ring n⌊n²/4⌋ |
//! | point-to-point¹ | 1, 1 | 1, 1 | the distance |
//! | shift by k¹, 0 < k < n | 1, max of min(k, n−k) | 1, min(k, n−k) (half of it, rounded up, at k = n/2) | 2k(n−k); on a ring n·min(k, n−k) |
//!
//! ¹ a chunk is all of B. ² as far as bytes go with max or min; for sums see below. ³ r is the largest distance from the root;
//! with r = 1 it is one chunk in one step.
//!
//! The plain ring of the textbooks ([`Algorithm::Ring`]) takes n−1 steps with n−1 chunks over each link of one direction, for
//! an all-reduce twice that; the canonical schedules use both directions and halve it.
//!
//! **Sums.** Device c finishes chunk c and needs every device's addends for it. A device may add what passes through it only
//! where the result is a node of the canonical tree (or its first children), so instead of one partial sum a link carries as
//! many as the devices behind it have [spans](CanonicalTree::spans), s(a..b) for the devices a to b−1 (for a power of two
//! and a = 0, the ones in binary b). In a line the link from k to k+1 carries
//!
//! > (n−1−k)·s(0..k+1) chunks in a reduce-scatter, and k+1 more in an all-reduce,
//!
//! and the link back (k+1)·s(k+1..n), and n−1−k more. A direct exchange, in which nothing is added on the way, would carry
//! (n−1−k)(k+1), the plain sum n−1−k. On a ring the ⌊n/2⌋ devices before c send forward and the rest backward, where n and c
//! are even; where n is even and c odd the ⌊n/2⌋ after c send backward and the rest forward; where n is odd half of them each
//! way. A link carries, for each chunk that passes it, the spans of the devices behind it, those before and after the end of the
//! row counted apart. On a ring of four that is n−1 chunks in an all-reduce, as few as the plain sum's. All of it counts
//! one addend a device; where a device's share of the units is several spans (`docs/exactness.md`), the reduce-scatter's part
//! grows by as many.
//!
//! **Grids** go by dimension: a reduction along the rows first, in which each place of a row collects the chunks of its whole
//! column, then along the columns with one chunk each; a gathering walks back the same way, along the columns with one chunk
//! and then along the rows with a whole column's. So r rows of c devices take the steps of both axes, and the links of a row
//! carry r times what a line of c devices carries, those of a column what a line of r does. A message to one device goes
//! along its row first, then along the column.

mod build;
mod collected;
mod collective;
mod explain;
mod fabric;
mod forms;
mod group;
mod loads;
mod messages;
mod simulate;
mod traffic;
mod tree;
mod words;

pub use collective::{Algorithm, Collective, Reduction};
pub use explain::{Question, explain};
pub use fabric::{Fabric, Link, Topology};
pub use forms::{ClosedForm, Form};
pub use group::{Group, topology_for};
pub use messages::{MAX_LISTED, Part, Schedule, Send, Step, chunk_bytes};
pub use simulate::Holdings;
pub use traffic::{Count, Traffic, link_bytes, traffic};
pub use tree::CanonicalTree;

use crate::MeshError;

/// What a link costs, in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkModel {
    /// Bytes per second of one of the parallel links.
    pub bandwidth: f64,
    /// Seconds that a message takes over a link beside that.
    pub latency: f64,
}

/// Checks that connections of `channels` channels can give `num_links` parallel links.
///
/// # Errors
/// [`MeshError::TooManyLinks`] where it is 0 or above `channels`.
pub fn check_links(num_links: usize, channels: usize) -> Result<(), MeshError> {
    if num_links == 0 || num_links > channels {
        return Err(MeshError::TooManyLinks {
            asked: num_links,
            channels,
        });
    }
    Ok(())
}
