//! What a worker brings to a kernel: the instruction set, and memory that is kept from call to call.

use crate::isa::Isa;

/// A 64-byte line of floats, so that a `Vec` of them is aligned for every vector load.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; 16]);

/// A worker's instruction set and its grow-only scratch memory.
pub struct Scratch {
    isa: Isa,
    lines: Vec<Line>,
}

impl Scratch {
    /// Scratch for kernels on `isa`; holds no memory yet.
    pub fn new(isa: Isa) -> Scratch {
        Scratch { isa, lines: Vec::new() }
    }

    /// The instruction set that kernels are to use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// `len` floats, 64-byte aligned, with whatever an earlier kernel left in them. Grows at most once a size.
    pub fn floats(&mut self, len: usize) -> &mut [f32] {
        let lines = len.div_ceil(16);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0.0; 16]));
        }
        // SAFETY: `Line` is exactly 16 floats without padding (repr(C), 64 bytes), so `lines` lines are 16 × lines
        // initialised floats; the borrow of `self` keeps them alive and unshared.
        let floats = unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<f32>(), lines * 16) };
        &mut floats[..len]
    }
}
