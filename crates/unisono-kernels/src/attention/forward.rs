//! The forward pass of one tile: blocks of keys outside, groups of query rows inside.

use super::ahead::Ahead;
use super::micro::{Micro, Pair, Product, Single, Sink, Step, multiply};
use super::{BLOCK, Inputs, Layout, pack};
use crate::element::{Bf16, Element};
use crate::gemm::arithmetic::Emulated;
use crate::math::lanes::{exp, ln};
use crate::order::Units;
use crate::out::Out;
use crate::scratch::Scratch;
use crate::simd::LANES;
use std::ops::Range;

/// Query rows that go through a block of keys together: their scores stay in the first cache.
pub(super) const GROUP: usize = 16;

/// What a tile computes: rows of one sequence and group, row `head * queries + query`.
pub(super) struct Part {
    pub b: usize,
    pub g: usize,
    pub rows: Range<usize>,
}

/// The arrays of a call, of one kind.
pub(super) struct Arrays<'a, E> {
    pub q: &'a [E],
    pub k: &'a [E],
    pub v: &'a [E],
    pub out: Out<'a, E>,
    pub lse: Option<Out<'a, f32>>,
    /// Whether the CPU multiplies pairs of bf16.
    pub bf16_instruction: bool,
}

/// How the dot products of queries and keys are taken.
#[derive(Clone, Copy)]
struct Dots {
    of: Factors,
    /// Addends and steps of a leaf.
    addends: usize,
    leaf: usize,
    /// Steps of all leaves: what a query or a key takes in memory.
    steps: usize,
}

/// What queries and keys are kept as.
#[derive(Clone, Copy)]
enum Factors {
    /// f32.
    Singles,
    /// Words that hold a pair of bf16 each.
    Pairs { instruction: bool },
}

impl Dots {
    /// Of heads of `d` elements of the kind `E`.
    #[inline(always)]
    fn of<E: Element>(d: usize, instruction: bool) -> Dots {
        let addends = Units::whole(d).leaf();
        let (of, leaf) = match size_of::<E>() == size_of::<Bf16>() {
            true => (Factors::Pairs { instruction }, addends.div_ceil(2)),
            false => (Factors::Singles, addends),
        };
        let steps = d / addends * leaf;
        Dots {
            of,
            addends,
            leaf,
            steps,
        }
    }
}

/// Cuts `len` floats off the front of `rest`, rounded up to whole vectors.
pub(super) fn take<'s>(rest: &mut &'s mut [f32], len: usize) -> &'s mut [f32] {
    let (front, back) = std::mem::take(rest).split_at_mut(len.next_multiple_of(LANES));
    *rest = back;
    front
}

/// State of the rows of a tile while the blocks of keys go by.
struct Rows<'s> {
    /// Queries, `[rows, dots.steps]`.
    q: &'s mut [f32],
    dots: Dots,
    /// `acc` of each row, `[rows, padded]`.
    acc: &'s mut [f32],
    /// `sum` of each row, `[rows, 16]`.
    sum: &'s mut [f32],
    /// `top` of each row.
    top: &'s mut [f32],
}

/// Scratch of a group of rows and a block of keys.
struct Block<'s> {
    /// Keys, transposed: `[dots.steps, BLOCK]`.
    keys: &'s mut [f32],
    /// Values, if they are not read in place: `[BLOCK, padded]`.
    values: &'s mut [f32],
    /// Scores, then probabilities: `[GROUP, BLOCK]`, and as much again for dot products of several leaves.
    scores: &'s mut [f32],
    /// Per row the largest of each lane: `[GROUP, 16]`.
    largest: &'s mut [f32],
}

/// Where a block's values are.
#[derive(Clone, Copy)]
enum Values<E> {
    /// In the block's scratch.
    Packed,
    /// Where they lie, rows so many elements apart.
    InPlace(*const E, usize),
}

#[inline(always)]
pub(super) fn run<S: Micro, E: Element>(s: S, a: &Inputs, arrays: &Arrays<E>, part: Part, scratch: &mut Scratch) {
    let Part { b, g, rows } = part;
    let (d, count) = (a.shape.head_dim, rows.len());
    let padded = d.next_multiple_of(LANES);
    let whole_groups = count.next_multiple_of(GROUP);
    let dots = Dots::of::<E>(d, arrays.bf16_instruction);
    let steps = dots.steps;
    let mut rest = scratch.floats(
        whole_groups * (steps + padded + LANES + 1)
            + BLOCK * (steps + padded)
            + GROUP * (2 * BLOCK + LANES)
            + 8 * LANES,
    );
    let mut state = Rows {
        q: take(&mut rest, whole_groups * steps),
        dots,
        acc: take(&mut rest, whole_groups * padded),
        sum: take(&mut rest, whole_groups * LANES),
        top: take(&mut rest, whole_groups),
    };
    let mut block = Block {
        keys: take(&mut rest, BLOCK * steps),
        values: take(&mut rest, BLOCK * padded),
        scores: take(&mut rest, 2 * GROUP * BLOCK),
        largest: take(&mut rest, GROUP * LANES),
    };
    state.acc.fill(0.0);
    state.sum.fill(0.0);
    state.top.fill(f32::NEG_INFINITY);
    // Blocks that a group of rows sees; it is finished right after the last of them.
    let blocks_of = |first: usize| {
        let rows = rows.start + first..rows.end.min(rows.start + first + GROUP);
        let limit = rows.map(|row| a.limit(b, a.head_and_query(row).1)).max();
        limit.unwrap_or(0).div_ceil(BLOCK)
    };
    let blocks = (0..count).step_by(GROUP).map(blocks_of).max().unwrap_or(0);
    // A block of keys and values should have been asked for when the one before it is done.
    let width = (S::ACCUMULATORS / count.clamp(1, S::ROWS)).min(4) * LANES;
    let tiles = count.div_ceil(S::ROWS) * (BLOCK.div_ceil(width) + padded.div_ceil(width));
    let quota = (2 * BLOCK).div_ceil(tiles.max(1)).clamp(4, BLOCK);
    let mut ahead = Ahead::new(d * size_of::<E>(), quota, count > GROUP);
    read_queries(s, a, arrays.q, (b, g, rows.clone()), 0, &mut state);
    for at in 0..blocks {
        let keys = (a.shape.keys - at * BLOCK).min(BLOCK);
        let (k, v) = (a.k_layout.at(b, at * BLOCK, g, 0), a.v_layout.at(b, at * BLOCK, g, 0));
        // Few rows read the values once, in place; for many they are copied together.
        let in_place = count <= GROUP && d == padded;
        let (key_row, value_row) = (a.k_layout.token, a.v_layout.token);
        if at + 1 < blocks {
            ahead.note(arrays.k.as_ptr(), k + BLOCK * key_row, key_row, BLOCK);
        }
        // SAFETY: `check` saw that the arrays hold these rows.
        let values = unsafe {
            let (k, v) = (arrays.k.as_ptr().add(k), arrays.v.as_ptr().add(v));
            match dots.of {
                Factors::Singles => pack::transposed(s, k, key_row, keys, d, block.keys.as_mut_ptr()),
                Factors::Pairs { .. } => {
                    pack::transposed_pairs(s, k.cast(), key_row, keys, (d, dots.addends), block.keys.as_mut_ptr());
                }
            }
            if in_place {
                ahead.note(v, 0, value_row, keys);
                Values::InPlace(v, value_row)
            } else {
                pack::rows(s, v, value_row, keys, d, block.values.as_mut_ptr());
                ahead.note(v, BLOCK * value_row, value_row, if at + 1 < blocks { BLOCK } else { 0 });
                Values::Packed
            }
        };
        for first in (0..count).step_by(GROUP) {
            let here = (count - first).min(GROUP);
            if at == 0 && first + here < count {
                read_queries(s, a, arrays.q, (b, g, rows.clone()), first + GROUP, &mut state);
                let next = rows.start + first + 2 * GROUP;
                note_rows(&mut ahead, a, (b, g, next), (arrays.q.as_ptr(), a.q_layout));
            }
            let own_blocks = blocks_of(first);
            if at >= own_blocks {
                continue;
            }
            if at + 1 == own_blocks {
                let out = arrays.out.as_ptr().cast_const();
                note_rows(&mut ahead, a, (b, g, rows.start + first), (out, a.out_layout));
            }
            let mut bits = [0; GROUP];
            for (i, bits) in bits[..here].iter_mut().enumerate() {
                *bits = a.bits(b, a.head_and_query(rows.start + first + i).1, at);
            }
            let place = (first, here, &bits);
            // SAFETY: the group's rows of the state, the block's scratch and values.
            unsafe { group(s, a, &mut state, &mut block, place, values, &mut ahead) };
            if at + 1 == own_blocks {
                finish(s, a, (arrays.out, arrays.lse), (b, g, rows.clone()), first, &state);
            }
        }
    }
    for first in (0..count).step_by(GROUP) {
        if blocks_of(first) == 0 {
            finish(s, a, (arrays.out, arrays.lse), (b, g, rows.clone()), first, &state);
        }
    }
}

/// Copies the queries of one group, rows `first..` of the tile.
#[inline(always)]
fn read_queries<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    q: &[E],
    (b, g, rows): (usize, usize, Range<usize>),
    first: usize,
    state: &mut Rows,
) {
    let (d, dots) = (a.shape.head_dim, state.dots);
    for row in first..(first + GROUP).min(rows.len()) {
        let (head, query) = a.head_and_query(rows.start + row);
        let from = &q[a.q_layout.at(b, query, g, head)..][..d];
        let to = &mut state.q[row * dots.steps..][..dots.steps];
        match dots.of {
            Factors::Singles => {
                for (to, from) in to.chunks_mut(LANES).zip(from.chunks(LANES)) {
                    s.write(to, E::read(s, from));
                }
            }
            // SAFETY: `d` elements of two bytes, that are bf16.
            Factors::Pairs { .. } => unsafe { pack::pairs(from.as_ptr().cast(), (d, dots.addends), to) },
        }
    }
}

/// Notes the rows of `array` that belong to the group which begins at row `index` of the sequence.
#[inline(always)]
fn note_rows<E>(
    ahead: &mut Ahead,
    a: &Inputs,
    (b, g, index): (usize, usize, usize),
    (array, layout): (*const E, Layout),
) {
    let (head, query) = a.head_and_query(index);
    let at = layout.at(b, query, g, head);
    ahead.note(array, at, layout.token, GROUP);
}

/// One group of rows against one block of keys; `place` is (first row of the tile, rows, what each sees).
///
/// # Safety
/// `values` in place must be whole vectors.
// The state of a loop nest; a struct for it would only move the names.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn group<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    state: &mut Rows,
    block: &mut Block,
    (first, rows, bits): (usize, usize, &[u64; GROUP]),
    values: Values<E>,
    ahead: &mut Ahead,
) {
    let any = bits.iter().fold(0, |any, row| any | row);
    if any == 0 {
        return;
    }
    let padded = a.shape.head_dim.next_multiple_of(LANES);
    let Dots { of, leaf, steps, .. } = state.dots;
    let vectors = (64 - any.leading_zeros() as usize).div_ceil(LANES);
    let mut factors = [0.0f32; GROUP];
    // SAFETY: sizes as in `run`; the caller's promise for the values.
    unsafe {
        let size = (rows, vectors);
        let (q, keys) = ((&state.q[first * steps..], steps), (&*block.keys, leaf));
        match of {
            Factors::Singles => dots::<S, Single<f32>>(s, size, q, keys, block.scores, ahead),
            Factors::Pairs { instruction: true } => dots::<S, Pair<S::Pairs>>(s, size, q, keys, block.scores, ahead),
            Factors::Pairs { instruction: false } => dots::<S, Pair<Emulated>>(s, size, q, keys, block.scores, ahead),
        }
        largest(s, rows, vectors, bits, block);
        let scale = s.splat(a.shape.scale);
        let before = s.load(state.top.as_ptr().add(first));
        let now = s.max(before, fold_max(s, block.largest));
        s.store(state.top.as_mut_ptr().add(first), now);
        let shift = s.mul(now, scale);
        let factor = exp(s, s.sub(s.mul(before, scale), shift));
        // A row that has seen nothing yet (−∞ − −∞) keeps its zeros.
        let nothing = s.eq(now, s.splat(f32::NEG_INFINITY));
        s.write(&mut factors, s.select(nothing, s.splat(1.0), factor));
        let shifts = s.to_array(shift);
        for r in 0..rows {
            let row = block.scores.as_mut_ptr().add(r * BLOCK);
            let sum = probabilities(s, row, vectors, bits[r], scale, s.splat(-shifts[r]));
            let total = state.sum.as_mut_ptr().add((first + r) * LANES);
            s.store(total, s.fma(s.load(total), s.splat(factors[r]), sum));
        }
        let product = Product {
            a: block.scores.as_ptr(),
            a_row: BLOCK,
            a_step: 1,
            b: block.values.as_ptr(),
            b_step: padded,
            steps: BLOCK,
            seen: bits.as_ptr(),
            c: state.acc.as_mut_ptr().add(first * padded),
            c_row: padded,
            sink: Sink::Rescale(factors.as_ptr()),
        };
        match values {
            Values::Packed => multiply::<S, Single<f32>>(s, rows, padded / LANES, &product, ahead),
            Values::InPlace(b, b_step) => {
                multiply::<S, Single<E>>(s, rows, padded / LANES, &product.of(b, b_step), ahead);
            }
        }
    }
}

/// `scores[r][t] = dot(q[r], key t)` for `rows ≤ GROUP` rows and `vectors` vectors of keys.
///
/// A dot product of several leaves (`head_dim` of 128 and more) runs the stack machine of the canonical order on the whole
/// group; `scores` has room for its two entries.
///
/// # Safety
/// `q` holds the rows, `q_row` apart; `keys` is `[steps, BLOCK]`, and a leaf takes `leaf` steps.
#[inline(always)]
pub(super) unsafe fn dots<S: Micro, T: Step<S, B = f32>>(
    s: S,
    (rows, vectors): (usize, usize),
    (q, q_row): (&[f32], usize),
    (keys, leaf): (&[f32], usize),
    scores: &mut [f32],
    ahead: &mut Ahead,
) {
    let mut depth = 0;
    for index in 0..keys.len() / BLOCK / leaf {
        let merges = (index + 1).trailing_zeros() as usize;
        let entry = if merges == 0 { depth } else { depth - 1 };
        // SAFETY: steps `index * leaf..` of both factors; entries of GROUP rows.
        unsafe {
            multiply::<S, T>(
                s,
                rows,
                vectors,
                &Product {
                    a: q.as_ptr().add(index * leaf),
                    a_row: q_row,
                    a_step: 1,
                    b: keys.as_ptr().add(index * leaf * BLOCK),
                    b_step: BLOCK,
                    steps: leaf,
                    seen: std::ptr::null(),
                    c: scores.as_mut_ptr().add(entry * GROUP * BLOCK),
                    c_row: BLOCK,
                    sink: if merges == 0 { Sink::Store } else { Sink::Add },
                },
                ahead,
            );
        }
        depth = entry + 1;
        for _ in 1..merges {
            depth -= 1;
            let (below, top) = scores.split_at_mut(depth * GROUP * BLOCK);
            for (b, t) in below[(depth - 1) * GROUP * BLOCK..].iter_mut().zip(top) {
                *b += *t;
            }
        }
    }
}

/// Which lanes of vector `v` a row's bits name.
#[inline(always)]
pub(super) fn lanes_of<S: Micro>(s: S, bits: u64, v: usize) -> S::M {
    let each = s.from_array_u(std::array::from_fn(|lane| 1 << lane));
    s.eq_u(s.and_u(s.splat_u((bits >> (v * LANES)) as u32), each), each)
}

/// Per row the largest seen score of each lane, −∞ where there is none.
///
/// # Safety
/// `rows ≤ GROUP`, `vectors ≤ 4`.
#[inline(always)]
unsafe fn largest<S: Micro>(s: S, rows: usize, vectors: usize, bits: &[u64; GROUP], block: &mut Block) {
    let none = s.splat(f32::NEG_INFINITY);
    for (r, bits) in bits.iter().enumerate() {
        let mut most = none;
        for v in 0..if r < rows { vectors } else { 0 } {
            // SAFETY: row `r` of the scores.
            let x = unsafe { s.load(block.scores.as_ptr().add(r * BLOCK + v * LANES)) };
            let x = match (bits >> (v * LANES)) & 0xffff {
                0xffff => x,
                _ => s.select(lanes_of(s, *bits, v), x, none),
            };
            most = s.max(most, x);
        }
        // SAFETY: row `r` of `[GROUP, 16]`.
        unsafe { s.store(block.largest.as_mut_ptr().add(r * LANES), most) };
    }
}

/// Lane `r` is the largest element of row `r` of a 16 × 16 matrix.
///
/// # Safety
/// `rows` holds 256 floats.
#[inline(always)]
unsafe fn fold_max<S: Micro>(s: S, rows: &mut [f32]) -> S::F {
    let mut out = [0.0; LANES];
    for (four, out) in out.chunks_exact_mut(4).enumerate() {
        // SAFETY: four of the rows.
        let quads = s.transpose4_u(std::array::from_fn(|k| unsafe {
            s.bits(s.load(rows.as_ptr().add((4 * four + k) * LANES)))
        }));
        let [x, y, z, w] = quads.map(|q| s.from_bits(q));
        // Lane 4 L + k: the largest of row k among its elements 4 L to 4 L + 3.
        let most = s.to_array(s.max(s.max(x, y), s.max(z, w)));
        let max = |a: f32, b: f32| if a > b { a } else { b };
        for (k, out) in out.iter_mut().enumerate() {
            *out = max(max(most[k], most[4 + k]), max(most[8 + k], most[12 + k]));
        }
    }
    s.from_array(out)
}

/// Replaces a row's scores by `exp(fma(score, scale, −m))`, +0 where the key is not seen; returns their sum by lanes.
///
/// # Safety
/// `row` holds `vectors` vectors.
#[inline(always)]
unsafe fn probabilities<S: Micro>(s: S, row: *mut f32, vectors: usize, bits: u64, scale: S::F, minus_m: S::F) -> S::F {
    let mut sum = s.zero();
    for v in 0..vectors {
        // SAFETY: the row's vectors.
        unsafe {
            let at = row.add(v * LANES);
            let p = exp(s, s.fma(s.load(at), scale, minus_m));
            let p = match (bits >> (v * LANES)) & 0xffff {
                0xffff => p,
                _ => s.select(lanes_of(s, bits, v), p, s.zero()),
            };
            s.store(at, p);
            // From +0, and a probability is never −0, so the first addition changes nothing.
            sum = s.add(sum, p);
        }
    }
    sum
}

/// `out` and `lse` of one group, rows `first..` of the tile.
#[inline(always)]
fn finish<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    (out, log_sums): (Out<E>, Option<Out<f32>>),
    (b, g, rows): (usize, usize, Range<usize>),
    first: usize,
    state: &Rows,
) {
    let (d, padded) = (a.shape.head_dim, a.shape.head_dim.next_multiple_of(LANES));
    let here = (rows.len() - first).min(GROUP);
    let mut totals = [0.0; GROUP];
    for (r, total) in totals[..here].iter_mut().enumerate() {
        *total = s.fold(s.read(&state.sum[(first + r) * LANES..]));
    }
    let total = s.from_array(totals);
    // Nothing seen: `acc` is 0, and 0 · 1 is the answer.
    let nothing = s.eq(total, s.zero());
    let one = s.splat(1.0);
    let inverses = s.to_array(s.select(nothing, one, s.div(one, total)));
    let m = s.mul(s.read(&state.top[first..]), s.splat(a.shape.scale));
    let lse = s.select(nothing, s.splat(f32::NEG_INFINITY), s.add(m, ln(s, total)));
    let lse = s.to_array(lse);
    for r in 0..here {
        let (head, query) = a.head_and_query(rows.start + first + r);
        let acc = &state.acc[(first + r) * padded..][..padded];
        // SAFETY: the tile owns the results of its rows.
        let out = unsafe { out.slice(a.out_layout.at(b, query, g, head), d) };
        let inverse = s.splat(inverses[r]);
        for (out, acc) in out.chunks_mut(LANES).zip(acc.chunks(LANES)) {
            E::write(s, out, s.add(s.mul(s.read(acc), inverse), s.zero()));
        }
        if let Some(out) = log_sums {
            let at = ((b * a.shape.groups + g) * a.shape.heads_per_group + head) * a.shape.queries + query;
            // SAFETY: as above.
            unsafe { out.slice(at, 1)[0] = lse[r] };
        }
    }
}
