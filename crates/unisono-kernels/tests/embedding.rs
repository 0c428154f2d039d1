//! `gather` and `embedding_grad` against plain loops.

use proptest::prelude::*;
use unisono_kernels::embedding::{embedding_grad, gather};
use unisono_kernels::isa::Isa;
use unisono_kernels::order::{Share, Tree, Units, sum};
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2654435761).wrapping_add(1);
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let v = (x >> 8) as f32 / 8388608.0 - 1.0;
            v * v * v // many exponents, so that sums round
        })
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Slow twin: the spans of the sum over *all* tokens of units `open..to`, where a token of another row is an addend of +0.
fn spans(units: Units, open: usize, to: usize, addend: impl Fn(usize) -> f32) -> Vec<f32> {
    let tree = Tree::over_units(units.count);
    let mut stack = Vec::new();
    for u in open..to {
        let values: Vec<f32> = (u * units.len..(u + 1) * units.len).map(&addend).collect();
        stack.push(sum(&values, Units::whole(units.len)));
        for _ in 0..tree.merges(open, u..u + 1) {
            let top: f32 = stack.pop().unwrap();
            *stack.last_mut().unwrap() += top;
        }
    }
    stack
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn gradients(
        count in 1usize..13,
        len in prop_oneof![0usize..10, Just(96), Just(128), Just(256)],
        cuts in proptest::collection::vec(0usize..13, 1..4),
        (first_row, rows, vocabulary) in (0u32..5, 1usize..7, prop_oneof![1u32..10, 1u32..400]),
        (cols, tile) in (1usize..20, 1usize..7),
        absent in 0usize..30,
        seed: u32,
    ) {
        let units = Units { count, len };
        let mut edges: Vec<usize> = cuts.iter().map(|c| c % (count + 1)).chain([count]).collect();
        edges.sort_unstable();
        let open = edges[0];
        let tokens = units.padded();
        let dy = numbers(tokens * cols, seed);
        let mut ids: Vec<u32> =
            numbers(tokens, seed ^ 5).iter().map(|v| ((v + 1.0) * 0.5 * vocabulary as f32) as u32).collect();
        ids[tokens.saturating_sub(absent)..].fill(u32::MAX);
        for isa in Isa::available() {
            let mut scratch = Scratch::new(isa);
            let slot = rows * cols;
            let mut out = vec![f32::NAN; count * slot];
            for pair in edges.windows(2) {
                let share = Share { units, open, from: pair[0], to: pair[1] };
                let part = pair[0] * len..pair[1] * len;
                for from in (0..rows).step_by(tile).rev() {
                    let to = (from + tile).min(rows);
                    let dy = &dy[part.start * cols..part.end * cols];
                    let ids = &ids[part.clone()];
                    embedding_grad(
                        isa, &share, ids, dy.into(), cols, first_row, from, to, Out::new(&mut out), slot, &mut scratch,
                    );
                }
                for v in 0..rows {
                    for c in 0..cols {
                        let addend =
                            |t: usize| if ids[t] == first_row + v as u32 { dy[t * cols + c] } else { 0.0 };
                        let want = spans(units, open, pair[1], addend);
                        let got: Vec<f32> = (0..want.len()).map(|s| out[s * slot + v * cols + c]).collect();
                        prop_assert_eq!(bits(&got), bits(&want));
                    }
                }
            }
        }
    }

    #[test]
    fn lookups(rows in 0usize..6, first_row in 0u32..5, cols in 0usize..9, ids in proptest::collection::vec(0u32..12, 0..20)) {
        let table = numbers(rows * cols, 1);
        let mut out = vec![f32::NAN; ids.len() * cols];
        gather(&table, cols, first_row, rows, &ids, &mut out);
        for (t, id) in ids.iter().enumerate() {
            for c in 0..cols {
                let owned = (first_row..first_row + rows as u32).contains(id);
                let want = if owned { table[(id - first_row) as usize * cols + c] } else { 0.0 };
                prop_assert_eq!(out[t * cols + c].to_bits(), want.to_bits());
            }
        }
    }
}

#[test]
fn negative_zeros_add_up_to_zero() {
    let units = Units { count: 2, len: 2 };
    let mut out = [f32::NAN; 2];
    let mut scratch = Scratch::new(Isa::detect());
    let share = Share::whole(units);
    embedding_grad(
        Isa::detect(),
        &share,
        &[0; 4],
        (&[-0.0; 4]).into(),
        1,
        0,
        0,
        2,
        Out::new(&mut out),
        2,
        &mut scratch,
    );
    assert_eq!(bits(&out), [0, 0]);
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: the row's own tokens left to right, without the tree of the token dimension.
    let units = Units { count: 6, len: 128 };
    let dy = numbers(768, 2);
    let mut out = [0.0];
    let mut scratch = Scratch::new(Isa::detect());
    let share = Share::whole(units);
    embedding_grad(
        Isa::detect(),
        &share,
        &[0; 768],
        (&dy).into(),
        1,
        0,
        0,
        1,
        Out::new(&mut out),
        1,
        &mut scratch,
    );
    assert_ne!(out[0].to_bits(), dy.iter().fold(0.0f32, |a, b| a + b).to_bits());
}
