//! The guide's operation: `max(x, 0)²`, with its backward pass. Source: So et al., *Primer* (2021).
//!
//! `CONTRIBUTING.md` holds this file word by word; the test `the_examples_are_the_files` compares them.

use std::sync::Arc;
use unisono_kernels::scratch::Scratch;
use unisono_runtime::{BufferRef, Cost, Op, Place};
use unisono_tensor::{Mesh, MeshDevice, Options, Result, Tensor};

/// Elements of a tile: large enough to pay for itself, small enough to share out.
const TILE: usize = 16 * 1024;

/// `to = max(x, 0)²`, or with the result's gradient `dy` that of the argument.
#[derive(Debug)]
struct SquaredRelu {
    x: BufferRef,
    dy: Option<BufferRef>,
    to: BufferRef,
}

impl Op for SquaredRelu {
    fn name(&self) -> &'static str {
        "squared_relu"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        self.dy.into_iter().for_each(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let buffers = 2 + self.dy.iter().len();
        Cost {
            flops: 2 * self.to.len as u64,
            bytes: (4 * buffers * self.to.len) as u64,
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        self.to.len.div_ceil(TILE)
    }

    fn run(&self, place: &Place<'_>, tile: usize, _scratch: &mut Scratch) {
        let from = tile * TILE;
        let len = TILE.min(self.to.len - from);
        let x = &place.f32(self.x)[from..][..len];
        let to = place.write(self.to, from, len);
        let relu = |x: f32| if x > 0.0 { x } else { 0.0 };
        match self.dy {
            None => to.iter_mut().zip(x).for_each(|(to, x)| *to = relu(*x) * relu(*x)),
            Some(dy) => {
                let dy = &place.f32(dy)[from..][..len];
                for ((to, x), dy) in to.iter_mut().zip(x).zip(dy) {
                    // What is stored has +0 added once, so that no −0 comes out.
                    *to = 2.0 * relu(*x) * dy + 0.0;
                }
            }
        }
    }
}

/// `max(x, 0)²`, element by element, for any placement but a partial sum.
fn squared_relu(x: &Tensor) -> Result<Tensor> {
    let y = x.empty_like()?;
    let forward = SquaredRelu {
        x: x.buffer(),
        dy: None,
        to: y.buffer(),
    };
    x.device().issue(Arc::new(forward))?;
    let x_saved = x.detach();
    y.with_backward("squared_relu", &[x], move |dy| {
        let dx = x_saved.empty_like()?;
        let backward = SquaredRelu {
            x: x_saved.buffer(),
            dy: Some(dy.buffer()),
            to: dx.buffer(),
        };
        dx.device().issue(Arc::new(backward))?;
        Ok(vec![Some(dx)])
    })
}

#[test]
fn every_mesh_gives_the_values_of_plain_loops() {
    let (rows, cols) = (4, 5000);
    let x: Vec<f32> = (0..rows * cols).map(|i| (i % 7) as f32 - 3.0).collect();
    let relu = |x: &f32| x.max(0.0);
    let values: Vec<f32> = x.iter().map(|x| relu(x) * relu(x)).collect();
    let gradients: Vec<f32> = x.iter().map(|x| 2.0 * relu(x)).collect();
    for axes in [&[][..], &[("dp", 2)], &[("dp", 2), ("tp", 2)]] {
        let device = MeshDevice::open(Mesh::new(axes).expect("a mesh"), Options::default()).expect("devices");
        let run = || -> Result<_> {
            let x = device.batch(&x, &[rows, cols])?.requires_grad()?;
            let y = squared_relu(&x)?;
            y.sum()?.backward()?;
            let gradient = x.grad()?.expect("x takes part in the sum");
            Ok((y.to_vec()?, gradient.to_vec()?))
        };
        let (y, dx) = run().expect("it runs");
        assert!(y == values && dx == gradients, "{axes:?}");
    }
}
