//! A perceptron, data parallel, tensor parallel and both: one program, the same bits.

use unisono::prelude::*;

/// The losses of 20 AdamW steps on `mesh`.
fn train(mesh: Mesh) -> Result<Vec<f32>> {
    let device = MeshDevice::open(mesh, Options::default())?;
    device.set_seed(3);
    let config = PerceptronConfig {
        inputs: 8,
        hidden: vec![32],
        outputs: 2,
        units: 8,
        bias: true,
        activation: Activation::GeluTanh,
    };
    let model = Perceptron::new(&device, config)?;
    let x: Vec<f32> = (0..32 * 8).map(|i| (i * 29 % 64) as f32 / 32.0 - 1.0).collect();
    let y: Vec<f32> = x.chunks(8).flat_map(|row| [row[0] * row[1], row[2] + row[3]]).collect();
    let x = device.batch(&x, &[32, 8])?;
    let y = device.batch(&y, &[32, 2])?;

    let parameters = model.parameters();
    let adamw = AdamWConfig {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.01,
        decay_norms_and_biases: false,
    };
    let mut optimizer = AdamW::new(parameters, adamw)?;
    let norm = GradientNorm::new(&device, parameters.len(), Some(1.0))?;
    let mut curve = Vec::new();
    for step in 0..20 {
        parameters.iter().for_each(|p| p.tensor.zero_grad());
        let losses = model.losses(&x, &y, 1.0 / 64.0)?;
        losses.backward()?;
        let loss = losses.sum()?.mul_scalar(1.0 / 64.0)?;
        norm.measure(parameters, &loss)?;
        optimizer.step(parameters, 1e-2, step, norm.control())?;
        curve.push(loss.item()?);
    }
    Ok(curve)
}

/// Trains on five meshes and compares.
pub fn main() -> Result<()> {
    let alone = train(Mesh::one())?;
    assert!(alone[19] < alone[0]);
    for mesh in ["dp=2", "dp=8", "tp=2", "tp=4", "dp=4,tp=2"] {
        let curve = train(Mesh::parse(mesh)?)?;
        assert!(
            curve.iter().zip(&alone).all(|(a, b)| a.to_bits() == b.to_bits()),
            "{mesh}"
        );
        println!("{mesh:10} identical: {:.6} … {:.6}", curve[0], curve[19]);
    }
    Ok(())
}
