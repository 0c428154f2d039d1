//! Built-in and new descriptors, and the choice of one for a mesh.

mod common;

use common::folder;
use unisono_mesh::descriptor::{
    Architecture, BUILTINS, Builtin, Fit, LinkKind, LinkRole, NamedBy, NewMesh, Policy, Selection, Wish, check,
    cpu_descriptor, parse_sizes, select,
};
use unisono_mesh::{MeshError, MeshShape};

fn shape(sizes: &[usize]) -> MeshShape {
    MeshShape::new(sizes).expect("a shape")
}

/// The choice for a mesh under the descriptor of this file or name.
fn under(name: &str, sizes: &[usize]) -> Result<Selection, MeshError> {
    let wish = Wish {
        configured: Some(name),
        ..Wish::default()
    };
    select(&shape(sizes), wish)
}

fn real(name: &str) -> String {
    folder()
        .join("real")
        .join(format!("{name}.textproto"))
        .display()
        .to_string()
}

#[test]
fn built_in_descriptors_are_what_their_names_say() {
    let expected = [
        ("n150", "[1, 1]", 1, 1),
        ("p100", "[1, 1]", 1, 1),
        ("p150", "[1, 1]", 1, 1),
        ("n300", "[1, 2]", 2, 1),
        ("p300", "[1, 2]", 2, 1),
        ("gpu-4-nvlink-pairs", "[2, 2]", 12, 1),
        ("t3k-2x4", "[2, 4]", 2, 1),
        ("t3k-1x8", "[1, 8]", 2, 1),
        ("quietbox-2x4", "[2, 4]", 2, 1),
        ("loudbox-1x8", "[1, 8]", 2, 1),
        ("gpu-8-nvlink", "[1, 8]", 18, 1),
        ("galaxy-8x4", "[8, 4]", 4, 1),
        ("galaxy-4x8", "[4, 8]", 4, 1),
        ("galaxy-1x32", "[1, 32]", 4, 1),
        ("dual-galaxy", "[8, 8]", 1, 2),
        ("quad-galaxy", "[16, 8]", 2, 4),
    ];
    for (builtin, (name, dims, channels, hosts)) in BUILTINS.iter().zip(expected) {
        let checked = builtin.checked();
        let block = &checked.machine.blocks[0];
        assert_eq!(
            (builtin.name, &*block.shape.to_string(), block.channels),
            (name, dims, channels)
        );
        assert_eq!(checked.machine.hosts().len(), hosts, "{name}");
        assert!(checked.warnings.is_empty(), "{name}: {:?}", checked.warnings);
        // Ours alone have architectures that the control plane does not know.
        assert_eq!(
            checked.compatibility.is_empty(),
            block.arch != Architecture::Cuda,
            "{name}"
        );
        assert!(block.device.is_some_and(|device| device.memory_gib.is_some()), "{name}");
        assert!(builtin.about().ends_with('.'), "{name}: {}", builtin.about());
    }
    let error = Builtin::named("t3k-2×4").expect_err("no such name").to_string();
    assert!(error.contains("did you mean \"t3k-2x4\"?"), "{error}");
}

#[test]
fn gpu_servers_have_the_links_of_their_boards() {
    let eight = Builtin::named("gpu-8-nvlink").expect("a name").checked().machine;
    assert_eq!(eight.blocks[0].links.len(), 28, "every pair is one hop apart");
    assert!(eight.blocks[0].links.iter().all(|link| link.gbps() == Some(450.0)));
    let four = Builtin::named("gpu-4-nvlink-pairs").expect("a name").checked().machine;
    let links: Vec<_> = four.blocks[0]
        .links
        .iter()
        .map(|l| (l.a, l.b, l.rate.kind, l.channels, l.role))
        .collect();
    assert_eq!(
        links,
        [
            (0, 2, LinkKind::Pcie4x16, 1, LinkRole::Neighbour),
            (0, 1, LinkKind::NvLink3, 12, LinkRole::Neighbour),
            (1, 3, LinkKind::Pcie4x16, 1, LinkRole::Neighbour),
            (2, 3, LinkKind::NvLink3, 12, LinkRole::Neighbour),
            (0, 3, LinkKind::Pcie4x16, 1, LinkRole::Switched),
            (1, 2, LinkKind::Pcie4x16, 1, LinkRole::Switched),
        ]
    );
}

#[test]
fn processor_cores_make_a_descriptor() {
    for (nodes, cores, dims) in [
        (1, 2, "[1, 2]"),
        (2, 64, "[2, 32]"),
        (2, 7, "[1, 7]"),
        (0, 0, "[1, 1]"),
        (4, 4, "[4, 1]"),
    ] {
        let checked = check("cpu", cpu_descriptor(nodes, cores).as_bytes()).unwrap_or_else(|report| panic!("{report}"));
        let block = &checked.machine.blocks[0];
        assert_eq!(
            (block.shape.to_string().as_str(), block.arch),
            (dims, Architecture::Cpu)
        );
        assert!(checked.warnings.is_empty());
    }
}

#[test]
fn new_descriptors_pass_their_own_check() {
    let new = NewMesh {
        rings: vec![1],
        hosts: Some(vec![1, 2]),
        arch: Architecture::WormholeB0,
        channels: 4,
        policy: Policy::Strict,
        ..NewMesh::new(vec![4, 8])
    };
    let (text, checked) = new.write().expect("it can be written");
    assert_eq!(
        text,
        "mesh_descriptors {\n  name: \"M0\"\n  arch: WORMHOLE_B0\n  device_topology { dims: [4, 8] dim_types: [LINE, RING] }\n  \
         host_topology { dims: [1, 2] }\n  channels { count: 4 policy: STRICT }\n}\n\n\
         top_level_instance { mesh { mesh_descriptor: \"M0\" mesh_id: 0 } }\n"
    );
    assert_eq!(checked.machine.hosts().len(), 2);
    assert!(checked.compatibility.is_empty());
    let error = |new: NewMesh| new.write().expect_err("it is refused").to_string();
    let plain = NewMesh::new(vec![2, 4]);
    assert!(
        error(NewMesh {
            rings: vec![2],
            ..plain.clone()
        })
        .contains("no dimension 2 to be a ring: [2, 4] has 2 dimensions")
    );
    assert!(
        error(NewMesh {
            rings: vec![0],
            ..plain.clone()
        })
        .contains("dimension 0 of [2, 4] has 2 devices, too few for a ring")
    );
    assert_eq!(
        error(NewMesh {
            hosts: Some(vec![1, 3]),
            ..plain.clone()
        }),
        "no descriptor can be written for this: host_topology.dims: dimension 1 has 4 devices, which 3 hosts cannot share evenly; \
         the devices [2, 4] must be divisible by the hosts [1, 3]"
    );
    assert!(
        error(NewMesh {
            channels: 0,
            ..plain.clone()
        })
        .contains("0 channels; a link needs at least 1")
    );
    assert!(
        error(NewMesh {
            shape: vec![],
            ..plain.clone()
        })
        .contains("no dimensions are given")
    );
    assert!(
        error(NewMesh {
            shape: vec![0, 4],
            ..plain.clone()
        })
        .contains("a dimension of 0 devices")
    );
    assert!(
        error(NewMesh {
            shape: vec![usize::MAX, 4],
            ..plain
        })
        .contains("expected a whole number")
    );
    assert_eq!(parse_sizes("4x8").expect("sizes"), [4, 8]);
    assert_eq!(parse_sizes("[1, 32]").expect("sizes"), [1, 32]);
    for wrong in ["", "4x", "4 8", "-1x2", "x", "4xx8"] {
        assert!(parse_sizes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_mesh_lies_straight_turned_or_along_the_line() {
    let straight = under("galaxy-4x8", &[4, 8]).expect("it fits");
    assert_eq!((straight.fit, straight.devices[9]), (Fit::Straight, 9));
    let line = under("galaxy-4x8", &[1, 32]).expect("it fits");
    assert_eq!((line.fit, &line.devices[6..10]), (Fit::Line, &[6, 7, 15, 14][..]));
    let turned = under("galaxy-4x8", &[8, 4]).expect("it fits");
    assert_eq!(
        (turned.fit, &turned.devices[..5]),
        (Fit::Turned, &[0, 8, 16, 24, 1][..])
    );
    let part = under(&real("t3k"), &[2, 2]).expect("it fits");
    assert_eq!((part.fit, part.devices.as_slice()), (Fit::Straight, &[0, 1, 2, 3][..]));
    let wish = Wish {
        configured: Some("t3k-2x4"),
        offset: Some(&[0, 2]),
        ..Wish::default()
    };
    assert_eq!(select(&shape(&[2, 2]), wish).expect("it fits").devices, [2, 3, 6, 7]);
    // The first mesh that can hold it: the gateways of 1×1 cannot.
    let tg = under(&real("tg"), &[4, 8]).expect("it fits");
    assert_eq!((tg.block, tg.devices[0]), (4, 4));
}

#[test]
fn a_mesh_that_does_not_fit_is_refused_with_both_numbers_and_a_way_out() {
    assert_eq!(
        under("galaxy-1x32", &[4, 8]).expect_err("it does not fit").to_string(),
        "the descriptor galaxy-1x32 ([1, 32] = 32 devices) does not hold the mesh_shape [4, 8] = 32 devices: \
         at offset [0, 0] it sticks out, turned by a quarter too; \
         set mesh_shape to one that fits ([1, 32], [32, 1], or smaller), or describe the machine as it is meant: \
         `unisono mesh new --shape 4x8` writes a descriptor of that shape"
    );
    let small = under(&real("tt_train_bh_2_2_line_line"), &[2, 4])
        .expect_err("it does not fit")
        .to_string();
    assert!(
        small.contains("([2, 2] = 4 devices) does not hold the mesh_shape [2, 4] = 8 devices: it needs 8 devices"),
        "{small}"
    );
    let many = under(&real("16_n300_lb_closetbox"), &[4, 4])
        .expect_err("no mesh holds it")
        .to_string();
    assert!(
        many.contains("(16 times [2, 4] = 128 devices) does not hold the mesh_shape [4, 4] = 16 devices"),
        "{many}"
    );
    let line = under(&real("t3k_1x8"), &[2, 4])
        .expect_err("a line is no grid")
        .to_string();
    assert!(line.contains("--shape 2x4"), "{line}");
    let wish = Wish {
        configured: Some("t3k-2x4"),
        offset: Some(&[0, 3]),
        ..Wish::default()
    };
    assert!(select(&shape(&[2, 2]), wish).is_err());
}

#[test]
fn the_environment_goes_before_the_configuration_and_both_before_the_shape() {
    let wish = Wish {
        environment: Some("galaxy-8x4"),
        configured: Some("t3k-2x4"),
        offset: None,
    };
    let selection = select(&shape(&[2, 4]), wish).expect("it fits");
    assert_eq!(
        (selection.by, selection.checked.file.as_str()),
        (NamedBy::Environment, "galaxy-8x4")
    );
    let wish = Wish {
        environment: Some(""),
        ..wish
    };
    assert_eq!(
        select(&shape(&[2, 4]), wish).expect("it fits").by,
        NamedBy::Configuration
    );
    let chosen = |sizes: &[usize]| {
        let selection = select(&shape(sizes), Wish::default()).expect("one holds it");
        (selection.checked.file, selection.fit)
    };
    assert_eq!(chosen(&[1, 8]), ("t3k-1x8".to_owned(), Fit::Straight));
    assert_eq!(chosen(&[8, 4]), ("galaxy-8x4".to_owned(), Fit::Straight));
    assert_eq!(chosen(&[4, 2]), ("t3k-2x4".to_owned(), Fit::Turned));
    assert_eq!(chosen(&[1, 32]), ("galaxy-1x32".to_owned(), Fit::Straight));
    assert_eq!(chosen(&[8, 8]), ("dual-galaxy".to_owned(), Fit::Straight));
    assert_eq!(chosen(&[8]), ("t3k-2x4".to_owned(), Fit::Line));
    let count = select(&shape(&[2, 2, 2]), Wish::default())
        .expect_err("a line is no cube")
        .to_string();
    assert!(
        count.starts_with("the descriptor t3k-1x8 ([1, 8] = 8 devices)"),
        "by the number of devices: {count}"
    );
    let none = select(&shape(&[3, 50]), Wish::default())
        .expect_err("too many")
        .to_string();
    assert!(none.contains("150 devices") && none.contains("--shape 3x50"), "{none}");
}

#[test]
fn files_that_are_missing_or_wrong_are_named() {
    let missing = under("no/such/file.textproto", &[1, 1])
        .expect_err("it is not there")
        .to_string();
    assert!(
        missing.starts_with("the mesh graph descriptor no/such/file.textproto cannot be read: "),
        "{missing}"
    );
    let typo = under("galaxy-8x5", &[1, 1]).expect_err("no such name").to_string();
    assert!(typo.contains("did you mean \"galaxy-8x4\"?"), "{typo}");
    let folder = under(&folder().display().to_string(), &[1, 1]).expect_err("a folder");
    assert!(matches!(folder, MeshError::UnreadableDescriptor { .. }));
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert!(matches!(under(manifest, &[1, 1]), Err(MeshError::Descriptor(_))));
}
