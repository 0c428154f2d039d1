//! Elementwise kernels.

use super::{assert_same, numbers};
use unisono_kernels::elementwise::{
    Binary, Unary, binary, binary_scalar, fill, scalar_binary, scale, unary, unary_grad,
};
use unisono_kernels::isa::Isa;
use unisono_kernels::math;

const SPECIAL: [f32; 10] = [
    0.0,
    -0.0,
    1e-40,
    -1e-45,
    1e30,
    -1e30,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MIN_POSITIVE,
];

fn sigmoid(x: f32) -> f32 {
    let z = math::exp(-x.abs());
    if x < 0.0 { z / (1.0 + z) } else { 1.0 / (1.0 + z) }
}

fn normal_cdf(x: f32) -> f32 {
    (1.0 + math::erf(x * std::f32::consts::FRAC_1_SQRT_2)) * 0.5
}

fn inner(x: f32) -> f32 {
    0.797_884_6 * (x * 0.044_715f32.mul_add(x * x, 1.0))
}

fn inner_tanh(x: f32) -> f32 {
    math::tanh(inner(x))
}

fn gelu_tanh(x: f32) -> f32 {
    let y = -2.0 * inner(x);
    let e = if y > 88.38 {
        f32::INFINITY
    } else {
        math::exp(y.max(-87.0))
    };
    x / (1.0 + e)
}

/// The slow twin of `unary`.
fn unary_slow(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Neg => -x,
        Unary::Relu if 0.0 > x => 0.0,
        Unary::Relu => x,
        Unary::Gelu => x * normal_cdf(x),
        Unary::GeluTanh => gelu_tanh(x),
        Unary::Silu => x * sigmoid(x),
        Unary::Exp => math::exp(x),
        Unary::Ln => math::ln(x),
        Unary::Tanh => math::tanh(x),
        Unary::Sigmoid => sigmoid(x),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Square => x * x,
        Unary::Abs => x.abs(),
    }
}

/// The slow twin of `unary_grad`.
fn grad_slow(op: Unary, x: f32, d: f32) -> f32 {
    match op {
        Unary::Neg => -d,
        Unary::Relu if x <= 0.0 => 0.0,
        Unary::Relu => d,
        Unary::Gelu => {
            let scale = 0.5 * std::f32::consts::FRAC_1_SQRT_2 * std::f32::consts::FRAC_2_SQRT_PI;
            d * x.mul_add(math::exp(x * x * -0.5) * scale, normal_cdf(x))
        }
        Unary::GeluTanh => {
            let t = inner_tanh(x);
            let slope = 0.797_884_6 * (3.0f32 * 0.044_715).mul_add(x * x, 1.0);
            d * 0.5f32.mul_add(1.0 + t, 0.5 * x * (-t).mul_add(t, 1.0) * slope)
        }
        Unary::Silu => d * (sigmoid(x) * x.mul_add(1.0 - sigmoid(x), 1.0)),
        Unary::Exp => d * math::exp(x),
        Unary::Ln => d / x,
        Unary::Tanh => d * (-math::tanh(x)).mul_add(math::tanh(x), 1.0),
        Unary::Sigmoid => d * (sigmoid(x) * (1.0 - sigmoid(x))),
        Unary::Sqrt => d * 0.5 / x.sqrt(),
        Unary::Rsqrt => {
            let r = 1.0 / x.sqrt();
            d * -0.5 * (r * r * r)
        }
        Unary::Square => d * (x + x),
        Unary::Abs if x == 0.0 => 0.0,
        Unary::Abs if x < 0.0 => -d,
        Unary::Abs => d,
    }
}

fn binary_slow(op: Binary, a: f32, b: f32) -> f32 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max if a > b || a.is_nan() => a,
        Binary::Min if a < b || a.is_nan() => a,
        Binary::Max | Binary::Min => b,
    }
}

#[test]
fn equal_their_slow_twins() {
    for n in [0, 1, 15, 16, 17, 61] {
        let mut x: Vec<f32> = numbers(n, 1).iter().map(|x| x * 4.0).collect();
        let mut dy = numbers(n, 2);
        if n > 20 {
            x[..10].copy_from_slice(&SPECIAL);
            x[40..50].copy_from_slice(&SPECIAL);
            dy[41..51].copy_from_slice(&SPECIAL);
        }
        let mut y = vec![9.0; n];
        for isa in Isa::available() {
            for op in Unary::ALL {
                let want: Vec<f32> = x.iter().map(|x| unary_slow(op, *x)).collect();
                unary(isa, op, &x, &mut y);
                assert_same(&y, &want, &format!("{op:?} on {isa:?}"));
                let want: Vec<f32> = x.iter().zip(&dy).map(|(x, d)| grad_slow(op, *x, *d)).collect();
                unary_grad(isa, op, &x, &dy, &mut y);
                assert_same(&y, &want, &format!("gradient of {op:?} on {isa:?}"));
            }
            for op in Binary::ALL {
                let want: Vec<f32> = x.iter().zip(&dy).map(|(a, b)| binary_slow(op, *a, *b)).collect();
                binary(isa, op, &x, &dy, &mut y);
                assert_same(&y, &want, &format!("{op:?} on {isa:?}"));
                for c in [0.7, -0.0, f32::NAN] {
                    let want: Vec<f32> = x.iter().map(|a| binary_slow(op, *a, c)).collect();
                    binary_scalar(isa, op, &x, c, &mut y);
                    assert_same(&y, &want, &format!("{op:?} with {c} on {isa:?}"));
                    let want: Vec<f32> = x.iter().map(|b| binary_slow(op, c, *b)).collect();
                    scalar_binary(isa, op, c, &x, &mut y);
                    assert_same(&y, &want, &format!("{c} {op:?} on {isa:?}"));
                }
            }
            scale(isa, &x, 0.3, &mut y);
            let want: Vec<f32> = x.iter().map(|x| x * 0.3).collect();
            assert_same(&y, &want, "scale");
        }
        fill(&mut y, 2.5);
        assert_same(&y, &vec![2.5; n], "fill");
    }
}

/// The functions in f64, for finite differences.
fn reference(op: Unary, x: f64) -> f64 {
    let tanh_form =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
    match op {
        Unary::Neg => -x,
        Unary::Relu => x.max(0.0),
        Unary::Gelu => {
            // Φ by Simpson's rule from 0.
            let n = 2000;
            let h = x / f64::from(n);
            let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
            let inner: f64 = (1..n)
                .map(|i| density(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 })
                .sum();
            x * (0.5 + h / 3.0 * (density(0.0) + inner + density(x)))
        }
        Unary::GeluTanh => tanh_form(x),
        Unary::Silu => x / (1.0 + (-x).exp()),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Square => x * x,
        Unary::Abs => x.abs(),
    }
}

#[test]
fn values_and_slopes_agree_with_f64() {
    for op in Unary::ALL {
        for step in -30..=30 {
            let x = step as f32 * 0.17 + 0.05;
            if x <= 0.0 && matches!(op, Unary::Ln | Unary::Sqrt | Unary::Rsqrt) {
                continue;
            }
            let (mut y, mut dx) = ([0.0], [0.0]);
            unary(Isa::detect(), op, &[x], &mut y);
            unary_grad(Isa::detect(), op, &[x], &[1.0], &mut dx);
            let (x, h) = (f64::from(x), 1e-5);
            let value = reference(op, x);
            let slope = (reference(op, x + h) - reference(op, x - h)) / (2.0 * h);
            assert!(
                (f64::from(y[0]) - value).abs() < 1e-6 * (1.0 + value.abs()),
                "{op:?} at {x}: {} {value}",
                y[0]
            );
            assert!(
                (f64::from(dx[0]) - slope).abs() < 2e-6 * (1.0 + slope.abs()),
                "{op:?}' at {x}: {} {slope}",
                dx[0]
            );
        }
    }
}

#[test]
#[should_panic(expected = "bug in unisono")]
fn lengths_must_agree() {
    unary(Isa::detect(), Unary::Exp, &[1.0], &mut [0.0, 0.0]);
}

/// Also far below 0, where ½ x (1 + tanh u) has no right digit left.
#[test]
fn gelu_by_tanh_is_accurate_everywhere() {
    let mut worst = 0.0f64;
    for step in -10_000..=20_000 {
        let x = step as f32 * 1e-3;
        let u = (2.0 / std::f64::consts::PI).sqrt() * (f64::from(x) + 0.044715 * f64::from(x).powi(3));
        let exact = f64::from(x) / (1.0 + (-2.0 * u).exp());
        let mut y = [0.0f32];
        unary(Isa::detect(), Unary::GeluTanh, &[x], &mut y);
        worst = worst.max((f64::from(y[0]) - exact).abs() / exact.abs().max(f64::MIN_POSITIVE));
    }
    // Far below 0 the rounding of the exponent counts, up to 88 times.
    assert!(worst < 2e-5, "{worst}");
    // From about −10.05 on what is left is below 10⁻³⁷: −0.
    let mut y = [1.0f32; 2];
    unary(Isa::detect(), Unary::GeluTanh, &[-10.1, -1e30], &mut y);
    assert_eq!(y.map(f32::to_bits), [(-0.0f32).to_bits(); 2]);
}
