//! Rotary position embedding.

use super::{assert_same, numbers};
use unisono_kernels::element::Bf16;
use unisono_kernels::isa::Isa;
use unisono_kernels::math;
use unisono_kernels::rope::{Turn, rope};
use unisono_kernels::scratch::Scratch;

/// θ^(−2i/d) with Llama's θ of 10000, for a head of `d` elements.
fn frequencies(d: usize) -> Vec<f32> {
    (0..d / 2)
        .map(|i| math::powf(10_000.0, -2.0 * i as f32 / d as f32))
        .collect()
}

/// Positions with small and very large angles.
fn position(token: usize) -> u32 {
    [0, 1, 7, 8191, 131_072, 3_000_000, 2][token % 7]
}

/// The slow twin: the angle is an f32 product; one product and one fused multiply-add a result.
fn rope_slow(x: &[f32], heads: usize, frequencies: &[f32], turn: Turn) -> Vec<f32> {
    let (half, mut y) = (frequencies.len(), vec![0.0; x.len()]);
    for (row, at) in (0..x.len() / (2 * half)).map(|row| (row, row * 2 * half)) {
        for (i, frequency) in frequencies.iter().enumerate() {
            let angle = position(row / heads) as f32 * frequency;
            let (a, b, cos) = (x[at + i], x[at + half + i], math::cos(angle));
            let sin = match turn {
                Turn::Forward => math::sin(angle),
                Turn::Back => -math::sin(angle),
            };
            y[at + i] = (-b).mul_add(sin, a * cos);
            y[at + half + i] = a.mul_add(sin, b * cos);
        }
    }
    y
}

#[test]
fn equals_its_slow_twin_in_both_kinds() {
    for (d, heads, tokens) in [(2, 1, 1), (6, 3, 7), (32, 2, 5), (64, 9, 7), (70, 1, 3), (128, 2, 9)] {
        let x = numbers(tokens * heads * d, 1);
        let half: Vec<Bf16> = x.iter().map(|x| Bf16::from_f32(*x)).collect();
        let wide: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        let frequencies = frequencies(d);
        for isa in Isa::available() {
            let scratch = &mut Scratch::new(isa);
            for turn in [Turn::Forward, Turn::Back] {
                let what = format!("{turn:?}, {heads} heads of {d} on {isa:?}");
                let mut y = vec![9.0; x.len()];
                rope(&x, tokens, &frequencies, position, turn, &mut y, scratch);
                assert_same(&y, &rope_slow(&x, heads, &frequencies, turn), &what);
                let mut z = vec![Bf16::default(); x.len()];
                rope(&half, tokens, &frequencies, position, turn, &mut z, scratch);
                let rounded = |x: &f32| Bf16::from_f32(*x).to_f32();
                let expected: Vec<f32> = rope_slow(&wide, heads, &frequencies, turn)
                    .iter()
                    .map(rounded)
                    .collect();
                assert_same(&z.iter().map(|z| z.to_f32()).collect::<Vec<_>>(), &expected, &what);
            }
        }
    }
}

/// Turning back undoes the rotation, up to rounding; turning forward twice does not.
#[test]
fn back_is_the_inverse() {
    let (x, frequencies) = (numbers(7 * 64, 2), frequencies(64));
    let (mut y, mut z) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let scratch = &mut Scratch::new(Isa::detect());
    rope(&x, 7, &frequencies, position, Turn::Forward, &mut y, scratch);
    let largest = |z: &[f32]| x.iter().zip(z).fold(0.0f32, |a, (x, z)| a.max((x - z).abs()));
    rope(&y, 7, &frequencies, position, Turn::Back, &mut z, scratch);
    assert!(largest(&z) < 1e-6);
    rope(&y, 7, &frequencies, position, Turn::Forward, &mut z, scratch);
    assert!(largest(&z) > 0.1);
}
