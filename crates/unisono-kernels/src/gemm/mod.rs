//! Matrix products in the canonical order, with bias, activation or residual in the epilogue.
//!
//! `c[i, j]` is the sum over the addends of a [`Share`] of `a[i, p] · b[p, j]`: leaves of fused multiply-adds in index
//! order from +0, halvings inside a unit, the tree over units ([`crate::order`]). Each element's order depends on `sum`
//! alone, so tiles, instruction sets, batches and the other dimensions cannot change a bit.
//!
//! # bf16
//!
//! Of two bf16 factors a leaf is taken in pairs of addends, counted from its start; an odd last addend has +0 for a partner
//! in both factors. From `acc` = +0, each pair `p` gives
//!
//! ```text
//! acc = fma(a[2p + 1], b[2p + 1], acc)      the second of the pair first
//! acc = fma(a[2p],     b[2p],     acc)
//! ```
//!
//! in f32, where denormal elements count as zeros of their sign, and a result is made a zero of its sign if it is below
//! 2⁻¹²⁶ once rounded to 24 bits of any exponent ("tiny after rounding": a sum of 2⁻¹²⁶ − 2⁻¹⁵⁰ becomes 0 though f32's
//! denormals would round it up to 2⁻¹²⁶). This is what `vdpbf16ps` of AVX512-BF16 does; elsewhere it is done by f32 operations,
//! to the same bits. Units, leaves and the tree are those of f32, and so are the additions of the tree: plain, denormals
//! kept. A complete sum may go to bf16: the bias is added to the f32 sum and the result rounded; an activation takes
//! the rounded value and is rounded in its turn, so that it can be computed again from what is stored; a residual is added
//! to the rounded value, and that sum is rounded.
//!
//! Where a run chose [`Bf16Order::Tiles`], a leaf is added up as AMX does it instead (`tiles/mod.rs`).
//!
//! Packed panels hold words of 32 bits, an f32 or a pair; a *step* of the micro-kernel takes one word of each output. So
//! everything from the blocks to the register tiles is one source for both, pairs and f32.
//!
//! # Blocking
//!
//! The blocking is that of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): panels of A
//! and B are packed, a register tile of C stays in registers while a block of the contracted dimension runs through it.
//! The tree costs little there: after each leaf the micro-kernel adds the entries that the tree asks for, from a small
//! stack in the first-level cache; blocks are cut along the tree, so that mostly one entry a block outlives it.

mod activations;
pub(crate) mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod blocks;
mod drive;
mod entries;
mod epilogue;
mod feed;
mod job;
mod kernel;
pub mod peak;
mod portable;
mod side;
mod skinny;
mod tiles;
mod tiling;

use crate::bf16_order::Bf16Order;
use crate::element::{Floats, OutFloats, mixed};
use crate::isa::Isa;
use crate::order::Share;
use crate::scratch::Scratch;
use crate::simd;
#[cfg(target_arch = "x86_64")]
use arithmetic::Instruction;
use arithmetic::{Emulated, Single};
use std::marker::PhantomData;

/// A matrix in memory: element (i, j) is `data[i * row_stride + j * col_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    /// The elements.
    pub data: Floats<'a>,
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance between columns.
    pub col_stride: usize,
}

/// What is applied to each element after the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    None,
    /// max(x, 0).
    Relu,
    /// x · Φ(x), by the error function.
    Gelu,
    /// The approximation of GELU by tanh.
    GeluTanh,
    /// x · sigmoid(x).
    Silu,
}

/// `batch` products `c = activation(a · b + bias)`, or a part of their sums.
///
/// Tiles write disjoint parts of `c` (and `pre`) and may run on any worker, in any order.
pub struct Gemm<'a> {
    /// Number of independent products.
    pub batch: usize,
    /// Distance between the products' A.
    pub a_batch: usize,
    /// Distance between the products' B.
    pub b_batch: usize,
    /// Distance between the products' C (and `pre`).
    pub c_batch: usize,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// `[m, k]`, with `k = sum.addends()`; of the same kind as `b`.
    pub a: Mat<'a>,
    /// `[k, n]`.
    pub b: Mat<'a>,
    /// `[m, n]`, columns contiguous, a stack slot every `slot` elements.
    ///
    /// Where `sum.open < sum.from` its slots hold the stack so far; otherwise it needs no value. Complete sums of bf16
    /// factors may go to bf16: rounded after the bias, and after an activation.
    pub c: OutFloats<'a>,
    /// Distance between rows of C.
    pub c_row: usize,
    /// Distance between the stack slots of an element of C.
    pub slot: usize,
    /// The units of the contracted dimension, what is on the stack, what this call adds.
    pub sum: Share,
    /// `[n]`, added after the complete sum.
    pub bias: Option<&'a [f32]>,
    /// Applied after the bias, to the complete sum.
    pub activation: Activation,
    /// Where the value before the activation goes, laid out as `c` and of its kind: just what the activation takes.
    pub pre: Option<OutFloats<'a>>,
    /// Added to the value that `c` would hold otherwise, and rounded again: laid out as `c` and of its kind, and never `c`
    /// itself, since a part may be computed twice. Not after an activation.
    pub residual: Option<Floats<'a>>,
}

impl Gemm<'_> {
    /// Number of tiles.
    pub fn tiles(&self) -> usize {
        self.batch * self.tiling().tiles()
    }

    /// Multiplications and additions: `2 · batch · m · n · k`.
    pub fn flops(&self) -> u64 {
        2 * [self.batch, self.m, self.n, self.sum.addends()]
            .iter()
            .map(|x| *x as u64)
            .product::<u64>()
    }

    /// Computes one tile.
    ///
    /// # Panics
    /// If a dimension reaches past its slice, or an epilogue is asked for on an incomplete sum: bugs in unisono.
    pub fn run(&self, tile: usize, scratch: &mut Scratch) {
        let hardware = Hardware::best(scratch.bf16_order(), scratch.isa());
        self.run_with(tile, scratch, hardware);
    }

    /// [`Gemm::run`], with these instructions for bf16; only for CPUs that have them.
    fn run_with(&self, tile: usize, scratch: &mut Scratch, hardware: Hardware) {
        self.check(tile);
        let isa = simd::checked(scratch.isa());
        // SAFETY: the CPU has the instructions, and `check` compared every extent with its slice; tiles are disjoint.
        unsafe {
            match (self.a.data, self.b.data) {
                (Floats::F32(_), Floats::F32(_)) => match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 => drive::tile::<simd::Avx512, Single>(self, tile, scratch),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => drive::tile::<simd::Avx2, Single>(self, tile, scratch),
                    _ => drive::tile::<simd::Portable, Single>(self, tile, scratch),
                },
                (Floats::Bf16(_), Floats::Bf16(_)) => match scratch.bf16_order() {
                    Bf16Order::Pairs => self.run_pairs(tile, scratch, isa, hardware),
                    Bf16Order::Tiles => self.run_tiles(tile, scratch, isa, hardware),
                },
                _ => mixed("a product"),
            }
        }
    }

    /// A tile of bf16 factors in the order of pairs.
    ///
    /// # Safety
    /// As in [`Gemm::run_with`], where both were checked.
    unsafe fn run_pairs(&self, tile: usize, scratch: &mut Scratch, isa: Isa, hardware: Hardware) {
        // SAFETY: the caller's promise.
        unsafe {
            match (isa, hardware) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, Hardware::Pairs) => drive::tile::<simd::Avx512, Instruction>(self, tile, scratch),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, _) => drive::tile::<simd::Avx512, Emulated>(self, tile, scratch),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, _) => drive::tile::<simd::Avx2, Emulated>(self, tile, scratch),
                _ => drive::tile::<simd::Portable, Emulated>(self, tile, scratch),
            }
        }
    }

    /// A tile of bf16 factors in the order of tiles.
    ///
    /// # Safety
    /// As for [`Gemm::run_pairs`].
    unsafe fn run_tiles(&self, tile: usize, scratch: &mut Scratch, isa: Isa, hardware: Hardware) {
        let widened = tiles::Lanes::<tiles::Widened>(PhantomData);
        // SAFETY: the caller's promise; this thread has no other tile registers in use.
        unsafe {
            match (isa, hardware) {
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, Hardware::Tiles) => {
                    let rows = self.tiling().tile(tile % self.tiling().tiles()).rows;
                    let registers = tiles::amx::Amx::new(tiles::height(rows));
                    tiles::tile::<simd::Avx512, _>(self, tile, scratch, registers);
                }
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, Hardware::Pairs) => {
                    let halves = tiles::Lanes::<tiles::Halves>(PhantomData);
                    tiles::tile::<simd::Avx512, _>(self, tile, scratch, halves);
                }
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx512, _) => tiles::tile::<simd::Avx512, _>(self, tile, scratch, widened),
                #[cfg(target_arch = "x86_64")]
                (Isa::Avx2, _) => tiles::tile::<simd::Avx2, _>(self, tile, scratch, widened),
                _ => tiles::tile::<simd::Portable, _>(self, tile, scratch, widened),
            }
        }
    }

    fn tiling(&self) -> tiling::Tiling {
        tiling::Tiling::of(self.batch, self.m, self.n)
    }

    /// Whether an epilogue follows the sum.
    fn has_epilogue(&self) -> bool {
        self.bias.is_some() || self.pre.is_some() || self.activation != Activation::None || self.residual.is_some()
    }

    /// Whether C takes the sums as they are.
    fn stores_sums(&self) -> bool {
        matches!(self.c, OutFloats::F32(_)) && !self.has_epilogue()
    }

    /// C's slots.
    ///
    /// # Panics
    /// If C is bf16, which has none: excluded by `check`.
    fn sums(&self) -> *mut f32 {
        match self.c {
            OutFloats::F32(c) => c.as_ptr(),
            OutFloats::Bf16(_) => panic!("bug in unisono: stack slots of bf16"),
        }
    }

    fn check(&self, tile: usize) {
        let tiles = self.tiles();
        assert!(
            tile < tiles,
            "bug in unisono: tile {tile} of a product of {tiles} tiles"
        );
        let Share { units, open, from, to } = self.sum;
        assert!(
            open <= from && from <= to && to <= units.count.max(1),
            "bug in unisono: a product over the units {from}..{to} on a stack from {open}, of {}",
            units.count
        );
        let (m, n, k) = (self.m, self.n, self.sum.addends());
        let fits = |what: &str, len: usize, batch_stride: usize, dims: [(usize, usize); 3]| {
            if self.batch == 0 || dims.iter().any(|(count, _)| *count == 0) {
                return;
            }
            let last = dims
                .iter()
                .fold((self.batch - 1) * batch_stride, |at, (count, stride)| {
                    at + (count - 1) * stride
                });
            assert!(
                last < len,
                "bug in unisono: {what} of a product ({m} × {k} × {n}, batch {}) reaches element {last} of {len}",
                self.batch
            );
        };
        let slots = self.sum.slots_before().max(self.sum.slots_after());
        fits(
            "A",
            self.a.data.len(),
            self.a_batch,
            [(m, self.a.row_stride), (k, self.a.col_stride), (1, 0)],
        );
        fits(
            "B",
            self.b.data.len(),
            self.b_batch,
            [(k, self.b.row_stride), (n, self.b.col_stride), (1, 0)],
        );
        fits(
            "C",
            self.c.len(),
            self.c_batch,
            [(m, self.c_row), (n, 1), (slots, self.slot)],
        );
        if let Some(pre) = self.pre {
            fits(
                "the pre-activation",
                pre.len(),
                self.c_batch,
                [(m, self.c_row), (n, 1), (1, 0)],
            );
        }
        if let Some(residual) = self.residual {
            fits(
                "the residual",
                residual.len(),
                self.c_batch,
                [(m, self.c_row), (n, 1), (1, 0)],
            );
            let own = match (residual, self.c) {
                (Floats::F32(x), OutFloats::F32(c)) => x.as_ptr_range().contains(&c.as_ptr().cast_const()),
                (Floats::Bf16(x), OutFloats::Bf16(c)) => x.as_ptr_range().contains(&c.as_ptr().cast_const()),
                _ => false,
            };
            assert!(!own, "bug in unisono: a product is added to its own result");
            assert!(
                self.pre.is_none() && self.activation == Activation::None,
                "bug in unisono: a residual of a product after {:?}",
                self.activation
            );
        }
        if let Some(bias) = self.bias {
            assert!(
                bias.len() >= n,
                "bug in unisono: a bias of {} for {n} columns",
                bias.len()
            );
        }
        assert!(
            !self.has_epilogue() || (open == 0 && from < to && to == units.count),
            "bug in unisono: a bias, an activation or a residual on a sum that is not complete (units {open}..{to} of {})",
            units.count
        );
        let bf16 = matches!(self.c, OutFloats::Bf16(_));
        assert!(
            self.pre.is_none_or(|pre| matches!(pre, OutFloats::Bf16(_)) == bf16),
            "bug in unisono: a product and its pre-activation of two kinds"
        );
        assert!(
            self.residual
                .is_none_or(|residual| matches!(residual, Floats::Bf16(_)) == bf16),
            "bug in unisono: a product and its residual of two kinds"
        );
        assert!(
            !bf16 || (matches!(self.a.data, Floats::Bf16(_)) && from == 0 && 0 < to && to == units.count),
            "bug in unisono: bf16 for what is no complete sum of bf16 factors (units {open}, {from}..{to} of {})",
            units.count
        );
    }
}

/// The instructions for products of bf16 that a CPU has beside its lanes. The bits are the same with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hardware {
    /// None: multiply-adds of f32.
    None,
    /// `vdpbf16ps` of AVX512-BF16.
    Pairs,
    /// AMX, for the order of tiles only.
    Tiles,
}

impl Hardware {
    /// The fastest for an order that this CPU has, for kernels on `isa`.
    fn best(order: Bf16Order, isa: Isa) -> Hardware {
        match order {
            _ if isa != Isa::Avx512 => Hardware::None,
            Bf16Order::Tiles if amx_available() => Hardware::Tiles,
            _ if has_bf16_instruction() => Hardware::Pairs,
            _ => Hardware::None,
        }
    }
}

/// How products of bf16 are computed on this CPU in an order and on an instruction set, for headers: `avx512_bf16`, `amx` or
/// `emulated`. The bits are those of the order.
///
/// The order of tiles is `emulated` where it is put together from AVX512-BF16, too: that takes about three times the work.
pub fn bf16_instruction(order: Bf16Order, isa: Isa) -> &'static str {
    match (order, Hardware::best(order, isa)) {
        (_, Hardware::Tiles) => "amx",
        (Bf16Order::Pairs, Hardware::Pairs) => "avx512_bf16",
        _ => "emulated",
    }
}

/// Whether the CPU has AMX with bf16 and the system lets this process use it: then [`Bf16Order::Tiles`] does, on
/// [`Isa::Avx512`]. The first call asks the system, which on Linux must be asked.
pub fn amx_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return Isa::detect() == Isa::Avx512 && tiles::amx::available();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether the CPU has AVX512-BF16, for kernels on [`Isa::Avx512`].
pub(crate) fn has_bf16_instruction() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512bf16") && Isa::detect() == Isa::Avx512;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(test)]
mod tests;
