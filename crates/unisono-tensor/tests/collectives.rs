//! Collectives against their definitions, on every mesh and kind of number; placements, gradients, counts and errors.

use unisono_tensor::collectives::{
    Along, Gradient, Reduction, Topology, all_broadcast, all_gather, all_reduce, all_reduce_with, all_to_all, barrier,
    broadcast, gather, point_to_point, receive, reduce_scatter, scatter, scatter_from, send, shift,
};
use unisono_tensor::{Dtype, Links, MeshCoordinate, MeshDevice, Options, Placement, Tensor};

fn open(shape: &[usize]) -> MeshDevice {
    let options = Options {
        workers: Some(2),
        memory_limit: Some(64 << 20),
        ..Options::default()
    };
    MeshDevice::open_grid(shape, options).expect("devices")
}

fn at(coordinate: &[usize]) -> MeshCoordinate {
    MeshCoordinate(coordinate.to_vec())
}

/// A tensor of small whole numbers, cut along the axes.
fn cut(device: &MeshDevice, shape: &[usize], cuts: &[(&str, usize)]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|i: usize| (i % 97) as f32 - 40.0)
        .collect();
    device.sharded(&values, shape, cuts).expect("it divides")
}

fn rows_of_three(device: &MeshDevice) -> Tensor {
    device.tensor(&[1.0, 2.0, 3.0], &[3]).expect("memory")
}

fn shards(t: &Tensor) -> Vec<Vec<f32>> {
    (0..t.device().mesh().num_devices())
        .map(|device| t.to_vec_on(device).expect("values"))
        .collect()
}

#[test]
fn reductions_of_shards_along_each_axis_and_all() {
    let device = open(&[2, 4]);
    let x = cut(&device, &[4, 8], &[("axis0", 0), ("axis1", 1)]);
    let parts = shards(&x);
    let fold = |group: &[usize], f: fn(f32, f32) -> f32| -> Vec<f32> {
        (0..4)
            .map(|i| group.iter().map(|device| parts[*device][i]).reduce(f).expect("devices"))
            .collect()
    };
    let groups: [(Along, Vec<Vec<usize>>); 3] = [
        (Along::axis(0), (0..4).map(|c| vec![c, c + 4]).collect()),
        (Along::axis(1), vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7]]),
        (Along::ALL, vec![(0..8).collect()]),
    ];
    for (along, groups) in groups {
        for (reduction, f) in [
            (Reduction::Sum, (|a, b| a + b) as fn(f32, f32) -> f32),
            (Reduction::Max, f32::max),
            (Reduction::Min, f32::min),
        ] {
            let y = shards(&all_reduce(&x, reduction, along).expect("floats"));
            for group in &groups {
                for device in group {
                    assert_eq!(y[*device], fold(group, f), "{reduction:?} {along:?} on {device}");
                }
            }
        }
        let mean = shards(&all_reduce(&x, Reduction::Mean, along).expect("floats"));
        let sum = shards(&all_reduce(&x, Reduction::Sum, along).expect("floats"));
        let size = groups[0].len() as f32;
        assert_eq!(mean[5], sum[5].iter().map(|sum| sum / size).collect::<Vec<_>>());
    }
    let y = all_reduce(&x, Reduction::Sum, Along::axis(1)).expect("floats");
    assert_eq!(y.placements(), [Placement::Shard(0), Placement::Replicate]);
    assert_eq!(y.shape(), [4, 2]);
}

#[test]
fn bf16_is_summed_in_f32_and_rounded_once() {
    let device = open(&[4]);
    // 256 + 1 is no bf16; 256 + 1 + 1 + 1 rounded once is 260.
    let x = device
        .sharded(&[256.0, 1.0, 1.0, 1.0], &[4], &[("axis0", 0)])
        .expect("it divides");
    let x = x.to_dtype(Dtype::Bf16).expect("floats");
    let y = all_reduce(&x, Reduction::Sum, Along::ALL).expect("floats");
    assert_eq!((y.dtype(), y.to_vec().expect("values")), (Dtype::Bf16, vec![260.0]));
}

#[test]
fn gathering_what_was_scattered_gives_it_back() {
    for shape in [vec![4], vec![2, 3], vec![3, 1, 2]] {
        let device = open(&shape);
        let last = shape.len() - 1;
        for dim in [0isize, 1, -1] {
            let values: Vec<f32> = (0..12 * 12 * 12).map(|i| i as f32).collect();
            let x = device.tensor(&values, &[12, 12, 12]).expect("memory");
            let cut = scatter(&x, dim, Along::axis(last)).expect("it divides");
            let dim_now = if dim < 0 { 2 } else { dim as usize };
            if shape[last] > 1 {
                assert_eq!(cut.placements()[last], Placement::Shard(dim_now));
            }
            let back = all_gather(&cut, dim, Along::axis(last)).expect("it is cut");
            assert!(back.placements()[last].is_replicate());
            for shard in shards(&back) {
                assert_eq!(shard, values);
            }
        }
    }
}

#[test]
fn parts_larger_than_a_tile_are_moved_whole() {
    let device = open(&[3]);
    let x = cut(&device, &[2, 3 * 40_001], &[("axis0", 1)]);
    let values = x.to_vec().expect("values");
    let whole = all_gather(&x, 1, Along::ALL).expect("it is cut");
    assert_eq!(shards(&whole)[2], values);
    assert_eq!(
        scatter(&whole, 1, Along::ALL)
            .expect("it divides")
            .to_vec()
            .expect("values"),
        values
    );
    assert_eq!(
        scatter_from(&whole, 1, 2, Along::ALL)
            .expect("it divides")
            .to_vec()
            .expect("values"),
        values
    );
    // Beyond what goes through the caches.
    let large = cut(&device, &[3 * 700_001], &[("axis0", 0)]);
    let all = large.to_vec().expect("values");
    let gathered = all_gather(&large, 0, Along::ALL).expect("it is cut");
    assert!(shards(&gathered).iter().all(|shard| *shard == all));
    let tripled = reduce_scatter(&whole, 1, Along::ALL)
        .expect("it divides")
        .to_vec()
        .expect("values");
    assert_eq!(tripled, values.iter().map(|value| 3.0 * value).collect::<Vec<_>>());
}

#[test]
fn reduce_scatter_is_all_reduce_and_own_part() {
    let device = open(&[2, 4]);
    let x = cut(&device, &[8, 8, 3], &[("axis1", 0)]);
    for dim in [1isize, -2] {
        let own = reduce_scatter(&x, dim, Along::axis(1)).expect("it divides");
        assert_eq!(own.placements(), [Placement::Replicate, Placement::Shard(1)]);
        let whole = all_reduce(&x, Reduction::Sum, Along::axis(1)).expect("floats");
        assert_eq!(own.to_vec().expect("values"), whole.to_vec().expect("values"));
        let again = all_gather(&own, dim, Along::axis(1)).expect("it is cut");
        assert_eq!(shards(&again), shards(&whole));
    }
}

#[test]
fn all_to_all_changes_the_dim_that_is_cut() {
    let device = open(&[2, 3]);
    for (split, join) in [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)] {
        let shape = [6, 12, 6];
        let x = cut(&device, &shape, &[("axis1", join)]);
        let y = all_to_all(&x, split as isize, join as isize, Along::axis(1)).expect("it divides");
        assert_eq!(y.placements()[1], Placement::Shard(split));
        assert_eq!(
            y.to_vec().expect("values"),
            x.to_vec().expect("values"),
            "{split} {join}"
        );
    }
}

#[test]
fn every_kind_of_number_can_be_moved() {
    let device = open(&[3]);
    let ids = device.tensor_u32(&[1, 2, 3, u32::MAX, 5, 6], &[6]).expect("memory");
    let cut = scatter(&ids, 0, Along::ALL).expect("it divides");
    let moved = shift(&cut, 1, Along::ALL).expect("any kind");
    assert_eq!(moved.to_vec_u32().expect("values"), [5, 6, 1, 2, 3, u32::MAX]);
    let back = all_gather(&shift(&moved, -1, Along::ALL).expect("any kind"), 0, Along::ALL).expect("it is cut");
    assert_eq!(back.to_vec_u32().expect("values"), [1, 2, 3, u32::MAX, 5, 6]);
    let bf16 = device
        .tensor(&[1.5, -2.0, 3.0], &[3])
        .expect("memory")
        .to_dtype(Dtype::Bf16)
        .expect("floats");
    let cut = scatter(&bf16, 0, Along::ALL).expect("it divides");
    let turned = shift(&cut, 4, Along::ALL).expect("any kind");
    assert_eq!(turned.to_vec().expect("values"), [3.0, 1.5, -2.0]);
}

#[test]
fn roots_send_and_gather() {
    let device = open(&[2, 2]);
    let x = cut(&device, &[2, 4], &[("axis0", 0), ("axis1", 1)]);
    let parts = shards(&x);
    let one = shards(&broadcast(&x, 1, Along::axis(0)).expect("position 1"));
    assert_eq!(one, [&parts[2], &parts[3], &parts[2], &parts[3]].map(Clone::clone));
    let list = all_broadcast(&x, Along::axis(1)).expect("an axis");
    assert_eq!(list.len(), 2);
    assert_eq!(shards(&list[0])[1], parts[0]);
    assert_eq!(shards(&list[1])[2], parts[3]);

    let whole = gather(&x, 1, 1, Along::axis(1)).expect("position 1");
    assert_eq!(whole.device().view().ids(), [1, 3]);
    assert_eq!(whole.to_vec().expect("values"), x.to_vec().expect("values"));

    let dealt = shards(&scatter_from(&x, 1, 1, Along::axis(1)).expect("two elements a device"));
    assert_eq!(
        dealt,
        [parts[1][0], parts[1][1], parts[3][0], parts[3][1]].map(|value| vec![value])
    );
    let error = scatter_from(&rows_of_three(&device), 0, 1, Along::axis(1))
        .expect_err("three rows")
        .to_string();
    assert!(error.contains("dimension 0 of [3] over 2 devices"), "{error}");
    let rows = cut(&device, &[2, 4], &[("axis0", 0)]);
    let dealt = scatter_from(&rows, 1, 0, Along::axis(1)).expect("it divides");
    assert_eq!(dealt.to_vec().expect("values"), rows.to_vec().expect("values"));

    let copied = shards(&point_to_point(&x, &at(&[0, 1]), &at(&[1, 0])).expect("inside"));
    assert_eq!(copied, [&parts[0], &parts[1], &parts[1], &parts[3]].map(Clone::clone));
    assert_eq!(
        shards(&point_to_point(&x, &at(&[1, 1]), &at(&[1, 1])).expect("inside")),
        parts
    );
    barrier(&device, Along::ALL).expect("devices");
}

#[test]
fn messages_come_in_order_and_a_receive_never_waits_for_nothing() {
    let device = open(&[1, 3]);
    let (first, last) = (at(&[0, 0]), at(&[0, 2]));
    let error = receive(&device, &first, &last, 7)
        .expect_err("nothing was sent")
        .to_string();
    assert_eq!(
        error,
        "receive: no message with tag 7 from (0, 0) to (0, 2) has been sent, and a receive would wait for ever; none is waiting: \
         send before you receive"
    );
    let x = device.tensor(&[1.0, 2.0], &[2]).expect("memory");
    let y = device.tensor(&[3.0, 4.0], &[2]).expect("memory");
    send(&x, &first, &last, 7).expect("inside");
    send(&y, &first, &last, 7).expect("inside");
    send(&y, &first, &last, 8).expect("inside");
    x.upload_global(&[9.0, 9.0]).expect("as many");
    assert_eq!(
        receive(&device, &first, &last, 7)
            .expect("sent")
            .to_vec_on(2)
            .expect("values"),
        [1.0, 2.0]
    );
    assert_eq!(
        receive(&device, &first, &last, 7)
            .expect("sent")
            .to_vec_on(2)
            .expect("values"),
        [3.0, 4.0]
    );
    let error = receive(&device, &first, &last, 7).expect_err("taken").to_string();
    assert!(error.contains("1 are waiting (device 0 to 2 with tag 8)"), "{error}");
    assert!(receive(&device, &last, &first, 8).is_err());
}

/// The gradient of Σ w ∘ f(x), read per device.
fn gradient(x: &Tensor, f: impl Fn(&Tensor) -> Tensor, weights: &dyn Fn(&Tensor) -> Tensor) -> Vec<f32> {
    let x = x.detach().requires_grad().expect("floats");
    let y = f(&x);
    y.backward_with(&weights(&y)).expect("a graph");
    x.grad()
        .expect("readable")
        .expect("it takes part")
        .to_vec()
        .expect("values")
}

#[test]
fn gradients_are_those_of_the_whole_program() {
    let device = open(&[2, 2]);
    let x = cut(&device, &[4, 4], &[("axis1", 0)]);
    let numbers = |y: &Tensor| -> Tensor {
        let values: Vec<f32> = (0..y.shape().iter().product()).map(|i: usize| i as f32 + 1.0).collect();
        let t = y.zeros_like(unisono_tensor::Kind::Activation).expect("memory");
        t.upload_global(&values).expect("as many");
        t
    };
    let along = Along::axis(1);
    // A sum hands its gradient to every addend, a mean its share.
    let dx = gradient(&x, |x| all_reduce(x, Reduction::Sum, along).expect("floats"), &numbers);
    let w: Vec<f32> = (1..9).map(|i| i as f32).collect();
    assert_eq!(dx, [w.clone(), w.clone()].concat());
    let dx = gradient(&x, |x| all_reduce(x, Reduction::Mean, along).expect("floats"), &numbers);
    assert_eq!(dx[..8], w.iter().map(|w| w / 2.0).collect::<Vec<_>>());
    // tt-train's meaning: each device's own loss.
    let dx = gradient(
        &x,
        |x| all_reduce_with(x, Reduction::Sum, along, Gradient::PerDevice).expect("floats"),
        &numbers,
    );
    assert_eq!(dx[..8], w.iter().map(|w| w * 2.0).collect::<Vec<_>>());
    // Moves move gradients back.
    let whole: Vec<f32> = (1..17).map(|i| i as f32).collect();
    let dx = gradient(&x, |x| all_gather(x, 0, along).expect("it is cut"), &numbers);
    assert_eq!(dx, whole);
    let dx = gradient(&x, |x| all_to_all(x, 1, 0, along).expect("it divides"), &numbers);
    assert_eq!(dx, whole);
    let dx = gradient(&x, |x| shift(x, 1, along).expect("floats"), &numbers);
    assert_eq!(dx, [&whole[8..], &whole[..8]].concat());
    let dx = gradient(&x, |x| reduce_scatter(x, 1, along).expect("it divides"), &numbers);
    assert_eq!(dx, [w.clone(), w].concat());
    let replicated = device.tensor(&[0.5; 16], &[4, 4]).expect("memory");
    let dx = gradient(&replicated, |x| scatter(x, 1, along).expect("it divides"), &numbers);
    assert_eq!(dx, whole);
    let dx = gradient(&replicated, |x| broadcast(x, 0, along).expect("position 0"), &numbers);
    assert_eq!(dx, whole);
}

#[test]
fn one_device_along_an_axis_is_said_once() {
    let device = open(&[1, 2]);
    let x = device.tensor(&[1.0, 2.0], &[2]).expect("memory");
    for _ in 0..3 {
        let y = all_gather(&x, 0, Along::axis(0)).expect("nothing to do");
        assert_eq!(y.to_vec().expect("values"), [1.0, 2.0]);
    }
    let note = "all_gather: axis 0 of the mesh [1, 2] has one device, so there is nothing to do";
    assert_eq!(device.take_notes(), [note]);
    assert!(device.take_notes().is_empty());
}

#[test]
fn links_and_rings_are_those_of_the_descriptor() {
    let device = open(&[4]);
    device.set_links(Links {
        channels: Some(2),
        rings: vec![false],
    });
    let x = cut(&device, &[4], &[("axis0", 0)]);
    let three = Along {
        num_links: 3,
        ..Along::ALL
    };
    let error = all_gather(&x, 0, three).expect_err("two channels").to_string();
    assert!(error.contains('3') && error.contains('2'), "{error}");
    assert!(
        all_gather(
            &x,
            0,
            Along {
                num_links: 0,
                ..Along::ALL
            }
        )
        .is_err()
    );
    let ring = Along {
        topology: Some(Topology::Ring),
        num_links: 2,
        ..Along::ALL
    };
    device.runtime().reset_report();
    all_gather(&x, 0, ring).expect("a line");
    assert_eq!(
        device.take_notes(),
        ["all_gather: the ends are not joined, so the ring is walked as a line"]
    );
    let report = device.runtime().traffic();
    assert_eq!(
        (report.len(), report[0].calls, report[0].pattern.topology),
        (1, 1, Topology::Linear)
    );
    // Four bytes of each device reach three others: 12 a direction on a line of three links, from both sides.
    assert_eq!(report[0].traffic.bytes, 2 * (4 + 8 + 12));
    assert_eq!(device.runtime().link_bytes().values().sum::<u64>(), 2 * (4 + 8 + 12));
}

#[test]
fn a_partial_sum_is_counted_on_the_links_asked_for() {
    let device = open(&[4]);
    let (x, w) = (
        cut(&device, &[2, 4], &[("axis0", 1)]),
        cut(&device, &[4, 2], &[("axis0", 0)]),
    );
    let partial = x.matmul(&w).expect("a partial sum");
    let ring = Along {
        topology: Some(Topology::Ring),
        num_links: 2,
        ..Along::axis(0)
    };
    all_reduce(&partial, Reduction::Sum, ring).expect("it is one");
    let pattern = device.runtime().traffic()[0].pattern;
    assert_eq!((pattern.topology, pattern.num_links), (Topology::Ring, 2));
}

#[test]
fn a_part_of_a_ring_is_a_line() {
    let device = open(&[2, 4]);
    device.set_links(Links {
        channels: Some(1),
        rings: vec![false, true],
    });
    let rings = |device: &MeshDevice| device.links().rings;
    assert_eq!(
        rings(&device.create_submesh(&[1, 4], Some(&[1, 0])).expect("inside")),
        [false, true]
    );
    assert_eq!(
        rings(&device.create_submesh(&[2, 2], None).expect("inside")),
        [false, false]
    );
    assert_eq!(rings(&device.reshape(&[1, 8]).expect("a line")), [false, false]);
    assert_eq!(rings(&device.reshape(&[4, 2]).expect("turned")), [false, false]);
}

#[test]
fn misuse_is_an_error_in_words() {
    let device = open(&[2, 2]);
    let x = cut(&device, &[4, 4], &[("axis0", 0)]);
    let ids = device.tensor_u32(&[1, 2], &[2]).expect("memory");
    let texts = [
        all_gather(&x, 2, Along::axis(0)).expect_err("dim").to_string(),
        all_gather(&x, -3, Along::axis(0)).expect_err("dim").to_string(),
        all_gather(&x, 0, Along::axis(2)).expect_err("axis").to_string(),
        all_gather(&x, 1, Along::axis(0)).expect_err("placement").to_string(),
        all_reduce(&ids, Reduction::Sum, Along::axis(0))
            .expect_err("integers")
            .to_string(),
        reduce_scatter(&x, 0, Along::ALL).expect_err("two axes").to_string(),
        reduce_scatter(&x, 0, Along::axis(1))
            .expect_err("cut twice")
            .to_string(),
        broadcast(&x, 2, Along::axis(0)).expect_err("position").to_string(),
        scatter(&x, 0, Along::axis(0)).expect_err("placement").to_string(),
        point_to_point(&x, &at(&[0, 2]), &at(&[0, 0]))
            .expect_err("outside")
            .to_string(),
    ];
    let expected = [
        "all_gather: dim 2 of a tensor of shape [4, 4]; dims are 0 to 1 or, from the end, -1 to -2",
        "all_gather: dim -3 of a tensor of shape [4, 4]; dims are 0 to 1 or, from the end, -1 to -2",
        "axis 2 was asked for; the mesh 2×2 = 4 devices (axis0 2, axis1 2) has 2, counted from 0",
        "all_gather: along mesh axis `axis0`, the tensor [4, 4] is Shard(0); it must be Shard(1) to be gathered in dim 1",
        "all_reduce: a tensor of u32; sums, maxima and minima are of f32 and bf16",
        "reduce_scatter: all devices of the mesh [2, 2], which lie along 2 axes; a dim is cut along one axis: name it, or reshape the mesh to a line",
        "reduce_scatter: along mesh axis `axis1`, dimension 0 of [4, 4] is cut along axis `axis0` already; one axis can cut a dimension: use another dimension, or all_gather along `axis0` first",
        "broadcast: position 2 in a group of 2 devices; positions count from 0",
        "scatter: along mesh axis `axis0`, the tensor [4, 4] is Shard(0); it must be Replicate; all_gather makes it so",
        "the coordinate (0, 2) lies outside the mesh [2, 2]: axis 1 goes from 0 to 1",
    ];
    assert_eq!(texts, expected);
    device.close().expect("no failure");
    let error = all_reduce(&x, Reduction::Sum, Along::axis(0))
        .expect_err("closed")
        .to_string();
    assert!(error.contains("has been closed"), "{error}");
}
