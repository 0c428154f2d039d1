//! Reading memory and nothing else: what kernels that do little arithmetic are measured against.

use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};

/// Sums in flight: as many loads as a core keeps open.
const STREAMS: usize = 8;

/// The sum of `x`, in no order that anything may rely on: it is there so that every element is read.
pub fn read(isa: Isa, x: &[f32]) -> f32 {
    dispatch!(isa, read_lanes(x: &[f32]) -> f32)
}

#[inline(always)]
fn read_lanes<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut acc = [s.zero(); STREAMS];
    let mut chunks = x.chunks_exact(STREAMS * LANES);
    for chunk in &mut chunks {
        for (acc, x) in acc.iter_mut().zip(chunk.chunks_exact(LANES)) {
            *acc = s.add(*acc, s.read(x));
        }
    }
    for (acc, x) in acc.iter_mut().zip(chunks.remainder().chunks(LANES)) {
        *acc = s.add(*acc, s.read(x));
    }
    let mut total = 0.0;
    for lanes in acc {
        total += s.fold(lanes);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_read() {
        for isa in Isa::available() {
            for len in [0, 1, 17, 130, 2 * STREAMS * LANES + 100] {
                let x: Vec<f32> = (0..len).map(|i| (i % 7) as f32).collect();
                assert_eq!(read(isa, &x), x.iter().sum::<f32>());
            }
        }
    }
}
