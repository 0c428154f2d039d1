//! Leaves and nothing else, with panels that stay in the first-level cache: what products in the order of tiles are measured
//! against.

use super::{B_CHUNK, ENTRY, Engine, HEIGHT, Leaf, PAIRS, PIECE};
use crate::gemm::kernel::{Kernel, Work};
use crate::simd::LANES;
use std::marker::PhantomData;

/// Chunks of the leaf, of which four panels take 16 KiB.
const CHUNKS: usize = 4;
/// Leaves between looks at the clock.
const ROUNDS: usize = 400;

/// Multiply-adds in a [`Stretch`].
pub(in crate::gemm) const MULTIPLY_ADDS: usize = ROUNDS * CHUNKS * ENTRY * 2 * PAIRS;

/// [`ROUNDS`] leaves of a whole piece.
pub(in crate::gemm) struct Stretch<K, E> {
    engine: E,
    kernel: PhantomData<K>,
}

impl<K, E> Stretch<K, E> {
    /// On this engine.
    pub fn new(engine: E) -> Stretch<K, E> {
        Stretch {
            engine,
            kernel: PhantomData,
        }
    }
}

impl<K: Kernel, E: Engine<K>> Work<K, E::With> for Stretch<K, E> {
    type Result = f32;

    #[inline(always)]
    unsafe fn run(self, s: K) -> f32 {
        // Pairs of bf16 near 1.
        let words = s.from_bits(s.splat_u(std::hint::black_box(0x3f7f_3f7f)));
        let mut a = vec![0.0f32; 2 * CHUNKS * HEIGHT * E::A_ROW];
        let mut b = vec![0.0f32; 2 * CHUNKS * B_CHUNK];
        let mut sums = vec![0.0f32; ENTRY];
        // SAFETY: rows, panels and sums that there are; the rest is the caller's promise.
        unsafe {
            for row in a.chunks_exact_mut(E::A_ROW) {
                E::put(s, words, row.as_mut_ptr());
            }
            for pair in b.chunks_exact_mut(LANES) {
                s.store(pair.as_mut_ptr(), words);
            }
            for _ in 0..ROUNDS {
                self.engine.leaf(
                    s,
                    &Leaf {
                        a: a.as_ptr(),
                        a_panel: CHUNKS * HEIGHT * E::A_ROW,
                        height: HEIGHT,
                        b: b.as_ptr(),
                        b_panel: CHUNKS * B_CHUNK,
                        chunks: CHUNKS,
                        rows: PIECE,
                        vectors: PIECE / LANES,
                        carry: false,
                        sums: sums.as_mut_ptr(),
                    },
                );
            }
        }
        std::hint::black_box(&sums)[0]
    }
}
