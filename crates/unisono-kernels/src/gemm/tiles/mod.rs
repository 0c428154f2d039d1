//! Products of bf16 in the order of AMX tiles ([`Bf16Order::Tiles`](crate::bf16_order::Bf16Order)).
//!
//! A leaf's addends are taken in *chunks* of 32, that is 16 pairs, from its start; what the last chunk lacks is +0 in both
//! factors. A chunk gives, from `even` = `odd` = +0, for p = 0, 1, … 15
//!
//! ```text
//! even = fma(a[2p],     b[2p],     even)
//! odd  = fma(a[2p + 1], b[2p + 1], odd)
//! ```
//!
//! and then `acc = acc + (even + odd)`, with `acc` = +0 at the leaf's start: all in f32, denormal elements being zeros of
//! their sign, and a result a zero of its sign if it is tiny after rounding, as for pairs. This is what the instruction `tdpbf16ps`
//! does with tiles of 16 × 32 (Intel, *Software Developer's Manual*, volume 2, TDPBF16PS: "FP32 FMA with DAZ=FTZ=1,
//! RNE rounding"); elsewhere [`Lanes`] computes the same. Units, leaves, the tree, roundings and the
//! epilogue are those of pairs.
//!
//! The driver is plain: a block of at most [`BLOCK`] chunks is packed, all rows of A and 32 columns of B at a time, in the layout of
//! AMX's tile registers; a piece of 32 × 32 sums goes through the block leaf by leaf, each leaf's sums onto a small stack in
//! the first-level cache, where the tree's additions are done.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
mod lanes;
mod pack;
pub(super) mod peak;

use super::Gemm;
use super::arithmetic::{Arithmetic, Emulated, Single};
use super::blocks::{Block, Blocks, MAX_LEAVES};
use super::entries::{load_entry, store_entry};
use super::epilogue::{Finish, FromMemory};
use super::kernel::{Kernel, Merges, Work};
use super::side::{SLACK, Side};
use super::tiling::Tile;
use crate::scratch::Scratch;
use crate::simd::LANES;
#[cfg(target_arch = "x86_64")]
pub(super) use lanes::Halves;
pub(super) use lanes::{Lanes, Widened};
use pack::{PackA, pack_b};
use std::marker::PhantomData;

/// Addends, and pairs of them, in a chunk.
const ADDENDS: usize = 32;
const PAIRS: usize = 16;
/// Rows of a panel of A.
const HEIGHT: usize = 16;
/// Rows and columns of a piece of C: 2 × 2 tiles.
const PIECE: usize = 32;
/// Floats of a stack entry: a piece, its rows one after the other.
const ENTRY: usize = PIECE * PIECE;
/// Words of a chunk of a panel of B: a row of 16 columns for each pair.
const B_CHUNK: usize = PAIRS * LANES;
/// Chunks in a block, at most: 32 columns of B then take 32 KiB and stay in the first-level cache.
const BLOCK: usize = 16;

/// How a leaf of a piece is computed.
pub(super) trait Engine<K: Kernel> {
    /// The arithmetic whose features the engine's functions need.
    type With: Arithmetic<K>;
    /// Words of a row of a chunk of A.
    const A_ROW: usize;

    /// Writes a row of a chunk of A, 16 words of pairs, as the engine wants them.
    ///
    /// # Safety
    /// `to` has room for [`Engine::A_ROW`] words.
    unsafe fn put(s: K, words: K::F, to: *mut f32);

    /// Computes a leaf, or a part of one.
    ///
    /// # Safety
    /// The CPU has what the engine needs, and the pointers of `leaf` reach as far as its fields say.
    unsafe fn leaf(&self, s: K, leaf: &Leaf);
}

/// A leaf of a piece, or a part of a long one.
pub(super) struct Leaf {
    /// Chunks of A's first panel; `height` rows each. Panels lie `a_panel` words apart.
    a: *const f32,
    a_panel: usize,
    height: usize,
    /// Chunks of B's first panel. Panels lie `b_panel` words apart.
    b: *const f32,
    b_panel: usize,
    chunks: usize,
    /// Rows that the piece has; sums of others are of no use.
    rows: usize,
    /// Columns that the piece has, in vectors.
    vectors: usize,
    /// Whether the sums go on from what they are, instead of from +0.
    carry: bool,
    /// The sums, rows [`PIECE`] floats apart.
    sums: *mut f32,
}

/// The parts of the scratch memory.
struct Rooms {
    /// Panels of A, and two of B, of the block in work.
    a: *mut f32,
    b: *mut f32,
    /// Entries that a block pushes.
    local: *mut f32,
    /// Entries between blocks, level by level those of all pieces.
    stack: *mut f32,
}

/// Computes one tile of `g`, on `engine`.
///
/// # Safety
/// The CPU has K's instruction set and what the engine needs, and the extents of `g` are inside its slices.
pub(super) unsafe fn tile<K: Kernel, E: Engine<K>>(g: &Gemm, index: usize, scratch: &mut Scratch, engine: E) {
    let tiling = g.tiling();
    let (batch, tile) = (index / tiling.tiles(), tiling.tile(index % tiling.tiles()));
    // Chunks are the steps of these blocks, so that a long leaf is cut between two of them.
    let blocks = Blocks::new(&g.sum, BLOCK, ADDENDS);
    let height = height(tile.rows);
    let panels = tile.rows.div_ceil(height.max(1));
    let (down, across) = (tile.rows.div_ceil(PIECE), tile.cols.div_ceil(PIECE));
    let chunks = blocks.max_len();
    let lens = [
        panels * chunks * height * E::A_ROW,
        2 * chunks * B_CHUNK + SLACK,
        (blocks.max_leaves() + 1) * ENTRY,
        blocks.max_depth() * down * across * ENTRY,
    ];
    let [a, b, local, stack] = scratch.parts(lens);
    let run = Run::<K, E> {
        g,
        tile,
        engine,
        height,
        leaf_steps: g.sum.units.leaf().div_ceil(2),
        rooms: Rooms { a, b, local, stack },
        level: down * across * ENTRY,
        down,
        a: Side::of_a::<K, Emulated>(g, batch, tile.row),
        b: Side::of_b::<K, Emulated>(g, batch, tile.col),
        c: batch * g.c_batch + tile.row * g.c_row + tile.col,
        kernel: PhantomData,
    };
    let mut walk = blocks.clone();
    let mut depth = g.sum.slots_before();
    let mut table = [Merges::default(); MAX_LEAVES];
    let mut next = walk.next();
    let mut first = true;
    while let Some(block) = next {
        next = walk.next();
        let left = blocks.merges(&block, depth, &mut table);
        let phase = Phase {
            block,
            depth,
            left,
            first,
            last: next.is_none(),
            merges: &table[..block.leaves],
        };
        // SAFETY: the caller's promise, and rooms as large as the largest block asks.
        unsafe { run.block(&phase) };
        depth = left.0 + left.1 + 1;
        first = false;
    }
}

/// Rows of each panel of A in a tile of this many rows.
pub(super) fn height(rows: usize) -> usize {
    rows.min(HEIGHT)
}

/// One block and the stack around it.
struct Phase<'a> {
    block: Block,
    /// Entries on the stack before the block.
    depth: usize,
    /// Entries of the block's own and of earlier blocks' that lie below the newest value after it.
    left: (usize, usize),
    first: bool,
    last: bool,
    merges: &'a [Merges],
}

/// Where a part of a block begins in memory and in its panel.
#[derive(Clone, Copy)]
struct Stretch {
    /// The first step, counted from the call's first, and how many.
    step: usize,
    steps: usize,
    /// The first chunk, counted from the block's first, and how many.
    chunk: usize,
    chunks: usize,
}

/// A tile in work.
struct Run<'a, K, E> {
    g: &'a Gemm<'a>,
    tile: Tile,
    engine: E,
    height: usize,
    /// Steps, that is pairs, of a leaf.
    leaf_steps: usize,
    rooms: Rooms,
    /// Floats of a level of the stack, and pieces one above the other.
    level: usize,
    down: usize,
    /// A at the tile's first row, B at its first column, C (an index) at its first element.
    a: Side,
    b: Side,
    c: usize,
    kernel: PhantomData<K>,
}

impl<K: Kernel, E: Engine<K>> Run<'_, K, E> {
    /// The leaves of a block, or the part of one, one by one.
    fn stretches(&self, block: &Block) -> impl Iterator<Item = Stretch> {
        let (steps, chunks) = (self.leaf_steps, self.leaf_steps.div_ceil(PAIRS));
        let (first, chunks_of_block) = (block.k, block.leaf);
        (0..block.leaves).map(move |leaf| {
            let at = first + leaf * chunks_of_block;
            // Chunks of whole leaves come before, and some of this one.
            let inside = at % chunks.max(1) * PAIRS;
            Stretch {
                step: at / chunks.max(1) * steps + inside,
                steps: (chunks_of_block * PAIRS).min(steps - inside),
                chunk: leaf * chunks_of_block,
                chunks: chunks_of_block,
            }
        })
    }

    /// Runs one block over the whole tile.
    unsafe fn block(&self, phase: &Phase) {
        let tile = self.tile;
        // SAFETY: the caller's promise.
        unsafe {
            K::call::<E::With, _>(PackA { run: self, phase });
            for j in (0..tile.cols).step_by(PIECE) {
                pack_b(self, phase, j);
                for i in (0..tile.rows).step_by(PIECE) {
                    K::call::<E::With, _>(Piece {
                        run: self,
                        phase,
                        at: (i, j),
                    });
                }
            }
        }
    }
}

/// A piece's part of a block.
struct Piece<'a, K, E> {
    run: &'a Run<'a, K, E>,
    phase: &'a Phase<'a>,
    /// Its first row and column in the tile.
    at: (usize, usize),
}

impl<K: Kernel, E: Engine<K>> Work<K, E::With> for Piece<'_, K, E> {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        let Piece { run, phase, at: (i, j) } = self;
        let (g, block, local, level) = (run.g, &phase.block, run.rooms.local, run.level);
        let (rows, cols) = (PIECE.min(run.tile.rows - i), PIECE.min(run.tile.cols - j));
        let c = run.c + i * g.c_row + j;
        let a_panel = block.len() * run.height * E::A_ROW;
        let mut leaf = Leaf {
            a: run.rooms.a.wrapping_add(i / HEIGHT * a_panel),
            a_panel,
            height: run.height,
            b: run.rooms.b,
            b_panel: block.len() * B_CHUNK,
            chunks: block.leaf,
            rows,
            vectors: cols.div_ceil(LANES),
            carry: block.carry_in,
            sums: local,
        };
        // SAFETY: the stack's room holds as many levels as the stack is ever deep, C the slots.
        unsafe {
            let stack = run.rooms.stack.wrapping_add((j / PIECE * run.down + i / PIECE) * ENTRY);
            if phase.first {
                for slot in 0..phase.depth {
                    let from = g.sums().add(c + slot * g.slot);
                    load_entry(from, g.c_row, (stack.add(slot * level), PIECE), (rows, cols));
                }
            }
            let mut below = stack.wrapping_add(phase.depth * level);
            if block.carry_in {
                below = below.sub(level);
                std::ptr::copy_nonoverlapping(below, local, ENTRY);
            }
            let mut newest = local;
            for merges in phase.merges {
                leaf.sums = newest;
                run.engine.leaf(s, &leaf);
                leaf.a = leaf.a.wrapping_add(block.leaf * run.height * E::A_ROW);
                leaf.b = leaf.b.wrapping_add(block.leaf * B_CHUNK);
                leaf.carry = false;
                for _ in 0..merges.local {
                    let entry = newest.sub(ENTRY);
                    add_entries(s, entry, newest, entry, rows);
                    newest = entry;
                }
                for _ in 0..merges.below {
                    below = below.sub(level);
                    add_entries(s, below, newest, newest, rows);
                }
                newest = newest.add(ENTRY);
            }
            let (mine, left) = phase.left;
            let newest = local.add(mine * ENTRY);
            if !phase.last {
                for entry in 0..=mine {
                    let to = stack.add((left + entry) * level);
                    std::ptr::copy_nonoverlapping(local.add(entry * ENTRY), to, ENTRY);
                }
                return;
            }
            let top = mine + left;
            for slot in 0..top {
                let entry = match slot.checked_sub(left) {
                    None => stack.add(slot * level),
                    Some(own) => local.add(own * ENTRY),
                };
                store_entry((entry, PIECE), g.sums().add(c + slot * g.slot), g.c_row, (rows, cols));
            }
            // +0 once, so that no stored sum is −0.
            for at in (0..rows * PIECE).step_by(LANES) {
                s.store(newest.add(at), s.add(s.load(newest.add(at)), s.zero()));
            }
            K::call::<Single, _>(FromMemory {
                finish: &Finish::of(g, c + top * g.slot, run.tile.col + j, (rows, cols)),
                sums: newest,
                stride: PIECE,
            });
        }
    }
}

/// `to = below + newest`, of the first `rows` rows.
///
/// # Safety
/// All three are entries; `to` may be one of the others.
#[inline(always)]
unsafe fn add_entries<K: Kernel>(s: K, below: *const f32, newest: *const f32, to: *mut f32, rows: usize) {
    for at in (0..rows * PIECE).step_by(LANES) {
        // SAFETY: entries hold PIECE rows.
        unsafe { s.store(to.add(at), s.add(s.load(below.add(at)), s.load(newest.add(at)))) };
    }
}
