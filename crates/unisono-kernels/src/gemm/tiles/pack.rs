//! Packing a block: rows of chunks of A, and chunks of B.

use super::{B_CHUNK, Engine, PAIRS, PIECE, Phase, Run, Stretch};
use crate::gemm::arithmetic::{Arithmetic, Emulated};
use crate::gemm::kernel::{Kernel, Work};
use crate::gemm::side::{Layout, Side};
use crate::simd::LANES;

/// Packs all rows of the tile: panels of `height` rows, each panel chunk by chunk, each chunk row by row.
pub(super) struct PackA<'a, K, E> {
    pub run: &'a Run<'a, K, E>,
    pub phase: &'a Phase<'a>,
}

impl<K: Kernel, E: Engine<K>> Work<K, E::With> for PackA<'_, K, E> {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        let PackA { run, phase } = self;
        let height = run.height;
        let chunk_words = height * E::A_ROW;
        let mut panel = run.rooms.a;
        for i in (0..run.tile.rows).step_by(height.max(1)) {
            let rows = height.min(run.tile.rows - i);
            for Stretch {
                step,
                steps,
                chunk,
                chunks,
            } in run.stretches(&phase.block)
            {
                for c in 0..chunks {
                    let taken = c * PAIRS;
                    // SAFETY: the side has these rows and steps, and the room all chunks of the block.
                    unsafe {
                        let words = chunk_rows(s, &run.a.at(i, step + taken), rows, (steps - taken).min(PAIRS));
                        let to = panel.add((chunk + c) * chunk_words);
                        for (row, words) in words.into_iter().enumerate().take(height) {
                            E::put(s, words, to.add(row * E::A_ROW));
                        }
                    }
                }
            }
            panel = panel.wrapping_add(phase.block.len() * chunk_words);
        }
    }
}

/// The first `steps ≤ 16` words of `rows ≤ 16` outputs; what is not there is +0.
///
/// # Safety
/// The side has them.
#[inline(always)]
unsafe fn chunk_rows<K: Kernel>(s: K, side: &Side, rows: usize, steps: usize) -> [K::F; LANES] {
    let src = side.address();
    let mut words = [s.zero(); LANES];
    // SAFETY: the caller's promise.
    unsafe {
        match side.layout() {
            Layout::Steps(apart) => {
                for (row, words) in words.iter_mut().enumerate().take(rows) {
                    let from = src.wrapping_add(row * apart);
                    *words = if steps == PAIRS {
                        s.load(from.cast())
                    } else {
                        // Words may be unaligned, which partial loads do not take.
                        let mut bits = [0u32; LANES];
                        std::ptr::copy_nonoverlapping(from, bits.as_mut_ptr().cast(), 4 * steps);
                        s.from_bits(s.from_array_u(bits))
                    };
                }
                words
            }
            Layout::Outputs(apart) => {
                for (step, words) in words.iter_mut().enumerate().take(steps) {
                    let from = src.wrapping_add(step * apart);
                    *words = <Emulated as Arithmetic<K>>::load_partial(s, from, side.addend, rows, 2);
                }
                s.transpose(words)
            }
            Layout::Other => {
                for (row, words) in words.iter_mut().enumerate().take(rows) {
                    let mut bits = [0; LANES];
                    for (step, bits) in bits.iter_mut().enumerate().take(steps) {
                        *bits = side.word(row, step);
                    }
                    *words = s.from_bits(s.from_array_u(bits));
                }
                words
            }
        }
    }
}

/// Packs the columns of B from column `j` of the tile on: two panels of 16, each chunk by chunk, each chunk pair by pair.
///
/// # Safety
/// The side has the columns, and the room two panels of the block.
pub(super) unsafe fn pack_b<K: Kernel, E: Engine<K>>(run: &Run<'_, K, E>, phase: &Phase, j: usize) {
    let panel_words = phase.block.len() * B_CHUNK;
    for panel in 0..PIECE / LANES {
        let col = j + panel * LANES;
        let outs = run.tile.cols.saturating_sub(col).min(LANES);
        // SAFETY: the caller's promise. Packing writes past a stretch's end what the next stretch overwrites.
        unsafe {
            let to = run.rooms.b.add(panel * panel_words);
            if outs == 0 {
                // AMX computes both panels.
                std::ptr::write_bytes(to, 0, panel_words);
                continue;
            }
            for Stretch {
                step,
                steps,
                chunk,
                chunks,
            } in run.stretches(&phase.block)
            {
                let to = to.add(chunk * B_CHUNK);
                run.b.at(col, step).pack::<K, Emulated>(outs, steps, to, LANES);
                std::ptr::write_bytes(to.add(steps * LANES), 0, chunks * B_CHUNK - steps * LANES);
            }
        }
    }
}
