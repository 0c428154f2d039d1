//! A reader's own model and own data, data parallel, in a page: the next value of a noisy sine from the eight before it.

use unisono::prelude::*;

struct Forecaster {
    hidden: Linear,
    norm: LayerNorm,
    output: Linear,
}

impl Forecaster {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let hidden = self.norm.forward(&self.hidden.forward(x, Activation::Relu)?)?;
        self.output.forward(&hidden, Activation::None)
    }
}

/// Windows of eight values and the value that follows each.
fn data() -> (Vec<f32>, Vec<f32>) {
    let series: Vec<f32> = (0..72)
        .map(|i| unisono::kernels::math::sin(i as f32 * 0.3) + (i * 7 % 5) as f32 * 0.01)
        .collect();
    let x = (0..64).flat_map(|i| series[i..i + 8].to_vec()).collect();
    (x, series[8..].to_vec())
}

fn train(mesh: &str, micro_batches: usize) -> Result<Vec<f32>> {
    let device = MeshDevice::open(Mesh::parse(mesh)?, Options::default())?;
    device.set_seed(2);
    let mut p = Parameters::new(&device);
    let model = Forecaster {
        hidden: Linear::new(&mut p, "hidden", 8, 32, true)?,
        norm: LayerNorm::new(&mut p, "norm", 32, true)?,
        output: Linear::new(&mut p, "output", 32, 1, true)?,
    };
    let parameters = p.finish();
    let config = AdamWConfig {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.0,
        decay_norms_and_biases: false,
    };
    let mut optimizer = AdamW::new(&parameters, config)?;
    let norm = GradientNorm::new(&device, parameters.len(), None)?;
    let (x, y) = data();
    let (dp, axis) = (device.mesh().axis_size("dp"), device.axis("dp"));
    let count = 64 / dp / micro_batches;
    let mut curve = Vec::new();
    for step in 0..60 {
        parameters.iter().for_each(|p| p.tensor.zero_grad());
        let mut loss = device.zeros(&[])?;
        for micro in 0..micro_batches {
            // Each device owns consecutive samples of the step's batch; a micro-batch is the next few of each.
            let rows = Rows {
                total: 64,
                axis,
                skip: micro * count,
                count,
            };
            let pick = |values: &[f32], width: usize| -> Vec<f32> {
                let own = |device: usize| device * (64 / dp) + micro * count;
                (0..dp)
                    .flat_map(|d| values[own(d) * width..(own(d) + count) * width].to_vec())
                    .collect()
            };
            let inputs = device.micro_batch(&pick(&x, 8), &[count * dp, 8], rows)?;
            let targets = device.micro_batch(&pick(&y, 1), &[count * dp, 1], rows)?;
            // The mean is over the whole step, so micro-batches simply add up.
            let part = model.forward(&inputs)?.mse_loss(&targets, ReduceType::Mean)?;
            part.backward()?;
            loss = loss.add(&part.detach())?;
        }
        norm.measure(&parameters, &loss)?;
        optimizer.step(&parameters, 1e-2, step, norm.control())?;
        curve.push(loss.item()?);
    }
    assert!(
        curve[59] < curve[0] / 5.0,
        "the forecast gets better: {} to {}",
        curve[0],
        curve[59]
    );
    // The weights of the last layer stand for the whole run.
    parameters[4].tensor.to_vec()
}

/// Trains on one device and on others, and compares the weights.
pub fn main() -> Result<()> {
    let alone = train("dp=1", 1)?;
    for (mesh, micro_batches) in [("dp=2", 1), ("dp=4", 2), ("dp=1", 4)] {
        let weights = train(mesh, micro_batches)?;
        assert!(
            alone.iter().zip(&weights).all(|(a, b)| a.to_bits() == b.to_bits()),
            "{mesh} × {micro_batches}"
        );
        println!("{mesh} with {micro_batches} micro-batches: the same weights, bit by bit");
    }
    Ok(())
}
