//! Scaled dot-product attention, forward and backward, without a matrix of queries times keys.
//!
//! The method is that of Dao, Fu, Ermon, Rudra and Ré, *FlashAttention* (2022) and Dao, *FlashAttention-2* (2023), with an
//! order that belongs to the query alone: blocks of [`BLOCK`] keys are counted from key 0 of the sequence, and what a query
//! does not see is skipped, never multiplied by 0. So a prompt gives equal bits in one call, in chunks and token by token.
//!
//! # Forward order, for each query
//!
//! * `dot(j) = Σ_c q[c] k[j][c]` in the order of [`order::dot`](crate::order::dot) with one unit of `head_dim`;
//! * for each block of keys, ascending, of which the query sees at least one key:
//!   * `top' = max(top, dot(j) of the seen keys)`, `m' = top' · scale`, `α = exp(m − m')` (0 at the first block);
//!   * `p(j) = exp(fma(dot(j), scale, −m'))`;
//!   * `sum[l] = fma(sum[l], α, ((p(l) + p(16 + l)) + p(32 + l)) + p(48 + l))` for the lanes `l` = key mod 16;
//!   * `acc[c] = fma(acc[c], α, Σ_j p(j) v[j][c])`, the block's sum by fused multiply-add over its seen keys, ascending,
//!     from +0;
//! * `total` = the 16 lanes of `sum` folded 8-4-2-1; `out = acc · (1 / total) + 0`, `lse = m + ln(total)`. A query that
//!   sees no key gives zeros and `lse = −∞`.
//!
//! # Backward order
//!
//! * `D(i) = Σ_c d_out[i][c] out[i][c]` in the order of [`order::row_sum`](crate::order::row_sum), fused;
//! * `p(i, j) = exp(fma(dot(i, j), scale, −lse(i)))`, `dp(i, j) = Σ_c d_out[i][c] v[j][c]` (as `dot`),
//!   `ds(i, j) = p · (dp − D(i))`;
//! * `dq(i) = scale · Σ_blocks Σ_j ds(i, j) k[j]`: a block's sum by fused multiply-add over the seen keys from +0, blocks
//!   added ascending from +0;
//! * `dv(j) = Σ_heads Σ_blocks Σ_i p(i, j) d_out[i]` and `dk(j) = scale · Σ_heads Σ_blocks Σ_i ds(i, j) q[i]`: blocks of
//!   [`BLOCK`] queries counted from query 0 of the call, as for `dq`; the finished sums of a group's query heads are added
//!   left to right; +0 is added at the store.
//!
//! None of it depends on the tiles, so any worker may run any tile, in any order.
//!
//! # bf16
//!
//! Queries, keys, values, the output and their gradients may be bf16, all of them in one call. They are read as the f32 that
//! they are, all of the above is computed in f32, and each stored element (`out`, `dq`, `dk`, `dv`) is rounded once, to
//! nearest even; `D` uses `out` as it was stored. `lse` stays f32.

mod ahead;
mod backward;
mod forward;
mod micro;
mod pack;
mod seen;

use crate::element::{Bf16, Floats, OutFloats, mixed};
use crate::out::Out;
use crate::scratch::Scratch;
use crate::simd::dispatch;
use backward::run as backward_part;
use forward::run as forward_part;
use seen::Seen;

/// Keys, and in the backward pass queries, of one block.
pub const BLOCK: usize = 64;

/// Largest `head_dim`.
pub const MAX_HEAD_DIM: usize = 256;

/// Pairs of a sequence and a group from which each is one tile; fewer are cut further.
const ENOUGH_TILES: usize = 16;

/// Queries, or keys, of a tile where sequences are cut.
const CUT: usize = 128;

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
    fn at(&self, b: usize, t: usize, g: usize, r: usize) -> usize {
        b * self.batch + t * self.token + g * self.group + r * self.head
    }

    /// Whether `len` elements hold all rows of `d`.
    fn fits(&self, len: usize, batch: usize, tokens: usize, groups: usize, heads: usize, d: usize) -> bool {
        let counts = [batch, tokens, groups, heads];
        counts.contains(&0) || self.at(batch - 1, tokens - 1, groups - 1, heads - 1) + d <= len
    }
}

/// Forward attention: `out = softmax(scale · q kᵀ) v` for each query head, over the keys that a query sees.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Sequences.
    pub batch: usize,
    /// Key/value heads.
    pub groups: usize,
    /// Query heads that share a key/value head.
    pub heads_per_group: usize,
    /// Elements of a head, 1 to [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Queries of a sequence.
    pub queries: usize,
    /// Keys of a sequence.
    pub keys: usize,
    /// Queries, laid out by `q_layout`. The three inputs may be one array; the slices then begin where each does.
    pub q: Floats<'a>,
    /// Layout of `q`.
    pub q_layout: Layout,
    /// Keys, laid out by `k_layout`.
    pub k: Floats<'a>,
    /// Layout of `k`.
    pub k_layout: Layout,
    /// Values, laid out by `v_layout`.
    pub v: Floats<'a>,
    /// Layout of `v`.
    pub v_layout: Layout,
    /// Whether query `i` sees only the keys `0..=first_query + i`.
    pub causal: bool,
    /// Factor of the dot products, above 0.
    pub scale: f32,
    /// Per sequence the position of its query 0 among the keys (decoding with a cache); 0 without it.
    pub first_query: Option<&'a [u32]>,
    /// `[batch or 1, queries, keys]`, 0 for a key that is not seen, besides causality.
    pub mask: Option<&'a [u8]>,
    /// Elements from one sequence's mask to the next, 0 for one mask for all.
    pub mask_batch: usize,
    /// The result, laid out by `out_layout`.
    pub out: OutFloats<'a>,
    /// Layout of `out`.
    pub out_layout: Layout,
    /// `[batch, groups * heads_per_group, queries]`: the logarithm of each softmax's denominator, for the backward pass.
    pub lse: Option<Out<'a, f32>>,
}

/// The gradients of [`Attention`] with respect to `q`, `k` and `v`, written whole (nothing is added to what is there).
#[derive(Clone, Copy, Debug)]
pub struct AttentionGrad<'a> {
    /// Sequences.
    pub batch: usize,
    /// Key/value heads.
    pub groups: usize,
    /// Query heads that share a key/value head.
    pub heads_per_group: usize,
    /// Elements of a head, 1 to [`MAX_HEAD_DIM`].
    pub head_dim: usize,
    /// Queries of a sequence.
    pub queries: usize,
    /// Keys of a sequence.
    pub keys: usize,
    /// Queries, as in the forward pass.
    pub q: Floats<'a>,
    /// Layout of `q` and `dq`.
    pub q_layout: Layout,
    /// Keys, as in the forward pass.
    pub k: Floats<'a>,
    /// Layout of `k` and `dk`.
    pub k_layout: Layout,
    /// Values, as in the forward pass.
    pub v: Floats<'a>,
    /// Layout of `v` and `dv`.
    pub v_layout: Layout,
    /// As in the forward pass.
    pub causal: bool,
    /// As in the forward pass.
    pub scale: f32,
    /// As in the forward pass.
    pub first_query: Option<&'a [u32]>,
    /// As in the forward pass.
    pub mask: Option<&'a [u8]>,
    /// As in the forward pass.
    pub mask_batch: usize,
    /// The forward pass's result.
    pub out: Floats<'a>,
    /// Its gradient, laid out alike.
    pub d_out: Floats<'a>,
    /// Layout of `out` and `d_out`.
    pub out_layout: Layout,
    /// The forward pass's `lse`.
    pub lse: &'a [f32],
    /// Gradient of `q`; the three may be one array.
    pub dq: OutFloats<'a>,
    /// Gradient of `k`.
    pub dk: OutFloats<'a>,
    /// Gradient of `v`.
    pub dv: OutFloats<'a>,
}

impl Attention<'_> {
    /// Number of tiles, which do not depend on each other.
    pub fn tiles(&self) -> usize {
        self.batch * self.groups * self.cuts()
    }

    /// Rows of one sequence and group: each query of each query head.
    fn rows(&self) -> usize {
        self.heads_per_group * self.queries
    }

    /// The query head of the group, and its query, that are row `row`.
    #[inline(always)]
    fn head_and_query(&self, row: usize) -> (usize, usize) {
        // A division is slow, and most groups have one head.
        match row < self.queries {
            true => (0, row),
            false => (row / self.queries, row % self.queries),
        }
    }

    fn cuts(&self) -> usize {
        match self.batch * self.groups >= ENOUGH_TILES {
            true => 1,
            false => self.rows().div_ceil(CUT).max(1),
        }
    }

    /// Runs one tile.
    ///
    /// # Panics
    /// If arrays are of different kinds, one is too short for its layout, `head_dim` is 0 or above [`MAX_HEAD_DIM`], or `scale` is not above 0: bugs in
    /// unisono.
    pub fn run(&self, tile: usize, scratch: &mut Scratch) {
        self.check();
        let (cuts, rows) = (self.cuts(), self.rows());
        let pair = tile / cuts;
        // Causal tiles grow towards the end of a sequence, so the largest go first.
        let cut = cuts - 1 - tile % cuts;
        let rows = match cuts {
            1 => 0..rows,
            _ => cut * CUT..((cut + 1) * CUT).min(rows),
        };
        let part = forward::Part {
            b: pair / self.groups,
            g: pair % self.groups,
            rows,
        };
        let (isa, a) = (scratch.isa(), self);
        match (self.q, self.k, self.v, self.out) {
            (Floats::F32(q), Floats::F32(k), Floats::F32(v), OutFloats::F32(out)) => {
                let arrays = &forward::Arrays { q, k, v, out };
                dispatch!(isa, forward_part::<_, f32>(
                    a: &Attention, arrays: &forward::Arrays<f32>, part: forward::Part, scratch: &mut Scratch
                ));
            }
            (Floats::Bf16(q), Floats::Bf16(k), Floats::Bf16(v), OutFloats::Bf16(out)) => {
                let arrays = &forward::Arrays { q, k, v, out };
                dispatch!(isa, forward_part::<_, Bf16>(
                    a: &Attention, arrays: &forward::Arrays<Bf16>, part: forward::Part, scratch: &mut Scratch
                ));
            }
            _ => mixed("attention"),
        }
    }

    /// Floating-point operations of the two products, 2 a multiply-add, over the pairs that causality leaves.
    pub fn flops(&self) -> u64 {
        4 * (self.groups * self.heads_per_group * self.head_dim) as u64 * self.seen().pairs(self.batch)
    }

    fn seen(&self) -> Seen<'_> {
        Seen {
            queries: self.queries,
            keys: self.keys,
            causal: self.causal,
            first_query: self.first_query,
            mask: self.mask,
            mask_batch: self.mask_batch,
        }
    }

    fn check(&self) {
        let (b, g, r, d) = (self.batch, self.groups, self.heads_per_group, self.head_dim);
        assert!(
            (1..=MAX_HEAD_DIM).contains(&d) && self.scale > 0.0,
            "bug in unisono: attention with heads of {d} and scale {}",
            self.scale
        );
        assert!(
            self.q_layout.fits(self.q.len(), b, self.queries, g, r, d)
                && self.k_layout.fits(self.k.len(), b, self.keys, g, 1, d)
                && self.v_layout.fits(self.v.len(), b, self.keys, g, 1, d)
                && self.out_layout.fits(self.out.len(), b, self.queries, g, r, d)
                && self.lse.is_none_or(|lse| lse.len() >= b * g * r * self.queries)
                && self.first_query.is_none_or(|first| first.len() >= b),
            "bug in unisono: an array of attention is too short for {b} sequences of {} queries and {} keys in {g} groups \
             of {r} heads of {d}",
            self.queries,
            self.keys
        );
    }
}

impl AttentionGrad<'_> {
    /// Number of tiles, which do not depend on each other.
    pub fn tiles(&self) -> usize {
        let pairs = self.batch * self.groups;
        match pairs >= ENOUGH_TILES {
            true => pairs,
            false => pairs * (self.query_cuts() + self.key_cuts()),
        }
    }

    /// Tiles of a sequence and group that compute `dq` only.
    fn query_cuts(&self) -> usize {
        self.heads_per_group * self.queries.div_ceil(CUT)
    }

    /// Tiles of a sequence and group that compute `dk` and `dv` only.
    fn key_cuts(&self) -> usize {
        self.keys.div_ceil(CUT)
    }

    /// Runs one tile.
    ///
    /// # Panics
    /// As [`Attention::run`].
    pub fn run(&self, tile: usize, scratch: &mut Scratch) {
        self.check();
        let part = self.part(tile);
        let (isa, a) = (scratch.isa(), self);
        let inputs = [self.q, self.k, self.v, self.out, self.d_out];
        match (inputs, self.dq, self.dk, self.dv) {
            (
                [
                    Floats::F32(q),
                    Floats::F32(k),
                    Floats::F32(v),
                    Floats::F32(out),
                    Floats::F32(d_out),
                ],
                OutFloats::F32(dq),
                OutFloats::F32(dk),
                OutFloats::F32(dv),
            ) => {
                let arrays = &backward::Arrays {
                    q,
                    k,
                    v,
                    out,
                    d_out,
                    dq,
                    dk,
                    dv,
                };
                dispatch!(isa, backward_part::<_, f32>(
                    a: &AttentionGrad, arrays: &backward::Arrays<f32>, part: backward::Part, scratch: &mut Scratch
                ));
            }
            (
                [
                    Floats::Bf16(q),
                    Floats::Bf16(k),
                    Floats::Bf16(v),
                    Floats::Bf16(out),
                    Floats::Bf16(d_out),
                ],
                OutFloats::Bf16(dq),
                OutFloats::Bf16(dk),
                OutFloats::Bf16(dv),
            ) => {
                let arrays = &backward::Arrays {
                    q,
                    k,
                    v,
                    out,
                    d_out,
                    dq,
                    dk,
                    dv,
                };
                dispatch!(isa, backward_part::<_, Bf16>(
                    a: &AttentionGrad, arrays: &backward::Arrays<Bf16>, part: backward::Part, scratch: &mut Scratch
                ));
            }
            _ => mixed("the gradient of attention"),
        }
    }

    fn part(&self, tile: usize) -> backward::Part {
        let blocks = self.keys.div_ceil(BLOCK);
        let pairs = self.batch * self.groups;
        let whole = |pair: usize| backward::Part {
            b: pair / self.groups,
            g: pair % self.groups,
            heads: 0..self.heads_per_group,
            queries: 0..self.queries,
            blocks: 0..blocks,
            dq: true,
            dkv: true,
        };
        if pairs >= ENOUGH_TILES {
            return whole(tile);
        }
        let cuts = self.query_cuts() + self.key_cuts();
        let (part, cut) = (whole(tile / cuts), tile % cuts);
        let seen = self.seen();
        // The largest of a causal call first: the first keys, the last queries.
        if cut < self.key_cuts() {
            let first = cut * CUT / BLOCK;
            let seer = seen.first_seer(part.b, first * BLOCK).min(self.queries);
            return backward::Part {
                queries: seer / BLOCK * BLOCK..self.queries,
                blocks: first..(first + CUT / BLOCK).min(blocks),
                dq: false,
                ..part
            };
        }
        let cut = self.query_cuts() - 1 - (cut - self.key_cuts());
        let per_head = self.queries.div_ceil(CUT);
        let head = cut / per_head;
        let queries = cut % per_head * CUT..((cut % per_head + 1) * CUT).min(self.queries);
        let limit = seen.limit(part.b, queries.end - 1);
        backward::Part {
            heads: head..head + 1,
            queries,
            blocks: 0..limit.div_ceil(BLOCK),
            dkv: false,
            ..part
        }
    }

    /// Floating-point operations of the five products, 2 a multiply-add, over the pairs that causality leaves; scores that
    /// a cut sequence computes twice are counted once.
    pub fn flops(&self) -> u64 {
        10 * (self.groups * self.heads_per_group * self.head_dim) as u64 * self.seen().pairs(self.batch)
    }

    fn seen(&self) -> Seen<'_> {
        Seen {
            queries: self.queries,
            keys: self.keys,
            causal: self.causal,
            first_query: self.first_query,
            mask: self.mask,
            mask_batch: self.mask_batch,
        }
    }

    fn check(&self) {
        let (b, g, r, d) = (self.batch, self.groups, self.heads_per_group, self.head_dim);
        assert!(
            (1..=MAX_HEAD_DIM).contains(&d) && self.scale > 0.0,
            "bug in unisono: attention with heads of {d} and scale {}",
            self.scale
        );
        let (q, k, v, out) = (self.q_layout, self.k_layout, self.v_layout, self.out_layout);
        let queries = |layout: Layout, len: usize| layout.fits(len, b, self.queries, g, r, d);
        let keys = |layout: Layout, len: usize| layout.fits(len, b, self.keys, g, 1, d);
        assert!(
            queries(q, self.q.len())
                && queries(q, self.dq.len())
                && keys(k, self.k.len())
                && keys(k, self.dk.len())
                && keys(v, self.v.len())
                && keys(v, self.dv.len())
                && queries(out, self.out.len())
                && queries(out, self.d_out.len())
                && self.lse.len() >= b * g * r * self.queries
                && self.first_query.is_none_or(|first| first.len() >= b),
            "bug in unisono: an array of attention is too short for {b} sequences of {} queries and {} keys in {g} groups \
             of {r} heads of {d}",
            self.queries,
            self.keys
        );
    }
}
