//! Rate of the canonical f32 product at training shapes, against the multiply-add peak measured in the same moment.
//!
//! `cargo run --release -p unisono-kernels --example gemm_bench [-- [isa] [name filter] [threads]]`
//!
//! Each repetition measures the peak, throws the operands out of the caches, and times one product; printed are medians
//! (and the best) over the repetitions, and the median of the shares of the peak.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use unisono_kernels::gemm::peak::fma_peak;
use unisono_kernels::gemm::{Activation, Gemm, Mat};
use unisono_kernels::isa::Isa;
use unisono_kernels::order::{Share, Units};
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

struct Shape {
    name: &'static str,
    m: usize,
    k: usize,
    n: usize,
    a_transposed: bool,
    b_transposed: bool,
}

const fn shape(name: &'static str, m: usize, k: usize, n: usize, a_transposed: bool, b_transposed: bool) -> Shape {
    Shape {
        name,
        m,
        k,
        n,
        a_transposed,
        b_transposed,
    }
}

const SHAPES: [Shape; 9] = [
    shape("fwd fc 3072x384x1536", 3072, 384, 1536, false, false),
    shape("fwd proj 3072x1536x384", 3072, 1536, 384, false, false),
    shape("dW 384x3072x1536 (A^T)", 384, 3072, 1536, true, false),
    shape("dX 3072x1536x384 (B^T)", 3072, 1536, 384, false, true),
    shape("gpt2 fc 960x768x3072", 960, 768, 3072, false, false),
    shape("dW gpt2 768x1024x3072", 768, 1024, 3072, true, false),
    shape("head 960x768x50304", 960, 768, 50304, false, false),
    shape("decode 1x768x50304 (B^T)", 1, 768, 50304, false, true),
    shape("decode 1x768x3072", 1, 768, 3072, false, false),
];

fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            (x >> 8) as f32 / 16777216.0 - 0.5
        })
        .collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reads and writes more than the caches hold.
fn flush(memory: &mut [f32]) {
    for x in memory.iter_mut() {
        *x += 1.0;
    }
    std::hint::black_box(memory);
}

/// Seconds of one product on `threads` threads; threads start together.
fn time(g: &Gemm, scratches: &mut [Scratch]) -> f64 {
    let next = AtomicUsize::new(0);
    let tiles = g.tiles();
    let ready = AtomicUsize::new(0);
    let threads = scratches.len();
    let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let workers: Vec<_> = scratches
            .iter_mut()
            .map(|scratch| {
                let (next, ready) = (&next, &ready);
                scope.spawn(move || {
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < threads {
                        std::hint::spin_loop();
                    }
                    let start = Instant::now();
                    loop {
                        let tile = next.fetch_add(1, Ordering::Relaxed);
                        if tile >= tiles {
                            break (start, Instant::now());
                        }
                        g.run(tile, scratch);
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|w| w.join().expect("a worker failed"))
            .collect()
    });
    let start = spans.iter().map(|s| s.0).min().expect("a thread");
    let end = spans.iter().map(|s| s.1).max().expect("a thread");
    (end - start).as_secs_f64()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let isa = args.iter().find_map(|a| Isa::named(a).ok()).unwrap_or_else(Isa::detect);
    let only = args.iter().find_map(|a| a.parse::<usize>().ok());
    let filter = args
        .iter()
        .find(|a| a.parse::<usize>().is_err() && Isa::named(a).is_err())
        .cloned()
        .unwrap_or_default();
    let repetitions: usize = std::env::var("REPS").ok().and_then(|r| r.parse().ok()).unwrap_or(9);
    println!("{}, median of {repetitions}, cold", isa.name());
    let mut junk = vec![0.0f32; 24 << 20];
    for threads in [1, 2] {
        if only.is_some_and(|t| t != threads) {
            continue;
        }
        for s in SHAPES.iter().filter(|s| s.name.contains(&filter)) {
            let (a, b) = (numbers(s.m * s.k, 1), numbers(s.k * s.n, 2));
            let mut c = vec![0.0f32; s.m * s.n];
            let g = Gemm {
                batch: 1,
                a_batch: 0,
                b_batch: 0,
                c_batch: 0,
                m: s.m,
                n: s.n,
                a: Mat {
                    data: &a,
                    row_stride: if s.a_transposed { 1 } else { s.k },
                    col_stride: if s.a_transposed { s.m } else { 1 },
                },
                b: Mat {
                    data: &b,
                    row_stride: if s.b_transposed { 1 } else { s.n },
                    col_stride: if s.b_transposed { s.k } else { 1 },
                },
                c: Out::new(&mut c),
                c_row: s.n,
                slot: s.m * s.n,
                sum: Share::whole(Units::whole(s.k)),
                bias: None,
                activation: Activation::None,
                pre: None,
            };
            let mut scratches: Vec<Scratch> = (0..threads).map(|_| Scratch::new(isa)).collect();
            time(&g, &mut scratches);
            let (mut rates, mut shares, mut peaks) = (vec![], vec![], vec![]);
            for _ in 0..repetitions {
                flush(&mut junk);
                let before = fma_peak(isa, threads, 0.01);
                let rate = g.flops() as f64 / time(&g, &mut scratches) / 1e9;
                let peak = before.max(fma_peak(isa, threads, 0.01));
                rates.push(rate);
                peaks.push(peak);
                shares.push(rate / peak);
            }
            let best = rates.iter().copied().fold(0.0, f64::max);
            let bytes = 4.0 * (s.m * s.k + s.k * s.n + s.m * s.n) as f64;
            let rate = median(&mut rates);
            println!(
                "{threads}T {:26} {rate:7.1} GFLOP/s (best {best:6.1}, {:5.1} GB/s)  peak {:6.1}  {:5.1} %  {} tiles",
                s.name,
                rate * bytes / g.flops() as f64,
                median(&mut peaks),
                100.0 * median(&mut shares),
                g.tiles(),
            );
        }
    }
}
