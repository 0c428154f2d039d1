//! The gated activation.

use super::{assert_same, numbers};
use unisono_kernels::element::Bf16;
use unisono_kernels::elementwise::{swiglu, swiglu_grad};
use unisono_kernels::isa::Isa;
use unisono_kernels::math;

fn sigmoid(x: f32) -> f32 {
    let z = math::exp(-x.abs());
    if x < 0.0 { z / (1.0 + z) } else { 1.0 / (1.0 + z) }
}

/// The slow twins: the value, and the gradients of gate and up.
fn slow(gate: f32, up: f32, dy: f32) -> [f32; 3] {
    let sigma = sigmoid(gate);
    [
        gate * sigma * up,
        dy * up * (sigma * gate.mul_add(1.0 - sigma, 1.0)),
        dy * (gate * sigma),
    ]
}

#[test]
fn equals_its_slow_twin_in_both_kinds() {
    for n in [0, 1, 15, 16, 17, 61, 640] {
        let gate: Vec<f32> = numbers(n, 1).iter().map(|x| x * 20.0).collect();
        let (up, dy) = (numbers(n, 2), numbers(n, 3));
        let half = |x: &[f32]| x.iter().map(|x| Bf16::from_f32(*x)).collect::<Vec<Bf16>>();
        let wide = |x: &[Bf16]| x.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
        let expected = |gate: &[f32], up: &[f32], dy: &[f32], which: usize| -> Vec<f32> {
            let all = gate.iter().zip(up).zip(dy);
            all.map(|((g, u), d)| slow(*g, *u, *d)[which]).collect()
        };
        for isa in Isa::available() {
            let mut found = vec![vec![9.0; n]; 3];
            let [y, d_gate, d_up] = &mut found[..] else {
                unreachable!()
            };
            swiglu(isa, &gate, &up, &mut *y);
            swiglu_grad(isa, &gate, &up, &dy, &mut *d_gate, &mut *d_up);
            for (which, found) in found.iter().enumerate() {
                assert_same(
                    found,
                    &expected(&gate, &up, &dy, which),
                    &format!("{which} of {n} on {isa:?}"),
                );
            }
            let (g, u, d) = (half(&gate), half(&up), half(&dy));
            let mut found = vec![vec![Bf16::default(); n]; 3];
            let [y, d_gate, d_up] = &mut found[..] else {
                unreachable!()
            };
            swiglu(isa, &g, &u, &mut *y);
            swiglu_grad(isa, &g, &u, &d, &mut *d_gate, &mut *d_up);
            for (which, found) in found.iter().enumerate() {
                let expected = half(&expected(&wide(&g), &wide(&u), &wide(&d), which));
                let what = format!("{which} of {n} in bf16 on {isa:?}");
                assert_same(&wide(found), &wide(&expected), &what);
            }
        }
    }
}
