//! Finishing a sum whose shares lie on several devices, and picking rows from their owners.
//!
//! Every device holds the spans of its share of the sum ([`Share`](crate::order::Share)), one slot a span. Pushing the
//! spans of share 0, then those of share 1, … on one stack machine gives the bits that a single device would have got, so
//! the peers' buffers are read in place, once, and each worker finishes a range of elements of its own.

use crate::isa::Isa;
use crate::order::Tree;
use crate::scratch::Scratch;
use std::ops::Range;

/// Elements that are combined at once, so that the stack stays in the first cache.
const CHUNK: usize = 1024;

/// One device's share of a sum: the spans of the items `open..end`, slot after slot.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// First item of the share.
    pub open: usize,
    /// One past the last item of the share; an empty share (`open == end`) has no slots.
    pub end: usize,
    /// The slots, each a whole copy of the summed array: element `e` of span `s` is `data[s * slot + e]`.
    pub data: &'a [f32],
    /// Elements from one slot to the next.
    pub slot: usize,
}

impl<'a> Part<'a> {
    fn span(&self, index: usize, from: usize, len: usize) -> &'a [f32] {
        &self.data[index * self.slot + from..][..len]
    }
}

/// Combines the neighbouring shares `part(0)`, `part(1)`, … `part(parts - 1)` of a sum in the order of `tree` and writes
/// the elements `from..from + len` of the one span that results to `out` (`len` elements).
///
/// Order, per element: the spans of part 0 bottom up, then those of part 1, …, each pushed on a stack machine that began
/// at `part(0).open`; a merge is `below + top`; +0.0 is added to the result. Elements do not depend on each other, so any
/// partition into ranges gives the same bits.
///
/// # Panics
/// If the parts are not neighbours or do not combine to one span: a bug in unisono.
// The arguments are the signature that the runtime's commands are coded against.
#[allow(clippy::too_many_arguments)]
pub fn combine<'a>(
    isa: Isa,
    tree: &Tree,
    parts: usize,
    part: &dyn Fn(usize) -> Part<'a>,
    from: usize,
    len: usize,
    out: &mut [f32],
    scratch: &mut Scratch,
) {
    let _ = isa; // additions element by element: the same bits on every instruction set, and bound by memory.
    assert_eq!(out.len(), len, "bug in unisono: combine writes {len} elements");
    let depth = check(tree, parts, part);
    let mut full = (0..parts).map(part).filter(|p| p.open < p.end);
    // The common case of aligned shares: one span each.
    match (full.next(), full.next(), full.next()) {
        (Some(a), None, None) => {
            for (o, a) in out.iter_mut().zip(a.span(0, from, len)) {
                *o = a + 0.0;
            }
            return;
        }
        (Some(a), Some(b), None) if is_single(tree, &a) && is_single(tree, &b) => {
            let (a, b) = (a.span(0, from, len), b.span(0, from, len));
            for ((o, a), b) in out.iter_mut().zip(a).zip(b) {
                *o = (a + b) + 0.0;
            }
            return;
        }
        _ => {}
    }
    let chunk = CHUNK.min(len);
    let above = scratch.floats((depth - 1) * chunk);
    for start in (0..len).step_by(CHUNK) {
        let width = CHUNK.min(len - start);
        let chunk = &mut out[start..start + width];
        push_spans(tree, parts, part, from + start, chunk, above);
        for sum in chunk {
            *sum += 0.0;
        }
    }
}

/// Combines neighbouring shares as far as that goes without what is before and after them: `put` gets the spans that result, bottom up
/// by number, piece by piece: the number, the first element of the piece, its values. Elements `range` are worked out.
///
/// The order is that of [`combine`], so finishing the sum from such lists gives the same bits; nothing is added to zero here.
///
/// # Panics
/// If the parts are not neighbours: a bug in unisono.
pub fn combine_spans<'a>(
    tree: &Tree,
    parts: usize,
    part: &dyn Fn(usize) -> Part<'a>,
    range: Range<usize>,
    put: &mut dyn FnMut(usize, usize, &[f32]),
    scratch: &mut Scratch,
) {
    let (deepest, left) = depths(tree, parts, part);
    let chunk = CHUNK.min(range.len());
    let stack = scratch.floats(deepest * chunk);
    for start in range.clone().step_by(CHUNK) {
        let width = CHUNK.min(range.end - start);
        let (bottom, above) = stack.split_at_mut(chunk);
        push_spans(tree, parts, part, start, &mut bottom[..width], above);
        put(0, start, &bottom[..width]);
        for index in 1..left {
            put(index, start, &above[(index - 1) * width..][..width]);
        }
    }
}

/// Runs the stack machine for one chunk: the bottom of the stack is `bottom`, the entries above it lie in `above`.
fn push_spans<'a>(
    tree: &Tree,
    parts: usize,
    part: &dyn Fn(usize) -> Part<'a>,
    from: usize,
    bottom: &mut [f32],
    above: &mut [f32],
) {
    let width = bottom.len();
    let open = part(0).open;
    let mut depth = 0;
    for p in (0..parts).map(part) {
        for (index, span) in tree.spans(p.open, p.end).enumerate() {
            let source = p.span(index, from, width);
            let merges = tree.merges(open, span);
            if merges == 0 {
                entry(bottom, above, depth).copy_from_slice(source);
                depth += 1;
                continue;
            }
            // The first merge reads the peer's memory, without a copy on the stack.
            add(entry(bottom, above, depth - 1), source);
            for _ in 1..merges {
                depth -= 1;
                if depth == 1 {
                    add(bottom, &above[..width]);
                } else {
                    let (below, top) = above.split_at_mut((depth - 1) * width);
                    add(&mut below[(depth - 2) * width..], &top[..width]);
                }
            }
        }
    }
}

fn entry<'s>(bottom: &'s mut [f32], above: &'s mut [f32], index: usize) -> &'s mut [f32] {
    let width = bottom.len();
    match index {
        0 => bottom,
        _ => &mut above[(index - 1) * width..][..width],
    }
}

fn add(below: &mut [f32], top: &[f32]) {
    for (b, t) in below.iter_mut().zip(top) {
        *b += t;
    }
}

fn is_single(tree: &Tree, part: &Part<'_>) -> bool {
    tree.num_spans(part.open, part.end) == 1
}

/// Checks that the parts are neighbours whose union is one span; returns how deep the stack grows.
fn check<'a>(tree: &Tree, parts: usize, part: &dyn Fn(usize) -> Part<'a>) -> usize {
    let (deepest, depth) = depths(tree, parts, part);
    assert!(
        depth == 1,
        "bug in unisono: the shares {}..{} of a sum over {} items combine to {depth} spans, not one",
        part(0).open,
        part(parts - 1).end,
        tree.count()
    );
    deepest
}

/// Checks that the parts are neighbours; returns how deep the stack grows, and how many spans are left on it.
fn depths<'a>(tree: &Tree, parts: usize, part: &dyn Fn(usize) -> Part<'a>) -> (usize, usize) {
    assert!(parts > 0, "bug in unisono: combine of no parts");
    let open = part(0).open;
    let (mut end, mut depth, mut deepest) = (open, 0, 0);
    for p in (0..parts).map(part) {
        assert_eq!(p.open, end, "bug in unisono: combine of shares that are not neighbours");
        end = p.end;
        for span in tree.spans(p.open, p.end) {
            depth += 1;
            depth -= tree.merges(open, span);
            deepest = deepest.max(depth);
        }
    }
    (deepest, depth)
}

/// Copies the rows `rows_from..rows_to` from their owners: `out[row] = part(owner(row))[row]`, zeros where no part owns
/// the row.
///
/// Each part is an array of rows of `cols` elements; `out` holds only the rows asked for (`(rows_to - rows_from) * cols`).
pub fn select_rows<'a>(
    owner: &dyn Fn(usize) -> Option<usize>,
    part: &dyn Fn(usize) -> &'a [f32],
    cols: usize,
    rows_from: usize,
    rows_to: usize,
    out: &mut [f32],
) {
    assert_eq!(
        out.len(),
        (rows_to - rows_from) * cols,
        "bug in unisono: select_rows writes rows {rows_from}..{rows_to} of {cols}"
    );
    for row in rows_from..rows_to {
        let to = &mut out[(row - rows_from) * cols..][..cols];
        match owner(row) {
            Some(index) => to.copy_from_slice(&part(index)[row * cols..][..cols]),
            None => to.fill(0.0),
        }
    }
}
