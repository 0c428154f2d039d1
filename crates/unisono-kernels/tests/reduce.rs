//! The reductions against the definition of their order.

use proptest::prelude::*;
use unisono_kernels::isa::Isa;
use unisono_kernels::order::{Share, Tree, Units, row_sum, sum};
use unisono_kernels::out::Out;
use unisono_kernels::reduce::{all_finite, argmax_rows, column_sums, row_max, row_squares, row_sums, tree_sum};
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

/// Slow twin of a carried sum: the spans of the units `open..to`, where `unit(u)` is the sum of unit `u`.
fn spans(units: Units, open: usize, to: usize, unit: impl Fn(usize) -> f32) -> Vec<f32> {
    let tree = Tree::over_units(units.count);
    let mut stack = Vec::new();
    for u in open..to {
        stack.push(unit(u));
        for _ in 0..tree.merges(open, u..u + 1) {
            let top: f32 = stack.pop().unwrap();
            *stack.last_mut().unwrap() += top;
        }
    }
    stack
}

/// Units, where the stack begins, and the calls that carry it on.
fn shares() -> impl Strategy<Value = (Units, Vec<usize>)> {
    let len = prop_oneof![0usize..10, Just(96), Just(128), Just(256), Just(200), 100usize..300];
    (1usize..14, len, proptest::collection::vec(0usize..14, 1..4)).prop_map(|(count, len, cuts)| {
        let mut edges: Vec<usize> = cuts.iter().map(|c| c % (count + 1)).chain([count]).collect();
        edges.sort_unstable();
        (Units { count, len }, edges)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn columns((units, edges) in shares(), cols in 0usize..40, pad in 0usize..3, tile in 1usize..40, seed: u32) {
        // Column c: the sum over rows r of x[r * stride + c], in the order of `sum`.
        let (stride, rows, open) = (cols + pad, units.padded(), edges[0]);
        let x = numbers(rows * stride + cols, seed);
        let unit = |c: usize, u: usize| {
            let values: Vec<f32> = (u * units.len..(u + 1) * units.len).map(|r| x[r * stride + c]).collect();
            sum(&values, Units::whole(units.len))
        };
        for isa in Isa::available() {
            let mut scratch = Scratch::new(isa);
            let mut out = vec![f32::NAN; (units.count + 1) * cols];
            for pair in edges.windows(2) {
                let share = Share { units, open, from: pair[0], to: pair[1] };
                let part = &x[pair[0] * units.len * stride..];
                let size = share.slots_before().max(share.slots_after()) * cols;
                for from in (0..cols).step_by(tile).rev() {
                    let to = (from + tile).min(cols);
                    let out = Out::new(&mut out[..size]);
                    column_sums(isa, &share, part.into(), stride, from, to, out, cols, &mut scratch);
                }
                for c in 0..cols {
                    let want = spans(units, open, pair[1], |u| unit(c, u));
                    let got: Vec<f32> = (0..share.slots_after()).map(|s| out[s * cols + c]).collect();
                    prop_assert_eq!(bits(&got), bits(&want));
                }
            }
        }
    }

    #[test]
    fn vectors((units, edges) in shares(), absent in 0usize..40, slot in 1usize..4, seed: u32) {
        let x = numbers(units.padded(), seed);
        let unit = |u: usize, present: usize| {
            let end = ((u + 1) * units.len).min(present);
            sum(&x[(u * units.len).min(end)..end], Units::whole(units.len))
        };
        let open = edges[0];
        let mut out = vec![f32::NAN; units.count * slot];
        for pair in edges.windows(2) {
            let share = Share { units, open, from: pair[0], to: pair[1] };
            // The last call's last addends are absent.
            let last = pair[1] == units.count;
            let present = units.padded() - if last { absent.min(share.addends()) } else { 0 };
            let to = (pair[1] * units.len).min(present);
            let part = &x[(pair[0] * units.len).min(to)..to];
            let size = (share.slots_before().max(share.slots_after())).saturating_sub(1) * slot + 1;
            tree_sum(Isa::detect(), part, &share, Out::new(&mut out[..size.min(units.count * slot)]), slot);
            let want = spans(units, open, pair[1], |u| unit(u, present));
            let got: Vec<f32> = (0..share.slots_after()).map(|s| out[s * slot]).collect();
            prop_assert_eq!(bits(&got), bits(&want));
            if last {
                break;
            }
        }
    }

    #[test]
    fn rows(rows in 0usize..6, cols in prop_oneof![0usize..40, 0usize..600], count in 1usize..9, seed: u32) {
        let units = Units::of(cols, count);
        let x = numbers(rows * cols, seed);
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; rows];
            row_sums(isa, &x, cols, units, &mut out);
            let want: Vec<f32> = (0..rows).map(|r| row_sum(&x[r * cols..][..cols], units)).collect();
            prop_assert_eq!(bits(&out), bits(&want));
        }
    }

    #[test]
    fn squares(rows in 1usize..6, (units, edges) in shares(), absent in 0usize..40, seed: u32) {
        // The last edges are one shard: the units `from..to`, its last columns absent.
        let (from, to) = (edges[edges.len() - 2], edges[edges.len() - 1]);
        let share = Share { units, open: from, from, to };
        let cols = share.addends().saturating_sub(absent);
        let x = numbers(rows * cols, seed);
        // Lane i mod 16 of a leaf by fused multiply-add, folded 8-4-2-1; halves and units by the tree.
        let leaf_squares = |row: &[f32], at: usize, len: usize| {
            let mut lanes = [0.0f32; 16];
            for i in 0..len {
                let v = row.get(at + i).copied().unwrap_or(0.0);
                lanes[i % 16] = v.mul_add(v, lanes[i % 16]);
            }
            unisono_kernels::order::fold_lanes(lanes)
        };
        fn halves(at: usize, len: usize, leaf: &dyn Fn(usize, usize) -> f32) -> f32 {
            if len.is_multiple_of(2) && len / 2 >= unisono_kernels::order::LEAF {
                halves(at, len / 2, leaf) + halves(at + len / 2, len / 2, leaf)
            } else {
                leaf(at, len)
            }
        }
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; share.slots_after() * rows];
            for r in (0..rows).rev() {
                row_squares(isa, &x, cols, &share, Out::new(&mut out), rows, r, 1);
            }
            for r in 0..rows {
                let row = &x[r * cols..][..cols];
                let unit = |u: usize| halves((u - from) * units.len, units.len, &|at, len| leaf_squares(row, at, len));
                let want = spans(units, from, to, unit);
                let got: Vec<f32> = (0..share.slots_after()).map(|s| out[s * rows + r]).collect();
                prop_assert_eq!(bits(&got), bits(&want));
            }
        }
    }

    #[test]
    fn largest(rows in 0usize..5, cols in 1usize..70, values in 1i32..6, seed: u32) {
        // Few different values, so that ties are common.
        let x: Vec<f32> = numbers(rows * cols, seed).iter().map(|v| (v * values as f32).round()).collect();
        let (mut at, mut most) = (vec![u32::MAX; rows], vec![f32::NAN; rows]);
        argmax_rows(&x, cols, &mut at);
        row_max(&x, cols, &mut most);
        for r in 0..rows {
            let row = &x[r * cols..][..cols];
            let mut best = 0;
            for c in 0..cols {
                if row[c] > row[best] {
                    best = c;
                }
            }
            prop_assert_eq!(at[r] as usize, best);
            prop_assert_eq!(most[r], row[best]);
        }
    }

    #[test]
    fn finite(len in 0usize..9000, bad in proptest::option::of((0usize..9000, 0usize..3)), seed: u32) {
        let mut x = numbers(len, seed);
        if let Some((at, kind)) = bad.filter(|b| b.0 < len) {
            x[at] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][kind];
        }
        for isa in Isa::available() {
            prop_assert_eq!(all_finite(isa, &x), x.iter().all(|v| v.is_finite()));
        }
    }
}

#[test]
fn nan_and_negative_zero() {
    let x = [f32::NAN, -0.0, 0.0, f32::NAN, f32::NAN, f32::NAN];
    let (mut at, mut most) = ([9; 2], [9.0; 2]);
    argmax_rows(&x, 3, &mut at);
    row_max(&x, 3, &mut most);
    assert_eq!(at, [1, 0]);
    assert_eq!(bits(&most), bits(&[0.0, f32::NEG_INFINITY]));
    row_max(&[], 0, &mut most);
    assert_eq!(most, [f32::NEG_INFINITY; 2]);
    let mut out = [9.0];
    row_sums(Isa::detect(), &[-0.0; 5], 5, Units::whole(5), &mut out);
    assert_eq!(bits(&out), [0]);
    tree_sum(
        Isa::detect(),
        &[-0.0; 5],
        &Share::whole(Units::whole(5)),
        Out::new(&mut out),
        1,
    );
    assert_eq!(bits(&out), [0]);
}

#[test]
fn a_prime_count_fills_many_slots() {
    // 61 units from unit 1: nothing can be merged, each unit is a slot.
    let units = Units { count: 61, len: 2 };
    let share = Share {
        units,
        open: 1,
        from: 1,
        to: 61,
    };
    assert_eq!(share.slots_after(), 60);
    let x = numbers(120, 1);
    let mut out = vec![f32::NAN; 60];
    tree_sum(Isa::detect(), &x, &share, Out::new(&mut out), 1);
    for (s, pair) in out.iter().zip(x.chunks(2)) {
        assert_eq!(*s, pair[0] + pair[1]);
    }
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: plain running sums.
    let (units, cols) = (Units { count: 6, len: 256 }, 8);
    let x = numbers(units.padded() * cols, 11);
    let mut out = vec![0.0; cols];
    let share = Share::whole(units);
    let mut scratch = Scratch::new(Isa::detect());
    column_sums(
        Isa::detect(),
        &share,
        (&x).into(),
        cols,
        0,
        cols,
        Out::new(&mut out),
        cols,
        &mut scratch,
    );
    let running: Vec<f32> = (0..cols)
        .map(|c| x[c..].iter().step_by(cols).fold(0.0, |a, b| a + b))
        .collect();
    assert_ne!(bits(&out), bits(&running));
    let mut total = [0.0];
    row_sums(Isa::detect(), &x[..1536], 1536, units, &mut total);
    assert_ne!(
        total[0].to_bits(),
        x[..1536].iter().fold(0.0f32, |a, b| a + b).to_bits()
    );
}
