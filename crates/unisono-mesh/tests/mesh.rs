//! Shapes, coordinates, groups, the `--mesh` flag and the axis rules, with the exact text of every error.

use Strategy::{Dp, Pp, Tp};
use unisono_mesh::{Mesh, MeshCoordinate, MeshCoordinateRange, MeshError, MeshShape, Strategy, assign_axes};

fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh::new(axes).expect("a valid mesh")
}

fn text<T: std::fmt::Debug>(result: Result<T, MeshError>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn ids_and_coordinates_are_row_major_and_inverse() {
    let shape = MeshShape::new(&[2, 3, 4]).expect("a valid shape");
    assert_eq!(shape.device(&MeshCoordinate(vec![1, 2, 3])), Ok(23));
    assert_eq!(shape.device(&MeshCoordinate(vec![1, 0, 2])), Ok(14));
    for (id, coordinate) in shape.coordinates().enumerate() {
        assert_eq!(shape.device(&coordinate), Ok(id));
        assert_eq!(shape.coordinate(id), Ok(coordinate));
    }
    assert_eq!(shape.coordinates().count(), 24);
    assert!(!shape.is_line());
    assert!(MeshShape::new(&[1, 8]).expect("a valid shape").is_line());
}

#[test]
fn ranges_are_inclusive_boxes() {
    let shape = MeshShape::new(&[2, 4]).expect("a valid shape");
    let range =
        MeshCoordinateRange::new(MeshCoordinate(vec![0, 1]), MeshCoordinate(vec![1, 2])).expect("a valid range");
    assert_eq!(range.sizes(), [2, 2]);
    assert_eq!(shape.devices_in(&range), Ok(vec![1, 2, 5, 6]));
    assert!(range.contains(&MeshCoordinate(vec![1, 1])));
    assert!(!range.contains(&MeshCoordinate(vec![1, 3])));
    assert!(!range.contains(&MeshCoordinate(vec![1])));
    let outside = MeshCoordinateRange::new(MeshCoordinate(vec![0, 0]), MeshCoordinate(vec![1, 4]));
    assert!(shape.devices_in(&outside.expect("in order")).is_err());
}

#[test]
fn groups_partition_the_devices_along_each_axis() {
    let mesh = mesh(&[("dp", 2), ("pp", 3), ("tp", 4)]);
    assert_eq!(mesh.group(17, "tp"), [16, 17, 18, 19]);
    assert_eq!(mesh.group(17, "pp"), [13, 17, 21]);
    assert_eq!(mesh.group(17, "dp"), [5, 17]);
    assert_eq!(mesh.group(17, "cp"), [17]);
    for axis in ["dp", "pp", "tp", "absent"] {
        let mut seen: Vec<usize> = mesh.groups(axis).concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..24).collect::<Vec<_>>(), "{axis}");
        for device in 0..24 {
            assert_eq!(mesh.group(device, axis)[mesh.position(device, axis)], device);
        }
    }
    let axis = mesh.axis("pp").expect("there is one");
    assert_eq!((axis.index, axis.size, axis.stride), (1, 3, 4));
    assert_eq!((mesh.axis_size("tp"), mesh.axis_size("absent")), (4, 1));
    assert_eq!(mesh.position(17, "absent"), 0);
}

#[test]
fn one_device_needs_no_axes() {
    let one = Mesh::one();
    assert_eq!((one.num_devices(), one.describe().as_str()), (1, "1 device"));
    assert_eq!(one.group(0, "dp"), [0]);
    assert_eq!(one.groups("dp"), [[0]]);
    assert_eq!(one.coordinate(0), Ok(MeshCoordinate(vec![0])));
    assert_eq!(one.device(&MeshCoordinate(vec![0])), Ok(0));
}

#[test]
fn the_mesh_flag_is_read_with_dp_outside() {
    assert_eq!(Mesh::parse("dp=2,tp=4"), Ok(mesh(&[("dp", 2), ("tp", 4)])));
    assert_eq!(Mesh::parse(" tp = 4 , dp=2 "), Ok(mesh(&[("dp", 2), ("tp", 4)])));
    assert_eq!(Mesh::parse("tp=2"), Ok(mesh(&[("tp", 2)])));
    assert_eq!(Mesh::parse("dp=1").map(|m| m.num_devices()), Ok(1));
}

#[test]
fn axes_go_to_strategies_as_the_design_says() {
    type Case = (
        &'static [usize],
        &'static [Strategy],
        &'static [(&'static str, usize)],
        &'static str,
    );
    let cases: &[Case] = &[
        (&[1, 1], &[], &[], "1 device"),
        (&[1, 2], &[Dp], &[("dp", 2)], "1×2 = 2 devices (dp 2)"),
        (&[1, 32], &[Tp], &[("tp", 32)], "1×32 = 32 devices (tp 32)"),
        (&[2, 4], &[Dp], &[("dp", 8)], "2×4 = 8 devices (dp 8)"),
        (
            &[8, 4],
            &[Dp, Tp],
            &[("dp", 8), ("tp", 4)],
            "8×4 = 32 devices (dp 8, tp 4)",
        ),
        (
            &[8, 4],
            &[Tp, Dp, Tp],
            &[("dp", 8), ("tp", 4)],
            "8×4 = 32 devices (dp 8, tp 4)",
        ),
        (
            &[1, 8],
            &[Dp, Tp],
            &[("dp", 1), ("tp", 8)],
            "1×8 = 8 devices (dp 1, tp 8)",
        ),
        (&[1, 1], &[Tp], &[("tp", 1)], "1 device"),
        (&[1, 1], &[Dp, Tp], &[("dp", 1), ("tp", 1)], "1 device"),
        (&[8], &[Dp], &[("dp", 8)], "8 devices (dp 8)"),
        (
            &[2, 1, 4],
            &[Dp, Tp],
            &[("dp", 2), ("tp", 4)],
            "2×1×4 = 8 devices (dp 2, tp 4)",
        ),
        (
            &[1, 1, 8],
            &[Dp, Tp],
            &[("dp", 1), ("tp", 8)],
            "1×1×8 = 8 devices (dp 1, tp 8)",
        ),
        (
            &[2, 3, 4],
            &[Tp, Pp, Dp],
            &[("dp", 2), ("pp", 3), ("tp", 4)],
            "2×3×4 = 24 devices (dp 2, pp 3, tp 4)",
        ),
        (&[1, 1, 1], &[Dp, Tp], &[("dp", 1), ("tp", 1)], "1 device"),
    ];
    for (shape, strategies, axes, described) in cases {
        let mesh = assign_axes(shape, strategies).expect("a valid assignment");
        let got: Vec<(&str, usize)> = mesh.axes().iter().map(|axis| (axis.name.as_str(), axis.size)).collect();
        assert_eq!(got, *axes, "{shape:?} {strategies:?}");
        assert_eq!(mesh.physical_shape(), *shape);
        assert_eq!(mesh.describe(), *described);
    }
}

#[test]
fn every_error_is_a_sentence_with_the_numbers() {
    let shape = MeshShape::new(&[2, 4]).expect("a valid shape");
    let dp_tp = mesh(&[("dp", 2), ("tp", 4)]);
    let cases: Vec<(String, &str)> = vec![
        (
            text(MeshShape::new(&[])),
            "the mesh shape is empty; give one size per axis, for example [1, 1] for one device",
        ),
        (
            text(MeshShape::new(&[2, 0])),
            "axis 1 of the mesh [2, 0] has size 0; every axis needs at least 1 device",
        ),
        (
            text(MeshShape::new(&[usize::MAX, 2])),
            "the mesh [18446744073709551615, 2] has more than 65536 devices, the most that unisono drives; make an axis smaller",
        ),
        (
            text(shape.coordinate(8)),
            "device 8 is not in the mesh [2, 4], whose devices are 0 to 7",
        ),
        (
            text(shape.device(&MeshCoordinate(vec![1]))),
            "the coordinate (1) has 1 axes but the mesh [2, 4] has 2; give one index per axis",
        ),
        (
            text(shape.device(&MeshCoordinate(vec![1, 4]))),
            "the coordinate (1, 4) lies outside the mesh [2, 4]: axis 1 goes from 0 to 3",
        ),
        (
            text(MeshCoordinateRange::new(
                MeshCoordinate(vec![1, 1]),
                MeshCoordinate(vec![1, 0]),
            )),
            "the range (1, 1) to (1, 0) ends before it starts on axis 1; both ends are inclusive, give start ≤ end on every axis",
        ),
        (
            text(Mesh::new(&[("dp", 2), ("dp", 2)])),
            "the axis \"dp\" is given twice in the mesh \"dp=2,dp=2\"; give each axis once",
        ),
        (
            text(Mesh::new(&[("", 2)])),
            "\"\" is no axis name; use letters, digits and '_', beginning with a letter, for example \"dp\"",
        ),
        (
            text(dp_tp.axis("ddp")),
            "the mesh 2×4 = 8 devices (dp 2, tp 4) has no axis \"ddp\"; its axes are dp, tp; did you mean \"dp\"?",
        ),
        (
            text(dp_tp.axis("context")),
            "the mesh 2×4 = 8 devices (dp 2, tp 4) has no axis \"context\"; its axes are dp, tp",
        ),
        (
            text(Mesh::one().axis("dp")),
            "the mesh 1 device has no axis \"dp\"; it has no axes",
        ),
        (
            text(Mesh::parse("  ")),
            "the mesh \"  \" is empty; write axes and sizes, for example \"dp=2,tp=2\", or \"dp=1\" for one device",
        ),
        (
            text(Mesh::parse("2x4")),
            "\"2x4\" in the mesh \"2x4\" is not of the form name=size, for example \"dp=2,tp=2\"",
        ),
        (
            text(Mesh::parse("dp=2,")),
            "\"\" in the mesh \"dp=2,\" is not of the form name=size, for example \"dp=2,tp=2\"",
        ),
        (
            text(Mesh::parse("dp=two")),
            "\"two\" in the mesh \"dp=two\" is no size; the size of dp is a whole number from 1 to 65536",
        ),
        (
            text(Mesh::parse("dp=-1")),
            "\"-1\" in the mesh \"dp=-1\" is no size; the size of dp is a whole number from 1 to 65536",
        ),
        (
            text(Mesh::parse("dp=99999999999999999999")),
            "\"99999999999999999999\" in the mesh \"dp=99999999999999999999\" is no size; the size of dp is a whole number from 1 to 65536",
        ),
        (
            text(Mesh::parse("tp=0")),
            "axis tp of the mesh \"tp=0\" has size 0; every axis needs at least 1 device",
        ),
        (
            text(Mesh::parse("dp=2,dp=4")),
            "the axis \"dp\" is given twice in the mesh \"dp=2,dp=4\"; give each axis once",
        ),
        (
            text(Mesh::parse("ddp=2")),
            "unknown axis \"ddp\" in the mesh \"ddp=2\"; the axes are dp (data parallel) and tp (tensor parallel); did you mean \"dp\"?",
        ),
        (
            text(Mesh::parse("x=2")),
            "unknown axis \"x\" in the mesh \"x=2\"; the axes are dp (data parallel) and tp (tensor parallel)",
        ),
        (
            text(Mesh::parse("dp=2,pp=2")),
            "the axis \"pp\" (pipeline parallel) in the mesh \"dp=2,pp=2\" is not built yet; use dp (data parallel) and tp (tensor parallel)",
        ),
        (
            text(Mesh::parse("fsdp=2")),
            "the axis \"fsdp\" (fully sharded data parallel) in the mesh \"fsdp=2\" is not built yet; use dp (data parallel) and tp (tensor parallel)",
        ),
        (
            text(Mesh::parse("dp=4096,tp=4096")),
            "the mesh \"dp=4096,tp=4096\" has more than 65536 devices, the most that unisono drives; make an axis smaller",
        ),
        (
            text(assign_axes(&[2, 4], &[])),
            "mesh_shape [2, 4] has 8 devices but no parallelism is enabled; set enable_ddp: true (dp 8) or enable_tp: true (tp 8), or mesh_shape: [1, 1] for one device",
        ),
        (
            text(assign_axes(&[8], &[Dp, Tp])),
            "mesh_shape [8] has 1 axis but 2 strategies are enabled (enable_ddp, enable_tp), and each strategy needs an axis of its own (it may have size 1); use mesh_shape: [4, 2] (dp 4, tp 2) or [8, 1] (dp 8, tp 1), or enable only one strategy, which takes all 8 devices",
        ),
        (
            text(assign_axes(&[2, 2, 2], &[Dp, Tp])),
            "mesh_shape [2, 2, 2] has 3 axes larger than 1 but 2 strategies are enabled (enable_ddp, enable_tp), and each strategy takes one axis; use mesh_shape: [4, 2] (dp 4, tp 2) or [8, 1] (dp 8, tp 1), or enable only one strategy, which takes all 8 devices",
        ),
        (
            text(assign_axes(&[1, 8, 1], &[Dp, Tp])),
            "mesh_shape [1, 8, 1] has 3 axes but 2 strategies are enabled (enable_ddp, enable_tp), and which axes of size 1 to leave out is not clear; use mesh_shape: [4, 2] (dp 4, tp 2) or [8, 1] (dp 8, tp 1), or enable only one strategy, which takes all 8 devices",
        ),
        (
            text(assign_axes(&[7], &[Dp, Pp, Tp])),
            "mesh_shape [7] has 1 axis but 3 strategies are enabled (enable_ddp, enable_pp, enable_tp), and each strategy needs an axis of its own (it may have size 1); use mesh_shape: [7, 1, 1] (dp 7, pp 1, tp 1), or enable only one strategy, which takes all 7 devices",
        ),
        (
            text(assign_axes(&[0, 4], &[Dp])),
            "axis 0 of the mesh [0, 4] has size 0; every axis needs at least 1 device",
        ),
    ];
    for (got, expected) in cases {
        assert_eq!(got, expected);
    }
}
