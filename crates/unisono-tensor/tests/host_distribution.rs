//! Host arrays dealt out over meshes and put together again.

mod common;

use common::host::arbitrary;
use proptest::prelude::*;
use unisono_tensor::distributed::{aggregate, distribute, from_host_shards, from_host_shards_as};
use unisono_tensor::{ComposerConfig, HostTensor, MapPlacement, MapperConfig, MeshShape, Placement};

use MapPlacement::{Replicate, Shard};

fn mesh(sizes: &[usize]) -> MeshShape {
    MeshShape::new(sizes).expect("a valid mesh")
}

fn counted(shape: &[usize]) -> HostTensor {
    let values: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
    HostTensor::new(&values, shape).expect("valid")
}

fn values(t: &HostTensor) -> Vec<i32> {
    t.to_vec().expect("i32")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random shapes, meshes, placements and overrides: what is dealt out comes back to the bit.
    #[test]
    fn composing_undoes_distributing(
        sizes in proptest::collection::vec(1usize..4, 1..4),
        extra in 0usize..3,
        dims in proptest::collection::vec(0usize..4, 3),
        counts in proptest::collection::vec(0usize..3, 3),
        kind in 0usize..5,
        rank in 1usize..4,
        seed in any::<u32>(),
    ) {
        // The mesh may be larger than what is laid over it.
        let room: Vec<usize> = sizes.iter().map(|size| size + extra).collect();
        let mut shape = counts[..rank].to_vec();
        let mut placements = Vec::new();
        let mut used = Vec::new();
        for (size, dim) in sizes.iter().zip(&dims) {
            if *dim < rank && !used.contains(dim) {
                used.push(*dim);
                shape[*dim] *= size;
                placements.push(Shard(*dim as isize - if seed % 2 == 0 { rank as isize } else { 0 }));
            } else {
                placements.push(Replicate);
            }
        }
        let x = arbitrary(kind, &shape, seed);
        let t = distribute(&x, &MapperConfig::over(&placements, mesh(&sizes)), &mesh(&room)).expect("dealt out");
        let one_copy: Vec<usize> =
            sizes.iter().zip(&placements).map(|(size, p)| if *p == Replicate { 1 } else { *size }).collect();
        let written: Vec<isize> = placements.iter().map(|p| match p { Shard(dim) => *dim, Replicate => 0 }).collect();
        let back = aggregate(&t, &ComposerConfig::over(&written, mesh(&one_copy))).expect("composed");
        prop_assert_eq!(&back, &x);
        if one_copy == sizes {
            prop_assert_eq!(&t.to_host().expect("no copies"), &x);
        }
        let again = from_host_shards_as(t.shards(), &MapperConfig::over(&placements, mesh(&sizes)), &mesh(&room));
        prop_assert_eq!(again.expect("the same shards"), t);
    }
}

#[test]
fn the_originals_examples() {
    // Eight elements over four devices: two each.
    let t = distribute(&counted(&[8]), &MapperConfig::shard(0), &mesh(&[4])).expect("dealt out");
    assert_eq!(
        t.shards().iter().map(values).collect::<Vec<_>>(),
        [[0, 1], [2, 3], [4, 5], [6, 7]]
    );
    // 4×4 on 2×2 with dims (0, 1), and turned: the last dim along the rows.
    let x = counted(&[4, 4]);
    let t = distribute(&x, &MapperConfig::grid(Some(0), Some(1)), &mesh(&[2, 2])).expect("dealt out");
    assert_eq!(values(&t.shards()[1]), [2, 3, 6, 7]);
    let turned = distribute(&x, &MapperConfig::grid(Some(-1), Some(-2)), &mesh(&[2, 2])).expect("dealt out");
    assert_eq!(values(&turned.shards()[1]), [8, 9, 12, 13]);
    assert_eq!(
        turned.distribution().placements(),
        [Placement::Shard(1), Placement::Shard(0)]
    );
    assert_eq!(aggregate(&turned, &ComposerConfig::grid(-1, -2)).expect("composed"), x);
    assert_eq!(turned.to_host().expect("composed"), x);
    // 3 elements over 4 devices: the last has none.
    let t = distribute(&counted(&[3]), &MapperConfig::shard(-1), &mesh(&[2, 2])).expect("dealt out");
    assert_eq!((t.shards().len(), t.distribution().shape().sizes()), (3, &[3][..]));
    assert_eq!(
        values(&aggregate(&t, &ComposerConfig::concat(0)).expect("composed")),
        [0, 1, 2]
    );
    assert_eq!(t.to_host().expect("composed"), counted(&[3]));
}

#[test]
fn replicas_share_memory_and_joining_them_grows() {
    let x = counted(&[2, 2]);
    let t = distribute(&x, &MapperConfig::replicate(), &mesh(&[2, 2])).expect("dealt out");
    assert!(t.shards().iter().all(|shard| shard.shares_memory(&x)));
    assert_eq!(
        aggregate(&t, &ComposerConfig::concat(0)).expect("composed").shape(),
        [8, 2]
    );
    assert_eq!(
        aggregate(&t, &ComposerConfig::grid(0, 1)).expect("composed").shape(),
        [4, 4]
    );
    let one = ComposerConfig::over(&[0], mesh(&[1]));
    assert!(aggregate(&t, &one).expect("composed").shares_memory(&x));

    let t = distribute(&x, &MapperConfig::grid(None, Some(0)), &mesh(&[2, 2])).expect("dealt out");
    assert!(t.shards()[0].shares_memory(&t.shards()[2]) && !t.shards()[0].shares_memory(&t.shards()[1]));
    assert_eq!(
        t.to_host().expect_err("copies").to_string(),
        "to_host: along axis 0 of the distribution [2, 2] each of 2 devices holds a copy; give aggregate() a composer: \
         ComposerConfig::over(&[0, 0], MeshShape::new(&[1, 2])?) reads one copy, ComposerConfig::concat(0) joins the parts \
         of all devices in dim 0"
    );
    let advised = ComposerConfig::over(&[0, 0], MeshShape::new(&[1, 2]).expect("a shape"));
    assert_eq!(aggregate(&t, &advised).expect("as advised"), x);
}

#[test]
fn shards_from_the_host_must_fit_together() {
    let shards: Vec<HostTensor> = (0..4)
        .map(|i| HostTensor::new(&[i, i + 10], &[1, 2]).expect("valid"))
        .collect();
    let t = from_host_shards(&shards, &mesh(&[2, 2])).expect("one a device");
    assert_eq!(t.shape(), [4, 2]);
    assert_eq!(values(&t.to_host().expect("composed")), [0, 10, 1, 11, 2, 12, 3, 13]);
    let grid = from_host_shards_as(&shards, &MapperConfig::grid(Some(1), Some(0)), &mesh(&[2, 2])).expect("laid out");
    assert_eq!(values(&grid.to_host().expect("composed")), [0, 10, 2, 12, 1, 11, 3, 13]);
    let refused = |shards: &[HostTensor], mapper: &MapperConfig| {
        from_host_shards_as(shards, mapper, &mesh(&[2, 2]))
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        refused(&shards[..3], &MapperConfig::grid(Some(1), Some(0))),
        "from_host_shards: 3 shards for the distribution [2, 2], which has 4 places; give one a place"
    );
    assert!(refused(&[], &MapperConfig::replicate()).contains("no shards"));
    assert!(
        refused(&shards, &MapperConfig::replicate()).contains("shards 0 and 1 copies of one part, but their values")
    );
    let odd = [shards[0].clone(), counted(&[3])];
    assert_eq!(
        refused(&odd, &MapperConfig::shard(0)),
        "from_host_shards: shards HostTensor([1, 2], i32) and HostTensor([3], i32); all shards must be of one shape and kind"
    );
    assert!(refused(&shards, &MapperConfig::shard(2)).contains("dim 2 lies outside"));
    let five = vec![shards[0].clone(); 5];
    assert!(
        from_host_shards(&five, &mesh(&[2, 2]))
            .expect_err("refused")
            .to_string()
            .contains("has 4; give")
    );
}

#[test]
fn a_distributed_array_prints_device_by_device() {
    let t = distribute(&counted(&[2, 2]), &MapperConfig::grid(Some(0), None), &mesh(&[2, 2])).expect("dealt out");
    assert_eq!(
        t.to_string(),
        "device 0 (0, 0): [0:1, :]
  [[0, 1]]
device 1 (0, 1): [0:1, :], as on device 0
device 2 (1, 0): [1:2, :]
  [[2, 3]]
device 3 (1, 1): [1:2, :], as on device 2
shape [2, 2], i32, [Shard(0), Replicate] over [2, 2]"
    );
    let t = distribute(&counted(&[64]), &MapperConfig::shard(0), &mesh(&[8, 8])).expect("dealt out");
    let text = t.to_string();
    assert!(
        text.contains("… 58 more devices\n") && text.contains("device 63 (7, 7): [63:64]\n  [63]"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 14);
}
