//! Mappers and composers on shapes alone: which part goes where, and every error.

use unisono_mesh::{
    ComposerConfig, Composition, Distribution, DistributionMode, MapPlacement, MapperConfig, MeshShape, Placement,
    devices_of,
};

use MapPlacement::{Replicate, Shard};

fn shape(sizes: &[usize]) -> MeshShape {
    MeshShape::new(sizes).expect("a valid shape")
}

fn of(mesh: &[usize], config: &MapperConfig, tensor: &[usize]) -> Distribution {
    Distribution::of(&shape(mesh), config, tensor).expect("it can be dealt out")
}

fn refused(mesh: &[usize], config: &MapperConfig, tensor: &[usize]) -> String {
    Distribution::of(&shape(mesh), config, tensor)
        .expect_err("it must be refused")
        .to_string()
}

#[test]
fn a_mesh_of_two_axes_cuts_two_dims() {
    let d = of(&[2, 4], &MapperConfig::grid(Some(-1), Some(-2)), &[3, 8, 6]);
    assert_eq!(d.placements(), [Placement::Shard(2), Placement::Shard(1)]);
    assert_eq!(d.local_shape(), [3, 2, 3]);
    assert_eq!(d.mode(), DistributionMode::Submesh);
    // Place 6 is (1, 2): the second half of the last dim, the third quarter of the one before.
    assert_eq!(d.ranges(6), [0..3, 4..6, 3..6]);
    assert_eq!(
        (0..8).map(|place| d.source(place)).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
}

#[test]
fn replicas_follow_index_zero_of_each_replicated_axis() {
    let d = of(&[2, 3], &MapperConfig::new(&[Replicate, Shard(0)]), &[6]);
    let sources: Vec<usize> = (0..6).map(|place| d.source(place)).collect();
    assert_eq!(sources, [0, 1, 2, 0, 1, 2]);
    assert_eq!(d.ranges(4)[0], 2..4);
    let d = of(&[2, 3], &MapperConfig::replicate(), &[6]);
    assert!((0..6).all(|place| d.source(place) == 0 && d.ranges(place)[0] == (0..6)));
    assert_eq!((d.shape().sizes(), d.mode()), (&[6][..], DistributionMode::RowMajor));
}

#[test]
fn an_override_that_fits_is_a_submesh_and_any_other_runs_row_major() {
    let inside = MapperConfig::over(&[Shard(0), Shard(1)], shape(&[2, 2]));
    let d = of(&[4, 4], &inside, &[4, 4]);
    assert_eq!((d.mode(), d.devices()), (DistributionMode::Submesh, &[0, 1, 4, 5][..]));
    let longer = MapperConfig::over(&[Shard(0), Shard(1)], shape(&[2, 8]));
    let d = of(&[4, 4], &longer, &[4, 8]);
    assert_eq!(d.mode(), DistributionMode::RowMajor);
    assert_eq!(d.devices(), (0..16).collect::<Vec<_>>());
    assert_eq!(d.ranges(9), [2..4, 1..2]);
    let line = MapperConfig::over(&[Shard(0)], shape(&[3]));
    let d = of(&[2, 2], &line, &[6]);
    assert_eq!(
        d.coordinates().iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["(0, 0)", "(0, 1)", "(1, 0)"]
    );
    assert_eq!(
        devices_of(&shape(&[1, 3]), &shape(&[2, 4])).expect("it fits").1,
        [0, 1, 2]
    );
    assert_eq!(devices_of(&shape(&[2, 1]), &shape(&[2, 4])).expect("it fits").1, [0, 4]);
    assert_eq!(
        devices_of(&shape(&[4, 2]), &shape(&[2, 4])).expect("it fits").1,
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
}

#[test]
fn a_line_may_have_fewer_parts_than_devices() {
    for (size, part, parts) in [(3, 1, 3), (6, 2, 3), (4, 1, 4), (1, 1, 1), (0, 0, 4)] {
        let d = of(&[2, 2], &MapperConfig::shard(0), &[size, 5]);
        assert_eq!(
            (d.local_shape(), d.num_places()),
            (&[part, 5][..], parts),
            "{size} over 4"
        );
        assert_eq!(d.shape().sizes(), [parts]);
        assert_eq!(d.devices(), (0..parts).collect::<Vec<_>>());
    }
}

#[test]
fn what_cannot_be_dealt_out_is_refused_in_words() {
    assert_eq!(
        refused(&[2, 2], &MapperConfig::shard(0), &[10, 7]),
        "dim 0 of the tensor [10, 7] over 4 devices makes parts of 3 with 1 left for the last; all parts must be of equal \
         shape; over 4 devices a size of 8 or 12 works, and 10 works over 1, 2 devices"
    );
    assert_eq!(
        refused(&[2, 4], &MapperConfig::grid(None, Some(0)), &[3]),
        "dim 0 of the tensor [3] makes 3 parts of 1, but axis 1 of the distribution shape [2, 4] has 4 devices; only a \
         distribution of one axis may leave devices empty; over 4 devices a size of 4 works, and 3 works over 1, 3 devices"
    );
    assert_eq!(
        refused(&[2, 4], &MapperConfig::over(&[Shard(0)], shape(&[9])), &[9]),
        "the shape [9] has 9 devices but the mesh [2, 4] has 8; give a shape of at most 8 devices"
    );
    assert_eq!(
        refused(&[2, 4], &MapperConfig::new(&[Shard(0)]), &[8]),
        "the mapper has 1 placement but the distribution shape [2, 4] has 2 axes; give one placement per axis"
    );
    assert_eq!(
        refused(&[2, 4], &MapperConfig::shard(2), &[8, 8]),
        "dim 2 lies outside the tensor [8, 8]; its dims are 0 to 1, or -2 to -1 from the last"
    );
    assert!(refused(&[4], &MapperConfig::shard(-3), &[8, 8]).starts_with("dim -3 lies outside"));
    assert!(refused(&[4], &MapperConfig::shard(isize::MIN), &[8]).starts_with("dim -9223372036854775808"));
    assert_eq!(
        refused(&[4], &MapperConfig::shard(0), &[]),
        "dim 0 of a tensor without dims; it can only be replicated"
    );
    assert!(
        refused(&[2, 2], &MapperConfig::new(&[Shard(0), Shard(-2)]), &[8, 8])
            .starts_with("dim 0 of the tensor [8, 8] is cut along axis 0 and again along axis 1")
    );
    // A size that no counting may overflow.
    assert!(refused(&[4], &MapperConfig::shard(0), &[usize::MAX]).contains("equal shape"));
}

fn compose(mesh: &[usize], config: &ComposerConfig, local: &[usize]) -> Composition {
    let mesh = shape(mesh);
    Composition::of(&mesh, config, local, &vec![true; mesh.num_devices()]).expect("it can be composed")
}

#[test]
fn a_composition_joins_every_axis_and_a_size_of_one_reads_one_copy() {
    let c = compose(&[2, 2], &ComposerConfig::grid(0, 1), &[3, 4]);
    assert_eq!(c.shape(), [6, 8]);
    assert_eq!(
        c.parts(),
        [(0, vec![0, 0]), (1, vec![0, 4]), (2, vec![3, 0]), (3, vec![3, 4])]
    );
    let one_copy = ComposerConfig::over(&[1, 0], shape(&[1, 2]));
    let c = compose(&[2, 2], &one_copy, &[3, 4]);
    assert_eq!(
        (c.shape(), c.parts()),
        (&[6, 4][..], &[(0, vec![0, 0]), (1, vec![3, 0])][..])
    );
    let column = ComposerConfig::over(&[0, 1], shape(&[2, 1]));
    assert_eq!(
        compose(&[2, 2], &column, &[3, 4]).parts(),
        [(0, vec![0, 0]), (2, vec![3, 0])]
    );
    let line = compose(&[2, 2], &ComposerConfig::concat(-1), &[2]);
    assert_eq!((line.shape(), line.parts().len()), (&[8][..], 4));
    // Scalars can be read one copy at a time.
    let scalar = ComposerConfig::over(&[0, 0], shape(&[1, 1]));
    assert_eq!(compose(&[2, 2], &scalar, &[]).parts(), [(0, vec![])]);
}

#[test]
fn what_cannot_be_composed_is_refused_in_words() {
    let refused = |config: &ComposerConfig, holds: &[bool]| {
        Composition::of(&shape(&[2, 2]), config, &[2, 3], holds)
            .expect_err("it must be refused")
            .to_string()
    };
    let all = [true; 4];
    assert_eq!(
        refused(&ComposerConfig::grid(0, -2), &all),
        "the composer joins axis 0 and axis 1 in the same dim -2 of the parts [2, 3]; give each axis a dim of its own, or \
         read one copy of an axis by giving it the size 1"
    );
    assert_eq!(
        refused(&ComposerConfig::new(&[0]), &all),
        "the composer has 1 dim but the distribution shape [2, 2] has 2 axes; give one dim per axis"
    );
    assert_eq!(
        refused(&ComposerConfig::over(&[0], shape(&[5])), &all),
        "the shape [5] has 5 devices but the mesh [2, 2] has 4; give a shape of at most 4 devices"
    );
    assert_eq!(
        refused(&ComposerConfig::grid(0, 1), &[true, true, true, false]),
        "the composition over [2, 2] needs 4 parts but 3 of its devices hold one; compose over the shape that the tensor \
         was distributed to"
    );
    assert!(refused(&ComposerConfig::concat(2), &all).starts_with("dim 2 lies outside the tensor [2, 3]"));
    let huge = Composition::of(&shape(&[2, 2]), &ComposerConfig::concat(0), &[usize::MAX / 2, 3], &all);
    assert!(huge.expect_err("too large").to_string().contains("larger than memory"));
}

/// Every small tensor on every small mesh, by every placement: the parts cover the tensor once per copy, and composing by
/// the same dims puts each part back where it came from.
#[test]
fn compositions_invert_distributions() {
    let mut tried = 0;
    for mesh in [&[1][..], &[4], &[2, 2], &[1, 3], &[3, 2], &[2, 1, 2]] {
        for tensor in [&[12][..], &[6, 4], &[4, 3, 6]] {
            let choices = tensor.len() + 1;
            for code in 0..choices.pow(mesh.len() as u32) {
                let digit = |axis: usize| code / choices.pow(axis as u32) % choices;
                let placement = |axis: usize| match digit(axis) {
                    0 => Replicate,
                    dim => Shard(dim as isize - 1 - tensor.len() as isize),
                };
                let placements: Vec<MapPlacement> = (0..mesh.len()).map(placement).collect();
                let Ok(d) = Distribution::of(&shape(mesh), &MapperConfig::new(&placements), tensor) else {
                    continue;
                };
                tried += 1;
                // One copy of each replicated axis, its dim whichever.
                let sizes: Vec<usize> = d
                    .shape()
                    .sizes()
                    .iter()
                    .zip(d.placements())
                    .map(|(size, p)| if p.is_replicate() { 1 } else { *size })
                    .collect();
                let dims: Vec<isize> = d
                    .placements()
                    .iter()
                    .map(|p| p.sharded_dim().unwrap_or(0) as isize)
                    .collect();
                let c = Composition::of(
                    d.mesh(),
                    &ComposerConfig::over(&dims, shape(&sizes)),
                    d.local_shape(),
                    &vec![true; d.mesh().num_devices()],
                )
                .expect("it can be composed");
                assert_eq!(c.shape(), tensor, "{mesh:?} {placements:?}");
                for (device, start) in c.parts() {
                    let place = d
                        .devices()
                        .iter()
                        .position(|other| other == device)
                        .expect("the device has a part");
                    assert_eq!(d.start(place), *start, "{mesh:?} {placements:?}");
                    assert_eq!(d.source(place), place, "one copy is read");
                }
                let covered: usize = c.parts().len() * d.local_shape().iter().product::<usize>();
                assert_eq!(covered, tensor.iter().product::<usize>());
            }
        }
    }
    assert!(tried > 100, "{tried} distributions");
}
