//! Softmax and log-softmax.

use super::{assert_same, numbers, order_of};
use proptest::prelude::*;
use unisono_kernels::isa::Isa;
use unisono_kernels::math;
use unisono_kernels::order::Units;
use unisono_kernels::softmax::{log_softmax, log_softmax_grad, softmax, softmax_grad};

fn largest(x: &[f32]) -> f32 {
    x.iter().fold(f32::NEG_INFINITY, |m, x| if *x > m { *x } else { m })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn equal_their_slow_twins(rows in 0usize..4, cols in 1usize..300, count in 1usize..7, spread in 0.1f32..60.0, seed: u32) {
        let units = Units::of(cols, count);
        let mut x: Vec<f32> = numbers(rows * cols, seed).iter().map(|x| x * spread).collect();
        if rows > 2 {
            x[cols] = f32::NEG_INFINITY;
            x[2 * cols] = f32::NAN;
        }
        let dy = numbers(rows * cols, seed ^ 1);
        for isa in Isa::available() {
            let [mut y, mut dx, mut log, mut dlog] = std::array::from_fn(|_| vec![9.0; x.len()]);
            softmax(isa, &x, cols, units, &mut y);
            softmax_grad(isa, &y, &dy, cols, units, &mut dx);
            log_softmax(isa, &x, cols, units, &mut log);
            log_softmax_grad(isa, &log, &dy, cols, units, &mut dlog);
            for r in 0..rows {
                let at = r * cols..(r + 1) * cols;
                let (x, dy) = (&x[at.clone()], &dy[at.clone()]);
                let m = largest(x);
                let e: Vec<f32> = x.iter().map(|x| math::exp(x - m)).collect();
                let sum = order_of(cols, units, |i, acc| acc + e[i]);
                let want: Vec<f32> = e.iter().map(|e| e * (1.0 / sum)).collect();
                assert_same(&y[at.clone()], &want, &format!("softmax on {isa:?}"));
                let dot = order_of(cols, units, |i, acc| want[i].mul_add(dy[i], acc));
                let want: Vec<f32> = (0..cols).map(|i| want[i] * (dy[i] - dot)).collect();
                assert_same(&dx[at.clone()], &want, &format!("gradient of softmax on {isa:?}"));
                let want: Vec<f32> = x.iter().map(|x| (x - m) - math::ln(sum)).collect();
                assert_same(&log[at.clone()], &want, &format!("log-softmax on {isa:?}"));
                let total = order_of(cols, units, |i, acc| acc + dy[i]);
                let want: Vec<f32> = (0..cols).map(|i| (-math::exp(want[i])).mul_add(total, dy[i])).collect();
                assert_same(&dlog[at], &want, &format!("gradient of log-softmax on {isa:?}"));
            }
        }
    }
}

#[test]
fn agrees_with_f64() {
    let x: Vec<f32> = numbers(65, 3).iter().map(|x| x * 8.0).collect();
    let dy = numbers(65, 4);
    let units = Units::whole(65);
    let [mut y, mut dx, mut log, mut dlog] = std::array::from_fn(|_| vec![0.0; 65]);
    softmax(Isa::detect(), &x, 65, units, &mut y);
    softmax_grad(Isa::detect(), &y, &dy, 65, units, &mut dx);
    log_softmax(Isa::detect(), &x, 65, units, &mut log);
    log_softmax_grad(Isa::detect(), &log, &dy, 65, units, &mut dlog);
    let sum: f64 = x.iter().map(|x| f64::from(*x).exp()).sum();
    let p: Vec<f64> = x.iter().map(|x| f64::from(*x).exp() / sum).collect();
    let dot: f64 = p.iter().zip(&dy).map(|(p, d)| p * f64::from(*d)).sum();
    let total: f64 = dy.iter().map(|d| f64::from(*d)).sum();
    for i in 0..65 {
        let d = f64::from(dy[i]);
        assert!((f64::from(y[i]) - p[i]).abs() < 1e-6);
        assert!((f64::from(dx[i]) - p[i] * (d - dot)).abs() < 1e-6);
        assert!((f64::from(log[i]) - p[i].ln()).abs() < 1e-5);
        assert!((f64::from(dlog[i]) - (d - p[i] * total)).abs() < 1e-5);
    }
}

#[test]
fn a_sum_from_left_to_right_gives_other_bits() {
    // The broken control.
    let x = numbers(300, 8);
    let m = largest(&x);
    let e: Vec<f32> = x.iter().map(|x| math::exp(x - m)).collect();
    let running = e.iter().fold(0.0, |acc, e| acc + e);
    assert_ne!(running, order_of(300, Units::whole(300), |i, acc| acc + e[i]));
}
