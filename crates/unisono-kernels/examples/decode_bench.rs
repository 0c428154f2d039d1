//! How fast products of a few rows stream weights `[n, k]` (as `torch.nn.Linear` keeps them), beside reading the same bytes.
//!
//! `cargo run --release -p unisono-kernels --example decode_bench [-- [isa] [f32 | bf16] [threads]]`
//!
//! The weights of many layers lie one after the other, more than the caches hold; each repetition reads them all, then
//! multiplies with them all. Printed are medians of the repetitions: GB/s of weights, and the share of what reading
//! reaches, by the CPU time of the busiest thread.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use support::{Memory, median, thread_time};
use unisono_kernels::bandwidth::read;
use unisono_kernels::element::{Bf16, Element, Floats, OutFloats};
use unisono_kernels::gemm::{Activation, Gemm, Mat};
use unisono_kernels::isa::Isa;
use unisono_kernels::order::{Share, Units};
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

/// Inputs and outputs of SmolLM2-135M's projections, and of its head.
const SHAPES: [(usize, usize); 5] = [(576, 576), (576, 192), (576, 1536), (1536, 576), (576, 49152)];
/// Rows of activations.
const ROWS: [usize; 4] = [1, 2, 4, 8];
/// Bytes of all weights together.
const BYTES: usize = 128 << 20;
/// Elements that one thread reads at a time for the comparison.
const READ: usize = 128 << 10;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let isa = args.iter().find_map(|a| Isa::named(a).ok()).unwrap_or_else(Isa::detect);
    let threads = args.iter().find_map(|a| a.parse::<usize>().ok());
    let wants = |kind: &str| !args.iter().any(|a| ["f32", "bf16"].contains(&a.as_str()) && a != kind);
    println!("{}", isa.name());
    let repetitions = std::env::var("REPS").ok().and_then(|r| r.parse().ok()).unwrap_or(7);
    for threads in [1, 2].into_iter().filter(|t| threads.is_none_or(|only| only == *t)) {
        if wants("f32") {
            measure::<f32>("f32", isa, threads, repetitions);
        }
        if wants("bf16") {
            measure::<Bf16>("bf16", isa, threads, repetitions);
        }
    }
}

/// Runs `work(i, scratch)` for all `i < count` on `threads` threads and returns the
/// seconds that the busiest one computed: other programs on the machine disturb them less than the clock.
fn timed(threads: usize, isa: Isa, count: usize, work: &(dyn Fn(usize, &mut Scratch) + Sync)) -> f64 {
    let (next, ready) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let seconds: Vec<f64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut scratch = Scratch::new(isa);
                    scratch.floats(1 << 20);
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < threads {
                        std::hint::spin_loop();
                    }
                    let start = thread_time();
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= count {
                            return thread_time() - start;
                        }
                        work(i, &mut scratch);
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|w| w.join().expect("a worker failed"))
            .collect()
    });
    seconds.into_iter().fold(0.0, f64::max)
}

fn measure<E: Element>(kind: &str, isa: Isa, threads: usize, repetitions: usize)
where
    for<'a> Floats<'a>: From<&'a [E]>,
    for<'a> OutFloats<'a>: From<Out<'a, E>>,
{
    let number = |i: usize| E::from_f32((i.wrapping_mul(2_654_435_761) >> 16 & 0xffff) as f32 / 65536.0 - 0.5);
    let mut weights = Memory::<E>::numbers(BYTES / size_of::<E>(), 1);
    let weights = &*weights.slice();
    // The same bytes for the comparison.
    let mut words = Memory::<f32>::numbers(BYTES / 4, 2);
    let words = &*words.slice();
    for (k, n) in SHAPES {
        let layers = (weights.len() / (k * n)).max(1);
        let bytes = (layers * k * n * size_of::<E>()) as f64;
        for m in ROWS {
            let x: Vec<E> = (0..m * k).map(number).collect();
            let mut y = vec![E::from_f32(0.0); layers * m * n];
            let out = Out::new(&mut y);
            let products: Vec<Gemm> = (0..layers)
                .map(|layer| Gemm {
                    batch: 1,
                    a_batch: 0,
                    b_batch: 0,
                    c_batch: 0,
                    m,
                    n,
                    a: Mat {
                        data: Floats::from(&x[..]),
                        row_stride: k,
                        col_stride: 1,
                    },
                    b: Mat {
                        data: Floats::from(&weights[layer * k * n..(layer + 1) * k * n]),
                        row_stride: 1,
                        col_stride: k,
                    },
                    c: out.into(),
                    c_row: n,
                    slot: m * n,
                    sum: Share::whole(Units::whole(k)),
                    bias: None,
                    activation: Activation::None,
                    pre: None,
                    residual: None,
                })
                .collect();
            let tiles = products[0].tiles();
            let (mut rates, mut shares) = (Vec::new(), Vec::new());
            for _ in 0..repetitions {
                let reading = timed(threads, isa, words.len() / READ, &|i, _| {
                    std::hint::black_box(read(isa, &words[i * READ..(i + 1) * READ]));
                });
                let seconds = timed(threads, isa, layers * tiles, &|i, scratch| {
                    products[i / tiles].run(i % tiles, scratch);
                });
                rates.push(bytes / seconds / 1e9);
                shares.push(bytes / seconds * reading / BYTES as f64);
            }
            println!(
                "{threads}T {kind:4} {m} x {k} x {n:5}: {:6.1} GB/s, {:5.1} % of reading, {:8.0} products/s",
                median(&mut rates),
                100.0 * median(&mut shares),
                1e9 * median(&mut rates) / (k * n * size_of::<E>()) as f64,
            );
        }
    }
}
