//! The order of AMX tiles: chunks of 16 pairs, the first and the second elements apart.

use super::*;

/// The sum of one leaf of one row and one column in each way.
fn each_way(a: &[f32], b: &[f32], see: impl Fn(f32, &str)) {
    let case = whole(1, 1, Units::whole(a.len()), (Layout::Rows, Layout::Rows));
    let mut o = operands(&case);
    o.a = Factor::new(a.to_vec());
    o.b = Factor::new(b.to_vec());
    for way in ways(Kind::Tiles) {
        let mut c = [f32::NAN];
        run(&o.gemm(&case, Kind::Tiles, Out::new(&mut c).into()), way);
        see(c[0], &format!("{way:?}"));
    }
}

#[test]
fn first_and_second_elements_are_apart() {
    // 2²⁴ + 1 is no f32. Both ones among the second elements make 2, which survives; one after the other they would not.
    let mut a = [0.0f32; 32];
    (a[0], a[1], a[3]) = (16777216.0, 1.0, 1.0);
    each_way(&a, &[1.0; 32], |c, way| assert_eq!(c, 16777218.0, "{way}"));
    // Among the first ones they meet 2²⁴ one by one, and are lost.
    let mut a = [0.0f32; 32];
    (a[0], a[2], a[4]) = (16777216.0, 1.0, 1.0);
    each_way(&a, &[1.0; 32], |c, way| assert_eq!(c, 16777216.0, "{way}"));
}

#[test]
fn chunks_are_added_one_by_one() {
    // 2²⁴ in the first chunk; two ones in the second one make 2, one in each of two chunks are lost.
    let sum = |at: [usize; 2], want: f32| {
        let mut a = [0.0f32; 96];
        a[0] = 16777216.0;
        at.into_iter().for_each(|i| a[i] = 1.0);
        // 96 addends are one leaf, of three chunks.
        each_way(&a, &[1.0; 96], |c, way| assert_eq!(c, want, "{at:?} {way}"));
    };
    sum([32, 34], 16777218.0);
    sum([62, 63], 16777218.0);
    sum([63, 64], 16777216.0);
}

#[test]
fn tiny_sums_are_flushed() {
    let least = f32::MIN_POSITIVE;
    let power = |e: i32| 2f32.powi(e);
    // Even and odd are normal, their sum is not: it is +0, and so is a sum with the chunks before.
    let (a, b) = ([power(-60), -power(-60)], [1.5 * power(-66), power(-66)]);
    each_way(&a, &b, |c, way| assert_eq!(c.to_bits(), 0, "{way}"));
    let mut a = [0.0; 33];
    let mut b = [0.0; 33];
    (a[0], b[0]) = (power(-60), 1.5 * power(-66));
    (a[32], b[32]) = (-power(-60), power(-66));
    each_way(&a, &b, |c, way| assert_eq!(c.to_bits(), 0, "{way}"));
    // The smallest normal number stays.
    each_way(&[power(-60)], &[power(-66)], |c, way| assert_eq!(c, least, "{way}"));
    // A denormal factor is a zero, even beside the largest one.
    let denormal = f32::from_bits(0x007f_0000);
    each_way(&[denormal], &[power(127)], |c, way| assert_eq!(c.to_bits(), 0, "{way}"));
}

#[test]
fn infinities_and_what_is_no_number() {
    let inf = f32::INFINITY;
    each_way(&[inf, 1.0], &[1.0, 1.0], |c, way| assert_eq!(c, inf, "{way}"));
    // The missing second element must not meet the infinite first one.
    each_way(&[1.0, 0.0, -inf], &[1.0, 1.0, 2.0], |c, way| {
        assert_eq!(c, -inf, "{way}")
    });
    each_way(&[0.0, 1.0, 1.0, inf], &[1.0, 1.0, 1.0, 1.0], |c, way| {
        assert_eq!(c, inf, "{way}")
    });
    each_way(&[inf, 1.0], &[0.0, 1.0], |c, way| assert!(c.is_nan(), "{way}: {c}"));
    each_way(&[inf, inf], &[1.0, -1.0], |c, way| assert!(c.is_nan(), "{way}: {c}"));
    each_way(&[1.0, f32::NAN], &[1.0, 1.0], |c, way| {
        assert!(c.is_nan(), "{way}: {c}")
    });
}

#[test]
fn rows_do_not_depend_on_how_many_there_are() {
    // Decoding computes one row, a prompt many: the same bits.
    let many = whole(70, 100, Units { count: 3, len: 192 }, (Layout::Rows, Layout::Cols));
    let o = operands(&many);
    for way in ways(Kind::Tiles) {
        let mut all = o.c.clone();
        run(&o.gemm(&many, Kind::Tiles, Out::new(&mut all).into()), way);
        for m in [1, 2, 5, 8, 9, 33] {
            let few = Case { m, ..many };
            let mut some = vec![f32::NAN; m * 100];
            run(&o.gemm(&few, Kind::Tiles, Out::new(&mut some).into()), way);
            assert_same(&some, &all[..m * 100], &format!("{m} of 70 rows by {way:?}"));
        }
    }
}

#[test]
fn the_orders_differ() {
    // The broken control: the order of pairs gives other bits, so the comparisons can fail.
    let case = whole(13, 40, Units::whole(64), (Layout::Rows, Layout::Rows));
    let o = operands(&case);
    let (mut pairs, mut tiles) = (o.c.clone(), o.c.clone());
    run(
        &o.gemm(&case, Kind::Bf16, Out::new(&mut pairs).into()),
        ways(Kind::Bf16)[0],
    );
    run(
        &o.gemm(&case, Kind::Tiles, Out::new(&mut tiles).into()),
        ways(Kind::Tiles)[0],
    );
    assert_ne!(pairs, tiles);
}
