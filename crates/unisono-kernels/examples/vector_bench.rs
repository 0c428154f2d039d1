//! Times the kernels over elements and along rows: nanoseconds an element and gigabytes a second, in the second-level cache and
//! from memory. `cargo run --release -p unisono-kernels --example vector_bench [portable|avx2|avx512]`

use std::hint::black_box;
use std::time::Instant;
use unisono_kernels::cast::cast;
use unisono_kernels::cross_entropy;
use unisono_kernels::dropout::dropout;
use unisono_kernels::element::Bf16;
use unisono_kernels::elementwise::{Binary, Unary, binary, unary, unary_grad};
use unisono_kernels::isa::Isa;
use unisono_kernels::norm::{layer_norm, layer_norm_grad, norm_param_grad, rms_norm};
use unisono_kernels::optimizer::{AdamW, adamw};
use unisono_kernels::order::{Share, Units};
use unisono_kernels::out::Out;
use unisono_kernels::philox::Stream;
use unisono_kernels::random::{fill_normal_on, fill_uniform_on};
use unisono_kernels::reduce::column_sums;
use unisono_kernels::scratch::Scratch;
use unisono_kernels::softmax::{softmax, softmax_grad};

/// Best of 21 timings of `work` over `elements`, each moving `bytes` bytes an element.
fn time(name: &str, elements: usize, bytes: usize, mut work: impl FnMut()) {
    let repeats = (1_000_000 / elements).max(1);
    work();
    let mut times: Vec<f64> = (0..21)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..repeats {
                work();
            }
            start.elapsed().as_secs_f64() / repeats as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let ns = times[0] / elements as f64 * 1e9;
    println!("  {name:<22}{ns:8.3} ns/element {:8.1} GB/s", bytes as f64 / ns);
}

fn main() {
    let isa = match std::env::args().nth(1) {
        Some(name) => Isa::named(&name).expect("an instruction set"),
        None => Isa::detect(),
    };
    for (place, n, cols) in [("in cache", 49_152, 384), ("from memory", 16_777_216, 1024)] {
        println!("{}, {place}: {n} elements, rows of {cols}", isa.name());
        let mut random = vec![0.0f32; n];
        let stream = Stream {
            seed: 1,
            site: 0,
            step: 0,
        };
        time("fill_uniform", n, 4, || {
            fill_uniform_on(isa, &stream, 0, -3.0, 3.0, &mut random)
        });
        let x = random.clone();
        time("fill_normal", n, 4, || {
            fill_normal_on(isa, &stream, 0, 0.0, 1.0, &mut random)
        });
        let (dy, mut y) = (x.clone(), vec![0.0f32; n]);
        time("copy_from_slice", n, 8, || black_box(&mut y).copy_from_slice(&x));
        time("add", n, 12, || binary(isa, Binary::Add, &x, &dy, &mut y));
        for op in [
            Unary::Relu,
            Unary::Exp,
            Unary::Ln,
            Unary::Tanh,
            Unary::Sigmoid,
            Unary::Silu,
            Unary::Gelu,
            Unary::GeluTanh,
        ] {
            time(&format!("{op:?}"), n, 8, || unary(isa, op, &x, &mut y));
        }
        for op in [Unary::Silu, Unary::Gelu, Unary::GeluTanh] {
            time(&format!("{op:?} gradient"), n, 12, || {
                unary_grad(isa, op, &x, &dy, &mut y)
            });
        }
        time("dropout", n, 8, || dropout(isa, &stream, 0, 0.1, &x, &mut y));
        let rows = n / cols;
        let units = Units::whole(cols);
        let (gamma, beta) = (vec![1.0f32; cols], vec![0.5f32; cols]);
        let (mut mean, mut rstd) = (vec![0.0f32; rows], vec![0.0f32; rows]);
        time("rms_norm", n, 8, || {
            rms_norm(isa, &x, Some(&gamma), 1e-5, units, &mut y, &mut rstd)
        });
        time("layer_norm", n, 8, || {
            layer_norm(
                isa,
                &x,
                Some(&gamma),
                Some(&beta),
                1e-5,
                units,
                &mut y,
                &mut mean,
                &mut rstd,
            );
        });
        time("layer_norm_grad", n, 12, || {
            layer_norm_grad(isa, &x, &dy, Some(&gamma), &mean, &rstd, units, &mut y);
        });
        let share = Share::whole(Units::of(rows, 8));
        let (mut dgamma, mut dbeta) = (vec![0.0f32; cols], vec![0.0f32; cols]);
        let mut scratch = Scratch::new(isa);
        time("norm_param_grad", n, 8, || {
            let (dgamma, dbeta) = (Some(Out::new(&mut dgamma)), Some(Out::new(&mut dbeta)));
            norm_param_grad(
                isa,
                &share,
                (&x).into(),
                (&dy).into(),
                Some(&mean),
                &rstd,
                cols,
                0,
                cols,
                dgamma,
                dbeta,
                cols,
                &mut scratch,
            );
        });
        time("column_sums", n, 4, || {
            column_sums(
                isa,
                &share,
                (&dy).into(),
                cols,
                0,
                cols,
                Out::new(&mut dbeta),
                cols,
                &mut scratch,
            );
        });
        bf16(isa, &x, cols, (&gamma, &beta), (&mut mean, &mut rstd));
        time("softmax", n, 8, || softmax(isa, &x, cols, units, &mut y));
        time("softmax_grad", n, 12, || {
            softmax_grad(isa, &x, &dy, cols, units, &mut y)
        });
        let mut max = vec![0.0f32; rows];
        time("row_max", n, 4, || {
            cross_entropy::row_max(isa, &x, cols, cols, &mut max)
        });
        let share = Share::whole(Units::of(cols, 6));
        time("row_sum_exp", n, 4, || {
            cross_entropy::row_sum_exp(isa, &x, cols, cols, &max, &share, Out::new(&mut rstd), rows, 0);
        });
        let targets = vec![7u32; rows];
        let lse = vec![5.0f32; rows];
        y.copy_from_slice(&x);
        time("logits_grad", n, 8, || {
            cross_entropy::logits_grad(isa, &mut y, cols, cols, 0, &lse, &targets, 1e-3)
        });
        let hyper = AdamW {
            lr: 1e-4,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.1,
            bias_correction1: 0.5,
            bias_correction2: 0.5,
            grad_scale: 1.0,
        };
        let (mut p, mut m, mut v) = (x.clone(), vec![0.0f32; n], vec![0.0f32; n]);
        time("adamw", n, 28, || adamw(isa, &hyper, &mut p, &mut m, &mut v, &dy, None));
        let mut copy = vec![Bf16::default(); n];
        time("adamw, copy in bf16", n, 30, || {
            adamw(isa, &hyper, &mut p, &mut m, &mut v, &dy, Some(&mut copy))
        });
    }
}

/// The kernels of a block's activations on bf16.
fn bf16(isa: Isa, x: &[f32], cols: usize, affine: (&[f32], &[f32]), statistics: (&mut [f32], &mut [f32])) {
    let (n, rows, units) = (x.len(), x.len() / cols, Units::whole(cols));
    let (gamma, beta) = (Some(affine.0), Some(affine.1));
    let (mean, rstd) = statistics;
    let (mut half, mut y) = (vec![Bf16::default(); n], vec![Bf16::default(); n]);
    let mut wide = vec![0.0f32; n];
    time("round to bf16", n, 6, || cast(isa, x, &mut half));
    time("widen bf16", n, 6, || cast(isa, &half, &mut wide));
    time("add, bf16", n, 6, || binary(isa, Binary::Add, &half, &half, &mut y));
    for op in [Unary::Relu, Unary::GeluTanh] {
        time(&format!("{op:?}, bf16"), n, 4, || unary(isa, op, &half, &mut y));
        time(&format!("{op:?} gradient, bf16"), n, 6, || {
            unary_grad(isa, op, &half, &half, &mut y)
        });
    }
    time("rms_norm, bf16", n, 4, || {
        rms_norm(isa, &half, gamma, 1e-5, units, &mut y, rstd)
    });
    time("layer_norm, bf16", n, 4, || {
        layer_norm(isa, &half, gamma, beta, 1e-5, units, &mut y, mean, rstd);
    });
    time("layer_norm_grad, bf16", n, 6, || {
        layer_norm_grad(isa, &half, &half, gamma, mean, rstd, units, &mut y);
    });
    let share = Share::whole(Units::of(rows, 8));
    let (mut sums, mut scratch) = (vec![0.0f32; cols], Scratch::new(isa));
    time("column_sums, bf16", n, 2, || {
        column_sums(
            isa,
            &share,
            (&half).into(),
            cols,
            0,
            cols,
            Out::new(&mut sums),
            cols,
            &mut scratch,
        );
    });
    time("norm_param_grad, bf16", n, 4, || {
        let (gains, mean) = (Some(Out::new(&mut sums)), Some(&*mean));
        norm_param_grad(
            isa,
            &share,
            (&half).into(),
            (&half).into(),
            mean,
            rstd,
            cols,
            0,
            cols,
            gains,
            None,
            cols,
            &mut scratch,
        );
    });
}
