//! Frequencies of rotary position embeddings.
//!
//! Sources: Su et al., *RoFormer* (2021); position interpolation: Chen et al. (2023); Llama 3's scaling: Hugging Face's
//! `rope_type: llama3`.

use unisono_kernels::math;

/// Rotary positions of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// How they are stretched for long sequences.
    pub scaling: RopeScaling,
}

/// How frequencies are stretched for sequences longer than those of the first training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All of them are divided by `factor`.
    Linear {
        /// At least 1.
        factor: f32,
    },
    /// Long waves are divided by `factor`, short ones stay, those between are mixed.
    Llama3 {
        /// At least 1.
        factor: f32,
        /// Waves longer than `original_context / low_freq_factor` tokens are long.
        low_freq_factor: f32,
        /// Waves shorter than `original_context / high_freq_factor` tokens are short.
        high_freq_factor: f32,
        /// Longest sequence of the first training.
        original_context: usize,
    },
}

impl Rope {
    /// Radians a position for each of the `head_dim / 2` pairs: `theta^(−2i / head_dim)`, scaled. Computed in f32 as
    /// `transformers` does.
    pub fn frequencies(&self, head_dim: usize) -> Vec<f32> {
        (0..head_dim / 2)
            .map(|i| {
                let exponent = (2 * i) as f32 / head_dim as f32;
                self.scaling.apply(1.0 / math::powf(self.theta, exponent))
            })
            .collect()
    }
}

impl RopeScaling {
    fn apply(&self, frequency: f32) -> f32 {
        match *self {
            RopeScaling::None => frequency,
            RopeScaling::Linear { factor } => frequency / factor,
            RopeScaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_context,
            } => {
                let context = original_context as f32;
                let wavelength = 2.0 * std::f32::consts::PI / frequency;
                if wavelength < context / high_freq_factor {
                    return frequency;
                }
                if wavelength > context / low_freq_factor {
                    return frequency / factor;
                }
                let smooth = (context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_fall_from_one_by_a_constant_factor() {
        let rope = Rope {
            theta: 10_000.0,
            scaling: RopeScaling::None,
        };
        let frequencies = rope.frequencies(8);
        let expected = [1.0, 0.1, 0.01, 0.001];
        assert_eq!(frequencies.len(), 4);
        for (found, expected) in frequencies.iter().zip(expected) {
            assert!((found / expected - 1.0f32).abs() < 1e-6, "{found} {expected}");
        }
    }

    /// `transformers` 4.57, `ROPE_INIT_FUNCTIONS["llama3"]`, head_dim 8, theta 500000, factor 8, low 1, high 4, context 64.
    #[test]
    fn llama3_keeps_short_waves_and_stretches_long_ones() {
        let rope = Rope {
            theta: 500_000.0,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context: 64,
            },
        };
        // Wavelengths: 6.3, 167, 4443, 118143 tokens; short is below 16, long above 64.
        let plain = Rope {
            scaling: RopeScaling::None,
            ..rope
        };
        let (scaled, plain) = (rope.frequencies(8), plain.frequencies(8));
        assert_eq!(scaled[0], plain[0]);
        for i in 1..4 {
            assert_eq!(scaled[i], plain[i] / 8.0);
        }
        // One wave between: 2π / 0.2 = 31.4 tokens.
        let smooth = (64.0 / (2.0 * std::f32::consts::PI / 0.2f32) - 1.0) / 3.0;
        let mixed = rope.scaling.apply(0.2);
        assert!((mixed - ((1.0 - smooth) * 0.2 / 8.0 + smooth * 0.2)).abs() < 1e-7);
    }
}
