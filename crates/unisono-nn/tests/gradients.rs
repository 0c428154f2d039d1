//! Gradients of the whole GPT against finite differences.
//!
//! Each parameter is moved along a direction, and the loss's slope (from four points, in f64) is compared with the product
//! of direction and gradient: once along the gradient itself, which would show a wrong element anywhere, and along random
//! directions, which would show a missing one.

mod common;

use common::{on, task, tiny};
use unisono_kernels::philox::Stream;
use unisono_kernels::random::fill_normal;
use unisono_nn::layers::Activation;
use unisono_nn::models::{Gpt, GptConfig, Positions};
use unisono_nn::{Model, Parameter};
use unisono_tensor::{MeshDevice, Result};

/// Slopes may be off by this, relative to the size of the gradient.
const TOLERANCE: f64 = 4e-3;
/// Each point moves a parameter by this times its own size.
const STEP: f64 = 0.02;

/// A config that is quick, without dropout.
fn small() -> GptConfig {
    GptConfig {
        vocab_size: 11,
        max_sequence_length: 8,
        num_heads: 4,
        num_groups: 4,
        embedding_dim: 16,
        intermediate_dim: 32,
        dropout: 0.0,
        ..tiny()
    }
}

/// Values large enough that every part of the model matters, zero in the padding.
fn fill(parameter: &Parameter, index: u32) -> Vec<f32> {
    let padded: usize = parameter.spec.padded().iter().product();
    let gain = parameter.name.contains("ln_") && parameter.name.ends_with("weight");
    let mut values = vec![0.0; padded];
    let stream = Stream {
        seed: 5,
        site: index,
        step: 0,
    };
    let real = parameter.num_elements();
    fill_normal(
        &stream,
        0,
        if gain { 1.0 } else { 0.0 },
        if gain { 0.2 } else { 0.4 },
        &mut values[..real],
    );
    values
}

fn loss(device: &MeshDevice, model: &Gpt, ids: &[u32], targets: &[u32], shape: [usize; 2]) -> Result<f64> {
    device.no_grad(|| {
        let losses = model.losses(
            &device.batch_u32(ids, &shape)?,
            &device.batch_u32(targets, &shape)?,
            1.0,
        )?;
        Ok(losses.to_vec()?.into_iter().map(f64::from).sum())
    })
}

fn dot(a: &[f64], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * f64::from(*b)).sum()
}

fn unit(direction: Vec<f64>) -> Vec<f64> {
    let size = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
    direction.into_iter().map(|d| d / size).collect()
}

/// The gradients of one model, of its table's every row.
fn check(config: GptConfig, attention_mask: bool, axes: &[(&'static str, usize)]) -> Result<()> {
    let device = on(axes).open()?;
    let mut model = Gpt::new(&device, config)?;
    let shape = [4, 8];
    let task = common::Task {
        tokens: shape[1],
        sequences: shape[0],
        ..task(model.config().clone())
    };
    if attention_mask {
        model.set_mask(Some(task.mask(&device)?));
    }
    let vocabulary = model.config().vocab_size as u32;
    let stream = Stream {
        seed: 9,
        site: 0,
        step: 0,
    };
    let ids: Vec<u32> = (0..32).map(|i| stream.word(i) % vocabulary).collect();
    let target = |i: usize| {
        if i % 5 == 4 { u32::MAX } else { ids[(i + 1) % ids.len()] }
    };
    let targets: Vec<u32> = (0..ids.len()).map(target).collect();
    for (index, parameter) in model.parameters().iter().enumerate() {
        parameter.tensor.upload_global(&fill(parameter, index as u32))?;
    }
    let losses = model.losses(
        &device.batch_u32(&ids, &shape)?,
        &device.batch_u32(&targets, &shape)?,
        1.0,
    )?;
    losses.backward()?;
    let mut wrong = Vec::new();
    for (index, parameter) in model.parameters().iter().enumerate() {
        let name = &parameter.name;
        let gradient = parameter.tensor.grad()?.expect("every parameter takes part").to_vec()?;
        let values = fill(parameter, index as u32);
        let real = parameter.num_elements();
        assert!(
            gradient[real..].iter().all(|g| *g == 0.0),
            "{name}: padding has a gradient"
        );
        let size = gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        assert!(size > 1e-3, "{name}: the gradient {size:e} is too small to be tested");
        let along = |direction: &[f64]| -> Result<f64> {
            let h =
                STEP * (dot(&vec![1.0; real], &values.iter().map(|v| v * v).collect::<Vec<_>>()) / real as f64).sqrt();
            let at = |steps: f64| -> Result<f64> {
                let moved: Vec<f32> = values
                    .iter()
                    .enumerate()
                    .map(|(i, v)| (f64::from(*v) + steps * h * direction.get(i).copied().unwrap_or(0.0)) as f32)
                    .collect();
                parameter.tensor.upload_global(&moved)?;
                loss(&device, &model, &ids, &targets, shape)
            };
            let slope = (8.0 * (at(1.0)? - at(-1.0)?) - (at(2.0)? - at(-2.0)?)) / (12.0 * h);
            parameter.tensor.upload_global(&values)?;
            Ok(slope)
        };
        let own = unit(gradient[..real].iter().map(|g| f64::from(*g)).collect());
        let mut directions = vec![own];
        for site in 0..3 {
            let mut random = vec![0.0; real];
            fill_normal(
                &Stream {
                    seed: 11,
                    site,
                    step: index as u32,
                },
                0,
                0.0,
                1.0,
                &mut random,
            );
            directions.push(unit(random.into_iter().map(f64::from).collect()));
        }
        for (which, direction) in directions.iter().enumerate() {
            let (expected, found) = (along(direction)?, dot(direction, &gradient));
            let error = (found - expected).abs() / size;
            if error > TOLERANCE {
                wrong.push(format!(
                    "{name}, direction {which}: the gradient says {found:.6}, the loss {expected:.6}; off by {error:.2e} of \
                     {size:.3e}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn tied_with_biases() {
    check(small(), false, &[]).expect("it runs");
}

#[test]
fn untied_without_biases() {
    let config = GptConfig {
        weight_tying: false,
        bias: false,
        activation: Activation::GeluTanh,
        ..small()
    };
    check(config, false, &[]).expect("it runs");
}

#[test]
fn grouped_heads_and_a_mask() {
    let config = GptConfig {
        num_groups: 2,
        weight_tying: false,
        activation: Activation::Silu,
        ..small()
    };
    check(config, true, &[]).expect("it runs");
}

#[test]
fn one_group_fixed_positions_recomputed() {
    let config = GptConfig {
        num_groups: 1,
        positions: Positions::Fixed,
        recompute: true,
        ..small()
    };
    check(config, false, &[]).expect("it runs");
}

#[test]
fn tied_on_a_mesh_with_a_mask() {
    check(small(), true, &[("dp", 2), ("tp", 2)]).expect("it runs");
}
