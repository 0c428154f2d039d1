//! Learning-rate schedules: the rate of an optimizer step, a pure function of the step.

use unisono_kernels::math;

/// How the learning rate changes from step to step. Steps count optimizer steps from 0, whatever the accumulation.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Always the base rate.
    Constant,
    /// tt-train's `warmup_linear`: up to the base rate over the first tenth of `total`, then linearly to a hundredth.
    WarmupLinear {
        /// Steps of the whole run.
        total: u64,
    },
    /// Linear warm-up to `max`, a hold, then linear decay to `min` at the last step.
    WarmupHoldDecay {
        /// Highest rate.
        max: f64,
        /// Last rate.
        min: f64,
        /// Steps of the warm-up.
        warmup: u64,
        /// Steps at the highest rate after it.
        hold: u64,
        /// Steps of the whole run.
        total: u64,
    },
    /// Half a cosine from the base rate to `min` over `steps`, then `min`.
    Cosine {
        /// Last rate.
        min: f64,
        /// Steps of the decay.
        steps: u64,
    },
    /// The base rate times `gamma` to the number of whole `size`s passed.
    Step {
        /// Steps between changes.
        size: u64,
        /// Factor of each change.
        gamma: f64,
    },
    /// The base rate times a factor that goes linearly from `start` to `end` over `steps`, then `end`.
    Linear {
        /// First factor.
        start: f64,
        /// Last factor.
        end: f64,
        /// Steps of the change.
        steps: u64,
    },
    /// One schedule after the other, each for its steps and counting its own from 0; the last goes on.
    Sequential(Vec<(u64, Schedule)>),
}

impl Schedule {
    /// The learning rate of optimizer step `step` (from 0) for base rate `base`.
    pub fn lr(&self, base: f64, step: u64) -> f64 {
        match self {
            Schedule::Constant => base,
            Schedule::WarmupLinear { total } => {
                let warmup = total / 10;
                if step < warmup {
                    base * (step + 1) as f64 / warmup as f64
                } else {
                    let rest = (total - warmup).max(1);
                    let t = (step - warmup).min(rest) as f64 / rest as f64;
                    base * (1.0 + (0.01 - 1.0) * t)
                }
            }
            Schedule::WarmupHoldDecay {
                max,
                min,
                warmup,
                hold,
                total,
            } => {
                if step < *warmup {
                    max * (step + 1) as f64 / *warmup as f64
                } else if step < warmup + hold {
                    *max
                } else {
                    // The last step of the run has the last rate.
                    let steps = total.saturating_sub(warmup + hold).saturating_sub(1).max(1);
                    let t = (step - warmup - hold).min(steps) as f64 / steps as f64;
                    max + (min - max) * t
                }
            }
            Schedule::Cosine { min, steps } => {
                let t = step.min(*steps) as f64 / (*steps).max(1) as f64;
                min + (base - min) * 0.5 * (1.0 + cos_pi(t))
            }
            Schedule::Step { size, gamma } => base * math::powi(*gamma, step / (*size).max(1)),
            Schedule::Linear { start, end, steps } => {
                let t = step.min(*steps) as f64 / (*steps).max(1) as f64;
                base * (start + (end - start) * t)
            }
            Schedule::Sequential(phases) => {
                let mut first = 0;
                for (index, (steps, schedule)) in phases.iter().enumerate() {
                    if step < first + steps || index + 1 == phases.len() {
                        return schedule.lr(base, step - first);
                    }
                    first += steps;
                }
                base
            }
        }
    }
}

/// cos(π t) for t in [0, 1], by its series around the nearer end of [0, 1/2]: the same bits on every machine.
fn cos_pi(t: f64) -> f64 {
    if t > 0.5 {
        return -cos_pi(1.0 - t);
    }
    let x = std::f64::consts::PI * t;
    // Σ (−x²)ᵏ / (2k)!, from the smallest term on; x ≤ π/2, so the terms left out are below 1e-20.
    (1..=11)
        .rev()
        .fold(1.0, |sum, k| 1.0 - sum * x * x / f64::from((2 * k - 1) * 2 * k))
}

#[cfg(test)]
mod tests {
    use super::Schedule;

    #[test]
    fn cosine_is_exact_to_the_last_digits() {
        for i in 0..=100 {
            let t = f64::from(i) / 100.0;
            assert!(
                (super::cos_pi(t) - (std::f64::consts::PI * t).cos()).abs() < 1e-15,
                "{t}"
            );
        }
        assert_eq!(Schedule::Cosine { min: 0.0, steps: 2 }.lr(1.5e-3, 1), 7.5e-4);
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1e-12)
    }

    #[test]
    fn warmup_linear_rises_for_a_tenth_and_ends_near_a_hundredth() {
        let s = Schedule::WarmupLinear { total: 100 };
        assert!(close(s.lr(1.0, 0), 0.1));
        assert!(close(s.lr(1.0, 9), 1.0));
        assert!(close(s.lr(1.0, 10), 1.0));
        assert!(close(s.lr(1.0, 55), 1.0 - 0.99 / 2.0));
        assert!(close(s.lr(1.0, 100), 0.01));
        assert!(close(Schedule::WarmupLinear { total: 5 }.lr(1.0, 0), 1.0));
    }

    #[test]
    fn warmup_hold_decay_ends_at_the_last_rate() {
        let s = Schedule::WarmupHoldDecay {
            max: 1e-3,
            min: 1e-5,
            warmup: 10,
            hold: 5,
            total: 100,
        };
        assert!(close(s.lr(9.0, 0), 1e-4));
        assert!(close(s.lr(9.0, 9), 1e-3));
        assert!(close(s.lr(9.0, 14), 1e-3));
        assert!(close(s.lr(9.0, 15), 1e-3));
        assert!(close(s.lr(9.0, 99), 1e-5));
    }

    #[test]
    fn cosine_step_linear_and_sequential() {
        let cosine = Schedule::Cosine { min: 0.1, steps: 10 };
        assert!(close(cosine.lr(1.0, 0), 1.0));
        assert!((cosine.lr(1.0, 5) - 0.55).abs() < 1e-6);
        assert!((cosine.lr(1.0, 10) - 0.1).abs() < 1e-6);
        let step = Schedule::Step { size: 3, gamma: 0.5 };
        assert!(close(step.lr(1.0, 2), 1.0) && close(step.lr(1.0, 3), 0.5) && close(step.lr(1.0, 6), 0.25));
        let sequential = Schedule::Sequential(vec![
            (
                2,
                Schedule::Linear {
                    start: 0.0,
                    end: 1.0,
                    steps: 2,
                },
            ),
            (1, Schedule::Constant),
            (9, step),
        ]);
        let rates: Vec<f64> = (0..7).map(|s| sequential.lr(8.0, s)).collect();
        assert_eq!(rates, [0.0, 4.0, 8.0, 8.0, 8.0, 8.0, 4.0]);
    }
}
