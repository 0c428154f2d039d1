//! A sequence of token ids, wherever it lies.

use crate::DataError;
use memmap2::Mmap;
use std::ops::Range;
use std::sync::Arc;
use unisono_kernels::philox::philox4x32;

/// Token ids below a vocabulary size: in memory, in a memory-mapped file, or random ones that are made up when read.
///
/// A clone or a [`slice`](Self::slice) shares the storage.
#[derive(Debug, Clone)]
pub struct Tokens {
    storage: Storage,
    start: usize,
    len: usize,
    vocab_size: usize,
}

/// How wide the ids of a memory-mapped file are; all are unsigned and little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
}

#[derive(Debug, Clone)]
enum Storage {
    Memory(Arc<Vec<u32>>),
    Mapped(Arc<Mmap>, Width),
    Random { seed: u64 },
}

impl Width {
    /// Bytes per id.
    pub fn bytes(self) -> usize {
        match self {
            Width::U8 => 1,
            Width::U16 => 2,
            Width::U32 => 4,
        }
    }
}

impl Tokens {
    /// Ids in memory; `place` names their source in errors.
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`] for the first id that is not below `vocab_size`.
    pub fn from_vec(ids: Vec<u32>, vocab_size: usize, place: &str) -> Result<Self, DataError> {
        let len = ids.len();
        Self {
            storage: Storage::Memory(Arc::new(ids)),
            start: 0,
            len,
            vocab_size,
        }
        .checked(place)
    }

    /// The ids of a memory-mapped file, whose length the caller has checked to be a multiple of the width. Without a
    /// vocabulary size, it is the largest id and one.
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`].
    pub(crate) fn mapped(map: Mmap, width: Width, vocab_size: Option<usize>, place: &str) -> Result<Self, DataError> {
        let len = map.len() / width.bytes();
        let mut tokens = Self {
            storage: Storage::Mapped(Arc::new(map), width),
            start: 0,
            len,
            vocab_size: usize::MAX,
        };
        tokens.vocab_size = match vocab_size {
            Some(size) => size,
            None => tokens.iter().max().map_or(0, |id| id as usize + 1),
        };
        tokens.checked(place)
    }

    /// `len` random ids, uniform below `vocab_size`: id `i` is a pure function of the seed and `i`. Nothing is stored.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a vocabulary size of 0 or above 2³².
    pub fn random(seed: u64, len: usize, vocab_size: usize) -> Result<Self, DataError> {
        if vocab_size == 0 || vocab_size as u64 > 1 << 32 {
            return Err(DataError::Argument {
                what: "the vocabulary size of random tokens",
                given: vocab_size.to_string(),
                rule: "it must be 1 to 4294967296",
            });
        }
        Ok(Self {
            storage: Storage::Random { seed },
            start: 0,
            len,
            vocab_size,
        })
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no ids.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All ids are below this.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The id at a position, from 0; `None` past the end.
    pub fn get(&self, position: usize) -> Option<u32> {
        (position < self.len).then(|| self.at(self.start + position))
    }

    /// Copies the ids from `start` on into `out`. Returns how many there were: fewer than `out` holds only at the end.
    pub fn read(&self, start: usize, out: &mut [u32]) -> usize {
        let count = out.len().min(self.len.saturating_sub(start));
        let (out, first) = (&mut out[..count], self.start.saturating_add(start));
        match &self.storage {
            // The range lies within the storage where anything is to be copied; else there is nothing to look up.
            _ if count == 0 => {}
            Storage::Memory(ids) => out.copy_from_slice(&ids[first..first + count]),
            Storage::Mapped(..) | Storage::Random { .. } => {
                for (i, id) in out.iter_mut().enumerate() {
                    *id = self.at(first + i);
                }
            }
        }
        count
    }

    /// A view of a range of positions, cut off at the end of the tokens.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len);
        let start = range.start.min(end);
        Self {
            start: self.start + start,
            len: end - start,
            ..self.clone()
        }
    }

    /// The ids in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (self.start..self.start + self.len).map(|index| self.at(index))
    }

    /// The id at a place of the storage, which must exist.
    fn at(&self, index: usize) -> u32 {
        match &self.storage {
            Storage::Memory(ids) => ids[index],
            Storage::Mapped(map, Width::U8) => u32::from(map[index]),
            Storage::Mapped(map, Width::U16) => u32::from(u16::from_le_bytes([map[2 * index], map[2 * index + 1]])),
            Storage::Mapped(map, Width::U32) => {
                let i = 4 * index;
                u32::from_le_bytes([map[i], map[i + 1], map[i + 2], map[i + 3]])
            }
            Storage::Random { seed } => {
                let block = index as u64 / 4;
                let counter = [block as u32, (block >> 32) as u32, RANDOM_SITE, 0];
                let word = philox4x32(counter, [*seed as u32, (*seed >> 32) as u32])[index % 4];
                ((u64::from(word) * self.vocab_size as u64) >> 32) as u32
            }
        }
    }

    fn checked(self, place: &str) -> Result<Self, DataError> {
        let outside = self.iter().position(|id| id as usize >= self.vocab_size);
        match outside {
            Some(position) => Err(DataError::TokenOutOfRange {
                id: u64::from(self.at(position)),
                position,
                place: place.to_string(),
                vocab_size: self.vocab_size,
            }),
            None => Ok(self),
        }
    }
}

/// Keeps the draws of random tokens apart from all others of the same seed.
const RANDOM_SITE: u32 = 0x746f_6b73;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_depend_on_seed_and_position_only() {
        let tokens = Tokens::random(7, 1 << 40, 100).expect("valid numbers");
        let mut whole = [0; 64];
        assert_eq!(tokens.read(1_000_000, &mut whole), 64);
        let mut part = [0; 5];
        tokens.slice(1_000_003..2_000_000).read(0, &mut part);
        assert_eq!(part, whole[3..8]);
        assert_eq!(tokens.get(1_000_001), Some(whole[1]));
        assert!(whole.iter().all(|id| *id < 100));
        let mut other = [0; 64];
        Tokens::random(8, 1 << 40, 100)
            .expect("valid numbers")
            .read(1_000_000, &mut other);
        assert_ne!(whole, other);
        assert_eq!(&whole[..8], GOLDEN);
    }

    /// Runs on random tokens must not change from one release to the next.
    const GOLDEN: &[u32] = &[5, 55, 22, 41, 25, 4, 74, 3];

    #[test]
    fn reads_and_slices_stop_at_the_end() {
        let tokens = Tokens::from_vec(vec![5, 6, 7, 8], 9, "here").expect("valid ids");
        let mut out = [0; 3];
        assert_eq!(tokens.read(2, &mut out), 2);
        assert_eq!(out, [7, 8, 0]);
        assert_eq!(tokens.read(usize::MAX, &mut out), 0);
        let middle = tokens.slice(1..3);
        assert_eq!(middle.iter().collect::<Vec<_>>(), [6, 7]);
        assert_eq!((middle.len(), middle.get(2)), (2, None));
        assert!(tokens.slice(9..10).is_empty() && middle.slice(5..9).is_empty());
    }

    #[test]
    fn an_id_of_the_vocabulary_size_is_refused_with_its_position() {
        assert_eq!(
            Tokens::from_vec(vec![1, 2, 3, 4], 3, "the list")
                .expect_err("must be refused")
                .to_string(),
            "token id 3 at position 2 of the list is outside the vocabulary of 3 (ids 0 to 2)"
        );
    }
}
