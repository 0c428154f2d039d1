//! Linear regression data parallel over two devices times tensor parallel over two: the losses of one device, bit by bit.
//!
//! `cargo run --release --example linear_regression_mesh`

use unisono::prelude::*;

const SAMPLES: usize = 64;
const INPUTS: usize = 6;
const OUTPUTS: usize = 4;

/// Trains for some steps on a mesh like `dp=2,tp=2`, or on one device for the empty word; the losses.
pub fn train(mesh: &str, steps: u64) -> Result<Vec<f32>> {
    let mesh = if mesh.is_empty() {
        Mesh::one()
    } else {
        Mesh::parse(mesh)?
    };
    let device = MeshDevice::open(mesh, Options::default())?;
    device.set_seed(1);
    let x: Vec<f32> = (0..SAMPLES * INPUTS).map(|i| (i * i % 11) as f32 / 5.0 - 1.0).collect();
    let y: Vec<f32> = (0..SAMPLES * OUTPUTS)
        .map(|i| (i * 3 % 13) as f32 / 6.0 - 1.0)
        .collect();

    let mut table = Parameters::new(&device);
    // Four units of outputs: `tp` may cut them into 1, 2 or 4.
    let layer = ColumnParallelLinear::uniform(&mut table, "layer", INPUTS, OUTPUTS, 4, true)?;
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
    let norm = GradientNorm::new(&device, parameters.len(), None)?;

    let mut losses = Vec::new();
    for step in 0..steps {
        weights.iter().for_each(|weight| weight.zero_grad());
        // Each device of the `dp` axis gets its share of the samples.
        let (x, y) = (
            device.batch(&x, &[SAMPLES, INPUTS])?,
            device.batch(&y, &[SAMPLES, OUTPUTS])?,
        );
        // Each device of the `tp` axis has its part of the outputs; the loss is computed of all, on each.
        let prediction = layer.forward(&x, Activation::None)?.all_gather("tp", 1, true)?;
        let loss = prediction.mse_loss(&y, ReduceType::Mean)?;
        loss.backward()?;
        sync_gradients(&weights)?;
        norm.measure(&parameters, &loss)?;
        optimizer.step(&parameters, 0.05, step, norm.control())?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let one = train("", 100)?;
    let four = train("dp=2,tp=2", 100)?;
    println!("last loss on one device      {} ({:08x})", one[99], one[99].to_bits());
    println!("last loss on dp 2 times tp 2 {} ({:08x})", four[99], four[99].to_bits());
    assert_eq!(one, four);
    Ok(())
}
