//! The forward pass of one tile: blocks of keys outside, groups of query rows inside.

use super::ahead::Ahead;
use super::micro::{Micro, Pair, Product, Single, Sink, multiply};
use super::scores::{Dots, Factors, GROUP, dots, fold_max, largest, probabilities};
use super::seen::parted;
use super::{BLOCK, Inputs, Layout, pack};
use crate::element::Element;
use crate::gemm::arithmetic::Emulated;
use crate::math::lanes::{exp, ln};
use crate::out::Out;
use crate::scratch::Scratch;
use crate::simd::LANES;
use std::ops::Range;

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
    /// Values, if they are not read in place: `[BLOCK, padded]`, or half as many rows of pairs.
    values: &'s mut [f32],
    /// Scores, then probabilities: `[GROUP, BLOCK]`, and as much again for dot products of several leaves.
    scores: &'s mut [f32],
    /// Per row the largest of each lane: `[GROUP, 16]`.
    largest: &'s mut [f32],
}

/// Where a block's values are.
#[derive(Clone, Copy)]
enum Values {
    /// In the block's scratch.
    Packed,
    /// Where they lie, rows so many elements apart.
    InPlace(*const f32, usize),
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
        let (key_row, value_row) = (a.k_layout.token, a.v_layout.token);
        if at + 1 < blocks {
            ahead.note(arrays.k.as_ptr(), k + BLOCK * key_row, key_row, BLOCK);
        }
        // SAFETY: `check` saw that the arrays hold these rows.
        let values = unsafe {
            let (k, v) = (arrays.k.as_ptr().add(k), arrays.v.as_ptr().add(v));
            let (to_keys, to_values) = (block.keys.as_mut_ptr(), block.values.as_mut_ptr());
            match dots.of {
                Factors::Singles => {
                    pack::transposed(s, k, key_row, keys, d, to_keys);
                    // Few rows read the values once, in place; for many they are copied together.
                    if count <= GROUP && d == padded {
                        Values::InPlace(v.cast(), value_row)
                    } else {
                        pack::rows(s, v, value_row, keys, d, to_values);
                        Values::Packed
                    }
                }
                Factors::Pairs { .. } => {
                    pack::transposed_pairs(s, k.cast(), key_row, keys, (d, dots.addends), to_keys);
                    pack::pairs_of_rows(s, v.cast(), value_row, keys, d, to_values);
                    Values::Packed
                }
            }
        };
        match values {
            Values::InPlace(..) => ahead.note(arrays.v.as_ptr(), v, value_row, keys),
            Values::Packed if at + 1 < blocks => {
                ahead.note(arrays.v.as_ptr(), v + BLOCK * value_row, value_row, BLOCK);
            }
            Values::Packed => {}
        }
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
            unsafe { group::<S, E>(s, a, &mut state, &mut block, place, values, &mut ahead) };
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
/// `values` in place must be whole vectors of f32.
// The state of a loop nest; a struct for it would only move the names.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
unsafe fn group<S: Micro, E: Element>(
    s: S,
    a: &Inputs,
    state: &mut Rows,
    block: &mut Block,
    (first, rows, bits): (usize, usize, &[u64; GROUP]),
    values: Values,
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
            Factors::Singles => dots::<S, Single>(s, size, q, keys, block.scores, ahead),
            Factors::Pairs { instruction: true } => dots::<S, Pair<S::Pairs>>(s, size, q, keys, block.scores, ahead),
            Factors::Pairs { instruction: false } => dots::<S, Pair<Emulated>>(s, size, q, keys, block.scores, ahead),
        }
        largest(s, size, bits, block.scores, block.largest);
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
            let sum = probabilities::<S, E>(s, row, vectors, bits[r], scale, s.splat(-shifts[r]));
            let total = state.sum.as_mut_ptr().add((first + r) * LANES);
            s.store(total, s.fma(s.load(total), s.splat(factors[r]), sum));
        }
        let (steps, seen) = match of {
            Factors::Singles => (BLOCK, *bits),
            Factors::Pairs { .. } => (BLOCK / 2, bits.map(parted)),
        };
        let (b, b_step) = match values {
            Values::Packed => (block.values.as_ptr(), padded),
            Values::InPlace(values, row) => (values, row),
        };
        let product = Product {
            a: block.scores.as_ptr(),
            a_row: BLOCK,
            a_step: 1,
            b,
            b_step,
            steps,
            seen: seen.as_ptr(),
            c: state.acc.as_mut_ptr().add(first * padded),
            c_row: padded,
            sink: Sink::Rescale(factors.as_ptr()),
        };
        let vectors = padded / LANES;
        match of {
            Factors::Singles => multiply::<S, Single>(s, rows, vectors, &product, ahead),
            Factors::Pairs { instruction: true } => multiply::<S, Pair<S::Pairs>>(s, rows, vectors, &product, ahead),
            Factors::Pairs { instruction: false } => multiply::<S, Pair<Emulated>>(s, rows, vectors, &product, ahead),
        }
    }
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
