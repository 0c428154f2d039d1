//! The kernels along rows and over single elements against their slow twins, bit by bit on every instruction set.

mod bf16;
mod cross_entropy;
mod elementwise;
mod norm;
mod optimizer;
mod random;
mod rope;
mod softmax;
mod swiglu;

use unisono_kernels::order::{Units, fold_lanes};

/// Deterministic numbers in −1..1, all with full mantissas.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / 8_388_608.0 - 1.0
        })
        .collect()
}

/// Equal bits, any NaN being equal to any other.
#[track_caller]
fn assert_same(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(),
            "{what}: element {i} is {g:e} ({:#010x}), not {w:e} ({:#010x})",
            g.to_bits(),
            w.to_bits()
        );
    }
}

/// A sum along a row in canonical order, straight from the definition: `add(i, acc)` adds element i to its lane.
///
/// Over units by prime factors, twos first; within a unit halves down to the leaf; in a leaf lane `i mod 16`, folded 8-4-2-1.
/// The last addition of +0.0 removes −0.
fn order_of(n: usize, units: Units, add: impl Fn(usize, f32) -> f32) -> f32 {
    fn tree(first: usize, count: usize, unit: &dyn Fn(usize) -> f32) -> f32 {
        match (2..=count).find(|p| count.is_multiple_of(*p)) {
            None => unit(first),
            Some(p) => {
                let child = count / p;
                (1..p).fold(tree(first, child, unit), |acc, i| {
                    acc + tree(first + i * child, child, unit)
                })
            }
        }
    }
    fn halves(from: usize, to: usize, leaf: &dyn Fn(usize, usize) -> f32) -> f32 {
        let len = to - from;
        if len.is_multiple_of(2) && len / 2 >= 64 {
            halves(from, from + len / 2, leaf) + halves(from + len / 2, to, leaf)
        } else {
            leaf(from, to)
        }
    }
    let leaf = |from: usize, to: usize| {
        let mut lanes = [0.0f32; 16];
        for i in from..to.min(n) {
            lanes[(i - from) % 16] = add(i, lanes[(i - from) % 16]);
        }
        fold_lanes(lanes)
    };
    tree(0, units.count, &|unit| {
        halves(unit * units.len, (unit + 1) * units.len, &leaf)
    }) + 0.0
}
