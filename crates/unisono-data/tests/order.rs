//! Which sample is seen when: permutations, windows, batches, and that no window is seen twice in an epoch or lost at
//! its end.

use proptest::prelude::*;
use unisono_data::{Batch, IGNORE, Sampler, Tokens, TrainBatches, ValidationBatches, Windows, split};

fn counting(len: usize) -> Tokens {
    Tokens::from_vec((0..len as u32).collect(), len.max(1), "a count").expect("valid ids")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_epoch_is_a_permutation(n in 1u64..600, seed: u64, epoch in 0u64..1 << 50) {
        let sampler = Sampler::new(n, seed, true).expect("samples");
        let mut seen = vec![false; n as usize];
        for place in 0..n {
            let (e, sample) = sampler.sample(epoch * n + place);
            prop_assert_eq!(e, epoch);
            prop_assert!(!std::mem::replace(&mut seen[sample as usize], true), "sample {} twice", sample);
        }
    }

    #[test]
    fn batches_do_not_depend_on_how_they_are_cut(len in 8usize..60, seq_len in 1usize..7, seed: u64, first in 0u64..500) {
        let batches = TrainBatches::new(Windows::new(counting(len), seq_len).expect("long enough"), seed, true).expect("samples");
        let (mut whole, mut part) = (Batch::default(), Batch::default());
        batches.fill(first, 12, &mut whole).expect("a small batch");
        for (at, count) in [(0, 5), (5, 1), (6, 6)] {
            batches.fill(first + at as u64, count, &mut part).expect("a small batch");
            prop_assert_eq!(&part.inputs[..], &whole.inputs[at * seq_len..(at + count) * seq_len]);
            prop_assert_eq!(&part.targets[..], &whole.targets[at * seq_len..(at + count) * seq_len]);
        }
    }

    #[test]
    fn each_validation_token_but_the_first_is_a_target_once(len in 2usize..200, seq_len in 1usize..20, rows in 1usize..9) {
        let batches = ValidationBatches::new(counting(len), seq_len).expect("long enough");
        let mut batch = Batch::default();
        let (mut inputs, mut targets) = (Vec::new(), Vec::new());
        for first in (0..batches.num_sequences()).step_by(rows) {
            batches.fill(first, rows, &mut batch).expect("a small batch");
            prop_assert_eq!((batch.num_sequences, batch.seq_len), (rows, seq_len));
            for (input, target) in batch.inputs.iter().zip(&batch.targets).filter(|(_, target)| **target != IGNORE) {
                inputs.push(*input);
                targets.push(*target);
            }
        }
        prop_assert_eq!(inputs, (0..len as u32 - 1).collect::<Vec<_>>());
        prop_assert_eq!(targets.len(), batches.num_targets());
        prop_assert_eq!(targets, (1..len as u32).collect::<Vec<_>>());
    }

    #[test]
    fn a_split_loses_no_token(len in 4usize..500, fraction in 0.0f64..1.0) {
        if let Ok((train, validation)) = split(&counting(len), fraction) {
            let both: Vec<u32> = train.iter().chain(validation.iter()).collect();
            prop_assert_eq!(both, (0..len as u32).collect::<Vec<_>>());
        }
    }
}

#[test]
fn orders_differ_by_seed_and_epoch_and_never_change() {
    let order = |seed, epoch: u64| -> Vec<u64> {
        let sampler = Sampler::new(10, seed, true).expect("samples");
        (0..10).map(|place| sampler.sample(epoch * 10 + place).1).collect()
    };
    let orders = [order(1, 0), order(1, 1), order(2, 0), order(1 | 1 << 40, 0)];
    for (i, a) in orders.iter().enumerate() {
        for b in &orders[i + 1..] {
            assert_ne!(a, b);
        }
    }
    // A change of these values would make every checkpoint go on with other data.
    assert_eq!(orders[0], [5, 2, 9, 3, 0, 1, 8, 6, 4, 7]);
    assert_eq!(orders[1], [6, 7, 5, 4, 8, 1, 3, 2, 0, 9]);
    let large = Sampler::new(1_003_845, 1337, true).expect("samples");
    let samples: Vec<u64> = [0, 1, 2, 1_003_844, 1_003_845, u64::MAX]
        .map(|k| large.sample(k).1)
        .to_vec();
    assert_eq!(samples, [194_330, 708_946, 751_668, 5568, 32_330, 960_058]);
}

#[test]
fn a_shuffle_has_no_visible_pattern() {
    // Of the pairs of neighbours in the order, those that are neighbours in the data too are as few as chance has it.
    let sampler = Sampler::new(100_000, 3, true).expect("samples");
    let order: Vec<u64> = (0..100_000).map(|k| sampler.sample(k).1).collect();
    let neighbours = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
    assert!(neighbours < 20, "{neighbours}, where 2 are expected");
    let low: u64 = order[..50_000].iter().filter(|sample| **sample < 50_000).count() as u64;
    assert!(
        low.abs_diff(25_000) < 600,
        "{low} of the first half are of the first half"
    );
    // Small orders of 4 come out in all 24 ways.
    let orders: std::collections::BTreeSet<Vec<u64>> = (0..600)
        .map(|epoch| {
            let sampler = Sampler::new(4, 5, true).expect("samples");
            (0..4).map(|place| sampler.sample(epoch * 4 + place).1).collect()
        })
        .collect();
    assert_eq!(orders.len(), 24);
}

#[test]
fn without_shuffle_samples_come_in_order_over_epochs() {
    let sampler = Sampler::new(3, 9, false).expect("samples");
    let seen: Vec<(u64, u64)> = (0..7).map(|k| sampler.sample(k)).collect();
    assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]);
}

#[test]
fn a_sequence_and_a_token_make_one_sample() {
    let windows = Windows::new(counting(9), 8).expect("just enough");
    assert_eq!(windows.num_samples(), 1);
    let batches = TrainBatches::new(windows, 0, true).expect("one sample");
    let mut batch = Batch::default();
    batches.fill(5, 2, &mut batch).expect("a small batch");
    assert_eq!(batch.inputs, [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(batch.targets[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(batch.num_targets(), 16);
}

#[test]
fn an_epoch_has_each_window_once() {
    let windows = Windows::new(counting(50), 8).expect("long enough");
    let batches = TrainBatches::new(windows, 77, true).expect("samples");
    let mut batch = Batch::default();
    let mut starts = Vec::new();
    for first in (0..42).step_by(6) {
        batches.fill(first, 6, &mut batch).expect("a small batch");
        starts.extend(batch.inputs.chunks(8).map(|row| row[0]));
    }
    starts.sort_unstable();
    assert_eq!(starts, (0..42).collect::<Vec<_>>());
}

#[test]
fn too_little_data_is_refused_with_both_numbers() {
    let text = |result: Result<Windows, unisono_data::DataError>| result.expect_err("must be refused").to_string();
    assert_eq!(
        text(Windows::new(counting(8), 8)),
        "the training data has 8 tokens, but a sequence of 8 needs 9 (its targets lie one token further); use more text or a sequence length of at most 7"
    );
    assert!(text(Windows::new(counting(0), usize::MAX)).contains("has 0 tokens"));
    assert_eq!(
        text(Windows::new(counting(8), 0)),
        "the sequence length is 0; it must be at least 1"
    );
    assert_eq!(
        ValidationBatches::new(counting(1), 8)
            .expect_err("must be refused")
            .to_string(),
        "the text to predict has 1 token, but at least 2 are needed: each token is predicted from those before it; use a longer text"
    );
    let split = |len, fraction| {
        split(&counting(len), fraction)
            .expect_err("must be refused")
            .to_string()
    };
    assert_eq!(
        split(40, 0.01),
        "a validation fraction of 0.01 cuts 40 tokens into 40 for training and 0 for validation; each part needs 2 or more; use a fraction of 0.05 to 0.95, or 0"
    );
    assert_eq!(
        split(3, 0.5),
        "a validation fraction of 0.5 cuts 3 tokens into 1 for training and 2 for validation; each part needs 2 or more; use more text, or a fraction of 0 to train without validation"
    );
    assert_eq!(
        split(40, 1.0),
        "the validation fraction is 1; it must be at least 0 and below 1, for example 0.1"
    );
    assert_eq!(
        split(40, f64::NAN),
        "the validation fraction is NaN; it must be at least 0 and below 1, for example 0.1"
    );
    assert!(Sampler::new(0, 0, true).is_err());
}

#[test]
fn absurd_numbers_are_refused_not_allocated() {
    let batches = TrainBatches::new(Windows::new(counting(9), 8).expect("enough"), 0, true).expect("samples");
    let mut batch = Batch::default();
    assert!(batches.fill(0, usize::MAX, &mut batch).is_err());
    assert!(batches.fill(0, usize::MAX / 64, &mut batch).is_err());
    assert!(batches.fill(u64::MAX, 2, &mut batch).is_err());
    let validation = ValidationBatches::new(counting(9), 8).expect("enough");
    validation
        .fill(usize::MAX, 2, &mut batch)
        .expect("rows past the end are empty");
    assert_eq!(batch.num_targets(), 0);
}

#[test]
fn too_few_tokens_are_told_with_both_numbers() {
    let tokens = |n: u32| Tokens::from_vec((0..n).collect(), 9, "memory").expect("valid ids");
    for (had, text) in [
        (0, "the text to predict has 0 tokens, but at least 2 are needed: "),
        (1, "the text to predict has 1 token, but at least 2 are needed: "),
    ] {
        let error = ValidationBatches::new(tokens(had), 4).expect_err("too few").to_string();
        assert!(error.starts_with(text), "{error}");
        assert!(!error.contains("fraction") && !error.contains("training"), "{error}");
    }
    for (had, text) in [
        (
            1,
            "has 1 token, but a sequence of 4 needs 5 (its targets lie one token further); use more text",
        ),
        (
            4,
            "has 4 tokens, but a sequence of 4 needs 5 (its targets lie one token further); use more text or a sequence length of \
             at most 3",
        ),
    ] {
        let error = Windows::new(tokens(had), 4).expect_err("too few").to_string();
        assert_eq!(error, format!("the training data {text}"));
    }
}
