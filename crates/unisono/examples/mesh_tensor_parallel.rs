//! A tensor-parallel MLP in its two forms: all-gather between the layers, and columns then rows with an all-reduce.
//!
//! `cargo run --release --example mesh_tensor_parallel`; with `-- falcon` at the sizes of Falcon-7B.

#[path = "common/mlp.rs"]
pub mod mlp;

use mlp::Sizes;
use unisono::prelude::*;

/// Both weights are cut by columns, and what each device has of the inner features is gathered between them.
pub fn gathered(devices: usize, sizes: Sizes) -> Result<HostTensor> {
    let mesh = MeshDevice::open_grid(&[1, devices], Options::default())?;
    // Axis 0 of the mesh replicates, axis 1 cuts dim 1.
    let columns = MapperConfig::grid(None, Some(1));
    let x = mesh.distribute(&sizes.x(0)?, &MapperConfig::replicate())?;
    let up = mesh.distribute(&sizes.up()?, &columns)?;
    let down = mesh.distribute(&sizes.down()?, &columns)?;
    let part = x.linear(&up, None, Activation::GeluTanh)?;
    let inner = collectives::all_gather(&part, -1, Along::axis(1))?;
    let y = inner.linear(&down, None, Activation::None)?;
    y.to_host()
}

/// The first weight is cut by columns and the second by rows: each device has an addend of the whole output. The sum over the inner
/// features is grouped by `units`, whatever the number of devices: any number that divides them gives the same bits.
pub fn reduced(devices: usize, units: usize, sizes: Sizes) -> Result<HostTensor> {
    let mesh = MeshDevice::open(Mesh::new(&[("tp", devices)])?, Options::default())?;
    let inner_dim = cut(sizes.inner(), units);
    let weight = |name: &str, dims: [ParameterDim; 2], values: &HostTensor| -> Result<Tensor> {
        let spec = ParameterSpec {
            dims: dims.to_vec(),
            init: Init::Later,
        };
        let weight = mesh.constant(name, &spec, Dtype::F32)?;
        weight.copy_from_host(values)?;
        Ok(weight)
    };
    let up = weight("up", [whole(sizes.hidden), inner_dim], &sizes.up()?)?;
    let down = weight("down", [inner_dim, whole(sizes.hidden)], &sizes.down()?)?;
    let x = mesh.from_host(&sizes.x(0)?)?;
    let addend = x
        .linear(&up, None, Activation::GeluTanh)?
        .linear(&down, None, Activation::None)?;
    let y = collectives::all_reduce(&addend, Reduction::Sum, Along::axis(0))?;
    // Every device has all of it: the shard of any is the whole.
    y.read_shard(devices - 1)
}

/// Compares both forms on lines of devices with one device, by bits, and that with plain loops; the correlation with those.
pub fn run(devices: &[usize], sizes: Sizes) -> Result<f64> {
    let plain = sizes.plain(0, 2)?;
    let mut least: f64 = 1.0;
    let in_eight_units = |devices, sizes| reduced(devices, 8, sizes);
    for form in [gathered, in_eight_units] {
        let one = form(1, sizes)?;
        least = least.min(assert_with_pcc(&one.to_vec::<f32>()?[..plain.len()], &plain, 0.98));
        for devices in devices {
            assert_eq!(form(*devices, sizes)?, one, "{devices} devices give the bits of one");
        }
    }
    Ok(least)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let sizes = Sizes::chosen();
    let devices = [2, 4, 8];
    let correlation = run(&devices, sizes)?;
    println!("{sizes:?} on {devices:?} devices: the bits of one device; correlation with plain loops {correlation:.9}");
    Ok(())
}
