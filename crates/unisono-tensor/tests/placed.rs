//! Host arrays on devices: where they lie, and what comes back.

use proptest::prelude::*;
use unisono_kernels::element::Bf16;
use unisono_tensor::distributed::distribute;
use unisono_tensor::{
    ComposerConfig, HostTensor, MapPlacement, MapperConfig, MeshDevice, MeshShape, Options, Placement, Tensor,
};

use MapPlacement::{Replicate, Shard};

fn open(shape: &[usize]) -> MeshDevice {
    MeshDevice::open_grid(shape, Options::default()).expect("devices")
}

fn shape(sizes: &[usize]) -> MeshShape {
    MeshShape::new(sizes).expect("a valid shape")
}

/// An array of kind `kind % 5` with arbitrary bits, NaNs of every sort among them.
fn arbitrary(kind: usize, shape: &[usize], seed: u32) -> HostTensor {
    let bits: Vec<u32> = (0..shape.iter().product::<usize>() as u32)
        .map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9).rotate_left(13))
        .collect();
    match kind % 5 {
        0 => HostTensor::new(&bits.iter().map(|b| f32::from_bits(*b)).collect::<Vec<_>>(), shape),
        1 => HostTensor::new(
            &bits.iter().map(|b| Bf16::from_bits(*b as u16)).collect::<Vec<_>>(),
            shape,
        ),
        2 => HostTensor::new(&bits, shape),
        3 => HostTensor::new(&bits.iter().map(|b| *b as i32).collect::<Vec<_>>(), shape),
        _ => HostTensor::new(&bits.iter().map(|b| *b as u8).collect::<Vec<_>>(), shape),
    }
    .expect("valid")
}

fn counted(shape: &[usize]) -> HostTensor {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
    HostTensor::new(&values, shape).expect("valid")
}

fn text<T: std::fmt::Debug>(result: unisono_tensor::Result<T>) -> String {
    result.expect_err("it must be refused").to_string()
}

/// One copy of the whole tensor.
fn one_copy(t: &Tensor) -> HostTensor {
    let distribution = t.distribution().expect("complete");
    let sizes: Vec<usize> = distribution
        .shape()
        .sizes()
        .iter()
        .zip(distribution.placements())
        .map(|(size, p)| if p.is_replicate() { 1 } else { *size })
        .collect();
    let dims: Vec<isize> = distribution
        .placements()
        .iter()
        .map(|p| p.sharded_dim().unwrap_or(0) as isize)
        .collect();
    t.aggregate(&ComposerConfig::over(&dims, shape(&sizes)))
        .expect("composed")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// All five kinds, on devices and back, to the bit.
    #[test]
    fn round_trips_lose_nothing(
        mesh in prop_oneof![Just(vec![1]), Just(vec![4]), Just(vec![2, 2]), Just(vec![1, 3]), Just(vec![2, 1, 2])],
        counts in proptest::collection::vec(1usize..4, 3),
        dims in proptest::collection::vec(0usize..4, 3),
        kind in 0usize..5,
        seed in any::<u32>(),
    ) {
        let device = open(&mesh);
        let mut sizes = counts.clone();
        let mut placements = Vec::new();
        for (axis, size) in mesh.iter().enumerate() {
            if dims[axis] < 3 && !dims[..axis].contains(&dims[axis]) {
                sizes[dims[axis]] *= size;
                placements.push(Shard(dims[axis] as isize));
            } else {
                placements.push(Replicate);
            }
        }
        let x = arbitrary(kind, &sizes, seed);
        let t = device.distribute(&x, &MapperConfig::new(&placements)).expect("placed");
        prop_assert!(t.device().same(&device));
        prop_assert_eq!(t.shape(), sizes.clone());
        prop_assert_eq!(&one_copy(&t), &x);
        let on_host = distribute(&x, &MapperConfig::new(&placements), &device.view().shape()).expect("dealt out");
        for (place, shard) in on_host.shards().iter().enumerate() {
            prop_assert_eq!(&t.read_shard(place).expect("read"), shard);
        }
        let y = arbitrary(kind, &sizes, !seed);
        t.copy_from_host(&y).expect("the same shape");
        prop_assert_eq!(&one_copy(&t), &y);
    }
}

#[test]
fn a_tensor_lies_on_the_mesh_or_on_the_view_that_its_distribution_takes() {
    let device = open(&[2, 4]);
    let place = |mapper: &MapperConfig, sizes: &[usize]| device.distribute(&counted(sizes), mapper).expect("placed");
    // A copy everywhere, and all placements over the mesh itself: on the mesh.
    for mapper in [MapperConfig::replicate(), MapperConfig::grid(Some(0), None)] {
        assert!(place(&mapper, &[8, 2]).device().same(&device));
    }
    // All devices as one line.
    let line = place(&MapperConfig::shard(0), &[8, 2]);
    assert_eq!(line.device().view().shape().sizes(), [8]);
    assert_eq!(line.placements(), [Placement::Shard(0)]);
    assert_eq!(line.to_host().expect("composed"), counted(&[8, 2]));
    // The box at the origin; fewer shards than devices; another shape in row-major order.
    let inside = place(&MapperConfig::over(&[Shard(0), Shard(1)], shape(&[2, 2])), &[2, 2]);
    assert_eq!(inside.device().view().ids(), [0, 1, 4, 5]);
    let few = place(&MapperConfig::shard(0), &[3, 2]);
    assert_eq!(few.device().view().ids(), [0, 1, 2]);
    let turned = place(&MapperConfig::over(&[Shard(0), Replicate], shape(&[4, 2])), &[4, 2]);
    assert_eq!(turned.device().view().ids(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(
        turned.read_shard(5).expect("read").to_vec::<f32>().expect("f32"),
        [4.0, 5.0]
    );
    // A mesh that is a line keeps its shape, and an axis of one device cuts nothing.
    let flat = open(&[1, 4]);
    let t = flat
        .distribute(&counted(&[4]), &MapperConfig::shard(0))
        .expect("placed");
    assert!(t.device().same(&flat));
    assert_eq!(t.placements(), [Placement::Replicate, Placement::Shard(0)]);
    let t = flat
        .distribute(&counted(&[4]), &MapperConfig::grid(Some(0), None))
        .expect("placed");
    assert_eq!(t.placements(), [Placement::Replicate, Placement::Replicate]);
    // One device, with or without axes.
    let one = MeshDevice::one().expect("a device");
    let t = one.distribute(&counted(&[4]), &MapperConfig::shard(0)).expect("placed");
    assert!(t.device().same(&one));
    assert_eq!(t.to_host().expect("one copy"), counted(&[4]));
    assert_eq!(
        one.from_host(&counted(&[]))
            .expect("placed")
            .to_host()
            .expect("one copy"),
        counted(&[])
    );
}

#[test]
fn what_was_placed_is_computed_with() {
    let device = open(&[2, 2]);
    let (x, w) = (counted(&[4, 6]), counted(&[6, 2]));
    let rows = device
        .distribute(&x, &MapperConfig::grid(Some(0), None))
        .expect("placed");
    let weight = device.from_host(&w).expect("placed");
    let y = rows.matmul(&weight).expect("a product");
    let one = MeshDevice::one().expect("a device");
    let alone = one
        .from_host(&x)
        .expect("placed")
        .matmul(&one.from_host(&w).expect("placed"));
    assert_eq!(one_copy(&y), alone.expect("a product").to_host().expect("one copy"));
}

#[test]
fn defaults_hold_in_their_scope_and_for_their_mesh() {
    let device = open(&[2, 2]);
    let half = device.create_submesh(&[1, 2], None).expect("a submesh");
    let x = counted(&[4, 4]);
    device.with_default_mapper(MapperConfig::grid(Some(0), None), || {
        assert_eq!(
            device.from_host(&x).expect("placed").placements(),
            [Placement::Shard(0), Placement::Replicate]
        );
        device.with_default_mapper(MapperConfig::grid(None, Some(1)), || {
            assert_eq!(
                device.from_host(&x).expect("placed").placements()[1],
                Placement::Shard(1)
            );
        });
        assert_eq!(
            device.from_host(&x).expect("placed").placements()[0],
            Placement::Shard(0)
        );
        assert_eq!(
            half.from_host(&x).expect("placed").placements(),
            [Placement::Replicate; 2]
        );
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            device.with_default_mapper(MapperConfig::replicate(), || panic!("on purpose"))
        }));
        assert!(panics.is_err());
        assert_eq!(
            device.from_host(&x).expect("placed").placements()[0],
            Placement::Shard(0)
        );
    });
    let whole = device.from_host(&x).expect("placed");
    assert_eq!(whole.placements(), [Placement::Replicate; 2]);
    let joined = device.with_default_composer(ComposerConfig::grid(0, 1), || whole.to_host());
    assert_eq!(joined.expect("composed").shape(), [8, 8]);
}

#[test]
fn misuse_is_refused_in_words() {
    let device = open(&[2, 2]);
    let x = counted(&[4, 4]);
    let whole = device.from_host(&x).expect("placed");
    assert!(
        text(whole.to_host())
            .starts_with("to_host: along axis 0 of the distribution [2, 2] each of 2 devices holds a copy")
    );
    let elsewhere = distribute(&x, &MapperConfig::shard(0), &shape(&[4])).expect("dealt out");
    assert_eq!(
        text(elsewhere.to_device(&device)),
        "to_device: the array was dealt out over the mesh [4] but the device is a mesh [2, 2]; distribute it over that"
    );
    assert_eq!(
        text(whole.copy_from_host(&counted(&[2, 2]))),
        "copy_from_host: HostTensor([2, 2], f32) into a tensor [4, 4] of f32; shape and kind must be equal"
    );
    assert!(text(device.distribute(&counted(&[5, 4]), &MapperConfig::grid(Some(0), None))).contains("equal shape"));
    assert!(text(whole.read_shard(4)).contains('4'));
    // Placements, meshes and orders that differ do not mix.
    let other = open(&[2, 2]).from_host(&x).expect("placed");
    assert!(text(whole.add(&other)).contains("two meshes"));
    let line = device.reshape(&[1, 4]).expect("a line").from_host(&x).expect("placed");
    assert!(text(whole.add(&line)).contains("two meshes"));
    let halves = device.create_submeshes(&[1, 2]).expect("submeshes");
    let parts: Vec<Tensor> = halves.iter().map(|half| half.from_host(&x).expect("placed")).collect();
    assert_eq!(
        text(parts[0].add(&parts[1])),
        "add: the tensors live on two meshes, MeshDevice(1x2 grid, 2 devices) on devices [0, 1] and MeshDevice(1x2 grid, 2 \
         devices) on devices [2, 3]; both must be on one"
    );
    assert!(text(Tensor::concat(&[&parts[0], &parts[1]], 0)).contains("two meshes"));
    let cut = device
        .distribute(&x, &MapperConfig::grid(Some(0), None))
        .expect("placed");
    let otherwise = device
        .distribute(&x, &MapperConfig::grid(None, Some(0)))
        .expect("placed");
    assert!(cut.add(&otherwise).is_err());
}
