//! Optimizer updates, and the control numbers that they obey.

use super::{bytes, chunk, chunks};
use crate::buffer::BufferRef;
use crate::command::{Cost, Op};
use crate::place::Place;
use std::ops::Range;
use unisono_kernels::element::{Bf16, FloatsMut};
use unisono_kernels::optimizer as kernel;
pub use unisono_kernels::optimizer::{AdamW, Sgd};
use unisono_kernels::scratch::Scratch;
use unisono_mesh::Mesh;

/// Elements of the control buffer: see [`Control`].
pub const CONTROL: usize = 4;

/// The numbers that an update obeys, worked out on the device: `[norm, scale, go, loss]`.
///
/// `norm` is the global gradient norm, the square root of the parameters' squared norms added in the table's order;
/// `scale` what gradients are multiplied by (1, or `max_norm / (norm + 1e-6)` where that is smaller); `go` is 1 where norm
/// and loss are finite and 0 otherwise: then no update is made. Once it is 0 it stays 0, so that the steps which the host
/// had issued before it heard of the bad one change nothing either; set it to 1 before the first step.
#[derive(Clone, Debug)]
pub struct Control {
    /// Squared norms, one a parameter, in the order of the model's table; empty for no norm.
    pub squares: Option<BufferRef>,
    /// The step's loss.
    pub loss: Option<BufferRef>,
    /// Gradients of a larger norm are scaled down to this.
    pub max_norm: Option<f32>,
    /// [`CONTROL`] numbers.
    pub to: BufferRef,
}

impl Op for Control {
    fn name(&self) -> &'static str {
        "control"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        self.squares.map(&mut *see);
        self.loss.map(&mut *see);
        see(self.to);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.to);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost::default()
    }

    fn tiles(&self) -> usize {
        1
    }

    fn run(&self, place: &Place<'_>, _tile: usize, _scratch: &mut Scratch) {
        let total = self
            .squares
            .map_or(0.0, |squares| place.f32(squares).iter().fold(0.0f32, |sum, s| sum + s));
        let norm = total.sqrt();
        let loss = self.loss.map_or(0.0, |loss| place.f32(loss)[0]);
        let scale = match self.max_norm {
            Some(max) if norm > max => max / (norm + 1e-6),
            _ => 1.0,
        };
        let before = place.f32(self.to)[2];
        let go = if before != 0.0 && norm.is_finite() && loss.is_finite() {
            1.0
        } else {
            0.0
        };
        place
            .write(self.to, 0, CONTROL)
            .copy_from_slice(&[norm, scale, go, loss]);
    }
}

/// What the control buffer says on this device: the gradients' scale, or `None` for no update.
fn allowed(place: &Place<'_>, control: Option<BufferRef>) -> Option<f32> {
    match control.map(|control| place.f32(control)) {
        Some([_, _, 0.0, ..]) => None,
        Some(control) => Some(control[1]),
        None => Some(1.0),
    }
}

/// The part of a parameter's copy that a tile writes.
fn part_of_copy<'a>(place: &Place<'a>, copy: Option<BufferRef>, range: &Range<usize>) -> Option<&'a mut [Bf16]> {
    match place.write_floats(copy?, range.start, range.len()) {
        FloatsMut::Bf16(copy) => Some(copy),
        FloatsMut::F32(_) => panic!("bug in unisono: a parameter's copy {copy:?} is not bf16"),
    }
}

/// One AdamW update of a parameter.
#[derive(Clone, Debug)]
pub struct AdamWStep {
    /// Hyperparameters of this step; `grad_scale` is taken from `control`.
    pub hyper: AdamW,
    /// [`Control`] numbers.
    pub control: Option<BufferRef>,
    /// Parameter.
    pub p: BufferRef,
    /// First moments.
    pub m: BufferRef,
    /// Second moments.
    pub v: BufferRef,
    /// Gradient.
    pub g: BufferRef,
    /// As many elements in bf16, which become the updated parameter, rounded; nothing is written where no update is made.
    pub copy: Option<BufferRef>,
}

impl Op for AdamWStep {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.p, self.m, self.v, self.g] {
            see(buffer);
        }
        self.control.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        for buffer in [self.p, self.m, self.v] {
            see(buffer);
        }
        self.copy.map(see);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 14 * self.p.len as u64,
            bytes: 7 * bytes(&[self.p]) + self.copy.map_or(0, |copy| copy.bytes()),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.p.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let Some(grad_scale) = allowed(place, self.control) else {
            return;
        };
        let range = chunk(tile, self.p.len);
        let part = |buffer| place.write(buffer, range.start, range.len());
        let hyper = AdamW {
            grad_scale,
            ..self.hyper
        };
        let g = &place.f32(self.g)[range.clone()];
        let (p, m, v) = (part(self.p), part(self.m), part(self.v));
        let copy = part_of_copy(place, self.copy, &range);
        kernel::adamw(scratch.isa(), &hyper, p, m, v, g, copy);
    }
}

/// One SGD update of a parameter.
#[derive(Clone, Debug)]
pub struct SgdStep {
    /// Hyperparameters of this step; `grad_scale` is taken from `control`.
    pub hyper: Sgd,
    /// [`Control`] numbers.
    pub control: Option<BufferRef>,
    /// Parameter.
    pub p: BufferRef,
    /// Momentum, where there is any.
    pub momentum: Option<BufferRef>,
    /// Gradient.
    pub g: BufferRef,
    /// As many elements in bf16, which become the updated parameter, rounded; nothing is written where no update is made.
    pub copy: Option<BufferRef>,
}

impl Op for SgdStep {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn reads(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.p);
        see(self.g);
        self.momentum.map(&mut *see);
        self.control.map(see);
    }

    fn writes(&self, see: &mut dyn FnMut(BufferRef)) {
        see(self.p);
        self.momentum.map(&mut *see);
        self.copy.map(see);
    }

    fn cost(&self, _mesh: &Mesh) -> Cost {
        Cost {
            flops: 4 * self.p.len as u64,
            bytes: 4 * bytes(&[self.p]) + self.copy.map_or(0, |copy| copy.bytes()),
            link_bytes: 0,
        }
    }

    fn tiles(&self) -> usize {
        chunks(self.p.len)
    }

    fn run(&self, place: &Place<'_>, tile: usize, scratch: &mut Scratch) {
        let Some(grad_scale) = allowed(place, self.control) else {
            return;
        };
        let range = chunk(tile, self.p.len);
        let part = |buffer| place.write(buffer, range.start, range.len());
        let hyper = Sgd {
            grad_scale,
            ..self.hyper
        };
        let g = &place.f32(self.g)[range.clone()];
        let copy = part_of_copy(place, self.copy, &range);
        kernel::sgd(scratch.isa(), &hyper, part(self.p), self.momentum.map(part), g, copy);
    }
}
