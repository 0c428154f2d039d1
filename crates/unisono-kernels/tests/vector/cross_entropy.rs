//! Cross-entropy over vocabularies in one, two and more shards.

use super::{assert_same, numbers, order_of};
use proptest::prelude::*;
use unisono_kernels::cross_entropy::{MASKED, logits_grad, loss, row_max, row_sum_exp, target_logit};
use unisono_kernels::isa::Isa;
use unisono_kernels::math;
use unisono_kernels::order::{Share, Tree, Units};
use unisono_kernels::out::Out;

/// The slow twin: `(loss, gradient)` of one row over the whole vocabulary.
fn slow(logits: &[f32], target: u32, units: Units, scale: f32) -> (f32, f32, Vec<f32>) {
    let max = logits
        .iter()
        .fold(f32::NEG_INFINITY, |m, x| if *x > m { *x } else { m });
    let sum = order_of(logits.len(), units, |i, acc| acc + math::exp(logits[i] - max));
    let lse = max + math::ln(sum);
    if target == MASKED {
        return (lse, 0.0, vec![0.0; logits.len()]);
    }
    let grad = |(i, l): (usize, &f32)| {
        let p = math::exp(l - lse);
        if i == target as usize {
            (p - 1.0) * scale
        } else {
            p * scale
        }
    };
    (
        lse,
        lse - logits[target as usize],
        logits.iter().enumerate().map(grad).collect(),
    )
}

/// What the runtime does: each shard's steps, with the reductions between them. Returns `(lse, loss, gradient)`.
#[allow(clippy::too_many_arguments)]
fn sharded(
    isa: Isa,
    logits: &[f32],
    rows: usize,
    vocab: usize,
    units: Units,
    shards: usize,
    targets: &[u32],
    scale: f32,
) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let tree = Tree::over_units(units.count);
    let per = units.count / shards;
    let cols = per * units.len + 3; // three columns of padding a shard
    let stored: Vec<Vec<f32>> = (0..shards)
        .map(|d| {
            let value = |r: usize, c: usize| {
                let v = d * per * units.len + c;
                if c < per * units.len && v < vocab {
                    logits[r * vocab + v]
                } else {
                    1e9
                }
            };
            (0..rows * cols).map(|i| value(i / cols, i % cols)).collect()
        })
        .collect();
    let valid = |d: usize| vocab.saturating_sub(d * per * units.len).min(per * units.len);
    let first = |d: usize| (d * per * units.len) as u32;
    let mut max = vec![f32::NEG_INFINITY; rows];
    for (d, logits) in stored.iter().enumerate() {
        let mut part = vec![9.0; rows];
        row_max(isa, logits, cols, valid(d), &mut part);
        max.iter_mut().zip(part).for_each(|(m, p)| *m = m.max(p));
    }
    let mut stacks = vec![Vec::new(); rows];
    let mut target_logits = vec![0.0; rows];
    for (d, logits) in stored.iter().enumerate() {
        let share = Share {
            units,
            open: d * per,
            from: d * per,
            to: (d + 1) * per,
        };
        let mut sums = vec![9.0; share.slots_after() * (rows + 2)];
        // In two tiles of rows, the second first.
        let half = rows / 2;
        for (from, to) in [(half, rows), (0, half)] {
            let part = &logits[from * cols..to * cols];
            row_sum_exp(
                isa,
                part,
                cols,
                valid(d),
                &max[from..to],
                &share,
                Out::new(&mut sums),
                rows + 2,
                from,
            );
        }
        let mut part = vec![9.0; rows];
        target_logit(logits, cols, first(d), valid(d), targets, &mut part);
        for r in 0..rows {
            for (k, span) in tree.spans(d * per, (d + 1) * per).enumerate() {
                stacks[r].push(sums[k * (rows + 2) + r]);
                for _ in 0..tree.merges(0, span.clone()) {
                    let top: f32 = stacks[r].pop().unwrap();
                    *stacks[r].last_mut().unwrap() += top;
                }
            }
            let owns = (first(d)..first(d) + valid(d) as u32).contains(&targets[r]);
            if owns {
                target_logits[r] = part[r];
            } else {
                assert_eq!(part[r], 0.0);
            }
        }
    }
    let sums: Vec<f32> = stacks.iter().map(|s| s[0]).collect();
    let (mut lse, mut losses) = (vec![9.0; rows], vec![9.0; rows]);
    loss(isa, &max, &sums, &target_logits, targets, &mut lse, &mut losses);
    let mut grad = vec![9.0; rows * vocab];
    for (d, mut part) in stored.into_iter().enumerate() {
        logits_grad(isa, &mut part, cols, valid(d), first(d), &lse, targets, scale);
        for r in 0..rows {
            let row = &part[r * cols..(r + 1) * cols];
            assert_same(&row[valid(d)..], &vec![0.0; cols - valid(d)], "padding");
            grad[r * vocab + first(d) as usize..][..valid(d)].copy_from_slice(&row[..valid(d)]);
        }
    }
    (lse, losses, grad)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn every_sharding_equals_the_slow_twin(
        rows in 1usize..6, vocab in 40usize..420, shards in 1usize..5, per in 1usize..4, spread in 0.1f32..30.0, seed: u32,
    ) {
        let units = Units::of(vocab, shards * per);
        let logits: Vec<f32> = numbers(rows * vocab, seed).iter().map(|x| x * spread).collect();
        let targets: Vec<u32> = (0..rows)
            .map(|r| if r == 2 { MASKED } else { (seed as usize / 7 * (r + 1) % vocab) as u32 })
            .collect();
        let scale = 1.0 / 37.0;
        for isa in Isa::available() {
            for shards in [1, shards] {
                let (lse, losses, grad) = sharded(isa, &logits, rows, vocab, units, shards, &targets, scale);
                for r in 0..rows {
                    let at = r * vocab..(r + 1) * vocab;
                    let want = slow(&logits[at.clone()], targets[r], units, scale);
                    assert_same(&[lse[r], losses[r]], &[want.0, want.1], &format!("lse and loss on {isa:?}"));
                    assert_same(&grad[at], &want.2, &format!("gradient on {isa:?}"));
                }
            }
        }
    }
}

#[test]
fn a_shard_of_padding_adds_nothing() {
    let units = Units { count: 2, len: 8 };
    let share = Share {
        units,
        open: 1,
        from: 1,
        to: 2,
    };
    for isa in Isa::available() {
        let (mut max, mut sum) = ([0.0; 2], [9.0; 2]);
        row_max(isa, &[5.0; 16], 8, 0, &mut max);
        assert_eq!(max, [f32::NEG_INFINITY; 2]);
        row_sum_exp(isa, &[5.0; 16], 8, 0, &[1.0; 2], &share, Out::new(&mut sum), 2, 0);
        assert_eq!(sum.map(f32::to_bits), [0, 0]);
    }
}

#[test]
fn agrees_with_f64() {
    let vocab = 65;
    let logits: Vec<f32> = numbers(vocab, 11).iter().map(|x| x * 5.0).collect();
    let (_, losses, grad) = sharded(Isa::detect(), &logits, 1, vocab, Units::whole(vocab), 1, &[17], 1.0);
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    assert!((f64::from(losses[0]) - (sum.ln() - f64::from(logits[17]))).abs() < 1e-5);
    for i in 0..vocab {
        let want = f64::from(logits[i]).exp() / sum - if i == 17 { 1.0 } else { 0.0 };
        assert!((f64::from(grad[i]) - want).abs() < 1e-6);
    }
}
