//! Philox4x32-10, the counter-based random generator behind dropout, initialisation, shuffles and sampling.
//!
//! A draw is a pure function of its counter and key, so it cannot depend on which device or worker makes it.
//! Source: Salmon, Moraes, Dror, Shaw, *Parallel random numbers: as easy as 1, 2, 3* (SC 2011).

/// Four random words for a counter and a key.
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let p0 = u64::from(c0) * 0xD251_1F53;
        let p1 = u64::from(c2) * 0xCD9E_8D57;
        (c0, c1, c2, c3) = (
            (p1 >> 32) as u32 ^ c1 ^ k0,
            p1 as u32,
            (p0 >> 32) as u32 ^ c3 ^ k1,
            p0 as u32,
        );
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

/// A stream of draws for one purpose: keyed by seed, step and site, indexed by the element's *global* position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The run's seed.
    pub seed: u64,
    /// What the draws are for (a dropout site, a parameter, …): two purposes never share a site.
    pub site: u32,
    /// The optimizer step, or 0 where steps have no meaning.
    pub step: u32,
}

impl Stream {
    /// The four words of block `block`; element `e` uses word `e % 4` of block `e / 4`.
    pub fn block(&self, block: u64) -> [u32; 4] {
        philox4x32(
            [block as u32, (block >> 32) as u32, self.site, self.step],
            [self.seed as u32, (self.seed >> 32) as u32],
        )
    }

    /// The word of element `element`.
    pub fn word(&self, element: u64) -> u32 {
        self.block(element / 4)[(element % 4) as usize]
    }

    /// Uniform in [0, 1) with 24 bits.
    pub fn uniform(&self, element: u64) -> f32 {
        (self.word(element) >> 8) as f32 / 16_777_216.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_random123() {
        assert_eq!(
            philox4x32([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ_by_each_key() {
        let base = Stream {
            seed: 1,
            site: 2,
            step: 3,
        };
        let others = [
            Stream { seed: 2, ..base },
            Stream { site: 3, ..base },
            Stream { step: 4, ..base },
            Stream {
                seed: 1 | 1 << 40,
                ..base
            },
        ];
        for other in others {
            assert_ne!(base.block(0), other.block(0));
        }
        assert!((0..1000).all(|i| (0.0..1.0).contains(&base.uniform(i))));
    }
}
