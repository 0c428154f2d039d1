//! The closed forms of the canonical algorithm on lines and rings, as formula and as number.

use super::fabric::Along;
use super::{CanonicalTree, Collective, Fabric};

/// A formula in words and symbols, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// The formula, with n for the number of devices.
    pub formula: String,
    /// What it comes to.
    pub value: u64,
}

/// Steps, chunks over all links, and chunks over the busiest connection in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedForm {
    /// Number of steps.
    pub steps: Form,
    /// Chunks times links.
    pub chunks: Form,
    /// Chunks over the busiest connection in its busier direction.
    pub busiest: Form,
}

fn form(formula: impl Into<String>, value: usize) -> Form {
    Form {
        formula: formula.into(),
        value: value as u64,
    }
}

impl ClosedForm {
    /// What a collective's canonical schedule comes to on a line or ring of at least two devices; nothing for grids (by
    /// dimension, see the [module](crate::schedule)) and for the barrier, which carries nothing.
    pub fn of(collective: &Collective, fabric: &Fabric) -> Option<Self> {
        let n = fabric.num_devices();
        if !fabric.is_line() || n < 2 {
            return None;
        }
        let ring = fabric.wraps(Along::Rows);
        let half = n / 2;
        let far = |root: usize| if ring { half } else { root.max(n - 1 - root) };
        let distances = |root: usize| {
            let sum = |arm: usize| arm * (arm + 1) / 2;
            if ring {
                sum(half) + sum(n - 1 - half)
            } else {
                sum(root) + sum(n - 1 - root)
            }
        };
        Some(match collective {
            Collective::AllGather | Collective::AllBroadcast => Self {
                steps: if ring {
                    form("⌊n/2⌋", half)
                } else {
                    form("n−1", n - 1)
                },
                chunks: form("n(n−1)", n * (n - 1)),
                busiest: if ring {
                    form("⌊n/2⌋", half)
                } else {
                    form("n−1", n - 1)
                },
            },
            Collective::AllReduce(reduction) if !reduction.is_sum() => Self {
                steps: if ring {
                    form("2⌊n/2⌋", 2 * half)
                } else {
                    form("2(n−1)", 2 * (n - 1))
                },
                chunks: form("2n(n−1)", 2 * n * (n - 1)),
                busiest: if ring { form("n−1", n - 1) } else { form("n", n) },
            },
            Collective::ReduceScatter => Self {
                steps: if ring {
                    form("⌊n/2⌋", half)
                } else {
                    form("n−1", n - 1)
                },
                ..sums(n, ring, false)
            },
            Collective::AllReduce(_) => Self {
                steps: if ring {
                    form("2⌊n/2⌋", 2 * half)
                } else {
                    form("2(n−1)", 2 * (n - 1))
                },
                ..sums(n, ring, true)
            },
            Collective::Broadcast { root } if far(*root) == 1 => Self {
                steps: form("1", 1),
                chunks: form("n−1", n - 1),
                busiest: form("1", 1),
            },
            Collective::Broadcast { root } => Self {
                steps: form(format!("{} + n−1", far(*root)), far(*root) + n - 1),
                chunks: form("n(n−1)", n * (n - 1)),
                busiest: form("n", n),
            },
            Collective::Gather { root } | Collective::Scatter { root } => Self {
                steps: form("the largest distance from the root", far(*root)),
                chunks: form("the sum of the distances from the root", distances(*root)),
                busiest: form("the longer side of the root", far(*root)),
            },
            Collective::AllToAll => Self {
                steps: if ring {
                    form("⌊n/2⌋", half)
                } else {
                    form("n−1", n - 1)
                },
                chunks: if ring {
                    form("n⌊n²/4⌋", n * (n * n / 4))
                } else {
                    form("n(n²−1)/3", n * (n * n - 1) / 3)
                },
                busiest: match (ring, n.is_multiple_of(2)) {
                    (false, _) => form("⌊n/2⌋⌈n/2⌉", half * n.div_ceil(2)),
                    (true, false) => form("(n²−1)/8", (n * n - 1) / 8),
                    (true, true) => form("⌈n²/8⌉", (n * n).div_ceil(8)),
                },
            },
            Collective::PointToPoint { from, to } => {
                let distance = fabric.distance(*from, *to);
                let once = usize::from(distance > 0);
                Self {
                    steps: form("1", once),
                    chunks: form("the distance", distance),
                    busiest: form("1", once),
                }
            }
            Collective::Shift { by } => {
                let ahead = by.rem_euclid(n as isize) as usize;
                let near = ahead.min(n - ahead);
                let once = usize::from(ahead > 0);
                match ring {
                    true if 2 * ahead == n => Self {
                        steps: form("1", once),
                        chunks: form("n²/2", n * near),
                        busiest: form("⌈n/4⌉, half of them each way round", n.div_ceil(4)),
                    },
                    true => Self {
                        steps: form("1", once),
                        chunks: form("n·k, k = the shorter way round", n * near),
                        busiest: form("k", near),
                    },
                    false => Self {
                        steps: form("1", once),
                        chunks: form("2k(n−k)", 2 * ahead * (n - ahead)),
                        busiest: form("the smaller of k and n−k", near),
                    },
                }
            }
            Collective::Barrier => return None,
        })
    }
}

/// The bytes of canonical sums: written as their definition, link by link and target by target.
fn sums(n: usize, ring: bool, gathers: bool) -> ClosedForm {
    let tree = CanonicalTree::over(n);
    // Partial sums of `len` devices from `first` on, round the end.
    let spans = |first: usize, len: usize| {
        let first = first % n;
        if first + len <= n {
            tree.num_spans(first..first + len)
        } else {
            tree.num_spans(first..n) + tree.num_spans(0..first + len - n)
        }
    };
    let mut ahead = vec![0; n];
    let mut back = vec![0; n];
    for chunk in 0..n {
        let (before, after) = match (ring, n.is_multiple_of(2), chunk.is_multiple_of(2)) {
            (false, ..) => (chunk, n - 1 - chunk),
            (true, true, true) => (n / 2, n / 2 - 1),
            (true, true, false) => (n / 2 - 1, n / 2),
            (true, false, _) => (n / 2, n / 2),
        };
        for distance in 1..=before {
            ahead[(chunk + n - distance) % n] += spans(chunk + n - before, before + 1 - distance);
        }
        for distance in 1..=after {
            back[(chunk + distance) % n] += spans(chunk + distance, after + 1 - distance);
        }
        if gathers {
            let (ahead_of, behind) = if ring { (before, after) } else { (after, before) };
            (0..ahead_of).for_each(|distance| ahead[(chunk + distance) % n] += 1);
            (0..behind).for_each(|distance| back[(chunk + n - distance) % n] += 1);
        }
    }
    let total: u64 = ahead.iter().chain(&back).sum();
    let busiest = ahead.iter().chain(&back).copied().max().unwrap_or(0);
    let (all, most) = match (ring, gathers) {
        (false, false) => (
            "Σ over links k → k+1 of (n−1−k)·s(0..k+1), and back",
            "the largest of these terms",
        ),
        (false, true) => (
            "Σ over links k → k+1 of (n−1−k)·s(0..k+1) + k+1, and back",
            "the largest of these terms",
        ),
        (true, false) => (
            "Σ over links and chunks that pass of s(devices behind)",
            "the largest for one link",
        ),
        (true, true) => (
            "Σ over links and chunks that pass of s(devices behind), + n(n−1)",
            "the largest for one link",
        ),
    };
    ClosedForm {
        steps: form("", 0),
        chunks: Form {
            formula: all.into(),
            value: total,
        },
        busiest: Form {
            formula: most.into(),
            value: busiest,
        },
    }
}
