//! Dropout and random arrays.

use super::{assert_same, numbers};
use proptest::prelude::*;
use unisono_kernels::dropout::{dropout, dropout_add, threshold};
use unisono_kernels::isa::Isa;
use unisono_kernels::philox::Stream;
use unisono_kernels::random::{fill_normal, fill_normal_on, fill_uniform, fill_uniform_on};

/// Element numbers around which the block counter's low word wraps.
const WRAP: u64 = 1 << 34;

fn dropout_slow(stream: &Stream, e: u64, p: f32, x: f32) -> f32 {
    if stream.word(e) >= threshold(p) {
        x * (1.0 / (1.0 - p))
    } else {
        0.0
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn dropout_equals_its_slow_twin(first in 0u64..1000, far: bool, n in 0usize..300, p in 0.0f32..0.99, seed: u64) {
        let first = if far { WRAP - 500 + first } else { first };
        let stream = Stream { seed, site: 3, step: 7 };
        let (x, residual) = (numbers(n, 1), numbers(n, 2));
        let kept: Vec<f32> = (0..n).map(|i| dropout_slow(&stream, first + i as u64, p, x[i])).collect();
        let added: Vec<f32> = kept.iter().zip(&residual).map(|(k, r)| r + k).collect();
        for isa in Isa::available() {
            let mut y = vec![9.0; n];
            dropout(isa, &stream, first, p, &x, &mut y);
            assert_same(&y, &kept, &format!("dropout on {isa:?}"));
            dropout_add(isa, &stream, first, p, &x, &residual, &mut y);
            assert_same(&y, &added, &format!("dropout_add on {isa:?}"));
        }
    }

    #[test]
    fn arrays_do_not_depend_on_the_cut(first in 0u64..1000, far: bool, n in 0usize..300, cut in 0usize..300, seed: u64) {
        let first = if far { WRAP - 500 + first } else { first };
        let stream = Stream { seed, site: 1, step: 0 };
        let cut = cut.min(n);
        let (mut normal, mut uniform) = (vec![9.0; n], vec![9.0; n]);
        fill_normal(&stream, first, 0.5, 0.02, &mut normal);
        fill_uniform(&stream, first, -2.0, 3.0, &mut uniform);
        for isa in Isa::available() {
            let (mut a, mut b) = (vec![9.0; n], vec![9.0; n]);
            for (from, to) in [(cut, n), (0, cut)] {
                fill_normal_on(isa, &stream, first + from as u64, 0.5, 0.02, &mut a[from..to]);
                fill_uniform_on(isa, &stream, first + from as u64, -2.0, 3.0, &mut b[from..to]);
            }
            assert_same(&a, &normal, &format!("normal on {isa:?}"));
            assert_same(&b, &uniform, &format!("uniform on {isa:?}"));
        }
        let slow: Vec<f32> = (0..n).map(|i| stream.uniform(first + i as u64).mul_add(5.0, -2.0)).collect();
        assert_same(&uniform, &slow, "uniform");
    }
}

#[test]
fn drops_as_often_as_asked() {
    let stream = Stream {
        seed: 5,
        site: 0,
        step: 1,
    };
    let n = 200_000;
    let x = vec![1.0; n];
    let mut y = vec![0.0; n];
    for p in [0.0, 0.1, 0.5, 0.9] {
        dropout(Isa::detect(), &stream, 0, p, &x, &mut y);
        let dropped = y.iter().filter(|v| **v == 0.0).count() as f64 / n as f64;
        assert!((dropped - f64::from(p)).abs() < 0.005, "{p}: {dropped}");
        assert!(y.iter().all(|v| *v == 0.0 || *v == 1.0 / (1.0 - p)));
        if p == 0.0 {
            assert_eq!(dropped, 0.0);
        }
    }
}

#[test]
fn another_site_or_shifted_elements_drop_others() {
    // The broken controls: a mask that moved with the shard, or was shared by sites, would be seen.
    let stream = Stream {
        seed: 5,
        site: 0,
        step: 1,
    };
    let x = numbers(256, 1);
    let [mut a, mut b, mut c] = std::array::from_fn(|_| vec![0.0; 256]);
    dropout(Isa::detect(), &stream, 0, 0.5, &x, &mut a);
    dropout(Isa::detect(), &stream, 256, 0.5, &x, &mut b);
    dropout(Isa::detect(), &Stream { site: 1, ..stream }, 0, 0.5, &x, &mut c);
    assert!(a != b && a != c && b != c);
}

/// Φ⁻¹ by bisection on Φ, which comes from erfc's continued fraction or series; to about 1e-12 relative.
fn inverse_normal(u: f64) -> f64 {
    let upper_tail = |x: f64| {
        // P(Z > x) for x ≥ 0.
        if x < 2.5 {
            let (mut term, mut sum, mut k) = (x, x, 1.0);
            while term > 1e-18 {
                term *= x * x / (2.0 * k + 1.0);
                sum += term;
                k += 1.0;
            }
            0.5 - sum * (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt()
        } else {
            let fraction = (1..400).rev().fold(0.0, |f, k| f64::from(k) / (x + f));
            (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() / (x + fraction)
        }
    };
    let tail = u.min(1.0 - u);
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if upper_tail(middle) > tail {
            low = middle
        } else {
            high = middle
        }
    }
    if u < 0.5 { -low } else { low }
}

#[test]
fn normal_numbers_are_the_inverse_of_their_words() {
    let stream = Stream {
        seed: 77,
        site: 0,
        step: 0,
    };
    let n = 1_000_000;
    let mut y = vec![0.0; n];
    fill_normal(&stream, 0, 0.0, 1.0, &mut y);
    let mean = y.iter().map(|v| f64::from(*v)).sum::<f64>() / n as f64;
    let variance = y.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / n as f64;
    let fourth = y.iter().map(|v| f64::from(*v).powi(4)).sum::<f64>() / n as f64;
    assert!(mean.abs() < 3e-3 && (variance - 1.0).abs() < 5e-3 && (fourth - 3.0).abs() < 0.04);
    // The extremes and a sample, against the definition.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| y[*a].total_cmp(&y[*b]));
    let sample = (0..n)
        .step_by(997)
        .chain(order[..300].iter().copied())
        .chain(order[n - 300..].iter().copied());
    let mut worst: f64 = 0.0;
    for e in sample {
        let want = inverse_normal((f64::from(stream.word(e as u64)) + 0.5) / 4_294_967_296.0);
        worst = worst.max((f64::from(y[e]) - want).abs() / want.abs().max(1e-3));
    }
    println!("normal: {worst:e} relative");
    assert!(worst < 5e-7, "{worst:e}");
}
