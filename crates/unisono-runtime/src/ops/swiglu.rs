//! The gated activation `silu(gate) · up` and its gradients. The arrays of one command are of one kind, f32 or bf16.

use super::{bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::elementwise::{swiglu, swiglu_grad};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to = silu(gate) · up`.
#[derive(Clone, Debug)]
pub struct Swiglu {
    /// Argument of the activation.
    pub gate: BufferRef,
    /// What it gates.
    pub up: BufferRef,
    /// Result.
    pub to: BufferRef,
}

impl Op for Swiglu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.gate);
        see(self.up);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 2 * self.to.len as u64,
            bytes: bytes(&[self.gate, self.up, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        let to = place.write_floats(self.to, range.start, range.len());
        let gate = place.floats(self.gate).range(range.clone());
        swiglu(scratch.isa(), gate, place.floats(self.up).range(range), to);
    }
}

/// The gradients of [`Swiglu`].
#[derive(Clone, Debug)]
pub struct SwigluGrad {
    /// Argument of the activation.
    pub gate: BufferRef,
    /// What it gates.
    pub up: BufferRef,
    /// Gradient of the result.
    pub dy: BufferRef,
    /// Gradient of `gate`.
    pub d_gate: BufferRef,
    /// Gradient of `up`.
    pub d_up: BufferRef,
}

impl Op for SwigluGrad {
    fn name(&self) -> &'static str {
        "swiglu_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.gate, self.up, self.dy] {
            see(buffer);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.d_gate);
        see(self.d_up);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 7 * self.dy.len as u64,
            bytes: bytes(&[self.gate, self.up, self.dy, self.d_gate, self.d_up]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.dy.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.dy.len);
        let part = |buffer: BufferRef| place.floats(buffer).range(range.clone());
        let to = |buffer: BufferRef| place.write_floats(buffer, range.start, range.len());
        swiglu_grad(
            scratch.isa(),
            part(self.gate),
            part(self.up),
            part(self.dy),
            to(self.d_gate),
            to(self.d_up),
        );
    }
}
