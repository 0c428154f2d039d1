//! bf16 beside f32: casts, copies of weights, where sums are rounded, and what is refused.

mod common;

use common::{open, values};
use unisono_tensor::ops::matmul::Activation;
use unisono_tensor::{Dtype, Kind, Result, Tensor};

/// The nearest number of bf16.
fn rounded(x: f32) -> f32 {
    unisono_kernels::element::Bf16::from_f32(x).to_f32()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn casts_round_once_and_hand_the_gradient_back() -> Result<()> {
    let device = open(&[]);
    let x = values(1, 50);
    let t = device.tensor(&x, &[5, 10])?.requires_grad()?;
    let half = t.to_dtype(Dtype::Bf16)?;
    assert_eq!(half.dtype(), Dtype::Bf16);
    let expected: Vec<f32> = x.iter().map(|x| rounded(*x)).collect();
    assert_eq!(bits(&half.to_vec()?), bits(&expected));
    let back = half.to_dtype(Dtype::F32)?;
    assert_eq!(bits(&back.to_vec()?), bits(&expected));
    // The gradient comes back through bf16, rounded there.
    let dy = values(2, 50);
    back.backward_with(&device.tensor(&dy, &[5, 10])?)?;
    let dx = t.grad()?.expect("it takes part").to_vec()?;
    assert_eq!(bits(&dx), bits(&dy.iter().map(|d| rounded(*d)).collect::<Vec<_>>()));
    Ok(())
}

/// Whatever made the result, a gradient that is handed in as f32 is rounded before it goes on.
#[test]
fn a_gradient_may_be_handed_in_as_f32() -> Result<()> {
    let device = open(&[]);
    let dy = device.tensor(&values(3, 32), &[4, 8])?;
    let gradient = |dy: &Tensor| -> Result<Vec<f32>> {
        let x = device.tensor(&values(2, 32), &[4, 8])?.requires_grad()?;
        let y = x.to_dtype(Dtype::Bf16)?.layer_norm(None, None, 1e-5)?.gelu()?;
        y.backward_with(dy)?;
        x.grad()?.expect("it takes part").to_vec()
    };
    assert_eq!(bits(&gradient(&dy)?), bits(&gradient(&dy.to_dtype(Dtype::Bf16)?)?));
    Ok(())
}

#[test]
fn products_read_the_copy_and_uploads_renew_it() -> Result<()> {
    let device = open(&[]);
    let x = device.tensor(&[1.0, 1.0], &[1, 2])?.to_dtype(Dtype::Bf16)?;
    let weight = device.tensor(&[1.001, 3.0], &[2, 1])?.requires_grad()?;
    weight.keep_copy(Dtype::Bf16)?;
    // 1.001 is 1 in bf16.
    assert_eq!(x.linear(&weight, None, Activation::None)?.to_vec()?, [4.0]);
    weight.upload_global(&[2.004, 5.0])?;
    assert_eq!(x.linear(&weight, None, Activation::None)?.to_vec()?, [7.0]);
    assert_eq!(weight.to_vec()?, [2.004, 5.0]);
    Ok(())
}

/// A small network in `dtype`: its output and all gradients, as f32.
fn network(dtype: Dtype) -> Result<Vec<Vec<f32>>> {
    let device = open(&[]);
    let leaf = |seed, shape: &[usize]| -> Result<Tensor> {
        let t = device
            .tensor(&values(seed, shape.iter().product()), shape)?
            .requires_grad()?;
        if shape.len() > 1 {
            t.keep_copy(dtype)?;
        }
        Ok(t)
    };
    let (up, up_bias, down, gain) = (
        leaf(1, &[48, 96])?,
        leaf(2, &[96])?,
        leaf(3, &[96, 48])?,
        leaf(4, &[48])?,
    );
    let x = device.tensor(&values(5, 8 * 4 * 48), &[8, 4, 48])?.requires_grad()?;
    let h = x.to_dtype(dtype)?;
    let y = h
        .layer_norm(Some(&gain), None, 1e-5)?
        .linear(&up, Some(&up_bias), Activation::GeluTanh)?
        .linear(&down, None, Activation::None)?
        .add(&h)?
        .to_dtype(Dtype::F32)?;
    y.backward_with(&device.tensor(&values(6, 8 * 4 * 48), &[8, 4, 48])?)?;
    let mut all = vec![y.to_vec()?];
    for leaf in [&x, &up, &up_bias, &down, &gain] {
        let grad = leaf.grad()?.expect("it takes part");
        assert_eq!(grad.dtype(), Dtype::F32, "gradients of leaves are sums in f32");
        all.push(grad.to_vec()?);
    }
    Ok(all)
}

/// The gradients of bf16 are those of f32 up to its rounding: 2⁻⁸ a step, over a few steps.
#[test]
fn gradients_are_those_of_f32_up_to_rounding() -> Result<()> {
    for (half, full) in network(Dtype::Bf16)?.iter().zip(&network(Dtype::F32)?) {
        let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| f64::from(x * x)).sum::<f64>().sqrt();
        let error = norm(&mut half.iter().zip(full).map(|(a, b)| a - b)) / norm(&mut full.iter().copied());
        assert!(0.0 < error && error < 0.01, "relative error {error}");
    }
    Ok(())
}

#[test]
fn a_sum_over_devices_is_rounded_when_it_is_complete() -> Result<()> {
    let (x, w) = (values(7, 6 * 24), values(8, 24 * 10));
    let run = |axes: &[(&str, usize)]| -> Result<Vec<f32>> {
        let device = open(axes);
        let x = device.sharded(&x, &[6, 24], &[("tp", 1)])?.to_dtype(Dtype::Bf16)?;
        let spec = unisono_tensor::create::ParameterSpec {
            dims: vec![
                unisono_tensor::create::ParameterDim {
                    len: 24,
                    units: 4,
                    axis: Some("tp"),
                },
                unisono_tensor::create::ParameterDim {
                    len: 10,
                    units: 1,
                    axis: None,
                },
            ],
            init: unisono_tensor::create::Init::Zeros,
        };
        let weight = device.parameter("weight", &spec)?;
        weight.upload_global(&w)?;
        weight.keep_copy(Dtype::Bf16)?;
        let y = x.linear(&weight, None, Activation::None)?.all_reduce("tp")?;
        assert_eq!(y.dtype(), Dtype::Bf16);
        y.to_vec()
    };
    let alone = run(&[])?;
    for tp in [2, 4] {
        assert_eq!(bits(&run(&[("tp", tp)])?), bits(&alone), "tp {tp}");
    }
    Ok(())
}

#[test]
fn what_does_not_go_together_is_refused_in_words() -> Result<()> {
    let device = open(&[("tp", 2)]);
    let full = device.tensor(&values(1, 16), &[4, 4])?;
    let half = full.to_dtype(Dtype::Bf16)?;
    let ids = device.tensor_u32(&[0, 1], &[2])?;
    let refused = |result: Result<Tensor>| match result {
        Err(error) => error.to_string(),
        Ok(t) => panic!("{t:?} was made"),
    };
    let part = device.sharded(&values(2, 16), &[4, 4], &[("tp", 1)])?.linear(
        &device.sharded(&values(3, 16), &[4, 4], &[("tp", 0)])?,
        None,
        Activation::None,
    )?;
    for (what, message, words) in [
        (
            "bf16 + f32",
            refused(half.add(&full)),
            "cast one of them with to_dtype()",
        ),
        (
            "bf16 · f32 weight",
            refused(half.linear(&full, None, Activation::None)),
            "keep_copy()",
        ),
        (
            "softmax of bf16",
            refused(half.softmax()),
            "cast it with to_dtype() first",
        ),
        (
            "ids to bf16",
            refused(ids.to_dtype(Dtype::Bf16)),
            "f32 and bf16 can be cast",
        ),
        (
            "a partial sum to bf16",
            refused(part.to_dtype(Dtype::Bf16)),
            "all_reduce",
        ),
    ] {
        assert!(message.contains(words), "{what}: {message}");
    }
    Ok(())
}

/// The results of norms and activations are made again for the backward pass, so nothing keeps them until then.
#[test]
fn cheap_results_are_not_kept() -> Result<()> {
    let device = open(&[]);
    let leaf = |shape: &[usize]| {
        device
            .tensor(&values(1, shape.iter().product()), shape)?
            .requires_grad()
    };
    let (up, down) = (leaf(&[64, 256])?, leaf(&[256, 64])?);
    let x = leaf(&[32, 8, 64])?;
    let activations = || device.runtime().report().memory.current_by_kind[Kind::Activation as usize];
    let before = activations();
    let y = x
        .layer_norm(None, None, 1e-5)?
        .linear(&up, None, Activation::Gelu)?
        .linear(&down, None, Activation::None)?;
    let rows = 32 * 8;
    // What stays: the result, the values before the activation, and two statistics a row.
    assert_eq!(activations() - before, 4 * rows * (64 + 256 + 2));
    drop(y);
    Ok(())
}
