//! The multiply-add rate that this machine reaches with no memory traffic: what matrix products are measured against.

use crate::isa::Isa;
use crate::simd::{LANES, Simd, dispatch};
use std::time::{Duration, Instant};

/// Accumulators in flight: more than latency × units of any CPU, and registers enough for them.
const CHAINS: usize = 12;
/// Rounds between looks at the clock.
const ROUNDS: usize = 20_000;

/// GFLOP/s (a multiply-add counts as 2) of `threads` threads that do nothing but fused multiply-adds on `isa` for about
/// `seconds`: the median of many short stretches, so that other load on the machine disturbs little.
pub fn fma_peak(isa: Isa, threads: usize, seconds: f64) -> f64 {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(move || one_thread(isa, until)))
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or(0.0)).collect()
    });
    rates.iter().sum()
}

fn one_thread(isa: Isa, until: Instant) -> f64 {
    let mut rates = Vec::new();
    loop {
        let start = Instant::now();
        let sum = dispatch!(isa, stretch() -> f32);
        let elapsed = start.elapsed().as_secs_f64();
        std::hint::black_box(sum);
        rates.push((2 * LANES * CHAINS * ROUNDS) as f64 / elapsed / 1e9);
        if Instant::now() >= until {
            rates.sort_by(f64::total_cmp);
            return rates[rates.len() / 2];
        }
    }
}

#[inline(always)]
fn stretch<S: Simd>(s: S) -> f32 {
    let x = s.splat(std::hint::black_box(0.999));
    let y = s.splat(std::hint::black_box(1e-3));
    let mut acc = [s.zero(); CHAINS];
    for _ in 0..ROUNDS {
        for a in &mut acc {
            *a = s.fma(*a, x, y);
        }
    }
    acc.into_iter().map(|a| s.fold(a)).sum()
}
