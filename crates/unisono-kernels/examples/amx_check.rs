//! Whether AMX gives the bits of the emulation: products of bf16 in the order of tiles, of all shapes and with rare numbers.
//!
//! `cargo run --release -p unisono-kernels --example amx_check`
//!
//! Needs no files, so that a static build runs in an emulator's guest. Prints by which means the products were computed, then `ok`
//! and the number of sums compared, or the first difference, with exit status 1. Where there is no AMX it says `skipped`,
//! and compares the emulations of the instruction sets that there are.

use std::process::ExitCode;
use unisono_kernels::bf16_order::Bf16Order;
use unisono_kernels::element::{Bf16, Floats, OutFloats};
use unisono_kernels::gemm::{Activation, Gemm, Mat, amx_available, bf16_instruction};
use unisono_kernels::isa::Isa;
use unisono_kernels::order::{Share, Units};
use unisono_kernels::out::Out;
use unisono_kernels::scratch::Scratch;

/// Rows, columns, units and addends of each: few rows, edges, odd leaves, short ones, and long ones that are cut into blocks.
const SHAPES: [(usize, usize, usize, usize); 12] = [
    (1, 1, 1, 2),
    (1, 50, 1, 64),
    (5, 33, 2, 96),
    (8, 70, 1, 128),
    (15, 16, 3, 31),
    (16, 32, 1, 65),
    (17, 40, 1, 384),
    (33, 65, 5, 7),
    (32, 32, 2, 512),
    (70, 31, 1, 33),
    (13, 35, 1, 1537),
    (20, 33, 3, 1026),
];

/// Numbers that are drawn.
#[derive(Clone, Copy, Debug)]
enum Numbers {
    /// Of mixed sign and size.
    Common,
    /// Many denormal, or with products about the smallest normal number; none infinite.
    Tiny,
    /// Any bits.
    Any,
}

fn draw(numbers: Numbers, count: usize, seed: u32) -> Vec<Bf16> {
    let mut x = seed.wrapping_mul(2654435761).wrapping_add(12345);
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let bits = (x >> 16) as u16;
            let tiny = match x >> 8 & 3 {
                0 => bits & 0x807f,
                // Exponents whose products are about the smallest normal number.
                1 | 2 => bits & 0x807f | (60 + (x >> 12 & 7) as u16) << 7,
                _ => bits & 0x8001 | 0x3f80,
            };
            match numbers {
                Numbers::Common => Bf16::from_f32((x >> 8) as f32 / 8388608.0 - 1.0),
                Numbers::Tiny => Bf16::from_bits(tiny),
                Numbers::Any if x & 0x3000 == 0 => Bf16::from_bits(bits),
                Numbers::Any => Bf16::from_bits(tiny),
            }
        })
        .collect()
}

/// Whether columns of A, and of B, are contiguous, instead of rows.
type Turned = (bool, bool);

/// Distances between the rows and between the columns of a matrix.
fn strides(rows: usize, cols: usize, turned: bool) -> (usize, usize) {
    if turned { (1, rows) } else { (cols, 1) }
}

/// The matrix that begins at element `at`.
fn mat(data: &[Bf16], (row_stride, col_stride): (usize, usize), at: usize) -> Mat<'_> {
    Mat {
        data: Floats::Bf16(&data[at..]),
        row_stride,
        col_stride,
    }
}

/// The product by `isa`, in two calls of which the second goes on where the first one stopped.
fn product(
    isa: Isa,
    (m, n, units): (usize, usize, Units),
    (a, b): (&[Bf16], &[Bf16]),
    (a_turned, b_turned): Turned,
    cut: usize,
) -> Vec<f32> {
    let k = units.padded();
    let share = |from, to| Share {
        units,
        open: 0,
        from,
        to,
    };
    let slots = share(0, cut).slots_after().max(1);
    let mut c = vec![f32::NAN; slots * m * n];
    let mut scratch = Scratch::with_order(isa, Bf16Order::Tiles);
    let (a_strides, b_strides) = (strides(m, k, a_turned), strides(k, n, b_turned));
    for (from, to) in [(0, cut), (cut, units.count)] {
        let first = from * units.len;
        let g = Gemm {
            batch: 1,
            a_batch: 0,
            b_batch: 0,
            c_batch: 0,
            m,
            n,
            a: mat(a, a_strides, first * a_strides.1),
            b: mat(b, b_strides, first * b_strides.0),
            c: OutFloats::F32(Out::new(&mut c)),
            c_row: n,
            slot: m * n,
            sum: share(from, to),
            bias: None,
            activation: Activation::None,
            pre: None,
            residual: None,
        };
        (0..g.tiles()).for_each(|tile| g.run(tile, &mut scratch));
    }
    c.truncate(m * n);
    c
}

fn main() -> ExitCode {
    let best = Isa::detect();
    // The emulation of AVX2, as that of plain code takes long; AMX is used on AVX-512 only.
    let twin = best.min(Isa::Avx2);
    let [by, by_twin] = [best, twin].map(|isa| format!("{}, {}", isa.name(), bf16_instruction(Bf16Order::Tiles, isa)));
    println!("bf16 products in the order of tiles: {by}; against {by_twin}");
    if !amx_available() {
        println!("skipped: AMX, which is not here, or which the system does not let a process use");
    }
    let mut compared = 0;
    for (index, (m, n, count, len)) in SHAPES.into_iter().enumerate() {
        let units = Units { count, len };
        let k = units.padded();
        for numbers in [Numbers::Common, Numbers::Tiny, Numbers::Any] {
            for turned in [(false, false), (true, false), (false, true), (true, true)] {
                let seed = index as u32 * 7 + 1;
                let (a, b) = (draw(numbers, m * k, seed), draw(numbers, k * n, seed ^ 999));
                let cut = if turned.0 { count / 2 } else { 0 };
                let [got, want] = [best, twin].map(|isa| product(isa, (m, n, units), (&a, &b), turned, cut));
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    if got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan()) {
                        println!(
                            "different: {m} × {k} × {n}, {units:?}, {numbers:?} numbers, turned {turned:?}, cut {cut}: \
                             row {}, column {} is {got:e} ({:08x}) by {by}, {want:e} ({:08x}) by {by_twin}",
                            i / n,
                            i % n,
                            got.to_bits(),
                            want.to_bits()
                        );
                        return ExitCode::FAILURE;
                    }
                    compared += 1;
                }
            }
        }
    }
    println!("ok: {compared} sums have equal bits");
    ExitCode::SUCCESS
}
