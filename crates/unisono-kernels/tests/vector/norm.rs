//! Norms.

use super::{assert_same, numbers, order_of};
use proptest::prelude::*;
use unisono_kernels::isa::Isa;
use unisono_kernels::norm::{layer_norm, layer_norm_grad, norm_param_grad, rms_norm, rms_norm_grad};
use unisono_kernels::order::{Share, Units};
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

/// The slow twin of the norms: one row, `(y, mean, rstd)`. Lane `i mod 16` of a leaf adds by fused multiply-add.
fn norm_slow(
    x: &[f32],
    gamma: Option<&[f32]>,
    beta: Option<&[f32]>,
    centred: bool,
    units: Units,
) -> (Vec<f32>, f32, f32) {
    let n = x.len() as f32;
    let mean = if centred {
        order_of(x.len(), units, |i, acc| acc + x[i]) / n
    } else {
        0.0
    };
    let squares = order_of(x.len(), units, |i, acc| (x[i] - mean).mul_add(x[i] - mean, acc));
    let rstd = 1.0 / (squares / n + 1e-5).sqrt();
    let y = (0..x.len())
        .map(|i| {
            let v = (x[i] - mean) * rstd;
            match (gamma, beta) {
                (Some(g), Some(b)) => v.mul_add(g[i], b[i]),
                (Some(g), None) => v * g[i],
                (None, Some(b)) => v + b[i],
                (None, None) => v,
            }
        })
        .collect();
    (y, mean, rstd)
}

/// The slow twin of the gradients.
fn grad_slow(x: &[f32], dy: &[f32], gamma: Option<&[f32]>, mean: Option<f32>, rstd: f32, units: Units) -> Vec<f32> {
    let n = x.len() as f32;
    let g = |i: usize| gamma.map_or(dy[i], |gamma| dy[i] * gamma[i]);
    let normal = |i: usize| (x[i] - mean.unwrap_or(0.0)) * rstd;
    let a = mean.map_or(0.0, |_| order_of(x.len(), units, |i, acc| acc + g(i)) / n);
    let b = order_of(x.len(), units, |i, acc| g(i).mul_add(normal(i), acc)) / n;
    (0..x.len()).map(|i| (-normal(i)).mul_add(b, g(i) - a) * rstd).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn equal_their_slow_twins(rows in 0usize..4, cols in 1usize..420, count in 1usize..7, affine in 0u32..4, seed: u32) {
        let units = Units::of(cols, count);
        let (x, dy) = (numbers(rows * cols, seed), numbers(rows * cols, seed ^ 1));
        let gamma = numbers(cols, seed ^ 2);
        let beta = numbers(cols, seed ^ 3);
        let gamma = (affine & 1 > 0).then_some(&gamma[..]);
        let beta = (affine & 2 > 0).then_some(&beta[..]);
        for isa in Isa::available() {
            let (mut y, mut mean, mut rstd) = (vec![9.0; x.len()], vec![9.0; rows], vec![9.0; rows]);
            layer_norm(isa, &x, gamma, beta, 1e-5, units, &mut y, &mut mean, &mut rstd);
            let mut dx = vec![9.0; x.len()];
            layer_norm_grad(isa, &x, &dy, gamma, &mean, &rstd, units, &mut dx);
            for r in 0..rows {
                let at = r * cols..(r + 1) * cols;
                let (want, m, d) = norm_slow(&x[at.clone()], gamma, beta, true, units);
                assert_same(&y[at.clone()], &want, &format!("layer norm on {isa:?}"));
                assert_same(&[mean[r], rstd[r]], &[m, d], "mean and rstd");
                let want = grad_slow(&x[at.clone()], &dy[at.clone()], gamma, Some(m), d, units);
                assert_same(&dx[at.clone()], &want, &format!("gradient of layer norm on {isa:?}"));
            }
            rms_norm(isa, &x, gamma, 1e-5, units, &mut y, &mut rstd);
            rms_norm_grad(isa, &x, &dy, gamma, &rstd, units, &mut dx);
            for (r, rstd) in rstd.iter().enumerate() {
                let at = r * cols..(r + 1) * cols;
                let (want, _, d) = norm_slow(&x[at.clone()], gamma, None, false, units);
                assert_same(&y[at.clone()], &want, &format!("RMS norm on {isa:?}"));
                assert_same(&[*rstd], &[d], "rstd");
                let want = grad_slow(&x[at.clone()], &dy[at.clone()], gamma, None, d, units);
                assert_same(&dx[at.clone()], &want, &format!("gradient of RMS norm on {isa:?}"));
            }
        }
    }

    /// Any cut of the tokens and of the columns gives the sums that the definition gives.
    #[test]
    fn parameter_gradients_equal_the_definition(
        count in 1usize..7, len in 1usize..150, cols in 1usize..40, cut in 0usize..7, col_cut in 0usize..40, missing in 0usize..3,
        centred: bool, seed: u32,
    ) {
        let units = Units { count, len };
        let rows = (count * len).saturating_sub(missing.min(len - 1));
        let (x, dy) = (numbers(rows * cols, seed), numbers(rows * cols, seed ^ 1));
        let (mean, rstd) = (numbers(rows, seed ^ 2), numbers(rows, seed ^ 3));
        let mean = centred.then_some(&mean[..]);
        let normal = |r: usize, c: usize| (x[r * cols + c] - mean.map_or(0.0, |m| m[r])) * rstd[r];
        let dgamma: Vec<f32> = (0..cols)
            .map(|c| over(units, |r, acc| if r < rows { dy[r * cols + c].mul_add(normal(r, c), acc) } else { acc }))
            .collect();
        let dbeta: Vec<f32> = (0..cols)
            .map(|c| over(units, |r, acc| if r < rows { acc + dy[r * cols + c] } else { acc }))
            .collect();
        let (cut, col_cut) = (cut % (count + 1), col_cut % (cols + 1));
        for isa in Isa::available() {
            let mut scratch = Scratch::new(isa);
            let slots = 10;
            let (mut g, mut b) = (vec![9.0; slots * cols], vec![9.0; slots * cols]);
            for (from, to) in [(0, cut), (cut, count)] {
                let share = Share { units, open: 0, from, to };
                let at = (from * len).min(rows)..(to * len).min(rows);
                let elements = at.start * cols..at.end * cols;
                for (col_from, col_to) in [(col_cut, cols), (0, col_cut)] {
                    norm_param_grad(
                        isa, &share, (&x[elements.clone()]).into(), (&dy[elements.clone()]).into(),
                        mean.map(|m| &m[at.clone()]),
                        &rstd[at.clone()], cols, col_from, col_to, Some(Out::new(&mut g)), Some(Out::new(&mut b)), cols,
                        &mut scratch,
                    );
                }
            }
            assert_same(&g[..cols], &dgamma, &format!("dgamma on {isa:?}"));
            assert_same(&b[..cols], &dbeta, &format!("dbeta on {isa:?}"));
        }
    }
}

/// The canonical sum over rows: `add(row, acc)` in each leaf from +0, then the tree. The last addition of +0.0 removes −0.
fn over(units: Units, add: impl Fn(usize, f32) -> f32) -> f32 {
    fn halves(from: usize, to: usize, leaf: &dyn Fn(usize, usize) -> f32) -> f32 {
        let len = to - from;
        if len.is_multiple_of(2) && len / 2 >= 64 {
            halves(from, from + len / 2, leaf) + halves(from + len / 2, to, leaf)
        } else {
            leaf(from, to)
        }
    }
    let leaf = |from: usize, to: usize| (from..to).fold(0.0, |acc, r| add(r, acc));
    let sums: Vec<f32> = (0..units.count)
        .map(|u| halves(u * units.len, (u + 1) * units.len, &leaf))
        .collect();
    unisono_kernels::order::sum(
        &sums,
        Units {
            count: units.count,
            len: 1,
        },
    ) + 0.0
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: whole-row sums from left to right differ.
    let x = numbers(384, 5);
    let (y, ..) = norm_slow(&x, None, None, true, Units::whole(384));
    let mean = x.iter().fold(0.0, |a, b| a + b) / 384.0;
    let squares = x.iter().fold(0.0f32, |acc, x| (x - mean).mul_add(x - mean, acc));
    let rstd = 1.0 / (squares / 384.0 + 1e-5).sqrt();
    assert!(x.iter().zip(&y).any(|(x, y)| (x - mean) * rstd != *y));
}

#[test]
fn gradients_agree_with_finite_differences() {
    let cols = 20;
    let (x, dy, gamma, beta) = (numbers(cols, 1), numbers(cols, 2), numbers(cols, 3), numbers(cols, 4));
    for centred in [false, true] {
        let objective = |x: &[f64]| {
            let n = cols as f64;
            let mean = if centred { x.iter().sum::<f64>() / n } else { 0.0 };
            let rstd = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
            (0..cols)
                .map(|i| ((x[i] - mean) * rstd * f64::from(gamma[i]) + f64::from(beta[i])) * f64::from(dy[i]))
                .sum::<f64>()
        };
        let units = Units::whole(cols);
        let (mut y, mut mean, mut rstd, mut dx) = (vec![0.0; cols], [0.0], [0.0], vec![0.0; cols]);
        if centred {
            layer_norm(
                Isa::detect(),
                &x,
                Some(&gamma),
                Some(&beta),
                1e-5,
                units,
                &mut y,
                &mut mean,
                &mut rstd,
            );
            layer_norm_grad(Isa::detect(), &x, &dy, Some(&gamma), &mean, &rstd, units, &mut dx);
        } else {
            rms_norm(Isa::detect(), &x, Some(&gamma), 1e-5, units, &mut y, &mut rstd);
            rms_norm_grad(Isa::detect(), &x, &dy, Some(&gamma), &rstd, units, &mut dx);
        }
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        for i in 0..cols {
            let moved = |h: f64| {
                let mut x = wide.clone();
                x[i] += h;
                objective(&x)
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (f64::from(dx[i]) - slope).abs() < 1e-5,
                "{centred} {i}: {} {slope}",
                dx[i]
            );
        }
    }
}
