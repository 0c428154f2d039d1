//! Batches of sequences, for training and for validation.

use crate::windows::check_seq_len;
use crate::{DataError, Sampler, Tokens, Windows};

/// The target of a token that has none: it adds nothing to the loss and does not count.
pub const IGNORE: u32 = u32::MAX;

/// Sequences of equal length and, for each of their tokens, the one that should follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, `[num_sequences, seq_len]` row-major. Places without a token hold 0.
    pub inputs: Vec<u32>,
    /// Token ids or [`IGNORE`], of the same shape.
    pub targets: Vec<u32>,
    /// Rows.
    pub num_sequences: usize,
    /// Tokens in a row.
    pub seq_len: usize,
}

impl Batch {
    /// The number of targets that are not [`IGNORE`].
    pub fn num_targets(&self) -> usize {
        self.targets.iter().filter(|target| **target != IGNORE).count()
    }

    /// Makes every target of the rows from `row` on [`IGNORE`].
    pub fn mask_from(&mut self, row: usize) {
        self.targets[row * self.seq_len..].fill(IGNORE);
    }

    /// Makes room for a shape; every place is empty afterwards. Memory is kept from one use to the next.
    pub(crate) fn reset(&mut self, num_sequences: usize, seq_len: usize) -> Result<(), DataError> {
        let too_many = || DataError::Argument {
            what: "the number of tokens in a batch",
            given: format!("{num_sequences} × {seq_len}"),
            rule: "it must fit in memory",
        };
        let tokens = num_sequences.checked_mul(seq_len).ok_or_else(too_many)?;
        for (values, empty) in [(&mut self.inputs, 0), (&mut self.targets, IGNORE)] {
            values.clear();
            values.try_reserve(tokens).map_err(|_| too_many())?;
            values.resize(tokens, empty);
        }
        (self.num_sequences, self.seq_len) = (num_sequences, seq_len);
        Ok(())
    }
}

/// The training batches of a run: which windows stand in it from the `k`-th sample on.
#[derive(Debug, Clone)]
pub struct TrainBatches {
    windows: Windows,
    sampler: Sampler,
}

impl TrainBatches {
    /// Batches of these windows, in the order of the seed (or in their own order).
    ///
    /// # Errors
    /// None for windows that exist; the sampler's otherwise.
    pub fn new(windows: Windows, seed: u64, shuffle: bool) -> Result<Self, DataError> {
        let sampler = Sampler::new(windows.num_samples(), seed, shuffle)?;
        Ok(Self { windows, sampler })
    }

    /// The windows.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The order.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Fills a batch with `count` sequences: the samples `first_sample .. first_sample + count` of the run, counted from its
    /// very beginning, whatever the epoch.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a batch too large for memory or a count past 2⁶⁴ samples.
    pub fn fill(&self, first_sample: u64, count: usize, out: &mut Batch) -> Result<(), DataError> {
        let seq_len = self.windows.seq_len();
        if first_sample.checked_add(count as u64).is_none() {
            return Err(DataError::Argument {
                what: "the number of samples consumed",
                given: format!("{first_sample} + {count}"),
                rule: "it must stay below 2^64",
            });
        }
        out.reset(count, seq_len)?;
        let rows = out
            .inputs
            .chunks_exact_mut(seq_len)
            .zip(out.targets.chunks_exact_mut(seq_len));
        for (k, (inputs, targets)) in (first_sample..).zip(rows) {
            let (_, sample) = self.sampler.sample(k);
            self.windows.read(sample, inputs, targets)?;
        }
        Ok(())
    }
}

/// The validation batches: windows that do not overlap, so that every token but the first is a target exactly once.
///
/// Window `w` has the tokens from `w · seq_len` on as inputs; the last may be short, the rest of its row is empty.
#[derive(Debug, Clone)]
pub struct ValidationBatches {
    tokens: Tokens,
    seq_len: usize,
}

impl ValidationBatches {
    /// Batches of the validation data.
    ///
    /// # Errors
    /// [`DataError::TooShortToPredict`] for fewer than 2 tokens; [`DataError::Argument`] for a `seq_len` of 0.
    pub fn new(tokens: Tokens, seq_len: usize) -> Result<Self, DataError> {
        check_seq_len(seq_len)?;
        if tokens.len() < 2 {
            return Err(DataError::TooShortToPredict { had: tokens.len() });
        }
        Ok(Self { tokens, seq_len })
    }

    /// Windows in all, at least 1.
    pub fn num_sequences(&self) -> usize {
        self.num_targets().div_ceil(self.seq_len)
    }

    /// Targets in all: one less than there are tokens.
    pub fn num_targets(&self) -> usize {
        self.tokens.len() - 1
    }

    /// Tokens in a row.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// The tokens that the windows lie over.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Fills a batch with the windows `first_window .. first_window + count`; rows past the last window are empty, with all targets
    /// [`IGNORE`], so that every batch may have the same shape.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a batch too large for memory.
    pub fn fill(&self, first_window: usize, count: usize, out: &mut Batch) -> Result<(), DataError> {
        out.reset(count, self.seq_len)?;
        let rows = out
            .inputs
            .chunks_exact_mut(self.seq_len)
            .zip(out.targets.chunks_exact_mut(self.seq_len));
        for (row, (inputs, targets)) in rows.enumerate() {
            let start = first_window.saturating_add(row).saturating_mul(self.seq_len);
            let num_targets = self.tokens.read(start.saturating_add(1), targets);
            self.tokens.read(start, &mut inputs[..num_targets]);
        }
        Ok(())
    }
}
