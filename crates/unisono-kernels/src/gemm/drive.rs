//! One tile of C: blocks of the contracted dimension, packed panels, register tiles.

use super::arithmetic::Arithmetic;
use super::blocks::{Block, Blocks, MAX_LEAVES};
use super::entries::{load_entry, store_entry};
use super::epilogue::{Finish, FromMemory};
use super::feed::Feed;
use super::job::{JOBS, Job};
use super::kernel::{Kernel, Merges, Micro};
use super::side::{SLACK, Side};
use super::tiling::Tile;
use super::{Gemm, skinny};
use crate::scratch::Scratch;
use crate::simd::LANES;
use std::marker::PhantomData;

/// Portions of packing after every fourth step while the first block's panels of A are packed: then a whole panel is ready
/// for the next register tile.
const FAST: usize = 4;

/// The parts of the scratch memory.
struct Rooms {
    /// Panels of A and one panel of B, for the block in work and for the next.
    a: [*mut f32; 2],
    b: [*mut f32; 2],
    local: *mut f32,
    stack: *mut f32,
    sums: *mut f32,
}

/// Computes one tile of `g`.
///
/// # Safety
/// The CPU has K's instruction set, and the extents of `g` are inside its slices.
pub(super) unsafe fn tile<K: Kernel, A: Arithmetic<K>>(g: &Gemm, index: usize, scratch: &mut Scratch) {
    let tiling = g.tiling();
    let (batch, tile) = (index / tiling.tiles(), tiling.tile(index % tiling.tiles()));
    if skinny::suits(g) {
        // SAFETY: the caller's promise; such a product's tiles have all rows.
        return unsafe { skinny::tile::<K, A>(g, batch, tile.col, tile.cols, scratch) };
    }
    let blocks = Blocks::new(&g.sum, K::KC, A::ADDENDS);
    let (down, across) = (tile.rows.div_ceil(K::MR), tile.cols.div_ceil(K::NR));
    let entry = K::MR * K::NR;
    let slots_before = g.sum.slots_before();
    let depth = blocks.max_depth();
    let lens = [
        tile.rows * blocks.max_len() + SLACK,
        tile.rows * blocks.max_len() + SLACK,
        K::NR * blocks.max_len() + SLACK,
        K::NR * blocks.max_len() + SLACK,
        blocks.max_leaves() * entry,
        depth * down * across * entry,
        entry,
    ];
    let [a0, a1, b0, b1, local, stack, sums] = scratch.parts(lens);
    let mut run = Run::<K, A> {
        g,
        tile,
        rooms: Rooms {
            a: [a0, a1],
            b: [b0, b1],
            local,
            stack,
            sums,
        },
        down,
        across,
        a: Side::of_a::<K, A>(g, batch, tile.row),
        b: Side::of_b::<K, A>(g, batch, tile.col),
        c: batch * g.c_batch + tile.row * g.c_row + tile.col,
        jobs: [Job::NONE; JOBS],
        kernel: PhantomData,
    };
    let mut walk = blocks.clone();
    let mut first = true;
    let mut depth = slots_before;
    let mut table = [Merges::default(); MAX_LEAVES];
    let mut next = walk.next();
    let packs_ahead = run.packs_ahead(walk.clone().next().is_none());
    if let Some(block) = &next {
        // SAFETY: the caller's promise, and rooms as large as the largest block asks.
        unsafe {
            if packs_ahead {
                let panel = K::MR.min(tile.rows);
                run.a.at(0, block.k).pack::<K, A>(panel, block.len(), a0, panel);
                run.a
                    .at(panel, block.k)
                    .prefetch::<K>(K::MR.min(tile.rows - panel), block.len());
            } else {
                run.feed_a(block, 0, 4, 0).finish::<K, A>();
            }
            run.feed_b(block, 0, 4, 0).finish::<K, A>();
        }
    }
    while let Some(block) = next {
        next = walk.next();
        let left = blocks.merges(&block, depth, &mut table);
        let phase = Phase {
            block,
            next,
            depth,
            left,
            first,
            merges: &table[..block.leaves],
        };
        // SAFETY: the caller's promise, and rooms as large as the largest block asks.
        unsafe { run.block(&phase) };
        depth = left.0 + left.1 + 1;
        first = false;
    }
    // SAFETY: the last register tile left these look-ups, if any, of the arguments that it wrote.
    unsafe { run.jobs[2].look_up_all_but::<K>(0) };
}

/// One block and the stack around it.
struct Phase<'a> {
    block: Block,
    next: Option<Block>,
    /// Entries on the stack before the block.
    depth: usize,
    /// Entries of the block's own and of earlier blocks' that lie below the newest value after it.
    left: (usize, usize),
    first: bool,
    merges: &'a [Merges],
}

/// A tile in work.
struct Run<'a, K, A> {
    g: &'a Gemm<'a>,
    tile: Tile,
    rooms: Rooms,
    down: usize,
    across: usize,
    /// A at the tile's first row, B at its first column, C (an index) at its first element.
    a: Side,
    b: Side,
    c: usize,
    /// What the next register tile does on the side: packing twice, and looking up the activations of the last one.
    jobs: [Job; JOBS],
    kernel: PhantomData<(K, A)>,
}

impl<K: Kernel, A: Arithmetic<K>> Run<'_, K, A> {
    /// Packs the panels of A for `block` from row `i` of the tile on.
    fn feed_a(&self, block: &Block, i: usize, portions: usize, room: usize) -> Feed {
        Feed::new(
            self.a.at(i, block.k),
            self.tile.rows - i,
            K::MR,
            1,
            block.len(),
            portions,
            self.rooms.a[room].wrapping_add(i * block.len()),
        )
    }

    /// Packs the panel of B for `block` that begins at column `j` of the tile.
    fn feed_b(&self, block: &Block, j: usize, portions: usize, room: usize) -> Feed {
        Feed::new(
            self.b.at(j, block.k),
            K::NR.min(self.tile.cols - j),
            K::NR,
            LANES,
            block.len(),
            portions,
            self.rooms.b[room],
        )
    }

    /// Whether the first block's panels of A are packed one register tile ahead, while its first column runs, and not all
    /// before: the next block's panels, if there is one, are left to the other columns then.
    fn packs_ahead(&self, only: bool) -> bool {
        only || self.across > 1
    }

    /// Runs one block over the whole tile. Its panels of A (of the first block the first one, if the others are packed ahead) and its first panel of B
    /// are packed; meanwhile the others and those of the next block are.
    unsafe fn block(&mut self, phase: &Phase) {
        let tile = self.tile;
        let quads = phase.block.leaves * (phase.block.leaf / 4);
        let packs_ahead = phase.first && self.packs_ahead(phase.next.is_none());
        let mut rest_a = if packs_ahead {
            self.feed_a(&phase.block, K::MR.min(tile.rows), 1, 0)
        } else {
            Feed::none()
        };
        let mut next_a = match &phase.next {
            // The first column packs the block's own panels.
            Some(next) => self.feed_a(next, 0, self.across - usize::from(packs_ahead), 1),
            None => Feed::none(),
        };
        for j in (0..tile.cols).step_by(K::NR) {
            let cols = K::NR.min(tile.cols - j);
            // The first portion is only asked for, so one call fewer packs.
            let portions = self.down - usize::from(self.down > 1);
            let mut next_b = match &phase.next {
                _ if j + K::NR < tile.cols => self.feed_b(&phase.block, j + K::NR, portions, 1),
                Some(next) => self.feed_b(next, 0, portions, 1),
                None => Feed::none(),
            };
            for i in (0..tile.rows).step_by(K::MR) {
                let rows = K::MR.min(tile.rows - i);
                let first = packs_ahead && j == 0;
                let pace = if first { FAST } else { 1 };
                // SAFETY: the caller's promise; what is looked up are arguments that the last register tile wrote.
                unsafe {
                    let mut room = if rows == K::MR && cols > K::NR - LANES {
                        pace * quads
                    } else {
                        0
                    };
                    if first {
                        // Panel i + 1 of A must be ready for the next call: it goes first, and B's as far as there is room.
                        self.jobs[0] = rest_a.advance_whole::<K, A>(room);
                        room -= self.jobs[0].count.next_multiple_of(pace);
                        self.jobs[1] = next_b.advance::<K, A>(room);
                    } else {
                        self.jobs[0] = next_b.advance::<K, A>(room);
                        room -= self.jobs[0].count;
                        self.jobs[1] = next_a.advance::<K, A>(room);
                    }
                    // What is left of the room is for looking up, and what of that does not fit is done now.
                    room -= self.jobs[1].count.next_multiple_of(pace);
                    self.jobs[2].look_up_all_but::<K>(room);
                    self.register_tile(phase, (i, j), (rows, cols), pace);
                }
            }
            // SAFETY: as above.
            unsafe { next_b.finish::<K, A>() };
            self.rooms.b.swap(0, 1);
        }
        // SAFETY: as above.
        unsafe { next_a.finish::<K, A>() };
        self.rooms.a.swap(0, 1);
    }

    /// The block's part of one register tile, at row `i` and column `j` of the tile.
    #[inline(always)]
    unsafe fn register_tile(
        &mut self,
        phase: &Phase,
        (i, j): (usize, usize),
        (rows, cols): (usize, usize),
        pace: usize,
    ) {
        let (g, block) = (self.g, &phase.block);
        let entry = K::MR * K::NR;
        let level = self.down * self.across * entry;
        let index = j / K::NR * self.down + i / K::MR;
        let c = self.c + i * g.c_row + j;
        let (mine, below) = phase.left;
        let vectors = cols.div_ceil(LANES);
        // SAFETY: the stack's room holds as many levels as the stack is ever deep, C the slots.
        unsafe {
            let stack = self.rooms.stack.add(index * entry);
            if phase.first {
                for slot in 0..phase.depth {
                    let from = g.sums().add(c + slot * g.slot);
                    load_entry(from, g.c_row, (stack.add(slot * level), K::NR), (rows, cols));
                }
            }
            let top = mine + below;
            let last = phase.next.is_none();
            let whole = cols == vectors * LANES;
            let direct = last && whole && g.stores_sums();
            let finish = Finish::of(g, c + top * g.slot, self.tile.col + j, (rows, cols));
            let finishes = last && !direct;
            let (dst, dst_stride) = match (last, direct) {
                (true, true) => (g.sums().add(c + top * g.slot), g.c_row),
                (true, false) => (self.rooms.sums, K::NR),
                _ => (stack.add(top * level), K::NR),
            };
            let in_registers = finishes && whole && finish.in_registers();
            let micro = Micro {
                a: self.rooms.a[0].add(i * block.len()),
                b: self.rooms.b[0],
                leaf: block.leaf,
                merges: phase.merges,
                carry: block.carry_in,
                local: self.rooms.local,
                below: stack.wrapping_add(phase.depth * level),
                below_stride: level,
                finish: in_registers.then_some(&finish),
                dst,
                dst_stride,
                jobs: self.jobs.as_mut_ptr(),
                pace,
            };
            // What the kernel adds and where it stores is asked for now, a whole block ahead.
            let popped = phase.depth - below;
            for level_below in 1..=popped {
                prefetch_rows::<K>(micro.below.wrapping_sub(level_below * level), K::NR, rows, vectors);
            }
            if finishes {
                finish.prefetch::<K>();
            } else {
                prefetch_rows::<K>(dst, dst_stride, rows, vectors);
            }
            let finished = K::micro::<A>(&micro, rows, vectors);
            debug_assert!(
                self.jobs.iter().all(|job| job.count == 0),
                "bug in unisono: work is left"
            );
            for l in 0..mine {
                let from = self.rooms.local.add(l * entry);
                std::ptr::copy_nonoverlapping(from, stack.add((below + l) * level), entry);
            }
            if last {
                for slot in 0..top {
                    store_entry(
                        (stack.add(slot * level), K::NR),
                        g.sums().add(c + slot * g.slot),
                        g.c_row,
                        (rows, cols),
                    );
                }
                if finished {
                    self.jobs[2] = finish.look_up_job::<K, A>();
                } else if finishes {
                    K::call::<A, _>(FromMemory {
                        finish: &finish,
                        sums: dst,
                        stride: dst_stride,
                    });
                }
            }
        }
    }
}

/// Asks for the lines of a register tile in memory.
#[inline(always)]
fn prefetch_rows<K: Kernel>(first: *const f32, stride: usize, rows: usize, vectors: usize) {
    for r in 0..rows {
        for v in 0..vectors {
            K::prefetch(first.wrapping_add(r * stride + v * LANES));
        }
    }
}
