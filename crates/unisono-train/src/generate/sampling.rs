//! From logits to the next token.
//!
//! In this order: repetition penalty, temperature, the maximum subtracted, top-k, top-p, min-p (there as in `transformers`),
//! softmax, draw. What is drawn is a function of the logits, the tokens before, the request's seed and the position: never of
//! the batch or the mesh.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use unisono_kernels::elementwise::{Unary, unary};
use unisono_kernels::isa::Isa;
use unisono_kernels::philox::Stream;

/// Random site of draws; parameters and dropout have others.
const SITE: u32 = 0x7FFF_FFFF;

/// Below this temperature the likeliest token is taken, without drawing.
pub const GREEDY: f32 = 0.01;

/// How the next token is chosen. The default draws from the model's distribution as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Logits are divided by it. Below [`GREEDY`], 0 too, the likeliest token is taken.
    pub temperature: f32,
    /// Only this many of the likeliest tokens can be drawn.
    pub top_k: Option<usize>,
    /// Only the likeliest tokens that together reach this probability can be drawn; 1 for all.
    pub top_p: f32,
    /// Only tokens of at least this share of the likeliest one's probability can be drawn; 0 for all. Source: Nguyen et al.,
    /// *Turning up the heat: min-p sampling* (2024).
    pub min_p: f32,
    /// Logits of tokens that the prompt or the text so far has are divided by it where positive, multiplied where negative;
    /// 1 for none.
    pub repetition_penalty: f32,
    /// Draws are keyed by it and the position.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Always the likeliest token.
    pub fn greedy() -> Sampling {
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// The first setting out of its range, in a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty,
            ..
        } = *self;
        if !temperature.is_finite() || temperature < 0.0 {
            return Err(format!(
                "temperature is {temperature}; it must be a number of at least 0: 0 takes the likeliest token, 1 draws from the \
                 model's distribution as it is"
            ));
        }
        if top_k == Some(0) {
            return Err(
                "top_k is 0, which leaves no token to draw; it must be at least 1, or be left out (-1 in a YAML file) for all \
                 tokens"
                    .into(),
            );
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(format!(
                "top_p is {top_p}; it must be above 0 and at most 1, which is the value for all tokens"
            ));
        }
        if !(0.0..=1.0).contains(&min_p) {
            return Err(format!(
                "min_p is {min_p}; it must be at least 0, which is the value for all tokens, and at most 1: a usual value is 0.05"
            ));
        }
        if !repetition_penalty.is_finite() || repetition_penalty <= 0.0 {
            return Err(format!(
                "repetition_penalty is {repetition_penalty}; it must be a number above 0: 1 for none, 1.1 to 1.5 to avoid \
                 repetitions"
            ));
        }
        Ok(())
    }
}

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    /// Its logit, at most 0.
    logit: f32,
    id: u32,
}

impl Eq for Candidate {}

/// The likelier token is the greater one; of equals, the one with the lower id.
impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.logit.total_cmp(&other.logit).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Draws the tokens of one sequence.
pub struct Sampler {
    sampling: Sampling,
    stream: Stream,
    /// Whether the sequence has a token already.
    seen: Vec<bool>,
    /// Logits on their way to probabilities.
    logits: Vec<f32>,
    /// Shares of the probability, not yet divided by all shares.
    weights: Vec<f32>,
}

impl Sampler {
    /// For a sequence that begins with `prompt`, over ids below `vocabulary`.
    pub fn new(sampling: Sampling, vocabulary: usize, prompt: &[u32]) -> Sampler {
        let mut sampler = Sampler {
            sampling,
            stream: Stream {
                seed: sampling.seed,
                site: SITE,
                step: 0,
            },
            seen: vec![false; vocabulary],
            logits: Vec::with_capacity(vocabulary),
            weights: vec![0.0; vocabulary],
        };
        prompt.iter().for_each(|id| sampler.see(*id));
        sampler
    }

    /// The token at `position` of the sequence, counted from its first token, given the finite logits of the vocabulary
    /// (further ones are padding). It counts as seen afterwards.
    ///
    /// # Panics
    /// With fewer logits than the vocabulary has entries.
    pub fn next(&mut self, logits: &[f32], position: u64) -> u32 {
        self.logits.clear();
        self.logits.extend_from_slice(&logits[..self.seen.len()]);
        let id = self.choose(position);
        self.see(id);
        id
    }

    fn see(&mut self, id: u32) {
        if let Some(seen) = self.seen.get_mut(id as usize) {
            *seen = true;
        }
    }

    fn choose(&mut self, position: u64) -> u32 {
        let Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repetition_penalty: penalty,
            ..
        } = self.sampling;
        if penalty != 1.0 {
            for (logit, _) in self.logits.iter_mut().zip(&self.seen).filter(|(_, seen)| **seen) {
                *logit = if *logit > 0.0 {
                    *logit / penalty
                } else {
                    *logit * penalty
                };
            }
        }
        let (best, top) = likeliest(&self.logits);
        if temperature < GREEDY || !(top / temperature).is_finite() {
            return best;
        }
        let top = top / temperature;
        for logit in &mut self.logits {
            *logit = *logit / temperature - top;
        }
        unary(Isa::detect(), Unary::Exp, &self.logits, &mut self.weights);
        if top_k.is_some_and(|k| k < self.logits.len()) || top_p < 1.0 {
            self.filter(top_k, top_p);
        }
        if min_p > 0.0 {
            // The likeliest token's weight is exp(0).
            self.weights.iter_mut().filter(|w| **w < min_p).for_each(|w| *w = 0.0);
        }
        draw(&self.weights, self.uniform(position)).unwrap_or(best)
    }

    /// Leaves weight only to the `top_k` likeliest tokens, and of these to the fewest whose probabilities reach `top_p`.
    fn filter(&mut self, top_k: Option<usize>, top_p: f32) {
        let candidate = |(id, logit): (usize, &f32)| Candidate {
            logit: *logit,
            id: id as u32,
        };
        let mut kept: Vec<Candidate> = self.logits.iter().enumerate().map(candidate).collect();
        if let Some(k) = top_k.filter(|k| *k < kept.len()) {
            kept.select_nth_unstable_by(k, |a, b| b.cmp(a));
            kept.truncate(k);
        }
        if top_p < 1.0 {
            // In the order of ids, so that the sum does not depend on how the k were found.
            kept.sort_unstable_by_key(|c| c.id);
            let weight = |c: &Candidate| f64::from(self.weights[c.id as usize]);
            let enough = f64::from(top_p) * kept.iter().map(weight).sum::<f64>();
            let mut heap = BinaryHeap::from(std::mem::take(&mut kept));
            let mut reached = 0.0;
            while let Some(next) = heap.pop() {
                reached += weight(&next);
                kept.push(next);
                if reached >= enough {
                    break;
                }
            }
        }
        let weights: Vec<f32> = kept.iter().map(|c| self.weights[c.id as usize]).collect();
        self.weights.fill(0.0);
        for (candidate, weight) in kept.iter().zip(weights) {
            self.weights[candidate.id as usize] = weight;
        }
    }

    /// Uniform in [0, 1) with 53 bits.
    fn uniform(&self, position: u64) -> f64 {
        let [high, low, ..] = self.stream.block(position);
        ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The first of the largest logits, with its value.
fn likeliest(logits: &[f32]) -> (u32, f32) {
    let top = logits.iter().fold(f32::NEG_INFINITY, |top, logit| top.max(*logit));
    let first = logits.iter().position(|logit| *logit == top);
    (first.unwrap_or(0) as u32, top)
}

/// The token at `u` of the way through the weights, in the order of ids.
fn draw(weights: &[f32], u: f64) -> Option<u32> {
    let total: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let mut reached = 0.0;
    let hit = weights.iter().position(|w| {
        reached += f64::from(*w);
        reached > u * total
    });
    hit.map(|id| id as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_kernels::math;

    fn next(sampling: Sampling, logits: &[f32], prompt: &[u32], position: u64) -> u32 {
        Sampler::new(sampling, logits.len(), prompt).next(logits, position)
    }

    fn drawn(sampling: Sampling, logits: &[f32], prompt: &[u32], count: u64) -> Vec<f64> {
        let mut seen = vec![0.0; logits.len()];
        for position in 0..count {
            seen[next(sampling, logits, prompt, position) as usize] += 1.0 / count as f64;
        }
        seen
    }

    #[test]
    fn greedy_takes_the_first_of_the_likeliest() {
        for temperature in [0.0, 0.009] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            assert_eq!(next(sampling, &[0.5, 2.0, -1.0, 2.0], &[], 3), 1);
        }
    }

    #[test]
    fn probabilities_follow_the_softmax_of_scaled_logits() {
        let logits = [0.0, 1.0, 2.0];
        for temperature in [0.5, 1.0, 3.0] {
            let sampling = Sampling {
                temperature,
                ..Sampling::default()
            };
            let weights = logits.map(|l| f64::from(math::exp(l / temperature)));
            let total: f64 = weights.iter().sum();
            for (seen, weight) in drawn(sampling, &logits, &[], 20_000).iter().zip(weights) {
                assert!((seen - weight / total).abs() < 0.012, "{temperature}: {seen} {weight}");
            }
        }
    }

    #[test]
    fn top_k_keeps_the_lowest_ids_of_equals() {
        let sampling = Sampling {
            top_k: Some(2),
            ..Sampling::default()
        };
        let seen = drawn(sampling, &[1.0, 3.0, 1.0, 1.0], &[], 2000);
        assert!(seen[0] > 0.05 && seen[1] > 0.5 && seen[2..] == [0.0, 0.0], "{seen:?}");
        let all = Sampling {
            top_k: Some(100),
            ..sampling
        };
        let off = Sampling::default();
        for position in 0..200 {
            let logits = [0.1, 0.2, 0.3];
            assert_eq!(next(all, &logits, &[], position), next(off, &logits, &[], position));
        }
    }

    #[test]
    fn top_p_keeps_the_fewest_tokens_that_reach_it() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [4.0, 2.0, 1.0, 1.0].map(math::ln);
        let kept = |top_p: f32| {
            let sampling = Sampling {
                top_p,
                ..Sampling::default()
            };
            let seen = drawn(sampling, &logits, &[], 2000);
            seen.iter().map(|s| *s > 0.0).collect::<Vec<_>>()
        };
        assert_eq!(kept(1e-9), [true, false, false, false]);
        assert_eq!(kept(0.49), [true, false, false, false]);
        assert_eq!(kept(0.6), [true, true, false, false]);
        assert_eq!(kept(0.8), [true, true, true, false]);
        assert_eq!(kept(1.0), [true; 4]);
    }

    #[test]
    fn min_p_keeps_the_tokens_that_reach_a_share_of_the_likeliest() {
        // Probabilities 0.5, 0.25, 0.125, 0.125: shares 1, 1/2, 1/4, 1/4 of the likeliest.
        let logits = [4.0, 2.0, 1.0, 1.0].map(math::ln);
        let kept = |sampling: Sampling| {
            let seen = drawn(sampling, &logits, &[], 2000);
            seen.iter().map(|s| *s > 0.0).collect::<Vec<_>>()
        };
        let base = Sampling::default();
        assert_eq!(kept(Sampling { min_p: 0.2, ..base }), [true; 4]);
        assert_eq!(kept(Sampling { min_p: 0.3, ..base }), [true, true, false, false]);
        assert_eq!(kept(Sampling { min_p: 0.6, ..base }), [true, false, false, false]);
        assert_eq!(kept(Sampling { min_p: 1.0, ..base }), [true, false, false, false]);
        // It looks at what the temperature left: at 2 the shares are 1, 0.71, 0.5, 0.5.
        let warm = Sampling {
            temperature: 2.0,
            min_p: 0.6,
            ..base
        };
        assert_eq!(kept(warm), [true, true, false, false]);
        // Top-k comes first, and leaves nothing for min-p to bring back.
        let both = Sampling {
            top_k: Some(1),
            min_p: 0.1,
            ..base
        };
        assert_eq!(kept(both), [true, false, false, false]);
    }

    #[test]
    fn the_penalty_comes_before_the_temperature_and_moves_both_signs_down() {
        let sampling = Sampling {
            repetition_penalty: 2.0,
            ..Sampling::greedy()
        };
        assert_eq!(next(sampling, &[3.0, 2.0], &[0], 0), 1);
        assert_eq!(next(sampling, &[-1.0, -1.5], &[0], 0), 1);
        assert_eq!(next(sampling, &[3.0, 1.4], &[0, 0, 0], 0), 0);
        let mut sampler = Sampler::new(sampling, 2, &[]);
        assert_eq!((sampler.next(&[3.0, 2.0], 0), sampler.next(&[3.0, 2.0], 1)), (0, 1));
    }

    #[test]
    fn draws_are_keyed_by_seed_and_position() {
        let logits = [0.0; 50];
        let at = |seed, position| {
            next(
                Sampling {
                    seed,
                    ..Sampling::default()
                },
                &logits,
                &[],
                position,
            )
        };
        let line = |seed| (0..40).map(|p| at(seed, p)).collect::<Vec<_>>();
        assert_eq!(line(1), line(1));
        assert_ne!(line(1), line(2));
        assert_ne!(line(1), line(1 | 1 << 40));
        assert_ne!(at(1, 0), at(1, 1));
    }

    #[test]
    fn huge_logits_and_tiny_probabilities_still_draw_something() {
        let sampling = Sampling {
            temperature: 0.01,
            ..Sampling::default()
        };
        assert_eq!(next(sampling, &[3e38, -3e38, 1.0], &[], 0), 0);
        assert_eq!(next(sampling, &[-3e38, -2e38], &[], 0), 1);
    }

    #[test]
    fn settings_out_of_range_are_told() {
        let base = Sampling::default();
        let told = |sampling: Sampling| sampling.check().expect_err("it is out of range");
        for temperature in [-1.0, f32::NAN, f32::INFINITY] {
            assert!(told(Sampling { temperature, ..base }).starts_with(&format!("temperature is {temperature};")));
        }
        for top_p in [0.0, -0.1, 1.1, f32::NAN] {
            assert!(told(Sampling { top_p, ..base }).starts_with(&format!("top_p is {top_p};")));
        }
        for min_p in [-0.1, 1.1, f32::NAN] {
            assert!(told(Sampling { min_p, ..base }).starts_with(&format!("min_p is {min_p};")));
        }
        for repetition_penalty in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let sampling = Sampling {
                repetition_penalty,
                ..base
            };
            assert!(told(sampling).starts_with(&format!("repetition_penalty is {repetition_penalty};")));
        }
        assert!(told(Sampling { top_k: Some(0), ..base }).starts_with("top_k is 0"));
        assert_eq!(base.check(), Ok(()));
        assert_eq!(Sampling::greedy().check(), Ok(()));
    }
}
