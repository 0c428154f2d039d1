//! What the micro-kernel does on the side, in portions of a few words: packing for the next register tiles, and looking up
//! activations of the last one.

use super::arithmetic::Arithmetic;
use super::kernel::Kernel;
use crate::element::Bf16;
use crate::simd::LANES;

/// Work that the micro-kernel does on the side, a little after every fourth step: its multiply-adds leave most of the
/// other units idle, while the same work between two register tiles would hold them up.
#[derive(Clone, Copy)]
pub(super) struct Job {
    /// What one portion is.
    pub kind: JobKind,
    /// Portions left.
    pub count: usize,
    /// Where the next portion is read, and the distance in bytes between steps (copy), outputs (transpose) or rows (look up).
    pub src: *const u8,
    pub stride: usize,
    /// Where it goes.
    pub dst: *mut f32,
    /// Distance in bytes to what the next job will read, which is asked for.
    pub ahead: isize,
    /// Where results are looked up.
    pub table: *const Bf16,
}

/// The kinds of work on the side.
///
/// As wide as its neighbours in [`Job`]: of a byte and its padding the compiler copies pieces that are not those that were
/// written, and the CPU waits for them.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum JobKind {
    /// One step of contiguous outputs: one vector, packed steps `MR` apart.
    CopyA,
    /// One step of contiguous outputs: `V` vectors, packed steps `NR` apart.
    CopyB,
    /// Four steps of four outputs, of `MR` outputs.
    TransposeA,
    /// Four steps of four outputs, of `NR` outputs.
    TransposeB,
    /// [`EIGHT`] elements of rows of `NR`, replaced by what the table of an activation says.
    LookUp,
}

/// Pieces of work that a register tile can do on its side.
pub(super) const JOBS: usize = 3;

/// Elements that are looked up together.
pub(super) const EIGHT: usize = 8;

impl Job {
    /// Nothing to do.
    pub const NONE: Job = Job {
        kind: JobKind::CopyB,
        count: 0,
        src: std::ptr::null(),
        stride: 0,
        dst: std::ptr::null_mut(),
        ahead: 0,
        table: std::ptr::null(),
    };

    /// Of a job that looks up, or of none: does whole rows of it at once, until at most `most` portions are left.
    ///
    /// # Safety
    /// As for [`Job::portion`].
    #[inline(always)]
    pub unsafe fn look_up_all_but<K: Kernel>(&mut self, most: usize) {
        let mut group = 0;
        while self.count > most || group > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.look_up::<K>(&mut group) };
            self.count -= 1;
        }
    }

    /// Does one portion of the job, which has one left. `group` is 0 at first.
    ///
    /// # Safety
    /// `src` and `dst` are valid for what `count` says, and `table` has a result for each 16 bits if this looks up.
    #[inline(always)]
    pub unsafe fn portion<K: Kernel, A: Arithmetic<K>>(&mut self, s: K, group: &mut usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.kind {
                JobKind::CopyA => {
                    s.store(self.dst, A::load(s, self.src, self.stride / A::ADDENDS));
                    // The vector may begin and end in two lines.
                    self.prefetch_step::<K, A>(0);
                    self.prefetch_step::<K, A>(LANES * size_of::<A::Element>() - 1);
                    self.src = self.src.wrapping_add(self.stride);
                    self.dst = self.dst.wrapping_add(K::MR);
                }
                JobKind::CopyB => {
                    for v in 0..K::V {
                        let at = v * LANES * size_of::<A::Element>();
                        let words = A::load(s, self.src.wrapping_add(at), self.stride / A::ADDENDS);
                        s.store(self.dst.wrapping_add(v * LANES), words);
                        self.prefetch_step::<K, A>(at);
                    }
                    self.src = self.src.wrapping_add(self.stride);
                    self.dst = self.dst.wrapping_add(K::NR);
                }
                JobKind::TransposeA => self.transpose::<K>(K::MR, group),
                JobKind::TransposeB => self.transpose::<K>(K::NR, group),
                JobKind::LookUp => self.look_up::<K>(group),
            }
            self.count -= 1;
        }
    }

    /// Asks for what the next job reads at `at` bytes from where this one is.
    #[inline(always)]
    fn prefetch_step<K: Kernel, A: Arithmetic<K>>(&self, at: usize) {
        for addend in 0..A::ADDENDS {
            let row = addend * (self.stride / A::ADDENDS);
            K::prefetch(self.src.wrapping_add(at + row).wrapping_offset(self.ahead));
        }
    }

    /// Eight elements of a row.
    #[inline(always)]
    unsafe fn look_up<K: Kernel>(&mut self, group: &mut usize) {
        const BYTES: usize = EIGHT * size_of::<Bf16>();
        // SAFETY: the caller's promise.
        unsafe { look_up_eight(self.src.cast(), self.dst.cast(), self.table) };
        *group += EIGHT;
        let bytes = if *group < K::NR {
            BYTES
        } else {
            // To the next row.
            *group = 0;
            BYTES.wrapping_add(self.stride).wrapping_sub(K::NR * size_of::<Bf16>())
        };
        self.src = self.src.wrapping_add(bytes);
        self.dst = self.dst.wrapping_byte_add(bytes);
    }

    /// Four steps of four outputs.
    #[inline(always)]
    unsafe fn transpose<K: Kernel>(&mut self, width: usize, group: &mut usize) {
        // SAFETY: the caller's promise.
        unsafe { transpose_fours(self.src, self.stride, self.dst, width) };
        for o in 0..4 {
            K::prefetch(self.src.wrapping_add(o * self.stride).wrapping_offset(self.ahead));
        }
        let src = self.src.wrapping_add(4 * self.stride);
        *group += 4;
        if *group < width {
            self.src = src;
            self.dst = self.dst.wrapping_add(4);
        } else {
            // Back to the first output, four steps on.
            self.src = src.wrapping_sub(width * self.stride).wrapping_add(4 * 4);
            self.dst = self.dst.wrapping_add(3 * width + 4);
            *group = 0;
        }
    }
}

/// `to[i] = table[arguments[i]]` for eight, with two loads and two stores: those of single ones would fill the CPU's queues.
/// The rest are units for integers, which multiply-adds leave idle.
///
/// # Safety
/// Both are valid for that, and the table has a result for each 16 bits.
#[inline(always)]
pub(super) unsafe fn look_up_eight(arguments: *const Bf16, to: *mut Bf16, table: *const Bf16) {
    // SAFETY: the caller's promise.
    unsafe {
        let result = |argument: u16| u64::from((*table.add(usize::from(argument))).to_bits());
        let four = |x: u64| {
            let [a, b, c, d] = [0, 16, 32, 48].map(|shift| result((x >> shift) as u16) << shift);
            (a | b) | (c | d)
        };
        let [first, second] = arguments.cast::<[u64; 2]>().read_unaligned();
        to.cast::<[u64; 2]>().write_unaligned([four(first), four(second)]);
    }
}

/// `dst[p * width + o] = src[o * stride + 4 * p]`, words at these bytes, for `o` and `p` below 4. In four stores: it is these
/// that hold the multiply-adds beside them up.
///
/// # Safety
/// `src` and `dst` are valid for that.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transpose_fours(src: *const u8, stride: usize, dst: *mut f32, width: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's promise; every x86-64 CPU has SSE2.
    unsafe {
        let [a, b, c, d] = [0, 1, 2, 3].map(|o| _mm_loadu_si128(src.wrapping_add(o * stride).cast()));
        let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
        let store = |p: usize, x| _mm_storeu_si128(dst.wrapping_add(p * width).cast(), x);
        store(0, _mm_unpacklo_epi64(ab, cd));
        store(1, _mm_unpackhi_epi64(ab, cd));
        let (ab, cd) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
        store(2, _mm_unpacklo_epi64(ab, cd));
        store(3, _mm_unpackhi_epi64(ab, cd));
    }
}

/// The same, word by word.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn transpose_fours(src: *const u8, stride: usize, dst: *mut f32, width: usize) {
    for p in 0..4 {
        for o in 0..4 {
            // SAFETY: the caller's promise.
            unsafe {
                let word = src.wrapping_add(o * stride + 4 * p).cast::<u32>().read_unaligned();
                *dst.wrapping_add(p * width + o).cast::<u32>() = word;
            }
        }
    }
}
