//! Shapes, layouts, trees and shares, of f32 and of bf16.

use super::*;
use proptest::prelude::*;

#[test]
fn every_layout_and_ragged_edges() {
    for a in LAYOUTS {
        for b in LAYOUTS {
            for (m, n, k) in [
                (1, 1, 1),
                (13, 33, 65),
                (12, 32, 128),
                (25, 70, 300),
                (7, 17, 130),
                (40, 100, 9),
            ] {
                for pad in [0, 3] {
                    let mut case = whole(m, n, Units::whole(k), (a, b));
                    case.pad = pad;
                    case.batch = 2;
                    check(case);
                }
            }
        }
    }
}

#[test]
fn few_rows_stream() {
    for m in 1..=9 {
        for b in LAYOUTS {
            check(whole(m, 530, Units { count: 3, len: 260 }, (Layout::Rows, b)));
        }
    }
    check(whole(2, 40, Units::whole(1023), (Layout::Cols, Layout::Cols)));
    // Columns a multiple of 2048 bytes apart are read in squares.
    for m in 1..=8 {
        check(whole(m, 40, Units::whole(1024), (Layout::Rows, Layout::Cols)));
    }
}

#[test]
fn nothing_to_add() {
    for (m, n, k) in [(5, 7, 0), (0, 7, 3), (5, 0, 3), (0, 0, 0)] {
        check(whole(m, n, Units::whole(k), (Layout::Rows, Layout::Rows)));
    }
    let mut case = whole(5, 7, Units { count: 6, len: 3 }, (Layout::Rows, Layout::Rows));
    case.share = Share {
        open: 0,
        from: 4,
        to: 4,
        ..case.share
    };
    check(case);
    case.batch = 0;
    check(case);
}

#[test]
fn long_leaves_are_carried_over_blocks() {
    for k in [1023, 4097, 2050] {
        check(whole(13, 35, Units::whole(k), (Layout::Rows, Layout::Rows)));
        check(whole(13, 35, Units { count: 3, len: k }, (Layout::Cols, Layout::Cols)));
    }
}

#[test]
fn odd_trees() {
    for (count, len) in [
        (7, 100),
        (12, 256),
        (15, 96),
        (25, 11),
        (50, 65),
        (700, 1),
        (49, 64),
        (47, 20),
        (3, 1536),
        (5, 127),
        (3, 258),
    ] {
        check(whole(13, 35, Units { count, len }, (Layout::Cols, Layout::Rows)));
    }
}

#[test]
fn many_tiles() {
    check(whole(
        400,
        600,
        Units { count: 2, len: 32 },
        (Layout::Rows, Layout::Cols),
    ));
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: one long chain of multiply-adds is not the canonical order.
    let case = whole(4, 16, Units::whole(512), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let mut c = o.c.clone();
    let g = o.gemm(&case, Kind::F32, Out::new(&mut c).into());
    g.run(0, &mut Scratch::new(Isa::detect()));
    let chain =
        |i: usize, j: usize| (0..512).fold(0.0f32, |acc, p| o.a.f32[i * 512 + p].mul_add(o.b.f32[p * 16 + j], acc));
    assert!((0..64).any(|e| c[e].to_bits() != chain(e / 16, e % 16).to_bits()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn equals_the_twin(
        batch in 1usize..3, m in 1usize..40, n in 1usize..80, count in 1usize..26, len in 0usize..140,
        cuts in (0usize..26, 0usize..26, 0usize..26), la in 0usize..3, lb in 0usize..3, pad in 0usize..3, seed: u32,
    ) {
        let mut cuts = [cuts.0 % (count + 1), cuts.1 % (count + 1), cuts.2 % (count + 1)];
        cuts.sort_unstable();
        check(Case {
            batch, m, n,
            share: Share { units: Units { count, len }, open: cuts[0], from: cuts[1], to: cuts[2] },
            layouts: (LAYOUTS[la], LAYOUTS[lb]),
            pad, seed,
        });
    }

    #[test]
    fn shares_in_turn_equal_the_whole(count in 1usize..20, len in 1usize..140, cut in 0usize..20, m in 1usize..20, n in 1usize..40, seed: u32) {
        // Two calls, the second on the first one's slots, against one: how gradients accumulate over micro-batches.
        let cut = cut % (count + 1);
        let units = Units { count, len };
        let case = Case { batch: 1, m, n, share: Share::whole(units), layouts: (Layout::Cols, Layout::Rows), pad: 0, seed };
        let o = operands(&case);
        for kind in KINDS {
            let mut want = o.c.clone();
            let (_, order, _) = ways(kind)[0];
            let mut scratch = Scratch::with_order(Isa::detect(), order);
            let g = o.gemm(&case, kind, Out::new(&mut want).into());
            (0..g.tiles()).for_each(|t| g.run(t, &mut scratch));
            let slots = (0..=count).map(|to| Share { units, open: 0, from: 0, to }.slots_after()).max().unwrap_or(1);
            let mut got = vec![f32::NAN; slots * m * n];
            for (from, to) in [(0, cut), (cut, count)] {
                let mut g = o.gemm(&case, kind, Out::new(&mut got).into());
                g.sum = Share { units, open: 0, from, to };
                g.a.data = g.a.data.range(from * len * m..g.a.data.len());
                g.b.data = g.b.data.range(from * len * n..g.b.data.len());
                (0..g.tiles()).for_each(|t| g.run(t, &mut scratch));
            }
            assert_same(&got[..m * n], &want[..m * n], "two shares in turn");
        }
    }
}
