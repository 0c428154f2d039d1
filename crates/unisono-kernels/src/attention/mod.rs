//! Scaled dot-product attention, forward and backward, without a matrix of queries times keys.
//!
//! The method is that of Dao, Fu, Ermon, Rudra and Ré, *FlashAttention* (2022) and Dao, *FlashAttention-2* (2023), with an
//! order that belongs to the query alone: blocks of [`BLOCK`] keys are counted from key 0 of the sequence, and what a query
//! does not see is skipped, or +0 where it is half of a pair; it is never read into a product. So a prompt gives equal bits
//! in one call, in chunks and token by token.
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
//! Queries, keys, values, the output and their gradients may be bf16, all of them in one call. The forward pass's two products
//! are then of bf16, in pairs as [`crate::gemm`] has them, whatever the run's order of products: `dot(j)` in pairs of elements;
//! `Σ_j p(j) v[j][c]` in pairs of keys `2 i` and `2 i + 1`, with `p(j)` rounded to bf16 (`sum` is of the unrounded ones). Of a
//! pair that a query sees half of, the other half is +0; a pair of which it sees nothing is skipped.
//!
//! Otherwise they are read as the f32 that they are, all of the above is computed in f32, the backward pass's dot products too,
//! and each stored element (`out`, `dq`, `dk`, `dv`) is rounded once, to nearest even; `D` uses `out` as it was stored. `lse`
//! stays f32. So the backward pass's probabilities add up to 1 but for the last bits in which the two kinds of `dot` differ, and
//! `D` is of an output whose probabilities were rounded, as in other implementations. On CPUs without AVX512-BF16 pairs are
//! emulated, and the two products take several times as long.

mod ahead;
mod backward;
mod forward;
mod inputs;
mod micro;
mod pack;
mod scores;
mod seen;

use crate::element::{Bf16, Floats, OutFloats, mixed};
use crate::gemm::has_bf16_instruction;
use crate::isa::Isa;
use crate::out::Out;
use crate::scratch::Scratch;
use crate::simd::dispatch;
use backward::run as backward_part;
use forward::run as forward_part;

pub use inputs::{Inputs, Layout, Shape};

/// Keys, and in the backward pass queries, of one block.
pub const BLOCK: usize = 64;

/// Largest `head_dim`.
pub const MAX_HEAD_DIM: usize = 256;

/// Pairs of a sequence and a group from which each is one tile; fewer are cut further.
const ENOUGH_TILES: usize = 16;

/// Queries, or keys, of a tile where sequences are cut.
const CUT: usize = 128;

/// Forward attention: `out = softmax(scale · q kᵀ) v` for each query head, over the keys that a query sees.
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Queries, keys and values.
    pub inputs: Inputs<'a>,
    /// The result.
    pub out: OutFloats<'a>,
    /// `[batch, groups * heads_per_group, queries]`: the logarithm of each softmax's denominator, for the backward pass.
    pub lse: Option<Out<'a, f32>>,
}

/// The gradients of [`Attention`] with respect to `q`, `k` and `v`, written whole (nothing is added to what is there).
#[derive(Clone, Copy, Debug)]
pub struct AttentionGrad<'a> {
    /// As the forward pass had them.
    pub inputs: Inputs<'a>,
    /// The forward pass's result.
    pub out: Floats<'a>,
    /// Its gradient, laid out alike.
    pub d_out: Floats<'a>,
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
        self.inputs.tiles()
    }

    /// Runs one tile.
    ///
    /// # Panics
    /// If arrays are of different kinds, one is too short for its layout, `head_dim` is 0 or above [`MAX_HEAD_DIM`], or `scale` is not above 0: bugs in
    /// unisono.
    pub fn run(&self, tile: usize, scratch: &mut Scratch) {
        let bf16_instruction = scratch.isa() == Isa::Avx512 && has_bf16_instruction();
        self.run_with(tile, scratch, bf16_instruction);
    }

    /// [`Attention::run`], with AVX512-BF16 or without; only for CPUs that have it.
    fn run_with(&self, tile: usize, scratch: &mut Scratch, bf16_instruction: bool) {
        self.check();
        let (cuts, rows) = (self.inputs.cuts(), self.inputs.rows());
        let pair = tile / cuts;
        // Causal tiles grow towards the end of a sequence, so the largest go first.
        let cut = cuts - 1 - tile % cuts;
        let rows = match cuts {
            1 => 0..rows,
            _ => cut * CUT..((cut + 1) * CUT).min(rows),
        };
        let part = forward::Part {
            b: pair / self.inputs.shape.groups,
            g: pair % self.inputs.shape.groups,
            rows,
        };
        let (isa, a, lse) = (scratch.isa(), &self.inputs, self.lse);
        match (self.inputs.q, self.inputs.k, self.inputs.v, self.out) {
            (Floats::F32(q), Floats::F32(k), Floats::F32(v), OutFloats::F32(out)) => {
                let arrays = &forward::Arrays {
                    q,
                    k,
                    v,
                    out,
                    lse,
                    bf16_instruction,
                };
                dispatch!(isa, forward_part::<_, f32>(
                    a: &Inputs, arrays: &forward::Arrays<f32>, part: forward::Part, scratch: &mut Scratch
                ));
            }
            (Floats::Bf16(q), Floats::Bf16(k), Floats::Bf16(v), OutFloats::Bf16(out)) => {
                let arrays = &forward::Arrays {
                    q,
                    k,
                    v,
                    out,
                    lse,
                    bf16_instruction,
                };
                dispatch!(isa, forward_part::<_, Bf16>(
                    a: &Inputs, arrays: &forward::Arrays<Bf16>, part: forward::Part, scratch: &mut Scratch
                ));
            }
            _ => mixed("attention"),
        }
    }

    /// Floating-point operations of the two products, 2 a multiply-add, over the pairs that causality leaves.
    pub fn flops(&self) -> u64 {
        4 * self.inputs.multiply_adds()
    }

    fn check(&self) {
        let lse_fits = self.lse.is_none_or(|lse| lse.len() >= self.inputs.num_rows());
        self.inputs
            .check(self.inputs.has_queries(self.inputs.out_layout, self.out.len()) && lse_fits);
    }
}

impl AttentionGrad<'_> {
    /// Number of tiles, which do not depend on each other.
    pub fn tiles(&self) -> usize {
        self.inputs.gradient_tiles()
    }

    /// Runs one tile.
    ///
    /// # Panics
    /// As [`Attention::run`].
    pub fn run(&self, tile: usize, scratch: &mut Scratch) {
        self.check();
        let part = self.part(tile);
        let (isa, a, lse) = (scratch.isa(), &self.inputs, self.lse);
        let inputs = [self.inputs.q, self.inputs.k, self.inputs.v, self.out, self.d_out];
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
                    lse,
                };
                dispatch!(isa, backward_part::<_, f32>(
                    a: &Inputs, arrays: &backward::Arrays<f32>, part: backward::Part, scratch: &mut Scratch
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
                    lse,
                };
                dispatch!(isa, backward_part::<_, Bf16>(
                    a: &Inputs, arrays: &backward::Arrays<Bf16>, part: backward::Part, scratch: &mut Scratch
                ));
            }
            _ => mixed("the gradient of attention"),
        }
    }

    fn part(&self, tile: usize) -> backward::Part {
        let blocks = self.inputs.shape.keys.div_ceil(BLOCK);
        let pairs = self.inputs.shape.batch * self.inputs.shape.groups;
        let whole = |pair: usize| backward::Part {
            b: pair / self.inputs.shape.groups,
            g: pair % self.inputs.shape.groups,
            heads: 0..self.inputs.shape.heads_per_group,
            queries: 0..self.inputs.shape.queries,
            blocks: 0..blocks,
            dq: true,
            dkv: true,
        };
        if pairs >= ENOUGH_TILES {
            return whole(tile);
        }
        let cuts = self.inputs.query_cuts() + self.inputs.key_cuts();
        let (part, cut) = (whole(tile / cuts), tile % cuts);
        let seen = &self.inputs;
        // The largest of a causal call first: the first keys, the last queries.
        if cut < self.inputs.key_cuts() {
            let first = cut * CUT / BLOCK;
            let seer = seen.first_seer(part.b, first * BLOCK).min(self.inputs.shape.queries);
            return backward::Part {
                queries: seer / BLOCK * BLOCK..self.inputs.shape.queries,
                blocks: first..(first + CUT / BLOCK).min(blocks),
                dq: false,
                ..part
            };
        }
        let cut = self.inputs.query_cuts() - 1 - (cut - self.inputs.key_cuts());
        let per_head = self.inputs.shape.queries.div_ceil(CUT);
        let head = cut / per_head;
        let queries = cut % per_head * CUT..((cut % per_head + 1) * CUT).min(self.inputs.shape.queries);
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
        10 * self.inputs.multiply_adds()
    }

    fn check(&self) {
        let i = &self.inputs;
        i.check(
            i.has_queries(i.q_layout, self.dq.len())
                && i.has_keys(i.k_layout, self.dk.len())
                && i.has_keys(i.v_layout, self.dv.len())
                && i.has_queries(i.out_layout, self.out.len())
                && i.has_queries(i.out_layout, self.d_out.len())
                && self.lse.len() >= i.num_rows(),
        );
    }
}

#[cfg(test)]
mod tests;
