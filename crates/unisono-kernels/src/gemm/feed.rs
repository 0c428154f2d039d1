//! Packing in small portions between register tiles, so that memory works while the multiply-adds run.
//!
//! Each portion's source lines are asked for one register tile ahead. (A whole panel at once would not do: rows whose
//! distance is a multiple of a large power of two share few sets of the caches, and would throw each other out.)

use super::arithmetic::Arithmetic;
use super::kernel::{Job, JobKind, Kernel, PackOutputs, pack_any};
use crate::element::Floats;
use crate::simd::LANES;

/// A matrix side to be packed: outputs are rows of A or columns of B, steps run along the contracted dimension.
#[derive(Clone, Copy)]
pub(super) struct Side {
    /// Output 0, step 0; of odd leaves the call's first addend.
    src: *const u8,
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
    pub fn new<K: Kernel, A: Arithmetic<K>>(data: Floats, from: usize, out: usize, addend: usize, leaf: usize) -> Side {
        let size = size_of::<A::Element>();
        let src: *const u8 = match data {
            Floats::F32(x) => x.as_ptr().cast(),
            Floats::Bf16(x) => x.as_ptr().cast(),
        };
        Side {
            src: src.wrapping_add(from * size),
            out: out * size,
            addend: addend * size,
            size,
            step: addend * size * A::ADDENDS,
            odd_leaf: if leaf.is_multiple_of(A::ADDENDS) { 0 } else { leaf },
            first: 0,
        }
    }

    /// No side.
    fn none() -> Side {
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
    /// The CPU has K's instruction set, the elements exist, `dst` has room for them and [`super::drive::SLACK`] more.
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

/// Panels that are packed one portion after the other.
pub(super) struct Feed {
    side: Side,
    /// Where the panel goes that is being packed.
    dst: *mut f32,
    /// Outputs left, those of the panel included; outputs of a full panel.
    outs: usize,
    per_panel: usize,
    /// Steps of each panel, of a portion, and done.
    k: usize,
    portion: usize,
    at: usize,
    /// Panels as wide as their outputs rounded up to this.
    round: usize,
    started: bool,
}

impl Feed {
    /// `outs × k` elements in panels of `per_panel` outputs (rounded up to a multiple of `round`), each in about
    /// `portions` portions; the panels follow each other from `dst` on.
    pub fn new(
        side: Side,
        outs: usize,
        per_panel: usize,
        round: usize,
        k: usize,
        portions: usize,
        dst: *mut f32,
    ) -> Feed {
        Feed {
            side,
            dst,
            outs,
            per_panel,
            k,
            portion: k.div_ceil(portions.max(1)).next_multiple_of(4),
            at: 0,
            round,
            started: false,
        }
    }

    /// Nothing to pack.
    pub fn none() -> Feed {
        Feed::new(Side::none(), 0, 1, 1, 0, 1, std::ptr::null_mut())
    }

    /// The next portion as a job for the micro-kernel, of at most `most` of its quadruples; the first call only asks for
    /// the source. What cannot be done on the side is packed at once.
    ///
    /// # Safety
    /// As for [`Side::pack`], for all the panels.
    #[inline(always)]
    pub unsafe fn advance<K: Kernel, A: Arithmetic<K>>(&mut self, most: usize) -> Job {
        if self.outs == 0 {
            return Job::NONE;
        }
        let outs = self.outs.min(self.per_panel);
        let steps = self.portion.min(self.k - self.at);
        if !self.started {
            self.started = true;
            self.side.at(0, self.at).prefetch::<K>(outs, steps);
            return Job::NONE;
        }
        let side = self.side.at(0, self.at);
        let of_a = self.round == 1;
        let (kind, stride, count) = match (of_a, self.side.layout()) {
            (true, Layout::Outputs(step)) => (JobKind::CopyA, step, steps),
            (false, Layout::Outputs(step)) => (JobKind::CopyB, step, steps),
            (true, Layout::Steps(out)) => (JobKind::TransposeA, out, steps / 4 * (K::MR / 4)),
            (false, Layout::Steps(out)) => (JobKind::TransposeB, out, steps / 4 * (K::NR / 4)),
            (_, Layout::Other) => (JobKind::CopyB, 0, usize::MAX),
        };
        // A vector of A is wider than its panel and would read past the last rows' end: those are packed at once.
        let whole = outs == self.per_panel && (kind != JobKind::CopyA || self.outs >= LANES);
        let transpose = matches!(kind, JobKind::TransposeA | JobKind::TransposeB);
        let fits =
            whole && count <= most && (!transpose || steps.is_multiple_of(4) && self.per_panel.is_multiple_of(4));
        if !fits {
            // SAFETY: the caller's promise.
            unsafe { self.pack_portion::<K, A>(outs, steps) };
            return Job::NONE;
        }
        let dst = self.dst.wrapping_add(self.at * outs);
        self.skip(outs, steps);
        Job {
            kind,
            count,
            src: side.src,
            stride,
            dst,
            ahead: if self.outs == 0 {
                0
            } else {
                self.side.at(0, self.at).src as isize - side.src as isize
            },
        }
    }

    /// [`Feed::advance`] where the first portion's source was asked for already.
    ///
    /// # Safety
    /// As for [`Feed::advance`].
    pub unsafe fn advance_whole<K: Kernel, A: Arithmetic<K>>(&mut self, most: usize) -> Job {
        self.started = true;
        // SAFETY: the caller's promise.
        unsafe { self.advance::<K, A>(most) }
    }

    /// Packs a portion; its slack is the next one's beginning, packed later.
    unsafe fn pack_portion<K: Kernel, A: Arithmetic<K>>(&mut self, outs: usize, steps: usize) {
        let width = outs.next_multiple_of(self.round);
        // SAFETY: the caller's promise.
        unsafe {
            self.side
                .at(0, self.at)
                .pack::<K, A>(outs, steps, self.dst.add(self.at * width), width)
        };
        self.skip(outs, steps);
    }

    /// Goes on behind a portion.
    fn skip(&mut self, outs: usize, steps: usize) {
        self.at += steps;
        if self.at == self.k {
            self.at = 0;
            self.outs -= outs;
            self.side = self.side.at(outs, 0);
            self.dst = self.dst.wrapping_add(self.k * outs.next_multiple_of(self.round));
        }
    }

    /// Packs what is left.
    ///
    /// # Safety
    /// As for [`Feed::advance`].
    pub unsafe fn finish<K: Kernel, A: Arithmetic<K>>(&mut self) {
        while self.outs > 0 {
            let outs = self.outs.min(self.per_panel);
            // SAFETY: the caller's promise.
            unsafe { self.pack_portion::<K, A>(outs, self.portion.min(self.k - self.at)) };
        }
    }
}
