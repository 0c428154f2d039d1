//! What attention is given, how it lies, and how the work is cut into tiles.

use super::{CUT, ENOUGH_TILES, MAX_HEAD_DIM};
use crate::element::Floats;

/// Where an element lies: at `b * batch + t * token + g * group + r * head + c` for sequence `b`, token `t`, group `g`,
/// query head `r` of the group and `c < head_dim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Elements from one sequence to the next.
    pub batch: usize,
    /// Elements from one token to the next.
    pub token: usize,
    /// Elements from one key/value group to the next.
    pub group: usize,
    /// Elements from one query head of a group to the next; unused for keys and values.
    pub head: usize,
}

impl Layout {
    #[inline(always)]
    pub(super) fn at(&self, b: usize, t: usize, g: usize, r: usize) -> usize {
        b * self.batch + t * self.token + g * self.group + r * self.head
    }

    /// Whether `len` elements hold all rows of `d`.
    fn fits(&self, len: usize, batch: usize, tokens: usize, groups: usize, heads: usize, d: usize) -> bool {
        let counts = [batch, tokens, groups, heads];
        counts.contains(&0) || self.at(batch - 1, tokens - 1, groups - 1, heads - 1) + d <= len
    }
}

/// Sizes and options of attention.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Key/value groups.
    pub groups: usize,
    /// Query heads that share a group.
    pub heads_per_group: usize,
    /// Elements of a head, 1 to [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Query tokens of a sequence.
    pub queries: usize,
    /// Key tokens of a sequence.
    pub keys: usize,
    /// Whether query `i` sees only the keys `0..=first_query + i`, those at or before its own position.
    pub causal: bool,
    /// Factor of the scores, above 0: `1/sqrt(head_dim)` as a rule.
    pub scale: f32,
}

/// What the forward and the backward pass are given.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Sizes and options.
    pub shape: Shape,
    /// Queries, laid out by `q_layout`. The three inputs may be one array; the slices then begin where each does.
    pub q: Floats<'a>,
    /// Layout of `q` and of its gradient.
    pub q_layout: Layout,
    /// Keys, laid out by `k_layout`.
    pub k: Floats<'a>,
    /// Layout of `k` and of its gradient.
    pub k_layout: Layout,
    /// Values, laid out by `v_layout`.
    pub v: Floats<'a>,
    /// Layout of `v` and of its gradient.
    pub v_layout: Layout,
    /// Per sequence the position of its query 0 among the keys (decoding with a cache); 0 without it.
    pub first_query: Option<&'a [u32]>,
    /// `[batch or 1, queries, keys]`, 0 for a key that is not seen, besides causality.
    pub mask: Option<&'a [u8]>,
    /// Elements from one sequence's mask to the next, 0 for one mask for all.
    pub mask_batch: usize,
    /// Layout of the result and of its gradient.
    pub out_layout: Layout,
}

impl Inputs<'_> {
    /// Tiles of the forward pass.
    pub fn tiles(&self) -> usize {
        self.shape.batch * self.shape.groups * self.cuts()
    }

    /// Tiles of the backward pass.
    pub fn gradient_tiles(&self) -> usize {
        let pairs = self.shape.batch * self.shape.groups;
        match pairs >= ENOUGH_TILES {
            true => pairs,
            false => pairs * (self.query_cuts() + self.key_cuts()),
        }
    }

    /// Rows of one sequence and group: each query of each query head.
    pub(super) fn rows(&self) -> usize {
        self.shape.heads_per_group * self.shape.queries
    }

    /// Rows of all of them.
    pub(super) fn num_rows(&self) -> usize {
        self.shape.batch * self.shape.groups * self.rows()
    }

    /// The query head of the group, and its query, that are row `row`.
    #[inline(always)]
    pub(super) fn head_and_query(&self, row: usize) -> (usize, usize) {
        // A division is slow, and most groups have one head.
        match row < self.shape.queries {
            true => (0, row),
            false => (row / self.shape.queries, row % self.shape.queries),
        }
    }

    /// Tiles of a sequence and group in the forward pass.
    pub(super) fn cuts(&self) -> usize {
        match self.shape.batch * self.shape.groups >= ENOUGH_TILES {
            true => 1,
            false => self.rows().div_ceil(CUT).max(1),
        }
    }

    /// Tiles of a sequence and group that compute `dq` only.
    pub(super) fn query_cuts(&self) -> usize {
        self.shape.heads_per_group * self.shape.queries.div_ceil(CUT)
    }

    /// Tiles of a sequence and group that compute `dk` and `dv` only.
    pub(super) fn key_cuts(&self) -> usize {
        self.shape.keys.div_ceil(CUT)
    }

    /// Whether `len` elements hold what each query has.
    pub(super) fn has_queries(&self, layout: Layout, len: usize) -> bool {
        let heads = self.shape.heads_per_group;
        layout.fits(
            len,
            self.shape.batch,
            self.shape.queries,
            self.shape.groups,
            heads,
            self.shape.head_dim,
        )
    }

    /// Whether `len` elements hold what each key has.
    pub(super) fn has_keys(&self, layout: Layout, len: usize) -> bool {
        layout.fits(
            len,
            self.shape.batch,
            self.shape.keys,
            self.shape.groups,
            1,
            self.shape.head_dim,
        )
    }

    /// Fails if something does not fit, or the results do not.
    pub(super) fn check(&self, results_fit: bool) {
        assert!(
            (1..=MAX_HEAD_DIM).contains(&self.shape.head_dim) && self.shape.scale > 0.0,
            "bug in unisono: attention with heads of {} and scale {}",
            self.shape.head_dim,
            self.shape.scale
        );
        assert!(
            results_fit
                && self.has_queries(self.q_layout, self.q.len())
                && self.has_keys(self.k_layout, self.k.len())
                && self.has_keys(self.v_layout, self.v.len())
                && self.first_query.is_none_or(|first| first.len() >= self.shape.batch),
            "bug in unisono: an array of attention is too short for {} sequences of {} queries and {} keys in {} groups of {} heads \
             of {}",
            self.shape.batch,
            self.shape.queries,
            self.shape.keys,
            self.shape.groups,
            self.shape.heads_per_group,
            self.shape.head_dim
        );
    }
}
