//! The collectives, the algorithms, and which collective has which.

use crate::MeshError;
use std::fmt;

/// What an all-reduce does with the devices' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum, in the canonical order.
    Sum,
    /// Their sum divided by their number; it travels as the sum.
    Mean,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Reduction {
    /// True where the order of the operands matters to the bits.
    pub fn is_sum(self) -> bool {
        matches!(self, Self::Sum | Self::Mean)
    }

    /// `sum`, `mean`, `max` or `min`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

/// A collective over a group of `n` devices. What its *payload* of B bytes is stands beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Every device has 1/n of B and gets all of it.
    AllGather,
    /// Every device has B; each gets the sum of 1/n of it.
    ReduceScatter,
    /// Every device has B and gets the sum (or mean, maximum, minimum) of all.
    AllReduce(Reduction),
    /// The root has B; every device gets it.
    Broadcast {
        /// The device that has it.
        root: usize,
    },
    /// Every device has B and gets the B of every other beside it.
    AllBroadcast,
    /// Every device has B in n parts, and sends the i-th to device i.
    AllToAll,
    /// Every device has 1/n of B; the root gets all of it.
    Gather {
        /// The device that gets it.
        root: usize,
    },
    /// The root has B in n parts; device i gets the i-th.
    Scatter {
        /// The device that has it.
        root: usize,
    },
    /// One device sends B to another.
    PointToPoint {
        /// The sender.
        from: usize,
        /// The receiver.
        to: usize,
    },
    /// Every device sends B to the one `by` places further, round the end; negative `by` goes back.
    Shift {
        /// Places.
        by: isize,
    },
    /// No device goes on before all have come; nothing is carried.
    Barrier,
}

/// How a collective is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// What unisono does: the fewest bytes at the busiest link that leave sums in the canonical order.
    Canonical,
    /// The ring of the textbooks: all data goes round in one direction. It uses the bandwidth of every device fully, but adds in
    /// another order on every device.
    Ring,
    /// A binomial tree: towards device 0 and back, or from the root.
    Tree,
    /// Everything to device 0, and the result from there to each.
    Server,
    /// Everyone sends everything to everyone.
    Naive,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Canonical, Self::Ring, Self::Tree, Self::Server, Self::Naive];

    /// `canonical`, `ring`, `tree`, `server` or `naive`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Canonical => "canonical",
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Server => "server",
            Self::Naive => "naive",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Collective {
    /// The name without its arguments: `all-gather`, `point-to-point`, ….
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllReduce(_) => "all-reduce",
            Self::Broadcast { .. } => "broadcast",
            Self::AllBroadcast => "all-broadcast",
            Self::AllToAll => "all-to-all",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::PointToPoint { .. } => "point-to-point",
            Self::Shift { .. } => "shift",
            Self::Barrier => "barrier",
        }
    }

    /// The algorithms that it has.
    pub fn algorithms(&self) -> &'static [Algorithm] {
        use Algorithm::{Canonical, Naive, Ring, Server, Tree};
        match self {
            Self::AllReduce(_) => &Algorithm::ALL,
            Self::ReduceScatter => &[Canonical, Ring, Naive],
            Self::AllGather | Self::AllBroadcast => &[Canonical, Ring, Server, Naive],
            Self::Broadcast { .. } => &[Canonical, Tree, Naive],
            _ => &[Canonical],
        }
    }

    /// What the payload is, in words.
    pub fn payload(&self) -> &'static str {
        match self {
            Self::AllGather => "the gathered tensor; each device brings its n-th part",
            Self::ReduceScatter => "each device's tensor; each gets its n-th part of the sum",
            Self::AllReduce(_) => "each device's tensor",
            Self::Broadcast { .. } => "the root's tensor",
            Self::AllBroadcast => "each device's tensor; each gets all n",
            Self::AllToAll => "each device's tensor in n parts, the i-th for device i",
            Self::Gather { .. } => "the gathered tensor; each device brings its n-th part",
            Self::Scatter { .. } => "the root's tensor in n parts, the i-th for device i",
            Self::PointToPoint { .. } => "the tensor sent",
            Self::Shift { .. } => "each device's tensor",
            Self::Barrier => "nothing",
        }
    }

    /// What is combined on the way: sums (canonical order), other reductions (any order), or nothing.
    pub(super) fn reduction(&self) -> Option<Reduction> {
        match self {
            Self::ReduceScatter => Some(Reduction::Sum),
            Self::AllReduce(reduction) => Some(*reduction),
            _ => None,
        }
    }

    /// Checks that the devices named are in a group of `n` and that the algorithm is one of the collective's.
    ///
    /// # Errors
    /// [`MeshError::NotInGroup`] or [`MeshError::NoAlgorithm`].
    pub fn check(&self, n: usize, algorithm: Algorithm) -> Result<(), MeshError> {
        let named = match self {
            Self::Broadcast { root } | Self::Gather { root } | Self::Scatter { root } => [*root, *root],
            Self::PointToPoint { from, to } => [*from, *to],
            _ => [0, 0],
        };
        if let Some(device) = named.into_iter().find(|device| *device >= n) {
            return Err(MeshError::NotInGroup {
                collective: self.name(),
                device,
                last: n - 1,
            });
        }
        if !self.algorithms().contains(&algorithm) {
            let names: Vec<&str> = self.algorithms().iter().map(|algorithm| algorithm.name()).collect();
            return Err(MeshError::NoAlgorithm {
                collective: self.name(),
                algorithm: algorithm.name(),
                known: names.join(", "),
            });
        }
        Ok(())
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllReduce(reduction) => write!(f, "all-reduce ({})", reduction.name()),
            Self::Broadcast { root } => write!(f, "broadcast from device {root}"),
            Self::Gather { root } => write!(f, "gather to device {root}"),
            Self::Scatter { root } => write!(f, "scatter from device {root}"),
            Self::PointToPoint { from, to } => write!(f, "point-to-point from device {from} to device {to}"),
            Self::Shift { by } => write!(f, "shift by {by}"),
            _ => f.write_str(self.name()),
        }
    }
}
