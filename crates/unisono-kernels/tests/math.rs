//! The mathematical functions against f64 ones of the platform (used here only), and equal on each instruction set.

use unisono_kernels::isa::Isa;
use unisono_kernels::math::lanes;
use unisono_kernels::simd::{LANES, Simd, dispatch};

/// Error of `got` in units in the last place of the f32 nearest to `want`.
fn ulps(got: f32, want: f64) -> f64 {
    let nearest = want as f32;
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    if nearest.is_infinite() || got.is_infinite() {
        // Just above the largest float both answers are within a unit.
        return if nearest == got { 0.0 } else { f64::INFINITY };
    }
    let bits = nearest.abs().to_bits().max(0x0080_0000);
    let unit = f64::from(f32::from_bits((bits & 0x7F80_0000) | 1)) - f64::from(f32::from_bits(bits & 0x7F80_0000));
    (f64::from(got) - want).abs() / unit
}

const SPECIAL: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-45,
    -1e-45,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    3e-39,
    0.99999994,
    1.0000001,
];

/// Every float of 256 bits patterns apart over the whole range, and denser runs of each binade in `from..to`.
fn inputs(dense: std::ops::Range<f32>) -> Vec<f32> {
    let mut x: Vec<f32> = SPECIAL.to_vec();
    x.extend((0..=u32::MAX / 12289).map(|i| f32::from_bits(i * 12289)));
    let count = 400_000;
    x.extend((0..count).map(|i| dense.start + (dense.end - dense.start) * (i as f32 / count as f32)));
    x.resize(x.len().next_multiple_of(LANES), 0.5);
    x
}

/// Checks a lane function: the largest error on the best instruction set, and the same bits on the others.
macro_rules! check {
    ($name:literal, $f:path, $reference:expr, $dense:expr, $bound:expr) => {{
        #[inline(always)]
        fn run<S: Simd>(s: S, x: &[f32], y: &mut [f32]) {
            for (x, y) in x.chunks_exact(LANES).zip(y.chunks_exact_mut(LANES)) {
                s.write(y, $f(s, s.read(x)));
            }
        }
        let input = inputs($dense);
        let mut first: Vec<f32> = Vec::new();
        for isa in Isa::available().into_iter().rev() {
            let mut output = vec![0.0f32; input.len()];
            // Portable code without hardware fma is slow: a sample of it will do.
            let step = if isa == Isa::Portable { 8 } else { 1 };
            for (x, y) in input.chunks(64 * LANES).zip(output.chunks_mut(64 * LANES)).step_by(step) {
                dispatch!(isa, run(x: &[f32], y: &mut [f32]));
            }
            if first.is_empty() {
                let reference: fn(f64) -> f64 = $reference;
                let (error, at) = input.iter().zip(&output).fold((0.0, 0.0), |worst: (f64, f32), (x, y)| {
                    let error = ulps(*y, reference(f64::from(*x)));
                    if error > worst.0 { (error, *x) } else { worst }
                });
                println!("{}: {error:.3} ulp at {at:e}", $name);
                assert!(error <= $bound, "{}: {error} ulp at {at:e}", $name);
                first = output;
            } else {
                for i in (0..input.len()).filter(|i| i / (64 * LANES) % step == 0) {
                    assert!(
                        output[i].to_bits() == first[i].to_bits() || output[i].is_nan() && first[i].is_nan(),
                        "{} on {isa:?} at {:e}: {:e} and {:e}", $name, input[i], output[i], first[i]
                    );
                }
            }
        }
    }};
}

#[test]
fn exp() {
    check!("exp", lanes::exp, f64::exp, -105.0..90.0, 1.0);
    assert_eq!(unisono_kernels::math::exp(0.0), 1.0);
    assert_eq!(unisono_kernels::math::exp(f32::NEG_INFINITY).to_bits(), 0);
    assert_eq!(unisono_kernels::math::exp(-1e30).to_bits(), 0);
}

#[test]
fn ln() {
    check!("ln", lanes::ln, f64::ln, 0.4..3.0, 1.0);
    assert_eq!(unisono_kernels::math::ln(1.0).to_bits(), 0);
    assert_eq!(unisono_kernels::math::ln(-0.0), f32::NEG_INFINITY);
}

#[test]
fn tanh() {
    check!("tanh", lanes::tanh, f64::tanh, -10.0..10.0, 1.3);
    assert_eq!(unisono_kernels::math::tanh(-0.0).to_bits(), (-0.0f32).to_bits());
}

#[test]
fn erf() {
    check!("erf", lanes::erf, erf_by_series, -4.5..4.5, 1.0);
    assert_eq!(unisono_kernels::math::erf(-0.0).to_bits(), (-0.0f32).to_bits());
}

#[test]
fn sin_and_cos() {
    check!("sin", lanes::sin, f64::sin, -10.0..10.0, 1.5);
    check!("cos", lanes::cos, f64::cos, -10.0..10.0, 1.5);
    check!("sin", lanes::sin, f64::sin, -131071.0..131071.0, 1.5);
    check!("cos", lanes::cos, f64::cos, -131071.0..131071.0, 1.5);
    // Where the reduction goes by integers: angles of positions beyond 2¹⁷.
    check!("sin", lanes::sin, f64::sin, 131071.0..4e6, 1.5);
    check!("cos", lanes::cos, f64::cos, 131071.0..4e6, 1.5);
    assert_eq!(unisono_kernels::math::sin(-0.0).to_bits(), (-0.0f32).to_bits());
    assert_eq!(unisono_kernels::math::cos(-0.0), 1.0);
}

#[test]
fn rsqrt() {
    check!("rsqrt", lanes::rsqrt, |x| 1.0 / x.sqrt(), 0.5..4.0, 1.5);
}

/// The error function to about 1e-15: Taylor's series below 3, a continued fraction of erfc above.
fn erf_by_series(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() {
        return x;
    }
    let value = if a < 3.0 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while n < 80.0 {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        let mut fraction = 0.0;
        for k in (1..60).rev() {
            fraction = f64::from(k) / 2.0 / (a + fraction);
        }
        1.0 - (-a * a).exp() / (std::f64::consts::PI.sqrt() * (a + fraction))
    };
    value.copysign(x)
}

#[test]
fn powers() {
    use unisono_kernels::math::{powf, powi};
    let mut worst = (0.0, 0.0, 0.0);
    let mut state = 99u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        state ^ state >> 16
    };
    for i in 0..400_000 {
        let x = f32::from_bits(next());
        // Exponents that keep the result in range, half of them integers, and any at all.
        let spread = (next() >> 8) as f32 / 16_777_216.0 - 0.5;
        let y = match i % 4 {
            0 => f32::from_bits(next()),
            1 => (spread * 60.0).round(),
            2 => spread * 300.0 / (f64::from(x.abs()).log2().abs().max(1e-3) as f32),
            _ => spread * 4.0,
        };
        let error = ulps(powf(x, y), f64::from(x).powf(f64::from(y)));
        if error > worst.0 {
            worst = (error, x, y);
        }
    }
    println!("powf: {worst:?}");
    assert!(worst.0 <= 0.51, "{worst:?}");
    for x in SPECIAL {
        for y in SPECIAL
            .into_iter()
            .chain([2.0, 3.0, -2.0, -3.0, 0.5, 16777217.0, 8388609.0])
        {
            let (got, want) = (powf(x, y), f64::from(x).powf(f64::from(y)));
            assert!(ulps(got, want) <= 0.51, "{x:e} ^ {y:e}: {got:e}, not {want:e}");
            assert!(
                want.is_nan() || want.is_sign_negative() == got.is_sign_negative(),
                "{x:e} ^ {y:e}: {got:e}, not {want:e}"
            );
        }
    }
    assert_eq!(powi(0.9, 0), 1.0);
    assert_eq!(powi(2.0, 62), (1u64 << 62) as f64);
    assert!((powi(0.999, 1000) / 0.999f64.powi(1000) - 1.0).abs() < 1e-12);
    assert_eq!(powi(0.9, u64::MAX), 0.0);
}
