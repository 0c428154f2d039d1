//! An operation of one's own with its backward pass: `clamp`, element by element, as a command that every device carries out.
//!
//! `cargo run --release --example custom_operation`

use std::sync::Arc;
use unisono::prelude::*;

/// Elements of a tile; workers take tiles.
const TILE: usize = 16 * 1024;

/// `to = min(max(x, low), high)`, or with the result's gradient `dy` that of `x`.
#[derive(Debug)]
struct Clamp {
    x: BufferRef,
    dy: Option<BufferRef>,
    to: BufferRef,
    low: f32,
    high: f32,
}

impl Op for Clamp {
    fn name(&self) -> &'static str {
        "clamp"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        self.dy.into_iter().for_each(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 2 * self.to.len as u64,
            bytes: 4 * (2 + self.dy.iter().len() as u64) * self.to.len as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.to.len.div_ceil(TILE)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let from = tile * TILE;
        let len = TILE.min(self.to.len - from);
        let x = &place.f32(self.x)[from..from + len];
        let to = place.write(self.to, from, len);
        match self.dy {
            None => to
                .iter_mut()
                .zip(x)
                .for_each(|(to, x)| *to = x.max(self.low).min(self.high)),
            Some(dy) => {
                let dy = &place.f32(dy)[from..from + len];
                for ((to, x), dy) in to.iter_mut().zip(x).zip(dy) {
                    *to = if (self.low..=self.high).contains(x) { *dy } else { 0.0 };
                }
            }
        }
    }
}

/// Every element brought into `low..=high`.
pub fn clamp(x: &Tensor, low: f32, high: f32) -> Result<Tensor> {
    let y = x.empty_like()?;
    let command = move |x: &Tensor, dy: Option<&Tensor>, to: &Tensor| Clamp {
        x: x.buffer(),
        dy: dy.map(Tensor::buffer),
        to: to.buffer(),
        low,
        high,
    };
    x.device().issue(Arc::new(command(x, None, &y)))?;
    let saved = x.detach();
    y.with_backward("clamp", &[x], move |dy| {
        let dx = saved.empty_like()?;
        dx.device().issue(Arc::new(command(&saved, Some(dy), &dx)))?;
        Ok(vec![Some(dx)])
    })
}

/// The values of `clamp(x, -1, 1)²`, summed, and the gradient of `x`.
pub fn pass(mesh: &str) -> Result<(f32, Vec<f32>)> {
    let device = MeshDevice::open(Mesh::parse(mesh)?, Options::default())?;
    let x = device.batch(&[-3.0, -0.5, 0.25, 2.0], &[4, 1])?.requires_grad()?;
    let y = clamp(&x, -1.0, 1.0)?;
    let sum = y.mul(&y)?.sum()?;
    sum.backward()?;
    let gradient = x.grad()?.map(|gradient| gradient.to_vec()).transpose()?;
    Ok((sum.item()?, gradient.unwrap_or_default()))
}

#[allow(dead_code)]
fn main() -> Result<()> {
    for mesh in ["dp=1", "dp=2", "dp=4"] {
        let (sum, gradient) = pass(mesh)?;
        println!("{mesh}: sum {sum}, gradient {gradient:?}");
    }
    Ok(())
}
