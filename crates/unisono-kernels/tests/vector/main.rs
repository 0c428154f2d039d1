//! The kernels along rows and over single elements against their slow twins, bit by bit on every instruction set.

mod elementwise;

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
