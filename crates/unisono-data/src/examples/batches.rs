//! Batches of examples.

use super::Examples;
use crate::{Batch, DataError, Sampler};
use std::sync::Arc;

/// Examples as batches of rows of one width, short ones filled up with targets that are ignored.
///
/// Training takes them in the sampler's order, from one epoch to the next within a batch: 64 rows of 50 examples are one epoch and 14 of
/// the next. Validation takes each once, in the file's order.
#[derive(Debug, Clone)]
pub struct ExampleBatches {
    examples: Arc<Examples>,
    sampler: Sampler,
    width: usize,
}

impl ExampleBatches {
    /// Batches of rows of `width` tokens, in the order of the seed (or in the file's).
    ///
    /// # Errors
    /// [`DataError::Argument`] for no examples, or a width that the longest does not fit in (its tokens less one: the last is only ever
    /// a target).
    pub fn new(examples: Arc<Examples>, width: usize, seed: u64, shuffle: bool) -> Result<Self, DataError> {
        let longest = examples.longest();
        if width == 0 || longest > width.saturating_add(1) {
            return Err(DataError::Argument {
                what: "the width of a batch's rows",
                given: format!("{width}, and the longest example has {longest} tokens"),
                rule: "it must be at least 1, and at least the longest example's tokens less one; cut examples shorter when loading them",
            });
        }
        let sampler = Sampler::new(examples.len() as u64, seed, shuffle)?;
        Ok(Self {
            examples,
            sampler,
            width,
        })
    }

    /// The examples.
    pub fn examples(&self) -> &Examples {
        &self.examples
    }

    /// The order of training.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Tokens in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Targets of all examples.
    pub fn num_targets(&self) -> usize {
        self.examples.iter().map(|example| example.num_targets()).sum()
    }

    /// Fills a batch with `count` examples: the samples `first_sample .. first_sample + count` of the run, counted from its very beginning,
    /// whatever the epoch.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a batch too large for memory or a count past 2⁶⁴ samples.
    pub fn fill(&self, first_sample: u64, count: usize, out: &mut Batch) -> Result<(), DataError> {
        if first_sample.checked_add(count as u64).is_none() {
            return Err(DataError::Argument {
                what: "the number of samples consumed",
                given: format!("{first_sample} + {count}"),
                rule: "it must stay below 2^64",
            });
        }
        self.fill_with(count, out, |row| {
            let (_, sample) = self.sampler.sample(first_sample + row as u64);
            // The sampler counts no more samples than there are examples.
            sample as usize
        })
    }

    /// Fills a batch with the examples `first .. first + count` in the file's order; rows past the last example are empty, with all targets
    /// [`IGNORE`](crate::IGNORE), so that every batch may have the same shape and each example counts once.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a batch too large for memory.
    pub fn fill_in_order(&self, first: usize, count: usize, out: &mut Batch) -> Result<(), DataError> {
        self.fill_with(count, out, |row| first.saturating_add(row))
    }

    fn fill_with(&self, count: usize, out: &mut Batch, index: impl Fn(usize) -> usize) -> Result<(), DataError> {
        out.reset(count, self.width)?;
        let rows = out
            .inputs
            .chunks_exact_mut(self.width)
            .zip(out.targets.chunks_exact_mut(self.width));
        for (row, (inputs, targets)) in rows.enumerate() {
            if let Some(example) = self.examples.get(index(row)) {
                example.fill(inputs, targets);
            }
        }
        Ok(())
    }
}
