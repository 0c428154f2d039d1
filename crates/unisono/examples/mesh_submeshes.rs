//! A model tiled over four 2×4 submeshes of an 8×4 mesh: each has a batch of its own, and all of them compute at the same time.
//!
//! `cargo run --release --example mesh_submeshes`; with `-- falcon` at the sizes of Falcon-7B on a 4×2 mesh.

#[path = "common/mlp.rs"]
pub mod mlp;

use mlp::Sizes;
use unisono::prelude::*;

/// The outputs of the submeshes of shape `tile`, one a batch.
pub fn forward(shape: [usize; 2], tile: [usize; 2], sizes: Sizes) -> Result<Vec<HostTensor>> {
    let mesh = MeshDevice::open_grid(&shape, Options::default())?;
    // Placed once: copied along the rows' axis, cut by columns along the other.
    let columns = MapperConfig::grid(None, Some(1));
    let up = mesh.distribute(&sizes.up()?, &columns)?;
    let down = mesh.distribute(&sizes.down()?, &columns)?;
    let mut outputs = Vec::new();
    for (batch, submesh) in mesh.create_submeshes(&tile)?.iter().enumerate() {
        // The same memory: a device has the same part on both meshes.
        let (up_here, down_here) = (up.on(submesh)?, down.on(submesh)?);
        assert_eq!(
            (up_here.buffer(), down_here.buffer()),
            (up.buffer(), down.buffer()),
            "nothing was copied"
        );
        // The rows of the submesh share its batch.
        let x = submesh.distribute(&sizes.x(batch as u32)?, &MapperConfig::grid(Some(0), None))?;
        let part = x.linear(&up_here, None, Activation::GeluTanh)?;
        let inner = collectives::all_gather(&part, -1, Along::axis(1))?;
        // Only issued: no submesh waits for another.
        outputs.push(inner.linear(&down_here, None, Activation::None)?);
    }
    outputs.iter().map(|y| y.to_host()).collect()
}

/// Compares each submesh's output with that of one device, by bits, and with plain loops; the least correlation with those.
pub fn run(shape: [usize; 2], tile: [usize; 2], sizes: Sizes) -> Result<f64> {
    let outputs = forward(shape, tile, sizes)?;
    let mut least: f64 = 1.0;
    let device = MeshDevice::one()?;
    let (up, down) = (device.from_host(&sizes.up()?)?, device.from_host(&sizes.down()?)?);
    for (batch, y) in outputs.iter().enumerate() {
        let x = device.from_host(&sizes.x(batch as u32)?)?;
        let one = x
            .linear(&up, None, Activation::GeluTanh)?
            .linear(&down, None, Activation::None)?;
        assert_eq!(*y, one.to_host()?, "submesh {batch} gives the bits of one device");
        let plain = sizes.plain(batch as u32, 1)?;
        least = least.min(assert_with_pcc(&y.to_vec::<f32>()?[..plain.len()], &plain, 0.98));
    }
    Ok(least)
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let sizes = Sizes::chosen();
    let (shape, tile) = match sizes.hidden > 1000 {
        true => ([4, 2], [2, 2]),
        false => ([8, 4], [2, 4]),
    };
    let correlation = run(shape, tile, sizes)?;
    println!(
        "{sizes:?} on {tile:?} tiles of {shape:?}: the bits of one device; correlation with plain loops {correlation:.9}"
    );
    Ok(())
}
