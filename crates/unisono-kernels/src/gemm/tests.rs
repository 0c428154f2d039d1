//! Products against their slow twin, bit by bit.

mod ends;
mod orders;
mod pairs;
mod tiles;

use super::*;
use crate::element::Bf16;
use crate::order::{Tree, Units};
use crate::out::Out;

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

fn rounded(x: &[f32]) -> Vec<Bf16> {
    x.iter().map(|x| Bf16::from_f32(*x)).collect()
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

/// A factor in both kinds: the second one rounded.
struct Factor {
    f32: Vec<f32>,
    bf16: Vec<Bf16>,
}

impl Factor {
    fn new(f32: Vec<f32>) -> Factor {
        Factor {
            bf16: rounded(&f32),
            f32,
        }
    }

    fn floats(&self, kind: Kind) -> Floats<'_> {
        match kind {
            Kind::F32 => Floats::F32(&self.f32),
            Kind::Bf16 | Kind::Tiles => Floats::Bf16(&self.bf16),
        }
    }
}

/// What the factors hold, and in which order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32,
    /// bf16 in pairs.
    Bf16,
    /// bf16 in the order of AMX tiles.
    Tiles,
}

const KINDS: [Kind; 3] = [Kind::F32, Kind::Bf16, Kind::Tiles];

struct Operands {
    a: Factor,
    b: Factor,
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
        a: Factor::new(numbers(case.batch * sa.2, case.seed)),
        b: Factor::new(numbers(case.batch * sb.2, case.seed ^ 77)),
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
    fn gemm<'a>(&'a self, case: &Case, kind: Kind, c: OutFloats<'a>) -> Gemm<'a> {
        Gemm {
            batch: case.batch,
            a_batch: self.sa.2,
            b_batch: self.sb.2,
            c_batch: self.c_batch,
            m: case.m,
            n: case.n,
            a: Mat {
                data: self.a.floats(kind),
                row_stride: self.sa.0,
                col_stride: self.sa.1,
            },
            b: Mat {
                data: self.b.floats(kind),
                row_stride: self.sb.0,
                col_stride: self.sb.1,
            },
            c,
            c_row: self.c_row,
            slot: self.slot,
            sum: case.share,
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
        }
    }
}

/// `a · b + c` of bf16 products: rounded once to 24 bits of any exponent, and a zero of its sign if below 2⁻¹²⁶ then.
fn fma_flushed(a: f32, b: f32, c: f32) -> f32 {
    let r = a.mul_add(b, c);
    if r.is_nan() || r.abs() > f32::MIN_POSITIVE {
        return r;
    }
    // So near to zero the sum is exact in f64, or at least on the same side of the limit.
    let exact = f64::from(a) * f64::from(b) + f64::from(c);
    let limit = 2f64.powi(-126) - 2f64.powi(-151);
    if exact != 0.0 && exact.abs() < limit {
        0f32.copysign(exact as f32)
    } else {
        r
    }
}

/// Denormals as zeros of their sign.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// Sum of one leaf, from +0: left to right; or in pairs of which the second addend comes first; or by chunks of 32, the even
/// and the odd ones apart.
fn leaf(kind: Kind, x: &[f32], y: &[f32]) -> f32 {
    let mut acc = 0.0f32;
    match kind {
        Kind::F32 => {
            for i in 0..x.len() {
                acc = x[i].mul_add(y[i], acc);
            }
        }
        Kind::Bf16 => {
            let at = |x: &[f32], i: usize| flushed(x.get(i).copied().unwrap_or(0.0));
            for i in (0..x.len()).step_by(2) {
                for p in [i + 1, i] {
                    acc = fma_flushed(at(x, p), at(y, p), acc);
                }
            }
        }
        Kind::Tiles => {
            let at = |x: &[f32], i: usize| flushed(x.get(i).copied().unwrap_or(0.0));
            for i in (0..x.len()).step_by(32) {
                let (mut even, mut odd) = (0.0f32, 0.0f32);
                for p in (i..i + 32).step_by(2) {
                    even = fma_flushed(at(x, p), at(y, p), even);
                    odd = fma_flushed(at(x, p + 1), at(y, p + 1), odd);
                }
                acc = flushed(acc + flushed(even + odd));
            }
        }
    }
    acc
}

/// Sum of one unit: halves while even and at least LEAF long, then a leaf.
fn unit(kind: Kind, x: &[f32], y: &[f32]) -> f32 {
    let len = x.len();
    if len.is_multiple_of(2) && len / 2 >= crate::order::LEAF {
        unit(kind, &x[..len / 2], &y[..len / 2]) + unit(kind, &x[len / 2..], &y[len / 2..])
    } else {
        leaf(kind, x, y)
    }
}

fn element(data: Floats, i: usize) -> f32 {
    match data {
        Floats::F32(x) => x[i],
        Floats::Bf16(x) => x[i].to_f32(),
    }
}

/// The slow twin. For each product `t`, row `i`, column `j`: the stack of `open..from` is read from
/// `c[t · c_batch + s · slot + i · c_row + j]`, s = 0, 1, …; each unit's dot product of
/// `a[t · a_batch + i · a_row + p · a_col]` and `b[t · b_batch + p · b_row + j · b_col]` is pushed, and merged as the tree
/// over units says; the stack goes back to the slots, with +0 added.
fn twin(g: &Gemm, kind: Kind, c: &mut [f32]) {
    let Share { units, open, from, to } = g.sum;
    let tree = Tree::over_units(units.count);
    for t in 0..g.batch {
        for i in 0..g.m {
            for j in 0..g.n {
                let at = t * g.c_batch + i * g.c_row + j;
                let mut stack: Vec<f32> = (0..g.sum.slots_before()).map(|s| c[at + s * g.slot]).collect();
                let k = g.sum.addends();
                let x: Vec<f32> = (0..k)
                    .map(|p| element(g.a.data, t * g.a_batch + i * g.a.row_stride + p * g.a.col_stride))
                    .collect();
                let y: Vec<f32> = (0..k)
                    .map(|p| element(g.b.data, t * g.b_batch + p * g.b.row_stride + j * g.b.col_stride))
                    .collect();
                for u in from..to {
                    let range = (u - from) * units.len..(u - from + 1) * units.len;
                    stack.push(unit(kind, &x[range.clone()], &y[range]));
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

/// Equal bits; of a NaN only that it is one.
fn assert_same(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(),
            "{what}: element {i} of {} is {g} ({:08x}), the twin's {w} ({:08x})",
            got.len(),
            g.to_bits(),
            w.to_bits()
        );
    }
}

/// The ways to compute a product of a kind on this CPU: instruction sets, orders, and instructions for bf16.
fn ways(kind: Kind) -> Vec<(Isa, Bf16Order, Hardware)> {
    let order = if kind == Kind::Tiles {
        Bf16Order::Tiles
    } else {
        Bf16Order::Pairs
    };
    let mut ways: Vec<_> = Isa::available()
        .into_iter()
        .map(|isa| (isa, order, Hardware::None))
        .collect();
    if kind != Kind::F32 && has_bf16_instruction() {
        ways.push((Isa::Avx512, order, Hardware::Pairs));
    }
    if kind == Kind::Tiles && amx_available() {
        ways.push((Isa::Avx512, order, Hardware::Tiles));
    }
    ways
}

/// Runs all tiles in one way, backwards on one of them.
fn run(g: &Gemm, (isa, order, hardware): (Isa, Bf16Order, Hardware)) {
    let mut scratch = Scratch::with_order(isa, order);
    scratch.floats(1 << 12).fill(f32::NAN);
    let tiles = g.tiles();
    for t in 0..tiles {
        let tile = if isa == Isa::Avx2 { tiles - 1 - t } else { t };
        g.run_with(tile, &mut scratch, hardware);
    }
}

/// Runs the case in every way with each kind of factors, and compares all of C, padding included.
fn check(case: Case) {
    check_operands(&case, &operands(&case));
}

fn check_operands(case: &Case, o: &Operands) {
    for kind in KINDS {
        let mut want = o.c.clone();
        let mut unused = o.c.clone();
        twin(&o.gemm(case, kind, Out::new(&mut unused).into()), kind, &mut want);
        for way in ways(kind) {
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
            run(&o.gemm(case, kind, Out::new(&mut got).into()), way);
            assert_same(&got, &want, &format!("{case:?} of {kind:?} by {way:?}"));
        }
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
