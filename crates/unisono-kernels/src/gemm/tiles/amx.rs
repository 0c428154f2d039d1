//! AMX: whether this process may use it, and a leaf on its tile registers.
//!
//! The instructions are written as `asm!`, since their intrinsics are not stable. A leaf is one block of them, which names the tile
//! registers as clobbered; between two blocks only the registers' configuration must last, which no compiler touches that
//! was not told to use AMX. The system saves all of it when it switches threads.

use super::{B_CHUNK, Engine, HEIGHT, Leaf, PAIRS, PIECE};
use crate::gemm::arithmetic::Emulated;
use crate::gemm::kernel::Kernel;
use std::arch::asm;
use std::marker::PhantomData;
use std::sync::OnceLock;

/// Whether the CPU has AMX with bf16 and the system lets this process use it; asked for once.
pub(in crate::gemm) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_tiles() && system_saves_tiles() && permitted())
}

/// Whether the CPU has tiles and multiplies bf16 with them.
fn has_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const OSXSAVE: u32 = 1 << 27;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    #[allow(unused_unsafe)] // newer compilers know that it is safe
    // SAFETY: every x86-64 CPU has the instruction, and leaf 0 says which others there are.
    let (leaf_1, leaf_7) = unsafe {
        if __cpuid(0).eax < 7 {
            return false;
        }
        (__cpuid(1), __cpuid_count(7, 0))
    };
    leaf_1.ecx & OSXSAVE != 0 && leaf_7.edx & AMX_BF16 != 0 && leaf_7.edx & AMX_TILE != 0
}

/// Whether the system saves the tile registers and their configuration. Only where the CPU has OSXSAVE.
fn system_saves_tiles() -> bool {
    const TILES: u32 = 1 << 17 | 1 << 18;
    let low: u32;
    // SAFETY: with OSXSAVE the instruction may be used; it changes these registers only.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    low & TILES == TILES
}

/// Asks the system for the tile registers, for all threads of this process. Linux gives the room to save them only then.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let answer: isize;
    // SAFETY: a system call that changes nothing but what the process may use; the kernel overwrites rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => answer,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer == 0
}

/// Other systems have other ways, which nobody has tried.
#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// What `ldtilecfg` reads: palette 1, then for each of up to 16 registers the bytes of a row and the rows.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// This thread's tile registers, configured: sums in 0 to 3 (two rows of two), A in 4 and 5, B in 6 and 7.
///
/// They are given back at its end, so that a thread carries no tiles around that it does not need.
pub(in crate::gemm) struct Amx {
    /// The configuration is the thread's: it may not be sent to another.
    thread: PhantomData<*const ()>,
}

impl Amx {
    /// Configures the registers for panels of A of `height` rows, of at most 16.
    ///
    /// # Safety
    /// [`available`], and the thread has no other.
    pub unsafe fn new(height: usize) -> Amx {
        let mut configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        for tile in 0..8 {
            configuration.row_bytes[tile] = 64;
            configuration.rows[tile] = if tile < 6 {
                height.clamp(1, HEIGHT) as u8
            } else {
                PAIRS as u8
            };
        }
        // SAFETY: the caller's promise; the instruction reads 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly, preserves_flags));
        }
        Amx { thread: PhantomData }
    }
}

impl Drop for Amx {
    fn drop(&mut self) {
        // SAFETY: it exists only where there is AMX.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

impl<K: Kernel> Engine<K> for Amx {
    type With = Emulated;
    const A_ROW: usize = PAIRS;

    #[inline(always)]
    unsafe fn put(s: K, words: K::F, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { s.store(to, words) };
    }

    #[inline(always)]
    unsafe fn leaf(&self, _s: K, leaf: &Leaf) {
        // SAFETY: the caller's promise; `self` is the registers' configuration. Rooms hold whole chunks of both panels of B,
        // and an entry has room for 32 rows.
        unsafe {
            if leaf.rows > HEIGHT {
                two_panels(leaf);
            } else {
                one_panel(leaf);
            }
        }
    }
}

/// Bytes of a row of a chunk, of a row of sums, of a chunk of B.
const ROW: usize = 4 * PAIRS;
const SUMS_ROW: usize = 4 * PIECE;
const B_BYTES: usize = 4 * B_CHUNK;

/// 32 rows of 32 columns.
unsafe fn two_panels(leaf: &Leaf) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "test {carry}, {carry}",
            "jnz 2f",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{sums} + {sums_row}]",
            "tileloadd tmm1, [{sums} + {sums_row} + {tile}]",
            "tileloadd tmm2, [{sums} + {sums_row} + {half}]",
            "tileloadd tmm3, [{sums} + {sums_row} + {half} + {tile}]",
            "3:",
            "test {chunks}, {chunks}",
            "jz 5f",
            "4:",
            "tileloadd tmm4, [{a0} + {row}]",
            "tileloadd tmm6, [{b0} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {row}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a1} + {row}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a0}, {chunk}",
            "add {a1}, {chunk}",
            "add {b0}, {chunk}",
            "add {b1}, {chunk}",
            "dec {chunks}",
            "jnz 4b",
            "5:",
            "tilestored [{sums} + {sums_row}], tmm0",
            "tilestored [{sums} + {sums_row} + {tile}], tmm1",
            "tilestored [{sums} + {sums_row} + {half}], tmm2",
            "tilestored [{sums} + {sums_row} + {half} + {tile}], tmm3",
            carry = in(reg) usize::from(leaf.carry),
            chunks = inout(reg) leaf.chunks => _,
            a0 = inout(reg) leaf.a => _,
            a1 = inout(reg) leaf.a.wrapping_add(leaf.a_panel) => _,
            b0 = inout(reg) leaf.b => _,
            b1 = inout(reg) leaf.b.wrapping_add(leaf.b_panel) => _,
            sums = in(reg) leaf.sums,
            sums_row = in(reg) SUMS_ROW,
            row = in(reg) ROW,
            tile = const ROW,
            half = const HEIGHT * SUMS_ROW,
            chunk = const B_BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Up to 16 rows of 32 columns.
unsafe fn one_panel(leaf: &Leaf) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "test {carry}, {carry}",
            "jnz 2f",
            "tilezero tmm0",
            "tilezero tmm1",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{sums} + {sums_row}]",
            "tileloadd tmm1, [{sums} + {sums_row} + {tile}]",
            "3:",
            "test {chunks}, {chunks}",
            "jz 5f",
            "4:",
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm6, [{b0} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b1} + {row}]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, {a_chunk}",
            "add {b0}, {chunk}",
            "add {b1}, {chunk}",
            "dec {chunks}",
            "jnz 4b",
            "5:",
            "tilestored [{sums} + {sums_row}], tmm0",
            "tilestored [{sums} + {sums_row} + {tile}], tmm1",
            carry = in(reg) usize::from(leaf.carry),
            chunks = inout(reg) leaf.chunks => _,
            a = inout(reg) leaf.a => _,
            a_chunk = in(reg) leaf.height * ROW,
            b0 = inout(reg) leaf.b => _,
            b1 = inout(reg) leaf.b.wrapping_add(leaf.b_panel) => _,
            sums = in(reg) leaf.sums,
            sums_row = in(reg) SUMS_ROW,
            row = in(reg) ROW,
            tile = const ROW,
            chunk = const B_BYTES,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
