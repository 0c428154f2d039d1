//! A trigram model of tokens: the loss that a trained model must beat to have learned more than its last two tokens.
//!
//! The model is Witten–Bell interpolation, which has nothing to tune and is strong where contexts are well counted, as they are for
//! characters:
//!
//! ```text
//! p(c | a b) = (n(a b c) + t(a b) · p(c | b)) / (n(a b) + t(a b))
//! p(c | b)   = (n(b c)   + t(b)   · p(c))     / (n(b)   + t(b))
//! p(c)       = (n(c)     + 1)                 / (n      + vocabulary)
//! ```
//!
//! with `n` the count of a sequence of tokens and `t` the number of different tokens that follow it.

use crate::DataError;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Largest vocabulary of a [`Trigram`]: three ids fit in 64 bits.
pub const MAX_VOCAB_SIZE: usize = 1 << 21;

/// A trigram model with the counts of the tokens that it was fitted to.
#[derive(Debug, Clone)]
pub struct Trigram {
    vocab_size: usize,
    total: u64,
    /// `n(c)`.
    ones: Vec<u64>,
    /// `n(b c)`.
    twos: Counts<u64>,
    /// `n(a b c)`.
    threes: Counts<u64>,
    /// `n(b)` as a context and `t(b)`.
    after_one: Counts<Followers>,
    /// `n(a b)` as a context and `t(a b)`.
    after_two: Counts<Followers>,
}

type Counts<T> = HashMap<u64, T, BuildHasherDefault<MixHasher>>;

#[derive(Debug, Clone, Copy, Default)]
struct Followers {
    times: u64,
    different: u64,
}

impl Trigram {
    /// Counts the tokens of a training text.
    ///
    /// # Errors
    /// [`DataError::Argument`] for a vocabulary of 0 or above [`MAX_VOCAB_SIZE`]; [`DataError::TokenOutOfRange`].
    pub fn fit(tokens: impl IntoIterator<Item = u32>, vocab_size: usize) -> Result<Self, DataError> {
        if vocab_size == 0 || vocab_size > MAX_VOCAB_SIZE {
            return Err(DataError::Argument {
                what: "the vocabulary size of a trigram model",
                given: vocab_size.to_string(),
                rule: "it must be 1 to 2097152",
            });
        }
        let mut model = Self {
            vocab_size,
            total: 0,
            ones: vec![0; vocab_size],
            twos: Counts::default(),
            threes: Counts::default(),
            after_one: Counts::default(),
            after_two: Counts::default(),
        };
        let mut context = Context::default();
        for (position, token) in tokens.into_iter().enumerate() {
            model.check(token, position)?;
            model.total += 1;
            model.ones[token as usize] += 1;
            if let Some(one) = context.one() {
                count(&mut model.twos, &mut model.after_one, one, token);
            }
            if let Some(two) = context.two() {
                count(&mut model.threes, &mut model.after_two, two, token);
            }
            context.push(token);
        }
        Ok(model)
    }

    /// The mean of −ln p over a validation text, in nats per token; the first two tokens are predicted from what precedes
    /// them. `None` for no tokens.
    ///
    /// # Errors
    /// [`DataError::TokenOutOfRange`].
    pub fn nats_per_token(&self, tokens: impl IntoIterator<Item = u32>) -> Result<Option<f64>, DataError> {
        let mut context = Context::default();
        let mut product = Product::default();
        let mut total = 0u64;
        for (position, token) in tokens.into_iter().enumerate() {
            self.check(token, position)?;
            product.multiply(self.probability(context, token));
            context.push(token);
            total += 1;
        }
        // Certainty is 0, not −0, in print too.
        let nats = -product.logarithm() / total as f64;
        Ok((total > 0).then_some(if nats > 0.0 { nats } else { 0.0 }))
    }

    fn probability(&self, context: Context, token: u32) -> f64 {
        let mut p = (self.ones[token as usize] + 1) as f64 / (self.total + self.vocab_size as u64) as f64;
        let levels = [
            (context.one(), &self.twos, &self.after_one),
            (context.two(), &self.threes, &self.after_two),
        ];
        for (key, counts, after) in levels {
            let Some(key) = key else { break };
            let Some(followers) = after.get(&key) else { break };
            let seen = counts.get(&(key << 21 | u64::from(token))).copied().unwrap_or(0) as f64;
            let different = followers.different as f64;
            p = (seen + different * p) / (followers.times as f64 + different);
        }
        p
    }

    fn check(&self, token: u32, position: usize) -> Result<(), DataError> {
        if (token as usize) < self.vocab_size {
            return Ok(());
        }
        Err(DataError::TokenOutOfRange {
            id: u64::from(token),
            position,
            place: "the text of the trigram model".to_string(),
            vocab_size: self.vocab_size,
        })
    }
}

fn count(counts: &mut Counts<u64>, after: &mut Counts<Followers>, key: u64, token: u32) {
    let seen = counts.entry(key << 21 | u64::from(token)).or_default();
    let followers = after.entry(key).or_default();
    followers.times += 1;
    followers.different += u64::from(*seen == 0);
    *seen += 1;
}

/// The last tokens, as far as there are any.
#[derive(Debug, Clone, Copy, Default)]
struct Context {
    last: u32,
    before: u32,
    length: u8,
}

impl Context {
    fn push(&mut self, token: u32) {
        *self = Self {
            last: token,
            before: self.last,
            length: (self.length + 1).min(2),
        };
    }

    fn one(self) -> Option<u64> {
        (self.length >= 1).then_some(u64::from(self.last))
    }

    fn two(self) -> Option<u64> {
        (self.length >= 2).then_some(u64::from(self.before) << 21 | u64::from(self.last))
    }
}

/// A product of positive numbers as a mantissa and a power of two, so that its logarithm needs no logarithm per factor, nor the
/// platform's.
#[derive(Debug, Clone, Copy)]
struct Product {
    mantissa: f64,
    exponent: i64,
}

impl Default for Product {
    fn default() -> Self {
        Self {
            mantissa: 1.0,
            exponent: 0,
        }
    }
}

impl Product {
    /// Multiplies by a normal positive number.
    fn multiply(&mut self, factor: f64) {
        let bits = (self.mantissa * factor).to_bits();
        self.exponent += (bits >> 52) as i64 - 1023;
        self.mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    }

    fn logarithm(self) -> f64 {
        // ln m = 2 artanh((m − 1) / (m + 1)); m is in [1, 2), so the terms fall by a factor of 9 at least.
        let z = (self.mantissa - 1.0) / (self.mantissa + 1.0);
        let mut sum = 0.0;
        for k in (0..20).rev() {
            sum = sum * (z * z) + 1.0 / f64::from(2 * k + 1);
        }
        self.exponent as f64 * std::f64::consts::LN_2 + 2.0 * z * sum
    }
}

/// Hashes a key of packed ids by one multiplication; the keys come from the user's own text.
#[derive(Debug, Clone, Copy, Default)]
struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        let mixed = (self.0 ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_in_every_context() {
        let model = Trigram::fit([0, 1, 2, 0, 1, 3, 0, 1, 2, 2], 5).expect("valid ids");
        for before in 0..5 {
            for last in 0..5 {
                let mut context = Context::default();
                for length in 0..3 {
                    let sum: f64 = (0..5).map(|token| model.probability(context, token)).sum();
                    assert!((sum - 1.0).abs() < 1e-12, "{before} {last} {length}: {sum}");
                    context.push(if length == 0 { before } else { last });
                }
            }
        }
    }

    #[test]
    fn a_hand_counted_example() {
        // Tokens 0 1 0 1: n(0 1) = 2, t(0) = 1; n(0 1 0) = 1, n(0 1) as a context = 1, t = 1.
        let model = Trigram::fit([0, 1, 0, 1], 2).expect("valid ids");
        let mut context = Context::default();
        context.push(0);
        let p1 = (2.0 + 1.0 * 0.5) / 3.0; // p(1) = 3/6
        assert!((model.probability(context, 1) - p1).abs() < 1e-15);
        context.push(1);
        let p0 = (1.0 + 1.0 * 0.5) / 2.0; // p(0 | 1)
        assert!((model.probability(context, 0) - (1.0 + p0) / 2.0).abs() < 1e-15);
    }

    #[test]
    fn the_loss_is_the_mean_negative_logarithm() {
        let train = [0, 1, 2, 0, 1, 3, 0, 1, 2, 2];
        let model = Trigram::fit(train, 4).expect("valid ids");
        let mut context = Context::default();
        let mut sum = 0.0;
        for token in train {
            sum -= model.probability(context, token).ln();
            context.push(token);
        }
        let loss = model.nats_per_token(train).expect("valid ids").expect("not empty");
        assert!((loss - sum / 10.0).abs() < 1e-12, "{loss}");
        assert_eq!(model.nats_per_token([]), Ok(None));
        let certain = Trigram::fit([0, 0], 1).expect("valid ids");
        let loss = certain
            .nats_per_token([0, 0, 0])
            .expect("valid ids")
            .expect("not empty");
        assert_eq!(format!("{loss:.4}"), "0.0000");
    }

    #[test]
    fn a_fair_random_source_costs_about_its_entropy() {
        let source = |from: u64| {
            (from..from + 40_000).map(|i| unisono_kernels::philox::philox4x32([i as u32, 0, 0, 0], [1, 2])[0] >> 30)
        };
        let model = Trigram::fit(source(0), 4).expect("valid ids");
        let loss = model
            .nats_per_token(source(1 << 20))
            .expect("valid ids")
            .expect("not empty");
        assert!((loss - 4f64.ln()).abs() < 0.01, "{loss}");
    }

    #[test]
    fn ids_outside_the_vocabulary_and_absurd_vocabularies_are_refused() {
        assert_eq!(
            Trigram::fit([0, 9], 4).expect_err("must be refused").to_string(),
            "token id 9 at position 1 of the text of the trigram model is outside the vocabulary of 4 (ids 0 to 3)"
        );
        assert!(Trigram::fit([0], 0).is_err());
        assert!(Trigram::fit([0], usize::MAX).is_err());
    }
}
