//! Gradients against finite differences.
//!
//! For a result y and random weights r the loss is Σ r·y, summed in f64 on the host. Every element of every input is moved
//! by ±h and ±2h; the slope through the four points is compared with the gradient that `backward_with(r)` leaves.

use super::{open, values};
use unisono_tensor::{MeshDevice, Result, Tensor};

/// Distance of the points. The slope's error is h⁴ times a fifth derivative, and a rounding of y over h.
const H: f64 = 1.0 / 64.0;
/// Slopes may be off by this, relative to the largest gradient of the input.
const TOLERANCE: f64 = 5e-4;

/// An input: its shape and its values.
pub type Input = (Vec<usize>, Vec<f32>);

/// Values between −1 and 1.
pub fn any(seed: u64, shape: &[usize]) -> Input {
    (shape.to_vec(), values(seed, shape.iter().product()))
}

/// Values between 0.5 and 2.
pub fn positive(seed: u64, shape: &[usize]) -> Input {
    let (shape, values) = any(seed, shape);
    (shape, values.iter().map(|x| 1.25 + 0.75 * x).collect())
}

/// Values at least 0.1 away from 0, where a function has a corner.
pub fn off_zero(seed: u64, shape: &[usize]) -> Input {
    let (shape, values) = any(seed, shape);
    (
        shape,
        values
            .iter()
            .map(|x| if *x < 0.0 { x - 0.1 } else { x + 0.1 })
            .collect(),
    )
}

/// Compares the gradients of `f`, whose result gets the gradient `r`, with slopes.
pub fn check_with(
    name: &str,
    inputs: &[Input],
    f: &dyn Fn(&MeshDevice, &[Tensor]) -> Result<Tensor>,
    ones: bool,
) -> std::result::Result<(), String> {
    let device = open(&[]);
    let tensors: Vec<Tensor> = inputs
        .iter()
        .map(|(shape, values)| device.tensor(values, shape).and_then(Tensor::requires_grad))
        .collect::<Result<_>>()
        .expect("inputs fit");
    let run = || f(&device, &tensors).unwrap_or_else(|error| panic!("{name}: {error}"));
    let y = run();
    let size: usize = y.shape().iter().product();
    let r = if ones { vec![1.0; size] } else { values(99, size) };
    match ones {
        true => y.backward(),
        false => device.tensor(&r, &y.shape()).and_then(|r| y.backward_with(&r)),
    }
    .unwrap_or_else(|error| panic!("{name}: {error}"));
    let loss = || -> f64 {
        let y = device.no_grad(run).to_vec().expect("the result can be read");
        y.iter().zip(&r).map(|(y, r)| f64::from(*y) * f64::from(*r)).sum()
    };
    for (index, (tensor, (_, original))) in tensors.iter().zip(inputs).enumerate() {
        let gradient = match tensor.grad() {
            Ok(Some(gradient)) => gradient.to_vec().expect("a gradient can be read"),
            other => return Err(format!("{name}, input {index}: no gradient ({other:?})")),
        };
        let largest = gradient.iter().fold(0.0, |a: f64, g| a.max(f64::from(g.abs())));
        if largest < 1e-3 {
            return Err(format!("{name}, input {index}: the gradient is too small to be tested"));
        }
        for at in 0..original.len() {
            let mut moved = original.clone();
            let mut point = |steps: f64| {
                moved[at] = (f64::from(original[at]) + steps * H) as f32;
                tensor.upload_global(&moved).expect("the values fit");
                (loss(), f64::from(moved[at]))
            };
            let ((a, xa), (b, xb), (c, xc), (d, xd)) = (point(-2.0), point(-1.0), point(1.0), point(2.0));
            // Two central differences with the distances that f32 really has, extrapolated to h = 0.
            let slope = (4.0 * (c - b) / (xc - xb) - (d - a) / (xd - xa)) / 3.0;
            let error = (slope - f64::from(gradient[at])).abs() / largest.max(1.0);
            if error.is_nan() || error > TOLERANCE {
                return Err(format!(
                    "{name}, input {index}, element {at}: the gradient says {:.6}, the slope is {slope:.6}",
                    gradient[at]
                ));
            }
        }
        tensor.upload_global(original).expect("the values fit");
    }
    Ok(())
}

pub fn check(name: &str, inputs: &[Input], f: &dyn Fn(&MeshDevice, &[Tensor]) -> Result<Tensor>) {
    if let Err(message) = check_with(name, inputs, f, false) {
        panic!("{message}");
    }
}
