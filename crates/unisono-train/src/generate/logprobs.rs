//! Log-probabilities of tokens, under the model's distribution as it is: before penalty, temperature and filters.

use unisono_kernels::elementwise::{Unary, unary};
use unisono_kernels::isa::Isa;
use unisono_kernels::math;

/// A new token's log-probability.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Natural logarithm of the probability that the model gave the token.
    pub logprob: f32,
    /// The likeliest tokens with theirs, from the likeliest on; of equals the one with the lower id first.
    pub top: Vec<(u32, f32)>,
}

/// Works them out, with memory that is used again.
pub(super) struct Logprobs {
    top: usize,
    shifted: Vec<f32>,
    weights: Vec<f32>,
}

impl Logprobs {
    /// With the `top` likeliest tokens of each place.
    pub(super) fn new(top: usize) -> Logprobs {
        Logprobs {
            top,
            shifted: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Of token `id`, given the finite logits of the vocabulary.
    pub(super) fn of(&mut self, logits: &[f32], id: u32) -> TokenLogprob {
        let most = logits.iter().fold(f32::NEG_INFINITY, |most, logit| most.max(*logit));
        self.shifted.clear();
        self.shifted.extend(logits.iter().map(|logit| logit - most));
        self.weights.resize(logits.len(), 0.0);
        unary(Isa::detect(), Unary::Exp, &self.shifted, &mut self.weights);
        let total: f64 = self.weights.iter().map(|weight| f64::from(*weight)).sum();
        let log_total = math::ln(total as f32);
        let of = |id: u32| self.shifted[id as usize] - log_total;
        let mut order: Vec<u32> = (0..logits.len() as u32).collect();
        let likelier = |a: &u32, b: &u32| {
            let [x, y] = [a, b].map(|id| self.shifted[*id as usize]);
            y.total_cmp(&x).then(a.cmp(b))
        };
        let top = self.top.min(order.len());
        if top < order.len() {
            order.select_nth_unstable_by(top, likelier);
        }
        order.truncate(top);
        order.sort_unstable_by(likelier);
        TokenLogprob {
            logprob: of(id),
            top: order.into_iter().map(|id| (id, of(id))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_logarithms_of_the_softmax() {
        // Probabilities 1/2, 1/4, 1/8, 1/8, at any shift of the logits.
        for shift in [0.0, -50.0, 80.0] {
            let logits = [2.0, 1.0, 1.0, 4.0].map(|p| math::ln(p) + shift);
            let found = Logprobs::new(3).of(&logits, 0);
            let near = |x: f32, p: f32| assert!((x - p.ln()).abs() < 2e-5, "{x} {}", p.ln());
            near(found.logprob, 0.25);
            let ids: Vec<u32> = found.top.iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, [3, 0, 1], "of equals the lower id comes first");
            for ((_, logprob), p) in found.top.iter().zip([0.5, 0.25, 0.125]) {
                near(*logprob, p);
            }
        }
        assert_eq!(Logprobs::new(0).of(&[1.0, 2.0], 1).top, []);
        assert_eq!(Logprobs::new(9).of(&[1.0, 2.0], 1).top.len(), 2);
    }
}
