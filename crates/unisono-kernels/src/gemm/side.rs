//! A side of a product in memory, and the packing of its panels at once.

use super::Gemm;
use super::arithmetic::Arithmetic;
use super::kernel::{Kernel, Work};
use crate::element::Floats;
use crate::simd::LANES;

/// Floats that packing may write past a panel's end.
pub(super) const SLACK: usize = 16;

/// A matrix side to be packed: outputs are rows of A or columns of B, steps run along the contracted dimension.
#[derive(Clone, Copy)]
pub(super) struct Side {
    /// Output 0, step 0; of odd leaves the call's first addend.
    pub src: *const u8,
    /// Bytes between outputs, between addends, of an element.
    out: usize,
    pub addend: usize,
    size: usize,
    /// Bytes between steps, where leaves are not odd.
    step: usize,
    /// Addends of a leaf if it ends with a step that lacks its last one; otherwise 0.
    odd_leaf: usize,
    /// The first step, where leaves are odd.
    first: usize,
}

/// How a side lies in memory, as far as packing minds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Outputs are contiguous, steps this many bytes apart.
    Outputs(usize),
    /// The words of consecutive steps are contiguous, outputs this many bytes apart.
    Steps(usize),
    /// Neither, or leaves are odd.
    Other,
}

impl Side {
    /// The side whose output 0 begins at element `from`, with these distances in elements, and leaves of `leaf` addends.
    fn new<K: Kernel, A: Arithmetic<K>>(data: Floats, from: usize, out: usize, addend: usize, leaf: usize) -> Side {
        let size = size_of::<A::Element>();
        Side {
            src: data.address().wrapping_add(from * size),
            out: out * size,
            addend: addend * size,
            size,
            step: addend * size * A::ADDENDS,
            odd_leaf: if leaf.is_multiple_of(A::ADDENDS) { 0 } else { leaf },
            first: 0,
        }
    }

    /// A of product `batch`, from row `row` on.
    pub fn of_a<K: Kernel, A: Arithmetic<K>>(g: &Gemm, batch: usize, row: usize) -> Side {
        let from = batch * g.a_batch + row * g.a.row_stride;
        Side::new::<K, A>(g.a.data, from, g.a.row_stride, g.a.col_stride, g.sum.units.leaf())
    }

    /// B of product `batch`, from column `col` on.
    pub fn of_b<K: Kernel, A: Arithmetic<K>>(g: &Gemm, batch: usize, col: usize) -> Side {
        let from = batch * g.b_batch + col * g.b.col_stride;
        Side::new::<K, A>(g.b.data, from, g.b.col_stride, g.b.row_stride, g.sum.units.leaf())
    }

    /// No side.
    pub fn none() -> Side {
        Side {
            src: std::ptr::null(),
            out: 0,
            addend: 0,
            size: 0,
            step: 0,
            odd_leaf: 0,
            first: 0,
        }
    }

    /// The side from this output and step on.
    #[inline(always)]
    pub fn at(&self, output: usize, step: usize) -> Side {
        let src = self.src.wrapping_add(output * self.out);
        if self.odd_leaf == 0 {
            Side {
                src: src.wrapping_add(step * self.step),
                ..*self
            }
        } else {
            Side {
                src,
                first: self.first + step,
                ..*self
            }
        }
    }

    /// How it lies in memory.
    #[inline(always)]
    pub fn layout(&self) -> Layout {
        if self.odd_leaf > 0 {
            Layout::Other
        } else if self.out == self.size {
            Layout::Outputs(self.step)
        } else if self.addend == self.size {
            Layout::Steps(self.out)
        } else {
            Layout::Other
        }
    }

    /// Where the first addend of output 0 and step 0 is.
    #[inline(always)]
    pub fn address(&self) -> *const u8 {
        if self.odd_leaf == 0 {
            self.src
        } else {
            let steps = self.odd_leaf.div_ceil(2);
            let addend = self.first / steps * self.odd_leaf + self.first % steps * 2;
            self.src.wrapping_add(addend * self.addend)
        }
    }

    /// One word of a panel.
    ///
    /// # Safety
    /// The output has the step.
    pub unsafe fn word(&self, output: usize, step: usize) -> u32 {
        let side = self.at(output, step);
        let from = side.address();
        // SAFETY: the caller's promise; an odd leaf's last step has one addend only.
        unsafe {
            if self.size == 4 {
                return from.cast::<u32>().read();
            }
            let even = from.cast::<u16>().read();
            let steps = self.odd_leaf.div_ceil(2);
            let odd = if steps > 0 && side.first % steps + 1 == steps {
                0
            } else {
                from.wrapping_add(self.addend).cast::<u16>().read()
            };
            u32::from(odd) << 16 | u32::from(even)
        }
    }

    /// Packs `outs × k` words with the fastest routine that fits the strides: step p at `dst[p * width..]`.
    ///
    /// # Safety
    /// The CPU has K's instruction set, the elements exist, `dst` has room for them and [`SLACK`] more.
    pub unsafe fn pack<K: Kernel, A: Arithmetic<K>>(&self, outs: usize, k: usize, dst: *mut f32, width: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.layout() {
                Layout::Outputs(_) => K::call::<A, _>(PackOutputs {
                    side: self,
                    outs,
                    k,
                    dst,
                    width,
                }),
                Layout::Steps(out) => K::pack_steps(self.address(), out, outs, k, dst, width),
                Layout::Other => pack_any(self, outs, k, dst, width),
            }
        }
    }

    /// Asks for the lines of `outs × k` words.
    #[inline(always)]
    pub fn prefetch<K: Kernel>(&self, outs: usize, k: usize) {
        let (rows, len, stride) = match self.layout() {
            Layout::Outputs(step) => (k * (step / self.addend.max(1)), outs * self.size, self.addend),
            Layout::Steps(out) => (outs, 4 * k, out),
            Layout::Other => return,
        };
        let src = self.address();
        for row in 0..rows {
            let first = src.wrapping_add(row * stride);
            let mut line = (first as usize & !63) as *const u8;
            let end = first.wrapping_add(len);
            while line < end {
                K::prefetch(line);
                line = line.wrapping_add(64);
            }
        }
    }
}

/// Packs `k` steps of `outs` contiguous outputs in vectors, +0 for `outs ≤ o < width`. Writes at most 16 floats past the
/// panel's end.
struct PackOutputs<'a> {
    side: &'a Side,
    outs: usize,
    k: usize,
    dst: *mut f32,
    width: usize,
}

impl<K: Kernel, A: Arithmetic<K>> Work<K, A> for PackOutputs<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run(self, s: K) {
        let row = self.side.addend;
        let mut src = self.side.address();
        let size = size_of::<A::Element>();
        // SAFETY: partial loads leave out what is not there. Stores run in ascending order, so that what they spill past a
        // step is overwritten by the next one.
        unsafe {
            for p in 0..self.k {
                let dst = self.dst.add(p * self.width);
                for o in (0..self.width).step_by(LANES) {
                    let n = self.outs.saturating_sub(o).min(LANES);
                    let from = src.wrapping_add(o * size);
                    let words = if n == LANES {
                        A::load(s, from, row)
                    } else {
                        A::load_partial(s, from, row, n, A::ADDENDS)
                    };
                    s.store(dst.add(o), words);
                }
                src = src.wrapping_add(row * A::ADDENDS);
            }
        }
    }
}

/// Packs word by word, whatever the strides.
///
/// # Safety
/// The side has `outs × k` words, and `dst` room for `width × k`.
unsafe fn pack_any(side: &Side, outs: usize, k: usize, dst: *mut f32, width: usize) {
    for p in 0..k {
        for o in 0..width {
            // SAFETY: the caller's promise.
            unsafe { *dst.add(p * width + o).cast::<u32>() = if o < outs { side.word(o, p) } else { 0 } };
        }
    }
}
