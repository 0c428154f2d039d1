//! The multiply-add rate that this machine reaches with no memory traffic: what matrix products are measured against.

use super::arithmetic::{Arithmetic, Emulated, Single};
use super::kernel::{Kernel, Work};
use super::{Hardware, tiles};
use crate::bf16_order::Bf16Order;
use crate::isa::Isa;
use crate::simd::{self, LANES, checked};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Accumulators in flight: more than latency × units of any CPU, and registers enough for them.
const CHAINS: usize = 12;
/// Rounds between looks at the clock.
const ROUNDS: usize = 20_000;
/// Steps of all lanes between looks at the clock.
const STEPS: usize = LANES * CHAINS * ROUNDS;

/// GFLOP/s (a multiply-add counts as 2) of `threads` threads that do nothing but fused multiply-adds of f32 on `isa` for
/// about `seconds`: the median of many short stretches, so that other load on the machine disturbs little.
pub fn fma_peak(isa: Isa, threads: usize, seconds: f64) -> f64 {
    peak(isa, threads, seconds, Kind::F32)
}

/// [`fma_peak`] of products of bf16 in an order, by its instruction or the emulation. In that of tiles they come with reading
/// their factors from the first-level cache, as AMX has too few registers to keep any.
pub fn bf16_peak(order: Bf16Order, isa: Isa, threads: usize, seconds: f64) -> f64 {
    peak(isa, threads, seconds, Kind::Bf16(order))
}

#[derive(Clone, Copy)]
enum Kind {
    F32,
    Bf16(Bf16Order),
}

fn peak(isa: Isa, threads: usize, seconds: f64, kind: Kind) -> f64 {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| scope.spawn(move || one_thread(isa, until, kind)))
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or(0.0)).collect()
    });
    rates.iter().sum()
}

fn one_thread(isa: Isa, until: Instant, kind: Kind) -> f64 {
    let isa = checked(isa);
    let mut rates = Vec::new();
    loop {
        let start = Instant::now();
        // SAFETY: the CPU has the instruction set, and the instruction for bf16 where it is used.
        let (sum, multiply_adds) = unsafe {
            match kind {
                Kind::F32 => (f32_stretch(isa), STEPS),
                Kind::Bf16(Bf16Order::Pairs) => (bf16_stretch(isa), 2 * STEPS),
                Kind::Bf16(Bf16Order::Tiles) => (tiles_stretch(isa), tiles::peak::MULTIPLY_ADDS),
            }
        };
        let elapsed = start.elapsed().as_secs_f64();
        std::hint::black_box(sum);
        rates.push((2 * multiply_adds) as f64 / elapsed / 1e9);
        if Instant::now() >= until {
            rates.sort_by(f64::total_cmp);
            return rates[rates.len() / 2];
        }
    }
}

unsafe fn f32_stretch(isa: Isa) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => simd::Avx512::call::<Single, _>(Stretch),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => simd::Avx2::call::<Single, _>(Stretch),
            _ => simd::Portable::call::<Single, _>(Stretch),
        }
    }
}

unsafe fn bf16_stretch(isa: Isa) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if super::has_bf16_instruction() => simd::Avx512::call::<super::Instruction, _>(Stretch),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => simd::Avx512::call::<Emulated, _>(Stretch),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => simd::Avx2::call::<Emulated, _>(Stretch),
            _ => simd::Portable::call::<Emulated, _>(Stretch),
        }
    }
}

unsafe fn tiles_stretch(isa: Isa) -> f32 {
    use tiles::peak::Stretch;
    let widened = tiles::Lanes::<tiles::Widened>(PhantomData);
    // SAFETY: the caller's promise; this thread has no other tile registers in use.
    unsafe {
        match (isa, Hardware::best(Bf16Order::Tiles, isa)) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Hardware::Tiles) => {
                simd::Avx512::call(Stretch::new(tiles::amx::Amx::new(tiles::height(usize::MAX))))
            }
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, Hardware::Pairs) => {
                simd::Avx512::call(Stretch::new(tiles::Lanes::<tiles::Halves>(PhantomData)))
            }
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => simd::Avx512::call(Stretch::new(widened)),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => simd::Avx2::call(Stretch::new(widened)),
            _ => simd::Portable::call(Stretch::new(widened)),
        }
    }
}

/// Nothing but steps.
struct Stretch;

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for Stretch {
    type Result = f32;

    #[inline(always)]
    unsafe fn run(self, s: K) -> f32 {
        // As words: 0.999 and 0.001 of f32, and pairs of about such numbers of bf16.
        let x = s.from_bits(s.splat_u(std::hint::black_box(0x3f7f_be77)));
        let y = s.from_bits(s.splat_u(std::hint::black_box(0x3a83_3a83)));
        let mut acc = [s.zero(); CHAINS];
        for _ in 0..ROUNDS {
            for a in &mut acc {
                *a = A::dot(s, x, y, *a);
            }
        }
        acc.into_iter().map(|a| s.fold(a)).sum()
    }
}
