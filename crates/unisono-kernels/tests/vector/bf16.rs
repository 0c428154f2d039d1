//! Kernels on bf16 against themselves on f32: the widened arguments, the results rounded once.

use super::numbers;
use unisono_kernels::element::Bf16;
use unisono_kernels::isa::Isa;
use unisono_kernels::optimizer::{AdamW, Sgd, adamw, sgd};

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
