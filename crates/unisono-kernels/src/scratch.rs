//! What a worker brings to a kernel: the instruction set, the order of bf16 products, and memory that is kept from call to call.

use crate::bf16_order::Bf16Order;
use crate::isa::Isa;

/// A 64-byte line of floats, so that a `Vec` of them is aligned for every vector load.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([f32; 16]);

/// A worker's instruction set, its order of bf16 products and its grow-only scratch memory.
pub struct Scratch {
    isa: Isa,
    bf16_order: Bf16Order,
    lines: Vec<Line>,
    result: Vec<Line>,
}

/// A second piece of a worker's memory, taken out of its [`Scratch`] so that a kernel can use the scratch meanwhile.
pub struct ResultMemory {
    lines: Vec<Line>,
    len: usize,
}

impl ResultMemory {
    /// The floats that were asked for, with whatever an earlier use left in them.
    pub fn floats(&mut self) -> &mut [f32] {
        &mut floats_of(&mut self.lines)[..self.len]
    }
}

fn floats_of(lines: &mut [Line]) -> &mut [f32] {
    // SAFETY: `Line` is exactly 16 floats without padding (repr(C), 64 bytes), so the lines are 16 × as many initialised
    // floats; the borrow of `lines` keeps them alive and unshared.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<f32>(), lines.len() * 16) }
}

impl Scratch {
    /// Scratch for kernels on `isa`, with products of bf16 in the default order; holds no memory yet.
    pub fn new(isa: Isa) -> Scratch {
        Scratch::with_order(isa, Bf16Order::default())
    }

    /// Scratch for kernels on `isa`, with products of bf16 in this order; holds no memory yet.
    pub fn with_order(isa: Isa, bf16_order: Bf16Order) -> Scratch {
        Scratch {
            isa,
            bf16_order,
            lines: Vec::new(),
            result: Vec::new(),
        }
    }

    /// The instruction set that kernels are to use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The order in which products of bf16 are to add up.
    pub fn bf16_order(&self) -> Bf16Order {
        self.bf16_order
    }

    /// `len` floats, 64-byte aligned, with whatever an earlier kernel left in them. Grows at most once a size.
    pub fn floats(&mut self, len: usize) -> &mut [f32] {
        let lines = len.div_ceil(16);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0.0; 16]));
        }
        &mut floats_of(&mut self.lines)[..len]
    }

    /// Parts of the scratch memory of these lengths, one after the other, each 64-byte aligned.
    pub(crate) fn parts<const N: usize>(&mut self, lens: [usize; N]) -> [*mut f32; N] {
        let rounded = lens.map(|len| len.next_multiple_of(16));
        let mut rest = self.floats(rounded.iter().sum());
        rounded.map(|len| {
            let (part, others) = std::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            part.as_mut_ptr()
        })
    }

    /// Takes out `len` floats of result memory; give them back with [`Scratch::put_result`], so that they are kept.
    pub fn take_result(&mut self, len: usize) -> ResultMemory {
        let mut lines = std::mem::take(&mut self.result);
        let wanted = len.div_ceil(16);
        if lines.len() < wanted {
            lines.resize(wanted, Line([0.0; 16]));
        }
        ResultMemory { lines, len }
    }

    /// Gives result memory back.
    pub fn put_result(&mut self, memory: ResultMemory) {
        self.result = memory.lines;
    }
}
