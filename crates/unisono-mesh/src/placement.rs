//! How a tensor lies along one mesh axis.

use std::fmt;

/// The placement of a tensor along *one* axis of its mesh. A tensor has one placement per axis.
///
/// With a global tensor of shape `[.., n, ..]` and `k` devices on the axis:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Placement {
    /// Every device holds the whole tensor, equal to the bit.
    #[default]
    Replicate,
    /// Device `i` holds the `i`-th run of consecutive indices of tensor dim `.0` (counted from 0, outermost
    /// first); the runs in device order make up the whole.
    Shard(
        /// The tensor dim that is cut.
        usize,
    ),
    /// Every device holds addends, of the tensor's full shape, of a sum that still has to be reduced over the
    /// axis. It may only be moved or reduced: never added to, scaled, cast or multiplied.
    Partial,
}

impl Placement {
    /// The dim that is cut, if one is.
    pub fn sharded_dim(self) -> Option<usize> {
        match self {
            Placement::Shard(dim) => Some(dim),
            Placement::Replicate | Placement::Partial => None,
        }
    }

    /// True when every device holds the whole tensor.
    pub fn is_replicate(self) -> bool {
        self == Placement::Replicate
    }

    /// True when a sum is still to be reduced.
    pub fn is_partial(self) -> bool {
        self == Placement::Partial
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicate => write!(f, "Replicate"),
            Placement::Shard(dim) => write!(f, "Shard({dim})"),
            Placement::Partial => write!(f, "Partial"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Placement;

    #[test]
    fn placements_print_as_they_are_written_and_answer_for_themselves() {
        assert_eq!(Placement::Shard(2).to_string(), "Shard(2)");
        assert_eq!(Placement::Shard(2).sharded_dim(), Some(2));
        assert_eq!(Placement::Partial.sharded_dim(), None);
        assert!(Placement::Partial.is_partial() && !Placement::Partial.is_replicate());
        assert!(Placement::default().is_replicate());
    }
}
