//! The order in which samples are seen: a pure function of the seed and of one counter.

use crate::DataError;
use unisono_kernels::philox::philox4x32;

/// Says which sample the `k`-th one of a run is. A run sees every sample once an epoch, in an order of its own each epoch, and goes on from
/// one epoch to the next within a batch. A checkpoint keeps just the number of samples consumed.
///
/// The shuffle of an epoch is a Feistel network over the least power of two that holds all samples, its round function Philox keyed by seed, epoch and
/// round; a value past the last sample is encrypted again until it is one ("cycle walking"), which keeps it a permutation. Nothing is stored, and any
/// place of any epoch is found at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampler {
    num_samples: u64,
    seed: u64,
    shuffle: bool,
}

/// Enough rounds for orders without visible pattern; four already hide the network's structure.
const ROUNDS: u32 = 6;
/// Keeps these draws apart from all others of the same seed.
const SITE: u32 = 0x7368_7566;

impl Sampler {
    /// A sampler of `num_samples` samples; without `shuffle` they come in their own order.
    ///
    /// # Errors
    /// [`DataError::Argument`] for no samples.
    pub fn new(num_samples: u64, seed: u64, shuffle: bool) -> Result<Self, DataError> {
        if num_samples == 0 {
            return Err(DataError::Argument {
                what: "the number of samples",
                given: "0".to_string(),
                rule: "there must be at least 1",
            });
        }
        Ok(Self {
            num_samples,
            seed,
            shuffle,
        })
    }

    /// Samples in an epoch.
    pub fn num_samples(&self) -> u64 {
        self.num_samples
    }

    /// Epoch and sample number of the `k`-th sample of the run, all from 0.
    pub fn sample(&self, k: u64) -> (u64, u64) {
        let (epoch, place) = (k / self.num_samples, k % self.num_samples);
        (
            epoch,
            if self.shuffle {
                self.permuted(epoch, place)
            } else {
                place
            },
        )
    }

    fn permuted(&self, epoch: u64, place: u64) -> u64 {
        // 0 bits for a single sample: the network then has nothing to change.
        let bits = u64::BITS - (self.num_samples - 1).leading_zeros();
        let (left_bits, right_bits) = (bits / 2, bits - bits / 2);
        let (left_mask, right_mask) = ((1u64 << left_bits) - 1, (1u64 << right_bits) - 1);
        let mut value = place;
        loop {
            let (mut left, mut right) = (value >> right_bits, value & right_mask);
            for round in 0..ROUNDS {
                if round % 2 == 0 {
                    right ^= self.draw(epoch, round, left) & right_mask;
                } else {
                    left ^= self.draw(epoch, round, right) & left_mask;
                }
            }
            value = left << right_bits | right;
            if value < self.num_samples {
                return value;
            }
        }
    }

    /// 32 random bits; `half` is below 2³², half of 64 bits.
    fn draw(&self, epoch: u64, round: u32, half: u64) -> u64 {
        let counter = [half as u32, SITE ^ round, epoch as u32, (epoch >> 32) as u32];
        u64::from(philox4x32(counter, [self.seed as u32, (self.seed >> 32) as u32])[0])
    }
}
