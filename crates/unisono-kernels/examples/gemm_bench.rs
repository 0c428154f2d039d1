//! Rate of the canonical products of f32 and bf16 at training shapes, against the multiply-add peak measured in the same moment.
//!
//! `cargo run --release -p unisono-kernels --example gemm_bench [-- [isa] [f32 | bf16 | tiles] [name filter] [threads]]`
//!
//! `tiles` are products of bf16 in the order of AMX.
//!
//! Each repetition measures the peak, throws the operands out of the caches, and times one product; printed are medians
//! (and the best) over the repetitions, and the medians of the shares of the peak: by the clock, and by the CPU time of the
//! busiest thread, which other programs on the machine disturb less.
//! `REPS=n` sets the number of repetitions, `WARM=1` leaves the operands in the caches.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use support::{Memory, median, thread_time};
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::element::{Bf16, Element, Floats, OutFloats};
use unisono_kernels::gemm::peak::{bf16_peak, fma_peak};
use unisono_kernels::gemm::{Activation, Gemm, Mat, bf16_instruction};
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

const SHAPES: [Shape; 19] = [
    shape("fwd fc 3072x384x1536", 3072, 384, 1536, false, false),
    shape("fwd proj 3072x1536x384", 3072, 1536, 384, false, false),
    shape("dW 384x3072x1536 (A^T)", 384, 3072, 1536, true, false),
    shape("dX 3072x1536x384 (B^T)", 3072, 1536, 384, false, true),
    shape("gpt2 fc 960x768x3072", 960, 768, 3072, false, false),
    shape("dW gpt2 768x1024x3072", 768, 1024, 3072, true, false),
    shape("head 960x768x50304", 960, 768, 50304, false, false),
    shape("prompt qkv 256x768x2304", 256, 768, 2304, false, false),
    shape("prompt proj 256x768x768", 256, 768, 768, false, false),
    shape("prompt fc 256x768x3072", 256, 768, 3072, false, false),
    shape("prompt fc2 256x3072x768", 256, 3072, 768, false, false),
    shape("ksweep 64", 264, 64, 1536, false, false),
    shape("ksweep 128", 264, 128, 1536, false, false),
    shape("ksweep 256", 264, 256, 1536, false, false),
    shape("ksweep 384", 264, 384, 1536, false, false),
    shape("ksweep 512", 264, 512, 1536, false, false),
    shape("ksweep 768", 264, 768, 1536, false, false),
    shape("decode 1x768x50304 (B^T)", 1, 768, 50304, false, true),
    shape("decode 1x768x3072", 1, 768, 3072, false, false),
];

/// Reads and writes more than the caches hold.
fn flush(memory: &mut [f32]) {
    for x in memory.iter_mut() {
        *x += 1.0;
    }
    std::hint::black_box(memory);
}

/// Seconds of one product on `threads` threads that start together: by the clock, and the busiest thread's own.
fn time(g: &Gemm, scratches: &mut [Scratch]) -> (f64, f64) {
    let next = AtomicUsize::new(0);
    let tiles = g.tiles();
    let ready = AtomicUsize::new(0);
    let threads = scratches.len();
    let spans: Vec<(Instant, Instant, f64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = scratches
            .iter_mut()
            .map(|scratch| {
                let (next, ready) = (&next, &ready);
                scope.spawn(move || {
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < threads {
                        std::hint::spin_loop();
                    }
                    let (start, cpu) = (Instant::now(), thread_time());
                    loop {
                        let tile = next.fetch_add(1, Ordering::Relaxed);
                        if tile >= tiles {
                            break (start, Instant::now(), thread_time() - cpu);
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
    let cpu = spans.iter().map(|s| s.2).fold(0.0, f64::max);
    ((end - start).as_secs_f64(), cpu)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let isa = args.iter().find_map(|a| Isa::named(a).ok()).unwrap_or_else(Isa::detect);
    let only = args.iter().find_map(|a| a.parse::<usize>().ok());
    let kind = args.iter().find(|a| ["f32", "bf16", "tiles"].contains(&a.as_str()));
    let filter = args
        .iter()
        .find(|a| a.parse::<usize>().is_err() && Isa::named(a).is_err() && Some(*a) != kind)
        .cloned()
        .unwrap_or_default();
    let mut options = Options {
        isa,
        order: Bf16Order::Pairs,
        repetitions: std::env::var("REPS").ok().and_then(|r| r.parse().ok()).unwrap_or(9),
        warm: std::env::var_os("WARM").is_some(),
    };
    println!(
        "{}, bf16 {}, in the order of tiles {}, median of {}, {}",
        isa.name(),
        bf16_instruction(Bf16Order::Pairs, isa),
        bf16_instruction(Bf16Order::Tiles, isa),
        options.repetitions,
        if options.warm { "warm" } else { "cold" }
    );
    for threads in [1, 2] {
        if only.is_some_and(|t| t != threads) {
            continue;
        }
        for s in SHAPES.iter().filter(|s| s.name.contains(&filter)) {
            if kind.is_none_or(|kind| kind == "f32") {
                measure::<f32>("f32", s, threads, &options, fma_peak);
            }
            if kind.is_none_or(|kind| kind == "bf16") {
                measure::<Bf16>("bf16", s, threads, &options, |isa, threads, seconds| {
                    bf16_peak(Bf16Order::Pairs, isa, threads, seconds)
                });
            }
            if kind.is_some_and(|kind| kind == "tiles") {
                options.order = Bf16Order::Tiles;
                measure::<Bf16>("tiles", s, threads, &options, |isa, threads, seconds| {
                    bf16_peak(Bf16Order::Tiles, isa, threads, seconds)
                });
            }
        }
    }
}

struct Options {
    isa: Isa,
    order: Bf16Order,
    repetitions: usize,
    warm: bool,
}

fn measure<E: Element>(kind: &str, s: &Shape, threads: usize, options: &Options, peak_of: fn(Isa, usize, f64) -> f64)
where
    for<'a> Floats<'a>: From<&'a [E]>,
    for<'a> OutFloats<'a>: From<Out<'a, E>>,
{
    let mut junk = Memory::<f32>::new(24 << 20);
    let (mut a, mut b) = (Memory::<E>::numbers(s.m * s.k, 1), Memory::<E>::numbers(s.k * s.n, 2));
    let mut c = Memory::<E>::new(s.m * s.n);
    let g = Gemm {
        batch: 1,
        a_batch: 0,
        b_batch: 0,
        c_batch: 0,
        m: s.m,
        n: s.n,
        a: Mat {
            data: Floats::from(&*a.slice()),
            row_stride: if s.a_transposed { 1 } else { s.k },
            col_stride: if s.a_transposed { s.m } else { 1 },
        },
        b: Mat {
            data: Floats::from(&*b.slice()),
            row_stride: if s.b_transposed { 1 } else { s.n },
            col_stride: if s.b_transposed { s.k } else { 1 },
        },
        c: Out::new(c.slice()).into(),
        c_row: s.n,
        slot: s.m * s.n,
        sum: Share::whole(Units::whole(s.k)),
        bias: None,
        activation: Activation::None,
        pre: None,
        residual: None,
    };
    let mut scratches: Vec<Scratch> = (0..threads)
        .map(|_| Scratch::with_order(options.isa, options.order))
        .collect();
    time(&g, &mut scratches);
    let (mut rates, mut peaks, mut shares, mut own) = (vec![], vec![], vec![], vec![]);
    for _ in 0..options.repetitions {
        if !options.warm {
            flush(junk.slice());
        }
        let before = peak_of(options.isa, threads, 0.01);
        let (wall, cpu) = time(&g, &mut scratches);
        let peak = before.max(peak_of(options.isa, threads, 0.01));
        let flops = g.flops() as f64 / 1e9;
        rates.push(flops / wall);
        peaks.push(peak);
        shares.push(flops / wall / peak);
        own.push(flops / cpu / peak);
    }
    let best = rates.iter().copied().fold(0.0, f64::max);
    let bytes = (size_of::<E>() * (s.m * s.k + s.k * s.n + s.m * s.n)) as f64;
    let rate = median(&mut rates);
    println!(
        "{threads}T {kind:5} {:26} {rate:7.1} GFLOP/s (best {best:6.1}, {:5.1} GB/s)  peak {:6.1}  {:5.1} %  by CPU time {:5.1} % (best {:5.1})  {} tiles",
        s.name,
        rate * bytes / g.flops() as f64,
        median(&mut peaks),
        100.0 * median(&mut shares),
        100.0 * median(&mut own),
        100.0 * own.iter().copied().fold(0.0, f64::max),
        g.tiles(),
    );
}
