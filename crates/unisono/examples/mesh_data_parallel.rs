//! A data-parallel MLP: each device holds the weights and its share of the batch, and nothing is communicated.
//!
//! `cargo run --release --example mesh_data_parallel`; with `-- falcon` at the sizes of Falcon-7B.

#[path = "common/mlp.rs"]
pub mod mlp;

use mlp::Sizes;
use unisono::prelude::*;

/// The output, [batch, tokens, hidden], of a line of devices.
pub fn forward(devices: usize, sizes: Sizes) -> Result<HostTensor> {
    let mesh = MeshDevice::open_grid(&[1, devices], Options::default())?;
    // Dim 0 of the input is cut over all devices; the weights are copied to each.
    let x = mesh.distribute(&sizes.x(0)?, &MapperConfig::shard(0))?;
    let up = mesh.distribute(&sizes.up()?, &MapperConfig::replicate())?;
    let down = mesh.distribute(&sizes.down()?, &MapperConfig::replicate())?;
    let inner = x.linear(&up, None, Activation::GeluTanh)?;
    let y = inner.linear(&down, None, Activation::None)?;
    // Put together as it lies: the shards of dim 0, one after another.
    y.to_host()
}

/// Compares lines of devices with one device, by bits, and that with plain loops; the correlation with those.
pub fn run(devices: &[usize], sizes: Sizes) -> Result<f64> {
    let one = forward(1, sizes)?;
    let plain = sizes.plain(0, 2)?;
    let correlation = assert_with_pcc(&one.to_vec::<f32>()?[..plain.len()], &plain, 0.98);
    for devices in devices {
        assert_eq!(forward(*devices, sizes)?, one, "{devices} devices give the bits of one");
    }
    Ok(correlation)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let sizes = Sizes::chosen();
    // Each device has the weights: two of Falcon-7B's take 1.3 GB.
    let devices: &[usize] = if sizes.hidden > 1000 { &[2] } else { &[2, 4, 8] };
    let correlation = run(devices, sizes)?;
    println!("{sizes:?} on {devices:?} devices: the bits of one device; correlation with plain loops {correlation:.9}");
    Ok(())
}
