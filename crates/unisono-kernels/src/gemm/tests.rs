//! Products against their slow twin, bit by bit.

use super::*;
use crate::order::{Tree, Units};
use proptest::prelude::*;

/// Numbers of mixed sign and size.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed.wrapping_mul(2654435761).wrapping_add(12345);
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let unit = (x >> 8) as f32 / 8388608.0 - 1.0;
            unit * [1.0, 1e-3, 30.0, 1.0][(x >> 4 & 3) as usize]
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Rows,
    Cols,
    Other,
}

const LAYOUTS: [Layout; 3] = [Layout::Rows, Layout::Cols, Layout::Other];

/// Strides of a rows × cols matrix with some padding, and the elements that it takes.
fn strides(layout: Layout, rows: usize, cols: usize, pad: usize) -> (usize, usize, usize) {
    match layout {
        Layout::Rows => (cols + pad, 1, rows * (cols + pad)),
        Layout::Cols => (1, rows + pad, cols * (rows + pad)),
        Layout::Other => (3 * cols + pad, 3, rows * (3 * cols + pad) + 1),
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    m: usize,
    n: usize,
    share: Share,
    layouts: (Layout, Layout),
    pad: usize,
    seed: u32,
}

struct Operands {
    a: Vec<f32>,
    b: Vec<f32>,
    bias: Vec<f32>,
    /// The slots before the call.
    c: Vec<f32>,
    c_row: usize,
    slot: usize,
    c_batch: usize,
    sa: (usize, usize, usize),
    sb: (usize, usize, usize),
}

fn operands(case: &Case) -> Operands {
    let k = case.share.addends();
    let sa = strides(case.layouts.0, case.m, k, case.pad);
    let sb = strides(case.layouts.1, k, case.n, case.pad);
    let c_row = case.n + case.pad;
    let slot = case.m * c_row + case.pad;
    let c_batch = slot * case.share.slots_before().max(case.share.slots_after()).max(1);
    Operands {
        a: numbers(case.batch * sa.2, case.seed),
        b: numbers(case.batch * sb.2, case.seed ^ 77),
        bias: numbers(case.n, case.seed ^ 99),
        c: numbers(case.batch * c_batch, case.seed ^ 5),
        c_row,
        slot,
        c_batch,
        sa,
        sb,
    }
}

impl Operands {
    fn gemm<'a>(&'a self, case: &Case, c: &'a mut [f32]) -> Gemm<'a> {
        Gemm {
            batch: case.batch,
            a_batch: self.sa.2,
            b_batch: self.sb.2,
            c_batch: self.c_batch,
            m: case.m,
            n: case.n,
            a: Mat {
                data: &self.a,
                row_stride: self.sa.0,
                col_stride: self.sa.1,
            },
            b: Mat {
                data: &self.b,
                row_stride: self.sb.0,
                col_stride: self.sb.1,
            },
            c: Out::new(c),
            c_row: self.c_row,
            slot: self.slot,
            sum: case.share,
            bias: None,
            activation: Activation::None,
            pre: None,
        }
    }
}

/// Sum of one unit: halves while even and at least LEAF long, then fused multiply-adds left to right from +0.
fn unit(x: &[f32], y: &[f32]) -> f32 {
    let len = x.len();
    if len.is_multiple_of(2) && len / 2 >= crate::order::LEAF {
        unit(&x[..len / 2], &y[..len / 2]) + unit(&x[len / 2..], &y[len / 2..])
    } else {
        let mut acc = 0.0f32;
        for i in 0..len {
            acc = x[i].mul_add(y[i], acc);
        }
        acc
    }
}

/// The slow twin. For each product `t`, row `i`, column `j`: the stack of `open..from` is read from
/// `c[t · c_batch + s · slot + i · c_row + j]`, s = 0, 1, …; each unit's dot product of
/// `a[t · a_batch + i · a_row + p · a_col]` and `b[t · b_batch + p · b_row + j · b_col]` is pushed, and merged as the tree
/// over units says; the stack goes back to the slots, with +0 added.
fn twin(g: &Gemm, c: &mut [f32]) {
    let Share { units, open, from, to } = g.sum;
    let tree = Tree::over_units(units.count);
    for t in 0..g.batch {
        for i in 0..g.m {
            for j in 0..g.n {
                let at = t * g.c_batch + i * g.c_row + j;
                let mut stack: Vec<f32> = (0..g.sum.slots_before()).map(|s| c[at + s * g.slot]).collect();
                let k = g.sum.addends();
                let x: Vec<f32> = (0..k)
                    .map(|p| g.a.data[t * g.a_batch + i * g.a.row_stride + p * g.a.col_stride])
                    .collect();
                let y: Vec<f32> = (0..k)
                    .map(|p| g.b.data[t * g.b_batch + p * g.b.row_stride + j * g.b.col_stride])
                    .collect();
                for u in from..to {
                    let range = (u - from) * units.len..(u - from + 1) * units.len;
                    stack.push(unit(&x[range.clone()], &y[range]));
                    for _ in 0..tree.merges(open, u..u + 1) {
                        let top = stack.pop().expect("a merge has a top");
                        *stack.last_mut().expect("a merge has something below") += top;
                    }
                }
                if from < to {
                    for (s, value) in stack.into_iter().enumerate() {
                        c[at + s * g.slot] = value + 0.0;
                    }
                }
            }
        }
    }
}

fn assert_same(got: &[f32], want: &[f32], what: &str) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert_eq!(
            g.to_bits(),
            w.to_bits(),
            "{what}: element {i} of {} is {g} ({:08x}), the twin's {w} ({:08x})",
            got.len(),
            g.to_bits(),
            w.to_bits()
        );
    }
}

/// Runs the case on each instruction set, tiles backwards on one, and compares all of C, padding included.
fn check(case: Case) {
    let o = operands(&case);
    let mut want = o.c.clone();
    let mut unused = o.c.clone();
    twin(&o.gemm(&case, &mut unused), &mut want);
    for isa in Isa::available() {
        let mut got = o.c.clone();
        if case.share.slots_before() == 0 {
            // What a fresh product finds in its slots must not matter.
            for t in 0..case.batch {
                for s in 0..case.share.slots_after() {
                    for i in 0..case.m {
                        let at = t * o.c_batch + s * o.slot + i * o.c_row;
                        got[at..at + case.n].fill(f32::NAN);
                    }
                }
            }
        }
        let g = o.gemm(&case, &mut got);
        let mut scratch = Scratch::new(isa);
        scratch.floats(1 << 12).fill(f32::NAN);
        let tiles = g.tiles();
        for t in 0..tiles {
            g.run(if isa == Isa::Avx2 { tiles - 1 - t } else { t }, &mut scratch);
        }
        assert_same(&got, &want, &format!("{case:?} on {}", isa.name()));
    }
}

fn whole(m: usize, n: usize, units: Units, layouts: (Layout, Layout)) -> Case {
    Case {
        batch: 1,
        m,
        n,
        share: Share::whole(units),
        layouts,
        pad: 0,
        seed: 1,
    }
}

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
    for k in [1023, 4097] {
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
fn epilogues() {
    use crate::elementwise::{gelu_erf, gelu_tanh, relu, silu};
    use crate::simd::{Portable, Simd};
    // The twin: the sum, + bias, [kept], then the activation of one number.
    let apply = |activation: Activation, x: f32| {
        let s = Portable::new();
        let x = s.splat(x);
        s.to_array(match activation {
            Activation::None => x,
            Activation::Relu => relu(s, x),
            Activation::Gelu => gelu_erf(s, x),
            Activation::GeluTanh => gelu_tanh(s, x),
            Activation::Silu => silu(s, x),
        })[0]
    };
    let all = [
        Activation::None,
        Activation::Relu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
    ];
    for (m, n) in [(3, 50), (25, 64), (13, 7)] {
        for activation in all {
            for (with_bias, with_pre) in [(false, false), (true, false), (true, true), (false, true)] {
                let mut case = whole(m, n, Units { count: 3, len: 70 }, (Layout::Rows, Layout::Cols));
                case.pad = 2;
                let o = operands(&case);
                let mut sums = o.c.clone();
                let mut unused = o.c.clone();
                twin(&o.gemm(&case, &mut unused), &mut sums);
                let (mut want, mut want_pre) = (o.c.clone(), o.c.clone());
                for i in 0..m {
                    for j in 0..n {
                        let at = i * o.c_row + j;
                        let x = if with_bias { sums[at] + o.bias[j] } else { sums[at] };
                        want[at] = apply(activation, x);
                        want_pre[at] = x;
                    }
                }
                for isa in Isa::available() {
                    let (mut got, mut got_pre) = (o.c.clone(), o.c.clone());
                    let mut g = o.gemm(&case, &mut got);
                    g.bias = with_bias.then_some(&o.bias);
                    g.activation = activation;
                    g.pre = with_pre.then(|| Out::new(&mut got_pre));
                    let mut scratch = Scratch::new(isa);
                    (0..g.tiles()).for_each(|t| g.run(t, &mut scratch));
                    let what = format!("{activation:?}, bias {with_bias}, pre {with_pre}, {}", isa.name());
                    assert_same(&got, &want, &what);
                    if with_pre {
                        assert_same(&got_pre, &want_pre, &what);
                    }
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "bug in unisono: a bias or an activation on a sum that is not complete")]
fn no_epilogue_on_a_part() {
    let mut case = whole(2, 2, Units { count: 3, len: 4 }, (Layout::Rows, Layout::Rows));
    case.share.to = 2;
    let o = operands(&case);
    let mut c = o.c.clone();
    let mut g = o.gemm(&case, &mut c);
    g.activation = Activation::Relu;
    g.run(0, &mut Scratch::new(Isa::Portable));
}

#[test]
fn signs_of_zero() {
    // Products that underflow to −0 leave a running sum of −0; stored it must be +0.
    let a = vec![-1e-30f32; 64];
    let b = vec![1e-30f32; 64];
    for isa in Isa::available() {
        let mut c = [1.0f32; 1];
        let g = Gemm {
            batch: 1,
            a_batch: 0,
            b_batch: 0,
            c_batch: 0,
            m: 1,
            n: 1,
            a: Mat {
                data: &a,
                row_stride: 64,
                col_stride: 1,
            },
            b: Mat {
                data: &b,
                row_stride: 1,
                col_stride: 1,
            },
            c: Out::new(&mut c),
            c_row: 1,
            slot: 1,
            sum: Share::whole(Units::whole(64)),
            bias: None,
            activation: Activation::None,
            pre: None,
        };
        g.run(0, &mut Scratch::new(isa));
        assert_eq!(c[0].to_bits(), 0);
    }
}

#[test]
fn another_order_gives_other_bits() {
    // The broken control: one long chain of multiply-adds is not the canonical order.
    let case = whole(4, 16, Units::whole(512), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let mut c = o.c.clone();
    let g = o.gemm(&case, &mut c);
    g.run(0, &mut Scratch::new(Isa::detect()));
    let chain = |i: usize, j: usize| (0..512).fold(0.0f32, |acc, p| o.a[i * 512 + p].mul_add(o.b[p * 16 + j], acc));
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
        let mut want = o.c.clone();
        let mut scratch = Scratch::new(Isa::detect());
        let g = o.gemm(&case, &mut want);
        (0..g.tiles()).for_each(|t| g.run(t, &mut scratch));
        let slots = (0..=count).map(|to| Share { units, open: 0, from: 0, to }.slots_after()).max().unwrap_or(1);
        let mut got = vec![f32::NAN; slots * m * n];
        for (from, to) in [(0, cut), (cut, count)] {
            let mut g = o.gemm(&case, &mut got);
            g.sum = Share { units, open: 0, from, to };
            g.a.data = &o.a[from * len * m..];
            g.b.data = &o.b[from * len * n..];
            (0..g.tiles()).for_each(|t| g.run(t, &mut scratch));
        }
        assert_same(&got[..m * n], &want[..m * n], "two shares in turn");
    }
}
