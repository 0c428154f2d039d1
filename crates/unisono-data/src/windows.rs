//! Training samples: windows of stride 1, as tt-train counts them.

use crate::{DataError, Tokens};

/// The windows of a sequence of `n` tokens: sample `i` of `n − seq_len` has the tokens `i .. i + seq_len` as inputs and the
/// same one further on as targets. So `seq_len + 1` tokens make exactly one sample.
#[derive(Debug, Clone)]
pub struct Windows {
    tokens: Tokens,
    seq_len: usize,
}

impl Windows {
    /// The windows of the training data.
    ///
    /// # Errors
    /// [`DataError::TooShort`] for fewer than `seq_len + 1` tokens; [`DataError::Argument`] for a `seq_len` of 0.
    pub fn new(tokens: Tokens, seq_len: usize) -> Result<Self, DataError> {
        check_seq_len(seq_len)?;
        if tokens.len() <= seq_len {
            return Err(DataError::TooShort {
                had: tokens.len(),
                needed: seq_len.saturating_add(1),
                seq_len,
            });
        }
        Ok(Self { tokens, seq_len })
    }

    /// The number of samples, at least 1.
    pub fn num_samples(&self) -> u64 {
        (self.tokens.len() - self.seq_len) as u64
    }

    /// Tokens in a sample's inputs, and in its targets.
    pub fn seq_len(&self) -> usize {
        self.seq_len
    }

    /// The tokens that the windows lie over.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Writes a sample's inputs and targets, each `[seq_len]`.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a sample past the last, or slices of another length.
    pub fn read(&self, sample: u64, inputs: &mut [u32], targets: &mut [u32]) -> Result<(), DataError> {
        let start = usize::try_from(sample).unwrap_or(usize::MAX);
        let read = self.tokens.read(start, inputs);
        let read_targets = self.tokens.read(start.saturating_add(1), targets);
        if (read, read_targets, inputs.len(), targets.len()) == (self.seq_len, self.seq_len, self.seq_len, self.seq_len)
        {
            return Ok(());
        }
        Err(DataError::Argument {
            what: "a sample number",
            given: format!(
                "{sample} (with slices of {} and {} tokens)",
                inputs.len(),
                targets.len()
            ),
            rule: "it must be below the number of samples, and both slices must hold one sequence",
        })
    }
}

pub(crate) fn check_seq_len(seq_len: usize) -> Result<(), DataError> {
    if seq_len > 0 {
        return Ok(());
    }
    Err(DataError::Argument {
        what: "the sequence length",
        given: "0".to_string(),
        rule: "it must be at least 1",
    })
}
