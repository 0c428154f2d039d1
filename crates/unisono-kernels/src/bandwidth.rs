//! The rates at which this machine reads and copies memory: what kernels that do little arithmetic are measured against.

use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};
use std::time::Instant;

/// Bytes a second that memory can move, with the bytes of both sides counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Reading alone.
    pub read: f64,
    /// Copying: bytes read plus bytes written.
    pub copy: f64,
}

/// Sums in flight while reading: as many loads as a core keeps open.
const STREAMS: usize = 8;

/// Measures `threads` threads on arrays of `len` floats each, which should be several times the size of the last cache:
/// the best of `repetitions` passes, since other programs can only slow one down.
pub fn bandwidth(isa: Isa, threads: usize, len: usize, repetitions: usize) -> Bandwidth {
    let threads = threads.max(1);
    let len = len
        .next_multiple_of(threads * STREAMS * LANES)
        .max(threads * STREAMS * LANES);
    let from = vec![1.0f32; len];
    let mut to = vec![0.0f32; len];
    let share = len / threads;
    let (mut read, mut copy) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..repetitions.max(1) {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in from.chunks(share) {
                scope.spawn(move || std::hint::black_box(sum(isa, part)));
            }
        });
        read = read.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (from, to) in from.chunks(share).zip(to.chunks_mut(share)) {
                scope.spawn(move || to.copy_from_slice(from));
            }
        });
        copy = copy.min(start.elapsed().as_secs_f64());
        std::hint::black_box(&mut to);
    }
    let bytes = (4 * len) as f64;
    Bandwidth {
        read: bytes / read,
        copy: 2.0 * bytes / copy,
    }
}

fn sum(isa: Isa, x: &[f32]) -> f32 {
    dispatch!(isa, sum_lanes(x: &[f32]) -> f32)
}

#[inline(always)]
fn sum_lanes<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut acc = [s.zero(); STREAMS];
    for chunk in x.chunks_exact(STREAMS * LANES) {
        for (acc, x) in acc.iter_mut().zip(chunk.chunks_exact(LANES)) {
            *acc = s.add(*acc, s.read(x));
        }
    }
    acc.into_iter().map(|lanes| s.fold(lanes)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read is all of it, so that the rate is one of reading.
    #[test]
    fn every_element_is_read() {
        for isa in Isa::available() {
            let x: Vec<f32> = (0..2 * STREAMS * LANES).map(|i| (i % 7) as f32).collect();
            assert_eq!(sum(isa, &x), x.iter().sum::<f32>());
            let rates = bandwidth(isa, 2, 1 << 16, 2);
            assert!(rates.read > 0.0 && rates.copy > 0.0, "{rates:?}");
        }
    }
}
