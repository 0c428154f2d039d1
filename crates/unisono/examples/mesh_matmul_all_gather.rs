//! A matrix product whose left factor is gathered first, and what that costs the links.
//!
//! `cargo run --release --example mesh_matmul_all_gather`

use unisono::prelude::*;

const ROWS: usize = 32;
const INNER: usize = 256;
const COLS: usize = 64;

/// `x · w` on a line of devices, with the bytes that the all-gather carried over all links.
pub fn product(devices: usize, topology: Topology) -> Result<(HostTensor, u64)> {
    let mesh = MeshDevice::open_grid(&[1, devices], Options::default())?;
    let values: Vec<f32> = (0..ROWS * INNER).map(|i| (i * i % 23) as f32 / 11.0 - 1.0).collect();
    let weights: Vec<f32> = (0..INNER * COLS).map(|i| (i * i % 29) as f32 / 14.0 - 1.0).collect();
    // Each device holds a slice of the columns of both factors.
    let columns = MapperConfig::grid(None, Some(-1));
    let x = mesh.distribute(&HostTensor::new(&values, &[ROWS, INNER])?, &columns)?;
    let w = mesh.distribute(&HostTensor::new(&weights, &[INNER, COLS])?, &columns)?;
    let along = Along {
        topology: Some(topology),
        ..Along::axis(1)
    };
    let whole = collectives::all_gather(&x, -1, along)?;
    let y = whole.matmul(&w)?;
    let bytes = mesh.runtime().traffic().iter().map(|line| line.traffic.bytes).sum();
    Ok((y.to_host()?, bytes))
}

/// The product on one device; the correlation with plain loops.
pub fn one() -> Result<(HostTensor, f64)> {
    let (y, _) = product(1, Topology::Linear)?;
    let mut plain = vec![0.0f32; ROWS * COLS];
    for (i, y) in plain.iter_mut().enumerate() {
        let (row, col) = (i / COLS, i % COLS);
        let addend = |k: usize| {
            let (x, w) = (row * INNER + k, k * COLS + col);
            ((x * x % 23) as f64 / 11.0 - 1.0) * ((w * w % 29) as f64 / 14.0 - 1.0)
        };
        *y = (0..INNER).map(addend).sum::<f64>() as f32;
    }
    let correlation = assert_with_pcc(&y.to_vec::<f32>()?, &plain, 0.98);
    Ok((y, correlation))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let (one, correlation) = one()?;
    println!("correlation with plain loops: {correlation:.9}");
    for devices in [2, 4, 8] {
        for topology in [Topology::Linear, Topology::Ring] {
            let (y, bytes) = product(devices, topology)?;
            assert_eq!(y, one, "the bits are those of one device");
            println!("{devices} devices, {topology:?}: {bytes} bytes over all links, the bits of one device");
        }
    }
    Ok(())
}
