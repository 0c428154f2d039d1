//! Arrays on their way: dealt out on the host, drawn, copied to the devices, and put together again, without losing a bit.
//!
//! `cargo run --release --example mesh_distribute`

use unisono::prelude::*;

/// The array as it lies over a 2×4 mesh before it is on it: drawn, and printed by device.
pub fn on_the_host(x: &HostTensor) -> Result<(String, String)> {
    let mesh = MeshShape::new(&[2, 4])?;
    // The rows of the mesh cut dim 0, its columns dim 1.
    let parts = distributed::distribute(x, &MapperConfig::grid(Some(0), Some(1)), &mesh)?;
    assert_eq!(parts.to_host()?, *x);
    Ok((parts.visualize(80).plain(), parts.to_string()))
}

/// To the devices and back in five ways; how the last one moved, in a sentence.
pub fn there_and_back(x: &HostTensor) -> Result<String> {
    let mesh = MeshDevice::open_grid(&[2, 4], Options::default())?;

    // Cut along both axes: the tensor knows how it is put together.
    let tiles = mesh.distribute(x, &MapperConfig::grid(Some(0), Some(1)))?;
    assert_eq!(tiles.placements(), [Placement::Shard(0), Placement::Shard(1)]);
    assert_eq!(tiles.to_host()?, *x);

    // Cut along one axis and copied along the other: a composer says that one copy is meant.
    let copies = mesh.distribute(x, &MapperConfig::grid(None, Some(1)))?;
    assert!(copies.to_host().is_err());
    let one_copy = ComposerConfig::over(&[0, 1], MeshShape::new(&[1, 4])?);
    assert_eq!(copies.aggregate(&one_copy)?, *x);
    // Without it the copies stand one after another.
    assert_eq!(
        copies.aggregate(&ComposerConfig::grid(0, 1))?.shape()[0],
        2 * x.shape()[0]
    );

    // A default for all arrays in a scope.
    let rows = mesh.with_default_mapper(MapperConfig::grid(Some(0), None), || mesh.from_host(x))?;
    assert_eq!(rows.placements(), [Placement::Shard(0), Placement::Replicate]);

    // A tensor as one tensor a device, and back, in the same memory.
    let mapper = MapperConfig::grid(Some(0), Some(1));
    let parts = distributed::get_device_tensors(&tiles)?;
    let again = distributed::combine_device_tensors(&parts, &mapper, &mesh)?;
    assert_eq!((again.buffer(), again.to_host()?), (tiles.buffer(), x.clone()));

    // From one placement to another, by the collectives that send least.
    let aim = [Placement::Replicate, Placement::Shard(0)];
    let moved = tiles.redistribute(&aim)?;
    assert_eq!(moved.placements(), aim);
    assert_eq!(
        moved.aggregate(&ComposerConfig::over(&[1, 0], MeshShape::new(&[1, 4])?))?,
        *x
    );
    Ok(tiles.plan_redistribute(&aim)?.sentence(mesh.mesh()))
}

/// An array [4, 8] of each kind of number that devices hold.
pub fn arrays() -> Result<Vec<HostTensor>> {
    let floats: Vec<f32> = (0..32).map(|i| i as f32 / 8.0).collect();
    let bf16: Vec<u8> = floats
        .iter()
        .flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes())
        .collect();
    Ok(vec![
        HostTensor::new(&floats, &[4, 8])?,
        HostTensor::from_bytes(Dtype::Bf16, &[4, 8], bf16)?,
        HostTensor::new(&(0..32).map(|i| u32::MAX - i).collect::<Vec<u32>>(), &[4, 8])?,
        HostTensor::new(&(-16..16).collect::<Vec<i32>>(), &[4, 8])?,
        HostTensor::new(&(0..32).map(|i| 255 - i).collect::<Vec<u8>>(), &[4, 8])?,
    ])
}

#[allow(dead_code)]
fn main() -> Result<()> {
    for x in arrays()? {
        let moved = there_and_back(&x)?;
        println!("{x:?}: there and back without losing a bit; {moved}");
    }
    let (drawing, printed) = on_the_host(&arrays()?[0])?;
    println!("{drawing}\n{printed}");
    Ok(())
}
