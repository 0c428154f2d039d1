//! What follows the sums, and what C takes.

use super::*;
use crate::elementwise::{gelu_erf, gelu_tanh, relu, silu};
use crate::simd::{Portable, Simd};

const ALL: [Activation; 5] = [
    Activation::None,
    Activation::Relu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Silu,
];

/// The activation of one number.
fn apply(activation: Activation, x: f32) -> f32 {
    let s = Portable::new();
    let x = s.splat(x);
    s.to_array(match activation {
        Activation::None => x,
        Activation::Relu => relu(s, x),
        Activation::Gelu => gelu_erf(s, x),
        Activation::GeluTanh => gelu_tanh(s, x),
        Activation::Silu => silu(s, x),
    })[0]
}

/// `activation(0 · 0 + bias)` in bf16, each way that this CPU has.
fn of_biases(biases: &[f32], activation: Activation, check: impl Fn(&[Bf16], &str)) {
    let case = whole(9, biases.len(), Units::whole(1), (Layout::Rows, Layout::Rows));
    let mut o = operands(&case);
    o.a = Factor::new(vec![0.0; o.a.f32.len()]);
    o.b = Factor::new(vec![0.0; o.b.f32.len()]);
    for kind in [Kind::Bf16, Kind::Tiles] {
        for way in ways(kind) {
            let mut got = vec![Bf16::default(); 9 * biases.len()];
            let mut g = o.gemm(&case, kind, Out::new(&mut got).into());
            g.bias = Some(biases);
            g.activation = activation;
            run(&g, way);
            for row in got.chunks(biases.len()) {
                check(row, &format!("{activation:?}, {kind:?} by {way:?}"));
            }
        }
    }
}

/// Both the same number, or both no number.
fn assert_bf16(got: &[Bf16], want: impl Iterator<Item = Bf16>, what: &str) {
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let nan = got.to_f32().is_nan() && want.to_f32().is_nan();
        assert!(
            nan || got == &want,
            "{what}: {:#x}, not {:#x}, of number {i}",
            got.to_bits(),
            want.to_bits()
        );
    }
}

#[test]
fn activations_of_every_bf16() {
    let every: Vec<f32> = (0..=u16::MAX).map(|bits| Bf16::from_bits(bits).to_f32()).collect();
    for activation in ALL {
        // −0 is no sum.
        let want = |x: f32| Bf16::from_f32(apply(activation, x + 0.0));
        of_biases(&every, activation, |row, what| {
            assert_bf16(row, every.iter().map(|x| want(*x)), what);
        });
    }
}

/// Numbers of any exponent at, just below and just above the middle between two bf16; denormals, infinities, no numbers.
fn rare_numbers() -> Vec<f32> {
    (0u32..1 << 9)
        .flat_map(|exponent| {
            [0, 1, 0x7fff, 0x8000, 0x8001, 0x1_7fff, 0x1_8000, 0x7f_ffff].map(|rest| exponent << 23 | rest)
        })
        .map(f32::from_bits)
        .collect()
}

#[test]
fn rare_roundings() {
    let rare = rare_numbers();
    of_biases(&rare, Activation::None, |row, what| {
        assert_bf16(row, rare.iter().map(|x| Bf16::from_f32(x + 0.0)), what);
    });
}

#[test]
fn residuals() {
    // A whole number of register tiles, and a rest; products of few rows go another way.
    let rare = rare_numbers();
    for (batch, m, n) in [(1, 26, rare.len()), (2, 26, 45), (1, 3, 200)] {
        let mut case = whole(m, n, Units { count: 3, len: 70 }, (Layout::Rows, Layout::Rows));
        case.batch = batch;
        let mut o = operands(&case);
        o.bias = rare.iter().cycle().skip(40 * 8).take(n).copied().collect();
        let residual: Vec<f32> = rare
            .iter()
            .cycle()
            .skip(7)
            .step_by(5)
            .take(o.c.len())
            .copied()
            .collect();
        let residual_bf16 = rounded(&residual);
        // Numbers of the middle leave few places that are not rounded at once, others many.
        for zero in [false, true] {
            if zero {
                o.a = Factor::new(vec![0.0; o.a.f32.len()]);
            }
            for kind in KINDS {
                let mut sums = o.c.clone();
                let mut unused = o.c.clone();
                twin(&o.gemm(&case, kind, Out::new(&mut unused).into()), kind, &mut sums);
                let (row, product) = (o.c_row, o.c_batch);
                let inside = || {
                    let all = (0..batch * m * n).map(|at| (at / (m * n), at / n % m, at % n));
                    all.map(|(b, i, j)| (b * product + i * row + j, j))
                };
                for way in ways(kind) {
                    let what = format!("{m} × {n}, {kind:?} by {way:?}");
                    let mut got = o.c.clone();
                    let mut g = o.gemm(&case, kind, Out::new(&mut got).into());
                    g.bias = Some(&o.bias);
                    g.residual = Some(Floats::F32(&residual));
                    run(&g, way);
                    for (at, j) in inside() {
                        let want = residual[at] + (sums[at] + o.bias[j]);
                        assert!(
                            got[at].to_bits() == want.to_bits() || got[at].is_nan() && want.is_nan(),
                            "{what}: {} at {at}, not {want}",
                            got[at]
                        );
                    }
                    if kind == Kind::F32 {
                        continue;
                    }
                    let mut got = rounded(&o.c);
                    let mut g = o.gemm(&case, kind, Out::new(&mut got).into());
                    g.bias = Some(&o.bias);
                    g.residual = Some(Floats::Bf16(&residual_bf16));
                    run(&g, way);
                    let want = inside().map(|(at, j)| {
                        let sum = Bf16::from_f32(sums[at] + o.bias[j]);
                        Bf16::from_f32(residual_bf16[at].to_f32() + sum.to_f32())
                    });
                    let got: Vec<Bf16> = inside().map(|(at, _)| got[at]).collect();
                    assert_bf16(&got, want, &what);
                }
            }
        }
    }
}

#[test]
fn epilogues() {
    // The twin: the sum, + bias, [kept], then the activation of one number, each rounded where C is bf16.
    for (m, n) in [(3, 50), (25, 64), (13, 7)] {
        for activation in ALL {
            for (with_bias, with_pre) in [(false, false), (true, false), (true, true), (false, true)] {
                for kind in KINDS {
                    let mut case = whole(m, n, Units { count: 3, len: 70 }, (Layout::Rows, Layout::Cols));
                    case.pad = 2;
                    let o = operands(&case);
                    let mut sums = o.c.clone();
                    let mut unused = o.c.clone();
                    twin(&o.gemm(&case, kind, Out::new(&mut unused).into()), kind, &mut sums);
                    let (mut want, mut want_pre) = (o.c.clone(), o.c.clone());
                    for i in 0..m {
                        for j in 0..n {
                            let at = i * o.c_row + j;
                            let x = if with_bias { sums[at] + o.bias[j] } else { sums[at] };
                            want[at] = apply(activation, x);
                            want_pre[at] = x;
                        }
                    }
                    for way in ways(kind) {
                        let what = format!("{activation:?}, bias {with_bias}, pre {with_pre}, {kind:?} by {way:?}");
                        let (mut got, mut got_pre) = (o.c.clone(), o.c.clone());
                        let mut g = o.gemm(&case, kind, Out::new(&mut got).into());
                        g.bias = with_bias.then_some(&o.bias);
                        g.pre = with_pre.then(|| Out::new(&mut got_pre).into());
                        g.activation = activation;
                        run(&g, way);
                        assert_same(&got, &want, &what);
                        if with_pre {
                            assert_same(&got_pre, &want_pre, &what);
                        }
                        if kind == Kind::F32 {
                            continue;
                        }
                        let (mut got, mut got_pre) = (rounded(&o.c), rounded(&o.c));
                        let mut g = o.gemm(&case, kind, Out::new(&mut got).into());
                        g.bias = with_bias.then_some(&o.bias);
                        g.pre = with_pre.then(|| Out::new(&mut got_pre).into());
                        g.activation = activation;
                        run(&g, way);
                        let mut want = rounded(&o.c);
                        for at in (0..m).flat_map(|i| (0..n).map(move |j| i * o.c_row + j)) {
                            want[at] = Bf16::from_f32(apply(activation, Bf16::from_f32(want_pre[at]).to_f32()));
                        }
                        assert_eq!(got, want, "{what}, C bf16");
                        if with_pre {
                            assert_eq!(got_pre, rounded(&want_pre), "{what}, C bf16");
                        }
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "bug in unisono: a bias, an activation or a residual on a sum that is not complete")]
fn no_epilogue_on_a_part() {
    let mut case = whole(2, 2, Units { count: 3, len: 4 }, (Layout::Rows, Layout::Rows));
    case.share.to = 2;
    let o = operands(&case);
    let mut c = o.c.clone();
    let mut g = o.gemm(&case, Kind::F32, Out::new(&mut c).into());
    g.activation = Activation::Relu;
    g.run(0, &mut Scratch::new(Isa::Portable));
}

#[test]
#[should_panic(expected = "bug in unisono: a residual of a product after Relu")]
fn no_residual_after_an_activation() {
    let case = whole(2, 2, Units::whole(4), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let (mut c, residual) = (o.c.clone(), o.c.clone());
    let mut g = o.gemm(&case, Kind::F32, Out::new(&mut c).into());
    g.activation = Activation::Relu;
    g.residual = Some(Floats::F32(&residual));
    g.run(0, &mut Scratch::new(Isa::Portable));
}

#[test]
#[should_panic(expected = "bug in unisono: a product and its residual of two kinds")]
fn no_residual_of_another_kind() {
    let case = whole(2, 2, Units::whole(4), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let (mut c, residual) = (o.c.clone(), rounded(&o.c));
    let mut g = o.gemm(&case, Kind::F32, Out::new(&mut c).into());
    g.residual = Some(Floats::Bf16(&residual));
    g.run(0, &mut Scratch::new(Isa::Portable));
}

#[test]
#[should_panic(expected = "bug in unisono: bf16 for what is no complete sum of bf16 factors")]
fn no_part_of_a_sum_in_bf16() {
    let mut case = whole(2, 2, Units { count: 3, len: 4 }, (Layout::Rows, Layout::Rows));
    case.share.to = 2;
    let o = operands(&case);
    let mut c = rounded(&o.c);
    o.gemm(&case, Kind::Bf16, Out::new(&mut c).into())
        .run(0, &mut Scratch::new(Isa::Portable));
}

#[test]
#[should_panic(expected = "bug in unisono: a product was given f32 and bf16 arrays")]
fn no_factors_of_two_kinds() {
    let case = whole(2, 2, Units::whole(4), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let mut c = o.c.clone();
    let mut g = o.gemm(&case, Kind::Bf16, Out::new(&mut c).into());
    g.b.data = o.b.floats(Kind::F32);
    g.run(0, &mut Scratch::new(Isa::Portable));
}

#[test]
fn signs_of_zero() {
    // Products that underflow to −0 leave a running sum of −0; stored it must be +0.
    let case = whole(1, 1, Units::whole(64), (Layout::Rows, Layout::Rows));
    let mut o = operands(&case);
    o.a = Factor::new(vec![-1e-30; 64]);
    o.b = Factor::new(vec![1e-30; 64]);
    for kind in KINDS {
        for way in ways(kind) {
            let mut c = [1.0f32; 1];
            run(&o.gemm(&case, kind, Out::new(&mut c).into()), way);
            assert_eq!(c[0].to_bits(), 0);
        }
    }
}
