//! `copy` against six nested loops.

use proptest::prelude::*;
use unisono_kernels::copy::{MAX_DIMS, Strided, copy};
use unisono_kernels::out::Out;

/// Slow twin: `dst[dst_offset + Σ iₖ dst[k]] = src[src_offset + Σ iₖ src[k]]`.
fn slow<T: Copy>(plan: &Strided, src: &[T], dst: &mut [T]) {
    let total: usize = plan.dims.iter().product();
    for flat in 0..total {
        let (mut rest, mut from, mut to) = (flat, plan.src_offset, plan.dst_offset);
        for k in (0..MAX_DIMS).rev() {
            from += rest % plan.dims[k] * plan.src[k];
            to += rest % plan.dims[k] * plan.dst[k];
            rest /= plan.dims[k];
        }
        dst[to] = src[from];
    }
}

/// Row-major strides for dimensions taken in the order `perm` (outermost first), with gaps of `pad` after each row.
fn strides(dims: [usize; MAX_DIMS], perm: [usize; MAX_DIMS], pad: usize) -> [usize; MAX_DIMS] {
    let mut strides = [0; MAX_DIMS];
    let mut step = 1;
    for (position, k) in perm.into_iter().rev().enumerate() {
        strides[k] = step;
        step = step * dims[k] + if position == 0 { pad } else { 0 };
    }
    strides
}

fn reach(dims: [usize; MAX_DIMS], strides: [usize; MAX_DIMS], offset: usize) -> usize {
    offset
        + dims
            .iter()
            .zip(strides)
            .map(|(d, s)| d.saturating_sub(1) * s)
            .sum::<usize>()
        + 1
}

fn compare(plan: &Strided, step: usize) {
    let src: Vec<u32> = (0..reach(plan.dims, plan.src, plan.src_offset) as u32).collect();
    let size = reach(plan.dims, plan.dst, plan.dst_offset);
    let (mut want, mut got) = (vec![u32::MAX; size], vec![u32::MAX; size]);
    slow(plan, &src, &mut want);
    for from in (0..plan.outer()).step_by(step).rev() {
        copy(plan, from, (from + step).min(plan.outer()), &src, Out::new(&mut got));
    }
    assert_eq!(got, want, "{plan:?} in steps of {step}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_permutation(
        lead in proptest::array::uniform4(prop_oneof![Just(1usize), 0usize..5]),
        inner in proptest::array::uniform2(1usize..40),
        src_perm in Just([0, 1, 2, 3, 4, 5]).prop_shuffle(),
        dst_perm in Just([0, 1, 2, 3, 4, 5]).prop_shuffle(),
        straight: bool,
        broadcast in proptest::option::of(0usize..6),
        (src_pad, dst_pad) in (0usize..3, 0usize..3),
        (src_offset, dst_offset) in (0usize..9, 0usize..9),
        step in 1usize..50,
    ) {
        let dims = [lead[0], lead[1], lead[2], lead[3], inner[0], inner[1]];
        let dst_perm = if straight { [0, 1, 2, 3, 4, 5] } else { dst_perm };
        let mut src = strides(dims, src_perm, src_pad);
        if let Some(k) = broadcast {
            src[k] = 0;
        }
        let dst = strides(dims, dst_perm, dst_pad);
        compare(&Strided { dims, src, dst, src_offset, dst_offset }, step);
    }
}

#[test]
fn known_shapes() {
    // Contiguous; a transpose; heads split; one element; nothing.
    for (dims, src_perm) in [
        ([1, 1, 1, 5, 7, 64], [0, 1, 2, 3, 4, 5]),
        ([1, 1, 1, 1, 100, 33], [0, 1, 2, 3, 5, 4]),
        ([1, 1, 2, 3, 10, 16], [0, 1, 2, 4, 3, 5]),
        ([1; 6], [0, 1, 2, 3, 4, 5]),
        ([1, 1, 1, 0, 3, 4], [0, 1, 2, 3, 4, 5]),
    ] {
        let plan = Strided {
            dims,
            src: strides(dims, src_perm, 0),
            dst: strides(dims, [0, 1, 2, 3, 4, 5], 0),
            src_offset: 0,
            dst_offset: 0,
        };
        for step in [1, 7, 1000] {
            compare(&plan, step);
        }
    }
}

#[test]
#[should_panic(expected = "bug in unisono: copy")]
fn reaching_outside_is_refused() {
    let plan = Strided {
        dims: [1, 1, 1, 1, 2, 3],
        src: [0, 0, 0, 0, 3, 1],
        dst: [0, 0, 0, 0, 3, 1],
        src_offset: 0,
        dst_offset: 1,
    };
    copy(&plan, 0, 2, &[0.0; 6], Out::new(&mut [0.0; 6]));
}
