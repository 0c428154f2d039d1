//! A mesh of two axes: the batch is cut along one, the weights along the other.
//!
//! `cargo run --release --example mesh_hybrid`; with `-- falcon` at the sizes of Falcon-7B.

#[path = "common/mlp.rs"]
pub mod mlp;

use mlp::Sizes;
use unisono::prelude::*;

/// The output of a mesh of `dp` rows that share the batch, in each of which `tp` devices share the weights.
pub fn forward([dp, tp]: [usize; 2], sizes: Sizes) -> Result<HostTensor> {
    let mesh = MeshDevice::open(Mesh::new(&[("dp", dp), ("tp", tp)])?, Options::default())?;
    let inner_dim = cut(sizes.inner(), 8);
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
    // The rows of the mesh cut dim 0; along its columns the input is copied.
    let x = mesh.distribute(&sizes.x(0)?, &MapperConfig::grid(Some(0), None))?;
    let addend = x
        .linear(&up, None, Activation::GeluTanh)?
        .linear(&down, None, Activation::None)?;
    // Axis 1 runs along a row: the devices that share the weights meet.
    let y = collectives::all_reduce(&addend, Reduction::Sum, Along::axis(1))?;
    // The rows' shards of dim 0, of each row one copy.
    y.aggregate(&ComposerConfig::over(&[0, 1], MeshShape::new(&[dp, 1])?))
}

/// Compares meshes with one device, by bits, and that with plain loops; the correlation with those.
pub fn run(meshes: &[[usize; 2]], sizes: Sizes) -> Result<f64> {
    let one = forward([1, 1], sizes)?;
    let plain = sizes.plain(0, 2)?;
    let correlation = assert_with_pcc(&one.to_vec::<f32>()?[..plain.len()], &plain, 0.98);
    for mesh in meshes {
        assert_eq!(forward(*mesh, sizes)?, one, "{mesh:?} gives the bits of one device");
    }
    Ok(correlation)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let sizes = Sizes::chosen();
    let meshes: &[[usize; 2]] = match sizes.hidden > 1000 {
        true => &[[2, 4]],
        false => &[[2, 2], [2, 4], [4, 2], [8, 4]],
    };
    let correlation = run(meshes, sizes)?;
    println!("{sizes:?} on {meshes:?}: the bits of one device; correlation with plain loops {correlation:.9}");
    Ok(())
}
