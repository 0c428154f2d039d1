//! Elementwise operations. The arrays of one are of one kind, f32 or bf16; its scalars are f32 in either case.

use super::{bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use unisono_kernels::element::{Floats, FloatsMut};
pub use unisono_kernels::elementwise::{Binary, Unary};
use unisono_kernels::elementwise::{binary, binary_scalar, scalar_binary, unary, unary_grad};
use unisono_kernels::isa::Isa;
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// `to = f(x)`.
#[derive(Clone, Debug)]
pub struct Map {
    /// The function.
    pub f: Unary,
    /// Argument.
    pub x: BufferRef,
    /// Result.
    pub to: BufferRef,
}

impl Op for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: self.to.len as u64,
            bytes: bytes(&[self.x, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        let to = place.write_floats(self.to, range.start, range.len());
        unary(scratch.isa(), self.f, place.floats(self.x).range(range), to);
    }
}

/// `to = dy · f'(x)`.
#[derive(Clone, Debug)]
pub struct MapGrad {
    /// The function.
    pub f: Unary,
    /// Its argument.
    pub x: BufferRef,
    /// Gradient of its result.
    pub dy: BufferRef,
    /// Gradient of its argument.
    pub to: BufferRef,
}

impl Op for MapGrad {
    fn name(&self) -> &'static str {
        "map_grad"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.x);
        see(self.dy);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 2 * self.to.len as u64,
            bytes: bytes(&[self.x, self.dy, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        let to = place.write_floats(self.to, range.start, range.len());
        unary_grad(
            scratch.isa(),
            self.f,
            place.floats(self.x).range(range.clone()),
            place.floats(self.dy).range(range),
            to,
        );
    }
}

/// The right operand of [`Combine`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// As many elements as the left operand, or a suffix of its dimensions: element `i` meets element `i mod len`.
    Buffer(BufferRef),
    /// One number that the host knows.
    Value(f32),
    /// One number that only the device knows, of any kind.
    Scalar(BufferRef),
}

/// `to = f(a, b)`, or `f(b, a)` where `swapped`.
#[derive(Clone, Debug)]
pub struct Combine {
    /// The function.
    pub f: Binary,
    /// Left operand, as many elements as the result.
    pub a: BufferRef,
    /// Right operand.
    pub b: Operand,
    /// Whether the operands change places.
    pub swapped: bool,
    /// Result.
    pub to: BufferRef,
}

impl Combine {
    fn apply(&self, isa: Isa, a: Floats<'_>, b: Floats<'_>, to: FloatsMut<'_>) {
        if self.swapped {
            binary(isa, self.f, b, a, to);
        } else {
            binary(isa, self.f, a, b, to);
        }
    }
}

impl Op for Combine {
    fn name(&self) -> &'static str {
        "combine"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.a);
        if let Operand::Buffer(b) | Operand::Scalar(b) = self.b {
            see(b);
        }
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        let b = if let Operand::Buffer(b) = self.b {
            bytes(&[b])
        } else {
            0
        };
        Cost {
            flops: self.to.len as u64,
            bytes: b + bytes(&[self.a, self.to]),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.to.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let range = chunk(tile, self.to.len);
        let a = place.floats(self.a).range(range.clone());
        let mut to = place.write_floats(self.to, range.start, range.len());
        let value = match self.b {
            Operand::Value(value) => value,
            Operand::Scalar(buffer) => place.floats(buffer).at(0),
            Operand::Buffer(b) => {
                let b = place.floats(b);
                let mut done = 0;
                while done < to.len() {
                    let at = (range.start + done) % b.len();
                    let len = (b.len() - at).min(to.len() - done);
                    self.apply(
                        scratch.isa(),
                        a.range(done..done + len),
                        b.range(at..at + len),
                        to.range(done..done + len),
                    );
                    done += len;
                }
                return;
            }
        };
        if self.swapped {
            scalar_binary(scratch.isa(), self.f, value, a, to);
        } else {
            binary_scalar(scratch.isa(), self.f, a, value, to);
        }
    }
}
