//! A module of one's own: a gated MLP, `down(silu(gate(x)) · up(x))`, that is cut along `tp` where the mesh has that axis.
//!
//! `cargo run --release --example custom_module`

use unisono::prelude::*;

/// The gated MLP of Shazeer, *GLU Variants Improve Transformer* (2020).
pub struct GatedMlp {
    gate: ColumnParallelLinear,
    up: ColumnParallelLinear,
    down: RowParallelLinear,
}

impl GatedMlp {
    /// `hidden` features fall into `units` units: `tp` may cut them by any degree that divides those.
    pub fn new(p: &mut Parameters, name: &str, width: usize, hidden: usize, units: usize) -> Result<Self> {
        let linear = |p: &mut Parameters, what: &str| {
            ColumnParallelLinear::uniform(p, &format!("{name}.{what}"), width, hidden, units, false)
        };
        Ok(GatedMlp {
            gate: linear(p, "gate")?,
            up: linear(p, "up")?,
            down: RowParallelLinear::uniform(p, &format!("{name}.down"), hidden, width, units, false)?,
        })
    }

    /// [.., width] to [.., width].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gate = self.gate.forward(x, Activation::None)?.silu()?;
        let up = self.up.forward(x, Activation::None)?;
        self.down.forward(&gate.mul(&up)?)
    }
}

/// Output and gradients of one pass over a batch.
pub fn pass(mesh: &str) -> Result<Vec<Vec<f32>>> {
    let device = MeshDevice::open(Mesh::parse(mesh)?, Options::default())?;
    device.set_seed(5);
    let mut table = Parameters::new(&device);
    let module = GatedMlp::new(&mut table, "mlp", 12, 32, 4)?;
    let parameters = table.finish();
    let x: Vec<f32> = (0..8 * 12).map(|i| (i * i % 19) as f32 / 9.0 - 1.0).collect();
    let y = module.forward(&device.batch(&x, &[8, 12])?)?;
    y.mul(&y)?.mean()?.backward()?;
    let weights: Vec<&Tensor> = parameters.iter().map(|p| &p.tensor).collect();
    sync_gradients(&weights)?;
    let mut values = vec![y.to_vec()?];
    for weight in weights {
        values.push(
            weight
                .grad()?
                .map(|gradient| gradient.to_vec())
                .transpose()?
                .unwrap_or_default(),
        );
    }
    Ok(values)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let one = pass("dp=1")?;
    for mesh in ["tp=2", "tp=4", "dp=2,tp=2"] {
        assert_eq!(one, pass(mesh)?);
        println!("{mesh}: output and gradients are those of one device, bit by bit");
    }
    Ok(())
}
