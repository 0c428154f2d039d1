//! Kernels on bf16 against themselves on f32: the widened arguments, the results rounded once.

use super::{assert_same, numbers};
use unisono_kernels::cast::cast;
use unisono_kernels::dropout::{dropout, dropout_add};
use unisono_kernels::element::{Bf16, Floats};
use unisono_kernels::elementwise::{Binary, Unary, binary, binary_scalar, scalar_binary, unary, unary_grad};
use unisono_kernels::embedding::{embedding_grad, gather};
use unisono_kernels::isa::Isa;
use unisono_kernels::norm::{layer_norm, layer_norm_grad, norm_param_grad, rms_norm, rms_norm_grad};
use unisono_kernels::optimizer::{AdamW, Sgd, adamw, sgd};
use unisono_kernels::order::{Share, Units};
use unisono_kernels::out::Out;
use unisono_kernels::philox::Stream;
use unisono_kernels::reduce::column_sums;
use unisono_kernels::scratch::Scratch;

/// Lengths with and without whole vectors and ragged ends.
const LENGTHS: [usize; 9] = [0, 1, 15, 16, 17, 63, 64, 100, 1000];

/// The numbers, rounded.
fn half(x: &[f32]) -> Vec<Bf16> {
    x.iter().map(|x| Bf16::from_f32(*x)).collect()
}

/// The numbers as f32.
fn wide(x: &[Bf16]) -> Vec<f32> {
    x.iter().map(|x| x.to_f32()).collect()
}

/// `got` must be `want` rounded, any NaN being equal to any other.
#[track_caller]
fn assert_rounded(got: &[Bf16], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            *g == Bf16::from_f32(*w) || g.to_f32().is_nan() && w.is_nan(),
            "{what}: element {i} is {:e} ({:#06x}), not {w:e} rounded",
            g.to_f32(),
            g.to_bits()
        );
    }
}

#[test]
fn optimizers_keep_a_rounded_copy() {
    let adam = AdamW {
        lr: 1e-3,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        bias_correction1: 0.1,
        bias_correction2: 0.05,
        grad_scale: 0.7,
    };
    let descent = Sgd {
        lr: 0.05,
        momentum: 0.9,
        dampening: 0.3,
        weight_decay: 0.01,
        nesterov: false,
        grad_scale: 0.5,
        first_step: false,
    };
    for isa in Isa::available() {
        for n in LENGTHS {
            let g = numbers(n, 1);
            let moments = (numbers(n, 2), wide(&half(&numbers(n, 3))));
            let second: Vec<f32> = moments.1.iter().map(|v| v * v).collect();
            for rule in 0..3 {
                let update = |p: &mut [f32], copy: Option<&mut [Bf16]>| {
                    let (mut m, mut v) = (moments.0.clone(), second.clone());
                    match rule {
                        0 => adamw(isa, &adam, p, &mut m, &mut v, &g, copy),
                        1 => sgd(isa, &descent, p, Some(&mut m), &g, copy),
                        _ => sgd(isa, &descent, p, None, &g, copy),
                    }
                };
                let (mut p, mut q) = (numbers(n, 4), numbers(n, 4));
                let mut copy = vec![Bf16::from_f32(9.0); n + 1];
                update(&mut p, None);
                update(&mut q, Some(&mut copy[..n]));
                assert_eq!(p, q, "a copy changes nothing: rule {rule} on {isa:?}");
                assert_rounded(&copy[..n], &p, &format!("the copy of rule {rule} on {isa:?}"));
                assert_eq!(copy[n].to_f32(), 9.0);
            }
        }
    }
}

/// `count` numbers of bf16 in −4..4, and among them, where there is room, those at the edges.
fn halves(count: usize, seed: u32) -> Vec<Bf16> {
    let mut x: Vec<f32> = numbers(count, seed).iter().map(|x| 4.0 * x).collect();
    let edges = [
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        3e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    if count > 40 {
        x[20..28].copy_from_slice(&edges);
        x[count - 8..].copy_from_slice(&edges);
    }
    half(&x)
}

#[test]
fn casts_round_and_widen() {
    for isa in Isa::available() {
        for n in LENGTHS {
            let x = numbers(n, 5);
            let mut rounded = vec![Bf16::default(); n];
            cast(isa, &x, &mut rounded);
            assert_rounded(&rounded, &x, &format!("a cast on {isa:?}"));
            let mut back = vec![9.0; n];
            cast(isa, &rounded, &mut back);
            assert_same(&back, &wide(&rounded), &format!("a cast back on {isa:?}"));
            let mut again = vec![Bf16::default(); n];
            cast(isa, &rounded, &mut again);
            assert_eq!(again, rounded);
        }
    }
}

#[test]
fn elementwise() {
    for isa in Isa::available() {
        for n in LENGTHS {
            let (x, dy) = (halves(n, 1), halves(n + 3, 2)[3..].to_vec());
            let (wide_x, wide_dy) = (wide(&x), wide(&dy));
            let (mut y, mut want) = (vec![Bf16::default(); n], vec![9.0; n]);
            for op in Unary::ALL {
                unary(isa, op, &x, &mut y);
                unary(isa, op, &wide_x, &mut want);
                assert_rounded(&y, &want, &format!("{op:?} on {isa:?}"));
                unary_grad(isa, op, &x, &dy, &mut y);
                unary_grad(isa, op, &wide_x, &wide_dy, &mut want);
                assert_rounded(&y, &want, &format!("gradient of {op:?} on {isa:?}"));
            }
            for op in Binary::ALL {
                binary(isa, op, &x, &dy, &mut y);
                binary(isa, op, &wide_x, &wide_dy, &mut want);
                assert_rounded(&y, &want, &format!("{op:?} on {isa:?}"));
                // No number of bf16, so that rounding it first would show.
                let c = 1.003;
                binary_scalar(isa, op, &x, c, &mut y);
                binary_scalar(isa, op, &wide_x, c, &mut want);
                assert_rounded(&y, &want, &format!("{op:?} with a number on {isa:?}"));
                scalar_binary(isa, op, c, &x, &mut y);
                scalar_binary(isa, op, c, &wide_x, &mut want);
                assert_rounded(&y, &want, &format!("a number with {op:?} on {isa:?}"));
            }
        }
    }
}

#[test]
fn rounding_each_step_gives_other_bits() {
    // The broken control: silu's gate rounded to bf16 before it is multiplied.
    let x = half(&numbers(1000, 1));
    let mut y = vec![Bf16::default(); 1000];
    unary(Isa::detect(), Unary::Silu, &x, &mut y);
    let mut gate = y.clone();
    unary(Isa::detect(), Unary::Sigmoid, &x, &mut gate);
    let mut stepwise = y.clone();
    binary(Isa::detect(), Binary::Mul, &x, &gate, &mut stepwise);
    assert_ne!(y, stepwise);
}

#[test]
fn dropping_out() {
    let stream = Stream {
        seed: 7,
        site: 3,
        step: 1,
    };
    for isa in Isa::available() {
        for n in LENGTHS {
            for first in [0, 3, 1 << 20] {
                let (x, residual) = (halves(n, 1), halves(n, 9));
                let (mut y, mut want) = (vec![Bf16::default(); n], vec![9.0; n]);
                dropout(isa, &stream, first, 0.3, &x, &mut y);
                dropout(isa, &stream, first, 0.3, &wide(&x), &mut want);
                assert_rounded(&y, &want, &format!("dropout on {isa:?}"));
                dropout_add(isa, &stream, first, 0.3, &x, &residual, &mut y);
                dropout_add(isa, &stream, first, 0.3, &wide(&x), &wide(&residual), &mut want);
                assert_rounded(&y, &want, &format!("dropout_add on {isa:?}"));
            }
        }
    }
}

#[test]
fn norms() {
    for isa in Isa::available() {
        for cols in [1, 15, 16, 17, 100, 384] {
            let (rows, units) = (3, Units::of(cols, 2));
            let (x, dy) = (half(&numbers(rows * cols, 1)), half(&numbers(rows * cols, 2)));
            let (wide_x, wide_dy) = (wide(&x), wide(&dy));
            let (gamma, beta) = (numbers(cols, 3), numbers(cols, 4));
            for (gamma, beta) in [(None, None), (Some(&gamma[..]), Some(&beta[..]))] {
                let what = |kernel: &str| format!("{kernel} of rows of {cols} on {isa:?}");
                let (mut y, mut want) = (vec![Bf16::default(); x.len()], vec![9.0; x.len()]);
                let statistics = || (vec![9.0; rows], vec![9.0; rows]);
                let ((mut mean, mut rstd), (mut want_mean, mut want_rstd)) = (statistics(), statistics());
                layer_norm(isa, &x, gamma, beta, 1e-5, units, &mut y, &mut mean, &mut rstd);
                let stats = (&mut want_mean[..], &mut want_rstd[..]);
                layer_norm(isa, &wide_x, gamma, beta, 1e-5, units, &mut want, stats.0, stats.1);
                assert_rounded(&y, &want, &what("layer norm"));
                assert_same(&mean, &want_mean, &what("means"));
                assert_same(&rstd, &want_rstd, &what("deviations"));
                layer_norm_grad(isa, &x, &dy, gamma, &mean, &rstd, units, &mut y);
                layer_norm_grad(isa, &wide_x, &wide_dy, gamma, &mean, &rstd, units, &mut want);
                assert_rounded(&y, &want, &what("the gradient of layer norm"));
                rms_norm(isa, &x, gamma, 1e-5, units, &mut y, &mut rstd);
                rms_norm(isa, &wide_x, gamma, 1e-5, units, &mut want, &mut want_rstd);
                assert_rounded(&y, &want, &what("RMS norm"));
                assert_same(&rstd, &want_rstd, &what("deviations"));
                rms_norm_grad(isa, &x, &dy, gamma, &rstd, units, &mut y);
                rms_norm_grad(isa, &wide_x, &wide_dy, gamma, &rstd, units, &mut want);
                assert_rounded(&y, &want, &what("the gradient of RMS norm"));
            }
        }
    }
}

/// Two calls that carry one sum, over columns in two parts: what the slots hold at the end must not depend on the kind of the
/// addends, which are the same numbers.
fn equal_sums(cols: usize, what: &str, sum: impl Fn(Share, std::ops::Range<usize>, Out<f32>, bool, &mut Scratch)) {
    let units = Units { count: 6, len: 130 };
    for isa in Isa::available() {
        let mut scratch = Scratch::new(isa);
        let mut sums = [vec![9.0; 6 * cols], vec![9.0; 6 * cols]];
        for (sums, wide) in sums.iter_mut().zip([false, true]) {
            for (from, to) in [(0, 3), (3, 6)] {
                let share = Share {
                    units,
                    open: 0,
                    from,
                    to,
                };
                for columns in [cols / 3..cols, 0..cols / 3] {
                    sum(share, columns, Out::new(sums), wide, &mut scratch);
                }
            }
        }
        let [got, want] = sums;
        assert_same(&got, &want, &format!("{what} of {cols} columns on {isa:?}"));
        assert!(got[..cols].iter().all(|sum| *sum != 9.0), "{what} wrote nothing");
    }
}

/// One of the two.
fn either<'a>(wide: bool, x: &'a [f32], half: &'a [Bf16]) -> Floats<'a> {
    if wide { x.into() } else { half.into() }
}

#[test]
fn sums_over_tokens() {
    let rows = 780;
    for cols in [1, 16, 53] {
        let (x, dy) = (half(&numbers(rows * cols, 1)), half(&numbers(rows * cols, 2)));
        let (wide_x, wide_dy) = (wide(&x), wide(&dy));
        let (mean, rstd) = (numbers(rows, 3), numbers(rows, 4));
        equal_sums(cols, "column sums", |share, columns, out, wide, scratch| {
            let part = share.from * 130 * cols..share.to * 130 * cols;
            let (isa, from, to) = (scratch.isa(), columns.start, columns.end);
            let dy = either(wide, &wide_dy[part.clone()], &dy[part]);
            column_sums(isa, &share, dy, cols, from, to, out, cols, scratch);
        });
        for gains in [false, true] {
            equal_sums(cols, "a norm's parameters", |share, columns, out, wide, scratch| {
                let tokens = share.from * 130..share.to * 130;
                let part = tokens.start * cols..tokens.end * cols;
                let (mean, rstd) = (Some(&mean[tokens.clone()]), &rstd[tokens]);
                let (isa, from, to) = (scratch.isa(), columns.start, columns.end);
                let (gamma, beta) = (gains.then_some(out), (!gains).then_some(out));
                let x = either(wide, &wide_x[part.clone()], &x[part.clone()]);
                let dy = either(wide, &wide_dy[part.clone()], &dy[part]);
                norm_param_grad(
                    isa, &share, x, dy, mean, rstd, cols, from, to, gamma, beta, cols, scratch,
                );
            });
        }
    }
}

#[test]
fn tables() {
    let (tokens, rows, cols) = (780, 7, 19);
    let table = halves(rows * cols, 1);
    let ids: Vec<u32> = (0..tokens as u32).map(|t| t * t % 11).collect();
    let (mut out, mut want) = (vec![Bf16::from_f32(9.0); tokens * cols], vec![9.0; tokens * cols]);
    gather(&table, cols, 2, rows, &ids, &mut out);
    gather(&wide(&table), cols, 2, rows, &ids, &mut want);
    assert_rounded(&out, &want, "a lookup");
    let dy = half(&numbers(tokens * cols, 2));
    let wide_dy = wide(&dy);
    equal_sums(
        rows * cols,
        "a table's gradient",
        |share, elements, out, wide, scratch| {
            let part = share.from * 130..share.to * 130;
            let (ids, at) = (&ids[part.clone()], part.start * cols..part.end * cols);
            let isa = scratch.isa();
            // The parts of the elements, moved to the next whole row.
            let (from, to) = (elements.start.div_ceil(cols), elements.end.div_ceil(cols));
            let dy = either(wide, &wide_dy[at.clone()], &dy[at]);
            embedding_grad(isa, &share, ids, dy, cols, 2, from, to, out, rows * cols, scratch);
        },
    );
}

#[test]
#[should_panic(expected = "bug in unisono: a function of two numbers was given f32 and bf16 arrays")]
fn kinds_do_not_mix() {
    binary(Isa::detect(), Binary::Add, &[1.0], &half(&[1.0]), &mut [0.0]);
}
