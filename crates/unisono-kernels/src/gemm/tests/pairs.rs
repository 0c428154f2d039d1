//! Pairs of bf16: their order, and numbers near zero, infinite or none.

use super::*;

/// bf16 of any bits, with many that are denormal, tiny, infinite or none.
fn any_bits(count: usize, seed: u32) -> Vec<f32> {
    let mut x = seed;
    (0..count)
        .map(|_| {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let bits = (x >> 16) as u16;
            let bits = match x >> 8 & 7 {
                0 => bits,
                1 => bits & 0x807f,
                // Exponents whose products are about the smallest normal number.
                2..=5 => bits & 0x807f | (60 + (x >> 12 & 7) as u16) << 7,
                6 => bits & 0x8001 | 0x3f80,
                _ => bits & 0x80ff,
            };
            Bf16::from_bits(bits).to_f32()
        })
        .collect()
}

/// `any_bits` without what ends every sum: infinities, NaN, and what overflows to them.
fn small(count: usize, seed: u32) -> Vec<f32> {
    let tame = |x: f32| if x.abs() < 4.0 { x } else { 0.0 };
    any_bits(count, seed).into_iter().map(tame).collect()
}

#[test]
fn numbers_near_zero_infinite_or_none() {
    for (m, n) in [(3, 40), (24, 64)] {
        for (k, seed) in [(2, 1), (1, 2), (64, 3), (97, 4), (256, 5)] {
            for layout in LAYOUTS {
                let case = whole(m, n, Units::whole(k), (layout, layout));
                let mut o = operands(&case);
                for make in [small, any_bits] {
                    o.a = Factor::new(make(o.sa.2, seed));
                    o.b = Factor::new(make(o.sb.2, seed ^ 1234));
                    check_operands(&case, &o);
                }
            }
        }
    }
}

/// Sums just below the smallest normal number, which rounding may or may not bring there.
#[test]
fn tiny_after_rounding() {
    let least = f32::MIN_POSITIVE;
    for sign in [1.0, -1.0] {
        for eighths in 1..40 {
            // 2⁻¹²⁶ as the odd product, then −(eighths / 8) · 2⁻¹⁵¹ as the even one.
            let case = whole(1, 1, Units::whole(2), (Layout::Rows, Layout::Rows));
            let mut o = operands(&case);
            o.a = Factor::new(vec![
                -sign * eighths as f32 / 8.0 * 2f32.powi(-75),
                sign * 2f32.powi(-60),
            ]);
            o.b = Factor::new(vec![2f32.powi(-76), 2f32.powi(-66)]);
            let mut c = [1.0f32];
            run(
                &o.gemm(&case, Kind::Bf16, Out::new(&mut c).into()),
                (Isa::Portable, Bf16Order::Pairs, Hardware::None),
            );
            // The middle between 2⁻¹²⁶ and its neighbour of 24 bits is 2⁻¹⁵¹ below; a middle goes to the even one.
            let expected = if eighths <= 8 { sign * least } else { 0.0 };
            assert_eq!(c[0].to_bits(), expected.to_bits(), "{eighths} eighths, sign {sign}");
            check_operands(&case, &o);
        }
    }
}

#[test]
fn the_second_of_a_pair_goes_first() {
    // The broken control: pairs taken in the order of memory.
    let case = whole(13, 40, Units::whole(64), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let mut c = o.c.clone();
    for way in ways(Kind::Bf16) {
        run(&o.gemm(&case, Kind::Bf16, Out::new(&mut c).into()), way);
        let chain = |i: usize, j: usize| {
            (0..64).fold(0.0f32, |acc, p| {
                o.a.bf16[i * 64 + p]
                    .to_f32()
                    .mul_add(o.b.bf16[p * 40 + j].to_f32(), acc)
            })
        };
        assert!((0..13 * 40).any(|e| c[e].to_bits() != chain(e / 40, e % 40).to_bits()));
    }
}
