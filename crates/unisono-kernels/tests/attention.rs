//! Attention against plain loops that state its order, bit by bit: ragged shapes, masks, positions, f32 and bf16, every
//! instruction set.

mod attention_support;

use attention_support::case::{Case, case, square};
use attention_support::twin::Order;
use proptest::prelude::*;
use unisono_kernels::isa::Isa;

fn compare(case: &Case) {
    let want = case.slow(Order::TRUE);
    for isa in Isa::available() {
        // Both directions on the fastest only: portable multiply-adds are slow.
        for backwards in [true, false].into_iter().take(if isa == Isa::detect() { 2 } else { 1 }) {
            let got = case.fast(isa, backwards);
            let shape = format!("{} of {case:?}", isa.name());
            assert!(got.out == want.out, "out on {shape}");
            assert!(got.lse == want.lse, "lse on {shape}");
            assert!(got.dq == want.dq, "dq on {shape}");
            assert!(got.dk == want.dk, "dk on {shape}");
            assert!(got.dv == want.dv, "dv on {shape}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn equals_the_slow_twin(case in case()) {
        compare(&case);
    }
}

#[test]
fn known_shapes() {
    for half in [false, true] {
        let square = |batch, groups, heads, d, tokens| Case {
            half,
            ..square(batch, groups, heads, d, tokens)
        };
        compare(&square(1, 1, 1, 64, 150));
        compare(&square(16, 1, 1, 16, 70));
        compare(&square(8, 2, 3, 16, 70));
        compare(&square(1, 1, 2, 128, 70));
        compare(&square(1, 1, 1, 256, 65));
        compare(&Case {
            causal: false,
            ..square(1, 1, 1, 48, 96)
        });
        compare(&square(1, 1, 1, 1, 1));
        // Nothing to see, nobody to see it.
        compare(&Case {
            keys: 0,
            ..square(1, 1, 1, 16, 100)
        });
        compare(&Case {
            queries: 0,
            ..square(1, 1, 1, 16, 100)
        });
    }
}

#[test]
fn a_prompt_at_once_in_chunks_and_token_by_token() {
    for (heads, d, half) in [(1, 64, false), (3, 20, false), (1, 64, true), (3, 20, true)] {
        let case = Case {
            half,
            ..square(1, 2, heads, d, 150)
        };
        let x = case.inputs();
        let whole = case.chunk(&x, 0, 150, 150);
        assert!(whole == case.slow(Order::TRUE).out, "at once");
        for step in [1, 7, 64, 100] {
            let mut parts = Vec::new();
            for from in (0..150).step_by(step) {
                let to = (from + step).min(150);
                // A cache of just the tokens so far, and one that is longer than what is filled.
                parts.extend(case.chunk(&x, from, to, if from % 2 == 0 { to } else { 150 }));
            }
            assert!(whole == parts, "in chunks of {step}");
        }
    }
}

#[test]
fn what_is_not_seen_is_not_touched() {
    for half in [false, true] {
        // NaN in keys and values after the last position: a cache that was never filled.
        let case = Case {
            half,
            ..square(1, 1, 1, 16, 80)
        };
        let (x, layout) = (case.inputs(), case.layout());
        // The last position is the second of a pair of keys, or the first.
        for filled in [40, 41] {
            let mut dirty = x.clone();
            for t in filled..80 {
                dirty[t * layout.token + case.d..(t + 1) * layout.token].fill(f32::NAN);
            }
            for from in [0, filled - 1] {
                assert!(case.chunk(&x, from, filled, 80) == case.chunk(&dirty, from, filled, 80));
            }
            // Later tokens of the same call.
            let width = case.groups * case.heads * case.d;
            let (clean, spoilt) = (case.chunk(&x, 0, 80, 80), case.chunk(&dirty, 0, 80, 80));
            assert!(clean[..filled * width] == spoilt[..filled * width] && clean != spoilt);
        }
    }
}

#[test]
fn holes_of_a_mask_are_not_touched() {
    const TOKENS: usize = 150;
    // Keys that no query sees, the first or the second of a pair, or both.
    let hole = |j: &usize| j % 5 == 1 || j % 7 == 2;
    for (d, half) in [(16, false), (16, true), (7, true)] {
        let seen = (0..TOKENS * TOKENS).map(|at| u8::from(!hole(&(at % TOKENS))));
        let case = Case {
            mask: Some(seen.collect()),
            half,
            ..square(1, 2, 2, d, TOKENS)
        };
        let (x, layout) = (case.inputs(), case.layout());
        let mut dirty = x.clone();
        for t in (0..TOKENS).filter(hole) {
            for g in 0..case.groups {
                dirty[t * layout.token + g * layout.group + case.heads * d..][..2 * d].fill(f32::NAN);
            }
        }
        for isa in Isa::available() {
            let clean = case.fast_of(&x, isa, false);
            assert!(clean == case.fast_of(&dirty, isa, false), "heads of {d} on {isa:?}");
        }
    }
}

// The broken controls.

/// Blocks of another length.
#[test]
fn another_order_gives_other_bits() {
    let case = square(1, 1, 1, 16, 150);
    let fast = case.fast(Isa::detect(), false);
    let other = case.slow(Order {
        block: 48,
        ..Order::TRUE
    });
    assert!(fast.out != other.out && fast.dq != other.dq && fast.dk != other.dk);
}

#[test]
fn rounding_elsewhere_gives_other_bits() {
    let case = Case {
        half: true,
        ..square(1, 1, 3, 16, 100)
    };
    let fast = case.fast(Isa::detect(), false);
    let exact_out = case.slow(Order {
        out_stored: false,
        ..Order::TRUE
    });
    assert!(fast.dq != exact_out.dq && fast.dk != exact_out.dk);
    let between_heads = case.slow(Order {
        heads_stored: true,
        ..Order::TRUE
    });
    assert!(fast.dk != between_heads.dk && fast.dv != between_heads.dv);
    let one_by_one = case.slow(Order {
        pairs: false,
        ..Order::TRUE
    });
    assert!(fast.lse != one_by_one.lse);
    let exact_probabilities = case.slow(Order {
        probabilities_stored: false,
        ..Order::TRUE
    });
    assert!(fast.lse == exact_probabilities.lse && fast.out != exact_probabilities.out);
}

#[test]
fn keys_one_by_one_give_other_bits() {
    // Many, as most outputs are rounded to the same bf16.
    let case = Case {
        half: true,
        ..square(4, 1, 2, 64, 140)
    };
    let one_by_one = case.slow(Order {
        key_pairs: false,
        ..Order::TRUE
    });
    let fast = case.fast(Isa::detect(), false);
    assert!(fast.lse == one_by_one.lse && fast.out != one_by_one.out);
}

#[test]
fn pairs_of_each_leaf() {
    // One leaf that is even, odd, and two of each; and a head of one.
    for d in [64, 65, 128, 130, 1, 7, 254] {
        let case = Case {
            half: true,
            ..square(1, 2, 1, d, 70)
        };
        for isa in Isa::available() {
            assert!(case.fast(isa, false) == case.slow(Order::TRUE), "{d} on {isa:?}");
        }
    }
}
