//! The backward pass of one tile: probabilities are computed anew from `lse`, block by block.
//!
//! The loops go over query heads, blocks of keys and blocks of queries. `dk` and `dv` of a block of keys are finished in its
//! turn, `dq` gathers over the blocks of keys, so one walk gives all three; a tile of a cut sequence walks for `dq` only or
//! for `dk` and `dv` only, in the same order. All sums are f32 in scratch; a gradient is stored once, when it is finished.

use super::ahead::Ahead;
use super::forward::take;
use super::micro::{Micro, Product, Single, Sink, multiply};
use super::scores::{GROUP, dots};
use super::{BLOCK, Inputs, pack, seen};
use crate::element::Element;
use crate::math::lanes::exp;
use crate::order::Units;
use crate::out::Out;
use crate::scratch::Scratch;
use crate::simd::LANES;
use std::ops::Range;

/// Rows that a register tile asks for: a pair of blocks has some 80 tiles and needs up to 320 rows.
const QUOTA: usize = 4;

/// What a tile computes, of one sequence and group.
pub(super) struct Part {
    pub b: usize,
    pub g: usize,
    /// Query heads of the group.
    pub heads: Range<usize>,
    /// Queries, from a multiple of [`BLOCK`] on.
    pub queries: Range<usize>,
    /// Blocks of keys.
    pub blocks: Range<usize>,
    /// Whether `dq` of these queries is wanted.
    pub dq: bool,
    /// Whether `dk` and `dv` of these keys are wanted.
    pub dkv: bool,
}

/// The arrays of a call, of one kind.
pub(super) struct Arrays<'a, E> {
    pub q: &'a [E],
    pub k: &'a [E],
    pub v: &'a [E],
    pub out: &'a [E],
    pub d_out: &'a [E],
    pub dq: Out<'a, E>,
    pub dk: Out<'a, E>,
    pub dv: Out<'a, E>,
    pub lse: &'a [f32],
}

/// One head's queries and what belongs to them.
struct Queries<'s> {
    /// `q`, `[queries, padded]`.
    q: &'s mut [f32],
    /// `d_out`, `[queries, padded]`.
    d_out: &'s mut [f32],
    /// Sums of `dq`, not scaled, `[queries, padded]`.
    dq: &'s mut [f32],
    /// `D` of each query.
    d: &'s mut [f32],
    /// `−lse` of each query.
    minus_lse: &'s mut [f32],
}

/// One block of keys, and a block of scores.
struct Block<'s> {
    /// `k` transposed, `[head_dim, BLOCK]`.
    keys: &'s mut [f32],
    /// `v` transposed, `[head_dim, BLOCK]`.
    values: &'s mut [f32],
    /// `k`, `[BLOCK, padded]`.
    key_rows: &'s mut [f32],
    /// Sum of `dk`, not scaled, `[BLOCK, padded]`.
    dk: &'s mut [f32],
    /// Sum of `dv`, `[BLOCK, padded]`.
    dv: &'s mut [f32],
    /// Dot products, then probabilities, `[BLOCK, BLOCK]` and a group's room for dot products of several leaves.
    p: &'s mut [f32],
    /// `dp`, then `ds`; as `p`.
    ds: &'s mut [f32],
}

/// Sums over the query heads of a group so far, not scaled, `[blocks * BLOCK, padded]`; nothing if there is one head.
struct Heads<'s> {
    dk: &'s mut [f32],
    dv: &'s mut [f32],
}

#[inline(always)]
pub(super) fn run<S: Micro, E: Element>(s: S, a: &Inputs, arrays: &Arrays<E>, part: Part, scratch: &mut Scratch) {
    let (d, count) = (a.shape.head_dim, part.queries.len());
    let padded = d.next_multiple_of(LANES);
    let square = (BLOCK + GROUP) * BLOCK;
    let all_keys = match part.dkv && a.shape.heads_per_group > 1 {
        true => part.blocks.len() * BLOCK * padded,
        false => 0,
    };
    let mut rest = scratch
        .floats(count * 3 * padded + 2 * (count + LANES) + BLOCK * (2 * d + 3 * padded) + 2 * square + 2 * all_keys);
    let mut queries = Queries {
        q: take(&mut rest, count * padded),
        d_out: take(&mut rest, count * padded),
        dq: take(&mut rest, count * padded),
        d: take(&mut rest, count),
        minus_lse: take(&mut rest, count),
    };
    let mut block = Block {
        keys: take(&mut rest, BLOCK * d),
        values: take(&mut rest, BLOCK * d),
        key_rows: take(&mut rest, BLOCK * padded),
        dk: take(&mut rest, BLOCK * padded),
        dv: take(&mut rest, BLOCK * padded),
        p: take(&mut rest, square),
        ds: take(&mut rest, square),
    };
    let mut heads = Heads {
        dk: take(&mut rest, all_keys),
        dv: take(&mut rest, all_keys),
    };
    let mut ahead = Ahead::new(d * size_of::<E>(), QUOTA, true);
    for head in part.heads.clone() {
        queries.dq.fill(0.0);
        read_queries(s, a, arrays, &part, (head, 0), &mut queries);
        for at in part.blocks.clone() {
            let keys = (a.shape.keys - at * BLOCK).min(BLOCK);
            read_keys(s, a, arrays, &part, (at, keys), &mut block);
            note_keys(a, arrays, &part, (head, at), &mut ahead);
            for first in (0..count).step_by(BLOCK) {
                if at == part.blocks.start {
                    note_queries(a, arrays, &part, (head, first + BLOCK), &mut ahead);
                }
                if at + 1 == part.blocks.end && part.dq {
                    let dq = a.q_layout.at(part.b, part.queries.start + first, part.g, head);
                    ahead.note(arrays.dq.as_ptr(), dq, a.q_layout.token, BLOCK);
                }
                block_pair(s, a, &part, (first, at, keys), &mut queries, &mut block, &mut ahead);
                if at == part.blocks.start && first + BLOCK < count {
                    read_queries(s, a, arrays, &part, (head, first + BLOCK), &mut queries);
                }
            }
            if part.dkv {
                finish_keys(s, a, arrays, &part, (head, at, keys), &mut block, &mut heads);
            }
        }
        if part.dq {
            let dq = a.q_layout.at(part.b, part.queries.start, part.g, head);
            // SAFETY: the tile owns these queries' gradients.
            unsafe {
                let to = arrays.dq.as_ptr().add(dq);
                store(s, queries.dq, to, a.q_layout.token, (count, d), a.shape.scale);
            }
        }
    }
}

/// Adds one head's `dk` and `dv` of a block to those of the heads before it, and stores them after the last head; `place` is
/// (head, block of keys, its keys).
#[inline(always)]
fn finish_keys<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    arrays: &Arrays<E>,
    part: &Part,
    (head, at, keys): (usize, usize, usize),
    block: &mut Block,
    heads: &mut Heads,
) {
    let last = head + 1 == a.shape.heads_per_group;
    if a.shape.heads_per_group > 1 {
        let len = block.dk.len();
        let from = (at - part.blocks.start) * len;
        for (sums, so_far) in [(&mut *block.dk, &mut *heads.dk), (&mut *block.dv, &mut *heads.dv)] {
            let so_far = &mut so_far[from..][..len];
            match head {
                0 => so_far.copy_from_slice(sums),
                _ if last => add(s, so_far, sums),
                _ => add(s, sums, so_far),
            }
        }
    }
    if last {
        let (dk, dv) = (
            a.k_layout.at(part.b, at * BLOCK, part.g, 0),
            a.v_layout.at(part.b, at * BLOCK, part.g, 0),
        );
        // SAFETY: the tile owns these keys' gradients.
        unsafe {
            let (dk, dv) = (arrays.dk.as_ptr().add(dk), arrays.dv.as_ptr().add(dv));
            store(
                s,
                block.dk,
                dk,
                a.k_layout.token,
                (keys, a.shape.head_dim),
                a.shape.scale,
            );
            store(s, block.dv, dv, a.v_layout.token, (keys, a.shape.head_dim), 1.0);
        }
    }
}

/// `to = x + to`.
#[inline(always)]
fn add<S: Micro>(s: S, x: &[f32], to: &mut [f32]) {
    for (to, x) in to.chunks_mut(LANES).zip(x.chunks(LANES)) {
        s.write(to, s.add(s.read(x), s.read(to)));
    }
}

/// Copies a block of one head's queries together and computes `D`; `place` is (head, first query of the part).
#[inline(always)]
fn read_queries<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    arrays: &Arrays<E>,
    part: &Part,
    (head, from): (usize, usize),
    queries: &mut Queries,
) {
    let (b, g, d) = (part.b, part.g, a.shape.head_dim);
    let count = part.queries.len().saturating_sub(from).min(BLOCK);
    if count == 0 {
        return;
    }
    let padded = d.next_multiple_of(LANES);
    let first = part.queries.start + from;
    let (q, out) = (a.q_layout.at(b, first, g, head), a.out_layout.at(b, first, g, head));
    // SAFETY: `check` saw that the arrays hold these rows.
    unsafe {
        let (q, d_out) = (arrays.q.as_ptr().add(q), arrays.d_out.as_ptr().add(out));
        let at = from * padded;
        pack::rows(s, q, a.q_layout.token, count, d, queries.q[at..].as_mut_ptr());
        pack::rows(s, d_out, a.out_layout.token, count, d, queries.d_out[at..].as_mut_ptr());
    }
    let lse = ((b * a.shape.groups + g) * a.shape.heads_per_group + head) * a.shape.queries + first;
    for i in 0..count {
        let row = out + i * a.out_layout.token;
        let d_out = &queries.d_out[(from + i) * padded..][..d];
        queries.d[from + i] = row_dot(s, d_out, &arrays.out[row..][..d]);
        queries.minus_lse[from + i] = -arrays.lse[lse + i];
    }
}

/// Notes what [`read_queries`] will read.
#[inline(always)]
fn note_queries<E>(a: &Inputs, arrays: &Arrays<E>, part: &Part, (head, from): (usize, usize), ahead: &mut Ahead) {
    let count = part.queries.len().saturating_sub(from).min(BLOCK);
    if count > 0 {
        let first = part.queries.start + from;
        let out = a.out_layout.at(part.b, first, part.g, head);
        let q = a.q_layout.at(part.b, first, part.g, head);
        ahead.note(arrays.out.as_ptr(), out, a.out_layout.token, count);
        ahead.note(arrays.d_out.as_ptr(), out, a.out_layout.token, count);
        ahead.note(arrays.q.as_ptr(), q, a.q_layout.token, count);
    }
}

/// Notes the next block of keys and where this one's gradients go.
#[inline(always)]
fn note_keys<E>(a: &Inputs, arrays: &Arrays<E>, part: &Part, (head, at): (usize, usize), ahead: &mut Ahead) {
    let (k, v) = (
        a.k_layout.at(part.b, at * BLOCK, part.g, 0),
        a.v_layout.at(part.b, at * BLOCK, part.g, 0),
    );
    let (key_row, value_row) = (a.k_layout.token, a.v_layout.token);
    if part.dkv && head + 1 == a.shape.heads_per_group {
        ahead.note(arrays.dk.as_ptr(), k, key_row, BLOCK);
        ahead.note(arrays.dv.as_ptr(), v, value_row, BLOCK);
    }
    if at + 1 < part.blocks.end {
        ahead.note(arrays.k.as_ptr(), k + BLOCK * key_row, key_row, BLOCK);
        ahead.note(arrays.v.as_ptr(), v + BLOCK * value_row, value_row, BLOCK);
    }
}

#[inline(always)]
fn read_keys<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    arrays: &Arrays<E>,
    part: &Part,
    (at, keys): (usize, usize),
    block: &mut Block,
) {
    let (k, v) = (
        a.k_layout.at(part.b, at * BLOCK, part.g, 0),
        a.v_layout.at(part.b, at * BLOCK, part.g, 0),
    );
    let d = a.shape.head_dim;
    // SAFETY: `check` saw that the arrays hold these rows.
    unsafe {
        let (k, v) = (arrays.k.as_ptr().add(k), arrays.v.as_ptr().add(v));
        pack::transposed(s, k, a.k_layout.token, keys, d, block.keys.as_mut_ptr());
        pack::transposed(s, v, a.v_layout.token, keys, d, block.values.as_mut_ptr());
        if part.dq {
            pack::rows(s, k, a.k_layout.token, keys, d, block.key_rows.as_mut_ptr());
        }
    }
    block.dk.fill(0.0);
    block.dv.fill(0.0);
}

/// One block of queries against one block of keys; `place` is (first query of the part, block of keys, its keys).
#[inline(always)]
fn block_pair<S: Micro>(
    s: S,
    a: &Inputs,
    part: &Part,
    place: (usize, usize, usize),
    queries: &mut Queries,
    block: &mut Block,
    ahead: &mut Ahead,
) {
    let (first, at, keys) = place;
    let rows = (part.queries.len() - first).min(BLOCK);
    let mut bits: [u64; BLOCK] = [0; BLOCK];
    let mut any = 0;
    for (i, bits) in bits[..rows].iter_mut().enumerate() {
        *bits = a.bits(part.b, part.queries.start + first + i, at);
        any |= *bits;
    }
    if any == 0 {
        return;
    }
    let padded = a.shape.head_dim.next_multiple_of(LANES);
    for start in (0..rows).step_by(GROUP) {
        let here = (rows - start).min(GROUP);
        // SAFETY: rows of the block.
        unsafe {
            group(
                s,
                a,
                part,
                (first + start, start, &bits[start..start + here]),
                queries,
                block,
                ahead,
            )
        };
    }
    if part.dkv {
        // Unlike `dq`, these sum over queries, so it matters which queries see a key.
        seen::transpose(&mut bits);
        let product = Product {
            a: block.p.as_ptr(),
            a_row: 1,
            a_step: BLOCK,
            // SAFETY: rows of the part.
            b: unsafe { queries.d_out.as_ptr().add(first * padded) },
            b_step: padded,
            steps: rows,
            seen: bits.as_ptr(),
            c: block.dv.as_mut_ptr(),
            c_row: padded,
            sink: Sink::Add,
        };
        // SAFETY: `p` and `ds` hold the block's pairs, `dv` and `dk` its keys.
        unsafe {
            multiply::<S, Single>(s, keys, padded / LANES, &product, ahead);
            let product = Product {
                a: block.ds.as_ptr(),
                b: queries.q.as_ptr().add(first * padded),
                c: block.dk.as_mut_ptr(),
                ..product
            };
            multiply::<S, Single>(s, keys, padded / LANES, &product, ahead);
        }
    }
}

/// Probabilities and score gradients of a few rows, and their share of `dq`; the rows are given as (first of the part, first
/// of the block, what each sees).
///
/// What a row does not see is computed too where that is easier, and never read.
///
/// # Safety
/// At most `GROUP` rows, and all arrays as their fields say.
#[inline(always)]
unsafe fn group<S: Micro>(
    s: S,
    a: &Inputs,
    part: &Part,
    (row, start, bits): (usize, usize, &[u64]),
    queries: &mut Queries,
    block: &mut Block,
    ahead: &mut Ahead,
) {
    let rows = bits.len();
    let any = bits.iter().fold(0, |any, row| any | row);
    if any == 0 {
        return;
    }
    let padded = a.shape.head_dim.next_multiple_of(LANES);
    let vectors = (64 - any.leading_zeros() as usize).div_ceil(LANES);
    let (p, ds) = (&mut block.p[start * BLOCK..], &mut block.ds[start * BLOCK..]);
    // SAFETY: rows of the part and the block.
    unsafe {
        let leaf = Units::whole(a.shape.head_dim).leaf();
        dots::<S, Single>(
            s,
            (rows, vectors),
            (&queries.q[row * padded..], padded),
            (block.keys, leaf),
            p,
            ahead,
        );
        dots::<S, Single>(
            s,
            (rows, vectors),
            (&queries.d_out[row * padded..], padded),
            (block.values, leaf),
            ds,
            ahead,
        );
        let scale = s.splat(a.shape.scale);
        for r in 0..rows {
            let (minus_lse, d) = (s.splat(queries.minus_lse[row + r]), s.splat(queries.d[row + r]));
            for v in 0..vectors {
                let (p, ds) = (
                    p.as_mut_ptr().add(r * BLOCK + v * LANES),
                    ds.as_mut_ptr().add(r * BLOCK + v * LANES),
                );
                let probability = exp(s, s.fma(s.load(p), scale, minus_lse));
                s.store(p, probability);
                s.store(ds, s.mul(probability, s.sub(s.load(ds), d)));
            }
        }
        if part.dq {
            multiply::<S, Single>(
                s,
                rows,
                padded / LANES,
                &Product {
                    a: ds.as_ptr(),
                    a_row: BLOCK,
                    a_step: 1,
                    b: block.key_rows.as_ptr(),
                    b_step: padded,
                    steps: BLOCK,
                    seen: bits.as_ptr(),
                    c: queries.dq.as_mut_ptr().add(row * padded),
                    c_row: padded,
                    sink: Sink::Add,
                },
                ahead,
            );
        }
    }
}

/// Stores finished sums, times `scale` and plus 0.
///
/// # Safety
/// `to` is valid for `rows` rows of `d`, `stride` apart, which this tile owns.
#[inline(always)]
unsafe fn store<S: Micro, E: Element>(
    s: S,
    sums: &[f32],
    to: *mut E,
    stride: usize,
    (rows, d): (usize, usize),
    scale: f32,
) {
    let padded = d.next_multiple_of(LANES);
    for row in 0..rows {
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(row * stride), d) };
        for (to, sum) in to.chunks_mut(LANES).zip(sums[row * padded..].chunks(LANES)) {
            E::write(s, to, s.add(s.mul(s.read(sum), s.splat(scale)), s.zero()));
        }
    }
}

/// `Σ x·y` in row order: leaves in 16 lanes by fused multiply-add, folded; leaves by halves.
#[inline(always)]
fn row_dot<S: Micro, E: Element>(s: S, x: &[f32], y: &[E]) -> f32 {
    let leaf = Units::whole(x.len()).leaf();
    let mut sums = [0.0; 4];
    let leaves = x.chunks(leaf).zip(y.chunks(leaf));
    for (sum, (x, y)) in sums.iter_mut().zip(leaves) {
        let mut lanes = s.zero();
        for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
            lanes = s.fma(s.read(x), E::read(s, y), lanes);
        }
        *sum = s.fold(lanes);
    }
    // One, two or four leaves; sums of nothing are +0 and change nothing.
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}
