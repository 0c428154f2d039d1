//! A multilayer perceptron, data parallel and tensor parallel: the mesh is a word, the program does not change.
//!
//! `cargo run --release --example mlp`

use unisono::prelude::*;

const SAMPLES: usize = 48;
const INPUTS: usize = 8;

/// Trains for some steps on a mesh like `dp=2`, `tp=4` or `dp=2,tp=2`; the losses.
pub fn train(mesh: &str, steps: u64) -> Result<Vec<f32>> {
    let device = MeshDevice::open(Mesh::parse(mesh)?, Options::default())?;
    device.set_seed(3);
    let x: Vec<f32> = (0..SAMPLES * INPUTS).map(|i| (i * i % 17) as f32 / 8.0 - 1.0).collect();
    // The product of two features: more than a straight line can say.
    let y: Vec<f32> = x.chunks(INPUTS).map(|row| row[0] * row[1]).collect();

    let model = Perceptron::new(
        &device,
        PerceptronConfig {
            inputs: INPUTS,
            hidden: vec![64, 64, 32],
            outputs: 1,
            // The hidden features fall into 8 units: tensor parallelism of degree 1, 2, 4 or 8 gives the same bits.
            units: 8,
            bias: true,
            activation: Activation::GeluTanh,
            dtype: Dtype::F32,
        },
    )?;
    let parameters = model.parameters();
    let weights: Vec<&Tensor> = parameters.iter().map(|p| &p.tensor).collect();
    let config = AdamWConfig {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.0,
        decay_norms_and_biases: false,
    };
    let mut optimizer = AdamW::new(parameters, config)?;
    let norm = GradientNorm::new(&device, parameters.len(), Some(1.0))?;
    let schedule = Schedule::WarmupLinear { total: steps };

    let mut losses = Vec::new();
    for step in 0..steps {
        weights.iter().for_each(|weight| weight.zero_grad());
        let (x, y) = (device.batch(&x, &[SAMPLES, INPUTS])?, device.batch(&y, &[SAMPLES, 1])?);
        let loss = model.forward(&x)?.mse_loss(&y, ReduceType::Mean)?;
        loss.backward()?;
        sync_gradients(&weights)?;
        norm.measure(parameters, &loss)?;
        optimizer.step(parameters, schedule.lr(1e-2, step), step, norm.control())?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let mut first: Option<Vec<f32>> = None;
    for mesh in ["dp=1", "dp=2", "tp=4", "dp=2,tp=2"] {
        let losses = train(mesh, 200)?;
        println!("{mesh:10} first loss {:.6}, last loss {:.6}", losses[0], losses[199]);
        assert_eq!(
            *first.get_or_insert_with(|| losses.clone()),
            losses,
            "the bits are the same"
        );
    }
    Ok(())
}
