//! AdamW and SGD.

use super::{assert_same, numbers};
use unisono_kernels::isa::Isa;
use unisono_kernels::math::powi;
use unisono_kernels::optimizer::{AdamW, Sgd, adamw, sgd};

fn adam(t: u64) -> AdamW {
    AdamW {
        lr: 3e-4,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        bias_correction1: 1.0 - powi(0.9, t),
        bias_correction2: 1.0 - powi(0.95, t),
        grad_scale: 0.7,
    }
}

/// The slow twin: one parameter.
fn adamw_slow(h: &AdamW, p: &mut f32, m: &mut f32, v: &mut f32, g: f32) {
    let g = g * h.grad_scale;
    *m = ((1.0 - h.beta1) as f32).mul_add(g - *m, *m);
    *v = ((1.0 - h.beta2) as f32 * g).mul_add(g, h.beta2 as f32 * *v);
    let denominator = v.sqrt().mul_add((1.0 / h.bias_correction2.sqrt()) as f32, h.eps as f32);
    let kept = (1.0 - h.lr * h.weight_decay) as f32 * *p;
    *p = ((-h.lr / h.bias_correction1) as f32).mul_add(*m / denominator, kept);
}

/// The slow twin: one parameter.
fn sgd_slow(h: &Sgd, p: &mut f32, b: Option<&mut f32>, g: f32) {
    let g = (h.weight_decay as f32).mul_add(*p, g * h.grad_scale);
    let direction = match b {
        None => g,
        Some(b) => {
            *b = if h.first_step {
                g
            } else {
                ((1.0 - h.dampening) as f32).mul_add(g, h.momentum as f32 * *b)
            };
            if h.nesterov {
                (h.momentum as f32).mul_add(*b, g)
            } else {
                *b
            }
        }
    };
    *p = (-h.lr as f32).mul_add(direction, *p);
}

#[test]
fn adamw_equals_its_slow_twin_in_any_cut() {
    for n in [0, 1, 16, 53] {
        for isa in Isa::available() {
            let (mut p, mut m, mut v) = (numbers(n, 1), vec![0.0; n], vec![0.0; n]);
            let (mut p2, mut m2, mut v2) = (p.clone(), m.clone(), v.clone());
            for t in 1..5 {
                let g = numbers(n, 10 + t as u32);
                for (from, to) in [(n / 3, n), (0, n / 3)] {
                    adamw(
                        isa,
                        &adam(t),
                        &mut p[from..to],
                        &mut m[from..to],
                        &mut v[from..to],
                        &g[from..to],
                        None,
                    );
                }
                for i in 0..n {
                    adamw_slow(&adam(t), &mut p2[i], &mut m2[i], &mut v2[i], g[i]);
                }
            }
            assert_same(&p, &p2, &format!("AdamW on {isa:?}"));
            assert_same(&m, &m2, "first moments");
            assert_same(&v, &v2, "second moments");
        }
    }
}

#[test]
fn adamw_follows_the_formula_in_f64() {
    let n = 40;
    let (mut p, mut m, mut v) = (numbers(n, 1), vec![0.0; n], vec![0.0; n]);
    let (mut q, mut a, mut b): (Vec<f64>, Vec<f64>, Vec<f64>) =
        (p.iter().map(|x| f64::from(*x)).collect(), vec![0.0; n], vec![0.0; n]);
    for t in 1..20u64 {
        let (g, h) = (numbers(n, t as u32), adam(t));
        adamw(Isa::detect(), &h, &mut p, &mut m, &mut v, &g, None);
        for i in 0..n {
            let g = f64::from(g[i]) * f64::from(h.grad_scale);
            q[i] *= 1.0 - h.lr * h.weight_decay;
            a[i] = h.beta1 * a[i] + (1.0 - h.beta1) * g;
            b[i] = h.beta2 * b[i] + (1.0 - h.beta2) * g * g;
            q[i] -= h.lr / h.bias_correction1 * a[i] / (b[i].sqrt() / h.bias_correction2.sqrt() + h.eps);
        }
    }
    for i in 0..n {
        assert!((f64::from(p[i]) - q[i]).abs() < 2e-6, "{} {}", p[i], q[i]);
    }
}

#[test]
fn sgd_equals_its_slow_twin() {
    for n in [0, 1, 16, 53] {
        for isa in Isa::available() {
            for (nesterov, with_momentum, dampening) in [(false, false, 0.0), (false, true, 0.3), (true, true, 0.0)] {
                let (mut p, mut b) = (numbers(n, 1), vec![f32::NAN; n]);
                let (mut p2, mut b2) = (p.clone(), b.clone());
                for t in 0..4 {
                    let h = Sgd {
                        lr: 0.05,
                        momentum: 0.9,
                        dampening,
                        weight_decay: 0.01,
                        nesterov,
                        grad_scale: 0.5,
                        first_step: t == 0,
                    };
                    let g = numbers(n, 10 + t);
                    sgd(isa, &h, &mut p, with_momentum.then_some(&mut b[..]), &g, None);
                    for i in 0..n {
                        sgd_slow(&h, &mut p2[i], with_momentum.then_some(&mut b2[i]), g[i]);
                    }
                }
                assert_same(&p, &p2, &format!("SGD on {isa:?}"));
                assert_same(&b, &b2, "momentum");
                assert!(p.iter().all(|p| p.is_finite()));
            }
        }
    }
}
