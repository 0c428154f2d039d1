//! The program of `docs/program-a-mesh.md`, from a machine's description to the replay of a trace.
//!
//! `cargo run --release --example mesh_tour`

use unisono::mesh::MeshError;
use unisono::mesh::descriptor::{Fit, Wish, select};
use unisono::prelude::*;

/// The devices of a Galaxy's 4×8 mesh that a line of 32 takes, in the order of the line.
pub fn describe() -> Result<Vec<usize>, MeshError> {
    let wish = Wish {
        configured: Some("galaxy-4x8"),
        ..Wish::default()
    };
    let line = select(&MeshShape::new(&[1, 32])?, wish)?;
    assert_eq!(line.fit, Fit::Line);
    // The first row from left to right, the second from right to left.
    assert_eq!(line.devices[..10], [0, 1, 2, 3, 4, 5, 6, 7, 15, 14]);

    // What the machine cannot hold is refused, with what it can.
    let error = select(&MeshShape::new(&[5, 8])?, wish).expect_err("40 devices");
    assert!(error.to_string().contains("40 devices"), "{error}");
    Ok(line.devices)
}

/// Meshes, submeshes and other shapes of the same devices.
pub fn open() -> Result<()> {
    let mesh = MeshDevice::open_grid(&[2, 4], Options::default())?;
    assert_eq!(mesh.view().ids(), [0, 1, 2, 3, 4, 5, 6, 7]);

    // A box of its devices; boxes may overlap.
    let right = mesh.create_submesh(&[2, 2], Some(&[0, 2]))?;
    assert_eq!(right.view().ids(), [2, 3, 6, 7]);

    // A line runs in a zig-zag, so that neighbours stay neighbours.
    let line = mesh.reshape(&[1, 8])?;
    assert_eq!(line.view().ids(), [0, 1, 2, 3, 7, 6, 5, 4]);

    // Closing gives everything back and tells what was still in use.
    let held = mesh.zeros(&[16])?;
    let leaks = mesh.close()?;
    assert_eq!(leaks.len(), 1);
    drop(held);
    Ok(())
}

/// An array dealt out over a mesh and put together again.
pub fn place(mesh: &MeshDevice) -> Result<()> {
    let host = HostTensor::new(&(0..32).collect::<Vec<i32>>(), &[4, 8])?;

    // Axis 0 of the mesh cuts dim 0, axis 1 cuts dim 1.
    let tiles = mesh.distribute(&host, &MapperConfig::grid(Some(0), Some(1)))?;
    assert_eq!(tiles.placements(), [Placement::Shard(0), Placement::Shard(1)]);
    assert_eq!(tiles.read_shard(5)?.to_vec::<i32>()?, [18, 19, 26, 27]);
    assert_eq!(tiles.to_host()?, host);

    // Copied along axis 0: a composer says that one copy is meant.
    let columns = mesh.distribute(&host, &MapperConfig::grid(None, Some(1)))?;
    let one_copy = ComposerConfig::over(&[0, 1], MeshShape::new(&[1, 4])?);
    assert_eq!(columns.aggregate(&one_copy)?, host);
    Ok(())
}

/// Collectives along an axis of the mesh.
pub fn exchange(mesh: &MeshDevice) -> Result<()> {
    let host = HostTensor::new(&[1.0f32, 2.0, 3.0, 4.0], &[4])?;
    let x = mesh.distribute(&host, &MapperConfig::grid(None, Some(0)))?;

    // Axis 1 runs along a row: the four devices of each row meet.
    let sum = collectives::all_reduce(&x, Reduction::Sum, Along::axis(1))?;
    assert_eq!(sum.to_vec_on(0)?, [10.0]);
    let whole = collectives::all_gather(&x, -1, Along::axis(1))?;
    assert_eq!(whole.to_vec_on(6)?, [1.0, 2.0, 3.0, 4.0]);
    let turned = collectives::shift(&x, 1, Along::axis(1))?;
    assert_eq!(turned.to_vec_on(0)?, [4.0]);

    // What each of them would have carried over the links.
    for line in mesh.runtime().traffic() {
        println!(
            "{}: {} bytes over all links of a row",
            line.collective.name(),
            line.traffic.bytes
        );
    }
    Ok(())
}

/// A trace and its replay.
pub fn replay(mesh: &MeshDevice) -> Result<()> {
    let rows = MapperConfig::grid(Some(0), None);
    let x = mesh.distribute(&HostTensor::new(&[1.0f32, 2.0], &[2])?, &rows)?;
    mesh.begin_capture()?;
    let square = x.mul(&x)?;
    let sum = collectives::all_reduce(&square, Reduction::Sum, Along::axis(0))?;
    let trace = mesh.end_capture()?;

    // New values in the same memory, and the same commands again.
    x.copy_from_host(&HostTensor::new(&[3.0f32, 4.0], &[2])?)?;
    trace.execute()?;
    assert_eq!(sum.to_vec_on(0)?, [25.0]);
    print!("{trace}");
    Ok(())
}

/// All of it.
pub fn run() -> Result<String> {
    describe()?;
    open()?;
    let mesh = MeshDevice::open_grid(&[2, 4], Options::default())?;
    place(&mesh)?;
    exchange(&mesh)?;
    replay(&mesh)?;
    let x = mesh.from_host(&HostTensor::new(&[0.5f32; 4], &[4])?)?;
    Ok(format!(
        "{}{}{x}",
        distributed::visualize_mesh_device(&mesh, 80).plain(),
        distributed::visualize_tensor(&x, 80)?.plain(),
    ))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    println!("{}", run()?);
    Ok(())
}
