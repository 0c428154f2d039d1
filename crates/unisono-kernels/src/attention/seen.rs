//! Which keys a query sees.

use super::{BLOCK, Inputs};

impl Inputs<'_> {
    /// Keys that query `i` of sequence `b` may see by its position alone: the first so many.
    #[inline(always)]
    pub(super) fn limit(&self, b: usize, i: usize) -> usize {
        match self.shape.causal {
            true => (self.first(b) + i + 1).min(self.shape.keys),
            false => self.shape.keys,
        }
    }

    /// First query of sequence `b` that may see key `j` by its position.
    pub(super) fn first_seer(&self, b: usize, j: usize) -> usize {
        match self.shape.causal {
            true => j.saturating_sub(self.first(b)),
            false => 0,
        }
    }

    fn first(&self, b: usize) -> usize {
        self.first_query.map_or(0, |first| first[b] as usize)
    }

    /// Bit `t` says whether query `i` of sequence `b` sees key `block * BLOCK + t`.
    #[inline(always)]
    pub(super) fn bits(&self, b: usize, i: usize, block: usize) -> u64 {
        let first = block * BLOCK;
        let count = self.limit(b, i).saturating_sub(first).min(BLOCK);
        let bits = low_bits(count);
        match self.mask {
            Some(mask) => bits & masked(&mask[b * self.mask_batch + i * self.shape.keys + first..][..count]),
            None => bits,
        }
    }

    /// Multiply-adds of one product of each query with the keys that it sees by its position: what the work is counted by.
    pub(super) fn multiply_adds(&self) -> u64 {
        let seen = |b| (0..self.shape.queries).map(|i| self.limit(b, i) as u64).sum::<u64>();
        let pairs: u64 = (0..self.shape.batch).map(seen).sum();
        (self.shape.groups * self.shape.heads_per_group * self.shape.head_dim) as u64 * pairs
    }
}

/// The lowest `count ≤ 64` bits.
#[inline(always)]
pub(super) fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The bits of even places first, then those of odd places: bit `2 t` becomes bit `t`, and bit `2 t + 1` bit `32 + t`.
///
/// Source: Warren, *Hacker's Delight*, 2nd edition, section 7-2 (the inverse of the perfect shuffle).
#[inline(always)]
pub(super) fn parted(bits: u64) -> u64 {
    let mut x = bits;
    for (width, middle) in [
        (1, 0x2222_2222_2222_2222u64),
        (2, 0x0c0c_0c0c_0c0c_0c0c),
        (4, 0x00f0_00f0_00f0_00f0),
        (8, 0x0000_ff00_0000_ff00),
        (16, 0x0000_0000_ffff_0000),
    ] {
        // The two middle quarters of each run of four are exchanged.
        let change = (x ^ (x >> width)) & middle;
        x ^= change ^ (change << width);
    }
    x
}

fn masked(mask: &[u8]) -> u64 {
    mask.iter()
        .enumerate()
        .fold(0, |bits, (t, m)| bits | u64::from(*m != 0) << t)
}

/// Swaps rows and columns: bit `i` of word `t` becomes what bit `t` of word `i` was (who sees key `t`).
///
/// Source: Warren, *Hacker's Delight*, 2nd edition, section 7-3 (halves, then quarters, … are exchanged).
pub(super) fn transpose(words: &mut [u64; BLOCK]) {
    let (mut width, mut low) = (32, u64::from(u32::MAX));
    while width > 0 {
        let mut i = 0;
        while i < BLOCK {
            let change = ((words[i] >> width) ^ words[i + width]) & low;
            words[i] ^= change << width;
            words[i + width] ^= change;
            i = (i + width + 1) & !width;
        }
        width /= 2;
        low ^= low << width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_places_come_first() {
        for t in 0..32 {
            assert_eq!(parted(1 << (2 * t)), 1 << t, "even {t}");
            assert_eq!(parted(1 << (2 * t + 1)), 1 << (32 + t), "odd {t}");
        }
        // Five keys are three pairs, of which the last has no second.
        assert_eq!(parted(low_bits(5)), 0b11 << 32 | 0b111);
        assert_eq!(parted(u64::MAX), u64::MAX);
    }

    #[test]
    fn bits_are_transposed() {
        let mut words: [u64; BLOCK] = std::array::from_fn(|i| {
            0x9E37_79B9_7F4A_7C15u64
                .wrapping_mul(i as u64 * 2 + 3)
                .rotate_left(i as u32)
        });
        let before = words;
        transpose(&mut words);
        for (i, row) in before.iter().enumerate() {
            for (t, column) in words.iter().enumerate() {
                assert_eq!(column >> i & 1, row >> t & 1);
            }
        }
    }
}
