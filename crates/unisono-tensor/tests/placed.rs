//! Host arrays on devices: where they lie, and what comes back.

mod common;

use common::host::arbitrary;
use proptest::prelude::*;
use unisono_tensor::collectives::{Along, Reduction, all_reduce};
use unisono_tensor::distributed::{
    combine_device_tensors, distribute, get_device_tensors, visualize_mesh_device, visualize_system_mesh,
    visualize_tensor,
};
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

fn counted(shape: &[usize]) -> HostTensor {
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
    HostTensor::new(&values, shape).expect("valid")
}

fn refusal<T: std::fmt::Debug>(result: unisono_tensor::Result<T>) -> String {
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
        refusal(whole.to_host())
            .starts_with("to_host: along axis 0 of the distribution [2, 2] each of 2 devices holds a copy")
    );
    let elsewhere = distribute(&x, &MapperConfig::shard(0), &shape(&[4])).expect("dealt out");
    assert_eq!(
        refusal(elsewhere.to_device(&device)),
        "to_device: the array was dealt out over the mesh [4] but the device is a mesh [2, 2]; distribute it over that"
    );
    assert_eq!(
        refusal(whole.copy_from_host(&counted(&[2, 2]))),
        "copy_from_host: HostTensor([2, 2], f32) into a tensor [4, 4] of f32; shape and kind must be equal"
    );
    assert!(refusal(device.distribute(&counted(&[5, 4]), &MapperConfig::grid(Some(0), None))).contains("equal shape"));
    assert!(refusal(whole.read_shard(4)).contains('4'));
    // Placements, meshes and orders that differ do not mix.
    let other = open(&[2, 2]).from_host(&x).expect("placed");
    assert!(refusal(whole.add(&other)).contains("two meshes"));
    let line = device.reshape(&[1, 4]).expect("a line").from_host(&x).expect("placed");
    assert!(refusal(whole.add(&line)).contains("two meshes"));
    let halves = device.create_submeshes(&[1, 2]).expect("submeshes");
    let parts: Vec<Tensor> = halves.iter().map(|half| half.from_host(&x).expect("placed")).collect();
    assert_eq!(
        refusal(parts[0].add(&parts[1])),
        "add: the tensors live on two meshes, MeshDevice(1x2 grid, 2 devices) on devices [0, 1] and MeshDevice(1x2 grid, 2 \
         devices) on devices [2, 3]; both must be on one"
    );
    assert!(refusal(Tensor::concat(&[&parts[0], &parts[1]], 0)).contains("two meshes"));
    let cut = device
        .distribute(&x, &MapperConfig::grid(Some(0), None))
        .expect("placed");
    let otherwise = device
        .distribute(&x, &MapperConfig::grid(None, Some(0)))
        .expect("placed");
    assert!(cut.add(&otherwise).is_err());
}

#[test]
fn a_tensor_prints_device_by_device() {
    let device = open(&[2, 2]);
    let half = device.create_submesh(&[2, 1], Some(&[0, 1])).expect("a submesh");
    let t = half
        .distribute(&counted(&[2, 3]), &MapperConfig::grid(Some(0), None))
        .expect("placed");
    assert_eq!(
        t.to_string(),
        "device 1 (0, 0): [0:1, :]
  [[0.0, 1.0, 2.0]]
device 3 (1, 0): [1:2, :]
  [[3.0, 4.0, 5.0]]
shape [2, 3], f32, [Shard(0), Replicate] over 2×1 = 2 devices (axis0 2, axis1 1)"
    );
    let whole = half.from_host(&counted(&[])).expect("placed");
    assert_eq!(
        whole.to_string(),
        "device 1 (0, 0): []
  0.0
device 3 (1, 0): [], as on device 1
shape [], f32, [Replicate, Replicate] over 2×1 = 2 devices (axis0 2, axis1 1)"
    );
    let one = MeshDevice::one().expect("a device");
    let bytes = HostTensor::new(&[7u8, 255], &[2]).expect("valid");
    let text = one.from_host(&bytes).expect("placed").to_string();
    assert_eq!(text, "device 0 (0): [:]\n  [  7, 255]\nshape [2], u8, on one device");
}

#[test]
fn what_cannot_be_read_is_said_in_print() {
    let options = Options {
        backend: unisono_tensor::Backend::Null,
        ..Options::default()
    };
    let device = MeshDevice::open_grid(&[64, 64], options).expect("4,096 devices");
    let t = device
        .distribute(&counted(&[64, 64]), &MapperConfig::grid(Some(0), Some(1)))
        .expect("placed");
    let text = t.to_string();
    assert!(
        text.contains("no values are shown: ") && text.ends_with("(axis0 64, axis1 64)"),
        "{text}"
    );
    let sum = all_reduce(&t, Reduction::Sum, Along::axis(0)).expect("floats");
    assert_eq!(sum.placements(), [Placement::Replicate, Placement::Shard(1)]);
    assert_eq!(
        (
            device.runtime().traffic()[0].devices,
            device.runtime().traffic()[0].groups
        ),
        (64, 64)
    );
    // Opens, places, reduces and draws: summarised.
    let drawn = visualize_tensor(&t, 100).expect("drawn").plain();
    assert!(drawn.len() < 20_000, "{} characters", drawn.len());
    assert!(visualize_mesh_device(&device, 100).plain().len() < 20_000);

    let device = open(&[1, 2]);
    let x = device
        .distribute(&counted(&[2, 4]), &MapperConfig::grid(None, Some(1)))
        .expect("placed");
    let w = device
        .distribute(&counted(&[4, 2]), &MapperConfig::grid(None, Some(0)))
        .expect("placed");
    let partial = x.matmul(&w).expect("a partial sum");
    assert!(partial.placements()[1].is_partial());
    let printed = partial.to_string();
    assert!(
        printed.starts_with("no values are shown: distribution: the tensor [2, 2] is still a partial sum"),
        "{printed}"
    );
    assert!(
        printed.ends_with("[Replicate, Partial] over 1×2 = 2 devices (axis0 1, axis1 2)"),
        "{printed}"
    );
    assert!(refusal(visualize_tensor(&partial, 80)).contains("partial sum"));
    assert!(refusal(partial.to_host()).contains("partial sum"));
    assert!(refusal(get_device_tensors(&partial)).contains("partial sum"));
}

#[test]
fn drawings_name_devices_slices_and_placements() {
    let device = open(&[2, 2]);
    let t = device
        .distribute(&counted(&[4, 2]), &MapperConfig::grid(Some(0), None))
        .expect("placed");
    let drawn = visualize_tensor(&t, 80).expect("drawn");
    let plain = drawn.plain();
    for word in [
        "axis0 (2 devices): Shard(0)",
        "axis1 (2 devices): Replicate",
        "[2:4, :]",
        "Dev. ID: 3",
        "f32",
    ] {
        assert!(plain.contains(word), "{word}:\n{plain}");
    }
    assert!(drawn.svg().starts_with("<svg"));
    // On the host: a device without a shard is drawn as such.
    let few = distribute(&counted(&[3]), &MapperConfig::shard(0), &device.view().shape()).expect("dealt out");
    let plain = few.visualize(80).plain();
    assert!(
        plain.contains("axis 0 (3 devices): Shard(0)") && plain.contains("no shard"),
        "{plain}"
    );
    let corner = device.create_submesh(&[1, 1], Some(&[1, 1])).expect("a submesh");
    assert!(visualize_mesh_device(&corner, 80).plain().contains("Dev. ID: 3"));
    let system = visualize_system_mesh(&corner, 80).plain();
    assert!(system.contains("(2, 2)") && system.contains("Dev. ID: 0"), "{system}");
}

#[test]
fn device_tensors_share_memory_and_combine() {
    let device = open(&[2, 2]);
    let mapper = MapperConfig::grid(Some(0), Some(1));
    let x = counted(&[4, 6]);
    let parts = get_device_tensors(&device.distribute(&x, &mapper).expect("placed")).expect("four");
    // Each lives on, though the whole is dropped.
    assert_eq!(
        parts[2].to_host().expect("read").to_vec::<f32>().expect("f32"),
        [12.0, 13.0, 14.0, 18.0, 19.0, 20.0]
    );
    assert_eq!(parts[3].device().view().ids(), [3]);
    let whole = combine_device_tensors(&parts, &mapper, &device).expect("combined");
    assert_eq!(whole.buffer(), parts[0].buffer());
    assert_eq!(whole.to_host().expect("composed"), x);
    // What was computed apart is copied.
    let doubled: Vec<Tensor> = parts.iter().map(|part| part.add(part).expect("added")).collect();
    let whole = combine_device_tensors(&doubled, &mapper, &device).expect("combined");
    drop(doubled);
    let twice: Vec<f32> = (0..24).map(|i| 2.0 * i as f32).collect();
    assert_eq!(whole.to_host().expect("composed").to_vec::<f32>().expect("f32"), twice);

    let combine = |tensors: &[Tensor], mapper| refusal(combine_device_tensors(tensors, mapper, &device));
    let turned = [parts[1].clone(), parts[0].clone(), parts[2].clone(), parts[3].clone()];
    assert_eq!(
        combine(&turned, &mapper),
        "combine_device_tensors: tensor 0 lies on MeshDevice(1 grid, 1 devices) on devices [1], but its place is device 0; \
         give the tensors in the order of the places"
    );
    assert!(combine(&parts[..2], &mapper).contains("2 tensors for the distribution [2, 2], which has 4 places"));
    assert!(combine(&[], &mapper).contains("no tensors"));
    let foreign = open(&[2, 2]).distribute(&x, &mapper).expect("placed");
    assert!(combine(&get_device_tensors(&foreign).expect("four"), &mapper).contains("opened apart"));
    let odd = [parts[0].clone(), parts[1].reshape(&[3, 2]).expect("six values")];
    assert!(combine(&odd, &MapperConfig::shard(0)).contains("one shape and kind"));
}
