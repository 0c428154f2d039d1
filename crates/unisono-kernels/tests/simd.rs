//! Every operation of the lanes on every instruction set against plain scalar code, special values included.

use unisono_kernels::isa::Isa;
use unisono_kernels::simd::{LANES, Simd, dispatch};

/// Values that tell implementations apart, and a few hundred random bit patterns.
fn values() -> Vec<f32> {
    let mut v = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        1e-45,
        -1e-45,
        1.1754944e-38,
        1e-39,
        -3e-41,
        8388607.5,
        -8388607.5,
        8388608.0,
        2147483500.0,
        -2147483600.0,
        1e30,
        -1e30,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        0.1,
        0.99999994,
        -0.99999994,
        4194304.5,
    ];
    let mut x = 12345u32;
    while v.len() < 40 * LANES {
        x = x.wrapping_mul(1664525).wrapping_add(1013904223);
        v.push(f32::from_bits(x ^ x >> 15));
    }
    v
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[inline(always)]
fn all_floats<S: Simd>(s: S, a: &[f32], b: &[f32], c: &[f32], out: &mut Vec<Vec<f32>>) {
    let (a, b, c) = (s.read(a), s.read(b), s.read(c));
    let yes = s.splat(1.0);
    let no = s.zero();
    for v in [
        s.add(a, b),
        s.sub(a, b),
        s.mul(a, b),
        s.div(a, b),
        s.fma(a, b, c),
        s.fnma(a, b, c),
        s.max(a, b),
        s.min(a, b),
        s.sqrt(a),
        s.neg(a),
        s.abs(a),
        s.floor(a),
        s.select(s.lt(a, b), yes, no),
        s.select(s.le(a, b), yes, no),
        s.select(s.eq(a, b), yes, no),
        s.select(s.gt(a, b), yes, no),
        s.select(s.ge(a, b), a, b),
        s.select(s.and_m(s.lt(a, b), s.lt(b, c)), yes, no),
        s.select(s.or_m(s.lt(a, b), s.lt(b, c)), yes, no),
        s.select(s.not_m(s.lt(a, b)), yes, no),
        s.from_i32(s.bits(a)),
        s.splat(s.fold(a)),
    ] {
        out.push(s.to_array(v).to_vec());
    }
}

fn all_floats_slow(a: &[f32], b: &[f32], c: &[f32]) -> Vec<Vec<f32>> {
    let truth = |t: bool| if t { 1.0 } else { 0.0 };
    let each = |f: &dyn Fn(f32, f32, f32) -> f32| (0..LANES).map(|i| f(a[i], b[i], c[i])).collect::<Vec<f32>>();
    let mut lanes: Vec<f32> = a.to_vec();
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    vec![
        each(&|a, b, _| a + b),
        each(&|a, b, _| a - b),
        each(&|a, b, _| a * b),
        each(&|a, b, _| a / b),
        each(&|a, b, c| a.mul_add(b, c)),
        each(&|a, b, c| (-a).mul_add(b, c)),
        each(&|a, b, _| if a > b { a } else { b }),
        each(&|a, b, _| if a < b { a } else { b }),
        each(&|a, _, _| a.sqrt()),
        each(&|a, _, _| -a),
        each(&|a, _, _| a.abs()),
        each(&|a, _, _| a.floor()),
        each(&|a, b, _| truth(a < b)),
        each(&|a, b, _| truth(a <= b)),
        each(&|a, b, _| truth(a == b)),
        each(&|a, b, _| truth(a > b)),
        each(&|a, b, _| if a >= b { a } else { b }),
        each(&|a, b, c| truth(a < b && b < c)),
        each(&|a, b, c| truth(a < b || b < c)),
        each(&|a, b, _| truth(a >= b || a.is_nan() || b.is_nan())),
        each(&|a, _, _| a.to_bits() as i32 as f32),
        vec![lanes[0]; LANES],
    ]
}

#[inline(always)]
fn all_words<S: Simd>(s: S, a: &[u32; LANES], b: &[u32; LANES], out: &mut Vec<[u32; LANES]>) {
    let (a, b) = (s.from_array_u(*a), s.from_array_u(*b));
    let (yes, no) = (s.splat_u(1), s.splat_u(0));
    let product = s.mul_even_u(a, b);
    let transposed = s.transpose4_u([a, b, product, s.add_u(a, b)]);
    for v in [
        s.and_u(a, b),
        s.or_u(a, b),
        s.xor_u(a, b),
        s.add_u(a, b),
        s.sub_u(a, b),
        product,
        s.odd_to_even_u(a),
        s.weave_even_u(a, b),
        s.shl_u(a, 7),
        s.shr_u(a, 9),
        s.sar_u(a, 9),
        s.shl_u(a, 0),
        s.shr_u(a, 31),
        s.select_u(s.eq_u(a, b), yes, no),
        s.select_u(s.ge_u(a, b), yes, no),
        transposed[0],
        transposed[1],
        transposed[2],
        transposed[3],
    ] {
        let mut lanes = [0; LANES];
        // SAFETY: 16 words.
        unsafe { s.store_u(lanes.as_mut_ptr(), v) };
        out.push(lanes);
    }
}

fn all_words_slow(a: &[u32; LANES], b: &[u32; LANES]) -> Vec<[u32; LANES]> {
    let each = |f: &dyn Fn(u32, u32) -> u32| std::array::from_fn::<u32, LANES, _>(|i| f(a[i], b[i]));
    let product = std::array::from_fn(|i| {
        let product = u64::from(a[i / 2 * 2]) * u64::from(b[i / 2 * 2]);
        (product >> (i % 2 * 32)) as u32
    });
    let rows = [*a, *b, product, each(&|a, b| a.wrapping_add(b))];
    let transposed = |j: usize| std::array::from_fn(|lane| rows[lane % 4][lane / 4 * 4 + j]);
    vec![
        each(&|a, b| a & b),
        each(&|a, b| a | b),
        each(&|a, b| a ^ b),
        each(&|a, b| a.wrapping_add(b)),
        each(&|a, b| a.wrapping_sub(b)),
        product,
        std::array::from_fn(|i| if i % 2 == 0 { a[i + 1] } else { 0 }),
        std::array::from_fn(|i| if i % 2 == 0 { a[i] } else { b[i - 1] }),
        each(&|a, _| a << 7),
        each(&|a, _| a >> 9),
        each(&|a, _| (a as i32 >> 9) as u32),
        each(&|a, _| a),
        each(&|a, _| a >> 31),
        each(&|a, b| u32::from(a == b)),
        each(&|a, b| u32::from(a >= b)),
        transposed(0),
        transposed(1),
        transposed(2),
        transposed(3),
    ]
}

#[test]
fn operations_equal_scalar_code() {
    let v = values();
    let blocks: Vec<&[f32]> = v.chunks_exact(LANES).collect();
    for isa in Isa::available() {
        for (i, a) in blocks.iter().enumerate() {
            for shift in [1, 2, 3] {
                // Rotated by `shift`, so that special values meet each other too.
                let b: Vec<f32> = (0..LANES).map(|l| v[(i * LANES + l + shift) % v.len()]).collect();
                let c = blocks[(i * 7 + shift) % blocks.len()];
                let (a, b): (&[f32], &[f32]) = (a, &b);
                let mut got = Vec::new();
                let out = &mut got;
                dispatch!(isa, all_floats(a: &[f32], b: &[f32], c: &[f32], out: &mut Vec<Vec<f32>>));
                for (op, (got, want)) in got.iter().zip(all_floats_slow(a, b, c)).enumerate() {
                    for l in 0..LANES {
                        assert!(
                            same(got[l], want[l]),
                            "{isa:?}, operation {op}, lane {l}: {} {} {}: {} is not {}",
                            a[l],
                            b[l],
                            c[l],
                            got[l],
                            want[l]
                        );
                    }
                }
                let words = |x: &[f32]| std::array::from_fn(|l| x[l].to_bits());
                let (a, b): (&[u32; LANES], &[u32; LANES]) = (&words(a), &words(if i % 5 == 0 { a } else { b }));
                let mut got = Vec::new();
                let out = &mut got;
                dispatch!(isa, all_words(a: &[u32; LANES], b: &[u32; LANES], out: &mut Vec<[u32; LANES]>));
                assert_eq!(got, all_words_slow(a, b), "{isa:?}");
            }
        }
    }
}

#[inline(always)]
fn partial<S: Simd>(s: S, x: &[f32], y: &mut [f32]) {
    s.write(y, s.read(x));
}

#[inline(always)]
fn truncate<S: Simd>(s: S, x: &[f32], y: &mut [f32]) {
    s.write(y, s.from_i32(s.to_i32(s.read(x))));
}

#[test]
fn partial_reads_and_writes_stay_inside() {
    let x: Vec<f32> = (1..=16).map(|i| i as f32).collect();
    for isa in Isa::available() {
        for n in 0..=LANES {
            for m in 0..=LANES {
                let mut memory = vec![-1.0; LANES];
                let (x, y) = (&x[..n], &mut memory[..m]);
                dispatch!(isa, partial(x: &[f32], y: &mut [f32]));
                let want: Vec<f32> = (0..LANES)
                    .map(|i| {
                        if i >= m {
                            -1.0
                        } else if i < n {
                            (i + 1) as f32
                        } else {
                            0.0
                        }
                    })
                    .collect();
                assert_eq!(memory, want, "{isa:?} {n} {m}");
            }
        }
        let x: Vec<f32> = values().into_iter().filter(|x| x.abs() < 2e9).take(16).collect();
        let mut memory = vec![0.0; LANES];
        let (x, y) = (&x[..], &mut memory[..]);
        dispatch!(isa, truncate(x: &[f32], y: &mut [f32]));
        assert_eq!(memory, x.iter().map(|x| *x as i32 as f32).collect::<Vec<f32>>());
    }
}
