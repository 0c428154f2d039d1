//! Speed of attention against the FMA peak that is measured in the same run.
//!
//!     [UNISONO_ISA=avx512] cargo run --release -p unisono-kernels --example attention_bench

use std::hint::black_box;
use std::time::Instant;
use unisono_kernels::attention::{Attention, AttentionGrad, Layout};
use unisono_kernels::isa::Isa;
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;
use unisono_kernels::simd::{Simd, dispatch};

/// Multiply-adds in `N` independent chains, from registers only.
#[inline(always)]
fn chains<S: Simd, const N: usize>(s: S, rounds: usize) -> f32 {
    let (x, y) = (s.splat(black_box(0.999)), s.splat(black_box(0.001)));
    let mut sums = [s.zero(); N];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = s.fma(*sum, x, y);
        }
    }
    sums.iter().map(|v| s.fold(*v)).sum()
}

/// Seconds of all tiles, each at its fastest of `tries` rounds: tiles are short enough to be missed by other processes.
fn tiles(tries: usize, count: usize, mut tile: impl FnMut(usize)) -> f64 {
    let mut best = vec![f64::INFINITY; count];
    for _ in 0..tries {
        for (t, best) in best.iter_mut().enumerate() {
            *best = best.min(fastest(1, || tile(t)));
        }
    }
    best.iter().sum()
}

/// The most that multiply-adds reach, in GFLOP/s: AVX2 has registers for 6 vectors, AVX-512 needs 8 chains and more.
fn peak(isa: Isa) -> f64 {
    let rounds = if isa == Isa::Portable { 50_000 } else { 1_000_000 };
    let six = fastest(9, || {
        black_box(dispatch!(isa, chains::<_, 6>(rounds: usize) -> f32));
    });
    let twelve = fastest(9, || {
        black_box(dispatch!(isa, chains::<_, 12>(rounds: usize) -> f32));
    });
    (rounds * 6 * 32) as f64 / six.min(twelve / 2.0) / 1e9
}

/// Seconds of the fastest of `tries` calls: other processes only ever make it slower.
fn fastest(tries: usize, mut call: impl FnMut()) -> f64 {
    (0..tries).fold(f64::INFINITY, |best, _| {
        let start = Instant::now();
        call();
        best.min(start.elapsed().as_secs_f64())
    })
}

struct Shape {
    name: &'static str,
    batch: usize,
    groups: usize,
    heads: usize,
    tokens: usize,
    d: usize,
}

fn train(shape: &Shape, isa: Isa, peak: f64) {
    let (b, g, r, t, d) = (shape.batch, shape.groups, shape.heads, shape.tokens, shape.d);
    let group = (r + 2) * d;
    let layout = Layout {
        batch: t * g * group,
        token: g * group,
        group,
        head: d,
    };
    let out_layout = Layout {
        batch: t * g * r * d,
        token: g * r * d,
        group: r * d,
        head: d,
    };
    let x: Vec<f32> = (0..b * layout.batch)
        .map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0)
        .collect();
    let d_out: Vec<f32> = (0..b * out_layout.batch)
        .map(|i| (i * 6151 % 1000) as f32 / 500.0 - 1.0)
        .collect();
    let (mut out, mut lse) = (vec![0.0; b * out_layout.batch], vec![0.0; b * g * r * t]);
    let mut dx = vec![0.0f32; x.len()];
    let mut scratch = Scratch::new(isa);
    let scale = 1.0 / (d as f32).sqrt();
    let tries = if isa == Isa::Portable { 1 } else { 15 };
    let call = Attention {
        batch: b,
        groups: g,
        heads_per_group: r,
        head_dim: d,
        queries: t,
        keys: t,
        q: &x,
        q_layout: layout,
        k: &x[r * d..],
        k_layout: layout,
        v: &x[(r + 1) * d..],
        v_layout: layout,
        causal: true,
        scale,
        first_query: None,
        mask: None,
        mask_batch: 0,
        out: Out::new(&mut out),
        out_layout,
        lse: Some(Out::new(&mut lse)),
    };
    let flops = call.flops();
    let forward = tiles(tries, call.tiles(), |tile| call.run(tile, &mut scratch));
    let (dx_ptr, dx_len) = (dx.as_mut_ptr(), dx.len());
    // SAFETY: three views of one array that write different elements, from this thread only.
    let view = |from: usize| unsafe { Out::shared(dx_ptr.add(from), dx_len - from) };
    let call = AttentionGrad {
        batch: b,
        groups: g,
        heads_per_group: r,
        head_dim: d,
        queries: t,
        keys: t,
        q: &x,
        q_layout: layout,
        k: &x[r * d..],
        k_layout: layout,
        v: &x[(r + 1) * d..],
        v_layout: layout,
        causal: true,
        scale,
        first_query: None,
        mask: None,
        mask_batch: 0,
        out: &out,
        d_out: &d_out,
        out_layout,
        lse: &lse,
        dq: view(0),
        dk: view(r * d),
        dv: view((r + 1) * d),
    };
    let backward = fastest(tries, || {
        (0..call.tiles()).for_each(|tile| call.run(tile, &mut scratch))
    });
    let rate = |flops: u64, seconds: f64| flops as f64 / seconds / 1e9;
    let both = rate(flops + call.flops(), forward + backward);
    println!(
        "{:9} {:24} forward {:6.1} GFLOP/s, backward {:6.1}, both {both:6.1} = {:4.1} % of {peak:.0}; {:.2} ms",
        isa.name(),
        shape.name,
        rate(flops, forward),
        rate(call.flops(), backward),
        100.0 * both / peak,
        (forward + backward) * 1e3,
    );
}

/// One query a sequence against a cache of keys and values, against what it costs to read the same memory.
fn decode(batch: usize, groups: usize, heads: usize, keys: usize, d: usize, isa: Isa) {
    // Caches that keep each head's tokens together are read in long runs.
    let layout = Layout {
        batch: groups * keys * d,
        token: d,
        group: keys * d,
        head: d,
    };
    let q_layout = Layout {
        batch: groups * heads * d,
        token: 0,
        group: heads * d,
        head: d,
    };
    let k: Vec<f32> = (0..batch * layout.batch)
        .map(|i| (i % 1000) as f32 / 500.0 - 1.0)
        .collect();
    let v = k.clone();
    let q = vec![0.1; batch * q_layout.batch];
    let mut out = vec![0.0; q.len()];
    let first = vec![keys as u32 - 1; batch];
    let mut scratch = Scratch::new(isa);
    let call = Attention {
        batch,
        groups,
        heads_per_group: heads,
        head_dim: d,
        queries: 1,
        keys,
        q: &q,
        q_layout,
        k: &k,
        k_layout: layout,
        v: &v,
        v_layout: layout,
        causal: true,
        scale: 0.1,
        first_query: Some(&first),
        mask: None,
        mask_batch: 0,
        out: Out::new(&mut out),
        out_layout: q_layout,
        lse: None,
    };
    let seconds = tiles(15, call.tiles(), |tile| call.run(tile, &mut scratch));
    let read = fastest(7, || {
        let sums = |x: &[f32]| {
            x.chunks_exact(64)
                .fold([0.0f32; 64], |s, c| std::array::from_fn(|i| s[i] + c[i]))
        };
        black_box((sums(&k), sums(&v)));
    });
    let bytes = 8.0 * k.len() as f64;
    println!(
        "{:9} decode {batch} × {groups} × {heads}, {keys} keys of {d}: {:5.1} GB/s of the cache; summing it reads {:5.1} GB/s",
        isa.name(),
        bytes / seconds / 1e9,
        bytes / read / 1e9,
    );
}

fn main() {
    let shapes = [
        Shape {
            name: "12 × 6, T 256, d 64",
            batch: 12,
            groups: 6,
            heads: 1,
            tokens: 256,
            d: 64,
        },
        Shape {
            name: "8 × 4 × 3, T 256, d 64",
            batch: 8,
            groups: 4,
            heads: 3,
            tokens: 256,
            d: 64,
        },
        Shape {
            name: "1 × 12, T 1024, d 64",
            batch: 1,
            groups: 12,
            heads: 1,
            tokens: 1024,
            d: 64,
        },
        Shape {
            name: "2 × 16, T 512, d 128",
            batch: 2,
            groups: 16,
            heads: 1,
            tokens: 512,
            d: 128,
        },
        Shape {
            name: "16 × 4, T 100, d 32",
            batch: 16,
            groups: 4,
            heads: 1,
            tokens: 100,
            d: 32,
        },
        Shape {
            name: "16 × 4, T 96, d 48",
            batch: 16,
            groups: 4,
            heads: 1,
            tokens: 96,
            d: 48,
        },
    ];
    let only = std::env::var("UNISONO_ISA").ok();
    for isa in Isa::available().into_iter().rev() {
        if only.as_ref().is_some_and(|name| name != isa.name()) {
            continue;
        }
        let peak = peak(isa);
        let shapes = if isa == Isa::Portable {
            &shapes[4..]
        } else {
            &shapes[..]
        };
        shapes.iter().for_each(|shape| train(shape, isa, peak));
        if isa != Isa::Portable {
            decode(1, 6, 1, 256, 64, isa);
            decode(8, 6, 1, 4096, 64, isa);
            decode(8, 2, 8, 4096, 64, isa);
            decode(4, 4, 4, 4096, 128, isa);
        }
    }
}
