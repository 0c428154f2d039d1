//! Capture once, replay with other inputs: the commands of two submeshes become one trace.
//!
//! `cargo run --release --example mesh_trace`

#[path = "common/mlp.rs"]
pub mod mlp;

use mlp::Sizes;
use unisono::prelude::*;

/// What a run has shown.
pub struct Shown {
    /// The trace, printed.
    pub trace: String,
    /// Commands and floating-point operations of each device.
    pub by_device: Vec<(u64, u64)>,
    /// What executing after the release says.
    pub error: String,
}

/// The MLP with an all-gather between its layers, on one submesh.
fn forward(x: &Tensor, up: &Tensor, down: &Tensor) -> Result<Tensor> {
    let part = x.linear(up, None, Activation::GeluTanh)?;
    let inner = collectives::all_gather(&part, -1, Along::axis(1))?;
    inner.linear(down, None, Activation::None)
}

/// Captures the MLP on both rows of a 2×4 mesh, replays it for some batches and compares with the program as it is.
pub fn run(batches: u32, sizes: Sizes) -> Result<Shown> {
    let mesh = MeshDevice::open_grid(&[2, 4], Options::default())?;
    let columns = MapperConfig::grid(None, Some(1));
    let rows = mesh.create_submeshes(&[1, 4])?;
    let mut placed = Vec::new();
    for row in &rows {
        let x = row.from_host(&sizes.x(0)?)?;
        placed.push((
            x,
            row.distribute(&sizes.up()?, &columns)?,
            row.distribute(&sizes.down()?, &columns)?,
        ));
    }

    mesh.begin_capture()?;
    let outputs = placed.iter().map(|(x, up, down)| forward(x, up, down));
    let outputs = outputs.collect::<Result<Vec<Tensor>>>()?;
    let trace = mesh.end_capture()?;

    for batch in 0..batches {
        // New values in the memory that the captured commands read: the rows get batches of their own.
        for (row, (x, ..)) in (0..).zip(&placed) {
            x.copy_from_host(&sizes.x(2 * batch + row)?)?;
        }
        trace.execute()?;
        for (row, (y, (x, up, down))) in (0..).zip(outputs.iter().zip(&placed)) {
            let replayed = y.to_host()?;
            assert_eq!(
                replayed,
                forward(x, up, down)?.to_host()?,
                "the bits of the program itself"
            );
            let plain = sizes.plain(2 * batch + row, 1)?;
            assert_with_pcc(&replayed.to_vec::<f32>()?[..plain.len()], &plain, 0.98);
        }
    }

    let by_device = trace
        .by_device()
        .iter()
        .map(|work| (work.commands, work.flops))
        .collect();
    let text = trace.to_string();
    trace.release();
    let error = trace.execute().expect_err("it was released").to_string();
    Ok(Shown {
        trace: text,
        by_device,
        error,
    })
}

#[allow(dead_code)]
fn main() -> Result<()> {
    let shown = run(3, mlp::SMALL)?;
    print!("{}", shown.trace);
    for (device, (commands, flops)) in shown.by_device.iter().enumerate() {
        println!("device {device}: {commands} commands, {flops} FLOP");
    }
    println!("after its release: {}", shown.error);
    Ok(())
}
