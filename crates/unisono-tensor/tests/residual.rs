//! A product that is added to a residual: the bits of the product and the sum, and what is refused.

mod common;

use common::{open, same_bits, text, values};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{Dtype, MeshDevice, Result, Tensor};

const ROWS: usize = 21;
const IN: usize = 24;
const OUT: usize = 40;

fn leaf(device: &MeshDevice, seed: u64, shape: &[usize]) -> Result<Tensor> {
    device
        .tensor(&values(seed, shape.iter().product()), shape)?
        .requires_grad()
}

/// Result and gradients of input, weight, bias and residual.
fn outcome(dtype: Dtype, transposed: bool, bias: bool, at_once: bool) -> Result<Vec<Vec<f32>>> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[3, ROWS / 3, IN])?;
    let w = leaf(&device, 2, &if transposed { [OUT, IN] } else { [IN, OUT] })?;
    w.keep_copy(dtype)?;
    let b = leaf(&device, 3, &[OUT])?;
    let b = bias.then_some(&b);
    let residual = leaf(&device, 4, &[3, ROWS / 3, OUT])?;
    let (input, onto) = (x.to_dtype(dtype)?, residual.to_dtype(dtype)?);
    let y = match (at_once, transposed) {
        (true, true) => input.linear_transposed_onto(&w, b, &onto)?,
        (true, false) => input.linear_onto(&w, b, &onto)?,
        (false, true) => onto.add(&input.linear_transposed(&w, b)?)?,
        (false, false) => onto.add(&input.linear(&w, b, Activation::None)?)?,
    };
    assert_eq!(y.dtype(), dtype);
    y.backward_with(&device.tensor(&values(5, ROWS * OUT), &[3, ROWS / 3, OUT])?)?;
    let mut all = vec![y.to_vec()?];
    for leaf in [Some(&x), Some(&w), b, Some(&residual)].into_iter().flatten() {
        all.push(leaf.grad()?.expect("the leaf takes part").to_vec()?);
    }
    Ok(all)
}

#[test]
fn it_is_the_product_and_the_sum() -> Result<()> {
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for (transposed, bias) in [(false, false), (false, true), (true, false), (true, true)] {
            let what = format!("{}, transposed {transposed}, bias {bias}", dtype.name());
            let (once, twice) = (
                outcome(dtype, transposed, bias, true)?,
                outcome(dtype, transposed, bias, false)?,
            );
            assert_eq!(once.len(), 4 + usize::from(bias));
            for (i, (once, twice)) in once.iter().zip(&twice).enumerate() {
                assert!(once.iter().any(|x| *x != 0.0), "{what}, {i}");
                same_bits(&format!("{what}, {i}"), once, twice);
            }
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let device = open(&[]);
    let x = leaf(&device, 1, &[ROWS, IN])?;
    let w = leaf(&device, 2, &[IN, OUT])?;
    let message = text(x.linear_onto(&w, None, &leaf(&device, 3, &[ROWS, IN])?));
    assert!(
        message.contains(&format!("[{ROWS}, {IN}]")) && message.contains(&format!("[{ROWS}, {OUT}]")),
        "{message}"
    );
    let half = leaf(&device, 3, &[ROWS, OUT])?.to_dtype(Dtype::Bf16)?;
    let message = text(x.linear_onto(&w, None, &half));
    assert!(message.contains("bf16") && message.contains("f32"), "{message}");

    let device = open(&[("tp", 2)]);
    let x = leaf(&device, 1, &[ROWS, IN])?.scatter("tp", 1)?;
    let w = device.tensor(&values(2, IN * OUT), &[IN, OUT])?.scatter("tp", 0)?;
    let message = text(x.linear_onto(&w, None, &leaf(&device, 3, &[ROWS, OUT])?));
    assert!(
        message.contains("all_reduce(\"tp\")") && message.contains("residual"),
        "{message}"
    );
    Ok(())
}
