//! Packing in small portions beside register tiles, so that memory works while the multiply-adds run.
//!
//! Each portion's source lines are asked for one register tile ahead. (A whole panel at once would not do: rows whose
//! distance is a multiple of a large power of two share few sets of the caches, and would throw each other out.)

use super::arithmetic::Arithmetic;
use super::job::{Job, JobKind};
use super::kernel::Kernel;
use super::side::{Layout, Side};
use crate::simd::LANES;

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

    /// The next portion as a job for the micro-kernel, of at most `most` of its portions; the first call only asks for
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
            ..Job::NONE
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
