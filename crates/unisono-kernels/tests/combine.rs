//! `combine` against the definition of a sum, `select_rows` against plain loops.

use proptest::prelude::*;
use unisono_kernels::combine::{Part, combine, select_rows};
use unisono_kernels::isa::Isa;
use unisono_kernels::order::{Tree, Units, sum};
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

/// Slow twin of a device: the spans of `open..end` of an array `[items][elements]`, by the definition of a span: the
/// stack machine, element by element.
fn share(tree: &Tree, open: usize, end: usize, x: &[f32], elements: usize) -> Vec<f32> {
    let spans = tree.num_spans(open, end);
    let mut out = vec![0.0; spans * elements];
    for e in 0..elements {
        let mut stack = Vec::new();
        for i in open..end {
            stack.push(x[i * elements + e]);
            for _ in 0..tree.merges(open, i..i + 1) {
                let top: f32 = stack.pop().unwrap();
                *stack.last_mut().unwrap() += top;
            }
        }
        assert_eq!(stack.len(), spans);
        for (s, v) in stack.into_iter().enumerate() {
            out[s * elements + e] = v;
        }
    }
    out
}

fn combined(isa: Isa, tree: &Tree, edges: &[usize], shares: &[Vec<f32>], elements: usize, step: usize) -> Vec<f32> {
    let part = |p: usize| Part {
        open: edges[p],
        end: edges[p + 1],
        data: &shares[p],
        slot: elements,
    };
    let mut scratch = Scratch::new(isa);
    let mut out = vec![f32::NAN; elements];
    for from in (0..elements).step_by(step).rev() {
        let len = step.min(elements - from);
        let to = &mut out[from..from + len];
        combine(isa, tree, shares.len(), &part, from, len, to, &mut scratch);
    }
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn shares_become_the_sum(
        count in 1usize..60,
        cuts in proptest::collection::vec(0usize..60, 0..6),
        elements in prop_oneof![1usize..40, 1000usize..2100],
        step in prop_oneof![1usize..40, 1000usize..2100],
        seed: u32,
    ) {
        let step = step.max(elements / 8);
        let tree = Tree::over_units(count);
        let x = numbers(count * elements, seed);
        let mut edges: Vec<usize> = cuts.iter().map(|c| c % (count + 1)).chain([0, count]).collect();
        edges.sort_unstable();
        let shares: Vec<_> = edges.windows(2).map(|w| share(&tree, w[0], w[1], &x, elements)).collect();
        let want: Vec<f32> = (0..elements)
            .map(|e| sum(&(0..count).map(|i| x[i * elements + e]).collect::<Vec<_>>(), Units { count, len: 1 }))
            .collect();
        for isa in Isa::available() {
            prop_assert_eq!(bits(&combined(isa, &tree, &edges, &shares, elements, step)), bits(&want));
        }
    }
}

#[test]
fn no_negative_zero_remains() {
    let tree = Tree::over_units(4);
    for edges in [vec![0, 4], vec![0, 2, 4], vec![0, 1, 4]] {
        let shares: Vec<_> = edges
            .windows(2)
            .map(|w| vec![-0.0; 3 * tree.num_spans(w[0], w[1])])
            .collect();
        let out = combined(Isa::detect(), &tree, &edges, &shares, 3, 2);
        assert_eq!(bits(&out), [0, 0, 0]);
    }
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: adding the shares' spans left to right, as a ring would.
    let (tree, elements) = (Tree::over_units(12), 16);
    let x = numbers(12 * elements, 3);
    let edges = [0, 4, 8, 12];
    let shares: Vec<_> = edges
        .windows(2)
        .map(|w| share(&tree, w[0], w[1], &x, elements))
        .collect();
    let ring: Vec<f32> = (0..elements)
        .map(|e| {
            shares
                .iter()
                .flat_map(|s| s[e..].iter().step_by(elements))
                .fold(0.0, |a, b| a + b)
        })
        .collect();
    assert_ne!(
        bits(&combined(Isa::detect(), &tree, &edges, &shares, elements, elements)),
        bits(&ring)
    );
}

#[test]
#[should_panic(expected = "bug in unisono: the shares 0..3 of a sum over 4 items combine to 2 spans, not one")]
fn a_share_short_is_refused() {
    let tree = Tree::over_units(4);
    combined(Isa::detect(), &tree, &[0, 2, 3], &[vec![0.0; 1], vec![0.0; 1]], 1, 1);
}

#[test]
fn rows_come_from_their_owners() {
    // Rows 0–2 from part 1, 3–5 from part 0, row 6 from nobody.
    let (rows, cols) = (7, 3);
    let parts: Vec<Vec<f32>> = (0..2)
        .map(|p| (0..rows * cols).map(|i| (100 * p + i) as f32).collect())
        .collect();
    let owner = |row: usize| match row {
        0..3 => Some(1),
        3..6 => Some(0),
        _ => None,
    };
    for (from, to) in [(0, 7), (2, 5), (6, 7), (4, 4)] {
        let mut out = vec![f32::NAN; (to - from) * cols];
        select_rows(&owner, &|p| &parts[p], cols, from, to, &mut out);
        for row in from..to {
            for c in 0..cols {
                let want = owner(row).map_or(0.0, |p| parts[p][row * cols + c]);
                assert_eq!(out[(row - from) * cols + c], want);
            }
        }
    }
}
