//! Redistribution agrees with gathering a tensor and dealing it out anew, bit for bit.

mod common;

use common::host::arbitrary;
use proptest::prelude::*;
use unisono_tensor::{Dtype, HostTensor, MapPlacement, MapperConfig, MeshDevice, Options, Placement, Tensor};

use Placement::{Partial, Replicate, Shard};

fn mapper(placements: &[Placement]) -> MapperConfig {
    let placement = |p: &Placement| {
        p.sharded_dim()
            .map_or(MapPlacement::Replicate, |dim| MapPlacement::Shard(dim as isize))
    };
    MapperConfig::new(&placements.iter().map(placement).collect::<Vec<_>>())
}

fn shards(t: &Tensor) -> Vec<HostTensor> {
    let places = 0..t.device().mesh().num_devices();
    places.map(|place| t.read_shard(place).expect("read")).collect()
}

/// A placement for each axis by digits of `code`: replicated, or a dim that no axis before cuts.
fn placements(axes: usize, rank: usize, mut code: usize) -> Vec<Placement> {
    let mut made: Vec<Placement> = Vec::new();
    for _ in 0..axes {
        let digit = code % (rank + 1);
        code /= rank + 1;
        let wanted = if digit == rank { Replicate } else { Shard(digit) };
        made.push(if made.contains(&wanted) { Replicate } else { wanted });
    }
    made
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn moves_agree_with_dealing_out_anew(
        mesh in prop_oneof![Just(vec![4]), Just(vec![2, 2]), Just(vec![2, 3]), Just(vec![1, 2]), Just(vec![2, 1, 2])],
        counts in proptest::collection::vec(1usize..4, 1..4),
        from in 0usize..64,
        to in 0usize..64,
        kind in 0usize..5,
        seed in any::<u32>(),
    ) {
        let all: usize = mesh.iter().product();
        // Any axis can cut any dim.
        let shape: Vec<usize> = counts.iter().map(|count| count * all).collect();
        let device = MeshDevice::open_grid(&mesh, Options::default()).expect("devices");
        let x = arbitrary(kind, &shape, seed);
        let (from, to) = (placements(mesh.len(), shape.len(), from), placements(mesh.len(), shape.len(), to));
        let t = device.distribute(&x, &mapper(&from)).expect("placed");
        let moved = t.redistribute(&to).expect("moved");
        let anew = device.distribute(&x, &mapper(&to)).expect("placed");
        prop_assert_eq!(moved.placements(), anew.placements());
        prop_assert_eq!(moved.shape(), shape);
        prop_assert_eq!(shards(&moved), shards(&anew), "{:?} to {:?}", from, to);
    }
}

#[test]
fn sums_are_completed_to_the_bits_of_one_device() {
    let (rows, inner, cols) = (4, 32, 8);
    let x: Vec<f32> = (0..rows * inner)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 7.0)
        .collect();
    let w: Vec<f32> = (0..inner * cols)
        .map(|i| ((i * 53 % 97) as f32 - 48.0) / 11.0)
        .collect();
    let (x, w) = (
        HostTensor::new(&x, &[rows, inner]).expect("valid"),
        HostTensor::new(&w, &[inner, cols]).expect("valid"),
    );
    let device = MeshDevice::open_grid(&[2, 4], Options::default()).expect("devices");
    let place =
        |host: &HostTensor, axis1: Placement| device.distribute(host, &mapper(&[Replicate, axis1])).expect("placed");
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let cast = |t: Tensor| t.to_dtype(dtype).expect("cast");
        let partial = cast(place(&x, Shard(1)))
            .matmul(&cast(place(&w, Shard(0))))
            .expect("a partial sum");
        assert_eq!(partial.placements(), [Replicate, Partial]);
        let whole = partial.all_reduce("axis1").expect("complete");
        let expected = whole.read_shard(0).expect("read");
        assert_eq!(expected.dtype(), dtype);
        for to in [
            [Replicate, Replicate],
            [Shard(0), Shard(1)],
            [Shard(1), Shard(0)],
            [Shard(0), Replicate],
            [Replicate, Shard(1)],
        ] {
            let moved = partial.redistribute(&to).expect("moved");
            assert_eq!(moved.placements(), to);
            let anew = device.distribute(&expected, &mapper(&to)).expect("placed");
            assert_eq!(shards(&moved), shards(&anew), "{to:?} in {dtype:?}");
        }
        // As it is: nothing to do.
        assert!(
            partial
                .redistribute(&[Replicate, Partial])
                .expect("the same")
                .placements()[1]
                .is_partial()
        );
    }
}

#[test]
fn what_is_sent_is_what_the_plan_says() {
    let device = MeshDevice::open_grid(&[2, 2], Options::default()).expect("devices");
    let x = arbitrary(0, &[8, 8], 1);
    let t = device.distribute(&x, &mapper(&[Shard(0), Replicate])).expect("placed");
    let sentence = t
        .plan_redistribute(&[Shard(1), Replicate])
        .expect("a plan")
        .sentence(device.mesh());
    assert_eq!(
        sentence,
        "all-to-all along `axis0` (Shard(0) to Shard(1)); each device sends 64 bytes"
    );
    for to in [
        [Shard(1), Replicate],
        [Replicate, Replicate],
        [Shard(0), Shard(1)],
        [Shard(1), Shard(0)],
    ] {
        device.runtime().reset_report();
        t.redistribute(&to).expect("moved");
        let report = device.runtime().report();
        let sent: u64 = report.phases.iter().map(|phase| phase.link_bytes).sum();
        assert_eq!(sent, t.plan_redistribute(&to).expect("a plan").bytes(), "{to:?}");
    }
}

#[test]
fn gradients_flow_back_through_every_step() {
    let device = MeshDevice::open_grid(&[2, 2], Options::default()).expect("devices");
    let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let x = HostTensor::new(&values, &[4, 4]).expect("valid");
    for (from, to) in [
        ([Shard(0), Replicate], [Shard(1), Shard(0)]),
        ([Shard(0), Shard(1)], [Replicate, Replicate]),
        ([Replicate, Shard(1)], [Shard(1), Replicate]),
    ] {
        let leaf = device
            .distribute(&x, &mapper(&from))
            .expect("placed")
            .requires_grad()
            .expect("a leaf");
        let y = leaf.redistribute(&to).expect("moved");
        let gradient = device.distribute(&x, &mapper(&to)).expect("placed");
        y.backward_with(&gradient).expect("backwards");
        let arrived = leaf.grad().expect("gathered").expect("a gradient");
        assert_eq!(arrived.to_vec().expect("read"), values, "{from:?} to {to:?}");
    }
}

#[test]
fn a_placement_that_cannot_be_is_refused() {
    let device = MeshDevice::open_grid(&[2, 2], Options::default()).expect("devices");
    let t = device
        .distribute(&arbitrary(0, &[6, 3], 1), &mapper(&[Shard(0), Replicate]))
        .expect("placed");
    let refused = |to: &[Placement]| t.redistribute(to).expect_err("refused").to_string();
    assert!(refused(&[Shard(0)]).contains("1 placement for the mesh"));
    assert!(refused(&[Replicate, Shard(1)]).contains("dim 1 of the tensor [6, 3] along axis `axis1` of 2 devices"));
    assert!(refused(&[Shard(0), Shard(0)]).contains("one axis can cut a dim"));
    assert!(refused(&[Partial, Replicate]).contains("only by being computed"));
}
