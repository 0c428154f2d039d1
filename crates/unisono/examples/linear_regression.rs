//! Linear regression on one device: data, model, loss, backward pass, update.
//!
//! `cargo run --release --example linear_regression`

use unisono::prelude::*;

const SAMPLES: usize = 64;
const FEATURES: usize = 4;

/// The law that the model is to find.
const LAW: [f32; FEATURES] = [1.0, -2.0, 0.5, 3.0];

/// Trains for some steps; the losses, and the weights at the end.
pub fn train(device: &MeshDevice, steps: u64) -> Result<(Vec<f32>, Vec<f32>)> {
    // Samples: x of small whole numbers, y = x · LAW + 1.
    let x: Vec<f32> = (0..SAMPLES * FEATURES)
        .map(|i| (i * i % 7) as f32 / 3.0 - 1.0)
        .collect();
    let y: Vec<f32> = x
        .chunks(FEATURES)
        .map(|row| 1.0 + row.iter().zip(LAW).map(|(x, w)| x * w).sum::<f32>())
        .collect();

    device.set_seed(1);
    let mut table = Parameters::new(device);
    let layer = Linear::new(&mut table, "layer", FEATURES, 1, true)?;
    let parameters = table.finish();
    let weights: Vec<&Tensor> = parameters.iter().map(|p| &p.tensor).collect();
    let config = SgdConfig {
        momentum: 0.9,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        decay_norms_and_biases: false,
    };
    let mut optimizer = Sgd::new(&parameters, config)?;
    let norm = GradientNorm::new(device, parameters.len(), None)?;

    let mut losses = Vec::new();
    for step in 0..steps {
        weights.iter().for_each(|weight| weight.zero_grad());
        let (x, y) = (
            device.batch(&x, &[SAMPLES, FEATURES])?,
            device.batch(&y, &[SAMPLES, 1])?,
        );
        let loss = layer.forward(&x, Activation::None)?.mse_loss(&y, ReduceType::Mean)?;
        loss.backward()?;
        // On one device there is nothing to reduce; the same program runs on a mesh.
        sync_gradients(&weights)?;
        norm.measure(&parameters, &loss)?;
        optimizer.step(&parameters, 0.05, step, norm.control())?;
        losses.push(loss.item()?);
    }
    Ok((losses, weights[0].to_vec()?))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let (losses, weights) = train(&MeshDevice::one()?, 200)?;
    for (step, loss) in losses.iter().enumerate().step_by(20) {
        println!("step {step:3}  loss {loss:.6}");
    }
    println!("weights {weights:.3?}, the law is {LAW:?}");
    Ok(())
}
