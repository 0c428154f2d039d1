//! One tile of C: blocks of the contracted dimension, packed panels, register tiles.

use super::Gemm;
use super::blocks::{Block, Blocks, MAX_LEAVES};
use super::epilogue::{Finish, finish};
use super::kernel::{Kernel, Merges, Micro, pack_any};
use super::tiling::Tile;
use crate::scratch::Scratch;
use crate::simd::LANES;

/// Where the packing routines may write past a panel's end.
const SLACK: usize = 16;

/// Lines of memory that will be packed next, asked for a few at a time while the multiply-adds run.
struct Ahead {
    base: *const f32,
    stride: usize,
    lines: usize,
    total: usize,
    next: usize,
    step: usize,
}

impl Ahead {
    const NONE: Ahead = Ahead {
        base: std::ptr::null(),
        stride: 0,
        lines: 1,
        total: 0,
        next: 0,
        step: 0,
    };

    /// `outs × steps` elements at `base`, in `calls` portions.
    fn new(base: *const f32, strides: (usize, usize), outs: usize, steps: usize, calls: usize) -> Ahead {
        let (rows, len, stride) = match strides {
            (1, step) => (steps, outs, step),
            (out, 1) => (outs, steps, out),
            _ => return Ahead::NONE,
        };
        let lines = len.div_ceil(LANES) + usize::from(!len.is_multiple_of(LANES) || !stride.is_multiple_of(LANES));
        Ahead {
            base,
            stride,
            lines,
            total: rows * lines,
            next: 0,
            step: (rows * lines).div_ceil(calls.max(1)),
        }
    }

    #[inline(always)]
    fn advance<K: Kernel>(&mut self) {
        let end = (self.next + self.step).min(self.total);
        let (mut row, mut line) = (self.next / self.lines, self.next % self.lines);
        for _ in self.next..end {
            K::prefetch(self.base.wrapping_add(row * self.stride + line * LANES));
            line += 1;
            if line == self.lines {
                line = 0;
                row += 1;
            }
        }
        self.next = end;
    }
}

/// Packs `outs × k` elements from `src` with the fastest routine that fits the strides (of outputs and of steps).
unsafe fn pack<K: Kernel>(
    src: *const f32,
    strides: (usize, usize),
    outs: usize,
    k: usize,
    dst: *mut f32,
    width: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match strides {
            (1, step) => K::pack_outputs(src, step, outs, k, dst, width),
            (out, 1) => K::pack_steps(src, out, outs, k, dst, width),
            _ => pack_any(src, strides, outs, k, dst, width),
        }
    }
}

/// The parts of the scratch memory.
struct Rooms {
    a: *mut f32,
    b: *mut f32,
    local: *mut f32,
    stack: *mut f32,
    sums: *mut f32,
}

/// Computes one tile of `g`.
///
/// # Safety
/// The CPU has K's instruction set, and the extents of `g` are inside its slices.
pub(super) unsafe fn tile<K: Kernel>(g: &Gemm, index: usize, scratch: &mut Scratch) {
    let tiling = g.tiling();
    let (batch, tile) = (index / tiling.tiles(), tiling.tile(index % tiling.tiles()));
    let blocks = Blocks::new(&g.sum, K::KC);
    let (down, across) = (tile.rows.div_ceil(K::MR), tile.cols.div_ceil(K::NR));
    let entry = K::MR * K::NR;
    let slots_before = g.sum.slots_before();
    let depth = blocks.max_depth();
    let lens = [
        tile.rows * blocks.max_len() + SLACK,
        K::NR * blocks.max_len() + SLACK,
        blocks.max_leaves() * entry,
        depth * down * across * entry,
        entry,
    ];
    let rounded = lens.map(|len| len.next_multiple_of(LANES));
    let memory = scratch.floats(rounded.iter().sum()).as_mut_ptr();
    let mut at = 0;
    let [a, b, local, stack, sums] = rounded.map(|len| {
        // SAFETY: the parts lie one after the other inside the scratch memory.
        let part = unsafe { memory.add(at) };
        at += len;
        part
    });
    let rooms = Rooms {
        a,
        b,
        local,
        stack,
        sums,
    };
    let mut run = Run::<K> {
        g,
        tile,
        rooms,
        down,
        across,
        a: g.a
            .data
            .as_ptr()
            .wrapping_add(batch * g.a_batch + tile.row * g.a.row_stride),
        b: g.b
            .data
            .as_ptr()
            .wrapping_add(batch * g.b_batch + tile.col * g.b.col_stride),
        c: batch * g.c_batch + tile.row * g.c_row + tile.col,
        kernel: std::marker::PhantomData,
    };
    let mut walk = blocks.clone();
    let mut first = true;
    let mut depth = slots_before;
    let mut table = [Merges::default(); MAX_LEAVES];
    let mut next = walk.next();
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
struct Run<'a, K> {
    g: &'a Gemm<'a>,
    tile: Tile,
    rooms: Rooms,
    down: usize,
    across: usize,
    /// A at the tile's first row, B at its first column, C (an index) at its first element.
    a: *const f32,
    b: *const f32,
    c: usize,
    kernel: std::marker::PhantomData<K>,
}

impl<K: Kernel> Run<'_, K> {
    unsafe fn block(&mut self, phase: &Phase) {
        let (g, tile, block) = (self.g, self.tile, &phase.block);
        let k = block.len();
        let (a_strides, b_strides) = ((g.a.row_stride, g.a.col_stride), (g.b.col_stride, g.b.row_stride));
        let a_block = self.a.wrapping_add(block.k * g.a.col_stride);
        let b_block = self.b.wrapping_add(block.k * g.b.row_stride);
        // SAFETY: panels lie one after the other; a panel's slack is the next one's beginning, packed later.
        unsafe {
            for i in (0..tile.rows).step_by(K::MR) {
                let rows = K::MR.min(tile.rows - i);
                let src = a_block.wrapping_add(i * g.a.row_stride);
                pack::<K>(src, a_strides, rows, k, self.rooms.a.add(i * k), rows);
            }
        }
        let mut next_a = match &phase.next {
            Some(next) => Ahead::new(
                self.a.wrapping_add(next.k * g.a.col_stride),
                a_strides,
                tile.rows,
                next.len(),
                self.down * self.across,
            ),
            None => Ahead::NONE,
        };
        for j in (0..tile.cols).step_by(K::NR) {
            let cols = K::NR.min(tile.cols - j);
            let vectors = cols.div_ceil(LANES);
            let src = b_block.wrapping_add(j * g.b.col_stride);
            // SAFETY: the panel's room is as large as the largest block.
            unsafe { pack::<K>(src, b_strides, cols, k, self.rooms.b, vectors * LANES) };
            let mut next_b = if j + K::NR < tile.cols {
                let cols = K::NR.min(tile.cols - j - K::NR);
                Ahead::new(src.wrapping_add(K::NR * g.b.col_stride), b_strides, cols, k, self.down)
            } else if let Some(next) = &phase.next {
                let src = self.b.wrapping_add(next.k * g.b.row_stride);
                Ahead::new(src, b_strides, K::NR.min(tile.cols), next.len(), self.down)
            } else {
                Ahead::NONE
            };
            for i in (0..tile.rows).step_by(K::MR) {
                let rows = K::MR.min(tile.rows - i);
                next_a.advance::<K>();
                next_b.advance::<K>();
                // SAFETY: as for the whole.
                unsafe { self.register_tile(phase, (i, j), (rows, cols)) };
            }
        }
    }

    /// The block's part of one register tile, at row `i` and column `j` of the tile.
    #[inline(always)]
    unsafe fn register_tile(&self, phase: &Phase, (i, j): (usize, usize), (rows, cols): (usize, usize)) {
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
                    let from = g.c.as_ptr().add(c + slot * g.slot);
                    load_entry::<K>(from, g.c_row, stack.add(slot * level), rows, cols);
                }
            }
            let top = mine + below;
            let last = phase.next.is_none();
            let direct = last && cols == vectors * LANES && !g.has_epilogue();
            let (dst, dst_stride) = match (last, direct) {
                (true, true) => (g.c.as_ptr().add(c + top * g.slot), g.c_row),
                (true, false) => (self.rooms.sums, K::NR),
                _ => (stack.add(top * level), K::NR),
            };
            let micro = Micro {
                a: self.rooms.a.add(i * block.len()),
                b: self.rooms.b,
                leaf: block.leaf,
                merges: phase.merges,
                carry: block.carry_in,
                local: self.rooms.local,
                below: stack.wrapping_add(phase.depth * level),
                below_stride: level,
                dst,
                dst_stride,
            };
            K::micro(&micro, rows, vectors);
            for l in 0..mine {
                let from = self.rooms.local.add(l * entry);
                std::ptr::copy_nonoverlapping(from, stack.add((below + l) * level), entry);
            }
            if last {
                for slot in 0..top {
                    store_entry::<K>(
                        stack.add(slot * level),
                        g.c.as_ptr().add(c + slot * g.slot),
                        g.c_row,
                        rows,
                        cols,
                    );
                }
                if !direct {
                    let null = std::ptr::null_mut();
                    let bias = g.bias.map_or(std::ptr::null(), |b| b.as_ptr().add(self.tile.col + j));
                    finish(
                        K::ISA,
                        Finish {
                            from: self.rooms.sums,
                            from_stride: K::NR,
                            to: g.c.as_ptr().add(c + top * g.slot),
                            pre: g.pre.map_or(null, |pre| pre.as_ptr().add(c)),
                            to_stride: g.c_row,
                            bias,
                            activation: g.activation,
                            rows,
                            cols,
                        },
                    );
                }
            }
        }
    }
}

/// Reads a stack entry from a slot of C; columns that are not there become +0.
unsafe fn load_entry<K: Kernel>(from: *const f32, stride: usize, entry: *mut f32, rows: usize, cols: usize) {
    for r in 0..rows {
        // SAFETY: `cols` floats of each row.
        unsafe {
            let row = entry.add(r * K::NR);
            std::ptr::copy_nonoverlapping(from.add(r * stride), row, cols);
            std::ptr::write_bytes(row.add(cols), 0, K::NR - cols);
        }
    }
}

/// Writes a stack entry to a slot of C.
unsafe fn store_entry<K: Kernel>(entry: *const f32, to: *mut f32, stride: usize, rows: usize, cols: usize) {
    for r in 0..rows {
        for j in 0..cols {
            // SAFETY: `cols` floats of each row. +0 is added, as entries from inside a block may be −0.
            unsafe { *to.add(r * stride + j) = *entry.add(r * K::NR + j) + 0.0 };
        }
    }
}
