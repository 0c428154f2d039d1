//! Speed of attention against the FMA peak that is measured in the same run.
//!
//!     [UNISONO_ISA=avx512] cargo run --release -p unisono-kernels --example attention_bench [NAME [f32|bf16]]
//!
//! NAME is a part of a shape's name, or `decode`.
//!
//! Passes are measured tile by tile, each tile at its fastest of several rounds, so that other processes are missed; the peak
//! is measured again beside each shape. With two threads both run at once, each its own half of the tiles. The runtime's
//! memory is in huge pages; `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` gives them to this program.

use std::hint::black_box;
use std::time::Instant;
use unisono_kernels::attention::{Attention, AttentionGrad, Inputs, Layout, Shape as Sizes};
use unisono_kernels::element::{Bf16, Element, Floats, OutFloats};
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

/// Seconds that a thread spends on all tiles, each at its fastest of `tries` rounds, if `threads` share them.
fn tiles(threads: usize, tries: usize, isa: Isa, count: usize, tile: impl Fn(usize, &mut Scratch) + Sync) -> f64 {
    let own = |thread: usize| {
        let mut scratch = Scratch::new(isa);
        let mut best = vec![f64::INFINITY; count];
        for _ in 0..tries {
            for t in (thread..count).step_by(threads) {
                best[t] = best[t].min(fastest(1, || tile(t, &mut scratch)));
            }
        }
        best.into_iter().skip(thread).step_by(threads).sum::<f64>()
    };
    let own = &own;
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || own(thread))).collect();
        let seconds = handles.into_iter().map(|h| h.join().expect("a tile does not panic"));
        seconds.sum::<f64>() / threads as f64
    })
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

/// Numbers from −1 to 1.
fn numbers<E: Element>(count: usize, stride: usize) -> Vec<E> {
    (0..count)
        .map(|i| E::from_f32((i * stride % 1000) as f32 / 500.0 - 1.0))
        .collect()
}

/// Reads all words, and does nothing of use with them.
fn mixed(words: &[u32]) -> [u32; 64] {
    words
        .chunks_exact(64)
        .fold([0; 64], |s, c| std::array::from_fn(|i| s[i] ^ c[i]))
}

/// The arrays' kind, in words.
fn kind<E>() -> &'static str {
    if size_of::<E>() == 2 { "bf16" } else { "f32" }
}

fn train<E: Element>(shape: &Shape, isa: Isa, threads: usize)
where
    for<'a> Floats<'a>: From<&'a [E]>,
    for<'a> OutFloats<'a>: From<Out<'a, E>>,
{
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
    let x: Vec<E> = numbers(b * layout.batch, 7919);
    let d_out: Vec<E> = numbers(b * out_layout.batch, 6151);
    let (mut out, mut lse) = (vec![E::default(); d_out.len()], vec![0.0; b * g * r * t]);
    let mut dx = vec![E::default(); x.len()];
    let scale = 1.0 / (d as f32).sqrt();
    let tries = if isa == Isa::Portable { 1 } else { 15 };
    let peak = peak(isa);
    let inputs = Inputs {
        shape: Sizes {
            batch: b,
            groups: g,
            heads_per_group: r,
            head_dim: d,
            queries: t,
            keys: t,
            causal: true,
            scale,
        },
        q: x[..].into(),
        q_layout: layout,
        k: x[r * d..].into(),
        k_layout: layout,
        v: x[(r + 1) * d..].into(),
        v_layout: layout,
        first_query: None,
        mask: None,
        mask_batch: 0,
        out_layout,
    };
    let call = Attention {
        inputs,
        out: Out::new(&mut out).into(),
        lse: Some(Out::new(&mut lse)),
    };
    let (flops, count) = (call.flops(), call.tiles());
    let forward = tiles(threads, tries, isa, count, |tile, scratch| call.run(tile, scratch));
    let (dx_ptr, dx_len) = (dx.as_mut_ptr(), dx.len());
    // SAFETY: three views of one array that write different elements; a tile runs on one thread only.
    let view = |from: usize| unsafe { Out::shared(dx_ptr.add(from), dx_len - from) };
    let call = AttentionGrad {
        inputs,
        out: out[..].into(),
        d_out: d_out[..].into(),
        lse: &lse,
        dq: view(0).into(),
        dk: view(r * d).into(),
        dv: view((r + 1) * d).into(),
    };
    let count = call.tiles();
    let backward = tiles(threads, tries, isa, count, |tile, scratch| call.run(tile, scratch));
    let percent = |flops: u64, seconds: f64| flops as f64 / threads as f64 / seconds / 1e7 / peak;
    println!(
        "{:9} {:24} {:4} × {threads}: forward {:4.1} %, backward {:4.1}, both {:4.1} % of {peak:.0} GFLOP/s a thread; {:.2} ms",
        isa.name(),
        shape.name,
        kind::<E>(),
        percent(flops, forward),
        percent(call.flops(), backward),
        percent(flops + call.flops(), forward + backward),
        (forward + backward) * 1e3,
    );
}

/// One query a sequence against a cache of keys and values, against what it costs to read the same memory.
fn decode<E: Element>(batch: usize, groups: usize, heads: usize, keys: usize, d: usize, isa: Isa)
where
    for<'a> Floats<'a>: From<&'a [E]>,
    for<'a> OutFloats<'a>: From<Out<'a, E>>,
{
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
    let k: Vec<E> = numbers(batch * layout.batch, 1);
    let v = k.clone();
    let q = vec![E::from_f32(0.1); batch * q_layout.batch];
    let mut out = vec![E::default(); q.len()];
    let first = vec![keys as u32 - 1; batch];
    let inputs = Inputs {
        shape: Sizes {
            batch,
            groups,
            heads_per_group: heads,
            head_dim: d,
            queries: 1,
            keys,
            causal: true,
            scale: 0.1,
        },
        q: q[..].into(),
        q_layout,
        k: k[..].into(),
        k_layout: layout,
        v: v[..].into(),
        v_layout: layout,
        first_query: Some(&first),
        mask: None,
        mask_batch: 0,
        out_layout: q_layout,
    };
    let call = Attention {
        inputs,
        out: Out::new(&mut out).into(),
        lse: None,
    };
    let seconds = tiles(1, 15, isa, call.tiles(), |tile, scratch| call.run(tile, scratch));
    let read = fastest(7, || {
        // SAFETY: numbers have no padding, and any bits are words; the few elements before and after words are left out.
        black_box(unsafe { (mixed(k.align_to().1), mixed(v.align_to().1)) });
    });
    let bytes = (2 * size_of::<E>() * k.len()) as f64;
    println!(
        "{:9} decode {batch} × {groups} × {heads}, {keys} keys of {d}, {:4}: {:5.1} GB/s of the cache; reading it alone {:5.1} GB/s",
        isa.name(),
        kind::<E>(),
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
    let named = std::env::args().nth(1).unwrap_or_default();
    let kinds = std::env::args().nth(2);
    let single = kinds.as_ref().is_none_or(|kind| kind == "f32");
    let half = kinds.as_ref().is_none_or(|kind| kind == "bf16");
    for isa in Isa::available().into_iter().rev() {
        if only.as_ref().is_some_and(|name| name != isa.name()) {
            continue;
        }
        let shapes = if isa == Isa::Portable {
            &shapes[4..]
        } else {
            &shapes[..]
        };
        for shape in shapes.iter().filter(|shape| shape.name.contains(&named)) {
            for threads in [1, 2] {
                if single {
                    train::<f32>(shape, isa, threads);
                }
                if half {
                    train::<Bf16>(shape, isa, threads);
                }
            }
        }
        if isa != Isa::Portable && "decode".contains(&named) {
            for (batch, groups, heads, keys, d) in [
                (1, 6, 1, 256, 64),
                (8, 6, 1, 4096, 64),
                (8, 2, 8, 4096, 64),
                (4, 4, 4, 4096, 128),
            ] {
                if single {
                    decode::<f32>(batch, groups, heads, keys, d, isa);
                }
                if half {
                    decode::<Bf16>(batch, groups, heads, keys, d, isa);
                }
            }
        }
    }
}
