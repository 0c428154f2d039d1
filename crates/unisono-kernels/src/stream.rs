//! Copies past the caches: for results so large that they would only push out what is needed next.
//!
//! An ordinary store first reads the line that it writes into; a streaming store does not, which saves a third of the traffic of a copy.

use crate::isa::Isa;

/// `to = from`, written to memory and not to the caches. Everything is visible to other threads that synchronise with this one after it
/// returns, as after any copy.
///
/// # Panics
/// If the lengths differ: a bug in unisono.
pub fn copy(isa: Isa, to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "bug in unisono: a copy between lengths");
    #[cfg(target_arch = "x86_64")]
    if isa >= Isa::Avx2 {
        // SAFETY: `isa` is never more than the processor has.
        unsafe { avx2(to, from) };
        return;
    }
    let _ = isa;
    to.copy_from_slice(from);
}

/// Bytes of a vector.
#[cfg(target_arch = "x86_64")]
const WIDTH: usize = 32;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    // A streaming store needs an aligned address.
    let head = to.as_ptr().align_offset(WIDTH).min(to.len());
    let (to_head, to) = to.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    to_head.copy_from_slice(from_head);
    let vectors = to.len() / WIDTH;
    for i in 0..vectors {
        // SAFETY: both slices are equally long and hold `vectors` whole vectors; `to` begins at a multiple of their width.
        unsafe {
            let vector = _mm256_loadu_si256(from.as_ptr().add(i * WIDTH).cast());
            _mm256_stream_si256(to.as_mut_ptr().add(i * WIDTH).cast(), vector);
        }
    }
    to[vectors * WIDTH..].copy_from_slice(&from[vectors * WIDTH..]);
    // Streaming stores are ordered by nothing but this, and whoever is told that the copy is done must see it.
    _mm_sfence();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_and_length_is_copied_and_nothing_else() {
        let from: Vec<u8> = (0..400u32).map(|i| (i * 37 % 251) as u8).collect();
        for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
            if isa > Isa::detect() {
                continue;
            }
            for start in 0..70 {
                for len in [0, 1, 31, 32, 33, 64, 100, 257] {
                    let mut to = vec![0xee; 400];
                    copy(isa, &mut to[start..start + len], &from[7..7 + len]);
                    assert_eq!(to[start..start + len], from[7..7 + len]);
                    assert!(to[..start].iter().chain(&to[start + len..]).all(|byte| *byte == 0xee));
                }
            }
        }
    }
}
